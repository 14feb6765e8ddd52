"""What every condition kind is: frozen parameters that are compiled once and then answer for any run, row by row.

A kind is one file of this folder with one frozen dataclass (`logic.py` holds the three Kleene combinators). Its fields
are the YAML parameters, its docstring the help text with one example; schema, parsing, docs and did-you-mean derive from
it. `bind` runs once per rule pack, not per run: it asks the view for the readers, trackers and states that it needs (shared
between rules) and returns the compiled check, a function of one run's history. `explain` asks the same view for the same
readers, later and only when somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar


class Past(Protocol):
    """One run's history up to the row that is being evaluated: what compiled readers and checks are given."""

    @property
    def index(self) -> int:
        """How many rows this segment has had before this one."""

    @property
    def step(self) -> int:
        """The step of the row that is being evaluated."""

    @property
    def row(self) -> Mapping[str, float]:
        """This row's metrics as logged."""

    @property
    def bad(self) -> Mapping[str, float]:
        """The metrics of this row that are NaN or infinite."""

    @property
    def memo(self) -> dict[object, Any]:
        """What spares work and may be forgotten at any time."""

    def moved(self) -> bool | None:
        """Whether an earlier row had grad_norm > 0 and lr > 0; None while those are not logged."""

    def since_resume(self) -> int | None:
        """How many rows ago the run resumed from a checkpoint (0: this row), None if it did not."""

    def silence(self) -> tuple[float | None, float | None]:
        """(seconds since the newest row by the caller's clock, the median interval of rows); None while unknown."""

    def has_reference(self) -> bool:
        """Whether a healthy reference fits this run."""


Reader = Callable[[Any], float | None]
"""Returns a number of a run's current row (a `Past`), or None while it is unknown. Shared between rules and runs."""

Check = Callable[[Any], bool | None]
"""Holds / does not hold / unknown (Kleene) at a run's current row (a `Past`)."""


class Guard(NamedTuple):
    """The newest observation of a metric lies within `low` to `high`; the next one leaves it where `low` > `high`."""

    metric: str
    low: float
    high: float


ROWS = ""
"""In place of a metric in a guard: it holds for the next `high` rows."""

ALIKE = "="
"""In place of a metric in a guard: it holds while rows have the same metrics as this one, all of them finite."""

Guards = tuple[Guard, ...]
"""All of them; none means for good: until config facts change, a new metric is logged, the run goes back or resumes."""

Rest = Callable[[Any], Guards | None]
"""While which guards a check keeps the verdict that it has now, be it true, false or unknown; None if nobody can tell.

A rule at rest is not judged, so that a row costs a comparison per metric and not a check per rule.
"""


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
C = TypeVar("C", bound="Counter")


class Counter(Protocol):
    """State that a kind keeps per run and renews at rows, not at observations of one metric. It holds nothing compiled."""

    def forget(self) -> None:
        """The run went back."""


class View(Protocol):
    """What conditions are compiled against: it gives readers of a run's history and notes what has to be kept for them."""

    def last(self, metric: str) -> Reader:
        """The newest observation, or None before the first."""

    def age(self, metric: str) -> Callable[[Any], int]:
        """How many rows ago the newest observation was (0: in this row)."""

    def fresh(self, metric: str) -> Callable[[Any], bool]:
        """Whether the metric is present and finite in this very row (not carried over)."""

    def count(self, metric: str) -> Callable[[Any], int]:
        """How many observations the metric has had in this segment."""

    def window(self, metric: str, size: int, stat: str, minimum: int | None = None, skip: int = 0) -> Reader:
        """A `WindowStat` of the last `size` observations before the newest `skip`.

        None below `minimum` observations (default: `size`).
        """

    def passes(self, window: Passing, limit: float | Reader) -> Check:
        """Whether a statistic of a window is beyond a limit: what `window` and a comparison give, at less cost."""

    def keeps(self, window: Passing, limit: float | Reader) -> Rest:
        """How `passes` rests, as long as its limit does not change."""

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

    def gain_keeps(self, metric: str, baseline: int, window: int, limit: Reader) -> Rest:
        """How a comparison of `gain_z` with a limit rests, as long as the limit does not change."""

    def best(self, metric: str, size: int = 5) -> Reader:
        """The largest median of `size` consecutive observations so far."""

    def at_firing(self, metric: str, size: int = 5) -> Reader:
        """The median of the last `size` or fewer observations when the rule fired; None outside `clear_when`."""

    def values(self, metric: str, size: int) -> Callable[[Any], list[float]]:
        """The last `size` observations, oldest first; may be shorter. For slow paths only."""

    def resolution(self, metric: str) -> Reader:
        """The step to which the log rounds its values, or None when it is not known to."""

    def track(self, metric: str, key: tuple[object, ...], make: Callable[[Any], T]) -> Callable[[Any], T]:
        """The tracker that a run keeps for `metric` under `key`, fed with every observation."""

    def check(self, condition: Condition) -> Check:
        """The compiled check of a condition; equal conditions share one."""

    def rest(self, condition: Condition) -> Rest:
        """How a condition rests."""

    def state(self, condition: Condition, make: Callable[[Any], S]) -> Callable[[Any], S]:
        """What a run keeps for a condition beyond single metrics, made on first use and kept for the segment."""

    def once(self, key: Hashable, make: Callable[[], S]) -> S:
        """Something compiled that `bind` and `explain` share."""

    def derived(self, left: str, right: str, mode: str) -> str:
        """The name under which the `ratio` or `difference` of two metrics is kept, in rows that have both."""

    def each_row(
        self,
        metrics: frozenset[str],
        counter: Callable[[Any], C],
        update: Callable[[C, Past], None],
        rest: Callable[[C, Past], Guards | None],
    ) -> None:
        """Update a run's counter at every row that is an observation of `metrics`, before the rules are checked.

        Twice in one row where a second record of the same step adds one of the metrics. `rest` says while which guards
        further updates change nothing that can be told.
        """

    def matching(self, patterns: Iterable[str], met: Callable[[str], None]) -> Callable[[Any], Sequence[str]]:
        """The metrics that a run has logged whose names match a shell pattern, in the order of their first appearance.

        `met` is called with each name before its first observation is taken, to ask the view for what it needs.
        """

    def bounds(self, metric: str) -> Callable[[Any], tuple[float, float] | None]:
        """The healthy reference's (low, high) at this row, None where there is none or its config does not match."""

    def fact(self, name: str) -> Reader:
        """A numeric config fact, or None while it is unknown. `name.key` and `name.0` look into mappings and lists."""

    def fact_text(self, name: str) -> Callable[[Any], object]:
        """A config fact of any type (`loss_mode`), or None while it is unknown."""


class Passing(NamedTuple):
    """A window's statistic (|statistic| for `absolute`) that is `above`, `at_least`, `below` or `at_most` a limit."""

    metric: str
    size: int
    stat: str
    minimum: int
    word: str
    absolute: bool = False


class Condition(Protocol):
    """A kind's parameters. Implementations are frozen dataclasses that derive from `Kind`."""

    kind: ClassVar[str]

    def __hash__(self) -> int:
        """Equal conditions share their checks and states."""

    def metrics(self) -> frozenset[str]:
        """The metrics that the condition reads."""

    def patterns(self) -> tuple[str, ...]:
        """Shell patterns of further metrics that it reads, as far as the run logs them."""

    def alternatives(self) -> tuple[frozenset[str], ...]:
        """Sets of metrics (or shell patterns) of which one has to be logged before it can hold."""

    @property
    def every_row(self) -> bool:
        """Whether it judges rows that lack its metrics too (`absent`, `nonfinite`)."""

    @property
    def timed(self) -> bool:
        """Whether the passing of time alone can make it hold."""

    @property
    def cost(self) -> int:
        """Roughly how dear a check is: 0 a position or flag, 1 plain values, 2 a window, 3 and more what sorts many."""

    def bind(self, view: View) -> Check:
        """Compile for all runs of a pack."""

    def rest(self, view: View) -> Rest:
        """Compile how it rests."""

    def explain(self, view: View, past: Past) -> Verdict:
        """The verdict at a run's row with its numbers and its reason."""


class Kind:
    """What most kinds have in common: they read named metrics in rows that have them."""

    __slots__ = ()

    def metrics(self) -> frozenset[str]:
        """What the parameters name."""
        raise NotImplementedError

    def alternatives(self) -> tuple[frozenset[str], ...]:
        """All that it names."""
        return (self.metrics(),)

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

    def rest(self, view: View) -> Rest:
        """Every later row may change the verdict."""
        return never


def never(past: Past) -> Guards | None:
    """The rest of what has to be asked at every row."""
    return None


def forever(past: Past) -> Guards | None:
    """The rest of what only config facts change."""
    return ()


def text(value: float | None) -> str:
    """A number as reasons print it: four significant digits, `unknown` for None."""
    return "unknown" if value is None else f"{value:.4g}"


def known(**values: float | None) -> dict[str, float]:
    """The values that are known, for a verdict."""
    return {name: value for name, value in values.items() if value is not None}
