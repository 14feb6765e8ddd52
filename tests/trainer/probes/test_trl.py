"""The checks on a real TRL GRPOTrainer: a healthy one passes in every configuration, a planted fault fails its check.

Each fault is planted where the real bug would live, by a subclass of the trainer.
"""

from __future__ import annotations

import copy
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="trl is not installed")

from click.testing import CliRunner
from trl import GRPOTrainer

from rltriage.cli.checks import command
from rltriage.trainer.checks import run_all_checks
from rltriage.trainer.probes.trl import GRPOProbe, _group_names


def judged(trainer: Any, **options: Any) -> tuple[set[int], dict[int, str]]:
    """Numbers of the checks that fail, and why others do not apply."""
    results = run_all_checks(GRPOProbe(trainer, **options))
    failing = {r.number for r in results if r.passed is False}
    return failing, {r.number: r.reason for r in results if r.passed is None}


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


def interleaved(rows: Any, size: int) -> Any:
    """One row of each group after the other, so that a block of `size` rows mixes prompts."""
    return [row for k in range(size) for row in rows[k::size]]


class Interleaved(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Rows are interleaved before completions are generated and advantages computed in blocks."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return super()._generate_and_score_completions(interleaved(inputs, self.num_generations))


class InterleavedEarlier(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """The same, one method earlier."""

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return super()._prepare_inputs(interleaved(generation_batch, self.num_generations))


class SampledSingly(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """A sampler of one's own that does not repeat a prompt for its group."""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return torch.utils.data.SequentialSampler(dataset or self.train_dataset)


class WholeGroupsMoved(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """No fault: groups come in another order, rows stay with theirs."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        size = self.num_generations
        return super()._generate_and_score_completions(inputs[size:] + inputs[:size])


class EndsEarly(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Completions are cut at half their budget, or lose the token that ended them."""

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        completions, record = super()._generate_single_turn(*arguments, **named)
        return [row[: self.max_completion_length // 2] for row in completions], record


class Engine(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """Generation by an engine with weights of its own, which it records by; here it takes new ones when TRL says so."""

    follows = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._engine, self._loaded_at = copy.deepcopy(self.model.state_dict()), -1

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **named: Any) -> Any:
        if self.follows and self.state.global_step != self._loaded_at:
            self._engine = copy.deepcopy(self.model.state_dict())
            self._loaded_at = self.state.global_step
        completions, _ = super()._generate_single_turn(prompt_ids, *rest, **named)
        return completions, [self._record(*row) for row in zip(prompt_ids, completions, strict=True)]

    def _record(self, prompt: list[int], completion: list[int]) -> list[float]:
        ids = torch.tensor([prompt + completion])
        with torch.no_grad():
            logits = torch.func.functional_call(self.model, self._engine, kwargs={"input_ids": ids}).logits
            logps = logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return logps.gather(-1, torch.tensor(completion)[:, None])[:, 0].tolist()


class StaleEngine(Engine):
    """The engine keeps the weights that it started with."""

    follows = False


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
    failed, absent = judged(grpo(beta=0.04, num_iterations=2), rescore=True)
    assert failed == set() and set(absent) == {14, 17}


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
    failed, found = judged(grpo(**fields))
    assert failed == set()
    assert set(found) == absent | {14, 15, 17} and all(found.values())


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
        (Interleaved, {11}),
        (InterleavedEarlier, {11}),
        (SampledSingly, {11}),
        (WholeGroupsMoved, set()),
        (EndsEarly, {16}),
        (Engine, set()),
        (StaleEngine, {14}),
        (Dropout, {2, 3, 5, 6, 12, 13}),
        (Moved, {15}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_planted_fault_fails_its_checks(grpo: Any, fault: Any, numbers: set[int]) -> None:
    """Exactly the checks of the fault fail."""
    assert judged(grpo(fault, beta=0.04, num_iterations=2), rescore=True)[0] == numbers


def test_the_trainer_is_left_as_it_was(grpo: Any) -> None:
    """Weights, gradients, counters, state and logs: a run that follows is the run without a check."""
    trainer = grpo(Engine, beta=0.04)
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    before = (dict(vars(trainer.state)), trainer._step, copy.deepcopy(trainer._metrics), torch.random.get_rng_state())
    run_all_checks(GRPOProbe(trainer))
    assert all(torch.equal(value, weights[name]) for name, value in trainer.model.state_dict().items())
    assert all(p.grad is None for p in trainer.model.parameters())
    assert (dict(vars(trainer.state)), trainer._step, trainer._metrics) == before[:3]
    assert torch.equal(torch.random.get_rng_state(), before[3]) and trainer._buffered_inputs is None


def test_two_tasks_with_one_prompt_are_two_groups(grpo: Any) -> None:
    """The other columns of a row, an answer above all, belong to its name; what a rollout adds to a row does not."""
    rows = [{"prompt": "w1", "answer": a, "trace": k} for a in "xy" for k in range(2)]
    names = _group_names(rows, ["prompt", "answer"], 2)
    assert names[0] == names[1] != names[2] == names[3]


def test_the_command_checks_a_trl_trainer(grpo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rltriage check --probe MODULE:FUNCTION`: exit 1 for a mask, a sign and an accumulation fault, 0 without."""
    for trainer_class, code, line in (
        (GRPOTrainer, 0, "11 advantages belong to their own group"),
        (LosesLastToken, 1, " 1 mask = policy tokens"),
        (Negated, 1, " 8 update raises log pi where A > 0"),
        (Undivided, 1, " 6 accumulated = one-pass gradient"),
    ):
        module = ModuleType("my_trl_probe")
        module.make = lambda trainer_class=trainer_class: GRPOProbe(grpo(trainer_class, beta=0.04))  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "my_trl_probe", module)
        found = CliRunner().invoke(command, ["--only", "1,6,8,11", "--probe", "my_trl_probe:make"])
        assert found.exit_code == code
        printed = next(text for text in found.stdout.splitlines() if text.startswith(line))
        assert ("  FAIL  " if code else "  ok") in printed
