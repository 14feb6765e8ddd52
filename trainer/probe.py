"""The reference trainer as a `TrainerProbe`, with or without a fault."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from rltriage.trainer.config import TrainConfig
from rltriage.trainer.faults import faulty_config
from rltriage.trainer.gym import PAD, make_tasks
from rltriage.trainer.invariants import ProbeBatch, ProbeGradient, ProbePrepared, ProbeSettings, ProbeUpdate
from rltriage.trainer.loop import (
    Prepared,
    backward,
    delivered,
    make_reference,
    prepare,
    sampler_config,
    trainer_logps,
    update,
)
from rltriage.trainer.policy import Policy, load_base
from rltriage.trainer.sampling import Batch, sample_groups

PROBE_SEED = 1
CHECKED = TrainConfig(kl_coef=0.1)  # the chapter's: with a KL term, so that the reference is checked too


class ReferenceProbe:
    """64 episodes on the first 8 training tasks, sampled and prepared as the (possibly faulty) run would."""

    def __init__(self, policy: Policy, config: TrainConfig, fault: str | None = None, seed: int = PROBE_SEED) -> None:
        self._policy = copy.deepcopy(policy)
        self._config, self._fault, self._seed = config, fault, seed
        self._batch: ProbeBatch | None = None

    def settings(self) -> ProbeSettings:
        c = self._config
        return ProbeSettings(c.lr, c.epochs * c.minibatches, c.kl_coef, c.entropy_coef, c.group_size)

    def sample(self) -> ProbeBatch:
        if self._batch is None:
            tasks = make_tasks("train")[: self._config.tasks_per_step]
            generator = torch.Generator().manual_seed(self._seed)
            batch = sample_groups(self._policy, tasks, sampler_config(self._config, self._fault), generator)
            self._batch = _probe_batch(delivered(batch, self._fault, step=0))
        return self._batch

    def prepare(self, batch: ProbeBatch) -> ProbePrepared:
        made = prepare(self._policy, batch.data, self._config, self._fault)
        return ProbePrepared(made.mask, made.old_logp, made.advantages)

    def logp(self, batch: ProbeBatch) -> Tensor:
        return trainer_logps(self._policy, batch.data.ids, self._config)

    def pad(self, batch: ProbeBatch, columns: int) -> ProbeBatch:
        old: Batch = batch.data
        ids = F.pad(old.ids, (0, columns), value=PAD)
        mask, logp = F.pad(old.mask, (0, columns)), F.pad(old.sample_logp, (0, columns))
        return _probe_batch(Batch(ids, mask, logp, old.rewards, old.episodes))

    def backward(self, batch: ProbeBatch, prepared: ProbePrepared, *, accumulate: bool) -> ProbeGradient:
        fault = None if self._fault == "accum_norm" and not accumulate else self._fault
        self._policy.zero_grad()
        rows = torch.arange(len(batch.rewards))
        fed = Prepared(prepared.mask, prepared.old_logp, prepared.advantages)
        stats = backward(self._policy, None, batch.data, rows, fed, self._config, fault)
        gradient = torch.cat([p.grad.flatten() for p in self._policy.parameters() if p.grad is not None])
        self._policy.zero_grad()
        return ProbeGradient(gradient, stats["loss"], stats["ratio_min"], stats["ratio_max"])

    def update(self, batch: ProbeBatch) -> ProbeUpdate:
        trained = copy.deepcopy(self._policy)
        reference = make_reference(trained, self._config, self._fault)
        optimizer = torch.optim.Adam(trained.parameters(), lr=self._config.lr)
        generator = torch.Generator().manual_seed(0)
        _, minibatches = update(trained, optimizer, batch.data, self._config, generator, self._fault, reference)
        logp = trainer_logps(trained, batch.data.ids, self._config)
        reference_logp = None if reference is None else trainer_logps(reference, batch.data.ids, self._config)
        later = [max(m["ratio_max"] - 1, 1 - m["ratio_min"]) for m in minibatches[1:]]
        return ProbeUpdate(max(later, default=0.0), logp, reference_logp)


def _probe_batch(batch: Batch) -> ProbeBatch:
    """Ownership comes from the episodes' owners, which is what makes check 1 independent of the mask under test."""
    owned = torch.zeros_like(batch.mask, dtype=torch.bool)
    for row, episode in enumerate(batch.episodes):
        owners = [owner.name == "POLICY" for owner in episode.owners[1:]]
        owned[row, : len(owners)] = torch.tensor(owners)
    return ProbeBatch(batch, owned, batch.sample_logp, batch.rewards, [e.task.name for e in batch.episodes])


def reference_probe(
    fault: str | None = None, config: TrainConfig = CHECKED, policy: Policy | None = None, seed: int = PROBE_SEED
) -> ReferenceProbe:
    """The shipped trainer's probe. `fault` is an id of `faults.FAULTS`; raises RltriageError for an unknown one."""
    return ReferenceProbe(policy or load_base(), faulty_config(config, fault), fault, seed)
