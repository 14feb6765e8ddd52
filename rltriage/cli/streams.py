"""stdout and stderr of a command: what cannot be written there ends nothing, and a full stdout is said and remembered."""

from __future__ import annotations

import io
import select
import sys
from typing import Any, TextIO


class _Output(io.FileIO):
    """A file descriptor whose writes never fail.

    Who reads a pipe may leave when they have seen enough (head, less): the command goes on to its own exit code. The
    first of any other errors is kept in `failure`. Writing is tried each time: a disk may have room again.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """All of it, or nothing of what cannot be written."""
        try:
            while (count := super().write(data)) is None:  # somebody has made the descriptor non-blocking
                select.select((), (self,), ())
            return count
        except BrokenPipeError:
            pass
        except OSError as error:
            self.failure = self.failure or error
        return memoryview(data).nbytes


def guard() -> _Output | None:
    """Put stdout and stderr behind such descriptors; what has become of stdout, or None where it is no file.

    A stream that is not UTF-8, and names that no encoding can write, do not end a command either.
    """
    stdout, sys.stdout = _guarded(sys.stdout)
    _, sys.stderr = _guarded(sys.stderr)
    return stdout


def _guarded(stream: TextIO) -> tuple[_Output | None, TextIO]:
    if not isinstance(stream, io.TextIOWrapper):
        return None, stream
    stream.reconfigure(errors="backslashreplace")
    raw = getattr(stream.buffer, "raw", stream.buffer)
    if type(raw) is not io.FileIO:  # a console of Windows, or a test's buffer
        return None, stream
    stream.flush()
    output = _Output(raw.fileno(), "w", closefd=False)
    return output, io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def written(output: _Output | None) -> str:
    """What kept stdout back, in a sentence; empty where everything is written or nobody wanted more."""
    if sys.stdout is not None:
        sys.stdout.flush()
    failure = output.failure if output is not None else None
    return f"cannot write to stdout: {failure.strerror or failure}" if failure is not None else ""
