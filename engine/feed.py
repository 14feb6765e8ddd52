"""A source's records as rows of its runs: one intake per run, several runs in one log told apart by their `run` key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltriage.engine.intake import Intake
from rltriage.engine.rows import Record, Row
from rltriage.engine.sources.base import Source
from rltriage.rules.profiles import load_profiles


class Feed:
    """Reads or follows a source. Every row comes with the intake of its run, whose `run` holds the facts known by then."""

    def __init__(
        self,
        source: Source,
        run_id: str,
        profile: str = "auto",
        config: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        self.intakes: dict[str, Intake] = {}
        own = getattr(source, "run_id", None)
        self._run_id: str = own or run_id
        self._profile = source.profile if profile == "auto" and source.profile in load_profiles() else profile
        self._config = config or {}
        self._labels = {**getattr(source, "labels", {}), **(labels or {})}

    def rows(self) -> Iterator[tuple[Intake, Row]]:
        """Everything there is now, to the end of the log."""
        yield from self._take(self.source.records())
        yield from self.finish()

    def poll(self) -> list[tuple[Intake, Row]]:
        """What is new since the last call."""
        return list(self._take(self.source.poll()))

    def finish(self) -> list[tuple[Intake, Row]]:
        """The rows that wait for a decision on the profile; call it when a followed run has ended."""
        return [(intake, row) for intake in self.intakes.values() for row in intake.finish()]

    def _take(self, records: Iterable[Record]) -> Iterator[tuple[Intake, Row]]:
        for record in records:
            run = record.run or record.values.get("run")
            intake = self.intakes.get(run if isinstance(run, str) and run else self._run_id)
            if intake is None:
                intake = self._intake(run if isinstance(run, str) and run else self._run_id)
            for row in intake.rows(record):
                yield intake, row

    def _intake(self, run_id: str) -> Intake:
        found = self.source.config
        declared = self.source.kind == "run directory"
        intake = Intake(
            run_id,
            self._profile or "auto",
            self._config,
            self._labels,
            beside=found if declared else None,
            logged_config=None if declared else found,
        )
        self.intakes[run_id] = intake
        return intake


def run_ids(paths: Sequence[str]) -> list[str]:
    """A run id per source: the file's stem (a directory's name), with the parent folder before it where stems clash."""
    stems = [Path(path).name if Path(path).is_dir() else Path(path).stem for path in paths]
    clash = {stem for stem in stems if stems.count(stem) > 1}
    named = []
    for path, stem in zip(paths, stems, strict=True):
        parent = Path(path).absolute().parent.name
        named.append(f"{parent}/{stem}" if stem in clash and parent else stem)
    return named
