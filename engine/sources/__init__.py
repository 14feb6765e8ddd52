"""Where rows come from: one file a kind of source, found by what the file holds and never by its name."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable

from rltriage.engine.rundir import ROWS
from rltriage.engine.sources.awaited import Awaited
from rltriage.engine.sources.base import BadLine, Source, SourceStats
from rltriage.engine.sources.console_log import Console
from rltriage.engine.sources.container import DockerLines, unwrapped
from rltriage.engine.sources.csv_table import CsvLines, delimiter_of
from rltriage.engine.sources.files import archive_of, decode, encoding_of, read_start, wide_encoding_of
from rltriage.engine.sources.json_document import JsonDocument, load_document, rows_of, why_no_rows
from rltriage.engine.sources.jsonl import JsonLines
from rltriage.engine.sources.lines import LineFormat, LineSource
from rltriage.engine.sources.mlflow_store import MlflowStore
from rltriage.engine.sources.run_directory import RunDirectorySource
from rltriage.engine.sources.tail import MAX_LINE
from rltriage.engine.sources.tensorboard import TensorBoardSource, find_event_files, is_event_file
from rltriage.engine.sources.trackio_store import SQLITE, TrackioStore, tables_of
from rltriage.engine.sources.wandb_file import MAGIC, WandbSource, find_run_files
from rltriage.rules.errors import SourceError

__all__ = ["BadLine", "Source", "SourceStats", "open_source"]

SAMPLE = 1 << 18
Wrap = Callable[[LineFormat], LineFormat]


def _as_it_is(format: LineFormat) -> LineFormat:
    return format


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
    if sample.startswith(MAGIC):
        return WandbSource(path, [path])
    if archive := archive_of(sample):
        raise SourceError(f"{path}: a {archive} archive: unpack it, and name the log that is in it")
    if _is_binary(sample):
        wide = wide_encoding_of(sample)
        what = f"text in {wide} without a mark at its start: convert it, as in `iconv -f {wide} -t UTF-8 FILE`"
        raise SourceError(f"{path}: {what if wide else 'binary data, not a log of rows'}")
    text = decode(sample)
    lines = [line for line in text.split("\n")[:50] if line.strip()]
    inside = [unwrapped(line) for line in (lines if whole or len(lines) < 2 else lines[:-1])]
    if inside and None not in inside:
        return _structured(path, "\n".join(filter(None, inside)), False, DockerLines) or _console(path, text, DockerLines)
    return _structured(path, text, whole) or _console(path, text)


def _database(path: str) -> Source:
    """The SQLite file of a tracker."""
    tables = tables_of(path)
    if {"metrics", "experiments", "runs"} <= tables:
        return MlflowStore(f"sqlite:///{os.path.abspath(path)}")
    if {"metrics", "configs"} <= tables:
        return TrackioStore(path)
    raise SourceError(f"{path}: an SQLite file that is neither a Trackio project nor an MLflow store")


def _directory(path: str) -> Source:
    """A run directory of ours, or a log directory with TensorBoard's event files or W&B's run files."""
    if not os.path.isfile(os.path.join(path, ROWS)):
        files = find_event_files(path)
        if files:
            return TensorBoardSource(path, files)
        runs = find_run_files(path)
        if runs:
            return WandbSource(path, runs)
    return RunDirectorySource(path)


def _sample(path: str) -> tuple[bytes, bool]:
    try:
        # Opening a named pipe waits for its writer, and what was looked at of any pipe is gone for the reader.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SourceError(f"{path}: a pipe or a device, no file: write its rows to a file and name that")
        return read_start(path, SAMPLE)
    except (OSError, ValueError) as error:
        reason = "no such file or directory" if isinstance(error, FileNotFoundError) else str(error)
        raise SourceError(f"{path}: {reason}") from None


def _is_binary(sample: bytes) -> bool:
    """Whether most lines near the start are no text. A log with some garbage in it is still a log."""
    if encoding_of(sample) is not None:
        return False
    lines = [line for line in sample[:4096].split(b"\n") if line.strip()]
    dirty = sum(b"\x00" in line or line.decode("utf-8", "replace").count("�") > len(line) / 10 for line in lines)
    return dirty >= max(1, len(lines) / 2)


def _structured(path: str, text: str, whole: bool, wrap: Wrap = _as_it_is) -> Source | None:
    """JSON Lines if most of the first lines are objects, a JSON document if the text starts like one, or a CSV table."""
    lines = [line for line in text.split("\n")[:50] if line.strip()]
    complete = lines if whole or len(lines) < 2 else lines[:-1]
    objects = sum(_is_object(line) for line in complete[:20])
    first = text.lstrip()[:1]
    document = first == "[" or (first == "{" and (not objects or (objects == len(lines) == 1)))
    if document and not whole and len(lines) == 1 and _begins_with_a_row(path):
        document, objects = False, 1
    if document and (not whole or _holds_rows(path)):
        return JsonDocument(path)
    if objects and objects >= len(complete[:20]) / 2:
        stats = SourceStats()
        return LineSource(path, "jsonl", wrap(JsonLines(stats)), stats)
    delimiter = delimiter_of(complete)
    if delimiter is not None:
        stats = SourceStats()
        return LineSource(path, "csv", wrap(CsvLines(stats, delimiter)), stats)
    return None


def _begins_with_a_row(path: str) -> bool:
    """Whether the first line, which is longer than the sample, is an object that holds no rows itself."""
    start, _ = read_start(path, MAX_LINE + 1)
    line, end, _ = decode(start).partition("\n")
    try:
        return bool(end) and rows_of(json.loads(line)) is None
    except (ValueError, RecursionError):
        return False


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


def _console(path: str, text: str, wrap: Wrap = _as_it_is) -> Source:
    """A console log, if some line of it is a row."""
    first = _console_source(path, wrap)
    found = next(first.records(), None)
    first.close()
    if found is None:
        raise SourceError(f"{path}: nothing in it is a metric row; {_looks(path, text)}")
    return _console_source(path, wrap)


def _looks(path: str, text: str) -> str:
    """What a text that holds no row looks like, with what to do about it where that is known."""
    first = text.split("\n", 1)[0].strip() or text.strip().split("\n", 1)[0]
    if first[:1] in ("{", "[") and (why := why_no_rows(path)):
        return why
    shown = first if len(first) <= 60 else first[:57] + "..."
    return f"it begins with {shown!r}; rows are JSON Lines, CSV, TensorBoard events or what a framework prints"


def _console_source(path: str, wrap: Wrap) -> LineSource:
    stats = SourceStats()
    return LineSource(path, "console", wrap(Console(stats)), stats)
