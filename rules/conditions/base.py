"""What every condition kind is: frozen parameters that bind to a run's history and then answer per row.

A kind is one file of this folder with one frozen dataclass (`logic.py` holds the three Kleene combinators). Its fields
are the YAML parameters, its docstring the help text with one example; schema, parsing, docs and did-you-mean derive from
it. `bind` runs once per run and segment: it asks the view for the readers, trackers and states that it needs (shared
between rules) and returns the compiled check. `explain` asks the same view for the same readers, later and only when
somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

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


class Tracker(Protocol):
    """State that a kind keeps per metric; the history pushes every observation of that metric into it, once per row."""

    def push(self, value: float) -> None:
        """Take one finite observation (a row in which the metric is present and finite)."""

    def rewind(self, values: Sequence[float], step: int) -> None:
        """The run went back to `step`: the newest surviving observations, at most `reach` of them, oldest first."""

    @property
    def reach(self) -> int:
        """How many observations `rewind` needs; 0 keeps the state over a rewind."""

    @property
    def done(self) -> bool:
        """Whether no later observation can change it, so that it need not be fed."""


class Observer:
    """A tracker that learns from every observation."""

    __slots__ = ()

    @property
    def done(self) -> bool:
        """Never: the next observation may change it."""
        return False


class Baseline(Observer):
    """A tracker whose state describes the whole segment and outlives a rewind."""

    __slots__ = ()

    @property
    def reach(self) -> int:
        """Nothing is replayed."""
        return 0

    def rewind(self, values: Sequence[float], step: int) -> None:
        """Keep what was seen."""


T = TypeVar("T", bound=Tracker)
S = TypeVar("S")


class View(Protocol):
    """The run's history as conditions see it. All readers answer for the row that is being evaluated."""

    @property
    def eager(self) -> bool:
        """Whether parts of a condition that may never be asked are to be bound as well, so that what they read is kept."""

    def last(self, metric: str) -> Reader:
        """The newest observation, or None before the first."""

    def age(self, metric: str) -> Callable[[], int]:
        """How many rows ago the newest observation was (0: in this row)."""

    def fresh(self, metric: str) -> Callable[[], bool]:
        """Whether the metric is present and finite in this very row (not carried over)."""

    def raw(self, metric: str) -> Reader:
        """This row's value as logged, NaN and infinities included; None where it is absent."""

    def count(self, metric: str) -> Callable[[], int]:
        """How many observations the metric has had in this segment."""

    def window(self, metric: str, size: int, stat: str, minimum: int | None = None, skip: int = 0) -> Reader:
        """A `WindowStat` of the last `size` observations before the newest `skip`.

        None below `minimum` observations (default: `size`).
        """

    def passes(
        self, metric: str, window: tuple[int, str, int | None], word: str, limit: float | Reader, absolute: bool = False
    ) -> Check:
        """Whether a window (size, `WindowStat`, minimum) is `above`, `at_least`, `below` or `at_most` a limit.

        What `window` and a comparison give, with |statistic| for `absolute`, without the statistic where the newest
        observation alone tells.
        """

    def start(self, metric: str, baseline: int = 5, minimum: int | None = None) -> Reader:
        """The median of the segment's first `baseline` observations; None before there are `minimum` (default: all)."""

    def first(self, metric: str) -> Reader:
        """The segment's first observation."""

    def lowest(self, metric: str) -> Reader:
        """The smallest observation of the segment so far."""

    def highest(self, metric: str) -> Reader:
        """The largest observation of the segment so far."""

    def trough(self, metric: str) -> Reader:
        """The smallest observation since the largest one; None while the largest is the newest."""

    def noise(self, metric: str, size: int = 30) -> Reader:
        """1.4826 * median |x_i - x_(i-1)| / sqrt(2) over the last `size` observations (DESIGN, Definitions).

        From the non-zero differences when most are zero.
        """

    def gain_z(self, metric: str, baseline: int = 5, window: int = 5) -> Reader:
        """(now - start) in units of its own standard error (DESIGN, Definitions); 0 or an infinity without noise."""

    def best(self, metric: str, size: int = 5) -> Reader:
        """The largest median of `size` consecutive observations so far."""

    def at_firing(self, metric: str, size: int = 5) -> Reader:
        """The median of the last `size` or fewer observations when the rule fired; None outside `clear_when`."""

    def values(self, metric: str, size: int) -> list[float]:
        """The last `size` observations, oldest first; may be shorter. For `explain` and slow paths only."""

    def resolution(self, metric: str) -> Reader:
        """The step to which the log rounds its values, or None when it is not known to."""

    def track(self, metric: str, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The tracker kept for `metric` under `key`, made on first use and fed with every later observation."""

    def check(self, condition: Condition) -> Check:
        """The compiled check of a condition; equal conditions share one."""

    def state(self, condition: Condition, make: Callable[[], S]) -> S:
        """What a condition keeps beyond single metrics, made on first use and kept for the segment."""

    def derived(self, left: str, right: str, mode: str) -> str:
        """The name under which the `ratio` or `difference` of two metrics is kept, in rows that have both."""

    def each_row(
        self, metrics: frozenset[str], update: Callable[[], None], forget: Callable[[], None] | None = None
    ) -> None:
        """Call `update` at every row that is an observation of `metrics`, before the rules are checked.

        Twice in one row where a second record adds one of the metrics; `forget` is called at a rewind.
        """

    def matching(self, patterns: Iterable[str]) -> Callable[[], tuple[str, ...]]:
        """The metrics seen so far whose names match one of the shell patterns, in the order of their first appearance."""

    def settled(self) -> None:
        """Some condition can never hold again in this segment (`Condition.settled`): let its rules sleep."""

    def moved(self) -> bool | None:
        """Whether an earlier row had grad_norm > 0 and lr > 0; None while those are not logged."""

    def row_index(self) -> int:
        """How many rows this segment has had before this one."""

    def step(self) -> int:
        """The step of the row that is being evaluated."""

    def since_resume(self) -> int | None:
        """How many rows ago the run resumed from a checkpoint (0: this row), None if it did not."""

    def nonfinite(self) -> Mapping[str, float]:
        """The metrics of this row that are NaN or infinite."""

    def row(self) -> Mapping[str, float]:
        """This row's metrics as logged."""

    def silence(self) -> tuple[float | None, float | None]:
        """(seconds since the newest row by the caller's clock, the median interval of rows); None while unknown."""

    def bounds(self, metric: str) -> Callable[[], tuple[float, float] | None]:
        """The healthy reference's (low, high) at this row, None where there is none or its config does not match."""

    def fact(self, name: str) -> Reader:
        """A numeric config fact, or None while it is unknown. `name.key` and `name.0` look into mappings and lists."""

    def fact_text(self, name: str) -> Callable[[], object]:
        """A config fact of any type (`loss_mode`), or None while it is unknown."""


class Condition(Protocol):
    """A kind's parameters. Implementations are frozen dataclasses that derive from `Kind`."""

    kind: ClassVar[str]

    def __hash__(self) -> int:
        """Equal conditions share their checks and states."""

    def metrics(self) -> frozenset[str]:
        """The metrics that the condition reads."""

    def patterns(self) -> tuple[str, ...]:
        """Shell patterns of further metrics that it reads, as far as the run logs them."""

    @property
    def every_row(self) -> bool:
        """Whether it judges rows that lack its metrics too (`absent`, `nonfinite`)."""

    @property
    def timed(self) -> bool:
        """Whether the passing of time alone can make it hold."""

    @property
    def cost(self) -> int:
        """Roughly how dear a check is: 0 a position or flag, 1 plain values, 2 a window, 3 and more what sorts many."""

    def settled(self, view: View) -> bool:
        """Whether it can never hold again in this segment."""

    def bind(self, view: View) -> Check:
        """Compile for one run."""

    def explain(self, view: View) -> Verdict:
        """The verdict at this row with its numbers and its reason."""


class Kind:
    """What most kinds have in common: they read named metrics in rows that have them."""

    __slots__ = ()

    def patterns(self) -> tuple[str, ...]:
        """No metrics beyond the named ones."""
        return ()

    @property
    def every_row(self) -> bool:
        """Only rows that have its metrics are observations."""
        return False

    @property
    def timed(self) -> bool:
        """Time alone changes nothing."""
        return False

    @property
    def cost(self) -> int:
        """A window's."""
        return 2

    def settled(self, view: View) -> bool:
        """Every later row may change the verdict."""
        return False


def text(value: float | None) -> str:
    """A number as reasons print it: four significant digits, `unknown` for None."""
    return "unknown" if value is None else f"{value:.4g}"


def known(**values: float | None) -> dict[str, float]:
    """The values that are known, for a verdict."""
    return {name: value for name, value in values.items() if value is not None}
