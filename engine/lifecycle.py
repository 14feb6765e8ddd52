"""One rule's alert over time: inactive -> pending -> firing -> resolved (DESIGN section 4)."""

from __future__ import annotations

from typing import Literal

from rltriage.engine.history import History
from rltriage.engine.layout import Bound
from rltriage.engine.resting import Sleeper
from rltriage.rules.conditions.base import Check, Guards
from rltriage.rules.model import Rule

Status = Literal["inactive", "pending", "firing", "flapping"]
Event = Literal["firing", "resolved", "flapping"]
CYCLES = 3
"""Times that an alert resolves before its coming and going becomes one state."""
CALM = 20
"""Observations without the condition after which a flapping alert resolves."""


class Progress:
    """The counts of a rule whose condition has held; most rules of most runs never need them.

    `held` counts the observations in a row in which the condition held, `quiet` those in which it did not while firing,
    `before` is what both were before the newest row.
    """

    __slots__ = ("before", "cycles", "held", "quiet", "row", "since_step", "status")

    def __init__(self) -> None:
        self.status: Status = "inactive"
        self.held = self.quiet = self.cycles = 0
        self.row = -1
        self.since_step = 0
        self.before = (0, 0)


class RuleState(Sleeper):
    """What is known about one rule of one run. The condition's verdict comes in, transitions come out.

    While `busy` is false, a condition that does not hold changes nothing.
    """

    __slots__ = ("bound", "busy", "check", "counted", "progress", "question", "seen", "skipped")

    def __init__(self, bound: Bound, place: int = 0) -> None:
        super().__init__(place)
        self.bind(bound)
        self.skipped = ""
        self.question = ""
        self.reset()

    def bind(self, bound: Bound) -> None:
        """Take the compiled rule."""
        self.bound = bound
        self.check: Check = self._warmed_up if bound.rule.after else bound.check

    def reset(self) -> None:
        """Back to inactive, as at the start of a segment."""
        self.guards = None
        self.calm_down()
        self.again = self.patience
        self.progress: Progress | None = None
        self.busy = False
        self.seen = 0
        self.counted = -1

    @property
    def rule(self) -> Rule:
        """The rule."""
        return self.bound.rule

    @property
    def status(self) -> Status:
        """Where the alert is."""
        return "inactive" if self.progress is None else self.progress.status

    @property
    def since_step(self) -> int:
        """The first step of the evidence."""
        return 0 if self.progress is None else self.progress.since_step

    @property
    def held(self) -> int:
        """Observations in a row in which the condition has held."""
        return 0 if self.progress is None else self.progress.held

    def _warmed_up(self, past: History) -> bool | None:
        """The check of a rule that ignores its first observations."""
        if past.index != self.counted:
            self.counted = past.index
            self.seen += 1
        return self.bound.check(past) if self.seen > self.bound.rule.after else None

    def rest(self, past: History) -> Guards | None:
        """While which guards the verdict stays, if once more it changes nothing, or any verdict is vetoed."""
        bound = self.bound
        if bound.rule.after and self.seen <= bound.rule.after:
            return None
        if not self.busy and bound.unless is not None and bound.unless(past):
            guards = bound.stays_vetoed(past)
            if guards is not None or bound.check(past):
                return guards
        return bound.rest(past)

    def is_settled(self, holds: bool | None) -> bool:
        """Whether this verdict again changes nothing: any on an idle rule (a true one is vetoed), true on a firing one."""
        if not holds or not self.busy:
            return not self.busy
        return self.open and self.progress is not None and not self.progress.quiet

    @property
    def open(self) -> bool:
        """Whether an alert is out."""
        return self.status in ("firing", "flapping")

    def advance(self, holds: bool | None, past: History, row: int) -> Event | None:
        """Take the verdict of one observation, in `row`; a second one of the same row replaces the first.

        Unknown freezes, and so does a veto that is known to hold: it neither fires nor resolves.
        """
        if holds is None:
            return None
        progress = self.progress
        if progress is None:
            if not holds:
                return None
            progress = self.progress = Progress()
        if holds and self.bound.unless is not None and self.bound.unless(past):
            return None
        if progress.row == row:
            progress.held, progress.quiet = progress.before
        else:
            progress.row = row
            progress.before = (progress.held, progress.quiet)
        return self._holds(progress, past.step) if holds else self._does_not_hold(progress, past)

    def _holds(self, progress: Progress, step: int) -> Event | None:
        self.busy = True
        progress.quiet = 0
        progress.held += 1
        if progress.status == "inactive":
            progress.status = "pending"
            progress.since_step = step
        if progress.status == "pending" and progress.held >= self.rule.hold:
            progress.status = "firing"
            return "firing"
        return None

    def _does_not_hold(self, progress: Progress, past: History) -> Event | None:
        progress.held = 0
        if not self.open:
            progress.status = "inactive"
            self.busy = False
            return None
        progress.quiet += 1
        if progress.status == "flapping":
            return self._resolve(progress) if progress.quiet >= max(CALM, self.rule.keep_firing_for) else None
        if progress.quiet < self.rule.keep_firing_for or not self._cleared(past):
            return None
        progress.cycles += 1
        if progress.cycles >= CYCLES:
            progress.status = "flapping"
            return "flapping"
        return self._resolve(progress)

    def _cleared(self, past: History) -> bool:
        return self.bound.clear is None or self.bound.clear(past) is True

    def _resolve(self, progress: Progress) -> Event:
        progress.status = "inactive"
        self.busy = False
        return "resolved"

    def close(self) -> None:
        """The alert is closed from outside; a later firing is a new one."""
        self.busy = False
        if self.progress is not None:
            self.progress.status = "inactive"
            self.progress.held = self.progress.quiet = 0
