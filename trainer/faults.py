"""Every fault that the reference trainer can inject, in one place. Ids are DESIGN section 6's. Loads no torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from rltriage.rules.errors import RltriageError
from rltriage.trainer.config import TrainConfig

SAMPLER_TEMPERATURE = 0.7  # temperature_mismatch: what the sampler runs at while the trainer believes config.temperature
ENTROPY_PENALTY = 0.3  # entropy_collapse: nats of entropy enter the loss with this weight and the wrong sign
MICROBATCHES = 4  # accum_norm
SYNC_EVERY = 8  # weights_not_synced
DROPOUT = 0.1  # dropout_active
REWARD_NOISE = 1e-3  # advantage_blowup
OUTAGE = range(8, 12)  # verifier_failure; nonfinite strikes at its first step


@dataclass(frozen=True, slots=True)
class InjectableFault:
    """A fault and how to run it.

    `kind` says where it lives: `code` is a switch in `loop.py`, `configuration` only sets `overrides` of the config.
    `overrides` are also what a code fault needs to be visible (a KL term, a longer budget). A fair comparison is a healthy
    run with `control` as overrides. `steps` is the length of the chapter's run, 24 where the chapter has none.
    `number` is the chapter's.
    """

    id: str
    title: str
    what: str
    kind: Literal["code", "configuration"] = "code"
    number: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    control: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 24


CHAPTER_FAULTS = (
    InjectableFault(
        "mask_shift",
        "Loss mask shifted by one token",
        "The mask is aligned to ids instead of ids[1:]: each policy span loses its <call> and gains the <obs> behind it.",
        number=1,
    ),
    InjectableFault(
        "stale_old_logp",
        "old_logp recomputed before every minibatch",
        "The no-grad pass sits inside the minibatch loop, so the ratio is 1 and the clip can never act.",
        number=2,
    ),
    InjectableFault(
        "entropy_collapse",
        "Entropy bonus with the wrong sign",
        f"{ENTROPY_PENALTY} x entropy is added to the loss instead of subtracted: a penalty nobody configured.",
        number=3,
    ),
    InjectableFault(
        "length_bias",
        "Loss averaged per sequence",
        "Each failing episode carries a fixed total penalty, so the cheapest way to fail is to fail slowly.",
        "configuration",
        number=4,
        overrides={"loss_mode": "seq_mean_token_mean", "max_turns": 12},
        control={"max_turns": 12},
        steps=16,
    ),
    InjectableFault(
        "sign_flip",
        "Advantages negated",
        "The update descends on the reward.",
        number=5,
        steps=8,
    ),
    InjectableFault(
        "reward_hacking",
        "Reward from the public tests",
        "The verifier that pays is the one that hardcode_tests defeats.",
        "configuration",
        number=6,
        overrides={"reward": "public"},
    ),
    InjectableFault(
        "lr_too_high",
        "Learning rate ten times too high",
        "lr 1e-2: the first updates break the format of the calls.",
        "configuration",
        number=7,
        overrides={"lr": 1e-2},
        steps=8,
    ),
    InjectableFault(
        "accum_norm",
        "Microbatch losses averaged with equal weight",
        f"A minibatch runs as {MICROBATCHES} microbatches sorted by length, each token mean divided by {MICROBATCHES}.",
        number=8,
    ),
    InjectableFault(
        "temperature_mismatch",
        "Sampler and trainer at different temperatures",
        f"The sampler runs at {SAMPLER_TEMPERATURE} and its log-probabilities serve as old_logp of a trainer at 1.",
        number=9,
    ),
    InjectableFault(
        "ref_is_policy",
        "The KL reference is the live policy",
        "The reference is the policy object instead of a copy: KL and its gradient are exactly 0.",
        number=10,
        overrides={"kl_coef": 0.1},
        control={"kl_coef": 0.1},
        steps=8,
    ),
)

# From public bug reports, for the bench; the chapter has none of them.
FURTHER_FAULTS = (
    InjectableFault(
        "weights_not_synced",
        "Sampler keeps old weights",
        f"The sampler's copy of the policy is refreshed every {SYNC_EVERY} steps only.",
    ),
    InjectableFault(
        "dropout_active",
        "Dropout active while old_logp is computed",
        f"The no-grad pass runs in train mode with dropout {DROPOUT}.",
    ),
    InjectableFault(
        "group_id_wrong",
        "Advantages computed out of the group layout",
        "The batch is shuffled before the advantage function cuts it into groups.",
    ),
    InjectableFault(
        "advantage_blowup",
        "Reward noise divided by its own standard deviation",
        f"Rewards carry noise of {REWARD_NOISE}: groups that should be flat get advantages of normal size.",
    ),
    InjectableFault(
        "batch_misalignment",
        "Rewards belong to other episodes",
        "Rewards come back in another order than the episodes.",
    ),
    InjectableFault(
        "verifier_failure",
        "Verifier returns 0 for some steps",
        f"Every reward is 0 in steps {OUTAGE.start} to {OUTAGE.stop - 1}.",
    ),
    InjectableFault(
        "lr_schedule",
        "Learning-rate schedule stepped twice",
        "A linear decay over the run advances twice a step: the learning rate is 0 from the middle on.",
    ),
    InjectableFault(
        "nonfinite",
        "NaN in one reward",
        f"One reward of step {OUTAGE.start} is NaN; gradient clipping does not stop it.",
    ),
    InjectableFault(
        "eos_mismatch",
        "Last policy token masked out",
        "The mask ends before the token that ends the episode.",
    ),
    InjectableFault(
        "truncation_cap",
        "Episodes cut at half their turn budget",
        "The environment stops at max_turns / 2.",
    ),
)

FAULTS: Mapping[str, InjectableFault] = {fault.id: fault for fault in (*CHAPTER_FAULTS, *FURTHER_FAULTS)}


def find_fault(fault: str | None) -> InjectableFault | None:
    """The registry's entry of an id, None for None. Raises RltriageError for an unknown id, with the nearest known one."""
    if fault is None or fault in FAULTS:
        return FAULTS[fault] if fault else None
    near = difflib.get_close_matches(fault, FAULTS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FAULTS)}"
    raise RltriageError(f"the trainer cannot inject the fault {fault!r}: {hint}")


def faulty_config(config: TrainConfig, fault: str | None) -> TrainConfig:
    """`config` with the fault's overrides, in fields that still have their default value: what the user chose, stays."""
    entry = find_fault(fault)
    if entry is None:
        return config
    untouched = {f.name for f in fields(config) if getattr(config, f.name) == f.default}
    return replace(config, **{key: value for key, value in entry.overrides.items() if key in untouched})
