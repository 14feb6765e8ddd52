"""A `TrainerProbe` around a live TRL `GRPOTrainer`, tried with TRL 1.16 on the CPU. Source: issue 4, `docs/probes.md`.

Every measured number comes out of the trainer's own methods, which a subclass may override; what the checks compare it
with is recorded beside them: the tokens as `_generate` returned them, the rewards as `_calculate_rewards` returned them,
and log-probabilities of each completion alone, unpadded, at the temperature that generation really uses.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rltriage.rules.errors import RltriageError
from rltriage.trainer.invariants import (
    NotApplicableError,
    ProbeBatch,
    ProbeGradient,
    ProbePrepared,
    ProbeSettings,
    ProbeUpdate,
)

SEED = 1
STOPS = {"stop", "stop_strings", "stop_token_ids", "stopping_criteria", "max_time"}
KL_FREE = 1e-4  # nats: a reference closer than this to the policy gives its KL term no gradient worth a name
# Losses or terms that are means over one micro-batch by definition: their accumulated gradient is another one on purpose.
PER_MICROBATCH = "is a mean over one micro-batch by definition, so accumulation changes the gradient on purpose"


@dataclass(frozen=True, slots=True)
class Sampled:
    """One generation batch before the trainer prepares it: rows of the data set, what was generated, what it earned.

    `generated` is the tuple that `_generate` returned, `rewards [B, functions]`, `record` the sampler's log-probabilities
    of each completion, `groups` names each row's group; `pad_to` is the multiple to which the trainer pads prompts and
    completions, None for its own.
    """

    inputs: list[Any]
    generated: tuple[Any, ...]
    rewards: Tensor
    record: list[Tensor]
    groups: list[Hashable]
    pad_to: int | None = None


class GRPOProbe:
    """The checks on `trainer`, a `trl.GRPOTrainer` that has not trained yet; one process, text only.

    Weights, optimizer, counters, logs and random state are put back after every call, so the trainer may train afterwards.
    `rescore` lets check 15 call the reward functions once more, row by row: leave it off where they cost money, are random
    or compare the rows of a group. Raises RltriageError for a trainer in several processes.
    """

    def __init__(self, trainer: Any, *, seed: int = SEED, rescore: bool = False) -> None:
        if trainer.accelerator.num_processes > 1:
            raise RltriageError("GRPOProbe checks one process: run `rltriage check` without a launcher")
        self._trainer, self._seed, self._rescore = trainer, seed, rescore
        self._batch: ProbeBatch | None = None
        self._made: dict[int, tuple[Sampled, dict[str, Any]]] = {}  # by identity of the batch, which is kept with it

    def settings(self) -> ProbeSettings:
        t = self._trainer
        return ProbeSettings(
            lr=t.args.learning_rate,
            updates_per_batch=max(1, self._microbatches * t.num_iterations // t.args.gradient_accumulation_steps),
            kl_coef=t.beta,
            entropy_coef=1.0 if t._entropy_bonus_enabled else 0.0,
            group_size=t.num_generations,
        )

    def precision(self) -> str:
        """What the trainer's forward pass computes in, which chooses the thresholds."""
        args = self._trainer.args
        return "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"

    def sample(self) -> ProbeBatch:
        if self._batch is None:
            with self._untouched():
                self._batch = self._generate()
        return self._batch

    def prepare(self, batch: ProbeBatch) -> ProbePrepared:
        with self._replaying(batch.data):
            made = self._prepared_once(batch.data)
            old = made.get("old_per_token_logps")
            return ProbePrepared(_loss_mask(made), self._logp(made) if old is None else old, made["advantages"])

    def logp(self, batch: ProbeBatch) -> Tensor:
        with self._replaying(batch.data):
            return self._logp(self._prepared_once(batch.data))

    def pad(self, batch: ProbeBatch, columns: int) -> ProbeBatch:
        """Prompts padded on the left and completions on the right, by `columns` or more, by the trainer's own code."""
        data: Sampled = batch.data
        longest = max(len(row) for part in data.generated[:2] for row in part)
        return self._observed(replace(data, pad_to=longest + columns))

    def reorder(self, batch: ProbeBatch, order: list[int]) -> ProbeBatch:
        """The same rows in another order."""
        data: Sampled = batch.data
        columns = tuple([part[i] for i in order] if part and len(part) == len(order) else part for part in data.generated)
        inputs = [data.inputs[i] for i in order]
        record = [data.record[i] for i in order]
        groups = [data.groups[i] for i in order]
        return self._observed(Sampled(inputs, columns, data.rewards[order], record, groups, data.pad_to))

    def rescore(self, batch: ProbeBatch) -> Tensor:
        """The reward of each row `[B]`, by the reward functions on that row alone."""
        if not self._rescore:
            raise NotApplicableError("GRPOProbe(trainer, rescore=True) would call the reward functions again")
        data: Sampled = batch.data
        ids, completions = data.generated[1], data.generated[3]
        with self._untouched():
            parts = [
                self._trainer._calculate_rewards([row], [row["prompt"]], [completions[i]], [ids[i]])
                for i, row in enumerate(data.inputs)
            ]
        return self._total(torch.cat(parts), batch.prompts)

    def cut_short(self, batch: ProbeBatch) -> int:
        """Completions that stop without an end token before `max_completion_length`."""
        t, limit = self._trainer, self._trainer.max_completion_length
        if limit is None or t.tools or t.rollout_func is not None or (t.args.generation_kwargs or {}).keys() & STOPS:
            raise NotApplicableError("tools, a rollout function or stop strings end completions as they like")
        ends = {*t.eos_token_ids, t._tokenizer.pad_token_id}
        return sum(len(row) < limit and row[-1] not in ends for row in batch.data.generated[1])

    def backward(self, batch: ProbeBatch, prepared: ProbePrepared, *, accumulate: bool) -> ProbeGradient:
        t = self._trainer
        if not accumulate:
            self._need_linear_loss()
        with self._replaying(batch.data), self._spying() as seen:
            made = self._prepared(batch.data)
            self._refuse_a_distant_reference(made, prepared)
            old = {"old_per_token_logps": prepared.old_logp} if "old_per_token_logps" in made else {}
            made = {**made, "advantages": prepared.advantages, **old}
            t._generate_and_score_completions = lambda inputs: made
            t.model.zero_grad()
            steps = self._microbatches if accumulate else 1
            windows = steps / t.args.gradient_accumulation_steps if accumulate else 1.0
            if not accumulate:
                t.args.steps_per_generation = t.args.gradient_accumulation_steps = t.current_gradient_accumulation_steps = 1
            losses = [t.training_step(t.model, batch.data.inputs, None) for _ in range(steps)]
            gradient = torch.cat([p.grad.flatten() for p in t.model.parameters() if p.grad is not None]) / windows
            return ProbeGradient(gradient, float(torch.stack(losses).sum()) / windows, *_extremes(seen))

    def update(self, batch: ProbeBatch) -> ProbeUpdate:
        with self._same_weights(), self._replaying(batch.data):
            later = self._train(batch.data)
            made = self._prepared(batch.data)
            return ProbeUpdate(later, self._logp(made), made.get("ref_per_token_logps"))

    def gap_after_update(self) -> float:
        """Check 2's gap on a batch that the engine samples after one update, nats; TRL hands it the new weights itself."""
        data, state = self.sample().data, self._trainer.state
        if data.generated[4] is None:
            raise NotApplicableError("no engine: the trainer samples with the very weights that it trains")
        with self._same_weights():
            with self._replaying(data):
                self._train(data)
            with self._untouched():
                state.global_step += 1  # by this TRL sees that the engine's weights are old
                again = self._generate()
            on = self.prepare(again).mask > 0
            return float((self.logp(again) - again.sample_logp).abs()[on].max())

    @property
    def _microbatches(self) -> int:
        return int(self._trainer.args.steps_per_generation)

    def _train(self, data: Sampled) -> float:
        """All updates on a batch, with a fresh optimizer; the largest |ratio - 1| after the first of them."""
        t, later = self._trainer, 0.0
        with self._spying() as seen:
            optimizer = t.create_optimizer()
            total, window = self._microbatches * t.num_iterations, t.args.gradient_accumulation_steps
            for step in range(1, total + 1):
                seen.clear()
                t.training_step(t.model, data.inputs, None)
                if step > window:
                    low, high = _extremes(seen)
                    later = max(later, high - 1, 1 - low)
                if step % window == 0 or (step == total and total < window):
                    torch.nn.utils.clip_grad_norm_(t.model.parameters(), t.args.max_grad_norm or float("inf"))
                    optimizer.step()
                    t.model.zero_grad()
        return later

    def _generate(self) -> ProbeBatch:
        """Let the trainer generate from its own data loader, and keep what `_generate` and `_calculate_rewards` passed on.

        Through `_prepare_inputs`, so that rows which a subclass moves anywhere on the way are seen as they arrive.
        """
        t = self._trainer
        inputs = next(iter(t.get_train_dataloader()))
        columns = list(inputs[0])
        kept: dict[str, Any] = {}
        generate, reward = t._generate, t._calculate_rewards

        def keep_generated(prompts: Any) -> Any:
            kept["generated"] = generate(prompts)
            return kept["generated"]

        def keep_rewards(inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
            kept["inputs"], kept["rewards"] = inputs, reward(inputs, prompts, completions, ids)
            return kept["rewards"]

        t._generate, t._calculate_rewards = keep_generated, keep_rewards
        t._prepare_inputs(inputs)
        generated, arrived = kept["generated"], list(kept["inputs"])
        groups = _group_names(arrived, [name for name in columns if name not in (generated[5] or {})], t.num_generations)
        return self._observed(Sampled(arrived, generated, kept["rewards"].clone(), self._record(generated), groups))

    def _observed(self, data: Sampled) -> ProbeBatch:
        """What the checks know about a batch without asking the code under test."""
        t, completions = self._trainer, data.generated[1]
        tools = data.generated[2] or [[1] * len(row) for row in completions]
        end = {*t.eos_token_ids, t._tokenizer.pad_token_id}
        with self._replaying(data):
            shape = self._prepared_once(data)["completion_ids"].shape
        device = t.accelerator.device
        owned, logp = torch.zeros(shape, dtype=torch.bool, device=device), torch.zeros(shape, device=device)
        for row, ids in enumerate(completions):
            logp[row, : len(ids)] = data.record[row]
            if not t.mask_truncated_completions or ids[-1] in end:
                owned[row, : len(ids)] = torch.tensor(tools[row]).bool()
        return ProbeBatch(data, owned, logp, self._total(data.rewards, data.groups), data.groups)

    def _record(self, generated: tuple[Any, ...]) -> list[Tensor]:
        """Log-probabilities of each completion: the engine's own where there is one, else of the row alone, unpadded."""
        if generated[4] is not None:
            return [torch.tensor([float("nan") if x is None else x for x in row]) for row in generated[4]]
        t, found = self._trainer, []
        for prompt, completion in zip(*generated[:2], strict=True):
            ids = torch.tensor([prompt + completion], device=t.accelerator.device)
            with torch.no_grad(), t.accelerator.autocast():
                logits = t.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
            scaled = logits[0, len(prompt) - 1 : -1].float() / t.generation_config.temperature
            found.append(scaled.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0])
        return found

    def _total(self, rewards: Tensor, names: Sequence[Hashable]) -> Tensor:
        """One reward a row `[B]` from `[B, functions]`, up to an affine map of each group; unscored rows count as mean."""
        t = self._trainer
        total = torch.zeros(len(rewards), device=rewards.device)
        for name in dict.fromkeys(names):
            rows = [row for row, other in enumerate(names) if other == name]
            part = rewards[rows]
            missing = part.isnan().all(1)
            if t.multi_objective_aggregation == "normalize_then_sum":
                part = (part - part.nanmean(0)) / (part.std(0) + 1e-4)
            summed = (part * t.reward_weights.to(part.device)).nansum(1)
            total[rows] = torch.where(missing, summed[~missing].mean(), summed)
        return total

    def _prepared_once(self, data: Sampled) -> dict[str, Any]:
        """What the trainer makes of a batch, made once: it costs forward passes of policy and reference."""
        if id(data) not in self._made:
            self._made[id(data)] = data, self._prepared(data)
        return self._made[id(data)][1]

    def _prepared(self, data: Sampled) -> dict[str, Any]:
        made: dict[str, Any] = self._trainer._generate_and_score_completions(data.inputs)
        return made

    def _logp(self, made: dict[str, Any]) -> Tensor:
        torch.manual_seed(self._seed + 1)  # dropout that is on by mistake: other noise than old_logp's, always the same
        ids = torch.cat([made["prompt_ids"], made["completion_ids"]], 1)
        attention = torch.cat([made["prompt_mask"], made["completion_mask"]], 1)
        t = self._trainer
        with torch.no_grad():
            logp: Tensor = t._get_per_token_logps_and_entropies(
                t.model, ids, attention, made["completion_ids"].shape[1], t.args.per_device_train_batch_size
            )[0]
        return logp

    def _need_linear_loss(self) -> None:
        t = self._trainer
        if self._microbatches == 1:
            raise NotApplicableError("one micro-batch per update: nothing is accumulated")
        if t.loss_type == "bnpo":
            raise NotApplicableError(f"loss_type bnpo {PER_MICROBATCH}")
        if t._entropy_bonus_enabled or t.aux_loss_enabled or t.top_entropy_quantile < 1:
            raise NotApplicableError(f"the entropy or auxiliary term {PER_MICROBATCH}")

    def _refuse_a_distant_reference(self, made: dict[str, Any], prepared: ProbePrepared) -> None:
        """Check 10 asks for no gradient without advantages; a KL term has one as soon as the policy left its reference."""
        reference = made.get("ref_per_token_logps")
        if reference is None or bool(prepared.advantages.any()):
            return
        if float((reference - self._logp(made)).abs()[prepared.mask > 0].max()) > KL_FREE:
            raise NotApplicableError("the policy is not at its reference, so the KL term has a gradient of its own")

    @contextmanager
    def _replaying(self, data: Sampled) -> Iterator[None]:
        """The trainer, with its generation and rewards replaced by the recorded ones."""
        t = self._trainer
        with self._untouched():
            t._generate = lambda prompts: data.generated
            t._calculate_rewards = lambda *_: data.rewards.clone()
            t.pad_to_multiple_of = data.pad_to or t.pad_to_multiple_of
            yield

    @contextmanager
    def _spying(self) -> Iterator[list[float]]:
        """Extremes of pi / pi_old on trained tokens, two numbers for each micro-batch that the loss sees."""
        t, seen = self._trainer, list[float]()
        inside: list[dict[str, Any]] = []
        loss, logps = t._compute_loss, t._get_per_token_logps_and_entropies

        def spy_loss(model: Any, inputs: Any) -> Any:
            inside.append(inputs)
            try:
                return loss(model, inputs)
            finally:
                inside.pop()

        def spy_logps(*args: Any, **kwargs: Any) -> Any:
            found = logps(*args, **kwargs)
            if inside and torch.is_grad_enabled():
                seen.extend(_ratio_extremes(found[0].detach(), inside[-1], t.importance_sampling_level))
            return found

        t._compute_loss, t._get_per_token_logps_and_entropies = spy_loss, spy_logps
        yield seen

    @contextmanager
    def _same_weights(self) -> Iterator[None]:
        """The weights are put back. In place of a copy of the model: TRL's patched forward stays bound to the original."""
        weights = {name: value.detach().clone() for name, value in self._trainer.model.state_dict().items()}
        try:
            yield
        finally:
            self._trainer.model.load_state_dict(weights)

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        """What else a step of the trainer changes is put back, also after an exception."""
        t = self._trainer
        attributes, arguments, state = dict(vars(t)), dict(vars(t.args)), dict(vars(t.state))
        kept = {name: copy.deepcopy(attributes[name]) for name in ("_metrics", "_logs") if name in attributes}
        training = t.model.training
        with torch.random.fork_rng():
            torch.manual_seed(self._seed)
            try:
                t.model.train()
                t._step, t._buffered_inputs, t.optimizer = 0, None, None
                t.current_gradient_accumulation_steps = t.args.gradient_accumulation_steps
                yield
            finally:
                vars(t).clear()
                vars(t).update(attributes | kept)
                vars(t.args).update(arguments)
                vars(t.state).update(state)
                t.model.zero_grad()
                t.model.train(training)


def _extremes(seen: Sequence[float]) -> tuple[float, float]:
    if not seen:
        raise NotApplicableError("the trainer's loss does not go through _compute_loss, so its ratios cannot be seen")
    return min(seen), max(seen)


def _loss_mask(made: dict[str, Any]) -> Tensor:
    mask: Tensor = made["completion_mask"]
    return mask * made["tool_mask"] if "tool_mask" in made else mask


def _ratio_extremes(logp: Tensor, inputs: dict[str, Any], level: str) -> tuple[float, float]:
    """Smallest and largest ratio of a micro-batch, per token or per sequence; 1 where the loss uses its own logp as old."""
    old = inputs.get("old_per_token_logps")
    mask = _loss_mask(inputs)
    if old is None or not bool(mask.any()):
        return 1.0, 1.0
    gap = (logp - old) * mask
    chosen = gap.sum(-1) / mask.sum(-1).clamp(min=1) if level == "sequence" else gap[mask > 0]
    ratio = chosen.exp()
    return float(ratio.min()), float(ratio.max())


def _group_names(rows: list[Any], columns: list[str], size: int) -> list[Hashable]:
    """A name for each row's group: the row of the data set, and how many groups of that row came before it.

    The whole row, because two tasks may share a prompt; `columns` leaves out what a rollout added to its own row.
    """
    seen: dict[str, int] = {}
    names: list[Hashable] = []
    for row in rows:
        text = repr([row[name] for name in columns])
        names.append((text, seen.get(text, 0) // size))
        seen[text] = seen.get(text, 0) + 1
    return names
