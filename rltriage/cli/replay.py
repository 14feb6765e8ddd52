"""`rltriage replay`: the rules over logs that exist, through the same monitor as a live run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from rltriage.cli import completing
from rltriage.cli.options import (
    config_option,
    fail_on_option,
    json_option,
    label_option,
    profile_option,
    reference_option,
    rules_option,
)
from rltriage.cli.outcome import Outcome
from rltriage.cli.runs import find_rule, load_packs, open_runs, replayed, say_misnamed

if TYPE_CHECKING:
    from rltriage.cli.output import JsonLines, TextBlocks
    from rltriage.engine.reference import Reference
    from rltriage.engine.rows import Row
    from rltriage.rules.model import Catalogue
    from rltriage.watching import WatchedRun


@click.command("replay")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=completing.logs)
@rules_option
@config_option
@label_option
@profile_option
@click.option(
    "--explain",
    "explained",
    metavar="RULE",
    help="Per step: this rule's verdict and the numbers it compared.",
    shell_complete=completing.rules,
)
@click.option(
    "--diff", "other", metavar="PACK", help="What PACK would have said otherwise than --rules: alerts gained, lost, ..."
)
@reference_option
@json_option
@fail_on_option()
def command(
    sources: tuple[str, ...],
    packs: tuple[str, ...],
    config: dict[str, Any],
    labels: dict[str, str],
    profile: str,
    explained: str | None,
    other: str | None,
    reference_files: tuple[str, ...],
    as_json: bool,
    fail_on: str,
) -> None:
    """Evaluate the rules over SOURCE: a run directory, JSONL, JSON, CSV or a console log.

    Exit 0 nothing critical, 1 a critical alert fired at any time, 2 bad usage, input or pack. With --diff: 0 no
    difference, 1 some.
    """
    from rltriage.engine.reference import read_reference

    references = [read_reference(file) for file in reference_files]
    if other is not None:
        if explained:
            raise click.UsageError("--explain and --diff do not go together; explain the rule with each pack in turn")
        raise click.exceptions.Exit(_difference(sources, packs or ("triage",), other, profile, config, references, as_json))
    pack = load_packs(packs)
    if explained:
        find_rule(pack, explained)
    runs = open_runs(sources)
    outcome, printer = Outcome(), _printer(as_json, pack.catalogue)
    sinks = (outcome,) if explained else (outcome, printer)
    after_row = _explainer(explained) if explained else None
    for source, run_id in runs:
        for run in replayed(
            source,
            run_id,
            pack,
            config,
            say_lines=as_json,  # a summary in text says it
            profile=profile,
            labels=labels,
            sinks=sinks,
            after_row=after_row,
            references=references,
        ):
            printer.summary(run)
            say_misnamed(run.intake, pack, source.name)
    raise click.exceptions.Exit(outcome.exit_code(fail_on))


def _difference(
    sources: tuple[str, ...],
    packs: tuple[str, ...],
    other: str,
    profile: str,
    facts: dict[str, Any],
    references: Sequence[Reference],
    as_json: bool,
) -> int:
    """Replay the sources under both sets of rules and print what differs; 1 if anything does."""
    from rltriage.comparing import Firings, compare, counted
    from rltriage.exporters.jsonlines import dumps

    sides: list[Firings] = []
    for pack in (load_packs(packs), load_packs((other,))):
        firings = Firings()
        for source, run_id in open_runs(sources):
            for _ in replayed(
                source,
                run_id,
                pack,
                facts,
                say_facts=not sides,  # the second side would say the same again
                say_lines=not sides,
                profile=profile,
                sinks=[firings],
                references=references,
            ):
                pass
        sides.append(firings)
    changes = compare(*sides)
    for change in changes:
        click.echo(dumps(change.as_json()) if as_json else str(change))
    if not as_json:
        click.echo(", ".join(f"{count} {kind}" for kind, count in counted(changes).items() if count) or "no difference")
    return int(bool(changes))


def _printer(as_json: bool, catalogue: Catalogue) -> JsonLines | TextBlocks:
    from rltriage.cli.output import JsonLines, TextBlocks

    return JsonLines(catalogue) if as_json else TextBlocks(catalogue)


def _explainer(rule_id: str) -> Callable[[WatchedRun, Row], None]:
    """Prints, per step, what the rule found and the numbers that it compared."""
    words = {True: "holds", False: "does not hold", None: "unknown"}
    width = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize  # in a pipe a step is a line

    def show(watched: WatchedRun, row: Row) -> None:
        verdict = watched.monitor.explain(rule_id)
        click.echo(explained_step(row.step, words[verdict.holds], verdict.reason, width))

    return show


def explained_step(step: int, found: str, reason: str, width: int) -> str:
    """One step of --explain, in as many lines of `width` columns as the reason takes; names and numbers stay whole."""
    text = f"step {step:>6}  {found:<13}  {reason}"
    return fill(text, max(width, 60), subsequent_indent=" " * 28, break_on_hyphens=False, break_long_words=False)
