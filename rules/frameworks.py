"""Which framework logs what: the data behind `rltriage profiles list|show` and `docs/frameworks.md`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.logic import Any as Any_
from rltriage.rules.conditions.logic import Compound
from rltriage.rules.crosscheck import rule_facts
from rltriage.rules.facts import judge
from rltriage.rules.model import Rule
from rltriage.rules.profiles import METRICS, ConfigSource, MetricSource, Profile, load_profiles

DERIVED: Mapping[str, frozenset[str]] = {"adv_abs_max": frozenset(("adv_min", "adv_max"))}
"""Metrics that the intake computes exactly from others."""


def listing() -> list[dict[str, Any]]:
    """One entry per profile: name, title, the versions it was read from, how many metrics and facts it maps."""
    return [
        {
            "profile": profile.name,
            "title": profile.title,
            "read_from": profile.read_from,
            "verified": dict(profile.verified),
            "metrics": len(profile.metrics),
            "facts": len({*profile.config, *profile.logged}),
        }
        for profile in load_profiles().values()
    ]


def details(profile: Profile) -> dict[str, Any]:
    """Everything that a profile says, as plain data."""
    return {
        "profile": profile.name,
        "title": profile.title,
        "read_from": profile.read_from,
        "verified": dict(profile.verified),
        "metrics": {name: [describe(source) for source in sources] for name, sources in profile.metrics.items()},
        "config": {name: [_config(source) for source in sources] for name, sources in profile.config.items()},
        "logged_facts": {name: list(natives) for name, natives in profile.logged.items()},
        "fixed_facts": dict(profile.facts),
        "not_logged": list(profile.not_logged),
        "notes": list(profile.notes),
    }


def verified_name(at: Mapping[str, str]) -> str:
    """The package or repository that a profile was checked against, with its version or commit; "" if it never was."""
    return " ".join(filter(None, (at.get("package") or at.get("repository"), at.get("version") or at.get("commit"))))


def verification(profile: Profile) -> str:
    """What a profile was checked against, how and when, in words; "" if it never was."""
    at = profile.verified
    how = "by real runs" if at.get("how") == "run" else "in its source"
    return f"{verified_name(at)} {how} on {at.get('date')}" if at else ""


def describe(source: MetricSource) -> str:
    """A native name with its transform, as a formula."""
    text = source.native
    if source.reduce != "first":
        text = f"{source.reduce}({text})"
    if source.scale != 1:
        text = f"{text} * {source.scale:g}"
    if source.divide_by:
        text = f"{text} / {source.divide_by}"
    if source.one_minus:
        text = f"1 - {text}" if not source.negate else f"{text} - 1"
    elif source.negate:
        text = f"-{text}"
    return text


def logged_metrics(profile: Profile) -> frozenset[str]:
    """The canonical metrics that the framework logs by itself, those that follow from them included.

    A profile may also map names that only forks or users' own code log; `not_logged` tells those.
    """
    names = set(profile.metrics) - set(profile.not_logged)
    names.update(name for name, parts in DERIVED.items() if parts <= names)
    return frozenset(names)


def can_judge(profile: Profile, rule: Rule) -> bool:
    """Whether what this framework logs by itself can make the rule fire: of alternatives, one that is logged is enough."""
    return _judged(rule.when, logged_metrics(profile))


def asked_facts(rules: Iterable[Rule], metrics: Collection[str], facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """The config facts that are not in `facts` and that rules read which `metrics` are enough for; each with their ids.

    A rule that a known fact rules out asks for nothing.
    """
    logged, asked = frozenset(metrics), dict[str, list[str]]()
    for rule in rules:
        if _judged(rule.when, logged) and judge(rule.requires, facts).holds is not False:
            for fact in sorted(rule_facts(rule) - facts.keys()):
                asked.setdefault(fact, []).append(rule.id)
    return dict(sorted(asked.items(), key=lambda item: -len(item[1])))


def _judged(condition: Condition, logged: frozenset[str]) -> bool:
    if isinstance(condition, Any_):
        return any(_judged(part, logged) for part in condition.parts())
    if isinstance(condition, Compound):
        return all(_judged(part, logged) for part in condition.parts())
    return condition.metrics() <= logged


def tables(rules: Iterable[Rule]) -> str:
    """What `docs/frameworks.md` says of the profiles: framework x metric, framework x rules, each profile's notes."""
    profiles = load_profiles()
    shown = [profile for name, profile in profiles.items() if "/" not in name or profile.metrics != _base(name).metrics]
    names = [metric for metric in METRICS if any(metric in profile.metrics for profile in shown)]
    return "\n".join([_table(shown, names), _coverage(shown, list(rules)), *map(_section, shown)])


def _base(name: str) -> Profile:
    return load_profiles()[name.split("/")[0]]


def _table(shown: list[Profile], names: list[str]) -> str:
    lines = ["## Metrics", "", "`x` as logged, `t` after a transform, `-` never logged, empty: not known.", ""]
    lines.append("| metric | " + " | ".join(profile.name for profile in shown) + " |")
    lines.append("|---|" + "---|" * len(shown))
    for name in names:
        lines.append(f"| `{name}` | " + " | ".join(_cell(profile, name) for profile in shown) + " |")
    return "\n".join(lines) + "\n"


def _cell(profile: Profile, metric: str) -> str:
    if metric in profile.not_logged:
        return "-"
    sources = profile.metrics.get(metric)
    if sources is None:
        return ""
    return "x" if sources[0].plain and sources[0].reduce == "first" else "t"


def _coverage(shown: list[Profile], rules: list[Rule]) -> str:
    lines = ["## Rules", "", "Which of the shipped rules what a framework logs by itself is enough for (`x`)."]
    lines += [
        "Config facts that a rule asks for are another matter: `rltriage profiles check SOURCE` lists those that the rules",
        "which SOURCE has the metrics for ask for and that are not known, and those that are.",
        "",
    ]
    lines += ["| rule | " + " | ".join(profile.name for profile in shown) + " |", "|---|" + "---|" * len(shown)]
    for rule in rules:
        cells = ["x" if can_judge(profile, rule) else "" for profile in shown]
        lines.append(f"| `{rule.id}` | " + " | ".join(cells) + " |")
    able = [str(sum(can_judge(profile, rule) for rule in rules)) for profile in shown]
    lines.append(f"| of {len(rules)} | " + " | ".join(able) + " |")
    return "\n".join(lines) + "\n"


def _section(profile: Profile) -> str:
    lines = [f"## {profile.title}", "", f"Profile `{profile.name}`."]
    if profile.read_from:
        lines[-1] += f" Read from {profile.read_from}."
    if profile.verified:
        lines[-1] += f" Verified against {verification(profile)}."
    lines += ["", *(f"- {note}" for note in profile.notes)]
    if profile.facts:
        lines.append(f"- Facts that its code fixes: {', '.join(f'`{k}` {v}' for k, v in profile.facts.items())}.")
    lines += ["", "| metric | native names, the first present wins |", "|---|---|"]
    for name, sources in profile.metrics.items():
        lines.append(f"| `{name}` | {', '.join(f'`{describe(source)}`' for source in sources)} |")
    if profile.config:
        lines += ["", "| config fact | from |", "|---|---|"]
        for name, alternatives in profile.config.items():
            lines.append(f"| `{name}` | {'; '.join(f'`{_config(source)}`' for source in alternatives)} |")
    return "\n".join(lines) + "\n"


def _config(source: ConfigSource) -> str:
    """One way to a fact, as a formula."""
    if source.lookup is not None:
        return f"{source.lookup}: " + ", ".join(f"{key} = {value}" for key, value in source.values.items())
    if source.present is not None:
        return f"{source.present} is set"
    if not source.product:
        return str(source.const)
    return " * ".join(source.product) + "".join(f" / {divisor}" for divisor in source.divide_by)
