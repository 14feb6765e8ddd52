"""TensorBoard event files, through TensorBoard's own reader (extra `tensorboard`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.rules.errors import SourceError

_MAGIC = b"brain.Event:"
_MAX_FILES = 10_000


def is_event_file(sample: bytes) -> bool:
    """Whether a file starts as event files do: a framed record that names the event format."""
    return _MAGIC in sample[:64]


def find_event_files(directory: str) -> dict[str, list[str]]:
    """Event files under a directory by run: the folder that holds them, relative to it ("" for its own)."""
    found: dict[str, list[str]] = {}
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if "tfevents" in name and _starts_right(path):
                run = os.path.relpath(folder, directory)
                found.setdefault("" if run == "." else run, []).append(path)
    return found


class TensorBoardSource:
    """Scalars of one or more runs; all tags of one step are one record, given once a later step or nothing follows.

    A byte that is broken in the middle of a file ends the reading of that file, as in TensorBoard; a record that is whole
    and no event is counted.
    """

    kind = "tensorboard"
    profile: str | None = None

    def __init__(self, path: str, files: Mapping[str, Sequence[str]]) -> None:
        self.name = path
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._runs: dict[str, _Run] = {}
        self._known: set[str] = set()
        self._full = False
        self._add(files)

    def records(self) -> Iterator[Record]:
        """Every step of every run, the last one included."""
        for run in self._runs.values():
            yield from self._count(run.new())
            yield from self._count(run.rest())

    def poll(self) -> list[Record]:
        """What is new, in files and folders that have come since too; these are looked for whenever nothing else is new."""
        found: list[Record] = []
        for run in self._runs.values():
            new = list(run.new())
            found += self._count(new or run.rest())
        if not found and os.path.isdir(self.name):
            self._add(find_event_files(self.name))
        return found

    def _add(self, files: Mapping[str, Sequence[str]]) -> None:
        """Read these files too, those that there is room for."""
        for name, paths in files.items():
            new = [path for path in paths if path not in self._known]
            room = _MAX_FILES - len(self._known)
            if len(new) > room and not self._full:
                self._full = True
                self.stats.refuse(
                    0, f"more than {_MAX_FILES} event files: further ones are not read, name a folder of fewer"
                )
            if taken := new[:room]:
                self._known.update(taken)
                self._runs.setdefault(name, _Run(name or None, [], self.stats)).add(taken)

    def close(self) -> None:
        return None

    def _count(self, records: Any) -> Iterator[Record]:
        for record in records:
            self.stats.records += 1
            yield record


class _Run:
    """One run's files, read one after the other in the order of their names, which hold the time they were opened."""

    def __init__(self, name: str | None, paths: list[str], stats: SourceStats) -> None:
        self._name = name
        self._stats = stats
        self._loaders: dict[str, Any] = {}
        self.add(paths)
        self._values: dict[str, float] = {}
        self._step: int | None = None
        self._time: float | None = None

    def add(self, paths: list[str]) -> None:
        """Read these files too, after those there are."""
        for path in paths:
            if path not in self._loaders:
                self._loaders[path] = _loader(path)

    def new(self) -> Iterator[Record]:
        """The records of all steps that are over."""
        for loader in self._loaders.values():
            for step, time, values in _scalars(loader, self._stats):
                if step != self._step:
                    yield from self.rest()
                self._step, self._time = step, time
                self._values.update(values)

    def rest(self) -> Iterator[Record]:
        """The step that may not be over."""
        values, self._values = self._values, {}
        if values:
            yield Record(values, step=self._step, time=self._time, run=self._name)


def _loader(path: str) -> Any:
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    except ImportError:
        raise SourceError(
            f"{path}: reading TensorBoard events needs its reader: pip install 'rltriage[tensorboard]'"
        ) from None
    return RawEventFileLoader(path)


def _scalars(loader: Any, stats: SourceStats) -> Iterator[tuple[int, float, dict[str, float]]]:
    from tensorboard.compat.proto import event_pb2

    for place, raw in enumerate(_loaded(loader, stats), start=1):
        try:
            event = event_pb2.Event.FromString(raw)
        except Exception:  # protobuf's own errors, which differ between its versions
            stats.refuse(place, "a record that is no event")
            continue
        if event.HasField("summary"):
            values = {value.tag: number for value in event.summary.value if (number := _number(value)) is not None}
            if values:
                yield event.step, event.wall_time, values


def _loaded(loader: Any, stats: SourceStats) -> Iterator[bytes]:
    """What the reader gives, to where it stumbles: a file that is gone, a record that claims to be larger than memory."""
    try:
        yield from loader.Load()
    except Exception as error:  # whatever TensorBoard's reader and its file systems raise
        stats.refuse(0, f"TensorBoard's reader ends here: {type(error).__name__}")


def _number(value: Any) -> float | None:
    """A scalar, in the old form or as a tensor with one element."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    # The reader would repeat one value as often as the shape claims, however much memory that takes.
    if not value.HasField("tensor") or any(dimension.size != 1 for dimension in value.tensor.tensor_shape.dim):
        return None
    from tensorboard.util.tensor_util import make_ndarray

    try:
        array = make_ndarray(value.tensor)
    except Exception:  # a shape, a type and contents that do not fit each other
        return None
    return float(array.reshape(()).item()) if array.size == 1 and array.dtype.kind in "fiub" else None


def _starts_right(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return is_event_file(file.read(64))
    except OSError:
        return False
