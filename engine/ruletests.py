"""Unit tests of rules, written in YAML: series in shorthand, the alerts they must raise, the rules that must stay silent.

    version: 1
    tests:
      - name: a live reference
        rule: kl-ref-exactly-zero           # the rule under test, the default of `expect` and `silent`
        config: {kl_coef: 0.1}
        steps: {first: 0, every: 1}         # the default
        series: {kl_ref: "0x6", grad_norm: 0.2, lr: 1e-6}   # a plain number is the same in every row
        expect: [{step: 3, severity: critical, fault: ref_is_policy}]
      - name: no KL term
        rule: kl-ref-exactly-zero
        config: {kl_coef: 0}
        series: {kl_ref: "0x6", grad_norm: 0.2, lr: 1e-6}
        silent: true

`steps: {first: 0, every: 1, seconds: 30}` also gives the rows wall times, `silence: 900` lets so many seconds pass after
the last one, and `reference: {grad_norm: [0.1, 0.4]}` is a healthy range. An expectation matches an alert by the
fields it names (`state` is firing unless said otherwise). With `exact: true` the whole pack runs and there may be no
transition besides the expected ones; else only the rules that the test names run, since rules do not see each other.
Everything runs through `Monitor`, as live rows do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltriage.engine.monitor import Monitor
from rltriage.engine.report import Alert
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.series import count_values, parse_series
from rltriage.engine.triage import Triage
from rltriage.rules.errors import RulePackError
from rltriage.rules.model import Catalogue, Problem, RulePack
from rltriage.rules.validate import Checker, closest
from rltriage.rules.yamlmarks import Node, read

_KEYS = ("name", "rule", "config", "steps", "silence", "reference", "series", "expect", "silent", "exact")
_WHOLE = {"type": "integer", "minimum": -(2**53), "maximum": 2**53}
_SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "rule": {"type": "string"},
        "config": {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "array"]}},
        "steps": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"first": _WHOLE, "every": _WHOLE, "seconds": {"type": "number", "exclusiveMinimum": 0}},
        },
        "silence": {"type": "number", "minimum": 0},
        "reference": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        },
        "series": {"type": "object"},
        "expect": {
            "type": "array",
            "items": {"type": "object", "properties": {"rule": {"type": "string"}}},
            "description": "alerts, as in [{step: 3}]",
        },
        "silent": {"type": ["boolean", "array"], "items": {"type": "string"}, "description": "true, or ids of rules"},
        "exact": {"type": "boolean"},
    },
}
"""What kind of value each key of a test has; which keys and names there are is checked with better hints."""
MAX_ALL_VALUES = 1_000_000
"""Values in the series of one file; those of the shipped pack make 6,000."""
_FIELDS = ("rule", "state", "step", "since_step", "severity", "group", "fault", "first_test", "explained_by", "summary")


@dataclass(frozen=True, slots=True)
class TestResult:
    """What one test found; `message` is empty if it passed, else what was expected and what happened."""

    __test__ = False  # not a pytest class

    name: str
    rules: tuple[str, ...]
    kind: str
    passed: bool
    message: str = ""


def run_rule_tests(path: Path, pack: RulePack, catalogue: Catalogue) -> list[TestResult]:
    """Run every test of one file. Raises RulePackError with every mistake in the file itself."""
    node, problems = read(path, begins="tests of rules start with `version: 1` and `tests:`")
    if node is None or problems:
        raise RulePackError(problems)
    known = frozenset(rule.id for rule in pack.rules)
    problems = _mistakes(node, known)
    if problems:
        raise RulePackError(problems)
    return [_run(test.plain(), pack, catalogue) for test in node.at("tests").elements]


def _run(test: Mapping[str, Any], pack: RulePack, catalogue: Catalogue) -> TestResult:
    expected = [{"rule": test.get("rule"), "state": "firing", **wanted} for wanted in test.get("expect", ())]
    silent = _silent(test)
    whole = test.get("exact", False) or any("explained_by" in wanted for wanted in expected)
    named = {wanted["rule"] for wanted in expected} | set(silent)
    rules = pack.rules if whole else tuple(rule for rule in pack.rules if rule.id in named)
    monitor, seen = _replay(test, replace(pack, rules=rules), catalogue)
    unmet = [wanted for wanted in expected if not any(_matches(wanted, alert) for alert in seen)]
    complaints = [_missing(wanted, seen, monitor) for wanted in unmet]
    complaints += [
        f"fired but has to be silent: {_shown(alert)}" for alert in seen if alert.rule in silent and _fired(alert)
    ]
    if test.get("exact", False):
        surplus = [alert for alert in seen if not any(_matches(wanted, alert) for wanted in expected)]
        complaints += [f"not expected: {_shown(alert)}" for alert in surplus]
    judged = dict.fromkeys([*(wanted["rule"] for wanted in expected), *silent])
    return TestResult(
        test["name"], tuple(judged), "firing" if expected else "silent", not complaints, "\n".join(complaints)
    )


def firing_example(rule: str, pack: RulePack) -> str:
    """Rows under which a rule fires, from the tests beside its pack, and what it then says; empty if there are none."""
    known = frozenset(each.id for each in pack.rules)
    alone = replace(pack, rules=tuple(each for each in pack.rules if each.id == rule))
    for file in (Path(path).with_suffix(f".tests{Path(path).suffix}") for path in pack.paths):
        node = read(file)[0] if file.is_file() else None
        for test in node.at("tests").elements if node is not None and "tests" in node.entries else ():
            shown = test.plain() if not _mistakes_of(test, known) else {}
            if any(wanted.get("rule", shown.get("rule")) == rule for wanted in shown.get("expect", ())):
                fired = [alert for alert in _replay(shown, alone, pack.catalogue)[1] if _fired(alert)]
                if fired:
                    return _example(shown, fired[0])
    return ""


def _example(test: Mapping[str, Any], alert: Alert) -> str:
    lines = [f"{test['name']}:"]
    lines += [f"  {name} = {value}" for name, value in test.get("config", {}).items()]
    lines += [f"  {name}: {values}" for name, values in test["series"].items()]
    return "\n".join([*lines, f"  -> {alert.severity} at step {alert.step}: {alert.summary}"])


def _replay(test: Mapping[str, Any], pack: RulePack, catalogue: Catalogue) -> tuple[Monitor, list[Alert]]:
    """The monitor after the test's rows, and every transition, pending ones left out."""
    facts = {name: Fact(value, "declared", "rule test") for name, value in test.get("config", {}).items()}
    reference = _Reference(test["reference"]) if "reference" in test else None
    monitor = Monitor(Run("test", facts=facts), pack, catalogue, triage=Triage(catalogue, pack), reference=reference)
    rows = _rows(test)
    reports = [monitor.observe(row) for row in rows]
    if "silence" in test:
        reports.append(monitor.tick((rows[-1].time or 0.0) + test["silence"]))
    return monitor, [alert for report in reports for alert in report.alerts if alert.state != "pending"]


def _rows(test: Mapping[str, Any]) -> list[Row]:
    series = {name: parse_series(value) for name, value in test["series"].items() if isinstance(value, str)}
    constant = {name: float(value) for name, value in test["series"].items() if not isinstance(value, str)}
    steps = {"first": 0, "every": 1, **test.get("steps", {})}
    rows = []
    for index in range(max(map(len, series.values()), default=1)):
        here = {name: values[index] for name, values in series.items()}
        metrics = constant | {name: value for name, value in here.items() if value is not None}
        time = index * float(steps["seconds"]) if "seconds" in steps else None
        rows.append(Row(int(steps["first"] + index * steps["every"]), metrics, time))
    return rows


@dataclass(slots=True)
class _Reference:
    """The same healthy range at every step."""

    ranges: Mapping[str, Sequence[float]]
    why_not: str = ""

    def learn(self, facts: Mapping[str, Fact]) -> None:
        """It fits every run."""

    def bounds(self, metric: str, step: int) -> tuple[float, float] | None:
        """(low, high) of a metric, None where the test gives none."""
        found = self.ranges.get(metric)
        return None if found is None else (found[0], found[1])


def _silent(test: Mapping[str, Any]) -> tuple[str, ...]:
    named = test.get("silent", ())
    if named is True:
        return (test["rule"],)
    return tuple(named) if named else ()


def _fired(alert: Alert) -> bool:
    return alert.state in ("firing", "flapping")


def _matches(wanted: Mapping[str, Any], alert: Alert) -> bool:
    return all(_field(alert, name) == value for name, value in wanted.items())


def _field(alert: Alert, name: str) -> object:
    if name == "fault":
        return alert.suspects[0].fault if alert.suspects else None
    return getattr(alert, name)


def _missing(wanted: Mapping[str, Any], seen: Sequence[Alert], monitor: Monitor) -> str:
    """The expectation beside what the same rule did instead, or why it did nothing."""
    lines = ["expected:  " + ", ".join(f"{name} {value}" for name, value in wanted.items())]
    lines += [f"happened:  {_shown(alert)}" for alert in seen if alert.rule == wanted["rule"]] or [
        f"happened:  rule {wanted['rule']} did nothing; at the last row: {monitor.explain(wanted['rule']).reason}"
    ]
    return "\n".join(lines)


def _shown(alert: Alert) -> str:
    fault = alert.suspects[0].fault if alert.suspects else "no suspect"
    return f"rule {alert.rule}, state {alert.state}, step {alert.step}, severity {alert.severity}, fault {fault}"


def _mistakes(node: Node, known: frozenset[str]) -> list[Problem]:
    """What is wrong with the file, so that a test never passes because of a typo."""
    tests = node.get("tests")
    if tests is None or tests.kind != "list" or not tests.elements:
        return [node.problem("rule-tests", "a file of rule tests needs `tests`", "write `tests:` and a list of tests")]
    checker, found, size = Checker({}), [], 0
    for test in tests.elements:
        found += checker.check(test, _SHAPE, "the test") or _mistakes_of(test, known)
        size += sum(_length(node) for node in test.at("series").entries.values()) if "series" in test.entries else 0
        if size > MAX_ALL_VALUES:
            message = f"the series of this file make more than {MAX_ALL_VALUES} values"
            return [*found, test.problem("rule-tests", message, "write shorter series, or several files")]
    return found


def _length(series: Node) -> int:
    """How many values a series in shorthand makes; 0 if it is none."""
    try:
        return count_values(series.value) if isinstance(series.value, str) else 1
    except ValueError:
        return 0


def _mistakes_of(test: Node, known: frozenset[str]) -> list[Problem]:
    if test.kind != "mapping":
        return [test.problem("rule-tests", "a test is a mapping", f"its keys are {', '.join(_KEYS)}")]
    found = [
        test.key(key).problem("rule-tests", f"`{key}` is no key of a test", f"keys are {', '.join(_KEYS)}")
        for key in test.entries
        if key not in _KEYS
    ]
    for key in ("name", "series"):
        if key not in test.entries:
            found.append(test.problem("rule-tests", f"the test has no `{key}`", f"add `{key}:`"))
    if not test.entries.keys() & {"expect", "silent"}:
        found.append(test.problem("rule-tests", "the test expects nothing", "add `expect: [{step: 3}]` or `silent: true`"))
    return found + _rule_mistakes(test, known) + _series_mistakes(test)


def _rule_mistakes(test: Node, known: frozenset[str]) -> list[Problem]:
    """Unknown rules and fields."""
    found = []
    expected = test.at("expect").elements if "expect" in test.entries else []
    silent = test.at("silent").elements if "silent" in test.entries else []
    rules = [node for node in (test.get("rule"), *(wanted.get("rule") for wanted in expected), *silent) if node is not None]
    for rule in rules:
        if rule.value not in known:
            hint = closest(str(rule.value), known) or "`rltriage rules list FILE` prints those of FILE"
            found.append(rule.problem("rule-tests", f"there is no rule `{rule.value}`", hint))
    for wanted in expected:
        for name in wanted.entries:
            if name not in _FIELDS:
                hint = f"fields are {', '.join(_FIELDS)}"
                found.append(wanted.key(name).problem("rule-tests", f"`{name}` is no field of an alert", hint))
        if "rule" not in wanted.entries and "rule" not in test.entries:
            found.append(wanted.problem("rule-tests", "no rule is named", "add `rule:` to the test or the expectation"))
    if not silent and "silent" in test.entries and "rule" not in test.entries:
        found.append(
            test.at("silent").problem("rule-tests", "no rule is named", "add `rule:` or write `silent: [rule-id]`")
        )
    return found


def _series_mistakes(test: Node) -> list[Problem]:
    """Series that do not parse, and series of different lengths."""
    found, lengths = [], {}
    for name, node in test.at("series").entries.items() if "series" in test.entries else ():
        if isinstance(node.value, str):
            try:
                lengths[name] = count_values(node.value)
            except ValueError as error:
                found.append(node.problem("rule-tests", str(error)))
        elif isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            found.append(node.problem("rule-tests", f"`{name}` is no series", "write a number or a text like 0.5x3 0.4"))
        elif node.source.lines[node.line - 1][node.column - 1 :].startswith("0x"):
            hint = 'write it in quotes, like "0x5"'
            found.append(node.problem("rule-tests", f"`{name}` without quotes is a hexadecimal number in YAML", hint))
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        hint = "give every series the same number of values, `_` for a row without one"
        found.append(test.key("series").problem("rule-tests", f"series differ in length: {shown}", hint))
    return found
