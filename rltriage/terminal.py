"""What `train` shows while a run goes on: a line per row, an alert where it happens, its first test under it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rltriage.exporters.text import alert_line_rich, alert_rich, incident_rich

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from rltriage.engine.report import StepReport
    from rltriage.engine.rows import Row, Run
    from rltriage.exporters.state import RunState
    from rltriage.rules.model import Catalogue

# Heading and metric; at 80 columns there is room for eight.
COLUMNS = (
    ("reward", "reward"),
    ("held-out", "eval_pass"),
    ("entropy", "entropy"),
    ("kl", "approx_kl"),
    ("clip", "clip_frac"),
    ("ratio", "ratio_max"),
    ("grad", "grad_norm"),
    ("logp_gap", "logp_gap"),
)
WIDTH = 80


class Changes:
    """What of a report people see: with an incident it stands for its alerts, which are then only listed.

    `blocks` are told in full, `lines` in one line each. Pending alerts are left out, and those that only ended with the
    run, or are stale with it.
    """

    def __init__(self, report: StepReport) -> None:
        told = [alert for alert in report.alerts if alert.state not in ("pending", "ended", "stale")]
        self.blocks = [a for a in told if report.incident is None and a.state == "firing" and not a.explained_by]
        self.lines = [alert for alert in told if alert not in self.blocks]
        self._incident = report.incident is not None

    def __bool__(self) -> bool:
        return bool(self.blocks or self.lines or self._incident)


class Session(Protocol):
    """The run that is shown: it introduces itself, runs first tests, and says how it went."""

    steps: int

    def introduce(self, console: Console) -> None: ...
    def run_check(self, number: int) -> str: ...
    def conclude(self, console: Console) -> None: ...


class RunView:
    """A sink that prints rows and alerts to `console`; a progress bar only where that is a terminal.

    An alert's first test is run and shown under it where it is an invariant; each is run once.
    """

    def __init__(self, console: Console, catalogue: Catalogue, session: Session) -> None:
        self._console, self._catalogue, self._session = console, catalogue, session
        self._tested: set[int] = set()
        self._progress, self._task = _progress(console, session.steps)
        self._heading_due = True

    def __enter__(self) -> RunView:
        self._session.introduce(self._console)
        self._console.print()
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """One line for the row, then the alerts that it changed, then what is wrong with the run."""
        if row is not None:
            self._row(row)
        shown = Changes(report)
        if not shown:
            return
        self._console.print()
        for alert in shown.lines:
            self._console.print(alert_line_rich(alert, WIDTH))
        for alert in shown.blocks:
            self._console.print(alert_rich(alert, self._catalogue, WIDTH))
            self._test(alert.first_test)
        if report.incident is not None:
            self._console.print(incident_rich(report.incident, self._catalogue, WIDTH))
            for test in (report.incident.first_test, report.incident.best_test):
                self._test(test)
        self._console.print()
        self._heading_due = True

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """The closing lines."""
        self._progress.stop()
        self._session.conclude(self._console)

    def _row(self, row: Row) -> None:
        if self._heading_due:
            self._console.print(f"{'step':>5} " + " ".join(f"{heading:>8}" for heading, _ in COLUMNS), style="bold")
            self._heading_due = False
        cells = " ".join(_cell(row.metrics, metric) for _, metric in COLUMNS)
        self._console.print(f"{row.step:>5} {cells}", highlight=False, markup=False)
        self._progress.advance(self._task)

    def _test(self, test_id: str) -> None:
        test = self._catalogue.first_tests.get(test_id)
        if test is None or test.check is None or test.check in self._tested:
            return
        self._tested.add(test.check)
        self._console.print(f"  ran it     check {self._session.run_check(test.check)}", style="bold", markup=False)


def _cell(metrics: Mapping[str, float], metric: str) -> str:
    value = metrics.get(metric)
    if value is None:
        return f"{'-':>8}"
    return f"{value:>8.3g}" if value == 0 or abs(value) >= 1e-3 else f"{value:>8.1e}"


def _progress(console: Console, steps: int) -> tuple[Progress, TaskID]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    return progress, progress.add_task("train", total=steps)
