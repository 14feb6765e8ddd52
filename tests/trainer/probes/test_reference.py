"""Checks 12 to 17 on the reference trainer, and the limits of a precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rltriage.engine.rows import Row
from rltriage.rules.errors import RltriageError
from rltriage.trainer import TrainConfig, reference_probe
from rltriage.trainer.checks import ALL_CHECKS, run_all_checks
from rltriage.trainer.loop import train
from rltriage.trainer.losses import token_logps
from rltriage.trainer.parallel import Job
from rltriage.trainer.policy import load_base
from rltriage.trainer.probe import CHECKED
from rltriage.trainer.probes.reference import FullReferenceProbe, full_reference_probe, train_checked

SMALL = replace(CHECKED, tasks_per_step=3)  # fewer episodes, which is enough for these
SEES = {
    None: set(),
    "dropout_active": {3, 12},
    "weights_not_synced": {14},
    "batch_misalignment": {15},
    "advantage_blowup": {15},
    "group_id_wrong": {11},
    "eos_mismatch": {1},
    "truncation_cap": {16},
    "lr_schedule": {17},
    "verifier_failure": set(),  # begins at step 8
    "nonfinite": set(),  # strikes at step 8
}


@pytest.mark.parametrize("fault", SEES)
def test_each_extra_fault_fails_exactly_its_checks(fault: str | None) -> None:
    """What the chapter's nine let pass is seen by the checks that were added for it, and by no other of these."""
    results = run_all_checks(full_reference_probe(fault, SMALL), only=[1, 2, 3, *range(11, 18)])
    assert {r.number for r in results if r.passed is False} == SEES[fault]
    assert all(r.passed is not None for r in results)


def test_a_probe_without_the_optional_methods_is_not_blamed() -> None:
    """The checks name the method that they miss; padding needs none."""
    results = {r.number: r for r in run_all_checks(reference_probe(config=SMALL), only=range(12, 18))}
    assert results[13].passed is True
    methods = {12: "reorder", 14: "gap_after_update", 15: "rescore", 16: "cut_short", 17: "learning_rates"}
    for number, method in methods.items():
        assert results[number].passed is None and results[number].reason == f"the probe has no method {method}"


@pytest.mark.parametrize(
    ("fault", "config", "reason"), [("temperature_mismatch", {}, "check 2 fails"), (None, {"lr": 0.0}, "lr is 0")]
)
def test_the_sampler_after_an_update_is_judged_only_where_it_can_be(fault: Any, config: Any, reason: str) -> None:
    """An engine that disagrees before the update, or an update that moves nothing, says nothing about the sync."""
    (result,) = run_all_checks(full_reference_probe(fault, TrainConfig(**config)), only=[14])
    assert result.passed is None and reason in result.reason


class Coarse(FullReferenceProbe):
    """An fp32 trainer whose sampler computes in bf16; `temperature` is the sampler's."""

    temperature = 1.0
    name = "bf16"

    def precision(self) -> str:
        return self.name

    def sample(self) -> Any:
        batch = super().sample()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logits = self._policy(batch.data.ids)[:, :-1].float() / self.temperature
        return replace(batch, sample_logp=torch.where(batch.owned, token_logps(logits, batch.data.ids), 0.0))


def gap(fault: str | None = None, **attributes: Any) -> Any:
    """Check 2 with a bf16 sampler."""
    probe = type("Probe", (Coarse,), attributes)(load_base(), SMALL, fault)
    return run_all_checks(probe, only=[2])[0]


def test_bf16_numerics_pass_and_faults_of_any_size_do_not() -> None:
    """p99 at .3 nats: below it the engine's rounding, above it a temperature of .7 and a mask shifted by one."""
    assert gap().passed is True and gap().threshold == 0.3
    assert gap(name="fp32").passed is False
    assert gap(temperature=0.7).passed is False
    assert gap("mask_shift").passed is False


def test_one_placeholder_among_many_tokens_is_seen_at_any_precision() -> None:
    """A mask that takes in a single token that nobody sampled escapes every percentile, not the placeholder."""

    def prepare(self: Any, batch: Any) -> Any:
        made = Coarse.prepare(self, batch)
        mask, (row, column) = made.mask.clone(), (~batch.owned).nonzero()[60].tolist()
        mask[row, column] = 1
        return replace(made, mask=mask)

    found = gap(prepare=prepare)
    assert found.passed is False and found.value > 1


def test_the_probes_own_tolerance_wins() -> None:
    """Whoever has measured their pair sets `gap_tolerance`, also in bf16."""
    settings = lambda self: replace(Coarse.settings(self), gap_tolerance=1e-5)  # noqa: E731
    assert gap(settings=settings).passed is False and gap(settings=settings).threshold == 1e-5


def test_unknown_precisions_and_checks_are_refused_with_what_exists() -> None:
    """A typo says what to write."""
    with pytest.raises(RltriageError, match="no limits for the precision 'fp8': write one of fp32, fp16, bf16"):
        gap(name="fp8")
    with pytest.raises(RltriageError, match="no check is called '18': write one of 1 mask_is_policy_tokens"):
        run_all_checks(reference_probe(), only=[18])


def test_a_runs_first_row_holds_what_every_check_found() -> None:
    """All of them, so that rules see them; what does not apply is absent, and the rest of the row is the plain run's."""
    rows: list[Row] = []
    config = TrainConfig(tasks_per_step=2, eval_episodes=1)
    train_checked(Job("dropout_active", steps=2, config=config), rows.append)
    found = {name: value for name, value in rows[0].metrics.items() if name.startswith("check_")}
    assert {check.id for check in ALL_CHECKS if f"check_{check.id}" in found} == {
        check.id for check in ALL_CHECKS if check.number != 9
    }
    assert found["check_old_logp_independent_of_rows"] == 0 and found["check_rewards_belong_to_rows"] == 1
    plain = train(config, fault="dropout_active", steps=2, checks=False)
    assert [{**row.metrics, **(found if row.step == 0 else {})} for row in plain] == [row.metrics for row in rows]


def test_checks_are_numbered_in_order() -> None:
    """Numbers are what people write behind `--only`, ids become metric names."""
    assert [check.number for check in ALL_CHECKS] == list(range(1, 18))
    assert len({check.id for check in ALL_CHECKS}) == 17
