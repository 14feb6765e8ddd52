"""The dashboard of one run: triage first, then its curves in the catalogue's groups, with healthy ranges and alerts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rltriage.exporters.grafana.panels import (
    COLUMN_LINKS,
    ONE_IS_GOOD,
    RUN_UID,
    SEVERITY_COLORS,
    SEVERITY_COLUMN,
    SOURCE,
    Json,
    Panel,
    Query,
    Row,
    columns,
    constants,
    curves,
    dashboard,
    filled,
    fixed,
    link,
    on_field,
    page_link,
    stat,
    table,
    timeline,
)
from rltriage.exporters.naming import Names, quoted
from rltriage.exporters.promql import one_of_replicas
from rltriage.exporters.state import BANDED
from rltriage.rules.model import MetricInfo

RUN = 'run="$run"'
UNITS = {
    "share": "percentunit",
    "share of variance": "percentunit",
    "tokens": "suffix: tokens",
    "episodes": "suffix: episodes",
    "groups": "suffix: groups",
    "turns": "suffix: turns",
    "calls": "suffix: calls",
    "nats": "suffix: nats",
    "rate": "sci",
    "probability": "percentunit",
}
"""Grafana's unit for a unit of the catalogue; `short` for numbers without one."""
TITLES = {
    "outcome": "Outcome: is the task being solved?",
    "behavior": "Behavior: what does the policy do?",
    "optimizer": "Optimizer: what does the update do?",
    "consistency": "Consistency: numbers whose right value is known",
}


@dataclass(frozen=True, slots=True)
class Together:
    """Metrics of one panel. `right` are drawn against an axis of their own; `log` makes the scale logarithmic."""

    title: str
    metrics: tuple[str, ...]
    right: tuple[str, ...] = ()
    log: bool = False


PANELS: Mapping[str, tuple[Together, ...]] = {
    "outcome": (
        Together("Reward, pass rate and held-out", ("reward", "pass_rate", "eval_pass")),
        Together("Groups without a signal", ("zero_adv_frac", "all_pass_frac", "all_fail_frac")),
        Together("Spread of the rewards", ("reward_std",)),
        Together("Batch", ("n_episodes", "n_groups", "eval_n")),
    ),
    "behavior": (
        Together("Length by outcome", ("length", "length_pass", "length_fail")),
        Together("Shortest and longest response", ("length_min", "length_max")),
        Together("Truncated, submitted, exploited", ("truncated_frac", "submitted", "hardcode")),
        Together("Turns", ("turns",)),
        Together("Calls per episode", ("reads", "tests", "edits")),
        Together("Malformed calls", ("malformed",)),
    ),
    "optimizer": (
        Together("Entropy against reward", ("entropy",), right=("reward",)),
        Together("KL of the update", ("approx_kl", "approx_kl_max")),
        Together("Clipped tokens", ("clip_frac",)),
        Together("Importance weight", ("ratio_max", "ratio_mean", "ratio_min")),
        Together("Gradient norm", ("grad_norm", "grad_norm_max")),
        Together("Loss", ("loss",)),
        Together("Learning rate", ("lr",)),
        Together("Advantages", ("adv_mean", "adv_min", "adv_max", "adv_abs_max")),
        Together("Variance that the critic explains", ("explained_variance",)),
        Together("Tokens in the loss", ("loss_tokens",)),
    ),
    "consistency": (
        Together("Gap of the log-probabilities", ("logp_gap", "logp_gap_p99", "logp_gap_max"), log=True),
        Together("Tokens with a large gap or a placeholder", ("logp_gap_gt1_frac", "logp_placeholder_frac")),
        Together("Gap of the probabilities", ("probs_diff_mean", "probs_diff_max"), log=True),
        Together("KL to the reference and to the sampler", ("kl_ref", "sampler_kl")),
        Together("Importance weights before an update", ("ratio_first_max", "is_ratio_mean")),
    ),
}


def run_dashboard(metrics: Mapping[str, MetricInfo], page: str = "", docs: str = "") -> Json:
    """One run, chosen by a variable. Every metric of the catalogue is on it, also one that `PANELS` does not place."""
    names = Names(metrics)
    rows = [Row("Triage", _triage())]
    for group, title in TITLES.items():
        panels = [_curve(each, metrics, names) for each in _all_of(group, metrics)]
        rows.append(Row(title, filled(panels + (_invariants() if group == "consistency" else []))))
    rows.append(Row("Engine and unmapped metrics", _rest()))
    return dashboard(
        RUN_UID,
        "rltriage: one run",
        "One training run: suspects and first test, alerts, and its curves beside the healthy range.",
        rows,
        variables=[_run_variable(), *constants(page, docs)],
        annotations=_annotations(),
        links=[page_link("This run on the on-call page", "${page}/runs/${run:percentencode}")],
    )


def _all_of(group: str, metrics: Mapping[str, MetricInfo]) -> Iterable[Together]:
    """The panels of a group, and one for each metric of the catalogue that has none."""
    placed = {metric for panels in PANELS.values() for each in panels for metric in each.metrics}
    yield from PANELS[group]
    for info in metrics.values():
        if info.group == group and info.name not in placed and "<id>" not in info.name and info.prometheus:
            yield Together(info.help, (info.name,))


def _curve(together: Together, metrics: Mapping[str, MetricInfo], names: Names) -> Panel:
    main = metrics[together.metrics[0]]
    unit = UNITS.get(main.unit, "short")
    queries = [Query(_series(metric, names), metric) for metric in (*together.metrics, *together.right)]
    overrides = [
        on_field(
            metric,
            unit=UNITS.get(metrics[metric].unit, "short"),
            custom__axisPlacement="right",
            custom__lineStyle={"fill": "dash", "dash": [8, 4]},
        )
        for metric in together.right
    ]
    banded = [metric for metric in together.metrics if metric in BANDED]
    for metric in banded:
        low, high = f"healthy {metric} from", f"healthy {metric} to"
        queries += [Query(_healthy(metric, bound, names), text) for bound, text in (("low", low), ("high", high))]
        hidden = {"legend": True, "tooltip": False, "viz": False}
        overrides += [
            on_field(low, custom__lineWidth=0, custom__showPoints="never", color=fixed("green"), custom__hideFrom=hidden),
            on_field(
                high,
                custom__lineWidth=0,
                custom__showPoints="never",
                custom__fillBelowTo=low,
                custom__fillOpacity=12,
                color=fixed("green"),
                custom__hideFrom=hidden,
            ),
        ]
    shown = [metrics[metric] for metric in together.metrics]
    bounded = all(info.low == 0 and info.high == 1 for info in shown)
    return curves(
        together.title,
        _described([*together.metrics, *together.right], metrics, banded),
        queries,
        unit=unit,
        low=0 if all(info.low == 0 for info in shown) and not together.log else None,
        high=1 if bounded else None,
        overrides=tuple(overrides),
        custom={"scaleDistribution": {"type": "log", "log": 10}} if together.log else {},
    )


def _series(metric: str, names: Names) -> str:
    place = names.find(metric)
    if place is None:
        raise KeyError(metric)
    family, labels = place
    return one_of_replicas(family.sample_name + _chosen(labels))


def _healthy(metric: str, bound: str, names: Names) -> str:
    place = names.healthy(metric)
    if place is None:
        raise KeyError(metric)
    family, labels = place
    return one_of_replicas(family.sample_name + _chosen((*labels, ("bound", bound))))


def _own(family: str) -> str:
    """A family's value in this run."""
    return one_of_replicas(f"{family}{{{RUN}}}")


def _chosen(labels: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join([RUN, *(f"{name}={quoted(value)}" for name, value in labels)]) + "}"


def _described(shown: Iterable[str], metrics: Mapping[str, MetricInfo], banded: Iterable[str]) -> str:
    """The catalogue's words, in Markdown."""
    lines = [f"- **{metric}**: {metrics[metric].help}. *{metrics[metric].flags}.*" for metric in shown]
    if any(True for _ in banded):
        lines.append("- Shaded: the range of healthy runs at the same step, where a reference fits this run.")
    return "\n".join(lines)


def _triage() -> tuple[Panel, ...]:
    return (*_verdict(), *_suspects_and_alerts())


def _verdict() -> tuple[Panel, ...]:
    incident = _own("rltriage_incident_info")
    return (
        stat(
            "First suspect",
            "The fault that the open incident puts first. Its runbook says what looks the same and how to tell.",
            Query(incident, "{{fault}}", instant=True),
            text="name",
            width=6,
            thresholds=((None, "red"),),
            links=(link("Runbook of this fault", "${docs}/faults.md#${__field.labels.fault}"),),
        ),
        stat(
            "First test",
            "The cheapest test that can be run now and tells the suspects apart.",
            Query(incident, "{{first_test}}", instant=True),
            text="name",
            width=6,
            thresholds=((None, "orange"),),
            links=(link("How to run it", "${docs}/faults.md#${__field.labels.first_test}"),),
        ),
        stat(
            "The run meanwhile",
            "Continue, stop, or roll back to the last good step, until the test has decided.",
            Query(incident, "{{action}}", instant=True),
            text="name",
            thresholds=((None, "orange"),),
        ),
        stat(
            "State",
            "Running, finished, crashed or stale.",
            Query(f"{_own('rltriage_run_state')} == 1", "{{state}}", instant=True),
            text="name",
        ),
        stat("Step", "Step of the newest row.", Query(_own("rltriage_training_step"))),
    )


def _suspects_and_alerts() -> tuple[Panel, ...]:
    unexplained = f"({_own('rltriage_alert_firing')} == 1) unless on (rule) ({_own('rltriage_alert_explained')} == 1)"
    return (
        table(
            "Suspects, ranked",
            "Probability of each suspect of the open incident. Two that are close cannot be told apart by these metrics.",
            [Query(f"sort_desc({_own('rltriage_incident_suspect_score')})", table=True)],
            width=6,
            unit="percentunit",
            low=0,
            high=1,
            transformations=(columns(("fault", "Value"), ("run",), {"Value": "probability"}),),
            overrides=(
                COLUMN_LINKS["fault"],
                on_field("probability", custom__cellOptions={"type": "gauge", "mode": "basic"}),
            ),
        ),
        table(
            "Alerts that fire",
            "What no other alert explains stands for itself; the consequences are in the panel beside it.",
            [Query(unexplained, table=True)],
            width=9,
            transformations=(columns(("severity", "rule", "fault", "first_test"), ("run", "Value")),),
            overrides=(SEVERITY_COLUMN, *COLUMN_LINKS.values()),
        ),
        timeline(
            "Alerts over time",
            "When each rule's alert fired, in its severity then, explained ones too.",
            Query(f"max by (rule, severity) (rltriage_alert_firing{{{RUN}}}) == 1", "{{severity}} {{rule}}"),
            width=9,
            mappings=({"type": "value", "options": {"1": {"text": "firing"}}},),
            overrides=tuple(on_field(f"/^{name} /", color=fixed(color)) for name, color in SEVERITY_COLORS.items()),
        ),
    )


def _invariants() -> list[Panel]:
    return [
        timeline(
            "Invariants",
            "Results of the trainer's invariants: an identity that a correct trainer satisfies exactly.",
            Query(f"max by (check) (rltriage_check_passed{{{RUN}}})", "{{check}}"),
            mappings=(
                {
                    "type": "value",
                    "options": {"0": {"text": "failed", "color": "red"}, "1": {"text": "passed", "color": "green"}},
                },
            ),
            thresholds=ONE_IS_GOOD,
        ),
        curves(
            "Values of the invariants",
            "What each invariant measured; beyond its threshold it fails.",
            [Query(f"max by (check) (rltriage_check_value{{{RUN}}})", "{{check}}")],
        ),
    ]


def _rest() -> tuple[Panel, ...]:
    return (
        curves(
            "Metrics that rltriage does not know",
            "Logged under names that no profile maps. `rltriage profiles check` says which, and how to map them.",
            [Query(f'{{__name__=~"rltriage_extra_.+",{RUN}}}', "{{__name__}}")],
        ),
        curves(
            "Time since the last row",
            "Seconds since the newest row, and the usual seconds between rows.",
            [
                Query(f"time() - {_own('rltriage_last_row_timestamp_seconds')}", "since the last row"),
                Query(_own("rltriage_row_interval_seconds"), "usual interval"),
            ],
            unit="s",
            low=0,
        ),
        curves(
            "Cost of the engine",
            "Seconds a second that evaluating this run's rules takes.",
            [Query(one_of_replicas(f"rate(rltriage_evaluation_seconds_total{{{RUN}}}[$__rate_interval])"), "this run")],
            unit="percentunit",
            low=0,
        ),
        curves(
            "Rows during which an alert fired",
            "Counted by the engine, so that nothing that comes and goes between two scrapes is missed.",
            [Query(f"max by (rule) (increase(rltriage_rule_violations_total{{{RUN}}}[$__rate_interval])) > 0", "{{rule}}")],
            low=0,
        ),
        table(
            "Config facts",
            "What rules know of this run's configuration, and the profile that its log was read with.",
            [Query(f"rltriage_run_info{{{RUN}}}", table=True)],
            width=16,
            transformations=(columns(("profile",), ("Value", "run")),),
        ),
    )


def _run_variable() -> Json:
    return {
        "name": "run",
        "label": "Run",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(rltriage_training_step, run)", "refId": "run", "qryType": 1},
        "refresh": 2,
        "sort": 7,
        "includeAll": False,
        "multi": False,
    }


def _annotations() -> list[Json]:
    """Alerts as marks over every curve, one colour a severity."""
    return [
        {
            "name": f"{severity} alerts",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": color,
            "target": {
                "refId": "Anno",
                "expr": one_of_replicas("rltriage_alert_firing" + _chosen([("severity", severity)])) + " == 1",
                "interval": "15s",
            },
            "titleFormat": "{{rule}}",
            "textFormat": "suspected: {{fault}}; first test: {{first_test}}",
            "tagKeys": "severity,fault",
        }
        for severity, color in SEVERITY_COLORS.items()
        if severity != "info"
    ]
