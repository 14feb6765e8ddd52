"""Warnings of what goes wrong beside training: a log that itself fails must not reach the training loop either."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from rltriage.rules.errors import RltriageError

_log = logging.getLogger("rltriage")
MOST_SAID = 100
"""Different sentences about one run; a fault that words itself anew each time must not fill the log, or memory."""


class Once:
    """What has been said about a run: what fails may fail again in every row. To be asked from any thread."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def first(self, what: str) -> bool:
        """Whether this is the first time that it is to be said."""
        if what in self._said or len(self._said) >= MOST_SAID:
            return False
        self._said.add(what)
        return True

    def forget(self, what: str) -> None:
        """It is over: if it comes back it is said again."""
        self._said.discard(what)


def warn(text: str, *values: object, exc_info: bool = False) -> None:
    """Log a warning. A handler of the user's that raises is ignored."""
    with suppress(Exception):
        _log.warning(text, *values, exc_info=exc_info)


def reason(error: BaseException | None) -> str:
    """`: no space left on device` of what the system or a user's input is to blame for; empty where a trace is wanted."""
    return f": {error}" if isinstance(error, (OSError, RltriageError)) else ""


def show(text: str) -> None:
    """Write to stderr, if there is one that takes it."""
    with suppress(Exception):
        sys.stderr.write(text)
