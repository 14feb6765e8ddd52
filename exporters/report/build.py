"""From what a collector holds to what a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from rltriage.engine.coverage import Coverage, coverage
from rltriage.engine.reference import Fitted, Reference, differences
from rltriage.engine.report import OPEN, Alert, Incident, Note
from rltriage.engine.triage import CHECKS
from rltriage.engine.triage.incident import notes
from rltriage.engine.triage.symptoms import symptom
from rltriage.exporters.report.collect import Collector
from rltriage.exporters.report.model import Chart, Check, Line, Mark, Missing, Outlook, RunReport
from rltriage.rules.model import SEVERITIES, Catalogue, MetricInfo, Rule, RulePack

if TYPE_CHECKING:
    from rltriage.engine.sources import SourceStats

MAX_CHARTS = 16
MAX_MARKS = 9
"""Flags of one picture; a rule that flaps for long is told in the timeline."""
ALWAYS_SHOWN = 11
"""Invariants that need nothing of a probe but what every probe has; the others are listed where they gave a result."""
_STANDING = OPEN | {"ended"}
"""States of an alert that nothing has resolved: it stands, or stood when the run ended."""


def build(
    collector: Collector, pack: RulePack, *, unmapped: Iterable[str] = (), stats: SourceStats | None = None
) -> RunReport:
    """The report of what a collector holds.

    `unmapped` are names in the log that no profile knows, `stats` says what in the log could not be read.
    """
    with collector.reading() as run:
        now = _outlook(run)
        rules = {rule.id: rule for rule in pack.rules}
        fitted = Fitted(run.references)
        fitted.learn(run.facts)
        known = pack.catalogue.metrics
        reference, differs = fitted.pictured(run.facts)
        lines = {
            name: line_of(run, name, reference, known.get(name)) for name in run.curves if not name.startswith("check_")
        }
        covered = _coverage(run, pack, not fitted.why_not)
        return RunReport(
            **{field.name: getattr(now, field.name) for field in fields(now)},
            profile=run.run.profile,
            restarts=run.curves.restarts,
            labels=run.run.labels,
            facts=dict(sorted(run.facts.items())),
            timeline_total=run.transitions_total,
            symptoms=_symptoms(run, rules, lines, pack.catalogue),
            pairs=_pairs(lines, _onset(now)),
            metrics=tuple(lines.values()),
            checks=_checks(run.checks, pack.catalogue),
            missing=_missing(covered, pack.catalogue),
            hidden=tuple(one.fault.id for one in covered.at("hidden")),
            invariants_reveal=covered.invariants,
            catalogue=pack.catalogue,
            rules=rules,
            seen=frozenset(run.curves),
            why_no_band=fitted.why_not if reference is None else "",
            band_differs=differences(differs),
            unmapped=tuple(name for name in unmapped if name not in known and not name.startswith("check_")),
            notes=_notes(now),
            changed=fitted.changes(run.facts),
            bad_rows=stats.bad if stats is not None else 0,
            bad_examples=tuple(stats.examples) if stats is not None else (),
        )


def _notes(now: Outlook) -> tuple[Note, ...]:
    """What notes that stand add to the incident, or say where there is none."""
    suspects = [suspect.fault for suspect in now.incident.suspects] if now.incident is not None else []
    return notes(now.standing, {alert.rule: alert.explained_by for alert in now.standing}, suspects)


def outlook(collector: Collector) -> Outlook:
    """How a run stands, without its pictures: cheap enough for a list of runs."""
    with collector.reading() as run:
        return _outlook(run)


def _outlook(run: Collector) -> Outlook:
    standing = _standing(run.alerts.values())
    serious = any(alert.severity != "info" for alert in standing)
    return Outlook(
        id=run.run.id,
        state=run.state,
        rows=run.rows,
        first_step=run.first_step,
        last_step=run.last_step,
        last_time=run.last_time,
        incident=run.incident,
        resolved=run.incident is not None and not serious,
        standing=standing,
        drawn=standing if serious or run.incident is None else _of_incident(run.incident, run.alerts.values()),
        timeline=tuple(_as_known_now(alert, run) for alert in run.transitions),
    )


def _standing(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """What nothing has resolved: what explains before what is explained, then by severity, what asks last, and by age."""
    return tuple(sorted((alert for alert in alerts if alert.state in _STANDING), key=_order))


def _of_incident(incident: Incident, alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """The alerts that an incident was made of, each rule's newest."""
    newest = {alert.rule: alert for alert in alerts}
    rules = dict.fromkeys((*incident.rules, *incident.unexplained, *(note.rule for note in incident.notes)))
    return tuple(sorted((newest[rule] for rule in rules if rule in newest), key=_order))


def _order(alert: Alert) -> tuple[object, ...]:
    severity = -SEVERITIES.index(alert.severity)
    return alert.explained_by is not None, severity, bool(alert.question), alert.since_step, alert.rule


def _as_known_now(alert: Alert, run: Collector) -> Alert:
    """A transition with what explains its alert by now: causes are often found after their consequences."""
    newest = run.alerts.get(alert.id, alert)
    return alert if newest.explained_by == alert.explained_by else replace(alert, explained_by=newest.explained_by)


def line_of(run: Collector, name: str, reference: Reference | None = None, info: MetricInfo | None = None) -> Line:
    """One metric's course, with its healthy band where a reference has one, within the values that the metric can have."""
    curve = run.curves[name]
    buckets = tuple(curve.buckets())
    band = []
    for bucket in buckets:
        healthy = reference.band(name, bucket.step - (run.first_step or 0)) if reference is not None else None
        if healthy is not None:
            band.append((bucket.step, *(healthy.bounds if info is None else info.within(*healthy.bounds))))
    return Line(name, buckets, curve.width, tuple(curve.gaps), tuple(band))


def _onset(now: Outlook) -> tuple[Mark, ...]:
    """Where the trouble began."""
    incident = now.incident
    if incident is None or not incident.suspects:
        return ()
    return (Mark(incident.onset_step, f"{incident.suspects[0].fault} is suspected from here on", incident.severity),)


def _symptoms(
    run: Collector, rules: Mapping[str, Rule], lines: Mapping[str, Line], catalogue: Catalogue
) -> tuple[Chart, ...]:
    """A chart for each metric that an alert is about, the alerts that stand first; invariants have a table of their own."""
    about: dict[tuple[str, ...], list[Alert]] = {}
    for alert in (*_standing(run.alerts.values()), *run.alerts.values()):
        names = tuple(name for name in _metrics_of(alert, rules) if name in lines)
        group = about.setdefault(names, [])
        if names and all(known.id != alert.id for known in group):
            group.append(alert)
    charts = []
    for names, alerts in [item for item in about.items() if item[0]][:MAX_CHARTS]:
        info = catalogue.metrics.get(names[0])
        marks, untold = _marks(_transitions(run, alerts))
        caption = f"{untold} further changes of these alerts are in the timeline." if untold else ""
        units = {catalogue.metrics[name].unit if name in catalogue.metrics else name for name in names}
        title = " and ".join(names) if len(names) > 1 or info is None else f"{names[0]}: {_lower(info.help)}"
        together = len(units) == 1 or any(shared and {*names} <= {*pair} for _, _, pair, shared in PAIRS)
        about_rules = tuple(dict.fromkeys(alert.rule for alert in alerts))
        charts.append(Chart(title, caption, tuple(lines[name] for name in names), marks, together, about_rules))
    return tuple(charts)


def _marks(transitions: Sequence[Alert]) -> tuple[tuple[Mark, ...], int]:
    """What happened to alerts, rules that say the same of one step together; and how much of it is left out."""
    found: dict[tuple[int, str], list[Alert]] = {}
    for alert in transitions:
        told = "resolved" if alert.state == "resolved" else alert.summary.rstrip(".")
        found.setdefault((alert.step, told), []).append(alert)
    marks = []
    for (step, told), alerts in found.items():
        worst = max((alert.severity for alert in alerts), key=SEVERITIES.index)
        marks.append(Mark(step, told, worst, tuple(dict.fromkeys(alert.rule for alert in alerts))))
    first = sorted(marks, key=lambda mark: (mark.text == "resolved", -SEVERITIES.index(mark.severity), mark.step))[
        :MAX_MARKS
    ]
    return tuple(sorted(first, key=lambda mark: mark.step)), len(marks) - len(first)


def _transitions(run: Collector, alerts: Iterable[Alert]) -> list[Alert]:
    """When the alerts fired, and when they resolved."""
    wanted = {alert.id for alert in alerts}
    return [one for one in run.transitions if one.id in wanted and one.state in ("firing", "resolved")]


def _metrics_of(alert: Alert, rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """The metrics whose course shows the symptom: the one that the rule is about and, of what it compares, one more."""
    rule = rules.get(alert.rule)
    if rule is None:
        return tuple(name for name in alert.values)[:1]
    lead = symptom(rule)
    names = [lead.metric] if lead is not None else []
    compared = [
        name for name in (getattr(rule.when, "right", None), getattr(rule.when, "left", None)) if isinstance(name, str)
    ]
    for name in (*compared, *(("pass_rate", "eval_pass") if "reward_hacking" in rule.suspects else ())):
        if name in rule.when.metrics() and name not in names:
            names.append(name)
    return tuple(names[:3])


PAIRS: tuple[tuple[str, str, tuple[str, ...], bool], ...] = (
    (
        "Length by outcome",
        "Failing episodes that grow while passing ones do not are a loss that pays for failing slowly.",
        ("length_pass", "length_fail"),
        True,
    ),
    (
        "Reward and independent score",
        "Reward that rises without the pass rate and the held-out score is reward that is being exploited.",
        ("reward", "pass_rate", "eval_pass"),
        True,
    ),
    (
        "Entropy and reward",
        "Entropy may fall as fast as reward rises; falling alone it ends exploration before the task is learnt.",
        ("entropy", "reward"),
        False,
    ),
)


def _pairs(lines: Mapping[str, Line], onset: tuple[Mark, ...]) -> tuple[Chart, ...]:
    """The pairs that only say something together, where at least two of them are logged."""
    found = []
    for title, caption, names, shared in PAIRS:
        present = tuple(lines[name] for name in names if name in lines and lines[name].buckets)
        if len(present) > 1:
            found.append(Chart(title, caption, present, onset, shared))
    return tuple(found)


def _checks(results: Mapping[str, float], catalogue: Catalogue) -> tuple[Check, ...]:
    """Every invariant with its newest result; none at all where none was run."""
    if not results:
        return ()
    titles: dict[int, str] = {}
    for test in catalogue.first_tests.values():  # the invariants come first in the file, other uses of a check after them
        if test.check is not None:
            titles.setdefault(test.check, test.title)
    found = []
    for number, check in enumerate(CHECKS, start=1):
        result = results.get(f"check_{check}")
        if result is None and number > ALWAYS_SHOWN:
            continue
        passed = None if result is None or result != result else result >= 0.5
        found.append(Check(number, check, titles.get(number, check), passed, results.get(f"check_{check}_value")))
    return tuple(found)


def _coverage(run: Collector, pack: RulePack, reference: bool) -> Coverage:
    """Which faults the logged metrics can reveal; computed anew only where metrics, facts or rules have changed."""
    seen, facts = frozenset(run.curves), run.facts
    key = (id(pack), seen, reference, tuple((name, repr(fact.value)) for name, fact in facts.items()))
    if run.coverage is None or run.coverage[0] != key:
        run.coverage = key, coverage(pack, pack.catalogue, seen, facts, reference=reference)
    return run.coverage[1]


def _missing(found: Coverage, catalogue: Catalogue) -> tuple[Missing, ...]:
    """The metrics that would help, the best first."""
    additions = (found.best, *found.further) if found.best is not None else ()
    flags = {name: info.flags for name, info in catalogue.metrics.items()}
    return tuple(Missing(one.metric, flags.get(one.metric, ""), one.faults) for one in additions)


def _lower(text: str) -> str:
    """A help text as a clause; abbreviations keep their capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
