"""The share of groups in which every episode fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Rest, Verdict, View, text
from rltriage.rules.conditions.limits import renewed

PROOF_ROWS = 5
"""Rows in which reward equals pass_rate that prove 0/1 rewards."""
SAME = 1e-6


NAMES = ("all_fail_frac", "zero_adv_frac", "pass_rate", "reward", "n_groups", "n_episodes")
"""The share itself, what bounds it, and what counts the groups."""
NEVER = -(1 << 30)
"""Where the count of rows that prove 0/1 rewards starts once a row has refuted them."""


class Read:
    """Compiled: this row's values."""

    __slots__ = ("group_size", "readers")

    def __init__(self, view: View) -> None:
        self.readers = {name: (view.last(name), view.fresh(name)) for name in NAMES}
        self.group_size = view.fact("group_size")

    def __call__(self, past: Past, name: str) -> float | None:
        """This row's value of a metric."""
        last, fresh = self.readers[name]
        return last(past) if fresh(past) else None


class Share:
    """The running share over enough groups: as logged, else the exact lower bound zero_adv_frac - pass_rate."""

    __slots__ = ("binary", "mean", "needed", "needed_rows", "row", "rows")

    def __init__(self, groups: int, rows: int) -> None:
        self.needed = groups
        self.needed_rows = rows
        self.rows: deque[tuple[float, float]] = deque()
        self.mean: float | None = None
        self.binary = 0
        self.row = -1

    def update(self, read: Read, past: Past) -> None:
        """Take one row."""
        share = self._share(read, past)
        if share is None:
            return
        if self.row == past.index and self.rows:
            self.rows.pop()
        self.row = past.index
        self.rows.append((share, self._size(read, past)))
        while len(self.rows) > 1 and sum(size for _, size in self.rows) - self.rows[0][1] >= self.needed:
            self.rows.popleft()
        self.mean = self._mean()

    def forget(self) -> None:
        """The run went back."""
        self.rows.clear()
        self.mean = None

    def rest(self, read: Read, past: Past) -> Guards | None:
        """Without the share itself, and with rewards known not to be 0 and 1, there is nothing to take."""
        logged = read.readers["all_fail_frac"][0](past) is not None
        return None if logged or self.binary >= 0 else (renewed("all_fail_frac"),)

    def _share(self, read: Read, past: Past) -> float | None:
        logged = read(past, "all_fail_frac")
        if logged is not None:
            return logged
        zero, passed, reward = read(past, "zero_adv_frac"), read(past, "pass_rate"), read(past, "reward")
        if reward is not None and passed is not None and past.index != self.row:
            self.binary += 1 if abs(reward - passed) <= SAME else NEVER
        if zero is None or passed is None or self.binary < PROOF_ROWS:
            return None
        return max(0.0, zero - passed)

    def _size(self, read: Read, past: Past) -> float:
        """Groups of this row; without a count, as many rows as `rows` make up the average."""
        groups = read(past, "n_groups")
        if groups is not None and groups > 0:
            return groups
        episodes, size = read(past, "n_episodes"), read.group_size(past)
        if episodes is not None and size:
            return max(1.0, episodes / size)
        return self.needed / self.needed_rows

    def _mean(self) -> float | None:
        """The share over the kept rows; None below the needed number of groups."""
        groups = sum(size for _, size in self.rows)
        if groups < self.needed - 1e-9:
            return None
        return sum(share * size for share, size in self.rows) / groups


@dataclass(frozen=True, slots=True)
class AllFail(Kind):
    """Holds when the share of groups in which every episode fails is at least a limit, over at least `groups` groups.

    The share is `all_fail_frac` where logged. For 0/1 rewards (reward equal to pass_rate in 5 rows proves them)
    zero_adv_frac - pass_rate is an exact lower bound of it. Rows count with their `n_groups`, else n_episodes / group_size,
    else `rows` rows are taken. Unknown before there are enough groups.

    all_fail: {at_least: 0.5}
    """

    kind: ClassVar[str] = "all_fail"

    at_least: float = field(metadata={"help": "share of groups in which all fail", "minimum": 0})
    groups: int = field(default=32, metadata={"help": "groups averaged over", "minimum": 1})
    rows: int = field(default=5, metadata={"help": "rows averaged over where the groups are not counted", "minimum": 1})

    def metrics(self) -> frozenset[str]:
        """None by name: what is read depends on what is logged."""
        return frozenset()

    def patterns(self) -> tuple[str, ...]:
        """The share itself or what bounds it."""
        return NAMES

    def alternatives(self) -> tuple[frozenset[str], ...]:
        """The share itself, or what bounds it for 0/1 rewards."""
        return frozenset(("all_fail_frac",)), frozenset(("zero_adv_frac", "pass_rate", "reward"))

    @property
    def cost(self) -> int:
        """It adds up rows."""
        return 3

    def bind(self, view: View) -> Check:
        """Compile; the average is kept per row."""
        shared, read, limit = self._share(view), self._read(view), self.at_least

        def update(share: Share, past: Past) -> None:
            share.update(read, past)

        def rest(share: Share, past: Past) -> Guards | None:
            return share.rest(read, past)

        view.each_row(frozenset(), shared, update, rest)

        def check(past: Past) -> bool | None:
            mean = shared(past).mean
            return None if mean is None else mean >= limit

        return check

    def rest(self, view: View) -> Rest:
        """While the average does not change."""
        shared, read = self._share(view), self._read(view)
        return lambda past: shared(past).rest(read, past)

    def _read(self, view: View) -> Read:
        return view.once(Read, lambda: Read(view))

    def _share(self, view: View) -> Callable[[Past], Share]:
        one = replace(self, at_least=0.0)  # one average for every limit
        groups, rows = self.groups, self.rows
        return view.state(one, lambda past: Share(groups, rows))

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        mean = self._share(view)(past).mean
        values = {} if mean is None else {"all_fail_share": mean}
        return Verdict(view.check(self)(past), values, f"all-fail share {text(mean)} (needs {self.at_least:g})")
