"""Boxes of two moving sides: while every metric stays in its box, so does each operand, and the comparison its answer."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rltriage.engine.history import History
from rltriage.engine.layout import Layout
from rltriage.engine.plan import Planner
from rltriage.engine.rows import Fact
from rltriage.rules.conditions.base import Guard
from rltriage.rules.conditions.limits import apart
from rltriage.rules.conditions.spans import ENOUGH, bounds, chain, decided, reach, rest_apart, widened
from rltriage.rules.conditions.terms import Term, Window

VALUES = st.floats(-4, 4, allow_nan=False) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
STATS = ["last", "first", "start", "now", "best", "lowest", "highest", "trough", "gain_z", "noise", "change", "count"]
WINDOWS = st.builds(
    Window,
    st.integers(1, 6),
    st.sampled_from(["median", "min", "max", "first", "mean", "q25"]),
    st.none(),
    st.integers(0, 3),
)
SOURCES = st.one_of(
    st.builds(Term, metric=st.sampled_from("xy"), stat=st.sampled_from(STATS), times=VALUES, abs=st.booleans()),
    st.builds(Term, metric=st.sampled_from("xy"), window=WINDOWS, times=VALUES, abs=st.booleans()),
    st.builds(Term, config=st.just("fact"), times=VALUES),
    st.builds(Term, value=VALUES),
)


class Run:
    """A history of the metrics x and y, fed row by row."""

    def __init__(self, layout: Layout) -> None:
        self.history = History(layout, {"fact": Fact(0.5, "declared")})
        self.planner = Planner(self.history, [], frozenset())
        self.step = 0

    def take(self, x: float, y: float) -> None:
        """One row."""
        row = {"x": x, "y": y}
        self.history.begin(self.step, None)
        plan = self.planner.plan(("x", "y"))
        self.history.take(row, row, plan.known, plan.pairs, {})
        self.step += 1


ROWS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=24)
SHARES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12)


@settings(max_examples=300, deadline=None)
@given(SOURCES, SOURCES | st.none(), ROWS, SHARES)
def test_an_operand_stays_within_its_bounds(term, plus, past, shares) -> None:
    """Whatever new values the boxes allow, the operand lies between the bounds that were worked out before them."""
    term = Term(**{name: getattr(term, name) for name in term.__slots__ if name != "plus"}, plus=plus)
    layout = Layout()
    spans, read = bounds(term, layout), term.bind(layout)
    sizes = max(10, *(reach(part) for part in chain(term)))
    recent = {name: layout.values(name, sizes) for name in "xy"}
    for name in "xy":
        layout.last(name)
    run = Run(layout)
    for x, y in past:
        run.take(x, y)
    box = {name: widened(values(run.history), 0.5) for name, values in recent.items()}
    span = spans(run.history, box)
    assume(span is not None)
    for across_x, across_y in [(0.5, 0.5), *shares]:
        run.take(
            *(
                min(max(low + share * (high - low), low), high)
                for share, (low, high) in zip((across_x, across_y), box.values(), strict=True)
            )
        )
        assert span[0] <= read(run.history) <= span[1]


@given(
    st.sampled_from(["above", "at_least", "below", "at_most"]),
    *[st.tuples(VALUES, VALUES).map(sorted)] * 2,
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_decided_means_one_answer(word, left, right, along, across) -> None:
    """Where two intervals are said to decide a comparison, all of their values give the same answer."""
    compare = {"above": "__gt__", "at_least": "__ge__", "below": "__lt__", "at_most": "__le__"}[word]
    ends = [getattr(one, compare)(other) for one in left for other in right]
    assert decided(word, tuple(left), tuple(right)) == (len(set(ends)) == 1)


def test_a_comparison_of_two_metrics_rests_in_boxes_around_them() -> None:
    """x stays far below y: each is guarded a little beyond where it has been; nobody can tell once they overlap."""
    layout = Layout()
    rest = rest_apart("above", Term(metric="x"), Term(metric="y", times=0.5), layout)
    run = Run(layout)
    for x, y in [(1.0, 10.0), (2.0, 8.0)]:
        assert rest(run.history) is None
        for _ in range(ENOUGH - 1):
            run.take(x, y)
    assert rest(run.history) == (Guard("x", 0.4, 2.6), Guard("y", 6.8, 11.2))
    run.take(5.0, 9.0)
    assert rest(run.history) is None


@given(VALUES, VALUES, st.floats(1e-6, 2), VALUES)
def test_apart_has_one_answer(value, bound, tolerance, other) -> None:
    """A value is in its own interval, and what is in the interval is within the tolerance of the bound as it is."""
    low, high = apart(value, bound, tolerance)
    assert low <= value <= high
    assert not low <= other <= high or (abs(other - bound) <= tolerance) == (abs(value - bound) <= tolerance)
