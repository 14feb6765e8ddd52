"""Eleven identities that a correct GRPO trainer satisfies before its first step, for any trainer behind a `TrainerProbe`.

Checks 1 to 9 are the chapter's (section 18.6) with its thresholds; 10 and 11 go beyond it. Each is one function below,
whose docstring says what it measures and what the reference trainer gives: healthy value, then the faults that fail it.
Nothing here imports torch at module level, so listing the checks is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rltriage.rules.errors import RltriageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What decides whether a check applies. `group_size` is None where advantages do not come from groups.

    `gap_tolerance` bounds check 2 in nats: 1e-4 holds for fp32 on both sides; a bf16 engine needs its own measurement.
    """

    lr: float
    updates_per_batch: int
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    group_size: int | None = None
    gap_tolerance: float = 1e-4


@dataclass(frozen=True, slots=True)
class ProbeBatch:
    """One sampled batch: the trainer's own `data`, and what the checks need to know independently of it.

    `owned [B, T-1]` is True where the policy sampled the target token, by the sampler's own bookkeeping, not by the mask
    under test; `sample_logp [B, T-1]` is the sampler's record; `rewards [B]`; `prompts` names each row's prompt.
    """

    data: Any
    owned: Tensor
    sample_logp: Tensor
    rewards: Tensor
    prompts: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class ProbePrepared:
    """What the trainer feeds its loss: `mask` and `old_logp` `[B, T-1]`, `advantages` `[B]`."""

    mask: Tensor
    old_logp: Tensor
    advantages: Tensor


@dataclass(frozen=True, slots=True)
class ProbeGradient:
    """A backward pass over the whole batch without an optimizer step: flat gradient, loss, extremes of pi / pi_old."""

    gradient: Tensor
    loss: float
    ratio_min: float
    ratio_max: float


@dataclass(frozen=True, slots=True)
class ProbeUpdate:
    """One whole update on a copy of the model.

    `ratio_error` is the largest |ratio - 1| seen after the first minibatch, `logp` and `reference_logp` `[B, T-1]` are the
    updated policy's and the reference's log-probabilities of the batch; None without a reference.
    """

    ratio_error: float
    logp: Tensor
    reference_logp: Tensor | None = None


class TrainerProbe(Protocol):
    """What the checks ask of a trainer. Nothing may change the trainer's own model."""

    def settings(self) -> ProbeSettings:
        """The configuration under test."""
        ...

    def sample(self) -> ProbeBatch:
        """A batch as the run samples it, the same one at every call."""
        ...

    def prepare(self, batch: ProbeBatch) -> ProbePrepared:
        """Mask, old log-probabilities and advantages, through the trainer's own code."""
        ...

    def logp(self, batch: ProbeBatch) -> Tensor:
        """The model's log-probabilities `[B, T-1]` by a fresh forward pass at the trainer's temperature."""
        ...

    def pad(self, batch: ProbeBatch, columns: int) -> ProbeBatch:
        """The same batch with `columns` of padding on the side that the trainer pads."""
        ...

    def backward(self, batch: ProbeBatch, prepared: ProbePrepared, *, accumulate: bool) -> ProbeGradient:
        """Loss and gradient of the whole batch, as the trainer accumulates it or in one pass."""
        ...

    def update(self, batch: ProbeBatch) -> ProbeUpdate:
        """One real update, all minibatches, on a copy of the model with a fresh optimizer."""
        ...


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's verdict. `passed` is None where the check does not apply or could not judge; `reason` then says why."""

    number: int
    check: str
    title: str
    threshold: float
    value: float | None
    passed: bool | None
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """The object that `rltriage check --json` prints (DESIGN section 9)."""
        data: dict[str, Any] = {
            "number": self.number,
            "check": self.check,
            "value": self.value,
            "threshold": self.threshold,
            "passed": self.passed,
            "title": self.title,
        }
        return {**data, "reason": self.reason} if self.reason else data


class NotApplicableError(Exception):
    """Raised by a measurement that cannot judge; the message is the reason."""


class Measured:
    """A probe with everything that several checks share computed once."""

    def __init__(self, probe: TrainerProbe) -> None:
        self.probe = probe
        self.settings = probe.settings()
        self.batch = probe.sample()
        self.prepared = probe.prepare(self.batch)
        self._own: ProbeGradient | None = None
        self._update: ProbeUpdate | None = None

    @property
    def own(self) -> ProbeGradient:
        """The trainer's own backward on the batch."""
        if self._own is None:
            self._own = self.probe.backward(self.batch, self.prepared, accumulate=True)
        return self._own

    @property
    def update(self) -> ProbeUpdate:
        """The trainer's own update, if it can tell anything."""
        if self.settings.lr <= 0:
            raise NotApplicableError("lr is 0, so an update cannot move the policy")
        groups = self.rows_by_prompt()
        if sum(bool(self.batch.rewards[rows].max() > self.batch.rewards[rows].min()) for rows in groups) < 2:
            raise NotApplicableError("fewer than two groups have different rewards, so the update has next to no gradient")
        if self._update is None:
            self._update = self.probe.update(self.batch)
        return self._update

    def rows_by_prompt(self) -> list[list[int]]:
        """Row numbers of each prompt, in order of appearance."""
        groups: dict[Hashable, list[int]] = {}
        for row, prompt in enumerate(self.batch.prompts):
            groups.setdefault(prompt, []).append(row)
        return list(groups.values())

    def need_groups(self) -> int:
        """The group size, or not applicable."""
        if not self.settings.group_size:
            raise NotApplicableError("advantages do not come from groups")
        return self.settings.group_size


def mask_errors(m: Measured) -> float:
    """Positions where the loss mask differs from the tokens that the policy sampled. Healthy 0; mask_shift hundreds."""
    return float(((m.prepared.mask > 0) != m.batch.owned.bool()).sum())


def sampler_gap(m: Measured) -> float:
    """Largest |trainer - sampler| log-probability on trained tokens, nats. Healthy 1e-6; mask_shift and temperature > 1."""
    gap = (m.probe.logp(m.batch) - m.batch.sample_logp).abs()[m.prepared.mask > 0]
    return float(gap.max()) if len(gap) else math.nan


def first_ratio_error(m: Measured) -> float:
    """Largest |pi / pi_old - 1| before any step. Healthy 0; temperature_mismatch about 2."""
    return max(m.own.ratio_max - 1, 1 - m.own.ratio_min)


def group_mean(m: Measured) -> float:
    """Largest |mean advantage| of a block of `group_size` rows. Healthy 3e-8."""
    size = m.need_groups()
    return float(m.prepared.advantages.view(-1, size).mean(-1).abs().max())


def padding_error(m: Measured) -> float:
    """|change of the loss| when 8 columns of padding are appended. Healthy 1e-8; mask_shift loses its last column."""
    padded = m.probe.pad(m.batch, 8)
    return abs(m.probe.backward(padded, m.probe.prepare(padded), accumulate=True).loss - m.own.loss)


def accumulation_error(m: Measured) -> float:
    """Relative difference of the accumulated and the one-pass gradient. Healthy 0; accum_norm about .5."""
    full = m.probe.backward(m.batch, m.prepared, accumulate=False).gradient
    if not bool(full.norm() > 0):
        raise NotApplicableError("the gradient of this batch is 0")
    return float((m.own.gradient - full).norm() / full.norm())


def later_ratio_error(m: Measured) -> float:
    """Largest |pi / pi_old - 1| after the first minibatch, which must exceed 0. Healthy .3 or more; stale_old_logp 0."""
    if m.settings.updates_per_batch < 2:
        raise NotApplicableError("one update per batch: the ratio is 1 by design")
    return m.update.ratio_error


def update_direction(m: Measured) -> float:
    """Correlation of the advantage, recomputed from rewards per prompt, with the change of an episode's log-probability.

    Must be positive: healthy .3 to .5, sign_flip negative.
    """
    import torch

    moved = ((m.update.logp - m.probe.logp(m.batch)) * m.batch.owned).sum(-1)
    advantages = torch.zeros_like(moved)
    for rows in m.rows_by_prompt():
        rewards = m.batch.rewards[rows].to(moved.dtype)
        if bool(rewards.max() > rewards.min()):
            advantages[rows] = (rewards - rewards.mean()) / rewards.std(correction=0)
    return float(torch.corrcoef(torch.stack([moved, advantages]))[0, 1])


def reference_kl(m: Measured) -> float:
    """k3 KL of the updated policy to the reference per token, which must exceed 0. Healthy .01; ref_is_policy 0."""
    if not m.settings.kl_coef:
        raise NotApplicableError("kl_coef is 0: no reference is used")
    if m.update.reference_logp is None:
        raise NotApplicableError("the probe gives no reference log-probabilities")
    gap = (m.update.reference_logp - m.update.logp)[m.batch.owned.bool()]
    return float((gap.exp() - 1 - gap).mean())


def stray_gradient(m: Measured) -> float:
    """|gradient with all advantages 0| / |gradient|. Healthy exactly 0; entropy_collapse about .4.

    The gradient form: an update would also move under weight decay or Adam's momentum. A KL to a copy of the policy has
    no gradient at its start, so a KL term does not disturb the check there.
    """
    if m.settings.entropy_coef:
        raise NotApplicableError("an entropy bonus is configured: its gradient is meant")
    norm = m.own.gradient.norm()
    if not bool(norm > 0):
        raise NotApplicableError("the gradient of this batch is 0")
    zero = ProbePrepared(m.prepared.mask, m.prepared.old_logp, m.prepared.advantages * 0)
    return float(m.probe.backward(m.batch, zero, accumulate=True).gradient.norm() / norm)


def layout_error(m: Measured) -> float:
    """How far the advantages are from belonging to their own prompt's rewards: 0 if they are, at most 1.

    Per prompt, 1 - |correlation| of advantage and reward where rewards differ, and |advantage| relative to the largest of
    the batch where they do not. Any affine baseline gives 0, a negated one too (that is check 8). Shuffled groups: 1.
    """
    import torch

    m.need_groups()
    advantages, rewards = m.prepared.advantages.double(), m.batch.rewards.double()
    errors, spread = [0.0], False
    for rows in m.rows_by_prompt():
        a, r = advantages[rows], rewards[rows]
        if bool(r.max() > r.min()):
            spread = True
            same = bool(a.max() == a.min())
            errors.append(1.0 if same else 1 - abs(float(torch.corrcoef(torch.stack([a, r]))[0, 1])))
        else:
            errors.append(float(a.abs().max() / advantages.abs().max().clamp(min=1e-12)))
    if not spread:
        raise NotApplicableError("every group has equal rewards")
    return max(errors)


@dataclass(frozen=True, slots=True)
class Check:
    """A numbered identity: what to measure, and the limit that the value must stay below (or exceed, if `above`)."""

    number: int
    id: str
    title: str
    threshold: float
    measure: Callable[[Measured], float]
    above: bool = False

    def run(self, measured: Measured) -> CheckResult:
        """Measure and judge; NaN fails."""
        try:
            value = self.measure(measured)
        except NotApplicableError as reason:
            return CheckResult(self.number, self.id, self.title, self.threshold, None, None, str(reason))
        threshold = measured.settings.gap_tolerance if self.measure is sampler_gap else self.threshold
        passed = value > threshold if self.above else value <= threshold
        return CheckResult(self.number, self.id, self.title, threshold, value, passed)


CHECKS: tuple[Check, ...] = (
    Check(1, "mask_is_policy_tokens", "mask = policy tokens", 0, mask_errors),
    Check(2, "sampler_equals_trainer", "sampler = trainer log-prob", 1e-4, sampler_gap),
    Check(3, "ratio_one_before_step", "ratio = 1 before any step", 1e-4, first_ratio_error),
    Check(4, "group_advantage_mean_zero", "group advantage mean = 0", 1e-5, group_mean),
    Check(5, "loss_invariant_to_padding", "loss invariant to padding", 1e-5, padding_error),
    Check(6, "accumulated_equals_one_pass", "accumulated = one-pass gradient", 1e-4, accumulation_error),
    Check(7, "old_logp_frozen", "old_logp frozen in the update", 0, later_ratio_error, above=True),
    Check(8, "update_follows_advantage", "update raises log pi where A > 0", 0, update_direction, above=True),
    Check(9, "kl_ref_positive_after_step", "KL to reference > 0 after a step", 0, reference_kl, above=True),
    Check(10, "no_advantage_no_gradient", "no advantage, no gradient", 1e-4, stray_gradient),
    Check(11, "advantages_match_groups", "advantages belong to their own group", 1e-3, layout_error),
)


def run_checks(probe: TrainerProbe, only: Iterable[int | str] | None = None) -> list[CheckResult]:
    """Run the checks (all, or those whose number or id is in `only`) on one batch of `probe`, in order of number.

    Raises RltriageError for an unknown number or id; what the probe raises passes through.
    """
    wanted = None if only is None else {str(name) for name in only}
    known = {str(check.number) for check in CHECKS} | {check.id for check in CHECKS}
    if wanted is not None and (unknown := sorted(wanted - known)):
        ids = ", ".join(f"{check.number} {check.id}" for check in CHECKS)
        raise RltriageError(f"no check is called {unknown[0]!r}: write one of {ids}")
    measured = Measured(probe)
    return [c.run(measured) for c in CHECKS if wanted is None or {str(c.number), c.id} & wanted]


def as_metrics(results: Iterable[CheckResult]) -> dict[str, float]:
    """Row metrics `check_<id>` (1 passed, 0 failed) and `check_<id>_value`; nothing for checks that do not apply."""
    row: dict[str, float] = {}
    for result in results:
        if result.passed is not None and result.value is not None:
            row[f"check_{result.check}"] = float(result.passed)
            row[f"check_{result.check}_value"] = result.value
    return row
