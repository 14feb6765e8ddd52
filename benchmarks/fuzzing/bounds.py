"""What one input may cost, and how it is seen that it costs more or goes wrong."""

from __future__ import annotations

import logging
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECONDS = 5.0
"""Processor time for one input of at most 64 KiB; the slowest that is not hostile takes a tenth of it."""
BYTES = 2 << 30
"""Memory that one input may take besides what the process has."""


@dataclass(frozen=True, slots=True)
class Target:
    """Valid inputs to begin with, and what takes one; it raises if the input is not taken as it should be."""

    seeds: list[bytes]
    judge: Callable[[bytes], None]


class TooSlow(BaseException):
    """More processor time than any input may cost. No Exception, so that nothing catches it."""


def bounded(judge: Callable[[bytes], None], seconds: float = SECONDS) -> Callable[[bytes], None]:
    """The judge with limits on processor time and (on Linux) memory, and an eye on what is logged with a traceback."""

    def stop(*_: object) -> None:
        raise TooSlow

    def judged(data: bytes) -> None:
        seen, log = _Tracebacks(), logging.getLogger("rltriage")
        before, hard = resource.getrlimit(resource.RLIMIT_AS)
        log.addHandler(seen)
        loud, log.propagate = log.propagate, False  # who collects what is logged may not be able to write hostile text
        previous = signal.signal(signal.SIGVTALRM, stop)
        resource.setrlimit(resource.RLIMIT_AS, (_size() + BYTES if _STATM.exists() else before, hard))
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            judge(data)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            resource.setrlimit(resource.RLIMIT_AS, (before, hard))
            signal.signal(signal.SIGVTALRM, previous)
            log.propagate = loud
            log.removeHandler(seen)
        if seen.error is not None:
            raise seen.error

    return judged


_STATM = Path("/proc/self/statm")


def _size() -> int:
    """Bytes of address space that the process has."""
    return int(_STATM.read_text().split()[0]) * resource.getpagesize()


class _Tracebacks(logging.Handler):
    """Keeps the first exception that was logged instead of raised."""

    error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and self.error is None:
            self.error = record.exc_info[1]
