"""Summaries of rules: `{metric:.3g}`, `{config.fact}`, `{observations}`, `{step}`, checked at load time, safe to render.

Not `str.format`: a field is looked up by its whole name, so nothing reaches attributes or items of an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import NamedTuple

BUILT_IN = ("observations", "step")
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?#?0?\d{0,2}[,_]?(\.\d{1,2})?[eEfFgGdn%s]?")
DEFAULT_SPEC = ".4g"
MISSING = "?"


class Part(NamedTuple):
    """A piece of a template: literal text, then, unless `name` is None, a field with its format spec."""

    literal: str
    name: str | None
    spec: str


def parse_template(template: str) -> list[Part]:
    """The pieces of a template. Raises ValueError with a message for users."""
    parts = []
    try:
        for literal, name, spec, conversion in Formatter().parse(template):
            if conversion:
                raise ValueError(f"{{{name}!{conversion}}} is not allowed: write {{{name}}}")
            if name == "":
                raise ValueError("{} names no metric: write {metric}, or {{}} for braces")
            if spec and not _SPEC.fullmatch(spec):
                raise ValueError(f"`:{spec}` is not a number format: write for example {{{name}:.3g}}")
            parts.append(Part(literal, name, spec or ""))
    except ValueError as error:
        if "expected '}'" in str(error) or "Single '" in str(error) or "unmatched" in str(error):
            raise ValueError("a brace is not closed: write {metric}, or {{ and }} for braces") from error
        raise
    return parts


def fields(template: str) -> list[str]:
    """The names that a template uses, in order. Raises ValueError as `parse_template` does."""
    return [part.name for part in parse_template(template) if part.name is not None]


def render(template: str, values: Mapping[str, object]) -> str:
    """Fill a template; facts are under `config.<fact>`; never raises.

    What is not in `values` reads `?`, whatever sentence it stands in, and what the mark stands for is told at the end.
    """
    try:
        parts = parse_template(template)
    except ValueError:
        return template
    text = "".join(part.literal + ("" if part.name is None else _shown(values.get(part.name), part.spec)) for part in parts)
    missing = dict.fromkeys(part.name for part in parts if part.name is not None and values.get(part.name) is None)
    return f"{text} (?: {', '.join(map(_absent, missing))})" if missing else text


def _absent(name: str) -> str:
    """Why a name has no value: a fact is told by somebody, a metric is logged."""
    fact = name.removeprefix("config.")
    return f"{fact} is not known" if fact != name else f"{name} is not logged"


def _shown(value: object, spec: str) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        spec = spec or DEFAULT_SPEC
    try:
        return format(value, spec)
    except (ValueError, TypeError, OverflowError):
        return str(value)
