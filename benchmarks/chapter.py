"""Write docs/chapter.md from the recorded runs: `make chapter-page`, or `python benchmarks/chapter.py [--runs DIR]`.

The recorded runs are the chapter's runs, each over 24 steps and with several seeds, so nothing is trained again; the check
matrix, the reruns and the rare tokens are measured anew. `make chapter` trains everything instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from rltriage.recorded import REFERENCE, RecordedRun, read_manifest, read_runs
from rltriage.trainer.chapter import History, publish
from rltriage.trainer.chapter_data import RUNS, ChapterRun

ROOT = Path(__file__).parents[1]
HELD_OUT = "eval_pass"


def recorded_histories(folder: Path) -> tuple[list[int], dict[str, list[History]]]:
    """The seeds that every run of the chapter has in `folder`, and the histories by run, in order of these seeds."""
    stored = [run for run in read_runs(folder) if run.group.name != REFERENCE]
    found = {run.name: {r.seed: cut(r, run.job.steps) for r in stored if is_run(r, run)} for run in RUNS}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in found.values())))
    return seeds, {name: [by_seed[seed] for seed in seeds] for name, by_seed in found.items()}


def is_run(recorded: RecordedRun, run: ChapterRun) -> bool:
    """Whether fault and settings are those of the chapter's run."""
    return (recorded.group.fault, recorded.group.config) == (run.job.fault, run.job.config)


def cut(recorded: RecordedRun, steps: int) -> History:
    """The first `steps` rows; the last one takes the first evaluation at or after it, one step later in the short runs."""
    rows: list[Mapping[str, float]] = [row.metrics for row in recorded.rows]
    held_out = next(row[HELD_OUT] for row in rows[steps - 1 :] if HELD_OUT in row)
    return [*rows[: steps - 1], {**rows[steps - 1], HELD_OUT: held_out}]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the runs, measure the rest, write page and figures."""
    parser = argparse.ArgumentParser(description="Write docs/chapter.md from the recorded runs.")
    parser.add_argument("--runs", type=Path, default=ROOT / "tests" / "data" / "runs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    manifest = read_manifest(options.runs)
    seeds, runs = recorded_histories(options.runs)
    origin = (
        f"The runs are the recorded ones of `tests/data/runs` ({manifest['made']}, {manifest['machine']}), stored to six "
        "digits. Where the chapter stopped after 8 or 16 steps, we show the first 8 or 16 rows of a 24-step run, with the "
        "held-out evaluation of one step later."
    )
    file = publish(runs, seeds, options.out, lambda text: print(text, file=sys.stderr), "make chapter-page", origin)
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
