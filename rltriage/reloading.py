"""Rule files that change while runs are watched: read anew, and kept as they were if they are wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rltriage.rules.crosscheck import slips
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack

RELOAD_SECONDS = 5.0
"""How often rule files are looked at."""


class RuleFiles:
    """The packs that somebody named, loaded. Raises RulePackError with every mistake in them."""

    def __init__(self, packs: Sequence[str | Path]) -> None:
        self._packs = tuple(packs)
        self.pack = load_rules(*self._packs)
        self._seen = _stamp(self.pack)
        self._told: list[str] = []

    def slips(self) -> list[str]:
        """What looks misspelt in the pack, a line for each; those that were given already are not given again."""
        found = slips(self.pack)
        new = [slip for slip in found if slip not in self._told]
        self._told = found
        return new

    def changed(self) -> bool:
        """Whether a file is another than when this was last asked, or loaded."""
        before, self._seen = self._seen, _stamp(self.pack)
        return before != self._seen

    def load(self) -> RulePack:
        """Read the files anew. Raises RulePackError and keeps the old pack if there are mistakes in them."""
        self.pack = load_rules(*self._packs)
        self._seen = _stamp(self.pack)
        return self.pack


def _stamp(pack: RulePack) -> tuple[tuple[str, int, int], ...]:
    """What tells that a rule file changed. A file that is gone counts as changed, and the reload says so."""
    found = []
    for path in pack.paths:
        try:
            stat = os.stat(path)
        except OSError:
            found.append((path, 0, 0))
        else:
            found.append((path, stat.st_mtime_ns, stat.st_size))
        folder = Path(path).parent
        with suppress(OSError):
            found.append((str(folder), folder.stat().st_mtime_ns, 0))
    return tuple(found)
