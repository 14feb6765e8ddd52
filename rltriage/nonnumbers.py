"""Values that a training loop logs and that are no numbers: counted, and said once for each name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rltriage.engine.sources.base import to_float

_log = logging.getLogger("rltriage")
MOST_NAMES = 20
"""Of so many names it is said; a loop that makes up names must not fill the log."""


class NonNumbers:
    """How often each name had a value that no rule can read."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def look(self, run: str, metrics: Mapping[str, Any], prefix: str = "") -> None:
        """Note what cannot be read in a row; mappings are looked into, as the rules look into them."""
        for name, value in metrics.items():
            if type(value) is float or type(value) is int:
                continue
            if isinstance(value, Mapping):
                self.look(run, value, f"{prefix}{name}/")
            elif to_float(value) is None:
                self._note(run, f"{prefix}{name}", value)

    def _note(self, run: str, name: str, value: Any) -> None:
        known = self.counts.get(name)
        if known is None and len(self.counts) >= MOST_NAMES:
            name = "others"
            known = self.counts.get(name, 1)
        self.counts[name] = self.counts.get(name, 0) + 1
        if known is None:
            _log.warning("run=%s: %s is %s, which no rule can read: %s (said once)", run, name, *_words(value))


def _words(value: Any) -> tuple[str, str]:
    """What it is, and what to log instead."""
    if value is None:
        return "None", "leave the name out of rows that have no value for it"
    if isinstance(value, str):
        return "text", "log a number, and give what never changes as config={...}"
    if isinstance(value, (list, tuple, set)) or hasattr(value, "shape"):
        return f"a {type(value).__name__} of several values", "log its mean, or another number that sums it up"
    return f"a {type(value).__name__}", "log a number"
