"""A run directory of ours: `rows.jsonl` with the facts of `run.json`."""

from __future__ import annotations

from pathlib import Path

from rltriage.engine.rundir import ROWS, read_run_json
from rltriage.engine.sources.base import SourceStats, flatten
from rltriage.engine.sources.jsonl import JsonLines
from rltriage.engine.sources.lines import LineSource
from rltriage.rules.errors import SourceError


class RunDirectorySource(LineSource):
    """`run_id` and `labels` come from `run.json`, where it has them."""

    def __init__(self, directory: str) -> None:
        rows = Path(directory) / ROWS
        if not rows.is_file():
            inside = sorted(entry.parent.name for entry in Path(directory).glob(f"*/{ROWS}"))
            hint = "name a file in it"
            if inside:
                one, every = Path(directory) / inside[0], Path(directory) / "*"
                hint = f"name one of the {len(inside)} in it, such as {one}, or {every} for all"
            raise SourceError(f"{directory}: a directory without {ROWS} is no run; {hint}")
        run = read_run_json(directory)
        stats = SourceStats()
        profile = run.get("profile")
        super().__init__(
            str(rows),
            "run directory",
            JsonLines(stats),
            stats,
            config=flatten(run.get("config", {}), "."),
            profile=profile if isinstance(profile, str) else None,
        )
        self.name = str(directory)
        self.run_id: str | None = run["id"] if isinstance(run.get("id"), str) else None
        self.labels: dict[str, str] = {str(key): str(value) for key, value in run.get("labels", {}).items()}
