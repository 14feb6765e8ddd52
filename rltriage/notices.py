"""What a training script's own process says about alerts: on stderr, to a function of the user's, to its trackers."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator

from rltriage.engine.report import Alert, Incident, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.state import RunState
from rltriage.exporters.text import alert_text, incident_text, many
from rltriage.rules.model import Catalogue, RulePack
from rltriage.saying import show, warn
from rltriage.trainer.hooks.trackers import Post, Trackers


class Notices:
    """A sink for alerts. `on_alert` gets every transition but `pending`; people get what fires from `warning` up, unless
    another alert explains it, and the incident where it names another fault than those alerts do. Notes (info) are counted
    at the end of a run that had nothing else.

    `on_alert` is called by `tell` alone, once all else is done: it is the user's code, and may end the process.
    """

    def __init__(self, on_alert: Callable[[Alert], object] | None, quiet: bool) -> None:
        self._catalogue = Catalogue({}, {}, {})
        self._on_alert = on_alert
        self._quiet = quiet
        self._trackers = Trackers()
        self._untold: deque[Alert] = deque()
        self._failures = 0
        self._notes: set[str] = set()
        self._alarmed = False
        self._where = ""

    @property
    def failures(self) -> int:
        """Calls of `on_alert` that raised and posts that reached no tracker."""
        return self._failures + self._trackers.failures

    def use(self, pack: RulePack) -> None:
        """Take the titles of faults and tests."""
        self._catalogue = pack.catalogue

    def introduce(self, run: str, profile: str, where: str) -> None:
        """Say once that somebody watches, and where to look: a run without a fault is silent from here on."""
        self._where = where
        if not self._quiet:
            show(f"rltriage watches {run}, read as {profile}: rltriage report {where}\n")

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Say what this report changed."""
        if not report.alerts and report.incident is None:
            return
        self._notes.update(a.rule for a in report.alerts if a.state == "firing" and a.severity == "info")
        if self._on_alert is not None:
            self._untold.extend(alert for alert in report.alerts if alert.state != "pending")
        for post in self._posts(report):
            self._alarmed = True
            if not self._quiet:
                show(f"\n{post.text}\n")  # a progress bar may have left the cursor in the middle of a line
            self._trackers.post(post)

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Say how many notes arose where nothing else was said of the run: nobody would look for them."""
        if self._notes and not self._alarmed and not self._quiet:
            where = f"rltriage report {self._where}" if self._where else ", ".join(sorted(self._notes))
            show(f"rltriage: {many(len(self._notes), 'note')}, no alarm: {where}\n")

    def tell(self) -> None:
        """Call `on_alert` with what has been published. An Exception of its is counted; what is meant to end the process
        (SystemExit, KeyboardInterrupt) passes, and the alerts after it are told next time.
        """
        while self._on_alert is not None:
            try:
                alert = self._untold.popleft()
            except IndexError:
                return
            try:
                self._on_alert(alert)
            except Exception:
                self._failures += 1
                if self._failures == 1:
                    warn("run=%s: on_alert raised (said once)", alert.run, exc_info=True)

    def close(self) -> None:
        """Wait, for seconds at most, until trackers have what was posted."""
        self._trackers.close()

    def _posts(self, report: StepReport) -> Iterator[Post]:
        width = max(80, min(shutil.get_terminal_size().columns, 120))
        named = set()
        for alert in report.alerts:
            if alert.state == "firing" and alert.severity != "info" and alert.explained_by is None:
                fault = alert.suspects[0].fault if alert.suspects else alert.rule
                named.add(fault)
                yield _post(alert.rule, fault, alert, alert_text(alert, self._catalogue, width))
        incident = report.incident
        if incident is not None and incident.suspects and incident.suspects[0].fault not in named:
            yield _post("incident", incident.suspects[0].fault, incident, incident_text(incident, self._catalogue, width))


def _post(rule: str, fault: str, about: Alert | Incident, text: str) -> Post:
    tags = {"rule": rule, "fault": fault, "severity": about.severity}
    tags |= {"step": str(about.step), "first_test": about.first_test}
    return Post(f"{about.severity}: {fault} suspected", text, about.severity, about.step, tags)
