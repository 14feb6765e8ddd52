"""The rows after a resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Rest, Verdict, View


@dataclass(frozen=True, slots=True)
class Resumed(Kind):
    """Holds in the first `rows` rows after the run resumed from a checkpoint.

    A run resumed where the fact `resumed_at` says so, where the step gap exceeds 3 strides, or where the first step
    exceeds 2 strides (known from the third row on).

    resumed: {rows: 4}
    """

    kind: ClassVar[str] = "resumed"

    rows: int = field(default=4, metadata={"help": "rows after the resume", "minimum": 1})

    def metrics(self) -> frozenset[str]:
        """None: it reads only the steps."""
        return frozenset()

    @property
    def cost(self) -> int:
        """One comparison."""
        return 0

    def bind(self, view: View) -> Check:
        """Compile the comparison of the rows since the resume."""
        rows = self.rows

        def check(past: Past) -> bool:
            passed = past.since_resume()
            return passed is not None and passed < rows

        return check

    def rest(self, view: View) -> Rest:
        """Until the run resumes."""
        rows = self.rows

        def rest(past: Past) -> Guards | None:
            passed = past.since_resume()
            return () if passed is None or passed >= rows else None

        return rest

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        passed = past.since_resume()
        return Verdict(view.check(self)(past), {}, "no resume seen" if passed is None else f"resumed {passed} rows ago")
