"""Where rows come from: one file a kind of source, found by what the file holds and never by its name."""

from __future__ import annotations

import json
import os
import stat

from rltriage.engine.rundir import ROWS
from rltriage.engine.sources.awaited import Awaited
from rltriage.engine.sources.base import BadLine, Source, SourceStats
from rltriage.engine.sources.console_log import Console
from rltriage.engine.sources.csv_table import CsvLines, delimiter_of
from rltriage.engine.sources.json_document import JsonDocument, load_document, rows_of
from rltriage.engine.sources.jsonl import JsonLines
from rltriage.engine.sources.lines import LineSource
from rltriage.engine.sources.mlflow_store import MlflowStore
from rltriage.engine.sources.run_directory import RunDirectorySource
from rltriage.engine.sources.tensorboard import TensorBoardSource, find_event_files, is_event_file
from rltriage.engine.sources.trackio_store import SQLITE, TrackioStore, tables_of
from rltriage.rules.errors import SourceError

__all__ = ["BadLine", "Source", "SourceStats", "open_source"]

SAMPLE = 1 << 18


def open_source(path: str, follow: bool = False) -> Source:
    """The source that a path or address names; SourceError if it is missing, empty, binary, or nothing in it is a row.

    With `follow` a file that is not there yet, or holds no row yet, is waited for: its source gives nothing until then.
    """
    if path.startswith(("http://", "https://")):
        from rltriage.engine.sources.prometheus import open_address

        return open_address(path)
    if path.startswith("mlflow:"):
        return MlflowStore(path.removeprefix("mlflow:"))
    if not follow:
        return _open(path)
    try:
        return _open(path)
    except SourceError:
        return Awaited(path, _open)


def _open(path: str) -> Source:
    if os.path.isdir(path):
        return _directory(path)
    sample, whole = _sample(path)
    if not sample.strip():
        raise SourceError(f"{path}: the file is empty")
    if is_event_file(sample):
        return TensorBoardSource(path, {"": [path]})
    if sample.startswith(SQLITE):
        return _database(path)
    if _is_binary(sample):
        raise SourceError(f"{path}: {_binary_kind(sample)}")
    text = sample.decode("utf-8-sig", "replace")
    return _structured(path, text, whole) or _console(path)


def _database(path: str) -> Source:
    """The SQLite file of a tracker."""
    tables = tables_of(path)
    if {"metrics", "experiments", "runs"} <= tables:
        return MlflowStore(f"sqlite:///{os.path.abspath(path)}")
    if {"metrics", "configs"} <= tables:
        return TrackioStore(path)
    raise SourceError(f"{path}: an SQLite file that is neither a Trackio project nor an MLflow store")


def _directory(path: str) -> Source:
    """A run directory of ours, or a log directory with TensorBoard's event files."""
    if not os.path.isfile(os.path.join(path, ROWS)):
        files = find_event_files(path)
        if files:
            return TensorBoardSource(path, files)
    return RunDirectorySource(path)


def _sample(path: str) -> tuple[bytes, bool]:
    try:
        # Opening a named pipe waits for its writer, and what was looked at of any pipe is gone for the reader.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SourceError(f"{path}: a pipe or a device, no file: write its rows to a file and name that")
        with open(path, "rb") as file:
            sample = file.read(SAMPLE)
            return sample, not file.read(1)
    except (OSError, ValueError) as error:
        reason = "no such file or directory" if isinstance(error, FileNotFoundError) else str(error)
        raise SourceError(f"{path}: {reason}") from None


def _is_binary(sample: bytes) -> bool:
    """NUL bytes near the start, or mostly bytes that are no UTF-8 text."""
    head = sample[:4096]
    return b"\x00" in head or head.decode("utf-8", "replace").count("�") > len(head) / 10


def _binary_kind(sample: bytes) -> str:
    """What the bytes are, with what to do about it where that is known."""
    if sample.startswith(b"\x1f\x8b"):
        return "compressed with gzip: unpack it first, as in `gunzip -k FILE`"
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16 text, as PowerShell's `>` writes it: save it as UTF-8"
    return "binary data, not a log of rows"


def _structured(path: str, text: str, whole: bool) -> Source | None:
    """JSON Lines if most of the first lines are objects, a JSON document if the text starts like one, or a CSV table."""
    lines = [line for line in text.split("\n")[:50] if line.strip()]
    complete = lines if whole or len(lines) < 2 else lines[:-1]
    objects = sum(_is_object(line) for line in complete[:20])
    first = text.lstrip()[:1]
    document = first == "[" or (first == "{" and (not objects or (objects == len(lines) == 1)))
    if document and (not whole or _holds_rows(path)):
        return JsonDocument(path)
    if objects and objects >= len(complete[:20]) / 2:
        stats = SourceStats()
        return LineSource(path, "jsonl", JsonLines(stats), stats)
    delimiter = delimiter_of(complete)
    if delimiter is not None:
        stats = SourceStats()
        return LineSource(path, "csv", CsvLines(stats, delimiter), stats)
    return None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _holds_rows(path: str) -> bool:
    try:
        return rows_of(load_document(path)) is not None
    except SourceError:
        return False


def _console(path: str) -> Source:
    """A console log, if some line of it is a row."""
    first = _console_source(path)
    found = next(first.records(), None)
    first.close()
    if found is None:
        raise SourceError(f"{path}: nothing in it is a metric row ({first.stats.bad} lines refused)")
    return _console_source(path)


def _console_source(path: str) -> LineSource:
    stats = SourceStats()
    return LineSource(path, "console", Console(stats), stats)
