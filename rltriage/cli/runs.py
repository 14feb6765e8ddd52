"""The runs that a command names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltriage.engine.sources import Source


def find_run(source: str) -> str:
    """A path as it is; the id of a run under `runs/`, as alerts print it, as that run's directory."""
    directory = Path("runs", source)
    return str(directory) if not Path(source).exists() and directory.is_dir() else source


def open_runs(sources: Sequence[str]) -> list[tuple[Source, str]]:
    """Each source, opened, and the id of its run. SourceError before any is read: a misspelt second one costs no output."""
    from rltriage.engine.feed import run_ids
    from rltriage.engine.sources import open_source

    paths = [find_run(source) for source in sources]
    return list(zip([open_source(path) for path in paths], run_ids(paths), strict=True))
