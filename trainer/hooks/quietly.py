"""What a hook does inside a framework's callback: an exception there would end training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rltriage.rules.errors import RltriageError
from rltriage.saying import warn


def quietly(what: str, call: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """Call it, and log that `what` failed if it raises. A wrong option (RltriageError) passes: training has not started."""
    try:
        call(*arguments, **named)
    except RltriageError:
        raise
    except Exception:
        warn("%s failed; training goes on", what, exc_info=True)
