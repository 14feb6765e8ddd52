"""A rule pack as Prometheus alerting rules, for Prometheus, Mimir's ruler or vmalert, with tests that prove them.

`compile_engine` alerts on the state that engines beside the runs export, `compile_metrics` on the gauges alone (see
`promql`). Both carry the labels and links of pushed alerts, so that Alertmanager sees one alert. Source: DESIGN section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from rltriage.engine.report import Alert
from rltriage.exporters.delivery.message import NO_LINKS, Links, alert_name
from rltriage.exporters.naming import Names, free_labels, label_value, number, quoted
from rltriage.exporters.promql import LINGER_SECONDS, NotExact, engine_expression, metric_expression, witness
from rltriage.rules.model import Catalogue, Rule, RulePack

_TICK = 15
"""Seconds between samples in the generated tests."""
_RUN_IN_URL = '{{ $labels.run | urlquery | reReplaceAll "[+]" "%20" }}'
"""A run's id in a path: `urlquery` writes a space as `+`, which is one in a query only."""
_RUN_IN_SHELL = """'{{ $labels.run | reReplaceAll "'" "'\\"'\\"'" }}'"""
"""A run's id in a command for a shell, quoted as `shlex.quote` does it: somebody will paste it."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule file, the `promtool test rules` file that proves it, and for each rule left out the reason."""

    rules: str
    tests: str
    left_out: Mapping[str, str] = field(default_factory=dict)


def compile_engine(
    pack: RulePack, catalogue: Catalogue, rules_file: str = "rules.yml", links: Links = NO_LINKS
) -> Compiled:
    """One alert for each rule, on the engine's state. Alerts on rltriage itself are a file of their own (`meta_alerts`).

    `rules_file` is the name under which the tests find the rules; `links` become annotations, as in pushed alerts.
    """
    alerts = [_alert(rule, catalogue, engine_expression(rule), links) for rule in pack.rules]
    series: list[dict[str, str]] = []
    # Two ids may be one alert's name (`a-b`, `a_b`), by which promtool takes alerts together.
    firing: dict[str, list[dict[str, Any]]] = {alert["alert"]: [] for alert in alerts}
    for rule, alert in zip(pack.rules, alerts, strict=True):
        series += _engine_series(rule)
        firing[alert["alert"]] += [_firing(rule, alert, run) for run in ("loud", "brief")]
    expected = [
        {"eval_time": f"{at}s", "alertname": name, "exp_alerts": fires if at == 2 * _TICK else []}
        for name, fires in firing.items()
        for at in (0, 2 * _TICK, 2 * LINGER_SECONDS + 4 * _TICK)
    ]
    return Compiled(_document([_group(pack.name, alerts)]), _tests(rules_file, [_case(series, expected)]))


def compile_metrics(
    pack: RulePack, catalogue: Catalogue, rules_file: str = "rules.yml", links: Links = NO_LINKS
) -> Compiled:
    """Alerts on the gauges, for metrics without an engine beside them; what would mean something else is left out."""
    names = Names(catalogue.metrics)
    alerts: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    named = Counter(alert_name(rule.id) for rule in pack.rules)
    for rule in pack.rules:
        try:
            alert = _alert(rule, catalogue, metric_expression(rule, names), links, _identity(rule))
        except NotExact as reason:
            left_out[rule.id] = str(reason)
            continue
        alerts.append(alert)
        loud, quiet = witness(rule.when, True), witness(rule.when, False)
        if loud is None or quiet is None or named[alert["alert"]] > 1:
            continue
        # A case of its own: the metrics of another rule's may make this one fire, too.
        runs = {"loud": loud, "quiet": quiet}
        series = {entry["series"]: entry for run, values in runs.items() for entry in _metric_series(run, values, names)}
        fires = {"eval_time": f"{_TICK}s", "alertname": alert["alert"], "exp_alerts": [_firing(rule, alert, "loud")]}
        cases.append(_case(series.values(), [fires]))
    return Compiled(_document([_group(f"{pack.name}-metrics", alerts)]), _tests(rules_file, cases), left_out)


def _alert(
    rule: Rule, catalogue: Catalogue, expression: str, links: Links, identity: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One alerting rule. The engine's series carry the identity, with the severity in effect; metrics do not."""
    severity = "{{ $labels.severity }}" if identity is None else rule.severity
    fault = catalogue.faults.get(next(iter(rule.suspects), ""))
    title = f"{fault.title} suspected" if fault is not None else rule.id
    test = catalogue.first_tests.get(rule.first_test)
    annotations = {
        "summary": f"{severity}: {_literal(title)} in {{{{ $labels.run }}}}",
        "description": _literal(rule.why),
        "first_test": _literal(test.title) if test else "",
        "first_test_command": _RUN_IN_SHELL.join(map(_literal, test.command.split("{run}"))) if test else "",
        **_addresses(rule, links),
    }
    # The rule is in the engine's series too; said here, two rules whose alerts have one name stay two to promtool's lint.
    own = {"group": rule.group, "rule": rule.id, **(identity or {})}
    labels = {**dict(free_labels(rule.labels.items())), **own}
    return {
        "alert": alert_name(rule.id),
        "expr": expression,
        "labels": {name: _literal(label_value(value)) for name, value in labels.items() if value},
        "annotations": {name: text for name, text in annotations.items() if text},
    }


def _addresses(rule: Rule, links: Links) -> dict[str, str]:
    """A pushed alert's runbook, and the page of its run: an alert's own page goes by its first step, which no label has."""
    pushed = Alert("", "", rule.id, "firing", rule.severity, rule.group, 0, 0, 0, "", {}, (), rule.first_test)
    fault = _identity(rule).get("fault", "")
    found = {name: _literal(url) for name, url in replace(links, page="").of(pushed, fault).items()}
    if links.page:
        found["page_url"] = f"{_literal(links.page.rstrip('/'))}/runs/{_RUN_IN_URL}"
    return found


def _identity(rule: Rule) -> dict[str, str]:
    found = {
        "rule": rule.id,
        "severity": rule.severity,
        "fault": next(iter(rule.suspects), ""),
        "first_test": rule.first_test,
    }
    return {name: label_value(value) for name, value in found.items() if value}


def _literal(text: str) -> str:
    """Text that Prometheus' templates leave as it is."""
    return text.replace("{{", "{{ `{{` }}")


def _engine_series(rule: Rule) -> list[dict[str, str]]:
    """Three runs: one fires for a minute, one fired between two scrapes, one is explained by another alert all the time."""
    fired, after = LINGER_SECONDS // _TICK, 16
    times = " ".join(str(tick * _TICK) for tick in range(1, fired + 1))
    values = {
        "loud": (f"0 1x{fired - 1} 0x{after}", f"_ {times} {fired * _TICK}x{after}"),
        "brief": (f"0x{after}", f"_ _ {_TICK + 7}x{after}"),
        "consequence": (f"1x{after}", f"0+{_TICK}x{after}"),
    }
    found = []
    for run, (firing, last) in values.items():
        labels = _labels({"run": run, "instance": "host:1", "job": "rltriage", **_identity(rule)})
        found.append({"series": f"rltriage_alert_firing{labels}", "values": firing})
        found.append({"series": f"rltriage_alert_last_firing_timestamp_seconds{labels}", "values": last})
    explained = _labels({"run": "consequence", "instance": "host:1", "job": "rltriage", "rule": rule.id})
    return [*found, {"series": f"rltriage_alert_explained{explained}", "values": f"1x{after}"}]


def _metric_series(run: str, values: Mapping[str, float], names: Names) -> Iterable[dict[str, str]]:
    for metric, value in values.items():
        place = names.find(metric)
        if place is not None:
            labels = _labels({"run": run, "instance": "host:1", "job": "rltriage", **dict(place[1])})
            text = number(value).removeprefix("+")
            yield {"series": f"{place[0].sample_name}{labels}", "values": " ".join([text] * 4)}


def _firing(rule: Rule, alert: Mapping[str, Any], run: str) -> dict[str, Any]:
    """What `promtool` must find: every label and annotation, with the templates filled in."""
    filled = {
        "{{ $labels.run }}": run,
        _RUN_IN_URL: run,
        _RUN_IN_SHELL: f"'{run}'",
        "{{ $labels.severity }}": rule.severity,
        "{{ `{{` }}": "{{",
    }

    def fill(text: str) -> str:
        for template, value in filled.items():
            text = text.replace(template, value)
        return text

    labels, annotations = ({name: fill(text) for name, text in alert[key].items()} for key in ("labels", "annotations"))
    return {"exp_labels": {"run": run, **_identity(rule), **labels}, "exp_annotations": annotations}


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={quoted(value)}" for name, value in labels.items()) + "}"


def _group(name: str, alerts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": f"rltriage-{name}", "rules": alerts}


def _document(groups: list[dict[str, Any]]) -> str:
    head = "# Generated by `rltriage rules compile --to prometheus`: change the pack, not this file.\n"
    return head + _dumped({"groups": groups})


def _case(series: Iterable[dict[str, str]], expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {"interval": f"{_TICK}s", "input_series": list(series), "alert_rule_test": expected}


def _tests(rules_file: str, cases: list[dict[str, Any]]) -> str:
    return _dumped({"rule_files": [rules_file], "evaluation_interval": f"{_TICK}s", "tests": cases})


def _dumped(value: object) -> str:
    # The C dumper, where PyYAML has it, is ten times as fast; a pack of a hundred rules has long tests.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, width=120, allow_unicode=True))
