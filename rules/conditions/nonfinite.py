"""NaN and infinities."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

from rltriage.rules.conditions.base import ALIKE, Check, Guard, Guards, Kind, Past, Rest, Verdict, View


@dataclass(frozen=True, slots=True)
class Nonfinite(Kind):
    """Holds in a row in which a named metric is NaN or infinite; with no names, in which any metric is.

    Names may be shell patterns (`reward/*`); `except` leaves some out (KL metrics of a run without a KL term). False in
    rows whose named metrics are finite, unknown in rows that have none of them.

    nonfinite: {metrics: [loss, grad_norm, reward, entropy]}
    """

    kind: ClassVar[str] = "nonfinite"

    names: tuple[str, ...] = field(default=(), metadata={"help": "any one of these (default: all)", "yaml": "metrics"})
    ignored: tuple[str, ...] = field(default=(), metadata={"help": "but none of these", "yaml": "except"})

    def metrics(self) -> frozenset[str]:
        """The named metrics that are no patterns."""
        return frozenset(name for name in self.names if not _is_pattern(name))

    @property
    def every_row(self) -> bool:
        """A metric that is NaN is no observation, so every row is judged."""
        return True

    def bind(self, view: View) -> Check:
        """Compile; a row without any non-finite value costs one look."""
        named = self.metrics()
        shapes = tuple(name for name in self.names if _is_pattern(name))
        wanted = self._wants
        for name in named:
            view.last(name)  # the history keeps what is read: a metric that nobody reads counts as never logged

        def check(past: Past) -> bool | None:
            bad = past.bad
            if bad and any(wanted(name) for name in bad):
                return True
            if not self.names:
                return False
            row = past.row
            for name in named:
                if name in row:
                    return False
            return False if shapes and any(wanted(name) for name in row) else None

        return check

    def rest(self, view: View) -> Rest:
        """While rows look the same and have nothing that is not finite."""
        alike = (Guard(ALIKE, 0.0, 0.0),)

        def rest(past: Past) -> Guards | None:
            return None if past.bad else alike

        return rest

    def _wants(self, name: str) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in self.ignored):
            return False
        return not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        bad = {name: value for name, value in past.bad.items() if self._wants(name)}
        names = ", ".join(f"{name} = {value}" for name, value in sorted(bad.items()))
        return Verdict(view.check(self)(past), bad, names or "every named metric is finite")


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name
