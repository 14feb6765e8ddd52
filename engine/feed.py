"""A source's records as rows of its runs: one intake per run, several runs in one log told apart by their `run` key."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rltriage.engine.intake import Intake
from rltriage.engine.rows import Record, Row
from rltriage.engine.rundir import ROWS
from rltriage.engine.sources.base import Source, flatten, to_float
from rltriage.rules.errors import SourceError
from rltriage.rules.profiles import METRICS, load_profiles

MAX_RUNS = 10_000
"""Runs of one source: each takes some 30 KB with its rules, and every line of a log may name another."""
SHOWN_RECORDS, SHOWN_VALUES, LONGEST_SHOWN = 5, 3, 40
"""What is looked at and told of a log that has records and no row."""
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")


class Feed:
    """Reads or follows a source. Every row comes with the intake of its run, whose `run` holds the facts known by then."""

    def __init__(
        self,
        source: Source,
        run_id: str,
        profile: str = "auto",
        config: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        self.intakes: dict[str, Intake] = {}
        self._run_id: str = getattr(source, "run_id", None) or run_id
        self._profile = profile
        self._config = config
        self._labels = labels
        self._first: list[Record] = []

    def rows(self) -> Iterator[tuple[Intake, Row]]:
        """Everything there is now, to the end of the log. SourceError that names what was seen where nothing is a row."""
        found = False
        for each in self._take(self.source.records()):
            found = True
            yield each
        for each in self.finish():
            found = True
            yield each
        if not found:
            raise SourceError(f"{self.source.name}: {self._why_no_row()}")

    def poll(self) -> list[tuple[Intake, Row]]:
        """What is new since the last call."""
        return list(self.news())

    def news(self) -> Iterator[tuple[Intake, Row]]:
        """The same one by one, so that each row comes with the facts known by then and not with those of later rows."""
        yield from self._take(self.source.poll())

    def finish(self) -> list[tuple[Intake, Row]]:
        """The rows that wait for a decision on the profile; call it when a followed run has ended."""
        return [(intake, row) for intake in self.intakes.values() for row in intake.finish()]

    def _take(self, records: Iterable[Record]) -> Iterator[tuple[Intake, Row]]:
        for record in records:
            run = record.run or self._run_id
            intake = self.intakes.get(run)
            if intake is None:
                if len(self.intakes) >= MAX_RUNS:
                    self.source.stats.refuse(0, f"a record of a further run: one source holds at most {MAX_RUNS}")
                    continue
                intake = self.intakes[run] = intake_for(self.source, run, self._profile, self._config, self._labels)
            if len(self._first) < SHOWN_RECORDS:
                self._first.append(record)
            for row in intake.rows(record):
                yield intake, row

    def _why_no_row(self) -> str:
        """What the log holds instead of rows."""
        stats, skipped = self.source.stats, Counter[str]()
        for intake in self.intakes.values():
            skipped.update(intake.skipped)
        if not self._first and not stats.bad:
            return "no row in it yet"
        if not self._first:
            example = stats.examples[0]
            return f"no line in it is a row; line {example.line}: {example.reason}"
        if "record without metrics" not in skipped:
            return f"no row in it, only: {', '.join(f'{why} ({count})' for why, count in skipped.items())}"
        return f"no row has a number: {self._no_numbers()}"

    def _no_numbers(self) -> str:
        """The values that are none, those under a metric's name first."""
        values: dict[str, Any] = {}
        for record in self._first:
            values = {**flatten(record.values), **values}
        mapped = {native for intake in self.intakes.values() for native in intake.mapped.values()}
        texts = {name: value for name, value in values.items() if to_float(value) is None}
        shown = sorted(texts, key=lambda name: name not in mapped)[:SHOWN_VALUES]
        if not shown:
            return f"there is nothing but {', '.join(map(_shown, list(values)[:SHOWN_VALUES])) or 'empty objects'}"
        told = ", ".join(f"{_shown(name)} is {_kind(texts[name])}" for name in shown)
        comma = any(isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value) for value in texts.values())
        return told + ("; write decimals with a point" if comma else "")


def _kind(value: Any) -> str:
    """A value that is no number, as people say it."""
    if isinstance(value, str):
        return f"text ({_shown(value, quoted=True)})"
    return "null" if value is None else f"a {type(value).__name__}"


def _shown(text: str, quoted: bool = False) -> str:
    """A short text as it is, or quoted; what steers a terminal as Python writes it."""
    short = text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
    return repr(short) if quoted or not short.isprintable() else short


def intake_for(
    source: Source,
    run_id: str,
    profile: str = "auto",
    config: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Intake:
    """The intake of one run of a source: `run.json` counts as declared, what a log holds as logged, `config` beats both."""
    named = source.profile if profile == "auto" and source.profile in load_profiles() else profile
    found = {"beside" if source.kind == "run directory" else "logged_config": source.config}
    return Intake(run_id, named or "auto", config, {**getattr(source, "labels", {}), **(labels or {})}, **found)


def run_ids(paths: Sequence[str]) -> list[str]:
    """A run id per source: the file's stem (a directory's name), with the parent folder before it where stems clash.

    A run's `rows.jsonl` stands for its directory, whichever of both is named.
    """
    places = [Path(path).absolute().parent if Path(path).name == ROWS else Path(path) for path in paths]
    stems = [place.name if place.is_dir() else place.stem for place in places]
    clash = {stem for stem in stems if stems.count(stem) > 1}
    named = []
    for path, stem in zip(places, stems, strict=True):
        parent = path.absolute().parent.name
        named.append(f"{parent}/{stem}" if stem in clash and parent else stem)
    return named


def check(source: Source, run_id: str, profile: str = "auto", config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a source gives under a profile: per run the profile taken, what is mapped, unmapped and missing, and the facts.

    `missing` are canonical metrics that the profile knows and this log does not hold; `never` those that the framework
    cannot log.
    """
    feed = Feed(source, run_id, profile, config)
    counts = Counter(intake.run.id for intake, _ in feed.rows())
    return {
        "source": source.name,
        "kind": source.kind,
        "records": source.stats.records,
        "bad_rows": source.stats.bad,
        "bad_examples": [example._asdict() for example in source.stats.examples],
        "runs": [_checked(intake, counts[intake.run.id]) for intake in feed.intakes.values()],
    }


_OF_RL = frozenset(METRICS) - {
    "loss",
    "lr",
    "grad_norm",
    "grad_norm_max",
    "eval_pass",
    "eval_n",
    "value_loss",
    "loss_tokens",
    "length",
}


def _lacks(intake: Intake) -> str:
    """What a log would need to be judged as reinforcement learning; "" if it has something of it."""
    if _OF_RL & intake.mapped.keys():
        return ""
    return "nothing in it is particular to reinforcement learning: no reward, pass rate, entropy, KL, ratio or advantage"


def _checked(intake: Intake, rows: int) -> dict[str, Any]:
    profile = intake.profile
    assert profile is not None, "a feed that has been read to its end has decided"
    return {
        "run": intake.run.id,
        "profile": profile.name,
        "rows": rows,
        "lacks": _lacks(intake),
        "skipped": dict(intake.skipped),
        "ordinal_steps": intake.ordinal_steps,
        "mapped": dict(intake.mapped),
        "unmapped": list(intake.unmapped),
        "missing": [name for name in profile.metrics if name not in intake.mapped],
        "never": list(profile.not_logged),
        "facts": {name: asdict(fact) for name, fact in intake.run.facts.items()},
        "unknown_config": list(intake.unknown_config),
    }
