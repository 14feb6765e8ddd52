"""Config facts: canonical values out of declared config, and which of several sources wins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rltriage.engine.rows import Fact, Provenance
from rltriage.engine.sources.base import flatten, to_float
from rltriage.rules.profiles import FACTS, KINDS, ConfigSource, Profile

_UNKNOWN = object()
_RANK: Mapping[str, int] = {"declared": 2, "logged": 1, "inferred": 0}

_LONGEST = 200
_MOST_BITS = 1024


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, flat, of plain values alone: what a training script declares may hold any object."""
    return {name: _plain(value) for name, value in flatten(config, ".").items()}


def _plain(value: Any, depth: int = 3) -> Any:
    """Numbers, text, truth values and lists of them; another object is the number that it is, or else its text."""
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MOST_BITS else math.inf if value > 0 else -math.inf
    if isinstance(value, (list, tuple)) and depth:
        return [_plain(item, depth - 1) for item in value]
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's, since version 2 and before
        return bool(value)
    number = to_float(value)
    if number is not None:
        return number
    try:
        return str(value)[:_LONGEST]
    except Exception:  # a foreign __str__ may raise anything; a run must not go unwatched for one setting
        return type(value).__name__


def resolve(profile: Profile, config: Mapping[str, Any], provenance: Provenance) -> tuple[dict[str, Fact], tuple[str, ...]]:
    """Canonical facts of a flat config whose keys are canonical or the framework's own, and the keys that no fact uses.

    A canonical key wins over one that a profile derives. A key may be written in full (`actor.ppo_epochs`) or by its end.
    """
    lookup = _Lookup(config)
    facts: dict[str, Fact] = {}
    for fact, sources in profile.config.items():
        if fact in config:
            continue
        value, used = _derive(sources, lookup)
        if value is not _UNKNOWN:
            facts[fact] = Fact(value, provenance, ", ".join(used))
    known = {key for key in config if key in FACTS or key in KINDS}
    for key in known:
        facts[key] = Fact(config[key], provenance, key)
    unused = tuple(key for key in config if key not in known and key not in lookup.used)
    return facts, unused


def merge(*layers: Mapping[str, Fact]) -> dict[str, Fact]:
    """Facts with the precedence declared > logged > inferred; within one provenance the first layer wins."""
    merged: dict[str, Fact] = {}
    for layer in layers:
        for name, fact in layer.items():
            if name not in merged or _RANK[fact.provenance] > _RANK[merged[name].provenance]:
                merged[name] = fact
    return merged


def fixed(profile: Profile) -> dict[str, Fact]:
    """What the framework's code fixes, such as which KL estimator a name holds."""
    return {name: Fact(value, "inferred", f"profile {profile.name}") for name, value in profile.facts.items()}


class _Lookup:
    """Finds config keys by their full name or by their last parts, and remembers which were used."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.used: set[str] = set()

    def __call__(self, name: str) -> Any:
        keys = _keys(self._config, name)
        self.used.update(keys)
        return self._config[keys[0]] if keys else _UNKNOWN


def config_value(config: Mapping[str, Any], name: str) -> Any:
    """The value of a config key given in full or by its end; None if there is none, or several that differ."""
    keys = _keys(config, name)
    return config[keys[0]] if keys else None


def _keys(config: Mapping[str, Any], name: str) -> list[str]:
    if name in config:
        return [name]
    ends = [key for key in config if key.endswith(("." + name, "/" + name))]
    return ends if len({repr(config[key]) for key in ends}) == 1 else []


def _derive(sources: tuple[ConfigSource, ...], lookup: _Lookup) -> tuple[Any, list[str]]:
    """The first alternative that is known and not 0, else the first that is known."""
    first: tuple[Any, list[str]] = (_UNKNOWN, [])
    for source in sources:
        value, used = _one(source, lookup)
        if value is _UNKNOWN or value is None:
            continue
        if first[0] is _UNKNOWN:
            first = (value, used)
        if value != 0:
            return value, used
    return first


def _one(source: ConfigSource, lookup: _Lookup) -> tuple[Any, list[str]]:
    if source.lookup is not None:
        value = lookup(source.lookup)
        word = str(value).lower() if isinstance(value, bool) else ("null" if value is None else str(value))
        answer = source.values.get(word, source.values.get("*", _UNKNOWN))
        return (_UNKNOWN if value is _UNKNOWN else answer), [source.lookup]
    if source.present is not None:
        value = lookup(source.present)
        return (_UNKNOWN if value is _UNKNOWN else value not in (None, False, "", 0)), [source.present]
    if not source.product:
        return (_UNKNOWN if source.const is None else source.const), ["const"]
    if len(source.product) == 1 and not source.divide_by:
        return lookup(source.product[0]), list(source.product)
    return _quotient(source, lookup)


def _quotient(source: ConfigSource, lookup: _Lookup) -> tuple[Any, list[str]]:
    """The product over the divisors. A divisor belongs to the factor at its place from the end; both or neither count."""
    numbers: dict[str, float] = {}
    for name in (*source.product, *source.divide_by):
        value = lookup(name)
        number = None if value is _UNKNOWN else to_float(value)
        if number is not None:
            numbers[name] = number
    if source.all and len(numbers) < len(source.product) + len(source.divide_by):
        return _UNKNOWN, []
    paired = source.product[len(source.product) - len(source.divide_by) :]
    for factor, divisor in zip(paired, source.divide_by, strict=True):
        if factor not in numbers or not numbers.get(divisor):
            numbers.pop(factor, None)
            numbers.pop(divisor, None)
    if not numbers:
        return _UNKNOWN, []
    value = math.prod(numbers.get(name, 1.0) for name in source.product)
    for name in source.divide_by:
        value /= numbers.get(name, 1.0)
    return (int(value) if math.isfinite(value) and value == int(value) else value), list(numbers)
