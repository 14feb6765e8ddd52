"""The reference trainer's probe with every optional method, and a run whose first row carries what the checks found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from rltriage.engine.rows import Row
from rltriage.trainer.checks import run_all_checks
from rltriage.trainer.config import TrainConfig
from rltriage.trainer.faults import faulty_config
from rltriage.trainer.invariants import ProbeBatch, as_metrics
from rltriage.trainer.loop import train
from rltriage.trainer.parallel import Job
from rltriage.trainer.policy import Policy, load_base
from rltriage.trainer.probe import CHECKED, PROBE_SEED, ReferenceProbe, _probe_batch
from rltriage.trainer.recorder import FlightRecorder


class FullReferenceProbe(ReferenceProbe):
    """What `rltriage check` runs without `--probe`."""

    def reorder(self, batch: ProbeBatch, order: list[int]) -> ProbeBatch:
        """The same episodes in another order."""
        return _probe_batch(batch.data.rows(torch.tensor(order)))

    def rescore(self, batch: ProbeBatch) -> Tensor:
        """What each episode's own state earns `[B]`, whatever reward reached the trainer."""
        return torch.tensor([episode.reward for episode in batch.data.episodes])

    def gap_after_update(self) -> float:
        """`logp_gap_max` of the second row of a real run: sampled after one update by whatever weights the sampler has."""
        return self._short_run[1].metrics["logp_gap_max"]

    def cut_short(self, batch: ProbeBatch) -> int:
        """Episodes that were stopped with turns left."""
        budget = self._config.max_turns
        return sum(not episode.submitted and episode.turns < budget for episode in batch.data.episodes)

    def learning_rates(self) -> tuple[list[float], list[float]]:
        """Of two steps; this trainer knows no schedule, so it is to stay at `lr`."""
        used = [row.metrics["lr"] for row in self._short_run]
        return used, [self._config.lr] * len(used)

    @cached_property
    def _short_run(self) -> list[Row]:
        """Two steps on a copy of the policy."""
        policy = copy.deepcopy(self._policy)
        return train(self._config, fault=self._fault, steps=2, policy=policy, checks=False, eval_tasks=())


def full_reference_probe(
    fault: str | None = None, config: TrainConfig = CHECKED, policy: Policy | None = None, seed: int = PROBE_SEED
) -> FullReferenceProbe:
    """As `probe.reference_probe`. Raises RltriageError for an unknown fault."""
    return FullReferenceProbe(policy or load_base(), faulty_config(config, fault), fault, seed)


def train_checked(
    job: Job,
    emit: Callable[[Row], object],
    clock: Callable[[], float] | None = None,
    recorder: FlightRecorder | None = None,
) -> None:
    """The run of a job, as `loop.train`; with `job.checks` row 0 holds the results of all checks, not of 1 to 11 alone.

    Raises RltriageError for an unknown fault.
    """
    first = as_metrics(run_all_checks(full_reference_probe(job.fault, job.config))) if job.checks else {}

    def emit_checked(row: Row) -> object:
        return emit(row if row.step else row._replace(metrics={**row.metrics, **first}))

    train(
        job.config,
        fault=job.fault,
        emit=emit_checked,
        steps=job.steps,
        seed=job.seed,
        clock=clock,
        checks=False,
        recorder=recorder,
    )
