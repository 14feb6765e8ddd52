"""From a record as a logger wrote it to a canonical Row, and from config to a Run with its facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rltriage.engine.facts import config_value, fixed, infer, merge, resolve
from rltriage.engine.rows import Fact, Record, Row, Run
from rltriage.engine.sources.base import flatten, to_float, to_step
from rltriage.rules.errors import RltriageError
from rltriage.rules.profiles import THRESHOLD, MetricSource, Profile, is_pattern, load_profile, load_profiles, match

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
_SUMMARY = frozenset(("train_runtime", "train_samples_per_second", "train_steps_per_second"))
_CONFIGS = ("config", "args", "hparams", "hyperparameters")
MAX_UNMAPPED = 10_000
_UNDECIDED = 5
_MISSING = object()

Entry = tuple[str, str, Callable[[float, Mapping[str, Any]], float | None] | None]


class Group(NamedTuple):
    """Several native names that one pattern matches and that are reduced to one number."""

    name: str
    natives: tuple[str, ...]
    reduce: Callable[[list[float]], float]
    transform: Callable[[float, Mapping[str, Any]], float | None] | None


class Plan(NamedTuple):
    """How records with one tuple of keys become rows; made once per tuple."""

    step: str | None
    time: str | None
    entries: tuple[Entry, ...]
    groups: tuple[Group, ...]
    logged: tuple[tuple[str, str], ...]
    unmapped: tuple[str, ...]
    summary: bool
    config: bool


class Intake:
    """One run's records become its rows. `run` holds the facts so far and is replaced, not changed, when one is learnt.

    `config` are declared facts under canonical names or the framework's own, `beside` those of a `run.json`, which yield
    to them, and `logged_config` those that the log itself holds. `profile` "auto" is decided by the keys of
    the first records, never by a name: `rows` then holds records back until one decides, five at most.
    """

    def __init__(
        self,
        run_id: str,
        profile: str = "auto",
        config: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        beside: Mapping[str, Any] | None = None,
        logged_config: Mapping[str, Any] | None = None,
    ) -> None:
        self._config = flatten(config or {}, ".")
        self._all_config = {**flatten(beside or {}, "."), **self._config}
        self._logged_config = flatten(logged_config or {}, ".")
        self._labels = dict(labels or {})
        self._id = run_id
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._held: list[Record] = []
        self._logged: dict[str, Fact] = {}
        self._inferred: dict[str, Fact] = {}
        self._decimals: dict[str, int | None] = {}
        self._nulls_are_nan = False
        self._recent: dict[str, float] = {}
        self._ordinal = -1
        self._last_step = -1
        self._step_key: str | None = None
        self._copies = _Copies()
        self.rows_seen = 0
        self.skipped: dict[str, int] = {}
        self.ordinal_steps = False
        self.mapped: dict[str, str] = {}
        self.unmapped: list[str] = []
        self.unknown_config: tuple[str, ...] = ()
        self.profile: Profile | None = None
        self.run = Run(run_id, labels=self._labels)
        if profile != "auto":
            self._take(find_profile(profile))

    def rows(self, record: Record) -> list[Row]:
        """The rows that this record completes: none (no metrics, a copy, held back), its own, or also those held back."""
        if self.profile is not None:
            row = self.row(record)
            return [] if row is None else [row]
        self._held.append(record)
        chosen = decide([flatten({key: value for key, value in record.values.items() if key not in _CONFIGS})])
        if chosen is None and len(self._held) >= _UNDECIDED:
            chosen = load_profiles()["generic"]
        return [] if chosen is None else self._release(chosen)

    def finish(self) -> list[Row]:
        """The rows still held back when the log ends before its profile was decided."""
        return self._release(load_profiles()["generic"]) if self.profile is None else []

    def row(self, record: Record) -> Row | None:
        """One record as a row, or None where it holds no metrics. The profile must be known."""
        values = record.values
        plan = self._plans.get(tuple(values)) or self._plan(values)
        metrics = self._metrics(plan, values)
        if metrics is None:
            values = self._flat(values)
            plan = self._plans.get(tuple(values)) or self._plan(values)
            metrics = self._metrics(plan, values) or {}
        if plan.config and self.rows_seen == 0 and self._config_record(values):
            return self._skip("config record")
        if plan.summary:
            return self._skip("summary record")
        if plan.logged:
            self._log_facts(plan, values)
        if not metrics:
            return self._skip("record without metrics")
        if self._nulls_are_nan:
            self._recent.update(metrics)
        step = self._step(record, plan, values)
        if self._copies.is_copy(metrics):
            return self._skip("forward-filled copy")
        self.rows_seen += 1
        return Row(step, metrics, self._time(record, plan, values))

    @property
    def resolution(self) -> dict[str, float]:
        """Smallest step between values, per metric, where every value so far was text with the same 2 to 8 decimals."""
        return {name: 10.0**-places for name, places in self._decimals.items() if places is not None and 1 < places < 9}

    def _flat(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A nested record, flat; a configuration that a logger repeats in every record (RLlib) is facts, not metrics."""
        for key in _CONFIGS:
            inner = values.get(key)
            if isinstance(inner, Mapping):
                values = {name: value for name, value in values.items() if name != key}
                if not self._logged_config:
                    self._logged_config = flatten(inner, ".")
                    self._refresh()
        return flatten(values)

    def _release(self, chosen: Profile) -> list[Row]:
        self._take(chosen)
        held, self._held = self._held, []
        return [row for record in held if (row := self.row(record)) is not None]

    def _take(self, profile: Profile) -> None:
        algorithm = str(self._all_config.get("algorithm", "")).lower()
        self.profile = load_profiles().get(f"{profile.name}/{algorithm}", profile) if algorithm else profile
        self._nulls_are_nan = self.profile.nulls == "nan"
        self._refresh()

    def _refresh(self) -> None:
        assert self.profile is not None
        declared, _ = resolve(self.profile, self._config, "declared")
        joint, self.unknown_config = resolve(self.profile, self._all_config, "declared")
        logged, _ = resolve(self.profile, self._logged_config, "logged")
        facts = merge(declared, joint, self._logged, logged, fixed(self.profile), self._inferred)
        self.run = Run(self._id, self._labels, facts, self.profile.name)

    def _skip(self, why: str) -> Row | None:
        self.skipped[why] = self.skipped.get(why, 0) + 1
        return None

    def _metrics(self, plan: Plan, values: Mapping[str, Any]) -> dict[str, float] | None:
        """The metrics of a record, or None if it holds a mapping and must be flattened first."""
        metrics: dict[str, float] = {}
        for key, name, transform in plan.entries:
            value = values[key]
            if type(value) is not float:
                if type(value) is dict:
                    return None
                value = self._other(name, value)
                if value is None:
                    continue
            if transform is not None:
                value = transform(value, values)
                if value is None:
                    continue
            metrics[name] = value
        for group in plan.groups:
            numbers = [x for native in group.natives if (x := to_float(values[native])) is not None]
            if numbers:
                value = group.reduce(numbers)
                if group.transform is not None:
                    value = group.transform(value, values)
                if value is not None:
                    metrics[group.name] = value
        if "adv_abs_max" not in metrics and "adv_min" in metrics and "adv_max" in metrics:
            metrics["adv_abs_max"] = max(abs(metrics["adv_min"]), abs(metrics["adv_max"]))
        return metrics

    def _other(self, name: str, value: Any) -> float | None:
        """A value that is no float: integers, text (whose decimals are noted), null, foreign scalars."""
        if type(value) is str:
            number = to_float(value)
            if number is not None:
                self._note_decimals(name, value)
            return number
        if value is None:
            return math.nan if name in self._recent else None
        return to_float(value)

    def _note_decimals(self, name: str, text: str) -> None:
        known = self._decimals.get(name, _MISSING)
        if known is None:
            return
        whole, dot, decimals = text.strip().partition(".")
        places = len(decimals) if dot and decimals.isdigit() and whole.lstrip("-").isdigit() else None
        self._decimals[name] = places if known is _MISSING or known == places else None

    def _log_facts(self, plan: Plan, values: Mapping[str, Any]) -> None:
        changed = False
        for key, fact in plan.logged:
            value = to_float(values.get(key))
            known = self._logged.get(fact)
            if value is not None and math.isfinite(value) and (known is None or (known.value == 0 and value != 0)):
                self._logged[fact] = Fact(value, "logged", key)
                changed = True
        if changed:
            self._refresh()

    def _config_record(self, values: Mapping[str, Any]) -> bool:
        """Whether a first record is the run's configuration; its values then are facts that the log holds."""
        assert self.profile is not None
        inner = values.get("config")
        facts, _ = resolve(self.profile, flatten(inner if isinstance(inner, Mapping) else values, "."), "logged")
        if not facts:
            return False
        for name, fact in facts.items():
            self._logged.setdefault(name, fact)
        self._refresh()
        return True

    def _step(self, record: Record, plan: Plan, values: Mapping[str, Any]) -> int:
        step = record.step
        if step is None and plan.step is not None:
            step = to_step(values[plan.step])
        self._ordinal += 1
        if step is None:
            if self._step_key is not None:
                step = self._last_step
            else:
                self.ordinal_steps = True
                step = self._ordinal
        elif plan.step is not None:
            self._step_key = plan.step
        self._last_step = step
        return step

    def _time(self, record: Record, plan: Plan, values: Mapping[str, Any]) -> float | None:
        if record.time is not None or plan.time is None:
            return record.time
        time = to_float(values[plan.time])
        if time is None or not math.isfinite(time):
            return None
        return time / 1000 if time > 1e11 else time

    def _plan(self, values: Mapping[str, Any]) -> Plan:
        assert self.profile is not None
        if not all(isinstance(key, str) for key in values):
            return Plan(None, None, (), (), (), (), summary=False, config=False)
        plan = _Planner(self.profile, values, self._all_config).plan()
        for key, name, _ in plan.entries:
            if key not in plan.unmapped:
                self.mapped.setdefault(name, key)
        for group in plan.groups:
            self.mapped.setdefault(group.name, " + ".join(group.natives))
        if "has_critic" not in self.run.facts and (proven := infer([entry[1] for entry in plan.entries])):
            self._inferred.update(proven)
            self._refresh()
        if len(self.unmapped) < MAX_UNMAPPED:
            self.unmapped += [key for key in plan.unmapped if key not in self.unmapped]
        if len(self._plans) < 1000:
            self._plans[tuple(values)] = plan
        return plan


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
        keys = self._values
        step = next((key for key in (*self._profile.step_keys, *STEP_KEYS) if key in keys), None)
        if step is None and self._profile.fold:
            step = next((self._bare[key] for key in self._profile.step_keys if key in self._bare), None)
        time = next((key for key in TIME_KEYS if key in keys and _is_unix(keys[key])), None)
        self._used.update(key for key in (step, time, "run") if key is not None)
        self._used.update(key for key in self._profile.step_keys if key in keys and key.endswith("step"))
        entries: list[Entry] = []
        groups: list[Group] = []
        for name, sources in self._profile.metrics.items():
            self._map(name, sources, entries, groups)
        mapped = {entry[1] for entry in entries} | {group.name for group in groups}
        logged = [
            (key, fact) for fact, names in self._profile.logged.items() for name in names if (key := self._find(name))
        ]
        rest = [key for key in keys if key not in self._used]
        entries += [(key, key, None) for key in rest if key not in mapped]
        return Plan(
            step,
            time,
            tuple(entries),
            tuple(groups),
            tuple(logged),
            tuple(rest),
            summary=not _SUMMARY.isdisjoint(keys),
            config=step is None and not (mapped - {"lr", "loss", "truncated_frac", "clip_frac"}),
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

    def _find(self, native: str) -> str | None:
        return self._bare.get(native)

    def _matching(self, native: str) -> list[str]:
        if not is_pattern(native):
            key = self._bare.get(native)
            return [] if key is None or key in self._used else [key]
        found = {key for bare, key in self._bare.items() if key not in self._used and match(native, bare)}
        return sorted(found)

    def _transform(self, source: MetricSource) -> Callable[[float, Mapping[str, Any]], float | None]:
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


_REDUCE: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda numbers: math.fsum(numbers) / len(numbers),
    "max": max,
    "min": min,
    "sum": math.fsum,
}


class _Copies:
    """Finds out that a log is forward-filled throughout: each of its first three distinct rows was repeated at once."""

    def __init__(self) -> None:
        self._previous: Mapping[str, float] | None = None
        self._length = 0
        self._blocks = 0
        self._filled: bool | None = None

    def is_copy(self, metrics: Mapping[str, float]) -> bool:
        if self._filled is False:
            return False
        same = metrics == self._previous
        if self._filled is None:
            self._judge(same)
        self._previous = metrics
        return same and self._filled is True

    def _judge(self, same: bool) -> None:
        if same:
            self._length += 1
            return
        if self._previous is not None:
            if self._length < 2:
                self._filled = False
            self._blocks += 1
            if self._blocks == 3 and self._filled is None:
                self._filled = True
        self._length = 1


def find_profile(name: str) -> Profile:
    """A profile by name, or one of the user's own by its file; RltriageError that lists the names there are."""
    profiles = load_profiles()
    if name not in profiles and name.endswith((".yaml", ".yml")):
        return load_profile(name)
    if name not in profiles:
        raise RltriageError(f"no profile {name!r}; choose one of {', '.join(profiles)}, auto, or a file of your own")
    return profiles[name]


def decide(records: Iterable[Mapping[str, Any]]) -> Profile | None:
    """The framework whose distinctive keys these flat records hold; `generic` if only common names do; None if neither."""
    keys = {key for record in records for key in record}
    scores = {name: profile.score(keys) for name, profile in load_profiles().items()}
    generic = scores.pop("generic")
    best = max(scores, key=lambda name: scores[name])
    if scores[best] >= THRESHOLD:
        return load_profiles()[best]
    return load_profiles()["generic"] if generic >= THRESHOLD else None


def _is_unix(value: Any) -> bool:
    time = to_float(value)
    return time is not None and 1e9 <= time < 1e14
