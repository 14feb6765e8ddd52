"""A run on disk: `rows.jsonl`, `run.json`, `alerts.jsonl` in one directory (DESIGN section 5, Runs on disk)."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from rltriage.engine.rows import Row
from rltriage.rules.errors import RltriageError, SourceError

ROWS = "rows.jsonl"
RUN = "run.json"
ALERTS = "alerts.jsonl"
FORMAT = 1
End = Literal["finished", "crashed"]
MAX_NAME = 200
"""Bytes of a folder's name; most file systems take 255."""
_UNSAFE = re.compile(r"[^\w.+=@-]+")


def safe_name(run_id: str) -> str:
    """A run id as a folder name: no separators, no leading dot, never empty, and no longer than file systems take."""
    name = _UNSAFE.sub("_", run_id).lstrip(".") or "run"
    whole = name.encode()
    if len(whole) <= MAX_NAME:
        return name
    digest = hashlib.sha256(run_id.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{whole[: MAX_NAME - 13].decode(errors='ignore')}-{digest}"


def read_regular(path: str | os.PathLike[str]) -> str:
    """A text file's contents. OSError for a pipe or a device: opening one waits for whoever writes into it."""
    file = Path(path)
    if file.exists() and not file.is_file():
        raise OSError(errno.EINVAL, "a folder, a pipe or a device, no file")
    return file.read_text(encoding="utf-8")


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a reader sees the old or the new content, never half of it."""
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class RunDirectory:
    """Writes one run: `run.json` at its start and its end, atomically, and rows and alerts by whole appended lines.

    Raises RltriageError when the directory cannot be made or already holds another run's rows (unless `resume`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run_id: str,
        *,
        config: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        profile: str = "generic",
        created: str = "",
        version: str = "",
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RltriageError(f"{self.path}: cannot make the run's directory: {error.strerror}") from None
        rows = self.path / ROWS
        if not resume and rows.exists() and rows.stat().st_size:
            raise RltriageError(f"{self.path}: already holds rows of a run; choose another --run or resume it")
        self._run: dict[str, Any] = {
            "format": FORMAT,
            "id": run_id,
            "labels": dict(labels or {}),
            "config": dict(config or {}),
            "profile": profile,
            "created": created,
            "rltriage_version": version,
        }
        self._write_run()
        self._rows = _Lines(rows)
        self._alerts: _Lines | None = None

    def row(self, row: Row) -> None:
        """Append a row as one line, in one write."""
        record: dict[str, Any] = {"step": row.step}
        if row.time is not None:
            record["time"] = row.time
        record.update(row.metrics)
        self._rows.append(json.dumps(record))

    def alert(self, alert: Mapping[str, Any]) -> None:
        """Append one alert or incident object (already plain, strict JSON data)."""
        if self._alerts is None:
            self._alerts = _Lines(self.path / ALERTS)
        self._alerts.append(json.dumps(alert, allow_nan=False))

    def end(self, state: str, now: float) -> None:
        """Close the files and note in `run.json` that the run is over: who follows it need not wait for rows any more."""
        self.close()
        self._run["ended"] = {"state": state, "time": now}
        self._write_run()

    def _write_run(self) -> None:
        write_atomically(self.path / RUN, json.dumps(self._run, indent=2, default=str) + "\n")

    def close(self) -> None:
        self._rows.close()
        if self._alerts is not None:
            self._alerts.close()


class _Lines:
    """A file that grows by whole lines: a half one that a crash or a full disk left is ended before the next."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 (kept open for the run)
        self._half = False
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            self._half = self._file.read(1) != b"\n"

    def append(self, line: str) -> None:
        """Write a line, in one write. Raises OSError if not all of it could be written."""
        data = (b"\n" if self._half else b"") + line.encode() + b"\n"
        written = self._file.write(data) or 0
        if written != len(data):
            self._half = self._half or written > 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        self._half = False

    def close(self) -> None:
        self._file.close()


def read_run_json(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The contents of `run.json`, {} if there is none; SourceError if it is no object or of a newer format."""
    path = Path(directory) / RUN
    try:
        value = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(value, dict):
        raise SourceError(f"{path}: must hold one JSON object")
    if not isinstance(value.get("format", FORMAT), int) or value.get("format", FORMAT) > FORMAT:
        raise SourceError(
            f"{path}: format {value['format']!r} is newer than this version reads ({FORMAT}); update rltriage"
        )
    for key in ("config", "labels"):
        if not isinstance(value.get(key, {}), dict):
            raise SourceError(f"{path}: {key!r} must be an object")
    return value


def read_end(directory: str | os.PathLike[str]) -> tuple[End, float] | None:
    """How and when (unix seconds) a run ended, by its own account: None while it goes on, or if it was killed."""
    try:
        ended: Any = read_run_json(directory).get("ended")
        state, at = ended["state"], float(ended["time"])
    except (SourceError, TypeError, KeyError, ValueError, OverflowError):
        return None
    return (state, at) if state in get_args(End) and math.isfinite(at) else None


def strict(value: float) -> float | str:
    """A number for strict JSON: NaN and infinities as the texts "NaN", "Infinity", "-Infinity"."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
