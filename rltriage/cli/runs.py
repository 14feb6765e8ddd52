"""The runs and rules that a command names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rltriage.engine.intake import Intake
    from rltriage.engine.sources import Source
    from rltriage.replaying import Replayed
    from rltriage.rules.model import Rule, RulePack


def find_run(source: str) -> str:
    """A path as it is; the id of a run under `runs/`, as alerts print it, as that run's directory."""
    directory = Path("runs", source)
    return str(directory) if not Path(source).exists() and directory.is_dir() else source


def open_runs(sources: Sequence[str]) -> list[tuple[Source, str]]:
    """Each source, opened, and the id of its run. SourceError before any is read: a misspelt second one costs no output."""
    from rltriage.engine.feed import run_ids
    from rltriage.engine.sources import open_source

    paths = [find_run(source) for source in sources]
    return list(zip([open_source(path) for path in paths], run_ids(paths), strict=True))


def load_packs(packs: Sequence[str]) -> RulePack:
    """The packs of `--rules`, or the shipped one. What looks misspelt in them is said on stderr: its rule may be off."""
    from rltriage.rules.crosscheck import slips
    from rltriage.rules.loader import load_rules

    pack = load_rules(*(packs or ("triage",)))
    for slip in slips(pack):
        click.echo(f"warning: {slip}", err=True)
    return pack


def replayed(
    source: Source,
    run_id: str,
    pack: RulePack,
    config: Mapping[str, Any],
    *,
    say_facts: bool = True,
    say_lines: bool = True,
    **how: Any,
) -> Iterator[Replayed]:
    """Each run of a source once it is over, as `replaying.replay` with `how` gives it; then the source is closed.

    Unknown facts of `config`, and at the end the lines that could not be read, are said on stderr unless the caller does.
    """
    from rltriage.replaying import replay

    with closing(source):
        for run in replay(source, pack, run_id=run_id, config=config, **how):
            if say_facts:
                say_unknown_facts(run.intake, config, pack)
            yield run
    if say_lines:
        say_unread(source, run_id)


def say_unread(source: Source, run_id: str) -> None:
    """What could not be read of a source, on stderr; silence where it all was."""
    from rltriage.exporters.text import unread

    if told := unread(source.stats.bad, source.stats.examples):
        click.echo(f"{run_id}: {told}", err=True)


def say_unknown_facts(intake: Intake, config: Mapping[str, Any], pack: RulePack) -> None:
    """On stderr, each `--config` fact that no profile and no rule knows: it may be a slip."""
    from rltriage.arguments import unknown_facts

    for sentence in unknown_facts((key for key in intake.unknown_config if key in config), pack):
        click.echo(f"{intake.run.id}: {sentence}", err=True)


def say_misnamed(intake: Intake, pack: RulePack, source: str) -> None:
    """On stderr, the logged names that no rule reads though they are near a metric's that the run lacks."""
    from rltriage.misnamed import MOST_LOOKED_AT, Misnamed

    if sentence := Misnamed().sentence(intake, pack, source, MOST_LOOKED_AT):
        click.echo(f"{intake.run.id}: {sentence}", err=True)


def find_rule(pack: RulePack, rule_id: str, hint: str = "") -> Rule:
    """A rule of the pack. Raises a usage error with the id that is nearest, and the hint."""
    from rltriage.rules.validate import meant

    rules = {rule.id: rule for rule in pack.rules}
    if rule_id not in rules:
        near = meant(rule_id, rules)
        known = f"did you mean '{near}'?" if near else "`rltriage rules list` shows them all."
        raise click.UsageError(f"there is no rule '{rule_id}': {known}{hint}")
    return rules[rule_id]
