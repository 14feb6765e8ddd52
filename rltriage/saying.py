"""Warnings of what goes wrong beside training: a log that itself fails must not reach the training loop either."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

_log = logging.getLogger("rltriage")


def warn(text: str, *values: object, exc_info: bool = False) -> None:
    """Log a warning. A handler of the user's that raises is ignored."""
    with suppress(Exception):
        _log.warning(text, *values, exc_info=exc_info)


def show(text: str) -> None:
    """Write to stderr, if there is one that takes it."""
    with suppress(Exception):
        sys.stderr.write(text)
