"""The flight recorder: keeps what is needed to repeat a step exactly, for the steps that a trigger picks.

A recording is a folder `step-<n>` of `batch`, `model`, `optimizer`, `rng` (and `reference`) `.safetensors` and `meta.json`
with the step's statistics as float hex, the versions that decide about exactness, and a SHA-256 of every file. Nothing is
pickled. It is written beside its place and renamed, so a reader sees all of it or nothing. Chapter 18.8, exercise 6.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import shutil
from collections import deque
from collections.abc import Callable, Mapping
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
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of `batch`, `model`, `optimizer`, `rng` or `reference`; SourceError if the file was changed."""
        from safetensors.torch import load

        file = self.folder / f"{part}.safetensors"
        try:
            data = file.read_bytes()
        except OSError as error:
            raise SourceError(f"{file}: cannot be read ({error.strerror}): record the step again") from error
        if hashlib.sha256(data).hexdigest() != self.meta["sha256"].get(file.name):
            raise SourceError(f"{file}: is damaged or was changed after recording: its SHA-256 differs from meta.json's")
        return load(data)


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

    When they are exceeded the oldest of the later half goes, so that the onset of a fault survives what follows it.
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
        self._parts = {name: {k: v.detach().clone().contiguous() for k, v in part.items()} for name, part in parts.items()}
        self._meta = meta

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
        place, partial = self.folder / f"step-{row.step}", self.folder / f".step-{row.step}.{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, data in files.items():
            (partial / name).write_bytes(data)
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
        self._prune()
        return place

    def _prune(self) -> None:
        kept = list_recordings(self.folder)
        while len(kept) > 1 and (len(kept) > self.max_steps or sum(r.bytes for r in kept) > self.max_bytes):
            oldest_of_later_half = kept.pop(len(kept) // 2)
            shutil.rmtree(oldest_of_later_half.folder)


def environment() -> dict[str, Any]:
    """What decides whether a replay can be exact."""
    import torch

    return {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "machine": platform.machine()}


def list_recordings(folder: Path) -> list[Recording]:
    """The recordings under `folder` by step; an empty list where there are none. Damaged ones raise SourceError."""
    found = [open_recording(path) for path in folder.glob("step-*") if path.is_dir()]
    return sorted(found, key=lambda recording: recording.step)


def find_recording(folder: Path, step: int) -> Recording:
    """The recording of a step. SourceError if there is none, with the steps that exist."""
    if (folder / f"step-{step}").is_dir():
        return open_recording(folder / f"step-{step}")
    steps = ", ".join(str(recording.step) for recording in list_recordings(folder))
    known = f"recorded steps are {steps}" if steps else "nothing was"
    raise SourceError(f"{folder}: step {step} was not recorded: {known}")


def open_recording(folder: Path) -> Recording:
    """Read and check a recording's `meta.json`; SourceError says what is wrong with it."""
    file = folder / "meta.json"
    try:
        meta = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise SourceError(f"{file}: is not the meta.json of a recording ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise SourceError(f"{file}: has a format that this version cannot read; it reads format {FORMAT}")
    fields = {"step": int, "reason": str, "statistics": dict, "environment": dict, "sha256": dict}
    for name, kind in fields.items():
        if not isinstance(meta.get(name), kind):
            raise SourceError(f"{file}: lacks {name!r} or has it with a wrong type: record the step again")
    return Recording(folder, meta["step"], meta["reason"], meta)
