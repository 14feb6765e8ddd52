"""Framework profiles: which native names and config keys mean which canonical metrics and facts. Data in `rules/profiles/`.

A profile file holds
    profile, title, read_from       its name, its title, the versions it was read from
    detect                          {native name or pattern: weight}; a run is this framework's at a sum of 2
    strip                           prefixes that loggers put before every name (`train/`)
    fold                            compare names in lower case with `_` for anything that is no letter, digit or `/`
    step_keys, nulls                where the step is; `nulls: nan` where the logger writes NaN as null
    metrics                         canonical metric: native name, a mapping with a transform, a list (first present wins)
    config                          canonical fact: config key, a mapping with a transform, or a list (first known wins)
    logged                          canonical fact: the metric that logs it
    facts                           what the framework's code fixes (`approx_kl_kind: k1`)
    not_logged, notes               canonical metrics that it cannot log, and what to know
    variants                        the same keys again, laid over these, per trainer class
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from rltriage.rules.errors import RulePackError
from rltriage.rules.model import Mark, Problem

FACTS = (
    *("algorithm", "kl_coef", "updates_per_batch", "epochs", "minibatches", "loss_mode", "temperature", "top_p", "top_k"),
    *("precision", "has_critic", "group_size", "reward_max", "reward_weights", "max_length", "lr", "warmup_steps"),
    *("weight_decay", "entropy_coef", "clip_eps", "steps", "async_lag", "resumed_at", "old_logp_source"),
)
METRICS = (
    *("reward", "reward_std", "pass_rate", "eval_pass", "eval_n", "entropy", "approx_kl", "approx_kl_max", "kl_ref"),
    *("sampler_kl", "clip_frac", "ratio_mean", "ratio_max", "ratio_min", "ratio_first_max", "is_ratio_mean"),
    *("grad_norm", "grad_norm_max", "loss", "lr", "value_loss", "explained_variance"),
    *("adv_mean", "adv_min", "adv_max", "adv_abs_max", "zero_adv_frac", "all_pass_frac", "all_fail_frac"),
    *("length", "length_min", "length_max", "length_pass", "length_fail", "truncated_frac"),
    *("logp_gap", "logp_gap_p99", "logp_gap_max", "logp_gap_gt1_frac", "logp_placeholder_frac"),
    *("probs_diff_mean", "probs_diff_max", "turns", "reads", "tests", "edits", "malformed", "hardcode", "submitted"),
    *("n_episodes", "n_groups", "loss_tokens"),
)
KINDS = ("approx_kl_kind", "kl_ref_kind", "sampler_kl_kind", "entropy_kind", "length_kind", "reward_kind")
_FOLD = re.compile(r"[^a-z0-9/@]+")
REDUCERS = ("first", "mean", "max", "min", "sum")
THRESHOLD = 2.0
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same safe subset, ten times faster where libyaml is there
_METRIC_KEYS = {"from", "scale", "negate", "one_minus", "divide_by", "none", "reduce", "beside", "keep"}
_CONFIG_KEYS = {"key", "product", "divide_by", "present", "const", "lookup", "values", "all"}
_PROFILE_KEYS = {
    *("profile", "title", "read_from", "detect", "strip", "step_keys", "nulls", "metrics", "config", "logged", "facts"),
    *("not_logged", "notes", "variants", "fold"),
}


@dataclass(frozen=True, slots=True)
class MetricSource:
    """One native name of a canonical metric, and how its number becomes ours. `*` matches anything, `+` all but `/`.

    value = native * scale, divided by the metric or fact `divide_by`, then 1 - value, then negated; `none` are values
    that stand for "nothing to say". Several names that match one pattern are reduced by `reduce`. With `beside` the name
    has this meaning only in a record that holds that name too; with `keep` it also passes through under its own name.
    """

    native: str
    scale: float = 1.0
    negate: bool = False
    one_minus: bool = False
    divide_by: str | None = None
    none: tuple[float, ...] = ()
    reduce: str = "first"
    beside: str | None = None
    keep: bool = False

    @property
    def plain(self) -> bool:
        return self.scale == 1.0 and not (self.negate or self.one_minus or self.divide_by or self.none)


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """One way to a canonical fact: `product` of config keys over `divide_by` keys, presence, a constant, or a lookup.

    Missing factors count as 1; with `all` the fact is unknown unless every factor is known.
    """

    product: tuple[str, ...] = ()
    divide_by: tuple[str, ...] = ()
    all: bool = False
    present: str | None = None
    const: Any = None
    lookup: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """One framework's (or one trainer class's) names. `name` is `trl` or `trl/ppo`."""

    name: str
    title: str
    read_from: str = ""
    detect: Mapping[str, float] = field(default_factory=dict)
    strip: tuple[str, ...] = ()
    step_keys: tuple[str, ...] = ()
    nulls: str = "absent"
    fold: bool = False
    metrics: Mapping[str, tuple[MetricSource, ...]] = field(default_factory=dict)
    config: Mapping[str, tuple[ConfigSource, ...]] = field(default_factory=dict)
    logged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    not_logged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def score(self, keys: Iterable[str]) -> float:
        """How surely these keys are this framework's: the sum of the weights of the patterns that any key matches."""
        names = list(keys)
        bare = {self.bare(name) for name in names} | set(names)
        return sum(weight for pattern, weight in self.detect.items() if any(match(pattern, name) for name in bare))

    def bare(self, name: str) -> str:
        """A native name without the prefix that loggers put before all of them."""
        if self.fold:
            name = _FOLD.sub("_", name.lower()).strip("_")
        for prefix in self.strip:
            if name.startswith(prefix):
                return name[len(prefix) :]
        return name


@cache
def _pattern(pattern: str) -> re.Pattern[str] | None:
    if not is_pattern(pattern):
        return None
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\+", "[^/]+") + r"\Z")


def is_pattern(name: str) -> bool:
    return "*" in name or "+" in name


def match(pattern: str, name: str) -> bool:
    """Whether a native name is the pattern; `*` stands for any text, `+` for text without `/`."""
    compiled = _pattern(pattern)
    return name == pattern if compiled is None else compiled.match(name) is not None


def load_profiles() -> Mapping[str, Profile]:
    """Every shipped profile with its variants, by name; RulePackError with all problems of all files."""
    return _load()


@cache
def _load() -> dict[str, Profile]:
    profiles: dict[str, Profile] = {}
    problems: list[Problem] = []
    folder = resources.files("rltriage.rules") / "profiles"
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".yaml"):
            for profile in parse_profile(entry.read_text(encoding="utf-8"), entry.name, problems):
                profiles[profile.name] = profile
    if problems:
        raise RulePackError(problems)
    return profiles


def parse_profile(text: str, path: str, problems: list[Problem]) -> list[Profile]:
    """The profile of one file and its variants; what is wrong is appended to `problems`, one entry each."""
    reader = _Reader(path, problems)
    try:
        data = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Mark(path, mark.line + 1, mark.column + 1) if mark else Mark(path, 1, 1)
        problems.append(Problem(place, "profile-yaml", f"not YAML: {getattr(error, 'problem', error)}"))
        return []
    if not isinstance(data, dict) or not isinstance(data.get("profile"), str):
        reader.problem("a profile is a mapping with `profile: NAME`")
        return []
    variants = data.pop("variants", {})
    base = reader.profile(data, data["profile"])
    found = [base]
    for name, overlay in variants.items():
        found.append(reader.profile(_lay_over(data, overlay or {}), f"{data['profile']}/{name}"))
    return found


def _lay_over(data: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """A variant: mappings are merged key by key (null removes one), everything else is replaced; `detect` is its own."""
    merged = dict(data)
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(data.get(key), dict) and key != "detect":
            merged[key] = {k: v for k, v in {**data[key], **value}.items() if v is not None}
        else:
            merged[key] = value
    if "detect" not in overlay:
        merged["detect"] = {}
    return merged


class _Reader:
    """Turns the plain data of one file into a Profile, collecting problems."""

    def __init__(self, path: str, problems: list[Problem]) -> None:
        self._path = path
        self._problems = problems

    def problem(self, message: str, hint: str = "") -> None:
        self._problems.append(Problem(Mark(self._path, 1, 1), "profile", message, hint))

    def profile(self, data: Mapping[str, Any], name: str) -> Profile:
        self._known(data, _PROFILE_KEYS, name)
        unknown = [fact for part in ("config", "logged") for fact in data.get(part, {}) if fact not in (*FACTS, *KINDS)]
        for metric in (*data.get("metrics", {}), *data.get("not_logged", ())):
            if metric not in METRICS:
                self.problem(f"{name}: {metric!r} is no canonical metric", f"one of {', '.join(METRICS)}")
        for fact in unknown:
            self.problem(f"{name}: {fact!r} is no config fact", f"one of {', '.join(FACTS)}")
        return Profile(
            name=name,
            title=data.get("title", name),
            read_from=data.get("read_from", ""),
            detect={key: float(weight) for key, weight in data.get("detect", {}).items()},
            strip=tuple(data.get("strip", ())),
            step_keys=tuple(data.get("step_keys", ())),
            nulls=data.get("nulls", "absent"),
            fold=bool(data.get("fold", False)),
            metrics={metric: self._metric(metric, value) for metric, value in data.get("metrics", {}).items()},
            config={fact: self._config(fact, value) for fact, value in data.get("config", {}).items()},
            logged={fact: tuple(_listed(value)) for fact, value in data.get("logged", {}).items()},
            facts=data.get("facts", {}),
            not_logged=tuple(data.get("not_logged", ())),
            notes=tuple(data.get("notes", ())),
        )

    def _known(self, data: Mapping[str, Any], keys: set[str], where: str) -> None:
        for key in data:
            if key not in keys:
                self.problem(f"{where}: unknown key {key!r}", f"one of {', '.join(sorted(keys))}")

    def _metric(self, metric: str, value: Any) -> tuple[MetricSource, ...]:
        sources = []
        for item in _listed(value):
            if isinstance(item, str):
                sources.append(MetricSource(item))
                continue
            if not isinstance(item, dict) or not isinstance(item.get("from"), str):
                self.problem(f"{metric}: write a native name or a mapping with `from: NAME`")
                continue
            self._known(item, _METRIC_KEYS, metric)
            reduce = item.get("reduce", "first")
            if reduce not in REDUCERS:
                self.problem(f"{metric}: cannot reduce by {reduce!r}", f"one of {', '.join(REDUCERS)}")
                reduce = "first"
            sources.append(
                MetricSource(
                    native=item["from"],
                    scale=float(item.get("scale", 1.0)),
                    negate=bool(item.get("negate", False)),
                    one_minus=bool(item.get("one_minus", False)),
                    divide_by=item.get("divide_by"),
                    none=tuple(float(x) for x in _listed(item["none"])) if "none" in item else (),
                    reduce=reduce,
                    beside=item.get("beside"),
                    keep=bool(item.get("keep", False)),
                )
            )
        return tuple(sources)

    def _config(self, fact: str, value: Any) -> tuple[ConfigSource, ...]:
        sources = []
        for item in _listed(value):
            if isinstance(item, str):
                sources.append(ConfigSource(product=(item,)))
                continue
            if not isinstance(item, dict):
                self.problem(f"{fact}: write a config key or a mapping such as {{product: [a, b]}}")
                continue
            self._known(item, _CONFIG_KEYS, fact)
            sources.append(
                ConfigSource(
                    product=tuple(_listed(item.get("product", item.get("key", [])))),
                    divide_by=tuple(_listed(item.get("divide_by", []))),
                    all=bool(item.get("all", False)),
                    present=item.get("present"),
                    const=item.get("const"),
                    lookup=item.get("lookup"),
                    values={_word(key): answer for key, answer in item.get("values", {}).items()},
                )
            )
        return tuple(sources)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _word(value: Any) -> str:
    """A config value as lookups spell it: text, `true`, `false`, `null`."""
    return str(value).lower() if isinstance(value, bool) else ("null" if value is None else str(value))
