"""The healthy reference: what each metric does in healthy runs, phase by phase, and which runs may be compared with it.

Built from at least ten seeds (with five, 5 of 12 healthy runs left the band; with eleven, 1 of 12: DESIGN section 3). A
file of JSON, so that people can read it and keep it beside their code.
"""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rltriage.engine.feed import Feed
from rltriage.engine.report import ConfigChange
from rltriage.engine.rows import Fact, Row
from rltriage.engine.rundir import read_regular, write_atomically
from rltriage.engine.sources import open_source
from rltriage.rules.conditions.band import Band
from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.logic import Any as Any_
from rltriage.rules.conditions.logic import Compound
from rltriage.rules.errors import RltriageError
from rltriage.rules.facts import judge

FORMAT = 1
LEAST_RUNS = 10
NEIGHBOURS = 2
MOST_PHASES = 200
SHIPPED = Path(__file__).parents[1] / "rules" / "references"
NOT_MATCHED = frozenset(("steps", "resumed_at", "resolution"))
"""Facts that may differ between runs that can be compared."""

LARGEST = 1e100
"""Beyond it, as where there is no number, a run has not had the metric: squares of larger ones overflow."""
NONE_GIVEN = "no healthy reference for this run: build one from at least 10 healthy runs with `rltriage reference build`"


@dataclass(frozen=True, slots=True)
class HealthyRun:
    """One healthy run that a reference is built from."""

    name: str
    rows: Sequence[Row]
    facts: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Range:
    """One metric in one phase, over all runs and the two phases on either side.

    `median` is the median of the runs' values, `spread` 1.4826 x their median absolute deviation, `seed_spread` the
    standard deviation of the runs' own means (what one seed differs from another once row-to-row noise is averaged),
    `low` and `high` the range.
    """

    median: float
    spread: float
    seed_spread: float
    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The range, widened by half its width on either side (DESIGN, Definitions: band)."""
        margin = (self.high - self.low) / 2
        return self.low - margin, self.high + margin


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as it is stored: `phases` are (first, last) steps since the start of a run, `bands[metric][phase]`.

    `facts` are the config facts that all its runs share and that another run must share too; `runs` are their names.
    """

    name: str
    phases: tuple[tuple[int, int], ...]
    bands: Mapping[str, tuple[Range | None, ...]]
    facts: Mapping[str, Any]
    runs: tuple[str, ...]

    def band(self, metric: str, step: int) -> Range | None:
        """A metric so many steps after the start; None beyond the phases and where fewer than ten runs had it."""
        bands, phase = self.bands.get(metric), self.phase(step)
        return None if bands is None or phase < 0 else bands[phase]

    def phase(self, step: int) -> int:
        """Which of the phases holds a step, -1 where none does; between two it is the earlier."""
        if not self.phases or step > self.phases[-1][1]:
            return -1
        return bisect_right(self.phases, (step, math.inf)) - 1

    def changes(self, facts: Mapping[str, Any]) -> tuple[ConfigChange, ...]:
        """The config facts that are known on both sides and differ."""
        tests = {name: {"equals": value} for name, value in self.facts.items()}
        against = f"the healthy reference {self.name}" if self.bands else f"the run {self.name}"
        return tuple(ConfigChange(name, self.facts[name], facts[name], against) for name in judge(tests, facts).violated)

    def misfit(self, facts: Mapping[str, Any]) -> str:
        """Why a run with these config facts cannot be compared with it; empty if it can."""
        judgement = judge({name: {"equals": value} for name, value in self.facts.items()}, facts)
        if judgement.violated:
            there = differences(self.changes(facts))
            return f"the reference {self.name} does not fit: {there}"
        if judgement.unknown:
            return f"the reference {self.name} may not fit: {', '.join(judgement.unknown)} not known here"
        return ""


def differences(changes: Iterable[ConfigChange]) -> str:
    """`lr is 0.01 here and 0.001 there`."""
    return ", ".join(f"{one.fact} is {one.now} here and {one.before} there" for one in changes)


class Fitted:
    """What a monitor asks: the first of some references that fits the run's config facts, as far as they are known.

    Without `given` ones the shipped references are tried; a run of another trainer does not hear of them.
    """

    def __init__(self, given: Sequence[Reference] = ()) -> None:
        self._earlier = tuple(each for each in given if not each.bands)
        given = tuple(each for each in given if each.bands)
        self._given = bool(given)
        self._references = given or shipped()
        self._fitting: Reference | None = None
        self._known: dict[str, Any] | None = None
        self.why_not = NONE_GIVEN

    def learn(self, facts: Mapping[str, Fact]) -> None:
        """Choose again, by the facts known now."""
        known = {name: fact.value for name, fact in facts.items()}
        if known == self._known:
            return
        self._known = known
        misfits = [(each, each.misfit(known)) for each in self._references]
        self._fitting = next((each for each, misfit in misfits if not misfit), None)
        told = [misfit for each, misfit in misfits if self._given or each.facts.keys() <= known.keys()]
        self.why_not = "" if self._fitting is not None else told[0] if told else NONE_GIVEN

    def changes(self, facts: Mapping[str, Fact]) -> tuple[ConfigChange, ...]:
        """What the run's configuration has changed against the earlier runs, and the reference where none fits.

        Of several references the nearest counts; a shipped one only for a run that knows all the facts it asks for.
        """
        known = {name: fact.value for name, fact in facts.items()}
        meant = [each for each in self._references if self._given or each.facts.keys() <= known.keys()]
        nearest = min((each.changes(known) for each in meant), key=len, default=())
        return (*nearest, *(change for run in self._earlier for change in run.changes(known)))

    def phase(self, step: int | None) -> tuple[int, int] | None:
        """The fitting reference, by its id, and its phase so many steps after the start: with the same, all bounds are."""
        fitting = self._fitting
        return None if fitting is None or step is None else (id(fitting), fitting.phase(step))

    def pictured(self, facts: Mapping[str, Fact]) -> tuple[Reference | None, tuple[ConfigChange, ...]]:
        """The reference to draw beside a run, and in what it differs: the fitting one, else the nearest that could.

        A rule may not judge by a reference of another configuration; a reader who is told the difference may.
        """
        if self._fitting is not None:
            return self._fitting, ()
        known = {name: fact.value for name, fact in facts.items()}
        found = [(each, each.changes(known)) for each in self._references if each.facts.keys() <= known.keys()]
        return min(found, key=lambda pair: len(pair[1]), default=(None, ()))

    def bounds(self, metric: str, step: int) -> tuple[float, float] | None:
        """(low, high) of a metric so many steps after the start, None where nothing fits or nothing is known."""
        band = None if self._fitting is None else self._fitting.band(metric, step)
        return None if band is None else band.bounds


def needs_reference(condition: Condition) -> bool:
    """Whether a condition cannot hold without a reference."""
    if isinstance(condition, Any_):
        return all(needs_reference(part) for part in condition.of)
    if isinstance(condition, Compound):
        return any(needs_reference(part) for part in condition.parts())
    return isinstance(condition, Band)


def build(runs: Sequence[HealthyRun], name: str) -> Reference:
    """The reference of healthy runs. Raises RltriageError for fewer than ten, or where one run is given twice."""
    if len(runs) < LEAST_RUNS:
        few = "run is" if len(runs) == 1 else "runs are"
        raise RltriageError(
            f"{len(runs)} {few} too few for a reference: healthy runs would leave it; give at least {LEAST_RUNS} seeds"
        )
    _refuse_twins(runs)
    by_step = [{row.step - run.rows[0].step: row.metrics for row in run.rows} for run in runs]
    phases = _phases(sorted({step for rows in by_step for step in rows}))
    metrics = dict.fromkeys(metric for rows in by_step for row in rows.values() for metric in row)
    bands = {metric: tuple(_bands(metric, by_step, phases)) for metric in metrics}
    return Reference(
        name,
        phases,
        {metric: found for metric, found in bands.items() if any(found)},
        _shared_facts(runs),
        tuple(run.name for run in runs),
    )


def _refuse_twins(runs: Sequence[HealthyRun]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        content = json.dumps([(row.step, row.metrics) for row in run.rows])
        if content in seen:
            raise RltriageError(f"{run.name} and {seen[content]} hold the same rows: a reference needs different seeds")
        seen[content] = run.name


def _phases(steps: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(first, last) step of each phase: every step is one, up to 200 of them."""
    size = math.ceil(len(steps) / MOST_PHASES)
    return tuple((part[0], part[-1]) for part in (steps[at : at + size] for at in range(0, len(steps), size)))


def _bands(
    metric: str, runs: Sequence[Mapping[int, Mapping[str, float]]], phases: Sequence[tuple[int, int]]
) -> Iterable[Range | None]:
    for index in range(len(phases)):
        first = phases[max(0, index - NEIGHBOURS)][0]
        last = phases[min(len(phases) - 1, index + NEIGHBOURS)][1]
        values = [
            [
                row[metric]
                for step, row in run.items()
                if first <= step <= last and metric in row and abs(row[metric]) <= LARGEST
            ]
            for run in runs
        ]
        yield _band([found for found in values if found])


def _band(runs: Sequence[Sequence[float]]) -> Range | None:
    """The band of what each run had here, None where fewer than ten had anything."""
    if len(runs) < LEAST_RUNS:
        return None
    values = [value for run in runs for value in run]
    middle = median(values)
    means = [math.fsum(run) / len(run) for run in runs]
    mean = math.fsum(means) / len(means)
    seeds = math.sqrt(math.fsum((each - mean) ** 2 for each in means) / (len(means) - 1))
    return Range(middle, 1.4826 * median(abs(value - middle) for value in values), seeds, min(values), max(values))


def _shared_facts(runs: Sequence[HealthyRun]) -> dict[str, Any]:
    """Facts that were declared or logged in every run with one value; inferred ones depend on what happened to happen."""
    first = runs[0].facts
    return {
        name: fact.value
        for name, fact in sorted(first.items())
        if name not in NOT_MATCHED
        and fact.provenance != "inferred"
        and all(name in run.facts and run.facts[name].value == fact.value for run in runs)
    }


def to_json(reference: Reference) -> dict[str, Any]:
    """A reference as plain data: per metric one list per field over the phases, with null where there is no band."""
    fields = Range.__dataclass_fields__
    return {
        "format": FORMAT,
        "name": reference.name,
        "facts": dict(reference.facts),
        "runs": list(reference.runs),
        "phases": [list(phase) for phase in reference.phases],
        "metrics": {
            metric: {name: [None if band is None else _short(getattr(band, name)) for band in bands] for name in fields}
            for metric, bands in reference.bands.items()
        },
    }


def _short(value: float) -> float:
    """Five significant digits."""
    return float(f"{value:.5g}")


def write_reference(path: str | os.PathLike[str], reference: Reference) -> None:
    """Write a reference atomically."""
    write_atomically(path, as_text(reference))


def as_text(reference: Reference) -> str:
    """A reference as the JSON of its file, a metric a line."""
    data = to_json(reference)
    metrics = ",\n".join(f"  {json.dumps(name)}: {json.dumps(bands)}" for name, bands in data.pop("metrics").items())
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
    return f'{{\n{head},\n "metrics": {{\n{metrics}\n }}\n}}\n'


def read_reference(path: str | os.PathLike[str]) -> Reference:
    """A stored reference; of a run's directory the config facts alone, to say what has changed since (no bands).

    Raises RltriageError that says what is wrong with the file.
    """
    if Path(path).is_dir():
        return _earlier_run(str(path))
    try:
        data = json.loads(read_regular(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise RltriageError(f"{path}: cannot read the reference: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise RltriageError(f"{path}: not a reference: {error}") from None
    try:
        return _from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise RltriageError(
            f"{path}: not a reference ({type(error).__name__}: {error}): make one with `rltriage reference build`"
        ) from None


def _earlier_run(path: str) -> Reference:
    """What an earlier run was told, from its directory."""
    feed = Feed(open_source(path), Path(path).absolute().name)
    with closing(feed.source):
        intake, _ = next(feed.rows())
    return Reference(intake.run.id, (), {}, _shared_facts([HealthyRun(intake.run.id, (), intake.run.facts)]), ())


def _from_json(data: Mapping[str, Any]) -> Reference:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
    phases = tuple((int(first), int(last)) for first, last in data["phases"])
    if not phases or any(one[1] >= other[0] for one, other in pairwise(phases)):
        raise ValueError("phases have to be steps in rising order")
    bands: dict[str, tuple[Range | None, ...]] = {}
    for metric, columns in data["metrics"].items():
        values = zip(*(columns[name] for name in Range.__dataclass_fields__), strict=True)
        bands[metric] = tuple(None if None in each else Range(*map(float, each)) for each in values)
        if len(bands[metric]) != len(phases):
            raise ValueError(f"{metric} has {len(bands[metric])} phases of {len(phases)}")
    return Reference(str(data["name"]), phases, bands, dict(data["facts"]), tuple(map(str, data["runs"])))


@cache
def shipped() -> tuple[Reference, ...]:
    """The references that come with the product, read once."""
    return tuple(read_reference(path) for path in sorted(SHIPPED.glob("*.json")))
