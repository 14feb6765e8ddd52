"""What a command writes to stdout: alerts and incidents as JSON lines or as text blocks, lists as wide as a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rltriage.engine.report import StepReport
    from rltriage.engine.rows import Row, Run
    from rltriage.exporters.state import RunState
    from rltriage.replaying import Replayed
    from rltriage.rules.model import Catalogue, RulePack


def wrapped(text: str, indent: int = 2) -> str:
    """One line for people as lines of a terminal's 80 columns, the others indented; names and commands stay whole."""
    return fill(text, 80, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)


class JsonLines:
    """A sink that writes the public JSON format (DESIGN section 9), one object a line."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def use(self, pack: RulePack) -> None:
        """Take the titles of other faults and tests."""
        self._catalogue = pack.catalogue

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Every transition but `pending`, in order, then the incident."""
        from rltriage.exporters.jsonlines import alert_json, dumps, incident_json

        for alert in report.alerts:
            if alert.state != "pending":
                click.echo(dumps(alert_json(alert, self._catalogue)))
        if report.incident is not None:
            click.echo(dumps(incident_json(report.incident, self._catalogue)))

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""

    def summary(self, replayed: Replayed) -> None:
        """The `run` object, last."""
        from rltriage.exporters.jsonlines import dumps

        click.echo(dumps(replayed.as_json()))


class TextBlocks:
    """A sink that prints alerts and incidents as blocks; alerts that another explains, and ends, in one line.

    Blocks name their run. Lines do not: where they are of another run than what was printed last, its name comes first.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        from rich.console import Console

        self._catalogue = catalogue
        self._console = Console(highlight=False, soft_wrap=True)
        self._last = ""

    def use(self, pack: RulePack) -> None:
        """Take the titles of other faults and tests."""
        self._catalogue = pack.catalogue

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """What changed, as `Changes` has it, then the incident."""
        if not report.alerts and report.incident is None:
            return
        from rltriage.exporters.text import alert_line_rich, alert_rich, incident_rich
        from rltriage.terminal import Changes

        changes = Changes(report)
        if changes.lines and self._last not in ("", run.id):
            self._print(f"{run.id}:")
        self._last = run.id if changes else self._last
        for alert in changes.lines:
            self._print(alert_line_rich(alert))
        for alert in changes.blocks:
            self._print(alert_rich(alert, self._catalogue))
        if report.incident is not None:
            self._print(incident_rich(report.incident, self._catalogue))

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""

    def summary(self, replayed: Replayed) -> None:
        """What was read, as which framework, and what was not understood."""
        from rltriage.exporters.text import many, unread

        data = replayed.as_json()
        stats = replayed.source.stats
        steps = "" if data["first_step"] is None else f", steps {data['first_step']} to {data['last_step']}"
        self._print(f"{data['run']}: {many(data['rows'], 'row')}{steps}, read as {data['profile']}")
        if told := unread(stats.bad, stats.examples):
            self._print(f"  {told}")
        if data["unmapped"]:
            self._print(f"  without a canonical name: {few(data['unmapped'])}")

    def _print(self, text: Any) -> None:
        if self._console.is_terminal:
            self._console.print(text, markup=False)
        else:
            click.echo(str(text))  # what rich would write, without its work: a service prints thousands of blocks


def few(names: Sequence[str], most: int = 6) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
