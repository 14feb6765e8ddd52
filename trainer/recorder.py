"""The flight recorder: keeps what is needed to repeat a step exactly, for the steps that a trigger picks.

A recording is a folder `step-<n>` of `batch`, `model`, `optimizer`, `rng` (and `reference`) `.safetensors` and `meta.json`
with the step's statistics as float hex, the versions that decide about exactness, and a SHA-256 of every file. Nothing is
pickled. It is written beside its place and renamed, so a reader sees all of it or nothing. Chapter 18.8, exercise 6.

What is read back may come from anybody: files are bounded before they are read, `meta.json` is checked field by field,
links are not followed, and whatever is wrong is one SourceError.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import re
import shutil
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row
from rltriage.rules.errors import SourceError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
MOST_META, MOST_TENSORS = 1 << 20, 1 << 30  # bytes of meta.json and of one file of tensors that are read
MOST_THREADS = 1024
ABANDONED = 3600.0  # seconds after which a half-written recording has no writer any more, wherever that ran
_STEP = re.compile(r"step-(-?\d{1,18})")
_PARTIAL = re.compile(r"\.step--?\d+\.(\d+)-\d+\.partial")
Tensors = Mapping[str, "Tensor"]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded step as stored: its folder, why it was kept, and `meta.json`'s content."""

    folder: Path
    step: int
    reason: str
    meta: Mapping[str, Any]

    @property
    def statistics(self) -> dict[str, float]:
        """The step's metrics, exactly."""
        return {name: float.fromhex(text) for name, text in self.meta["statistics"].items()}

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return _size(self.folder)

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of `batch`, `model`, `optimizer`, `rng` or `reference`; SourceError if the file was changed."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        file = self.folder / f"{part}.safetensors"
        data = _read(file, MOST_TENSORS)
        if hashlib.sha256(data).hexdigest() != self.meta["sha256"].get(file.name):
            raise SourceError(f"{file}: is damaged or was changed after recording: its SHA-256 differs from meta.json's")
        try:
            return load(data)
        except (SafetensorError, ValueError, KeyError) as error:
            raise SourceError(f"{file}: is no file of tensors ({error}): record the step again") from error


class Trigger:
    """Decides from a row and its report whether to keep the step.

    Fires when `grad_norm` is not at most `factor` times its median over the last `window` rows (written that way round so
    that NaN fires, too), from the fifth row on, or when a critical alert starts to fire.
    """

    def __init__(self, factor: float = 3.0, window: int = 20, warm_up: int = 5) -> None:
        self._factor, self._warm_up = factor, warm_up
        self._norms: deque[float] = deque(maxlen=window)

    def __call__(self, row: Row, report: object) -> str:
        """Why to keep the step, or an empty text."""
        norm = row.metrics.get("grad_norm", 0.0)
        limit = self._factor * median(self._norms) if len(self._norms) >= self._warm_up else math.inf
        if math.isfinite(norm):
            self._norms.append(norm)
        if not norm <= limit:
            return f"grad_norm {norm:.4g} is not at most {self._factor:g} x its running median, {limit / self._factor:.4g}"
        if isinstance(report, StepReport):
            critical = [a.rule for a in report.alerts if a.state == "firing" and a.severity == "critical"]
            if critical:
                return f"critical alert {', '.join(critical)}"
        return ""


class FlightRecorder:
    """Keeps recordings under `folder`, at most `max_steps` and `max_bytes`.

    When they are exceeded the oldest of the later half goes, so that the onset of a fault survives what follows it; one
    recording is always kept, however large. What a killed process left half written is removed with the next recording.
    A disk that fails costs the recording, never the run: the error is logged.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_steps: int = 8,
        max_bytes: int = 64 << 20,
        trigger: Callable[[Row, object], str] | None = None,
    ) -> None:
        self.folder, self.max_steps, self.max_bytes = folder, max_steps, max_bytes
        self._trigger = trigger or Trigger()
        self._parts: Mapping[str, Tensors] = {}
        self._meta: Mapping[str, Any] = {}

    def before_update(self, parts: Mapping[str, Tensors], meta: Mapping[str, Any]) -> None:
        """Remember a step's state, copied, before its update. `meta` is JSON: what a replay has to know."""
        self._parts, self._meta = {}, meta
        try:
            self._parts = {name: {k: v.detach().clone().contiguous() for k, v in p.items()} for name, p in parts.items()}
        except Exception:
            log.exception("the state before an update could not be copied, so that step cannot be recorded")

    def after_row(self, row: Row, report: object) -> Path | None:
        """Keep the remembered state if the trigger says so; the recording's folder, or None."""
        try:
            reason = self._trigger(row, report)
            return self._keep(row, reason) if reason and self._parts else None
        except Exception:
            log.exception("step %d could not be recorded under %s", row.step, self.folder)
            return None

    def _keep(self, row: Row, reason: str) -> Path:
        from safetensors.torch import save

        files = {f"{name}.safetensors": save(dict(part)) for name, part in self._parts.items()}
        meta = {
            "format": FORMAT,
            "step": row.step,
            "time": row.time,
            "reason": reason,
            "statistics": {name: float(value).hex() for name, value in row.metrics.items()},
            "environment": environment(),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
            **self._meta,
        }
        files["meta.json"] = json.dumps(meta, indent=1).encode()
        place = self.folder / f"step-{row.step}"
        partial = self.folder / f".step-{row.step}.{os.getpid()}-{threading.get_ident()}.partial"
        self._sweep()
        try:
            _remove(partial)
            partial.mkdir(parents=True)
            for name, data in files.items():
                (partial / name).write_bytes(data)
            _remove(place)
            partial.rename(place)
        finally:
            _remove(partial)
        self._prune()
        return place

    def _prune(self) -> None:
        """By name and size alone: a recording that is damaged counts, and goes, like any other."""
        kept = sorted(_places(self.folder).items())
        sizes = {step: _size(place) for step, place in kept}
        while len(kept) > 1 and (len(kept) > self.max_steps or sum(sizes.values()) > self.max_bytes):
            step, oldest_of_later_half = kept.pop(len(kept) // 2)
            del sizes[step]
            _remove(oldest_of_later_half)

    def _sweep(self) -> None:
        """Remove what writers that are gone left half written; whoever else writes here now is left alone."""
        for partial in self.folder.glob(".step-*.partial"):
            found = _PARTIAL.fullmatch(partial.name)
            with suppress(OSError):
                if time.time() - partial.lstat().st_mtime > ABANDONED or (found and not _alive(int(found[1]))):
                    _remove(partial)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # it is somebody else's
    return True


def _remove(path: Path) -> None:
    """Delete a folder, or a link or file in its place; nothing behind a link is touched, and errors show later."""
    if path.is_symlink() or path.is_file():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _size(folder: Path) -> int:
    """Bytes of the files of a folder; those that go away meanwhile do not count."""
    total = 0
    with suppress(OSError):
        for file in folder.iterdir():
            with suppress(OSError):
                total += file.lstat().st_size
    return total


def _places(folder: Path) -> dict[int, Path]:
    """The folders of recordings by step; links are none."""
    found = {path: _STEP.fullmatch(path.name) for path in folder.glob("step-*") if path.is_dir() and not path.is_symlink()}
    return {int(name[1]): path for path, name in found.items() if name}


def _read(file: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit`; SourceError for anything else."""
    try:
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise SourceError(f"{file}: is no regular file: record the step again")
        if about.st_size > limit:
            raise SourceError(f"{file}: is larger than {limit} bytes, which no recording is: record the step again")
        return file.read_bytes()
    except OSError as error:
        raise SourceError(f"{file}: cannot be read ({error.strerror}): record the step again") from error


def environment() -> dict[str, Any]:
    """What decides whether a replay can be exact."""
    import torch

    return {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "machine": platform.machine()}


def list_recordings(folder: Path) -> list[Recording]:
    """The recordings under `folder` by step; an empty list where there are none. Damaged ones raise SourceError."""
    recordings, damaged = all_recordings(folder)
    if damaged:
        raise damaged[0]
    return recordings


def all_recordings(folder: Path) -> tuple[list[Recording], list[SourceError]]:
    """The recordings under `folder` by step, and what is wrong with those that cannot be read."""
    found, damaged = [], []
    for _, path in sorted(_places(folder).items()):
        try:
            found.append(open_recording(path))
        except SourceError as error:
            if path.exists():  # else the recorder made room meanwhile
                damaged.append(error)
    return found, damaged


def find_recording(folder: Path, step: int) -> Recording:
    """The recording of a step. SourceError if there is none, with the steps that exist."""
    places = _places(folder)
    if step in places:
        return open_recording(places[step])
    steps = ", ".join(map(str, sorted(places)))
    known = f"recorded steps are {steps}" if steps else "nothing was"
    raise SourceError(f"{folder}: step {step} was not recorded: {known}")


def open_recording(folder: Path) -> Recording:
    """Read and check a recording's `meta.json`; SourceError says what is wrong with it."""
    file = folder / "meta.json"
    try:
        meta = json.loads(_read(file, MOST_META))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{file}: is not the meta.json of a recording ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise SourceError(f"{file}: has a format that this version cannot read; it reads format {FORMAT}")
    fields = {"step": int, "reason": str, "statistics": dict, "environment": dict, "sha256": dict}
    for name, kind in fields.items():
        if not isinstance(meta.get(name), kind):
            raise SourceError(f"{file}: lacks {name!r} or has it with a wrong type: record the step again")
    if folder.name != f"step-{meta['step']}":
        raise SourceError(f"{file}: is that of step {meta['step']}: name its folder step-{meta['step']} again")
    threads = meta["environment"].get("threads")
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise SourceError(f"{file}: has {threads!r} as number of threads: record the step again")
    recording = Recording(folder, meta["step"], meta["reason"], meta)
    try:
        recording.statistics  # noqa: B018
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"{file}: has a statistic that is no number as float hex ({error})") from error
    return recording
