"""Lines of a file that may grow, be truncated, be rotated or end in half a line."""

from __future__ import annotations

import os
from codecs import IncrementalDecoder
from collections.abc import Iterator
from typing import BinaryIO

from rltriage.engine.sources.base import SourceStats
from rltriage.engine.sources.files import broken, decoder_of, is_part_of_mark, open_log, read_some
from rltriage.rules.errors import SourceError

MAX_LINE = 1 << 20
CHUNK = 1 << 20
HEAD = 256
MARK = 4


class Tail:
    """Yields (line number, text without its newline) of complete lines; each call of `lines` goes on where the last ended.

    Grows by bytes. A file that became shorter, or whose first bytes changed, is read again from its start; one that was
    replaced is first read to its end. `generation` counts these restarts. A line over `MAX_LINE` bytes is refused once.
    A mark at the start decides between UTF-8, UTF-16 and UTF-32; a packed file is read once, to where it is whole.
    """

    def __init__(self, path: str, stats: SourceStats) -> None:
        self.path = path
        self.generation = 0
        self._stats = stats
        self._file: BinaryIO | None = None
        self._rest = bytearray()
        self._head = b""
        self._packed = False
        self._decoder: IncrementalDecoder | None = None
        self._unopened = ""
        self._read_at: tuple[int, int, int, int] | None = None
        self._number = 0
        self._skipping = False

    def lines(self) -> Iterator[tuple[int, str]]:
        """Every complete line that is new."""
        now = self._signature()
        if not self._open():
            return
        while True:
            chunk = self._read()
            if chunk:
                yield from self._split(chunk)
            elif self._replaced():
                yield from self.unfinished()
                self._restart()
                if not self._open():
                    return
            else:
                self._read_at = now
                return

    def is_quiet(self) -> bool:
        """Whether nothing was written since the last reading: one look at the file is all that a quiet log costs."""
        return self._read_at is not None and self._read_at == self._signature()

    def unfinished(self) -> Iterator[tuple[int, str]]:
        """The last line without a newline, if there is one; it is consumed."""
        if self._rest and not self._skipping:
            text = self._rest.decode("utf-8", "replace")
            self._rest.clear()
            self._number += 1
            yield self._number, text

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _signature(self) -> tuple[int, int, int, int] | None:
        """What changes when the file does; taken before reading, so that whatever is written meanwhile is new again."""
        try:
            now = os.stat(self.path)
        except OSError:
            return None
        return now.st_size, now.st_mtime_ns, now.st_ino, now.st_dev

    def _read(self) -> bytes:
        """The next bytes as UTF-8."""
        assert self._file is not None
        try:
            chunk = read_some(self._file, CHUNK)
        except broken() as error:
            if not self._packed:
                raise
            self._stats.refuse(self._number + 1, f"the packed file is damaged or cut off here: {error}")
            chunk = b""
        return chunk if self._decoder is None else self._decoder.decode(chunk).encode("utf-8", "replace")

    def _open(self) -> bool:
        if self._file is not None and self._truncated():
            self._restart()
        if self._file is None:
            try:
                self._file, self._packed = open_log(self.path)
                self._head = b"" if self._packed else os.pread(self._file.fileno(), HEAD, 0)
            except FileNotFoundError:
                return False
            except (OSError, SourceError) as error:
                self._cannot(str(error))
                return False
            if not self._packed and is_part_of_mark(self._head):
                self.close()  # or the mark would be taken for text
                return False
            self._decoder = self._mark()
        return True

    def _mark(self) -> IncrementalDecoder | None:
        """What the start says about the encoding; a packed file's start is read and gone back to."""
        if not self._packed:
            return decoder_of(self._head)
        assert self._file is not None
        try:
            head = self._file.read(MARK)
            self._file.seek(0)
        except broken():
            return None
        return decoder_of(head)

    def _cannot(self, reason: str) -> None:
        """Too many open files, no permission: said once, and tried again."""
        if reason != self._unopened:
            self._unopened = reason
            self._stats.refuse(0, f"cannot be opened: {reason}")

    def _truncated(self) -> bool:
        assert self._file is not None
        if self._packed:
            return False
        descriptor = self._file.fileno()
        if os.fstat(descriptor).st_size < self._file.tell():
            return True
        head = os.pread(descriptor, HEAD, 0)
        changed = not head.startswith(self._head)
        self._head = self._head if changed else head
        return changed

    def _replaced(self) -> bool:
        if self._file is None:
            return False
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        mine = os.fstat(self._file.fileno())
        return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev)

    def _restart(self) -> None:
        self.close()
        self._rest.clear()
        self._skipping = False
        self._number = 0
        self._read_at = None
        self.generation += 1

    def _split(self, chunk: bytes) -> Iterator[tuple[int, str]]:
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return
        block = bytes(self._rest) + chunk[: end + 1]
        self._rest.clear()
        if self._skipping:
            block = block[block.index(b"\n") + 1 :]
            self._skipping = False
        text = block.decode("utf-8", "replace")
        lines = text.split("\n")
        lines.pop()
        for line in lines:
            self._number += 1
            if len(line) > MAX_LINE:
                self._refuse()
            else:
                yield self._number, line
        self._keep(chunk[end + 1 :])

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > MAX_LINE:
            self._rest.clear()
            self._skipping = True
            self._number += 1
            self._refuse()

    def _refuse(self) -> None:
        self._stats.refuse(
            self._number, f"longer than {MAX_LINE >> 20} MiB: log numbers, and keep texts and lists elsewhere"
        )
