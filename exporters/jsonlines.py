"""The public JSON format of `--json`: one object a line, strict JSON, `"format": 1`. Fields are added, never renamed.

Source: DESIGN section 9. `schema.py` and `report.schema.json` beside this file are its JSON Schema.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rltriage.engine.report import Alert, ConfigChange, Incident, Note, Suspect
from rltriage.engine.rows import Fact
from rltriage.rules.model import Catalogue

FORMAT = 1


def dumps(value: Mapping[str, Any]) -> str:
    """One line of strict JSON: NaN and the infinities become strings, text that UTF-8 cannot carry is escaped."""
    return json.dumps(_strict(value), allow_nan=False)


def alert_json(alert: Alert, catalogue: Catalogue) -> dict[str, Any]:
    """An alert at one of its transitions. `step` and `since_step` are steps, `time` unix seconds or null."""
    found: dict[str, Any] = {"type": "alert", "format": FORMAT}
    for name in ("id", "run", "rule", "state", "severity", "group", "step", "since_step", "segment", "time", "summary"):
        found[name] = getattr(alert, name)
    found["values"] = dict(alert.values)
    found["suspects"] = [_suspect(suspect) for suspect in alert.suspects]
    found["first_test"] = test_json(alert.first_test, alert.run, catalogue)
    found["explained_by"] = alert.explained_by
    found["question"] = alert.question
    found["labels"] = dict(alert.labels)
    return _strict_dict(found)


def incident_json(incident: Incident, catalogue: Catalogue) -> dict[str, Any]:
    """What is wrong with one run, with its ranked suspects, the test to run first and the one that decides best."""
    found: dict[str, Any] = {"type": "incident", "format": FORMAT}
    for name in ("id", "run", "step", "onset_step", "severity", "time"):
        found[name] = getattr(incident, name)
    found["suspects"] = [_suspect(suspect) for suspect in incident.suspects]
    found["rivals_told_apart_by"] = incident.rivals_told_apart_by
    found["first_test"] = test_json(incident.first_test, incident.run, catalogue)
    found["best_test"] = test_json(incident.best_test, incident.run, catalogue)
    found["action"] = incident.action
    found["rules"] = list(incident.rules)
    found["unexplained"] = list(incident.unexplained)
    found["notes"] = [note_json(note) for note in incident.notes]
    found["config_changed"] = [change_json(change) for change in incident.changed]
    return _strict_dict(found)


def note_json(note: Note) -> dict[str, Any]:
    """What an `info` alert adds to an incident: its rule, whom it points to (or null), what it asks (or the empty text)."""
    return {"rule": note.rule, "fault": note.fault or None, "question": note.question}


def change_json(change: ConfigChange) -> dict[str, Any]:
    """A config fact that differs from what `against` names."""
    return {"fact": change.fact, "before": change.before, "now": change.now, "against": change.against}


def run_json(
    run: str,
    *,
    rows: int,
    bad_rows: int,
    segments: int,
    profile: str,
    first_step: int | None,
    last_step: int | None,
    rules_evaluated: int,
    rules_skipped: Iterable[tuple[str, str]] = (),
    unmapped: Iterable[str] = (),
    facts: Mapping[str, Fact] | None = None,
) -> dict[str, Any]:
    """What was read of one run. `rules_skipped` are pairs of rule and reason; the steps are None where no row was read."""
    return _strict_dict(
        {
            "type": "run",
            "format": FORMAT,
            "run": run,
            "rows": rows,
            "bad_rows": bad_rows,
            "segments": segments,
            "profile": profile,
            "first_step": first_step,
            "last_step": last_step,
            "rules_evaluated": rules_evaluated,
            "rules_skipped": [{"rule": rule, "why": why} for rule, why in rules_skipped],
            "unmapped": list(unmapped),
            "config": {
                name: {"value": fact.value, "provenance": fact.provenance, "source": fact.source}
                for name, fact in (facts or {}).items()
            },
        }
    )


def test_json(test: str, run: str, catalogue: Catalogue) -> dict[str, Any] | None:
    """A first test with the command that runs it on this run; null where there is none to run."""
    if not test:
        return None
    entry = catalogue.first_tests.get(test)
    if entry is None:
        return {"id": test, "title": test, "tier": "rows", "command": ""}
    return {"id": test, "title": entry.title, "tier": entry.tier, "command": test_command(entry.command, run)}


def test_command(template: str, run: str) -> str:
    """The catalogue's command with the run filled in, quoted for a shell."""
    return template.replace("{run}", shlex.quote(run))


def _suspect(suspect: Suspect) -> dict[str, Any]:
    return {"fault": suspect.fault, "number": suspect.number, "title": suspect.title, "score": suspect.score}


def _strict_dict(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): _strict(item) for key, item in value.items()}


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return _strict_dict(value)
    if isinstance(value, Iterable):
        return [_strict(item) for item in value]
    return str(value)
