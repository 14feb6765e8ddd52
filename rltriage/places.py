"""Where logs are: found by path, folder or glob, named, and when they were written."""

from __future__ import annotations

import glob
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rltriage.engine.feed import run_ids
from rltriage.engine.rundir import ROWS, write_atomically

log = logging.getLogger("rltriage.service")

SUFFIXES = (".jsonl", ".csv", ".log", ".txt", ".json")
"""What counts as a log in a folder that is named as a whole."""


class RunNames:
    """Which run id a path has, kept on disk: an id that changed with its neighbours would make new alerts of old ones."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._names: dict[str, str] = {}
        if file is not None:
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
                self._names = {str(path): str(name) for path, name in found.items()}
            except FileNotFoundError:
                pass
            except (OSError, ValueError, AttributeError, RecursionError) as error:
                log.warning("%s cannot be read, runs are named anew: %s", file, error)

    def knows(self, path: str) -> bool:
        """Whether the path was followed before, also before a restart."""
        return path in self._names

    def name(self, paths: Iterable[str]) -> dict[str, str]:
        """The run id of each path: the one that it had, else its stem, with the parent folder where that is taken."""
        paths = list(paths)
        new = [path for path in paths if path not in self._names]
        for path, short in zip(new, run_ids(new), strict=True):
            taken = set(self._names.values())
            parent = Path(path).absolute().parent.name
            longer = (f"{parent}/{short}", str(Path(path).absolute()))
            self._names[path] = next(name for name in (short, *longer) if name not in taken or name == longer[-1])
        if new and self._file is not None:
            try:
                write_atomically(self._file, json.dumps(self._names, indent=0))
            except OSError as error:
                log.warning("%s cannot be written, runs may be named otherwise after a restart: %s", self._file, error)
        return {path: self._names[path] for path in paths}


def expand(where: str) -> list[str]:
    """The logs and run directories that a path, folder or glob names, sorted. A run's rows stand for its directory."""
    found = glob.glob(where, recursive=True) if glob.has_magic(where) else [where]
    paths: set[str] = set()
    for path in found:
        if os.path.isdir(path):
            paths.update(_inside(path))
        elif os.path.basename(path) == ROWS:
            paths.add(os.path.dirname(path) or ".")
        elif os.path.isfile(path):
            paths.add(path)
    return sorted(paths)


def _inside(folder: str) -> Iterator[str]:
    """The folder itself if it is a run, else the runs and logs right in it."""
    if os.path.isfile(os.path.join(folder, ROWS)):
        yield folder
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if os.path.isfile(os.path.join(entry.path, ROWS)):
                    yield entry.path
            elif entry.name.endswith(SUFFIXES):
                yield entry.path


def last_changed(path: str) -> int | None:
    """When a file was last changed, as exactly as the system knows; None if there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def last_written(path: str) -> float | None:
    """When a log, or a run directory's rows, were last written (unix seconds); None if they are gone."""
    try:
        return os.stat(os.path.join(path, ROWS) if os.path.isdir(path) else path).st_mtime
    except OSError:
        return None
