"""The share of groups in which every episode fails."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Kind, Verdict, View, text

PROOF_ROWS = 5
"""Rows in which reward equals pass_rate that prove 0/1 rewards."""
SAME = 1e-6


class Share:
    """The running share over enough groups: as logged, else the exact lower bound zero_adv_frac - pass_rate."""

    __slots__ = ("binary", "group_size", "mean", "needed", "needed_rows", "readers", "row", "rows", "view")

    def __init__(self, view: View, groups: int, rows: int) -> None:
        self.view = view
        self.needed = groups
        self.needed_rows = rows
        names = ("all_fail_frac", "zero_adv_frac", "pass_rate", "reward", "n_groups", "n_episodes")
        self.readers = {name: (view.last(name), view.fresh(name)) for name in names}
        self.group_size = view.fact("group_size")
        self.rows: deque[tuple[float, float]] = deque()
        self.mean: float | None = None
        self.binary = 0
        self.row = -1

    def read(self, name: str) -> float | None:
        """This row's value of a metric."""
        last, fresh = self.readers[name]
        return last() if fresh() else None

    def update(self) -> None:
        """Take one row."""
        share = self._share()
        if share is None:
            return
        if self.row == self.view.row_index() and self.rows:
            self.rows.pop()
        self.row = self.view.row_index()
        self.rows.append((share, self._size()))
        while len(self.rows) > 1 and sum(size for _, size in self.rows) - self.rows[0][1] >= self.needed:
            self.rows.popleft()
        self.mean = self._mean()

    def forget(self) -> None:
        """The run went back."""
        self.rows.clear()
        self.mean = None

    def _share(self) -> float | None:
        logged = self.read("all_fail_frac")
        if logged is not None:
            return logged
        zero, passed, reward = self.read("zero_adv_frac"), self.read("pass_rate"), self.read("reward")
        if reward is not None and passed is not None:
            same = abs(reward - passed) <= SAME
            self.binary = (self.binary + 1 if same else -(1 << 30)) if self.view.row_index() != self.row else self.binary
        if zero is None or passed is None or self.binary < PROOF_ROWS:
            return None
        return max(0.0, zero - passed)

    def _size(self) -> float:
        """Groups of this row; without a count, as many rows as `rows` make up the average."""
        groups = self.read("n_groups")
        if groups is not None and groups > 0:
            return groups
        episodes, size = self.read("n_episodes"), self.group_size()
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
        return ("all_fail_frac", "zero_adv_frac", "pass_rate", "reward", "n_groups", "n_episodes")

    @property
    def cost(self) -> int:
        """It adds up rows."""
        return 3

    def bind(self, view: View) -> Check:
        """Compile; the average is kept per row."""
        share = self._share(view)
        view.each_row(frozenset(), share.update, share.forget)
        limit = self.at_least

        def check() -> bool | None:
            mean = share.mean
            return None if mean is None else mean >= limit

        return check

    def _share(self, view: View) -> Share:
        shared = replace(self, at_least=0.0)  # one average for every limit
        return view.state(shared, lambda: Share(view, self.groups, self.rows))

    def explain(self, view: View) -> Verdict:
        """The numbers that the check compares."""
        mean = self._share(view).mean
        values = {} if mean is None else {"all_fail_share": mean}
        return Verdict(view.check(self)(), values, f"all-fail share {text(mean)} (needs {self.at_least:g})")
