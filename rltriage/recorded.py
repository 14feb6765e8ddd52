"""Recorded runs of the reference trainer: which there are, how they are made, how they are stored.

A folder holds one compressed file per group (a fault, a healthy control, the healthy runs) with a row a line, and
`runs.json`, which says from which sources, on which machine and by which command they were made. Rows are rounded to six
significant digits; `tests/rltriage/test_recorded.py` fails when the sources of the trainer have changed since.
"""

from __future__ import annotations

import json
import lzma
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rltriage.engine.reference import HealthyRun, Reference, build
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.rundir import write_atomically
from rltriage.rules.errors import SourceError
from rltriage.trainer.config import TrainConfig, config_facts
from rltriage.trainer.faults import CHAPTER_FAULTS, faulty_config

MANIFEST = "runs.json"
STEPS = 24
HEALTHY, REFERENCE = "healthy", "reference"
SHIPPED_NAME = "tinyagent"


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ by their seed only. `fault` is None for a healthy group; `overrides` are fields of `TrainConfig`."""

    name: str
    fault: str | None
    seeds: Sequence[int]
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> TrainConfig:
        """What the trainer is told, before the fault's own overrides."""
        return TrainConfig(**self.overrides)

    @property
    def facts(self) -> dict[str, Any]:
        """The config facts that a run of this group declares."""
        return config_facts(faulty_config(self.config, self.fault), steps=STEPS)


def plan(seeds: int = 5, healthy: int = 100) -> list[Group]:
    """The runs of the bench: ten faults and two healthy controls x `seeds`, the healthy runs, 20 seeds for the reference.

    The reference has seeds of its own, so that no healthy run is judged by a band that it widened itself.
    """
    each = range(seeds)
    return [
        *(Group(fault.id, fault.id, each) for fault in CHAPTER_FAULTS),
        Group("control_max_turns_12", None, each, {"max_turns": 12}),
        Group("control_kl_coef_0.1", None, each, {"kl_coef": 0.1}),
        Group(REFERENCE, None, range(1000, 1020)),
        Group(HEALTHY, None, range(healthy)),
    ]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run that was made: its group, its seed, its rows in order."""

    group: Group
    seed: int
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """`mask_shift-s3`."""
        return f"{self.group.name}-s{self.seed}"

    def run(self, *, declared: bool = True) -> Run:
        """The run as the engine is told of it, with its config facts or without."""
        if not declared:
            return Run(self.name)
        return Run(self.name, facts={key: Fact(value, "declared", "trainer") for key, value in self.group.facts.items()})


def make_runs(
    groups: Sequence[Group],
    processes: int | None = None,
    *,
    known: Callable[[str], Sequence[Row] | None] = lambda name: None,
    made: Callable[[RecordedRun], object] = lambda run: None,
) -> list[RecordedRun]:
    """Train every run of `groups`, in parallel processes of one thread; `made` hears of each as soon as it is done.

    Runs whose rows `known` gives by name are not made again. The invariants look at the base policy before the first
    step and draw from generators of their own, so their results are the same for every seed and are made once per group.
    Needs torch.
    """
    from rltriage.trainer.loop import check_metrics
    from rltriage.trainer.parallel import Job, run_jobs
    from rltriage.trainer.policy import load_base

    found: dict[str, RecordedRun] = {}
    todo: list[RecordedRun] = []
    for group in groups:
        for seed in group.seeds:
            run = RecordedRun(group, seed, ())
            rows = known(run.name)
            if rows is None:
                todo.append(run)
            else:
                made(found.setdefault(run.name, RecordedRun(group, seed, tuple(rows))))
    todo.sort(key=lambda run: run.seed)  # some of everything first, for those who look meanwhile
    checks = {
        group.name: check_metrics(load_base(), faulty_config(group.config, group.fault), group.fault)
        for group in {run.group.name: run.group for run in todo}.values()
    }
    jobs = [Job(run.group.fault, run.seed, STEPS, run.group.config, checks=False) for run in todo]
    collected: list[list[Row]] = [[] for _ in jobs]
    for index, row in run_jobs(jobs, processes):
        if row is not None:
            first = {} if row.step else checks[todo[index].group.name]
            collected[index].append(Row(row.step, {**row.metrics, **first}))
            continue
        done = RecordedRun(todo[index].group, todo[index].seed, tuple(collected[index]))
        found[done.name] = done
        made(done)
    return [found[f"{group.name}-s{seed}"] for group in groups for seed in group.seeds]


def rounded(row: Row) -> Row:
    """A row with six significant digits: what is stored."""
    return Row(row.step, {name: float(f"{value:.6g}") for name, value in row.metrics.items()})


def to_line(run: RecordedRun, row: Row) -> str:
    """A row as it is stored."""
    return json.dumps({"run": run.name, "step": row.step, **row.metrics}, separators=(",", ":"))


def write_runs(folder: Path, runs: Iterable[RecordedRun], *, sources: str, command: str) -> None:
    """Write the runs, one file per group, and the manifest last. `sources` is the hash of the trainer that made them."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[RecordedRun]] = {}
    for run in runs:
        groups.setdefault(run.group.name, []).append(run)
    for name, members in groups.items():
        text = "".join(f"{to_line(run, rounded(row))}\n" for run in members for row in run.rows)
        partial = folder / f".{name}.partial"
        partial.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        os.replace(partial, folder / f"{name}.jsonl.xz")
    about = {
        "format": 1,
        "sources": sources,
        "made": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "command": command,
    }
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in about.items())
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(_described(members))}" for name, members in groups.items())
    write_atomically(folder / MANIFEST, f'{{\n{head},\n "groups": {{\n{lines}\n }}\n}}\n')


def _described(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """A group in the manifest."""
    group = runs[0].group
    return {"fault": group.fault, "overrides": dict(group.overrides), "seeds": [run.seed for run in runs]}


def healthy_reference(runs: Iterable[RecordedRun]) -> Reference:
    """The reference that is shipped: of the runs that were made for it, rounded as they are stored."""
    chosen = [run for run in runs if run.group.name == REFERENCE]
    healthy = [HealthyRun(run.name, [rounded(row) for row in run.rows], run.run().facts) for run in chosen]
    return build(healthy, SHIPPED_NAME)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `runs.json` says. Raises SourceError where there is none, or it is no such file."""
    file = folder / MANIFEST
    if not file.is_file():
        raise SourceError(f"{folder}: no recorded runs here ({MANIFEST} is missing): make them with `make runs`")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{file}: not readable as JSON: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("groups"), dict):
        raise SourceError(f"{file}: must hold an object with `groups`, as `make runs` writes it")
    return manifest


def read_runs(folder: Path, only: Sequence[str] = ()) -> list[RecordedRun]:
    """The runs of a folder, or of the groups `only`, in the manifest's order.

    Raises SourceError where there are none, and for a group that cannot be read.
    """
    found: list[RecordedRun] = []
    for name, entry in read_manifest(folder)["groups"].items():
        if only and name not in only:
            continue
        file = folder / f"{name}.jsonl.xz"
        try:
            found += _read_group(file, Group(name, entry["fault"], entry["seeds"], entry["overrides"]))
        except (OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError, lzma.LZMAError) as error:
            why = f"{type(error).__name__}: {error}"
            raise SourceError(
                f"{file}: not the runs that {MANIFEST} says ({why}): make them anew with `make runs`"
            ) from None
    return found


def _read_group(file: Path, group: Group) -> list[RecordedRun]:
    """The runs of one file. Raises whatever a file or a group of another kind leads to."""
    faulty_config(group.config, group.fault)
    rows: dict[str, list[Row]] = {}
    for line in lzma.decompress(file.read_bytes()).decode().splitlines():
        values = json.loads(line)
        rows.setdefault(values.pop("run"), []).append(Row(values.pop("step"), values))
    return [RecordedRun(group, seed, tuple(rows[f"{group.name}-s{seed}"])) for seed in group.seeds]


def machine() -> str:
    """Processor, system, Python and torch: results depend on them in the last digits."""
    import torch

    return f"{processor()}, {platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"


def processor() -> str:
    """The processor's name, or its architecture where the system does not say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{os.cpu_count()} x {names[0] if names else platform.machine()}"
