"""From failed invariants to faults: the smallest set of faults whose rows of the check-by-fault matrix give what failed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from rltriage.rules.model import Fault

CHECKS: tuple[str, ...] = (
    "mask_is_policy_tokens",
    "sampler_equals_trainer",
    "ratio_one_before_step",
    "group_advantage_mean_zero",
    "loss_invariant_to_padding",
    "accumulated_equals_one_pass",
    "old_logp_frozen",
    "update_follows_advantage",
    "kl_ref_positive_after_step",
    "no_advantage_no_gradient",
    "advantages_match_groups",
    "old_logp_independent_of_rows",
    "logp_invariant_to_padding",
    "sampler_follows_update",
    "rewards_belong_to_rows",
    "rows_use_their_budget",
    "lr_follows_schedule",
)
"""The invariants' ids in the order of their numbers, 1 to 17; a row carries each as `check_<id>` (1 passed, 0 failed)."""

_METRICS = tuple((check, f"check_{check}") for check in CHECKS)
_LARGEST_SET = 3


@dataclass(frozen=True, slots=True)
class Decoding:
    """What the checks say: `sets` are the smallest explanations (ties in catalogue order), each a tuple of fault ids.

    `exact` is False when no set of at most three faults gives the failed checks exactly; `sets` then holds the single
    faults that come closest.
    """

    failed: frozenset[str]
    passed: frozenset[str]
    sets: tuple[tuple[str, ...], ...]
    exact: bool = True

    @property
    def faults(self) -> tuple[str, ...]:
        """Every fault of every tied set, once, in order."""
        return tuple(dict.fromkeys(fault for group in self.sets for fault in group))


def read_checks(metrics: Mapping[str, float]) -> dict[str, bool]:
    """The results that one row carries: check id -> passed. A check that could not judge is absent from the row."""
    return {check: metrics[name] >= 0.5 for check, name in _METRICS if name in metrics and metrics[name] == metrics[name]}


def decode(results: Mapping[str, bool], faults: Mapping[str, Fault]) -> Decoding:
    """Explain the failed checks by the fewest faults; checks without a result are wild cards (DESIGN, section 4).

    A fault fits when all of its `failing_checks` failed; its `may_fail` explain a failure where there is one.
    """
    failed = frozenset(check for check, passed in results.items() if not passed)
    passed = frozenset(check for check, passed in results.items() if passed)
    if not failed:
        return Decoding(failed, passed, ())
    judged = failed | passed
    rows = {fault.id: fault.failing_checks & judged for fault in faults.values()}
    covers = {fault.id: rows[fault.id] | fault.may_fail & failed for fault in faults.values()}
    fitting = [fault for fault, row in rows.items() if row <= failed and covers[fault]]
    for size in range(1, _LARGEST_SET + 1):
        sets = tuple(
            group
            for group in itertools.combinations(fitting, size)
            if frozenset().union(*(covers[fault] for fault in group)) == failed
        )
        if sets:
            return Decoding(failed, passed, sets)
    distance = {fault: len(cover ^ failed) for fault, cover in covers.items() if cover & failed}
    closest = min(distance.values(), default=0)
    return Decoding(failed, passed, tuple((fault,) for fault, far in distance.items() if far == closest), exact=False)
