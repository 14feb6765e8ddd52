"""One rule's alert over time: inactive -> pending -> firing -> resolved (DESIGN section 4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from rltriage.engine.history import History
from rltriage.rules.conditions.base import Check, Condition
from rltriage.rules.model import Rule
from rltriage.rules.templates import BUILT_IN, fields

Status = Literal["inactive", "pending", "firing", "flapping"]
Event = Literal["firing", "resolved", "flapping"]
CYCLES = 3
"""Times that an alert resolves before its coming and going becomes one state."""
CALM = 20
"""Observations without the condition after which a flapping alert resolves."""


def unbound() -> bool | None:
    """The check of a rule that cannot hold on what is logged so far."""
    return None


class Reads(NamedTuple):
    """What a rule reads: the metrics of `when`, those of `unless` and `clear_when`, and whether it judges every row."""

    metrics: frozenset[str]
    vetoes: frozenset[str]
    every_row: bool


def reads(rule: Rule) -> Reads:
    """Work out what a rule reads; the same object for every run."""
    return _reads(rule.when, rule.unless, rule.clear_when)


@lru_cache(maxsize=4096)
def _reads(when: Condition, unless: Condition | None, clear_when: Condition | None) -> Reads:
    other = [part.metrics() for part in (unless, clear_when) if part is not None]
    return Reads(when.metrics(), frozenset().union(*other), when.every_row)


class Progress:
    """The counts of a rule whose condition has held; most rules of most runs never need them.

    `held` counts the observations in a row in which the condition held, `quiet` those in which it did not while firing,
    `before` is what both were before the newest row.
    """

    __slots__ = ("before", "clear", "cycles", "held", "quiet", "row", "since_step", "status", "veto")

    def __init__(self) -> None:
        self.status: Status = "inactive"
        self.held = self.quiet = self.cycles = 0
        self.row = -1
        self.since_step = 0
        self.before = (0, 0)
        self.veto: Check | None = None
        self.clear: Check | None = None


class RuleState:
    """What is known about one rule of one run. The condition's verdict comes in, transitions come out.

    While `busy` is false, a condition that does not hold changes nothing.
    """

    __slots__ = ("busy", "check", "declared", "history", "progress", "question", "reads", "rule", "seen", "skipped")

    def __init__(self, rule: Rule, reads: Reads) -> None:
        self.rule = rule
        self.reads = reads
        self.history: History | None = None
        self.skipped = ""
        self.question = ""
        self.reset()

    def reset(self) -> None:
        """Back to inactive and unbound, as at the start of a segment."""
        self.check: Check = unbound
        self.declared = False
        self.progress: Progress | None = None
        self.busy = False
        self.seen = 0

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

    def declare(self, history: History) -> None:
        """Ask a new segment for what the rule and its summary read, so that it is kept from the first row on."""
        self.history = history
        self.ask(history)
        for name in fields(self.rule.summary):
            if not name.startswith("config.") and name not in BUILT_IN:
                history.last(name)
        self.declared = True

    def ask(self, history: History) -> None:
        """Bind every part of every condition, only to let the history know what they read."""
        rule = self.rule
        history.owner, history.eager = rule.id, True
        try:
            history.check(rule.when)
            if rule.unless is not None:
                history.check(rule.unless)
            if rule.clear_when is not None:
                self._clear_check(history)
        finally:
            history.owner, history.eager = "", False

    def compile(self, history: History) -> None:
        """Bind `when` and `after`: done when the rule can hold, for most runs log few metrics."""
        history.owner = self.rule.id
        check = history.check(self.rule.when)
        self.check = self._after(check, history) if self.rule.after else check
        history.owner = ""

    def _after(self, check: Check, history: History) -> Check:
        """Unknown during the warm-up."""
        after, counted = self.rule.after, -1

        def warmed_up() -> bool | None:
            nonlocal counted
            if history.row_index() != counted:
                counted = history.row_index()
                self.seen += 1
            return check() if self.seen > after else None

        return warmed_up

    @property
    def open(self) -> bool:
        """Whether an alert is out."""
        return self.status in ("firing", "flapping")

    def advance(self, holds: bool | None, row: int, step: int) -> Event | None:
        """Take the verdict of one observation; a second one of the same row replaces the first.

        Unknown freezes, and so does a veto that is known to hold: it neither fires nor resolves.
        """
        if holds is None:
            return None
        progress = self.progress
        if progress is None:
            if not holds:
                return None
            progress = self.progress = Progress()
        if holds and self._vetoed(progress):
            return None
        if progress.row == row:
            progress.held, progress.quiet = progress.before
        else:
            progress.row = row
            progress.before = (progress.held, progress.quiet)
        return self._holds(progress, step) if holds else self._does_not_hold(progress)

    def _vetoed(self, progress: Progress) -> bool:
        unless, history = self.rule.unless, self.history
        if unless is None or history is None:
            return False
        if progress.veto is None:
            progress.veto = history.check(unless)
        return bool(progress.veto())

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

    def _does_not_hold(self, progress: Progress) -> Event | None:
        progress.held = 0
        if not self.open:
            progress.status = "inactive"
            self.busy = False
            return None
        progress.quiet += 1
        if progress.status == "flapping":
            return self._resolve(progress) if progress.quiet >= max(CALM, self.rule.keep_firing_for) else None
        if progress.quiet < self.rule.keep_firing_for or not self._cleared(progress):
            return None
        progress.cycles += 1
        if progress.cycles >= CYCLES:
            progress.status = "flapping"
            return "flapping"
        return self._resolve(progress)

    def _cleared(self, progress: Progress) -> bool:
        if self.rule.clear_when is None or self.history is None:
            return True
        if progress.clear is None:
            progress.clear = self._clear_check(self.history)
        return progress.clear() is True

    def _clear_check(self, history: History) -> Check:
        """`clear_when` sees the levels at which this very rule fired."""
        assert self.rule.clear_when is not None
        history.private, eager, history.eager = self.rule.id, history.eager, True
        try:
            return history.check(self.rule.clear_when)
        finally:
            history.private, history.eager = "", eager

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
