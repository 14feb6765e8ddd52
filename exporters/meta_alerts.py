"""Alerts on rltriage itself, as a Prometheus rule file: an alert that cannot reach anybody is no alert.

Each says what it means and what to do, in its annotations and on the page that is generated from them. No expression
needs more of Prometheus than 2.42 and vmalert 1.79 have (`keep_firing_for` is unknown to the latter). Source: issue 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from rltriage.exporters.promql import in_state, one_of_replicas

STALLED_SECONDS = 1800
"""A running run is stalled after this long without a row, unless its rows are usually far apart."""
STALLED_INTERVALS = 4
"""How many of its usual intervals a run may be silent."""
JOB = 'job=~"(.*/)?rltriage.*"'
"""The scrape jobs: `rltriage` as on our pages, and NAMESPACE/NAME as a PodMonitor calls them."""
PAGE = "meta-alerts.md"


@dataclass(frozen=True, slots=True)
class MetaAlert:
    """One alert. `meaning` and `todo` are the runbook: what is so, and what to do now."""

    name: str
    expression: str
    hold: str
    severity: str
    summary: str
    meaning: str
    todo: str


_SERVICE = "last_over_time(rltriage_sources_followed[1d])"
"""What only a service exports that follows logs, not a training script."""
_SILENCE = f"time() - {one_of_replicas('rltriage_last_row_timestamp_seconds')}"

META_ALERTS = (
    MetaAlert(
        "RltriageWatchdog",
        "vector(1)",
        "",
        "none",
        "the way from Prometheus to people works",
        "It fires all the time, on purpose: it proves that Prometheus evaluates rules and that Alertmanager passes alerts "
        "on.",
        "Nothing while it fires. Route it to something that tells you when it stops coming (a dead man's switch).",
    ),
    MetaAlert(
        "RltriageServiceDown",
        f"up{{{JOB}}} == 0\nand on (instance, job) {_SERVICE}",
        "2m",
        "critical",
        "rltriage at {{ $labels.instance }} does not answer",
        "Nobody judges the runs that it followed, and Prometheus resolves their alerts although nothing has recovered.",
        "See whether the process or pod lives and why it ended: out of memory, a full disk, a node that went away. "
        "Nothing is lost by a restart: the logs are read again and the outbox knows what was told. If it lives, compare "
        "its address, TLS and password with those of the scrape job.",
    ),
    MetaAlert(
        "RltriageExporterDown",
        f"up{{{JOB}}} == 0\nunless on (instance, job) {_SERVICE}",
        "5m",
        "warning",
        "the training script at {{ $labels.instance }} does not answer",
        "A trainer that exports its own metrics is gone. That is so after every normal end, too, if the target stays "
        "listed.",
        "If the run is over, take its target out of the scrape job (service discovery does it by itself). If not, the "
        "trainer was killed: look for an out-of-memory kill or a preempted node, and whether a checkpoint is there to "
        "resume from.",
    ),
    MetaAlert(
        "RltriageRunStalled",
        f"{_SILENCE} > {STALLED_SECONDS}\n"
        f"and on (run) {in_state('running')}\n"
        f"unless {_SILENCE} <= {STALLED_INTERVALS} * {one_of_replicas('rltriage_row_interval_seconds')}",
        "1m",
        "warning",
        "{{ $labels.run }} has logged no row for {{ humanizeDuration $value }}",
        f"The run counts as running, and no row has come for {STALLED_SECONDS // 60} minutes and for "
        f"{STALLED_INTERVALS} times "
        "its usual interval. It hangs, it was killed without a word, or its log is no longer read.",
        "Look at the trainer first: is the process there, does it use its accelerators, what does its own log say last? A "
        "stuck collective, sampler or sandbox is usual. If rows are being written, compare the path with `sources`, and "
        "look at RltriageSourceFailing.",
    ),
    MetaAlert(
        "RltriageRunCrashed",
        in_state("crashed"),
        "",
        "warning",
        "{{ $labels.run }} has crashed",
        "The training script ended with an exception while rltriage watched it.",
        "Read the trainer's traceback, then the run's last alerts: not a number or a growing length often come before.",
    ),
    MetaAlert(
        "RltriageRuleFailing",
        f"{one_of_replicas('rltriage_rules_failed')} > 0",
        "",
        "warning",
        "{{ $value }} rules failed on {{ $labels.run }} and are switched off for it",
        "A condition raised an error, so the rule says nothing more about this run. What it would see goes unseen.",
        "The service's log names the rule and the error (`is switched off`). Reproduce it with `rltriage replay RUN "
        "--explain RULE`. A rule of your own: mend it, the changed file is loaded by itself. A shipped rule: report it "
        "with the row.",
    ),
    MetaAlert(
        "RltriageExporterFailing",
        "increase(rltriage_exporter_failures_total[10m]) > 0",
        "",
        "warning",
        "the exporter at {{ $labels.instance }} could not handle some rows or values",
        "Rows or values were left out of the gauges: no number, or an error inside the exporter. Rules still saw the row.",
        "Look for text, lists or huge integers among what is logged as metrics; `rltriage profiles check SOURCE` shows "
        "them.",
    ),
    MetaAlert(
        "RltriageExporterDropping",
        "increase(rltriage_exporter_dropped_total[10m]) > 0",
        "",
        "warning",
        "the exporter at {{ $labels.instance }} refuses series: {{ $labels.reason }}",
        "It stays bounded and refuses what is beyond: runs (`run`), names that it does not know (`extra`), or two names "
        "that would be one (`collision`).",
        "`extra`: metrics with a step or an id in their name; log them under one name. `collision`: rename one of the "
        "two. `run`: too many runs at once; start a second service.",
    ),
    MetaAlert(
        "RltriageSourceFailing",
        "increase(rltriage_source_errors_total[10m]) > 3",
        "10m",
        "warning",
        "{{ $labels.instance }} cannot read some of its sources",
        "Polls of a log or an address go on failing. The runs in it are not judged.",
        "The log names the source once (`said once`). Check the mount and the permissions, or whether the address answers "
        "with metrics.",
    ),
    MetaAlert(
        "RltriageNotificationsFailing",
        "rltriage_receiver_up == 0",
        "5m",
        "critical",
        "{{ $labels.receiver }} accepts no notifications from {{ $labels.instance }}",
        "Every attempt for five minutes failed. Alerts wait in the outbox and are tried again; people hear nothing "
        "meanwhile.",
        "The log says what the receiver answered. Check its address, its secret and its certificate with `rltriage "
        "notify`. When it is back, what waits is delivered in order.",
    ),
    MetaAlert(
        "RltriageNotificationsRefused",
        "increase(rltriage_notifications_refused_total[15m]) > 0",
        "",
        "warning",
        "{{ $labels.receiver }} refuses what {{ $labels.instance }} sends",
        "The receiver answers, and rejects the content of an alert. That alert is not tried again for a while.",
        "The log has the receiver's words. A webhook: compare `body` with what it expects. Alertmanager: look for labels "
        "with names that it does not take.",
    ),
    MetaAlert(
        "RltriageNotificationsLost",
        "increase(rltriage_notifications_dropped_total[15m]) > 0",
        "",
        "critical",
        "{{ $labels.instance }} gave up notifications",
        "The outbox was full and the oldest notifications made room, or an alert could not be put into words.",
        "See RltriageNotificationsFailing: a receiver has been away for long. What was given up is still on the page, in "
        "`alerts.jsonl` and in the gauges.",
    ),
    MetaAlert(
        "RltriageOutboxGrowing",
        "rltriage_notifications_waiting > 20 and delta(rltriage_notifications_waiting[30m]) > 0",
        "15m",
        "warning",
        "{{ $value }} notifications wait for {{ $labels.receiver }} at {{ $labels.instance }}, and more every minute",
        "More is accepted than delivered. The receiver is slow, or an alert flaps in many runs at once.",
        "Is the receiver limited in requests? Raise `group_window` or `min_severity`. If one rule fires everywhere, "
        "silence it: `rltriage silence '*' RULE`.",
    ),
    MetaAlert(
        "RltriageOutboxNotDurable",
        "rltriage_outbox_durable == 0",
        "5m",
        "warning",
        "{{ $labels.instance }} keeps its outbox in memory: a crash would lose alerts",
        "`state_dir` cannot be written: the disk is full, read-only or owned by somebody else. Delivery goes on from "
        "memory.",
        "Make room or mend the permissions. The outbox goes back to disk by itself.",
    ),
    MetaAlert(
        "RltriageReloadFailed",
        "rltriage_rules_reload_success == 0",
        "1m",
        "warning",
        "{{ $labels.instance }} could not load its changed rules",
        "A rule file was changed and has a mistake in it. The old rules stay in force, the change does not.",
        "`rltriage rules check FILE` names every mistake with its line. Saving the mended file is enough.",
    ),
    MetaAlert(
        "RltriageEngineBusy",
        "sum by (instance, job) (rate(rltriage_evaluation_seconds_total[10m])) > 0.7",
        "10m",
        "warning",
        "evaluating rules takes {{ $value | humanizePercentage }} of a core at {{ $labels.instance }}",
        "One process judges all its runs in turn; beyond a whole core it falls behind the rows.",
        "Split `sources` over two services, or disable rules that you do not use. `rltriage_last_row_timestamp_seconds` "
        "shows how far behind it is.",
    ),
)


def meta_alerts(docs: str = "") -> str:
    """The rule file. With `docs`, the URL under which the pages of docs/ lie, each alert links to its runbook entry."""
    head = (
        "# Alerts on rltriage itself. Generated by `rltriage rules compile --kind meta`: change exporters/meta_alerts.py.\n"
        f"# What each means and what to do is also in docs/{PAGE}.\n"
    )
    group = {"name": "rltriage-meta", "rules": [_rule(alert, docs) for alert in META_ALERTS]}
    return head + yaml.dump({"groups": [group]}, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines keep them."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _rule(alert: MetaAlert, docs: str) -> dict[str, Any]:
    annotations = {"summary": alert.summary, "description": alert.meaning, "runbook": alert.todo}
    if docs:
        annotations["runbook_url"] = f"{docs.rstrip('/')}/{PAGE}#{alert.name.lower()}"
    held = {"for": alert.hold} if alert.hold else {}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        **held,
        "labels": {"severity": alert.severity},
        "annotations": annotations,
    }
