"""Rules as data: packs, conditions, catalogues. Names resolve on first use, so that importing it loads no YAML parser."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltriage.rules.catalogue import load_catalogue
    from rltriage.rules.errors import RltriageError, RulePackError
    from rltriage.rules.explain import describe_rule
    from rltriage.rules.facts import judge, parse_fact
    from rltriage.rules.loader import check_rules, dump_pack, load_rules
    from rltriage.rules.model import Catalogue, Problem, Rule, RulePack
    from rltriage.rules.templates import render

__all__ = [
    "Catalogue",
    "Problem",
    "RltriageError",
    "Rule",
    "RulePack",
    "RulePackError",
    "check_rules",
    "describe_rule",
    "dump_pack",
    "judge",
    "load_catalogue",
    "load_rules",
    "parse_fact",
    "render",
]

_HOME = {
    "load_catalogue": "catalogue",
    "RltriageError": "errors",
    "RulePackError": "errors",
    "describe_rule": "explain",
    "judge": "facts",
    "parse_fact": "facts",
    "check_rules": "loader",
    "dump_pack": "loader",
    "load_rules": "loader",
    "Catalogue": "model",
    "Problem": "model",
    "Rule": "model",
    "RulePack": "model",
    "render": "templates",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
