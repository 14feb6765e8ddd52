"""From a record as a logger wrote it to a canonical Row, and from config to a Run with its facts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from rltriage.engine.facts import fixed, flat_config, merge, resolve
from rltriage.engine.inference import inferred_by_name
from rltriage.engine.mapping import Plan, plan_for
from rltriage.engine.rows import Fact, Record, Row, Run
from rltriage.engine.sources.base import flatten, to_float, to_step
from rltriage.rules.errors import RltriageError
from rltriage.rules.profiles import (
    METRICS,
    THRESHOLD,
    Profile,
    load_profile,
    load_profiles,
    match,
)

_CONFIGS = ("config", "args", "hparams", "hyperparameters")
COARSE_PLACES = 5
MAX_UNMAPPED = 10_000
MAX_PLANNED = 500_000
"""Names in the sets of keys whose plans are kept, about 100 MB: a log that makes up names has its plans made anew."""
_UNDECIDED = 5
_MISSING = object()
_FLOAT = frozenset((float,))
_ANY_TRAINING = frozenset(
    ("loss", "*_loss", "grad_norm", "gradient_norm", "l2_norm", "lr", "learning_rate", "acc*", "*accuracy")
)


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
        self._config = flat_config(config or {})
        self._all_config = {**flat_config(beside or {}), **self._config}
        self._logged_config = flat_config(logged_config or {})
        self._labels = dict(labels or {})
        self._id = run_id
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._planned = 0
        self._held: list[Record] = []
        self._logged: dict[str, Fact] = {}
        self._inferred: dict[str, Fact] = {}
        self._learnt = False
        self._decimals: dict[str, int | None] = {}
        self._nulls_are_nan = False
        self._recent: set[str] = set()
        self._ordinal = -1
        self._last_step = -1
        self._rank_zero = False
        self._stepped = False
        self._on_axis = False
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
        keys = [flatten({k: v for k, v in held.values.items() if k not in _CONFIGS}) for held in self._held]
        chosen = decide(keys)
        if chosen is not None and chosen.name == "generic" and not _speaks_of_rl(chosen, keys):
            chosen = None  # a framework that logs several records a step may start with lr and grad_norm
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
        if self._learnt:
            self._learnt = False
            self._refresh()
        if plan.config and self.rows_seen == 0 and self._config_record(values):
            return self._skip("config record")
        if plan.summary:
            return self._skip("summary record")
        if plan.rank is not None and self._of_another_rank(values[plan.rank]):
            return self._skip("record of another rank")
        if plan.logged:
            self._log_facts(plan, values)
        if not metrics:
            return self._skip("record without metrics")
        if self._nulls_are_nan:
            self._recent.update(metrics)
        before = self._last_step
        step = self._step(record, plan, values)
        why = self._copies.seen(metrics, again=step == before)
        if why:
            return self._skip(why)
        self.rows_seen += 1
        return Row(step, metrics, self._time(record, plan, values))

    def _of_another_rank(self, value: Any) -> bool:
        """Whether rank 0 writes into this log too; a `rank` that is never 0 is something else, as of an adapter."""
        rank = to_step(value)
        self._rank_zero = self._rank_zero or rank == 0
        return self._rank_zero and bool(rank)

    def _flat(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A nested record, flat; a configuration that a logger repeats in every record (RLlib) is facts, not metrics."""
        for key in _CONFIGS:
            inner = values.get(key)
            if isinstance(inner, Mapping):
                values = {name: value for name, value in values.items() if name != key}
                if not self._logged_config:
                    self._logged_config = flat_config(inner)
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
        metrics = plan.take(values)
        kinds = set(map(type, metrics.values()))
        if dict in kinds:
            return None
        if kinds - _FLOAT:
            metrics = self._numbers(metrics)
        for name, transform in plan.transforms:
            if name in metrics:
                value = transform(metrics[name], values)
                if value is None:
                    del metrics[name]
                else:
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

    def _numbers(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The numbers among values of any kind."""
        metrics: dict[str, float] = {}
        for name, value in values.items():
            number = value if type(value) is float else self._other(name, value)
            if number is not None:
                metrics[name] = number
        return metrics

    def _other(self, name: str, value: Any) -> float | None:
        """A value that is no float: integers, text (whose decimals are noted), null, foreign scalars."""
        if type(value) is str:
            number = to_float(value)
            if number is None or (name == "lr" and number == 0 and "0.00" in value):
                return None  # a learning rate that was rounded to 0.000 says nothing
            self._note_decimals(name, value)
            return number
        if value is None:
            return math.nan if name in self._recent else None
        return to_float(value)

    def _note_decimals(self, name: str, text: str) -> None:
        """Text that always has the same few decimals is rounded to them: a fact, because 0.000 is then no exact 0."""
        before = self._decimals.get(name, _MISSING)
        if before is None or name not in METRICS:
            return
        whole, dot, decimals = text.strip().partition(".")
        places = len(decimals) if dot and decimals.isdigit() and whole.lstrip("-").isdigit() else 0
        if before is _MISSING:
            self._decimals[name] = places if 1 < places <= COARSE_PLACES else None
            return
        same = places == before
        fact = f"resolution.{name}"
        if not same or fact not in self._inferred:
            self._inferred[fact] = Fact(10.0**-places if same else 0.0, "inferred", "the decimals of its text")
            self._learnt = True
        self._decimals[name] = places if same else None

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
        facts, _ = resolve(self.profile, flat_config(inner if isinstance(inner, Mapping) else values), "logged")
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
            if self._stepped:
                step = self._last_step
            else:
                self.ordinal_steps = True
                step = self._ordinal
        else:
            self._stepped = True
            if not plan.aside:
                self._on_axis = True
            elif self._on_axis:
                step = max(step, self._last_step)
        self._last_step = step
        return step

    def _time(self, record: Record, plan: Plan, values: Mapping[str, Any]) -> float | None:
        time = record.time
        if time is not None or plan.time is None:
            return time if time is None or math.isfinite(time) else None
        time = to_float(values[plan.time])
        if time is None or not math.isfinite(time):
            return None
        return time / 1000 if time > 1e11 else time

    def _plan(self, values: Mapping[str, Any]) -> Plan:
        assert self.profile is not None
        plan = plan_for(self.profile, values, self._all_config)
        unmapped = frozenset(plan.unmapped)
        for key, name, _ in plan.entries:
            if key not in unmapped:
                self.mapped.setdefault(name, key)
        for group in plan.groups:
            self.mapped.setdefault(group.name, " + ".join(group.natives))
        if "has_critic" not in self.run.facts and (proven := inferred_by_name([entry[1] for entry in plan.entries])):
            self._inferred.update(proven)
            self._refresh()
        if len(self.unmapped) < MAX_UNMAPPED:
            known = frozenset(self.unmapped)
            self.unmapped += [key for key in plan.unmapped if key not in known]
        if len(self._plans) < 1000 and self._planned < MAX_PLANNED:
            self._planned += len(values)
            self._plans[tuple(values)] = plan
        return plan


class _Copies:
    """Finds rows that say again what the one before said: of the same step, or in a log that is forward-filled throughout,
    where each of the first three distinct rows was repeated at once. A new step with the same values is an observation.
    """

    def __init__(self) -> None:
        self._previous: Mapping[str, float] | None = None
        self._length = 0
        self._blocks = 0
        self._filled: bool | None = None

    def seen(self, metrics: Mapping[str, float], again: bool) -> str:
        """What kind of copy a row is, empty if it is none; `again` where its step is that of the row before."""
        previous, self._previous = self._previous, metrics
        if self._filled is False and not again:
            return ""
        same = metrics == previous or (again and _alike(metrics, previous))
        if self._filled is None and not (same and again):  # a record logged twice says nothing about new steps
            self._judge(same, previous is None)
        if same and self._filled:
            return "forward-filled copy"
        return "repeated record" if same and again else ""

    def _judge(self, same: bool, first: bool) -> None:
        if same:
            self._length += 1
            return
        if not first:
            if self._length < 2:
                self._filled = False
            self._blocks += 1
            if self._blocks == 3 and self._filled is None:
                self._filled = True
        self._length = 1


def _alike(metrics: Mapping[str, float], previous: Mapping[str, float] | None) -> bool:
    """Whether two rows hold the same numbers, of which not every NaN is the same object."""
    if previous is None or metrics.keys() != previous.keys():
        return False
    return all(value == (old := previous[name]) or (value != value and old != old) for name, value in metrics.items())


def find_profile(name: str) -> Profile:
    """A profile by name, or one of the user's own by its file; RltriageError that lists the names there are."""
    profiles = load_profiles()
    if name not in profiles and name.endswith((".yaml", ".yml")):
        return load_profile(name)
    if name not in profiles:
        raise RltriageError(f"no profile {name!r}; choose one of {', '.join(profiles)}, auto, or a file of your own")
    return profiles[name]


def _speaks_of_rl(generic: Profile, records: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a common name of reinforcement learning is among the keys, and not only what any training logs."""
    names = {generic.bare(key) for record in records for key in record}
    return any(match(pattern, name) for pattern in generic.detect if pattern not in _ANY_TRAINING for name in names)


def decide(records: Iterable[Mapping[str, Any]]) -> Profile | None:
    """The framework whose distinctive keys these flat records hold; `generic` if only common names do; None if neither."""
    return _decided(frozenset(key for record in records for key in record))


@lru_cache(maxsize=256)
def _decided(keys: frozenset[str]) -> Profile | None:
    """Once for all runs whose logs begin alike."""
    scores = {name: profile.score(keys) for name, profile in load_profiles().items()}
    generic = scores.pop("generic")
    best = max(scores, key=lambda name: scores[name])
    if scores[best] >= THRESHOLD:
        return load_profiles()[best]
    return load_profiles()["generic"] if generic >= THRESHOLD else None
