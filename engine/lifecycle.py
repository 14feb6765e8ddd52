"""One rule's alert over time: inactive -> pending -> firing -> resolved (DESIGN section 4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

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


class RuleState:
    """What is known about one rule of one run. The condition's verdict comes in, transitions come out.

    `held` counts the observations in a row in which the condition held, `quiet` those in which it did not while firing.
    """

    __slots__ = (
        "before",
        "busy",
        "check",
        "clear",
        "cycles",
        "declared",
        "every_row",
        "held",
        "question",
        "quiet",
        "reads",
        "row",
        "rule",
        "seen",
        "since_step",
        "skipped",
        "status",
        "veto",
        "vetoes",
    )

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.reads, self.vetoes, self.every_row = _reads(rule.when, rule.unless, rule.clear_when)
        self.check: Check | None = None
        self.veto: Check | None = None
        self.declared = False
        self.clear: Check | None = None
        self.skipped = ""
        self.question = ""
        self.reset()

    def reset(self) -> None:
        """Back to inactive, as at the start of a segment."""
        self.status: Status = "inactive"
        self.busy = False
        self.held = 0
        self.quiet = 0
        self.cycles = 0
        self.seen = 0
        self.row = -1
        self.since_step = 0
        self.before = (0, 0)

    def declare(self, history: History) -> None:
        """Ask a new segment for what the rule and its summary read, so that it is kept from the first row on."""
        self.compile(history)
        for name in fields(self.rule.summary):
            if not name.startswith("config.") and name not in BUILT_IN:
                history.last(name)
        self.check = self.veto = self.clear = None
        self.declared = True

    def compile(self, history: History) -> None:
        """Bind `when`, `unless`, `after` and `clear_when`: done when the rule can hold, for most runs log few metrics."""
        rule = self.rule
        history.owner = rule.id
        check = history.check(rule.when)
        self.veto = None if rule.unless is None else history.check(rule.unless)
        self.check = self._after(check, history) if rule.after else check
        if rule.clear_when is not None:
            history.private = rule.id
            self.clear = history.check(rule.clear_when)
            history.private = ""
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
        if holds is None or (holds and self.veto is not None and self.veto()):
            return None
        if self.row == row:
            self.held, self.quiet = self.before
        else:
            self.row = row
            self.before = (self.held, self.quiet)
        return self._holds(step) if holds else self._does_not_hold()

    def _holds(self, step: int) -> Event | None:
        self.busy = True
        self.quiet = 0
        self.held += 1
        if self.status == "inactive":
            self.status = "pending"
            self.since_step = step
        if self.status == "pending" and self.held >= self.rule.hold:
            self.status = "firing"
            return "firing"
        return None

    def _does_not_hold(self) -> Event | None:
        self.held = 0
        if not self.open:
            self.status = "inactive"
            self.busy = False
            return None
        self.quiet += 1
        if self.status == "flapping":
            return self._resolve() if self.quiet >= max(CALM, self.rule.keep_firing_for) else None
        if self.quiet < self.rule.keep_firing_for or (self.clear is not None and self.clear() is not True):
            return None
        self.cycles += 1
        if self.cycles >= CYCLES:
            self.status = "flapping"
            return "flapping"
        return self._resolve()

    def _resolve(self) -> Event:
        self.status = "inactive"
        self.busy = False
        return "resolved"

    def close(self) -> None:
        """The alert is closed from outside; a later firing is a new one."""
        self.status = "inactive"
        self.busy = False
        self.held = self.quiet = 0


@lru_cache(maxsize=4096)
def _reads(
    when: Condition, unless: Condition | None, clear_when: Condition | None
) -> tuple[frozenset[str], frozenset[str], bool]:
    """The metrics of `when`, those of the other two, and whether every row is judged; the same objects for every run."""
    other = [part.metrics() for part in (unless, clear_when) if part is not None]
    return when.metrics(), frozenset().union(*other), when.every_row
