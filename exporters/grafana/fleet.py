"""The dashboard over all runs: what runs, what fires, whether people are told, and what the watching costs."""

from __future__ import annotations

from rltriage.exporters import recording
from rltriage.exporters.grafana.panels import (
    COLUMN_LINKS,
    FLEET_UID,
    ONE_IS_GOOD,
    RUN_UID,
    SEVERITY_COLORS,
    SEVERITY_COLUMN,
    Json,
    Panel,
    Query,
    Row,
    columns,
    constants,
    curves,
    dashboard,
    fixed,
    link,
    on_field,
    page_link,
    stat,
    table,
)
from rltriage.exporters.promql import one_of_replicas
from rltriage.exporters.recording import FIRING, Recorded

RUN_LINK = f"/d/{RUN_UID}?var-datasource=${{datasource}}&var-run=${{__data.fields.run}}&${{__url_time_range}}"
_TO_RUN = on_field("run", links=[link("Dashboard of this run", RUN_LINK)])
_LINKED = (SEVERITY_COLUMN, _TO_RUN, *COLUMN_LINKS.values())
_BY_SEVERITY = {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "severity"}]}}
_STACKED = {"drawStyle": "bars", "fillOpacity": 60, "stacking": {"mode": "normal", "group": "A"}}


def fleet_dashboard(page: str = "", docs: str = "", recorded: bool = False) -> Json:
    """All runs. With `recorded` it reads what the recording rules have computed."""

    def asked(what: Recorded) -> str:
        return what.record if recorded else what.expression

    rows = (
        Row("Now", _now(asked(recording.RUNS), asked(recording.ALERTS), asked(recording.AGE))),
        Row("Alerts", _alerts(asked(recording.ALERTS), asked(recording.RULES), asked(recording.SUSPECTS))),
        Row("Runs", _runs()),
        Row("Telling people", _telling()),
        Row("rltriage itself", _itself(asked(recording.ROWS), asked(recording.COST))),
    )
    return dashboard(
        FLEET_UID,
        "rltriage: all runs",
        "Every run that rltriage watches: states, alerts with fault and first test, deliveries, and the engine's own cost.",
        rows,
        variables=constants(page, docs),
        links=[page_link("On-call page", "${page}")],
    )


def _now(runs: str, alerts: str, age: str) -> tuple[Panel, ...]:
    return (
        stat(
            "Runs by state",
            "A stale run has stopped logging; a crashed one ended with an error.",
            Query(runs, "{{state}}"),
            width=8,
        ),
        stat(
            "Firing alerts",
            "Alerts that fire now and that no other alert explains, in all runs.",
            Query(f"sum by (severity) ({alerts})", "{{severity}}"),
            width=8,
            overrides=tuple(on_field(name, color=fixed(color)) for name, color in SEVERITY_COLORS.items()),
        ),
        stat(
            "Longest silence of a running run",
            "Seconds since the last row of the running run that has been silent the longest.",
            Query(age),
            unit="s",
            thresholds=((None, "green"), (600, "orange"), (1800, "red")),
        ),
        stat(
            "Silenced alerts",
            "Open alerts that a silence keeps from the receivers (`rltriage silence list`).",
            Query("sum (rltriage_alerts_silenced) or vector(0)"),
        ),
    )


def _alerts(alerts: str, rules: str, suspects: str) -> tuple[Panel, ...]:
    return (*_incidents(suspects), *_firing(alerts, rules))


def _incidents(suspects: str) -> tuple[Panel, ...]:
    incident = one_of_replicas("rltriage_incident_info")
    return (
        table(
            "Open incidents",
            "One row a run: what is suspected first, the first test to run, and what to do with the run meanwhile.",
            [Query(incident, table=True)],
            width=16,
            transformations=(
                columns(("severity", "run", "fault", "first_test", "action", "best_test"), ("Value",)),
                _BY_SEVERITY,
            ),
            overrides=_LINKED,
        ),
        Panel(
            "bargauge",
            "First suspects",
            "How many runs suspect each fault first. Many runs with one suspect at once: look for what they share.",
            (Query(f"sort_desc({suspects})", "{{fault}}", instant=True),),
            low=0,
            options={
                "displayMode": "basic",
                "orientation": "horizontal",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "showUnfilled": True,
                "valueMode": "color",
            },
            links=(link("Runbook of this fault", "${docs}/faults.md#${__field.labels.fault}"),),
            thresholds=((None, "orange"),),
        ),
    )


def _firing(alerts: str, rules: str) -> tuple[Panel, ...]:
    return (
        table(
            "What fires",
            "Alerts that fire now and that no other alert explains, with the suspected fault and the first test to run.",
            [Query(FIRING, table=True)],
            width=24,
            transformations=(
                columns(("severity", "run", "fault", "first_test", "rule"), ("Value", "state")),
                _BY_SEVERITY,
            ),
            overrides=_LINKED,
        ),
        curves(
            "Firing alerts by severity and fault",
            "Alerts that no other alert explains. Explained ones are on the dashboard of their run.",
            [Query(alerts, "{{severity}} {{fault}}")],
            width=12,
            low=0,
            custom=_STACKED,
        ),
        curves(
            "Firing alerts by rule",
            "Which rules fire in how many runs. One rule in all runs is often a matter of configuration.",
            [Query(rules, "{{severity}} {{rule}}")],
            width=12,
            low=0,
            custom=_STACKED,
        ),
    )


def _runs() -> tuple[Panel, ...]:
    """One row a run: five tables joined by the run."""
    parts = {
        "state": "max by (run, state) (rltriage_run_state) == 1",
        "step": "max by (run) (rltriage_training_step)",
        "silence": "time() - max by (run) (rltriage_last_row_timestamp_seconds)",
        "reward": "max by (run) (rltriage_reward_mean)",
        "held-out": "max by (run) (rltriage_heldout_passed_episodes_ratio)",
        "alerts": f"count by (run) ({FIRING})",
    }
    values = [f"Value #{chr(ord('A') + index)}" for index in range(len(parts))]
    named = dict(list(zip(values, parts, strict=True))[1:])
    times = [f"Time {index + 1}" for index in range(len(parts))]
    return (
        table(
            "Runs",
            "Each run with its state, step, seconds since its last row, reward, held-out pass rate and unexplained alerts.",
            [Query(expression, table=True) for expression in parts.values()],
            width=24,
            height=10,
            transformations=(
                {"id": "joinByField", "options": {"byField": "run", "mode": "outer"}},
                columns(("run", "state", *values[1:]), (values[0], *times), named),
            ),
            overrides=(
                _TO_RUN,
                on_field("silence", unit="s", decimals=0),
                on_field("held-out", unit="percentunit"),
            ),
        ),
    )


def _telling() -> tuple[Panel, ...]:
    per_receiver = "sum by (instance, receiver)"
    return (
        stat(
            "Receivers",
            "1: the receiver's last answer was good, 0: it was not.",
            Query("min by (receiver) (rltriage_receiver_up)", "{{receiver}}"),
            thresholds=ONE_IS_GOOD,
            mappings=({"type": "value", "options": {"0": {"text": "failing"}, "1": {"text": "good"}}},),
            width=8,
            height=8,
        ),
        curves(
            "Notifications waiting",
            "Accepted and not yet delivered. It should fall back to 0; alerts on rltriage itself watch it.",
            [Query("sum by (receiver) (rltriage_notifications_waiting)", "{{receiver}}")],
            low=0,
        ),
        curves(
            "Failed, refused and lost notifications",
            "Failed attempts are repeated; a refused one is not taken by its receiver; a lost one was given up.",
            [
                Query(
                    f"{per_receiver} (increase(rltriage_notification_attempts_failed_total[$__rate_interval]))",
                    "failed {{receiver}}",
                ),
                Query(
                    f"{per_receiver} (increase(rltriage_notifications_refused_total[$__rate_interval]))",
                    "refused {{receiver}}",
                ),
                Query(
                    "sum by (instance) (increase(rltriage_notifications_dropped_total[$__rate_interval]))",
                    "lost {{instance}}",
                ),
                Query(
                    f"{per_receiver} (increase(rltriage_notifications_total[$__rate_interval]))", "delivered {{receiver}}"
                ),
            ],
            low=0,
        ),
    )


def _itself(rows: str, cost: str) -> tuple[Panel, ...]:
    return (*_work(rows, cost), *_health())


def _work(rows: str, cost: str) -> tuple[Panel, ...]:
    return (
        curves(
            "Cost of the engine",
            "Share of one processor core that evaluating rules takes. At 1 a process falls behind its rows.",
            [Query(cost, "{{instance}}")],
            unit="percentunit",
            low=0,
            thresholds=((None, "green"), (0.7, "red")),
        ),
        curves("Rows", "Rows that arrive, all runs together.", [Query(rows, "rows")], unit="cps", low=0),
        curves(
            "Rules and sources failing",
            "Rules that failed and are switched off for their run; polls of sources that failed; rows that the exporter "
            "could not handle; series refused to stay bounded.",
            [
                Query(f"sum ({one_of_replicas('rltriage_rules_failed')})", "rules switched off"),
                Query(
                    "sum by (instance) (increase(rltriage_source_errors_total[$__rate_interval]))", "sources {{instance}}"
                ),
                Query(
                    "sum by (instance) (increase(rltriage_exporter_failures_total[$__rate_interval]))",
                    "exporter {{instance}}",
                ),
                Query(
                    "sum by (instance, reason) (increase(rltriage_exporter_dropped_total[$__rate_interval]))",
                    "refused {{reason}} {{instance}}",
                ),
            ],
            low=0,
        ),
    )


def _health() -> tuple[Panel, ...]:
    return (
        stat(
            "Exporters that answer",
            "Scrape targets of jobs whose name begins with rltriage.",
            Query('sum (up{job=~"(.*/)?rltriage.*"})'),
            thresholds=ONE_IS_GOOD,
        ),
        stat(
            "Rules are current",
            "1 if every service has loaded its rule files since they last changed.",
            Query("min (rltriage_rules_reload_success)"),
            thresholds=ONE_IS_GOOD,
        ),
        stat(
            "Outbox on disk",
            "1 if a crash now would lose no alert.",
            Query("min (rltriage_outbox_durable)"),
            thresholds=ONE_IS_GOOD,
        ),
        stat("Runs held", "Runs that the exporters hold.", Query("sum (rltriage_exporter_runs)")),
        stat("Logs followed", "Logs that the services follow.", Query("sum (rltriage_sources_followed)")),
        stat(
            "Version",
            "Versions of rltriage in use.",
            Query("count by (version) (rltriage_build_info)", "{{version}}"),
            text="name",
        ),
    )
