"""A JSON document: a list of rows, TRL's `trainer_state.json` or any object with a list of rows inside, or columns."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.engine.sources.files import decode, read_start
from rltriage.engine.sources.jsonl import unwrap
from rltriage.engine.sources.tail import MAX_LINE
from rltriage.rules.errors import SourceError

MAX_DOCUMENT = 256 << 20
_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_TOO_DEEP = "JSON nested too deeply to be read: write its rows as flat objects, one a line"
_BARELY = 30
_LISTS = ("log_history", "history", "logs", "metrics", "rows", "data")


class JsonDocument:
    """Read whole; followed, it is read again when it changes and gives the rows that it did not have before."""

    kind = "json"
    profile: str | None = None

    def __init__(self, path: str) -> None:
        self.name = path
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._signature: tuple[int, int, int] | None = None
        self._failed: tuple[int, int, int] | None = None
        self._seen = 0
        self._first: Any = None

    def records(self) -> Iterator[Record]:
        """Every row; SourceError if the document is no JSON or holds no list of rows."""
        yield from self._load()

    def poll(self) -> list[Record]:
        """New rows; none while the document is missing or half written. What stays as it is, and no rows, is said once."""
        try:
            now = os.stat(self.name)
            signature = (now.st_mtime_ns, now.st_size, now.st_ino)
            if signature == self._signature:
                return []
            records = list(self._load())
        except OSError:
            return []
        except SourceError as error:
            if signature == self._failed:
                self._signature = signature
                self.stats.refuse(0, str(error))
            self._failed = signature
            return []
        self._signature = signature
        return records

    def close(self) -> None:
        return None

    def _load(self) -> Iterator[Record]:
        document = load_document(self.name)
        rows = rows_of(document)
        if rows is None and isinstance(document, dict) and os.path.getsize(self.name) > MAX_LINE:
            raise SourceError(_too_long(self.name))
        if rows is None:
            raise SourceError(
                f"{self.name}: no list of rows in this JSON document; expected a list of objects or `log_history`"
            )
        if isinstance(document, dict):
            self.config = {k: v for k, v in document.items() if isinstance(v, (int, float, str, bool))}
        first = rows[0] if rows else None
        if len(rows) < self._seen or first != self._first:
            self._seen = 0
        self._first = first
        start, self._seen = self._seen, len(rows)
        for index in range(start, len(rows)):
            row = rows[index]
            if isinstance(row, dict) and row:
                self.stats.records += 1
                yield unwrap(row)
            else:
                self.stats.refuse(index + 1, "an entry of the list is no object")


def load_document(path: str) -> Any:
    """The parsed document; SourceError with the place if it is no JSON or larger than 256 MiB."""
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and error.pos > MAX_LINE:
            raise SourceError(_too_long(path)) from None
        raise SourceError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise SourceError(f"{path}: {_TOO_DEEP}") from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    except ValueError:  # an integer of more digits than Python converts
        raise SourceError(f"{path}: not JSON that can be read: a number of thousands of digits") from None


def _text(path: str) -> str:
    data, whole = read_start(path, MAX_DOCUMENT)
    if not whole:
        raise SourceError(f"{path}: a JSON document over {MAX_DOCUMENT >> 20} MiB; write JSON Lines instead")
    return decode(data)


def why_no_rows(path: str) -> str:
    """Why a file that begins as JSON holds no row that can be read, as a clause; empty where a bracket is all that it has
    of JSON, as a log line that begins with its level."""
    try:
        text = _text(path)
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()
        if "Unterminated" in error.msg or any(literal.startswith(rest) for literal in _LITERALS):
            return "it begins as JSON and breaks off: copy it anew, or wait until it is written"
        if error.pos < _BARELY:
            return ""
        return f"it begins as JSON and is none from line {error.lineno}, column {error.colno} on: {error.msg}"
    except RecursionError:
        return _TOO_DEEP
    except (OSError, ValueError, SourceError) as error:
        return f"it begins as JSON that cannot be read: {str(error).removeprefix(f'{path}: ')}"
    return "it is JSON without a list of rows: rows are objects of metrics, in a list or one a line"


def _too_long(path: str) -> str:
    return f"{path}: its first row is longer than {MAX_LINE >> 20} MiB: log numbers, and keep texts and lists elsewhere"


def rows_of(document: Any) -> list[Any] | None:
    """The list of rows in a parsed document, or None."""
    if isinstance(document, list):
        return document if any(isinstance(item, dict) for item in document) else None
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("log_history"), list):
        return list(document["log_history"])
    lists = [key for key in (*_LISTS, *document) if _is_rows(document.get(key))]
    if lists:
        return list(document[lists[0]])
    return _columns(document)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _columns(document: dict[str, Any]) -> list[Any] | None:
    columns = {key: value for key, value in document.items() if isinstance(value, list) and value}
    lengths = {len(column) for column in columns.values()}
    scalar = all(isinstance(x, (int, float, str, type(None))) for column in columns.values() for x in column)
    if len(columns) < 2 or len(lengths) != 1 or not scalar:
        return None
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
