"""What every condition kind is: frozen parameters that bind to a run's history and then answer per row.

A kind is one file of this folder with one frozen dataclass. Its fields are the YAML parameters, its docstring the help text
with one example; schema, parsing, docs and did-you-mean derive from it. `bind` runs once per run and segment: it asks the
view for the readers and trackers that it needs (shared between rules) and returns the compiled check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeVar

Reader = Callable[[], float | None]
"""Returns a number of the current row, or None while it is unknown. Cheap: cached per row, shared between rules."""

Check = Callable[[], bool | None]
"""Holds / does not hold / unknown (Kleene) at the current row; allocates nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition found at one row, with the numbers that it compared. Built on a transition or when asked."""

    holds: bool | None
    values: Mapping[str, float]
    reason: str


class Bound(NamedTuple):
    """A condition compiled for one run: the fast check and the slow explanation of the same verdict."""

    check: Check
    explain: Callable[[], Verdict]


class Tracker(Protocol):
    """State that a kind keeps per metric; the history pushes every observation of that metric into it, once per row."""

    def push(self, value: float) -> None:
        """Take one finite observation (a row in which the metric is present and finite)."""


T = TypeVar("T", bound=Tracker)


class View(Protocol):
    """The run's history as conditions see it. All readers answer for the row that is being evaluated."""

    def last(self, metric: str) -> Reader:
        """The newest observation, or None before the first."""

    def fresh(self, metric: str) -> Callable[[], bool]:
        """Whether the metric is present and finite in this very row (not carried over)."""

    def raw(self, metric: str) -> Reader:
        """This row's value as logged, NaN and infinities included; None where it is absent."""

    def count(self, metric: str) -> Callable[[], int]:
        """How many observations the metric has had in this segment."""

    def window(self, metric: str, size: int, stat: str, minimum: int | None = None) -> Reader:
        """`mean`, `median`, `min`, `max`, `first`, `stdev` or `qNN` of the last `size` observations.

        None below `minimum` observations (default: `size`).
        """

    def start(self, metric: str, baseline: int = 5) -> Reader:
        """The median of the segment's first `baseline` observations; None before there are as many."""

    def noise(self, metric: str, size: int = 30) -> Reader:
        """1.4826 * median |x_i - x_(i-1)| / sqrt(2) over the last `size` observations (DESIGN, Definitions)."""

    def gain_z(self, metric: str, baseline: int = 5, window: int = 5) -> Reader:
        """(now - start) in units of its own standard error (DESIGN, Definitions)."""

    def best(self, metric: str, size: int = 5) -> Reader:
        """The largest median of `size` consecutive observations so far."""

    def values(self, metric: str, size: int) -> list[float]:
        """The last `size` observations, oldest first; may be shorter. For `explain` and slow paths only."""

    def resolution(self, metric: str) -> Reader:
        """The step to which the metric's values are rounded, or None when they look unrounded."""

    def track(self, metric: str, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The tracker kept for `metric` under `key`, made on first use and fed with every later observation."""

    def moved(self) -> bool:
        """Whether the policy can have moved before this row (an earlier row had grad_norm > 0 and lr > 0)."""

    def row_index(self) -> int:
        """How many rows this segment has had before this one."""

    def step(self) -> int:
        """The step of the row that is being evaluated."""

    def fact(self, name: str) -> Reader:
        """A numeric config fact, or None while it is unknown."""

    def fact_text(self, name: str) -> Callable[[], object]:
        """A config fact of any type (`loss_mode`), or None while it is unknown."""


class Condition(Protocol):
    """A kind's parameters. Implementations are frozen dataclasses."""

    kind: ClassVar[str]

    def metrics(self) -> frozenset[str]:
        """The metrics that the condition reads."""

    def bind(self, view: View) -> Bound:
        """Compile for one run."""
