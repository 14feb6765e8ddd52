"""A watched run belongs to the process that opened it: forked children let go of it, copies in others do nothing."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_LIVE: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()
_LEAVE: weakref.WeakKeyDictionary[object, Callable[[Any], None]] = weakref.WeakKeyDictionary()
R = TypeVar("R")


def own(run: R, leave: Callable[[R], None]) -> str:
    """Remember a run of this process; the token finds it again.

    In a forked child `leave` lets go of the run's files and port, which are the parent's. It must not hold the run, nor
    wait for a lock: who held that may be in the parent alone.
    """
    token = os.urandom(12).hex()
    _LIVE[token] = run
    _LEAVE[run] = leave
    return token


def find(token: str) -> object | None:
    """The run of that token, None in any process but the one that opened it and its forked children."""
    return _LIVE.get(token)


def imports_main_again() -> bool:
    """Whether this is a spawned child of `multiprocessing` that imports the training script once more, to find a function.

    What the script does at its top level then happens a second time, and a run that it opens there is not a second run.
    """
    processes = sys.modules.get("multiprocessing.process")
    try:
        return processes is not None and bool(getattr(processes.current_process(), "_inheriting", False))
    except Exception:
        return False


def _leave_all() -> None:
    for run, leave in list(_LEAVE.items()):
        leave(run)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
