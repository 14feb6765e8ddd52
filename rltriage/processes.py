"""A watched run belongs to the process that opened it: forked children let go of it, copies in others do nothing."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Protocol


class Owned(Protocol):
    """What has files or a port that are not a child's."""

    def _leave(self) -> None:
        """Let go of them: this process is a child. Must not wait for a lock: who held it may be in the parent alone."""
        ...


_LIVE: weakref.WeakValueDictionary[str, Owned] = weakref.WeakValueDictionary()


def own(run: Owned) -> str:
    """Remember a run of this process; the token finds it again."""
    token = os.urandom(12).hex()
    _LIVE[token] = run
    return token


def find(token: str) -> Owned | None:
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
    for run in list(_LIVE.values()):
        run._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
