"""The file that W&B keeps of every run, `wandb/*run-*/run-*.wandb`: read as it is, with nothing uploaded (extra `wandb`).

The reader that wandb once had in Python (`DataStore`) is gone in 0.31, where only its command `wandb leet` shows such
files. So the framing (LevelDB's log: blocks of 32 KiB, a record in one piece or several, each with its CRC-32) is read
here, and every record by the protobuf classes of the installed wandb. wandb writes a block when it is full or the run ends:
a run followed live comes in portions. Checked against wandb 0.31. Source: issue 5.
"""

from __future__ import annotations

import importlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.rules.errors import SourceError

MAGIC = b":W&B"
_BLOCK = 32768
_HEADER = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAX_RECORD = 16 << 20
_PORTION = 16 << 20
"""Bytes that are read at once, whole blocks."""
_PLUMBING = frozenset(("_runtime", "_wandb"))


def find_run_files(directory: str) -> list[str]:
    """The run files right in a directory or in the run directories right in it, each once though `latest-run` names one."""
    found: dict[str, str] = {}
    for folder in (directory, *(os.path.join(directory, name) for name in _names(directory))):
        for name in _names(folder) if os.path.isdir(folder) else ():
            if name.endswith(".wandb"):
                path = os.path.join(folder, name)
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class WandbSource:
    """One run a file: its configuration first, as a record of its own, then its history."""

    kind = "wandb run file"
    profile: str | None = None

    def __init__(self, path: str, files: Sequence[str]) -> None:
        self.name = path
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._told: set[str] = set()
        record = _record_class(path)
        self._files = [_RunFile(file, record, self.stats) for file in files]

    def records(self) -> Iterator[Record]:
        """Everything that is on disk now; SourceError if the only file cannot be opened; one of several is refused."""
        for file in self._files:
            try:
                yield from file.new()
            except SourceError as error:
                if len(self._files) == 1:
                    raise
                self._tell(str(error))

    def poll(self) -> list[Record]:
        found: list[Record] = []
        for file in self._files:
            try:
                for record in file.new():
                    found.append(record)  # not +=: what was given before an error is not given again
            except SourceError as error:
                self._tell(str(error))
        return found

    def _tell(self, reason: str) -> None:
        """Refuse once, though every poll meets it."""
        if reason not in self._told:
            self._told.add(reason)
            self.stats.refuse(0, reason)

    def close(self) -> None:
        return None


class _RunFile:
    """Goes on where the last whole record ended."""

    def __init__(self, path: str, record: Any, stats: SourceStats) -> None:
        self._path = path
        self._record = record
        self._stats = stats
        self._offset = _HEADER
        self._run: str | None = None
        self._number = 0

    def new(self) -> Iterator[Record]:
        """The records that have come since."""
        size = _PORTION
        while (data := self._portion(size)) is not None:
            begun = self._offset
            for payload in self._payloads(data, begun - begun % _BLOCK):
                self._number += 1
                yield from self._read(payload)
            if len(data) < size:
                return
            size = _PORTION if self._offset > begun else 2 * size

    def _portion(self, size: int) -> bytes | None:
        """So many bytes from the block on in which reading goes on; None if there is nothing new."""
        try:
            if os.path.getsize(self._path) <= self._offset:
                return None
            with open(self._path, "rb") as file:
                file.seek(self._offset - self._offset % _BLOCK)
                return file.read(size)
        except OSError as error:
            raise SourceError(f"{self._path}: {error.strerror}") from None

    def _payloads(self, data: bytes, start: int) -> Iterator[bytes]:
        """Whole records; `data` begins at the block at `start`. What is damaged costs the rest of its block."""
        at, parts, whole = self._offset - start, bytearray(), False
        while at + _HEADER <= len(data):
            left = _BLOCK - at % _BLOCK
            if left < _HEADER:
                at += left
                continue
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            piece = data[at + _HEADER : at + _HEADER + length]
            fits = kind in (_WHOLE, _FIRST, _MIDDLE, _LAST) and length <= left - _HEADER
            if fits and len(piece) < length:
                return
            if not fits or zlib.crc32(piece, zlib.crc32(bytes((kind,)))) != int.from_bytes(data[at : at + 4], "little"):
                if at + left > len(data):
                    return  # the end is being written
                self._stats.refuse(self._number + 1, "a damaged block")
                at, whole = at + left, False
                self._offset = start + at
                continue
            at += _HEADER + length
            if kind in (_WHOLE, _FIRST):
                parts, whole = bytearray(), True  # without it, what follows is the end of a record whose start is damaged
            if len(parts) + length <= _MAX_RECORD:
                parts += piece
            if kind in (_WHOLE, _LAST):
                self._offset = start + at
                if whole:
                    yield bytes(parts)
                whole = False

    def _read(self, payload: bytes) -> Iterator[Record]:
        try:
            record = self._record.FromString(payload)
        except Exception:  # protobuf's own errors, which differ between its versions
            self._stats.refuse(self._number, "a record that is no W&B record")
            return
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self._run = record.run.display_name or record.run.run_id
            config = {item.key: _value(item.value_json) for item in record.run.config.update if item.key not in _PLUMBING}
            if config:
                yield Record({"config": config}, run=self._run)
        elif kind == "history":
            values = _history(record.history.item)
            if values:
                self._stats.records += 1
                yield Record(values, run=self._run)


def _history(items: Any) -> dict[str, Any]:
    """One step's metrics by name; media and histograms, which are mappings with a `_type`, are left out."""
    media = {item.nested_key[0] for item in items if len(item.nested_key) > 1 and item.nested_key[-1] == "_type"}
    named = (("/".join(item.nested_key) or item.key, item) for item in items)
    return {
        name: value
        for name, item in named
        if name not in _PLUMBING
        and not (len(item.nested_key) > 1 and item.nested_key[0] in media)
        and (value := _value(item.value_json)) is not None
    }


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _record_class(path: str) -> Any:
    try:
        return importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    except ImportError:
        raise SourceError(
            f"{path}: a W&B run file needs W&B's own package: pip install 'rltriage[wandb]', or export the run as CSV"
        ) from None
