"""Which thresholds of the triage pack sit close to what one single case shows: a guard against tuning.

    python benchmarks/margins.py                          cases and recorded runs
    RLTRIAGE_CASES=DIR python benchmarks/margins.py       also the logs in DIR/real-logs

Every number that a condition compares with is moved by 10 % in both directions, one at a time. Where that changes whether
its rule fires (by a case's deadline) the number lies within 10 % of the value that decided there. Reports and logs are
sources of their own, and so is each seed of the reference trainer; a number that is that close in exactly one source has
been fitted to it. All variants of all rules run side by side in one monitor, so that everything is replayed once.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from cases import CASES, DISPUTED, Bench

from rltriage.engine.feed import Feed
from rltriage.engine.monitor import Monitor
from rltriage.engine.reference import Fitted
from rltriage.engine.rows import Row, Run
from rltriage.engine.sources import open_source
from rltriage.recorded import REFERENCE, read_runs
from rltriage.rules.conditions.absent import Absent
from rltriage.rules.conditions.terms import Term
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.model import Rule, RulePack

RUNS = Path(__file__).parents[1] / "tests" / "data" / "runs"
CLOSE = 0.1
"""How far a number is moved: what lies nearer counts as fitted."""
FAR = 3.0
"""A factor by which a number that decides anything at all is moved out of its place."""
NO_LIMITS = frozenset({"ignore", "default"})
"""Numbers that nothing is compared with: what stays out of a window, what stands in for an unknown fact."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One number of one rule: where it stands (`when.all[0].at_least.value`) and what it is."""

    rule: str
    where: str
    value: float

    def __str__(self) -> str:
        return f"{self.rule} {self.where} = {self.value:g}"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows whose verdicts count once. `deadline` is the last step that counts, None the end.

    A seed of the reference trainer can be the second source for a number; alone it is one draw of many, not a case.
    """

    name: str
    run: Run
    rows: Sequence[Row]
    deadline: int | None = None
    seed: bool = False


def limits(rule: Rule, factors: Sequence[float]) -> Iterator[tuple[Limit, list[Rule]]]:
    """Each number that the rule compares with, and the rule with it moved by each of the factors."""
    for part in ("when", "unless"):
        for where, value, moved in _moved(getattr(rule, part), part):
            variants: list[Rule] = [replace(rule, **{part: moved(value * factor)}) for factor in factors]
            yield Limit(rule.id, where, value), variants


def _moved(node: Any, where: str) -> Iterator[tuple[str, float, Any]]:
    """(place, number, function that gives the whole with another number there) of every number in a condition."""
    if not dataclasses.is_dataclass(node) or isinstance(node, (type, Absent)):
        return
    for field in dataclasses.fields(node):
        value, place = getattr(node, field.name), f"{where}.{field.name}"
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                for found, number, moved in _moved(item, f"{place}[{index}]"):
                    yield found, number, _within(node, field.name, value, index, moved)
        elif dataclasses.is_dataclass(value):
            if isinstance(node, Threshold) and (node.stat == "count" or field.name in ("equals", "differs")):
                continue  # a number of observations, or an identity, is no level
            for found, number, moved in _moved(value, place):
                yield found, number, _inside(node, field.name, moved)
        elif _is_level(node, field.name, value):
            yield place, value, _own(node, field.name)


def _is_level(node: Any, name: str, value: object) -> bool:
    """Whether a field is a number that something is compared with; counts are whole numbers, factors of 1 do nothing."""
    if type(value) not in (float, int) or isinstance(value, bool) or value == 0 or name in NO_LIMITS:
        return False
    if isinstance(node, Term):
        return name == "value" or (name == "times" and node.value is None and abs(float(str(value))) != 1)
    return isinstance(value, float) and not (name == "times" and value == 1) and name not in ("equals", "differs")


def _own(node: Any, name: str) -> Any:
    return lambda number: replace(node, **{name: number})


def _inside(node: Any, name: str, moved: Any) -> Any:
    return lambda number: replace(node, **{name: moved(number)})


def _within(node: Any, name: str, items: tuple[Any, ...], index: int, moved: Any) -> Any:
    return lambda number: replace(node, **{name: (*items[:index], moved(number), *items[index + 1 :])})


def cases(bench: Bench, folder: Path = CASES) -> Iterator[Source]:
    """The cases, each until its deadline, and real logs where `folder` holds them."""
    for path in sorted(folder.glob("*.yaml")):
        case = yaml.safe_load(path.read_text())
        yield from logged(path.with_suffix(".jsonl"), case["config"], case["expected"].get("must_fire_by_step"))


def logs(folder: Path) -> Iterator[Source]:
    """Real logs whose reading is not disputed."""
    for path in sorted(path for path in folder.iterdir() if path.suffix in {".json", ".jsonl", ".csv", ".log"}):
        if path.name[:2] not in DISPUTED:
            yield from logged(path, {}, None)


def logged(path: Path, config: Mapping[str, Any], deadline: int | None) -> Iterator[Source]:
    rows: dict[str, list[Row]] = {}
    runs: dict[str, Run] = {}
    for intake, row in Feed(open_source(str(path)), path.stem, config=config).rows():
        runs[intake.run.id] = intake.run
        rows.setdefault(intake.run.id, []).append(row)
    for name, run in runs.items():
        yield Source(name, run, rows[name], deadline)


def recorded(seeds: int | None = None) -> Iterator[Source]:
    """Runs of the reference trainer, all or the first seeds of each group."""
    taken: dict[str, int] = {}
    for run in read_runs(RUNS):
        if run.group.name != REFERENCE:
            taken[run.group.name] = taken.get(run.group.name, 0) + 1
            if seeds is None or taken[run.group.name] <= seeds:
                yield Source(run.name, run.run(), run.rows, seed=True)


@dataclass(slots=True)
class Margins:
    """What moving a number did: by limit the sources in which its rule then fired, or fell silent, instead."""

    close: dict[Limit, set[Source]]
    far: dict[Limit, set[Source]]

    def fitted(self) -> dict[Limit, str]:
        """Numbers that are close to what exactly one source shows, with it; a seed alone is none."""
        only = {limit: next(iter(found)) for limit, found in self.close.items() if len(found) == 1}
        return {limit: source.name for limit, source in only.items() if not source.seed}

    @property
    def deciding(self) -> set[Limit]:
        """Numbers whose place decides something in some source."""
        return {limit for moved in (self.close, self.far) for limit, found in moved.items() if found}


def measure(pack: RulePack, sources: Iterable[Source], *, far: bool = False) -> Margins:
    """Replay every source once, under the pack's rules and every variant of them; with `far` also those far off."""
    factors = (1 - CLOSE, 1 + CLOSE, *((1 / FAR, FAR) if far else ()))
    variants: list[Rule] = []
    of: dict[str, tuple[Limit, bool]] = {}
    margins = Margins({}, {})
    for rule in pack.rules:
        for limit, moved in limits(rule, factors):
            margins.close[limit], margins.far[limit] = set(), set()
            for index, variant in enumerate(moved):
                name = f"{rule.id}/{len(of)}"
                variants.append(replace(variant, id=name))
                of[name] = (limit, index < 2)
    everything = replace(pack, rules=(*pack.rules, *variants))
    for source in sources:
        fired = _fired(everything, source)
        for name, (limit, close) in of.items():
            if (name in fired) != (limit.rule in fired):
                (margins.close if close else margins.far)[limit].add(source)
    return margins


def _fired(pack: RulePack, source: Source) -> set[str]:
    """The rules that fired in time."""
    monitor, fired = Monitor(source.run, pack, pack.catalogue, reference=Fitted()), set()
    for row in source.rows:
        if source.deadline is not None and row.step > source.deadline:
            break
        fired |= {alert.rule for alert in monitor.observe(row).alerts if alert.state == "firing"}
    return fired


def main() -> int:
    """Print every number that is fitted; 1 if there is any."""
    bench = Bench()
    sources = [*cases(bench), *recorded()]
    shared = os.environ.get("RLTRIAGE_CASES")
    if shared:
        sources += logs(Path(shared) / "real-logs")
    margins = measure(bench.pack, sources, far=True)
    fitted = margins.fitted()
    for limit, source in fitted.items():
        print(f"{limit}: {source}")
    near = sum(bool(found) for found in margins.close.values())
    print(f"{len(margins.close)} numbers, {len(margins.deciding)} decide something, {near} lie within 10 % of a source")
    return int(bool(fitted))


if __name__ == "__main__":
    sys.exit(main())
