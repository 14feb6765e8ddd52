"""Speed of the reference trainer: `python benchmarks/trainer.py`. Wall and processor seconds on one thread.

The bars are those of the design: a 24-step run with 4 evaluations under 12 s, the checks under 10 s. On a shared machine
the processor time is the number to compare.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from rltriage.trainer import FlightRecorder, TrainConfig, replay_step, train
from rltriage.trainer.checks import run_all_checks
from rltriage.trainer.gym import make_tasks
from rltriage.trainer.loop import update
from rltriage.trainer.policy import load_base
from rltriage.trainer.probes.reference import full_reference_probe
from rltriage.trainer.sampling import evaluate, sample_batch


def timed(name: str, action: Callable[[], object]) -> None:
    """Run once and print both times."""
    wall, processor = time.perf_counter(), time.process_time()
    action()
    print(
        f"{name:<44} {time.perf_counter() - wall:7.3f} s wall {time.process_time() - processor:7.3f} s processor",
        flush=True,
    )


def main() -> None:
    """Time a whole run, its parts, the checks and a replay."""
    torch.set_num_threads(1)
    config, policy, tasks = TrainConfig(), load_base(), make_tasks("train")
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr)
    batch = sample_batch(policy, tasks, config, generator)
    update(policy, optimizer, batch, config, generator)
    timed("24 steps, 4 evaluations, checks at step 0", lambda: train())
    timed("24 steps, 4 evaluations", lambda: train(checks=False))
    timed("sampling 64 episodes", lambda: sample_batch(policy, tasks, config, generator))
    timed("update of 64 episodes, two minibatches", lambda: update(policy, optimizer, batch, config, generator))
    timed("evaluation, 40 episodes", lambda: evaluate(policy, make_tasks("heldout"), config, 0))
    timed("seventeen checks", lambda: run_all_checks(full_reference_probe()))
    with tempfile.TemporaryDirectory() as folder:
        recorder = FlightRecorder(Path(folder), trigger=lambda row, report: "always")
        timed("2 steps, both recorded", lambda: train(steps=2, checks=False, eval_tasks=(), recorder=recorder))
        timed("replay of a step", lambda: replay_step(Path(folder), 1))


if __name__ == "__main__":
    main()
