"""Framework profiles: which native names and config keys mean which canonical metrics and facts. Data in `rules/profiles/`.

A profile file holds
    profile, title, read_from       its name, its title, the versions it was read from
    verified                        which package or repository, version or commit it was checked against, when and how
                                    (`source`: names and formulas read there; `run`: rows of real runs are in the tests)
    detect                          {native name or pattern: weight}; a run is this framework's at a sum of 2
    strip                           prefixes that loggers put before every name (`train/`)
    fold                            compare names in lower case with `_` for anything that is no letter, digit or `/`
    step_keys, nulls                where the step is; `nulls: nan` where the logger writes NaN as null
    undefined                       names whose NaN only says that there was nothing to average: absent, no fault
    axis                            names of which one must be in a record whose step counts, where there are several axes
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
from pathlib import Path
from typing import Any

from rltriage.rules.errors import RulePackError
from rltriage.rules.facts import CONFIG_FACTS
from rltriage.rules.model import Problem
from rltriage.rules.yamlmarks import Node, parse, read

_BEGINS = "a profile starts with `profile: NAME` and `metrics:`"
FACTS = tuple(CONFIG_FACTS)
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
_METRIC_KEYS = {"from", "scale", "negate", "one_minus", "divide_by", "none", "reduce", "beside", "keep"}
_CONFIG_KEYS = {"key", "product", "divide_by", "present", "const", "lookup", "values", "all"}
_MAPPINGS = ("detect", "metrics", "config", "logged", "facts", "verified")
_VERIFIED = {"package", "repository", "version", "commit", "date", "how"}
_TEXTS = ("profile", "title", "read_from", "nulls", "axis")
_LISTS = ("strip", "step_keys", "not_logged", "notes", "undefined")
_PROFILE_KEYS = {
    *("profile", "title", "read_from", "detect", "strip", "step_keys", "nulls", "metrics", "config", "logged", "facts"),
    *("not_logged", "notes", "variants", "fold", "verified", "axis", "undefined"),
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
    verified: Mapping[str, str] = field(default_factory=dict)
    detect: Mapping[str, float] = field(default_factory=dict)
    strip: tuple[str, ...] = ()
    step_keys: tuple[str, ...] = ()
    axis: str = ""
    undefined: tuple[str, ...] = ()
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


def load_profile(path: str | Path) -> Profile:
    """A profile of the user's own; RulePackError with every mistake and its place, unreadable files included."""
    root, problems = read(Path(path), begins=_BEGINS)
    found = _profiles(root, problems) if root is not None else []
    if problems:
        raise RulePackError(problems)
    return found[0]


def parse_profile(text: str, path: str, problems: list[Problem]) -> list[Profile]:
    """The profile of one file and its variants; what is wrong is appended to `problems`, each with its place."""
    root, found = parse(text, path, _BEGINS)
    problems += found
    return [] if root is None else _profiles(root, problems)


def _profiles(root: Node, problems: list[Problem]) -> list[Profile]:
    data = root.plain()
    if not isinstance(data, dict) or not isinstance(data.get("profile"), str):
        problems.append(root.problem("profile", "a profile is a mapping with `profile: NAME`"))
        return []
    reader = _Reader(root, problems)
    variants = data.pop("variants", {})
    if not isinstance(variants, dict) or not all(isinstance(overlay, dict) for overlay in variants.values()):
        problems.append(root.key("variants").problem("profile", "variants must map names to mappings"))
        variants = {}
    found = [reader.profile(data, data["profile"])]
    for name, overlay in variants.items():
        reader.variant = name
        found.append(reader.profile(_lay_over(data, overlay), f"{data['profile']}/{name}"))
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
    """Turns the plain data of one file into profiles, collecting problems at their places."""

    def __init__(self, root: Node, problems: list[Problem]) -> None:
        self._root = root
        self._problems = problems
        self.variant: str | None = None

    def problem(self, message: str, hint: str, *path: str) -> None:
        """A problem at the key where `path` ends, in the variant that is being read or else in the profile; told once."""
        node = self._root.at("variants", self.variant) if self.variant is not None else self._root
        if self.variant is None or node.at(*path[:-1]).key(path[-1]) is node.at(*path[:-1]):
            node = self._root
        place = node.at(*path[:-1]).key(path[-1])
        if all(place.mark != problem.mark for problem in self._problems):
            self._problems.append(place.problem("profile", message, hint))

    def profile(self, data: Mapping[str, Any], name: str) -> Profile:
        self._known(data, _PROFILE_KEYS)
        data = {key: value for key, value in data.items() if self._shaped(key, value)}
        self._known(data.get("verified", {}), _VERIFIED, "verified")
        for metric in data.get("metrics", {}):
            if metric not in METRICS:
                self.problem(f"{metric!r} is no canonical metric", f"one of {', '.join(METRICS)}", "metrics", metric)
        for metric in data.get("not_logged", ()):
            if metric not in METRICS:
                self.problem(f"{metric!r} is no canonical metric", f"one of {', '.join(METRICS)}", "not_logged")
        for part in ("config", "logged", "facts"):
            for fact in data.get(part, {}):
                if fact not in FACTS and fact not in KINDS:
                    self.problem(f"{fact!r} is no config fact", f"one of {', '.join(FACTS)}", part, fact)
        return Profile(
            name=name,
            title=data.get("title", name),
            read_from=data.get("read_from", ""),
            verified={key: str(value) for key, value in data.get("verified", {}).items()},
            detect={key: self._number(weight, 0.0, "detect", key) for key, weight in data.get("detect", {}).items()},
            strip=self._texts(data.get("strip", []), "strip"),
            step_keys=self._texts(data.get("step_keys", []), "step_keys"),
            axis=data.get("axis", ""),
            undefined=self._texts(data.get("undefined", []), "undefined"),
            nulls=data.get("nulls", "absent"),
            fold=bool(data.get("fold", False)),
            metrics={metric: self._metric(metric, value) for metric, value in data.get("metrics", {}).items()},
            config={fact: self._config(fact, value) for fact, value in data.get("config", {}).items()},
            logged={fact: self._texts(value, "logged", fact) for fact, value in data.get("logged", {}).items()},
            facts=data.get("facts", {}),
            not_logged=self._texts(data.get("not_logged", []), "not_logged"),
            notes=self._texts(data.get("notes", []), "notes"),
        )

    def _shaped(self, key: str, value: Any) -> bool:
        """Whether a section is a mapping, a list or a text as it must be."""
        if key in _TEXTS and not isinstance(value, str):
            self.problem(f"{key} must be text", "", key)
            return False
        if key in _MAPPINGS and not isinstance(value, dict):
            self.problem(f"{key} must be a mapping", "", key)
            return False
        if key in _LISTS and not isinstance(value, list):
            self.problem(f"{key} must be a list", "", key)
            return False
        return True

    def _number(self, value: Any, default: float, *path: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        self.problem(f"{value!r} is no number", "", *path)
        return default

    def _texts(self, value: Any, *path: str) -> tuple[str, ...]:
        """A name or several; what is no text is told, and left out."""
        items = _listed(value)
        if not all(isinstance(item, str) for item in items):
            self.problem(f"{path[-1]} must be a name or a list of names", "", *path)
        return tuple(item for item in items if isinstance(item, str))

    def _name(self, item: Mapping[str, Any], key: str, *path: str) -> str | None:
        """The one name under a key, None where there is none."""
        found = item.get(key)
        if found is None or isinstance(found, str):
            return found
        self.problem(f"{key} must be a name", "", *path, key)
        return None

    def _known(self, data: Mapping[str, Any], keys: set[str], *path: str) -> None:
        for key in data:
            if key not in keys:
                self.problem(f"unknown key {key!r}", f"one of {', '.join(sorted(keys))}", *path, key)

    def _metric(self, metric: str, value: Any) -> tuple[MetricSource, ...]:
        sources = []
        for item in _listed(value):
            if isinstance(item, str):
                sources.append(MetricSource(item))
                continue
            if not isinstance(item, dict) or not isinstance(item.get("from"), str):
                self.problem(f"{metric} needs a native name or a mapping with `from: NAME`", "", "metrics", metric)
                continue
            self._known(item, _METRIC_KEYS, "metrics", metric)
            reduce = item.get("reduce", "first")
            if reduce not in REDUCERS:
                self.problem(f"cannot reduce by {reduce!r}", f"one of {', '.join(REDUCERS)}", "metrics", metric, "reduce")
                reduce = "first"
            sources.append(
                MetricSource(
                    native=item["from"],
                    scale=self._number(item.get("scale", 1.0), 1.0, "metrics", metric, "scale"),
                    negate=bool(item.get("negate", False)),
                    one_minus=bool(item.get("one_minus", False)),
                    divide_by=self._name(item, "divide_by", "metrics", metric),
                    none=tuple(self._number(x, 0.0, "metrics", metric, "none") for x in _listed(item.get("none", []))),
                    reduce=reduce,
                    beside=self._name(item, "beside", "metrics", metric),
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
                self.problem(f"{fact} needs a config key or a mapping such as {{product: [a, b]}}", "", "config", fact)
                continue
            self._known(item, _CONFIG_KEYS, "config", fact)
            values = item.get("values", {})
            if not isinstance(values, dict):
                self.problem("values must be a mapping", "", "config", fact, "values")
                values = {}
            product = self._texts(item.get("product", item.get("key", [])), "config", fact, "product")
            divide_by = self._texts(item.get("divide_by", []), "config", fact, "divide_by")
            if len(divide_by) > len(product):
                self.problem("divide_by names more keys than product", "", "config", fact, "divide_by")
            sources.append(
                ConfigSource(
                    product=product,
                    divide_by=divide_by,
                    all=bool(item.get("all", False)),
                    present=self._name(item, "present", "config", fact),
                    const=item.get("const"),
                    lookup=self._name(item, "lookup", "config", fact),
                    values=values,
                )
            )
        return tuple(sources)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
