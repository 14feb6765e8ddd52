"""`rltriage coverage`: which faults a log can reveal, which not, and which one metric to add."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from rltriage.cli import completing
from rltriage.cli.options import config_option, json_option, profile_option, reference_option, rules_option
from rltriage.cli.output import few
from rltriage.cli.runs import load_packs, open_runs, say_unknown_facts, say_unread

if TYPE_CHECKING:
    from rltriage.engine.coverage import Coverage, FaultCoverage
    from rltriage.engine.intake import Intake
    from rltriage.engine.reference import Reference
    from rltriage.rules.model import RulePack


@click.command("coverage")
@click.argument("source", metavar="SOURCE", shell_complete=completing.logs)
@rules_option
@config_option
@profile_option
@reference_option
@json_option
def command(
    source: str,
    packs: tuple[str, ...],
    config: dict[str, Any],
    profile: str,
    reference_files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say which faults the metrics of SOURCE can reveal, and the one metric to add that helps most.

    Computed from the rules: a fault can be named if a rule that suspects it can fire on what is logged. --json prints one
    object per run.
    """
    from rltriage.engine.feed import Feed
    from rltriage.engine.reference import read_reference
    from rltriage.exporters.jsonlines import dumps

    pack = load_packs(packs)
    references = [read_reference(file) for file in reference_files]
    ((opened, run_id),) = open_runs((source,))
    feed = Feed(opened, run_id, profile, config)
    metrics: dict[str, set[str]] = {}
    with closing(opened):
        for intake, row in feed.rows():
            metrics.setdefault(intake.run.id, set()).update(row.metrics)
    say_unread(opened, run_id)
    for run_id, intake in feed.intakes.items():
        say_unknown_facts(intake, config, pack)
        found = _cover(pack, intake, metrics.get(run_id, set()), references)
        click.echo(dumps(as_data(run_id, found)) if as_json else "\n".join(as_text(run_id, found)))


def _cover(pack: RulePack, intake: Intake, metrics: set[str], references: list[Reference]) -> Coverage:
    from rltriage.engine.coverage import coverage
    from rltriage.engine.reference import Fitted

    facts = dict(intake.run.facts)
    fitted = Fitted(references)
    fitted.learn(facts)
    never = intake.profile.not_logged if intake.profile is not None else ()
    return coverage(pack, pack.catalogue, metrics, facts, reference=not fitted.why_not, never=tuple(never))


def as_data(run_id: str, found: Coverage) -> dict[str, Any]:
    """The public object: faults by level, the metric to add, and further ones."""

    def entry(each: FaultCoverage) -> dict[str, Any]:
        return {
            "fault": each.fault.id,
            "number": each.fault.number,
            "title": each.fault.title,
            "level": each.level,
            "rules": list(each.rules),
            "facts": list(each.facts),
            "missing": list(each.missing),
            "missing_facts": list(each.missing_facts),
            "closed": list(each.closed),
            "first_test": each.fault.first_test,
        }

    def addition(each: Any) -> dict[str, Any]:
        return {"metric": each.metric, "faults": list(each.faults)}

    return {
        "type": "coverage",
        "format": 1,
        "run": run_id,
        "faults": [entry(each) for each in found.faults],
        "add": None if found.best is None else addition(found.best),
        "further": [addition(each) for each in found.further],
        "invariants": list(found.invariants),
    }


def as_text(run_id: str, found: Coverage) -> Iterator[str]:
    """What a person reads: the metric to add first, then the faults by level."""
    named, hinted, hidden = found.at("named"), found.at("hinted"), found.at("hidden")
    total = len(found.faults) - len(found.at("excluded"))
    yield f"{run_id}: {len(named)} of {total} possible faults can be named"
    if found.best is not None:
        yield ""
        yield from _wrapped(f"add {found.best.metric}: it would name {few(found.best.faults)}", 2)
        for addition in found.further[:3]:
            yield from _wrapped(f"  then {addition.metric}: {few(addition.faults)}", 4)
    if found.invariants:
        yield from _wrapped(f"run the invariants (rltriage check --probe ...): they would name {few(found.invariants)}", 2)
    yield "\ncan be named"
    for each in named:
        partly = f"partly, log {' or '.join(each.closed)} for the rest: " if each.closed else ""
        yield from _entry(each, partly + ", ".join(each.rules[:3]))
    if hinted:
        yield "\nonly hinted at"
    for each in hinted:
        yield from _entry(each, _wanted(each))
    if hidden:
        yield "\nnot visible"
    for each in hidden:
        yield from _entry(each, _wanted(each))
    excluded = [each.fault.id for each in found.at("excluded")]
    if excluded:
        yield ""
        yield from _wrapped(f"ruled out by the config: {', '.join(excluded)}", 2)


def _entry(entry: FaultCoverage, text: str) -> list[str]:
    """A fault's line of a list, with what goes on under its own column."""
    return _wrapped(f"  {entry.fault.id:<24} {text}", 27)


def _wrapped(text: str, indent: int) -> list[str]:
    return wrap(text, 80, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)


def _wanted(entry: FaultCoverage) -> str:
    """What is missing: a fact where that is enough, else metrics, else the fault's own test."""
    facts = ", ".join(f"--config {fact}=..." for fact in entry.facts or entry.missing_facts)
    if entry.facts:
        return f"say {facts}"
    checks = [name for name in entry.missing if name.startswith("check_")]
    if entry.missing and len(checks) == len(entry.missing):
        return "run the invariants: rltriage check --probe ..."
    if entry.missing:
        return f"log {', '.join(entry.missing)}" + (f" and say {facts}" if facts else "")
    return f"only its test shows it: {entry.fault.first_test}"
