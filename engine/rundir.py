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
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from rltriage.engine.rows import Row
from rltriage.rules.errors import RltriageError, SourceError

try:
    import fcntl
except ImportError:  # Windows: runs are kept apart by their folders alone
    fcntl = None  # type: ignore[assignment]

ROWS = "rows.jsonl"
RUN = "run.json"
ALERTS = "alerts.jsonl"
FORMAT = 1
End = Literal["finished", "crashed"]
MAX_NAME = 200
"""Bytes of a folder's name; most file systems take 255."""
MAX_TEXT = 64 << 20
"""Bytes of `run.json` and of a reference; both are usually below one hundredth of it."""
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
    """A text file's contents. OSError for a pipe or a device, whose opening waits for whoever writes into it, and for a
    file that is far too large to be one of ours.
    """
    file = Path(path)
    if file.exists() and not file.is_file():
        raise OSError(errno.EINVAL, "a folder, a pipe or a device, no file")
    if file.stat().st_size > MAX_TEXT:
        raise OSError(errno.EFBIG, f"larger than {MAX_TEXT >> 20} MiB")
    return file.read_text(encoding="utf-8")


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a reader sees the old or the new content, never half of it.

    A link stays, and its target is replaced; a file keeps its permissions. A pipe or a device cannot be replaced without
    taking it from everybody else: it is written straight into. Raises OSError, as `open` does.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # before links are followed: /dev/stdout leads to no path
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def claim(parent: str | os.PathLike[str], name: str) -> str:
    """The name, numbered where a run has its folder already: two runs never share one, however close they start.

    Makes the folder with an empty `rows.jsonl`, which is what claims it. Raises OSError where that cannot be made.
    """
    number, each = 1, name
    while True:
        folder = Path(parent) / safe_name(each)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            open(folder / ROWS, "xb").close()
            return each
        except FileExistsError:
            number += 1
            each = f"{name}-{number}"


def row_line(row: Row) -> bytes:
    """A row as a line of `rows.jsonl`; a metric that is called step or time does not replace the row's own."""
    own: dict[str, Any] = {"step": row.step} if row.time is None else {"step": row.step, "time": row.time}
    return json.dumps(own | dict(row.metrics) | own).encode() + b"\n"


def alert_line(alert: Mapping[str, Any]) -> bytes:
    """An alert or incident object (already plain, strict JSON data) as a line of `alerts.jsonl`."""
    return json.dumps(alert, allow_nan=False).encode() + b"\n"


class RunDirectory:
    """Writes one run: `run.json` at its start and its end, atomically, and rows and alerts by whole appended lines.

    Raises RltriageError when the directory cannot be made, already holds another run's rows (unless `resume`), or is being
    written by somebody else.
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
        self.run_id = run_id
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RltriageError(f"{self.path}: cannot make the run's directory: {error.strerror}") from None
        # Before anything is written: whoever comes second must not touch the run of the first.
        self._rows = _Lines(self.path / ROWS)
        self._alerts: _Lines | None = None
        if not self._rows.locked():
            self.close()
            raise RltriageError(f"{self.path}: another process is writing this run; choose another name, or end it first")
        if not resume and self._rows.size:
            self.close()
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

    def removed(self) -> bool:
        """Whether somebody removed a file while the run goes on. A folder that was renamed keeps its files."""
        return self._rows.removed() or (self._alerts is not None and self._alerts.removed())

    def renew(self) -> int:
        """Begin new files where they were removed; how many lines went with the old ones.

        Raises OSError where new ones cannot be made, and where another run has its own in their place.
        """
        lost = self._rows.renew()
        if lost:
            self._write_run()
        return lost + (self._alerts.renew() if self._alerts is not None else 0)

    def write_rows(self, lines: bytes) -> int:
        """Append whole lines of rows, in one write; how many are in the file. Raises OSError where none is."""
        return self._rows.append(lines)

    def write_alerts(self, lines: bytes) -> int:
        """Append whole lines of alerts, as rows are."""
        if self._alerts is None:
            self._alerts = _Lines(self._rows.folder() / ALERTS)
        return self._alerts.append(lines)

    def end(self, state: str, now: float) -> None:
        """Close the files and note in `run.json` that the run is over: who follows it need not wait for rows any more."""
        try:
            folder = self._rows.folder()
        finally:
            self.close()
        self._run["ended"] = {"state": state, "time": now}
        self._write_run(folder)

    def _write_run(self, folder: Path | None = None) -> None:
        write_atomically((folder or self.path) / RUN, json.dumps(self._run, indent=2, default=str) + "\n")

    def close(self) -> None:
        self._rows.close()
        if self._alerts is not None:
            self._alerts.close()


class _Lines:
    """A file that grows by whole lines: a half one that a crash or a full disk left is ended before the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115 (kept open for the run)
        self._linked = self._links() > 0  # some file systems count none
        self._half = False
        self._written = 0
        self.size = self._file.tell()
        if self.size:
            self._file.seek(-1, os.SEEK_END)
            self._half = self._file.read(1) != b"\n"

    def _links(self) -> int:
        return os.fstat(self._file.fileno()).st_nlink

    def removed(self) -> bool:
        """Whether the file has no name any more: what is written into it is for nobody."""
        return self._linked and not self._links()

    def renew(self) -> int:
        """Begin a new file where the old one was removed; how many lines of this process went with it, at least 1."""
        if not self.removed():
            return 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        open(self._path, "xb").close()  # not if it is there: another run has claimed it
        lost = max(1, self._written)
        self._file.close()
        self._open()
        self.locked()
        return lost

    def folder(self) -> Path:
        """Where the file is by now: somebody may have renamed its folder. FileNotFoundError if it was removed."""
        if self.removed():
            raise FileNotFoundError(errno.ENOENT, "the run's files were removed", str(self._path))
        with suppress(OSError):  # no Linux: where it was
            found = Path(os.readlink(f"/proc/self/fd/{self._file.fileno()}"))
            if found.is_file():
                return found.parent
        return self._path.parent

    def locked(self) -> bool:
        """Whether nobody else has the file's lock: it is this one's from now on, and goes with the process."""
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:  # a file system without locks
                pass
        return True

    def append(self, lines: bytes) -> int:
        """Write lines in one write; how many of them are whole in the file. Raises OSError where none is."""
        data = b"\n" + lines if self._half else lines
        count = self._file.write(data) or 0
        if count == len(data):
            self._half = False
            self._written += lines.count(b"\n")
            return lines.count(b"\n")
        whole = data[:count].count(b"\n") - self._half
        self._half = data[count - 1 : count] != b"\n" if count else self._half
        if whole < 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        self._written += whole
        return whole

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
