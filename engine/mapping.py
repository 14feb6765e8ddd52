"""What the keys of a record mean under a profile, worked out once for each set of keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rltriage.engine.facts import config_value
from rltriage.engine.rows import picker
from rltriage.engine.sources.base import to_float
from rltriage.rules.profiles import METRICS, MetricSource, Profile, is_pattern, match

STEP_KEYS = (
    "step",
    "global_step",
    "_step",
    "Step",
    "training_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
)
TIME_KEYS = ("time", "timestamp", "_timestamp", "wall_time")
RANK_KEYS = ("global_rank", "process_index", "rank")
_SUMMARY = frozenset(("train_runtime", "train_samples_per_second", "train_steps_per_second"))

Transform = Callable[[float, Mapping[str, Any]], float | None]
"""Makes our number of a native one; the record is there for a divisor. None: nothing to say."""
Entry = tuple[str, str, Transform | None]
"""A native name, the canonical one, and the transform if there is any."""


class Group(NamedTuple):
    """Several native names that one pattern matches and that are reduced to one number."""

    name: str
    natives: tuple[str, ...]
    reduce: Callable[[list[float]], float]
    transform: Transform | None


class Plan(NamedTuple):
    """How records with one tuple of keys become rows; made once per tuple."""

    step: str | None
    time: str | None
    entries: tuple[Entry, ...]
    take: Callable[[Mapping[str, Any]], dict[str, Any]]
    """The values of the entries out of a record, under their canonical names."""
    transforms: tuple[tuple[str, Transform], ...]
    """The entries that have one."""
    groups: tuple[Group, ...]
    logged: tuple[tuple[str, str], ...]
    unmapped: tuple[str, ...]
    summary: bool
    config: bool
    rank: str | None = None
    """The key that says which rank wrote the record."""
    aside: bool = False
    """Its step belongs to another axis than the one that counts."""


def plan_for(profile: Profile, values: Mapping[str, Any], config: Mapping[str, Any]) -> Plan:
    """The plan for records with the keys of `values`; `config` holds what a metric may have to be divided by."""
    if not all(isinstance(key, str) for key in values):
        return Plan(None, None, (), _nothing, (), (), (), (), summary=False, config=False)
    return _Planner(profile, values, config).plan()


def _nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _take_as_it_is(others: Iterable[str]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A record whose names are ours already is copied as a whole, which is what costs least, less its other keys."""

    def take(values: Mapping[str, Any]) -> dict[str, Any]:
        metrics = dict(values)
        for key in others:
            del metrics[key]
        return metrics

    return take


def _take_renamed(entries: Sequence[Entry]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    names, pick = [name for _, name, _ in entries], picker([key for key, _, _ in entries])
    return lambda values: dict(zip(names, pick(values), strict=True))


class _Planner:
    """Finds, for one set of keys, what each key means under a profile."""

    def __init__(self, profile: Profile, values: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._profile = profile
        self._config = config
        self._values = values
        self._bare: dict[str, str] = {}
        for key in values:
            self._bare.setdefault(profile.bare(key), key)
            if profile.strip and not profile.fold:
                self._bare.setdefault(key, key)
        self._used: set[str] = set()

    def plan(self) -> Plan:
        values = self._values
        step = next((key for key in (*self._profile.step_keys, *STEP_KEYS) if key in values), None)
        if step is None and self._profile.fold:
            step = next((self._bare[key] for key in self._profile.step_keys if key in self._bare), None)
        time = next((key for key in TIME_KEYS if key in values and _is_unix(values[key])), None)
        self._used.update(key for key in (step, time, "run") if key is not None)
        self._used.update(key for key in self._profile.step_keys if key in values and key.endswith("step"))
        entries: list[Entry] = []
        groups: list[Group] = []
        for name, sources in self._profile.metrics.items():
            self._map(name, sources, entries, groups)
        mapped = {entry[1] for entry in entries} | {group.name for group in groups}
        logged = [
            (key, fact) for fact, names in self._profile.logged.items() for name in names if (key := self._find(name))
        ]
        rest = [key for key in values if key not in self._used]
        entries += [(key, key, None) for key in rest if key not in mapped]
        entries = list(map(self._defined, entries))
        ours = {key for key, name, _ in entries if key == name}
        return Plan(
            step,
            time,
            tuple(entries),
            _take_as_it_is(tuple(values.keys() - ours)) if len(ours) == len(entries) else _take_renamed(entries),
            tuple((name, transform) for _, name, transform in entries if transform is not None),
            tuple(groups),
            tuple(logged),
            tuple(
                key for key in rest if key not in METRICS and not key.startswith("check_") and type(values[key]) is not dict
            ),
            summary=not _SUMMARY.isdisjoint(values),
            config=step is None and not (mapped - {"lr", "loss", "truncated_frac", "clip_frac"}),
            rank=next((key for key in RANK_KEYS if key in values), None),
            aside=bool(self._profile.axis) and not any(match(self._profile.axis, bare) for bare in self._bare),
        )

    def _map(self, name: str, sources: tuple[MetricSource, ...], entries: list[Entry], groups: list[Group]) -> None:
        if name in self._values and name not in self._used and all(source.native != name for source in sources):
            self._used.add(name)  # rows of ours, read again, hold the canonical name beside what it was made from
            entries.append((name, name, None))
            return
        for source in sources:
            if source.beside is not None and self._find(source.beside) is None:
                continue
            found = self._matching(source.native)
            if not found:
                continue
            if not source.keep:
                self._used.update(found)
            transform = None if source.plain else self._transform(source)
            if len(found) == 1 or source.reduce == "first":
                entries.append((found[0], name, transform))
            else:
                groups.append(Group(name, tuple(found), _REDUCE[source.reduce], transform))
            return

    def _defined(self, entry: Entry) -> Entry:
        """The entry, without its NaN where the profile says that it stands for nothing."""
        key, name, transform = entry
        bare = self._profile.bare(key)
        if not any(match(pattern, bare) for pattern in self._profile.undefined):
            return entry

        def apply(value: float, values: Mapping[str, Any]) -> float | None:
            if value != value:
                return None
            return value if transform is None else transform(value, values)

        return key, name, apply

    def _find(self, native: str) -> str | None:
        return self._bare.get(native)

    def _matching(self, native: str) -> list[str]:
        if not is_pattern(native):
            key = self._bare.get(native)
            return [] if key is None or key in self._used else [key]
        found = {key for bare, key in self._bare.items() if key not in self._used and match(native, bare)}
        return sorted(found)

    def _transform(self, source: MetricSource) -> Transform:
        scale, none, negate, one_minus = source.scale, source.none, source.negate, source.one_minus
        divides = source.divide_by is not None
        divisor = None if source.divide_by is None else self._find(source.divide_by)
        constant = None if source.divide_by is None else to_float(config_value(self._config, source.divide_by))

        def apply(value: float, values: Mapping[str, Any]) -> float | None:
            if value in none:
                return None
            value *= scale
            if divides:
                by = constant if divisor is None else to_float(values.get(divisor))
                if not by:
                    return None
                value /= by
            if one_minus:
                value = 1 - value
            return -value if negate else value

        return apply


def _sum(numbers: list[float]) -> float:
    """The exact sum; what `fsum` refuses (infinities of both signs, values whose sum is too large) as floats add up."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)


_REDUCE: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda numbers: _sum(numbers) / len(numbers),
    "max": max,
    "min": min,
    "sum": _sum,
}


def _is_unix(value: Any) -> bool:
    time = to_float(value)
    return time is not None and 1e9 <= time < 1e14
