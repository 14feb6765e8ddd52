"""What fired, counted: the exit code and the closing line of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltriage.rules.model import SEVERITIES, Severity

if TYPE_CHECKING:
    from rltriage.engine.report import StepReport
    from rltriage.engine.rows import Row, Run
    from rltriage.exporters.state import RunState


class Outcome:
    """A sink that counts the alerts that fired, by severity, those explained by another included."""

    def __init__(self) -> None:
        self.fired: dict[Severity, int] = dict.fromkeys(reversed(SEVERITIES), 0)

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Count this report's firing alerts."""
        for alert in report.alerts:
            if alert.state == "firing":
                self.fired[alert.severity] += 1

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""

    def exit_code(self, fail_on: str) -> int:
        """1 if an alert of severity `fail_on` or higher fired at any time; `never` is always 0."""
        if fail_on == "never":
            return 0
        worst = SEVERITIES[SEVERITIES.index(fail_on) :]
        return int(any(self.fired[severity] for severity in worst))

    def __str__(self) -> str:
        return ", ".join(f"{count} {severity}" for severity, count in self.fired.items() if count) or "none"
