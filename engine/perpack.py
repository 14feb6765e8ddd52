"""What is worked out once for a rule pack and shared by all the runs that are watched with it."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Generic, TypeVar

from rltriage.rules.model import RulePack

S = TypeVar("S")
KEPT = 8
"""Packs whose results are kept for further runs; a process seldom watches with more than that."""


class PerPack(Generic[S]):
    """Makes a result once for each pack object, of which the newest are kept. Safe to call from several threads."""

    def __init__(self, make: Callable[[RulePack], S]) -> None:
        self._make = make
        self._made: dict[int, tuple[RulePack, S]] = {}
        self._lock = RLock()

    def __call__(self, pack: RulePack) -> S:
        """The pack's result."""
        with self._lock:
            found = self._made.pop(id(pack), None)
            if found is None:
                found = (pack, self._make(pack))
            self._made[id(pack)] = found  # the newest last; the pack is held, so that its id is not given to another
            while len(self._made) > KEPT:
                del self._made[next(iter(self._made))]
            return found[1]
