"""Every check of `rltriage check`: the eleven of `invariants.py`, and six more for faults that they miss.

12 and 14 to 17 need a method that a `TrainerProbe` may leave out (`Reorders`, `Resamples`, `Rescores`, `Budgets`,
`Schedules`); without it the check is n/a. Nothing here imports torch at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rltriage.rules.errors import RltriageError
from rltriage.trainer.invariants import (
    CHECKS,
    Check,
    CheckResult,
    Measured,
    NotApplicableError,
    ProbeBatch,
    TrainerProbe,
    sampler_gap,
)
from rltriage.trainer.precision import PRECISIONS

if TYPE_CHECKING:
    from torch import Tensor


class Reorders(Protocol):
    """Optional, for check 12."""

    def reorder(self, batch: ProbeBatch, order: list[int]) -> ProbeBatch:
        """The same rows in another order."""
        ...


class Resamples(Protocol):
    """Optional, for check 14."""

    def gap_after_update(self) -> float:
        """Largest |trainer - sampler| log-probability on trained tokens of a batch sampled after one update, in nats.

        The update and whatever hands the new weights to the sampler are the run's own, on a copy of the model.
        """
        ...


class Rescores(Protocol):
    """Optional, for check 15."""

    def rescore(self, batch: ProbeBatch) -> Tensor:
        """Each row's reward `[B]`, worked out again from that row alone."""
        ...


class Budgets(Protocol):
    """Optional, for check 16."""

    def cut_short(self, batch: ProbeBatch) -> int:
        """Rows that neither ended by themselves nor used up the turns or tokens that the run is configured with."""
        ...


class Schedules(Protocol):
    """Optional, for check 17."""

    def learning_rates(self) -> tuple[Sequence[float], Sequence[float]]:
        """Of a short run on a copy of the model, step by step: what the optimizer had, and what is configured."""
        ...


class Precise(Protocol):
    """Optional: without it the limits are those of fp32."""

    def precision(self) -> str:
        """A key of `precision.PRECISIONS`: what sampler or trainer compute in, the coarser of the two."""
        ...


def _optional(m: Measured, name: str) -> Callable[..., Any]:
    method: Callable[..., Any] | None = getattr(m.probe, name, None)
    if method is None:
        raise NotApplicableError(f"the probe has no method {name}")
    return method


def _precision(m: Measured) -> str:
    name: str = getattr(m.probe, "precision", lambda: "fp32")()
    return name


def row_order_error(m: Measured) -> float:
    """Largest change of an old log-probability when the rows come in reverse order, nats.

    A row must not depend on its neighbours. Healthy 1e-6; dropout_active above 1: the noise of a row belongs to its place.
    Attention across packed rows fails it too.
    """
    order = list(reversed(range(len(m.batch.rewards))))
    turned = _optional(m, "reorder")(m.batch, order)
    old, owned = m.probe.prepare(turned).old_logp[order], turned.owned[order].bool()
    return float((old[owned] - m.prepared.old_logp[m.batch.owned.bool()]).abs().max())


def padded_logp_error(m: Measured) -> float:
    """Largest change of a log-probability when 8 columns of padding are added on the side(s) that the trainer pads, nats.

    Healthy 1e-6. Check 5 compares losses, which do not depend on log-probabilities while the ratio is 1 by construction:
    left padding without attention mask or position ids shows only here.
    """
    padded = m.probe.pad(m.batch, 8)
    before, after = m.probe.logp(m.batch)[m.batch.owned.bool()], m.probe.logp(padded)[padded.owned.bool()]
    return float((after - before).abs().max())


def gap_after_update(m: Measured) -> float:
    """Check 2 after one update. Healthy 1e-6; weights_not_synced .1 or more: the sampler still runs the old weights."""
    measure = _optional(m, "gap_after_update")
    if m.settings.lr <= 0:
        raise NotApplicableError("lr is 0, so an update cannot move the policy")
    if checks_for(_precision(m), m.settings.gap_tolerance)[1].run(m).passed is False:
        raise NotApplicableError("check 2 fails: sampler and trainer disagree before any update")
    return float(measure())


def reward_error(m: Measured) -> float:
    """Largest |reward - the row's reward worked out again|. Healthy 0; batch_misalignment 1, advantage_blowup its noise."""
    again = _optional(m, "rescore")(m.batch)
    return float((again.double() - m.batch.rewards.double()).abs().max())


def rows_cut_short(m: Measured) -> float:
    """Rows that ended before their end and before their budget. Healthy 0; truncation_cap most of those that wander."""
    return float(_optional(m, "cut_short")(m.batch))


def schedule_error(m: Measured) -> float:
    """Largest |learning rate - the configured one| of a short run, relative to the peak. Healthy 0; lr_schedule 1."""
    used, meant = _optional(m, "learning_rates")()
    if not max(meant, default=0.0) > 0:
        raise NotApplicableError("lr is 0, so there is no schedule to follow")
    return float(max(abs(a - b) for a, b in zip(used, meant, strict=True)) / max(meant))


EXTRA_CHECKS: tuple[Check, ...] = (
    Check(12, "old_logp_independent_of_rows", "old_logp of a row ignores the others", 1e-4, row_order_error),
    Check(13, "logp_invariant_to_padding", "log-prob invariant to padding", 1e-4, padded_logp_error),
    Check(14, "sampler_follows_update", "sampler = trainer after an update", 1e-4, gap_after_update),
    Check(15, "rewards_belong_to_rows", "rewards belong to their rows", 1e-5, reward_error),
    Check(16, "rows_use_their_budget", "unfinished rows used their budget", 0, rows_cut_short),
    Check(17, "lr_follows_schedule", "learning rate as configured", 1e-6, schedule_error),
)
ALL_CHECKS = (*CHECKS, *EXTRA_CHECKS)
FP32_GAP = CHECKS[1].threshold


def checks_for(precision: str, gap_tolerance: float) -> list[Check]:
    """All checks with the limits, and for check 2 the statistic, of a precision; a probe's own `gap_tolerance` wins.

    Raises RltriageError for a precision without limits.
    """
    if precision not in PRECISIONS:
        raise RltriageError(f"no limits for the precision {precision!r}: write one of {', '.join(PRECISIONS)}")
    own = PRECISIONS[precision]
    found = [replace(check, threshold=own.limits.get(check.number, check.threshold)) for check in ALL_CHECKS]
    if own.gap is not sampler_gap:
        limit = own.gap_limit if gap_tolerance == FP32_GAP else gap_tolerance
        found[1] = replace(found[1], title=own.title, measure=own.gap, threshold=limit)
    return found


def run_all_checks(probe: TrainerProbe, only: Iterable[int | str] | None = None) -> list[CheckResult]:
    """Run all checks, or those whose number or id is in `only`, on one batch of `probe`, in order of number.

    Raises RltriageError for an unknown number, id or precision; what the probe raises passes through.
    """
    wanted = None if only is None else {str(name) for name in only}
    known = {name for check in ALL_CHECKS for name in (str(check.number), check.id)}
    if wanted is not None and (unknown := sorted(wanted - known)):
        ids = ", ".join(f"{check.number} {check.id}" for check in ALL_CHECKS)
        raise RltriageError(f"no check is called {unknown[0]!r}: write one of {ids}")
    measured = Measured(probe)
    checks = checks_for(_precision(measured), measured.settings.gap_tolerance)
    return [check.run(measured) for check in checks if wanted is None or {str(check.number), check.id} & wanted]
