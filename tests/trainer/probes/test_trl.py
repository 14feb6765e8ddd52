"""The checks on a real TRL GRPOTrainer: a healthy one passes in every configuration, a planted fault fails its check.

Each fault is planted where the real bug would live, by a subclass of the trainer.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="trl is not installed")

from trl import GRPOTrainer

from rltriage.trainer.checks import run_all_checks
from rltriage.trainer.probes.trl import GRPOProbe


def failed(trainer: Any, only: Any = None, **options: Any) -> set[int]:
    """Numbers of the checks that fail."""
    return {r.number for r in run_all_checks(GRPOProbe(trainer, **options), only) if r.passed is False}


def reasons(trainer: Any, **options: Any) -> dict[int, str]:
    """Why checks do not apply, by number."""
    return {r.number: r.reason for r in run_all_checks(GRPOProbe(trainer, **options)) if r.passed is None}


class LosesLastToken(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """The mask ends before the token that ends the completion; no metric of TRL's moves."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        mask = output["completion_mask"]
        output["completion_mask"] = mask * (mask.cumsum(-1) < mask.sum(-1, keepdim=True))
        return output


class Negated(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """The update descends on the reward."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = -output["advantages"]
        return output


class Undivided(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Micro-batch losses are summed, not averaged."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return super()._compute_loss(model, inputs) * self.current_gradient_accumulation_steps


class TokenMeanOfMicrobatch(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Each micro-batch is divided by its own tokens: its short completions weigh more; no metric of TRL's moves."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        own = inputs["completion_mask"].sum() * self.args.steps_per_generation
        return super()._compute_loss(model, {**inputs, "num_items_in_batch": own})


class Rolled(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Log-probabilities belong to the token before."""

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        logps, *rest = super()._get_per_token_logps_and_entropies(*arguments, **named)
        return logps.roll(1, -1), *rest


class NoAttentionMask(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Left padding is attended to."""

    def _get_per_token_logps_and_entropies(self, model: Any, ids: Any, attention: Any, *rest: Any, **named: Any) -> Any:
        return super()._get_per_token_logps_and_entropies(model, ids, torch.ones_like(attention), *rest, **named)


class LiveReference(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """The reference is the policy object."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ref_model = self.model


class ForgetsOldLogp(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """The loss falls back on the live log-probabilities, so the ratio is 1 in every update."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        output.pop("old_per_token_logps", None)
        return output


class Moved(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """A verifier that returns its results in another order."""

    def _calculate_rewards(self, *arguments: Any) -> Any:
        return super()._calculate_rewards(*arguments).roll(1, 0)


class Dropout(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Dropout stays on while log-probabilities are computed."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for layer in self.model.model.layers:
            layer.self_attn.attention_dropout = 0.3


def test_a_healthy_trainer_passes_every_check(grpo: Any) -> None:
    """With a reference, two updates a batch and two micro-batches; only what the probe cannot offer is n/a."""
    trainer = grpo(beta=0.04, num_iterations=2)
    assert failed(trainer, rescore=True) == set()
    assert set(reasons(trainer, rescore=True)) == {14}


@pytest.mark.parametrize(
    ("fields", "absent"),
    [
        ({}, {7, 9}),  # TRL's defaults
        ({"beta": 0.04, "steps_per_generation": 4}, set()),  # updates between generation and use: the ratio leaves 1
        ({"gradient_accumulation_steps": 1, "per_device_train_batch_size": 16}, {6, 7, 9}),
        ({"loss_type": "bnpo"}, {6, 7, 9}),
        ({"loss_type": "grpo", "scale_rewards": "none", "sync_ref_model": True, "beta": 0.04}, {7}),
        ({"loss_type": "dr_grpo", "importance_sampling_level": "sequence", "num_iterations": 2}, {9}),
        ({"mask_truncated_completions": True, "temperature": 0.7, "max_completion_length": 20}, {7, 9}),
        ({"bf16": True, "beta": 0.04, "num_iterations": 2}, set()),
    ],
    ids=lambda value: ",".join(value) or "defaults" if isinstance(value, dict) else "",
)
def test_no_configuration_raises_a_false_alarm(grpo: Any, fields: Any, absent: set[int]) -> None:
    """What a setting makes meaningless is n/a with a reason, everything else passes."""
    trainer = grpo(**fields)
    assert failed(trainer) == set()
    found = reasons(trainer)
    assert set(found) == absent | {14, 15} and all(found.values())


@pytest.mark.parametrize(
    ("fault", "numbers"),
    [
        (LosesLastToken, {1}),
        (Negated, {8}),
        (Undivided, {6}),
        (TokenMeanOfMicrobatch, {6}),
        (Rolled, {2, 13}),
        (NoAttentionMask, {2, 13}),
        (LiveReference, {9}),
        (ForgetsOldLogp, {7}),
        (Dropout, {2, 3, 5, 6, 12, 13}),
        (Moved, {15}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_planted_fault_fails_its_checks(grpo: Any, fault: Any, numbers: set[int]) -> None:
    """Exactly the checks of the fault fail."""
    assert failed(grpo(fault, beta=0.04, num_iterations=2), rescore=True) == numbers
