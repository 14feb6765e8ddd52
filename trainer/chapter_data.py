"""The chapter's runs and the numbers it prints for them (sections 18.2 to 18.6). Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltriage.trainer.config import TrainConfig
from rltriage.trainer.parallel import Job

Pair = tuple[float, float]  # mean of the first four steps, mean of the last four


@dataclass(frozen=True, slots=True)
class ChapterRun:
    """One of the chapter's runs: how to repeat it, what it printed, and which metric betrays its fault.

    `compare` is the healthy partner that differs in the fault only. `held_out` is the last held-out pass rate.
    """

    name: str
    job: Job
    printed: Mapping[str, Pair]
    held_out: float
    compare: str = "healthy"
    telltale: str = ""


RUNS: tuple[ChapterRun, ...] = (
    ChapterRun(
        "healthy",
        Job(),
        {
            "reward": (0.191, 0.656),
            "entropy": (0.531, 0.195),
            "approx_kl": (0.00112, 0.000442),
            "clip_frac": (0.00385, 0),
            "ratio_max": (1.12, 1.14),
            "grad_norm": (0.191, 0.229),
            "zero_adv_frac": (0.312, 0.375),
            "reads": (0.473, 1.09),
            "malformed": (0.0625, 0.0664),
            "hardcode": (0.0703, 0),
            "turns": (3.52, 4.26),
            "logp_gap": (3.79e-8, 8.86e-9),
        },
        0.70,
    ),
    ChapterRun(
        "mask_shift",
        Job("mask_shift"),
        {
            "reward": (0.188, 0.52),
            "logp_gap": (3.75, 3.1),
            "clip_frac": (0.0129, 0.0437),
            "ratio_max": (1.23, 2.96),
            "grad_norm": (0.478, 1.5),
            "entropy": (0.579, 0.795),
            "malformed": (0.043, 0.121),
            "reads": (0.418, 1.2),
            "zero_adv_frac": (0.312, 0.0938),
        },
        0.47,
        telltale="logp_gap",
    ),
    ChapterRun(
        "stale_old_logp",
        Job("stale_old_logp"),
        {
            "reward": (0.207, 0.715),
            "logp_gap": (4.32e-8, 1.51e-8),
            "clip_frac": (0, 0),
            "ratio_max": (1, 1),
            "grad_norm": (0.225, 0.238),
        },
        0.68,
        telltale="ratio_max",
    ),
    ChapterRun(
        "entropy_collapse",
        Job("entropy_collapse"),
        {"reward": (0.176, 0.176), "entropy": (0.445, 0.0268), "reads": (0.191, 0.00781), "zero_adv_frac": (0.344, 0.844)},
        0.20,
        telltale="entropy",
    ),
    ChapterRun(
        "healthy, 12 turns",
        Job(steps=16, config=TrainConfig(max_turns=12)),
        {
            "reward": (0.23, 0.488),
            "length_pass": (13.9, 13.2),
            "length_fail": (16.1, 12.8),
            "turns": (4.34, 3.98),
            "reads": (0.57, 1.08),
        },
        0.55,
    ),
    ChapterRun(
        "length_bias",
        Job("length_bias", steps=16),
        {
            "reward": (0.195, 0.512),
            "length_pass": (14.3, 12.7),
            "length_fail": (20.8, 33.9),
            "turns": (5.45, 6.77),
            "reads": (0.75, 2.71),
        },
        0.55,
        compare="healthy, 12 turns",
        telltale="length_fail",
    ),
    ChapterRun(
        "sign_flip",
        Job("sign_flip", steps=8),
        {
            "reward": (0.125, 0.0273),
            "approx_kl": (0.00145, 0.000167),
            "entropy": (0.551, 0.501),
            "malformed": (0.0664, 0.0312),
            "turns": (4.21, 5.48),
        },
        0.03,
        telltale="turns",
    ),
    ChapterRun(
        "reward_hacking",
        Job("reward_hacking"),
        {"reward": (0.273, 0.969), "pass_rate": (0.176, 0.00781), "hardcode": (0.125, 0.969), "reads": (0.418, 0.0352)},
        0.0,
        telltale="pass_rate",
    ),
    ChapterRun(
        "lr_too_high",
        Job("lr_too_high", steps=8),
        {
            "reward": (0.043, 0),
            "approx_kl": (0.0953, 0.00214),
            "entropy": (0.417, 1.08),
            "malformed": (0.762, 2.89),
            "turns": (4.75, 6),
        },
        0.0,
        telltale="malformed",
    ),
    ChapterRun(
        "accum_norm",
        Job("accum_norm"),
        {
            "reward": (0.219, 0.668),
            "approx_kl": (0.00129, 0.000197),
            "entropy": (0.499, 0.204),
            "malformed": (0.0391, 0.16),
            "turns": (3.64, 4.38),
        },
        0.65,
        telltale="grad_norm",
    ),
    ChapterRun(
        "temperature_mismatch",
        Job("temperature_mismatch"),
        {
            "reward": (0.227, 0.156),
            "logp_gap": (0.0752, 0.0285),
            "clip_frac": (0.0218, 0),
            "ratio_max": (2.65, 2.96),
            "grad_norm": (0.202, 0),
            "entropy": (0.47, 0.156),
            "malformed": (0, 0),
            "reads": (0.0859, 0.00391),
            "zero_adv_frac": (0.281, 1),
        },
        0.15,
        telltale="ratio_first_max",
    ),
    ChapterRun(
        "KL 0.1",
        Job(steps=8, config=TrainConfig(kl_coef=0.1)),
        {"reward": (0.203, 0.27), "kl_ref": (0.0142, 0.0571)},
        0.23,
    ),
    ChapterRun(
        "ref_is_policy",
        Job("ref_is_policy", steps=8),
        {"reward": (0.191, 0.277), "kl_ref": (0, 0)},
        0.28,
        compare="KL 0.1",
        telltale="kl_ref",
    ),
)

# Step 0, last, minimum, median and maximum of the healthy run.
HEALTHY_RANGE: Mapping[str, tuple[float, float, float, float, float]] = {
    "reward": (0.172, 0.656, 0.172, 0.438, 0.859),
    "eval_pass": (0.1, 0.7, 0.1, 0.525, 0.7),
    "entropy": (0.565, 0.21, 0.169, 0.355, 0.565),
    "approx_kl": (0.00322, 0.000681, 9.61e-5, 0.000303, 0.00322),
    "clip_frac": (0.0139, 0, 0, 0, 0.0139),
    "ratio_max": (1.21, 1.27, 1.03, 1.11, 1.27),
    "grad_norm": (0.204, 0.243, 0.155, 0.226, 0.288),
    "length": (13.2, 14.4, 11, 13.7, 14.4),
    "zero_adv_frac": (0.375, 0.375, 0, 0.25, 0.625),
    "reads": (0.312, 1.08, 0.312, 1.11, 1.61),
    "malformed": (0.0625, 0.0469, 0.0312, 0.0781, 0.188),
    "hardcode": (0.0781, 0, 0, 0.0156, 0.125),
    "logp_gap": (3.05e-8, 6.98e-9, 6.98e-9, 3.07e-8, 5.02e-8),
}

# approx_kl of steps 0 to 7.
FIRST_KL: Mapping[str, tuple[float, ...]] = {
    "healthy": (0.0032, 0.0007, 0.0003, 0.0003, 0.0006, 0.0005, 0.0006, 0.0002),
    "lr_too_high": (0.3098, 0.0642, 0.0049, 0.0024, 0.0038, 0.0021, 0.0018, 0.0009),
}

# Failing checks of each code fault (section 18.6); the chapter has nine checks, so the entropy penalty fails none.
MATRIX: Mapping[str, frozenset[int]] = {
    "healthy": frozenset(),
    "mask_shift": frozenset({1, 2, 5}),
    "stale_old_logp": frozenset({7}),
    "entropy_collapse": frozenset(),
    "sign_flip": frozenset({8}),
    "accum_norm": frozenset({6}),
    "temperature_mismatch": frozenset({2, 3}),
    "ref_is_policy": frozenset({9}),
}

# Figure 18.3, rebuilt from the text of sections 18.2 to 18.7: symptom, first test, faults by number.
TRIAGE: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("logp_gap above noise", "checks 1 and 2: mask, log-probs", (1, 9)),
    ("ratio off 1 before any step", "check 3, then check 1", (9, 1)),
    ("clip_frac 0 and ratio 1 throughout", "check 7: old_logp frozen", (2,)),
    ("kl_ref exactly 0, kl_coef > 0", "check 9: KL after one step", (10,)),
    ("grad_norm above the reference", "check 1, then the learning rate", (1, 7)),
    ("approx_kl large in the first steps", "checks 1 to 3, then lr / 10", (7, 1)),
    ("malformed calls rise", "checks 1 to 3, then lr / 10", (7, 1)),
    ("reward falls, optimizer healthy", "check 8: update follows A", (5,)),
    ("entropy falls ahead of reward", "checks 2, 3, 10: entropy term", (3, 9)),
    ("reads vanish, all groups fail", "checks 2, 3, 10: entropy term", (3, 9)),
    ("failing episodes grow", "loss aggregation mode", (4,)),
    ("reward up, held-out not", "independent verifier, 20 episodes", (6,)),
    ("slower than the reference, nothing else", "all checks, 6 above all", (8, 1)),
)
