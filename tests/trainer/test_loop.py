"""The instrumented trainer: what it is without a fault, and the signature of each fault in as few steps as it needs."""

import random
import subprocess
import sys
from statistics import fmean

import pytest
import torch

from rltriage.rules.errors import RltriageError
from rltriage.trainer import TrainConfig, faulty_config, train
from rltriage.trainer.plain import train_plain
from rltriage.trainer.policy import load_base


def mean(rows, key):
    """Mean of a metric over rows."""
    return fmean(row[key] for row in rows)


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (TrainConfig(tasks_per_step=4), 5),  # docs/chapter.md has it with all 8
        (TrainConfig(tasks_per_step=4, kl_coef=0.1, entropy_coef=0.01, loss_mode="seq_mean_token_mean"), 2),
    ],
)
def test_without_a_fault_it_is_the_plain_trainer(config, steps):
    """Bit-identical parameters and statistics (chapter 18.2: over 5 steps), with checks and evaluations interleaved."""
    plain, logged = load_base(), load_base()
    expected = train_plain(plain, config, steps=steps)
    rows = train(config, steps=steps, policy=logged)
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), logged.parameters(), strict=True))
    assert [{key: row.metrics[key] for key in expected[0]} for row in rows] == expected


def test_the_same_seed_gives_the_same_rows_and_another_seed_does_not(run):
    """Evaluation has its own generator, so it shifts nothing; the seed decides everything."""
    again = [row.metrics for row in train(steps=2, checks=False)]
    first = run(steps=2)
    assert [[row[key] for key in first[0]] for row in again] == [[row[key] for key in first[0]] for row in first]
    other = train(steps=1, seed=1, checks=False, eval_tasks=())
    assert other[0].metrics["grad_norm"] != first[0]["grad_norm"]


def test_the_users_random_state_is_not_touched():
    """Only the trainer's own generators advance."""
    torch.manual_seed(7)
    random.seed(7)
    before = torch.random.get_rng_state(), random.getstate()
    train(TrainConfig(tasks_per_step=2), steps=1)
    assert torch.equal(torch.random.get_rng_state(), before[0]) and random.getstate() == before[1]


def test_importing_the_trainer_loads_no_torch():
    """The hooks' package must cost nothing until it is used; the registry of faults and checks is free, too."""
    code = (
        "import sys, rltriage.trainer as t; t.FAULTS, t.CHECKS, t.TrainConfig, t.config_facts;"
        "sys.exit(any(m.split('.')[0] in ('torch', 'numpy', 'safetensors') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_arrive_one_by_one_with_the_callers_time():
    """`emit` sees each row as soon as its step is done, `clock` dates it."""
    seen = []
    ticks = iter([10.0, 20.0])
    config = TrainConfig(tasks_per_step=2)
    rows = train(config, steps=2, emit=seen.append, clock=lambda: next(ticks), checks=False, eval_tasks=())
    assert seen == rows and [row.step for row in seen] == [0, 1] and [row.time for row in seen] == [10.0, 20.0]


def test_row_zero_carries_the_checks():
    """Results are metrics, so that rules see them; those that do not apply are absent."""
    first, second = (row.metrics for row in train(fault="mask_shift", steps=2, eval_tasks=()))
    assert first["check_mask_is_policy_tokens"] == 0 and first["check_mask_is_policy_tokens_value"] > 100
    assert first["check_old_logp_frozen"] == 1
    assert "check_kl_ref_positive_after_step" not in first
    assert not any(name.startswith("check_") for name in second)


def test_an_unknown_fault_is_refused_with_the_nearest_known_one():
    """A typo costs one clear sentence."""
    with pytest.raises(RltriageError, match="cannot inject the fault 'mask_shfit': did you mean 'mask_shift'"):
        train(fault="mask_shfit", steps=1)


def test_a_fault_sets_what_it_needs_and_keeps_what_the_user_chose():
    """A live reference is visible only with a KL term."""
    assert faulty_config(TrainConfig(), "ref_is_policy").kl_coef == 0.1
    assert faulty_config(TrainConfig(kl_coef=0.5), "ref_is_policy").kl_coef == 0.5


def test_a_healthy_run_learns(run):
    """Reward doubles in 14 steps while every consistency metric stays at rounding error."""
    rows = run(steps=14)
    assert mean(rows[-3:], "reward") > 2 * mean(rows[:3], "reward")
    assert all(row["logp_gap"] < 1e-6 and row["logp_placeholder_frac"] == 0 for row in rows)
    assert all(row["ratio_first_max"] == 1 for row in rows)
    assert max(row["ratio_max"] for row in rows) > 1 and all("kl_ref" not in row for row in rows)


def test_mask_shift_shows_in_the_sampler_gap(run):
    """The placeholder 0 of environment tokens against the trainer's log-probability: nats instead of 1e-7."""
    rows = run("mask_shift", 2)
    assert all(row["logp_gap"] > 1 and row["logp_placeholder_frac"] > 0.1 for row in rows)
    assert rows[0]["grad_norm"] > 1.5 * run(steps=2)[0]["grad_norm"]


def test_stale_old_logp_pins_ratio_and_clip(run):
    """Exactly trivial in every row, and nothing else to see."""
    assert all(row["ratio_max"] == row["ratio_min"] == 1 and row["clip_frac"] == 0 for row in run("stale_old_logp", 2))


def test_temperature_mismatch_shows_before_any_step_and_ends_the_reading(run):
    """The gap is a few hundredths of a nat, the ratio is off 1 in the first minibatch, and the rare reads go first."""
    rows, healthy = run("temperature_mismatch", 6), run(steps=6)
    assert all(0.02 < row["logp_gap"] < 0.3 and row["ratio_first_max"] > 1.5 for row in rows[:4])
    assert mean(rows[-3:], "reads") < 0.1 and mean(rows[-3:], "reads") < rows[0]["reads"] / 3
    assert mean(healthy[-3:], "reads") > 0.1


def test_a_live_reference_is_exactly_no_reference(run):
    """KL is exactly 0 and the run is that without a KL term, bit for bit; a real reference gives a growing KL."""
    rows, without = run("ref_is_policy", 3, tasks_per_step=4), run(steps=3, tasks_per_step=4)
    assert all(row["kl_ref"] == 0 for row in rows)
    assert [r["grad_norm"] for r in rows] == [r["grad_norm"] for r in without]
    kept = run(steps=3, kl_coef=0.1, tasks_per_step=4)
    assert 0 < kept[0]["kl_ref"] < kept[-1]["kl_ref"]


def test_a_high_learning_rate_breaks_the_format(run):
    """One or two large steps at the start, then malformed calls and no reward."""
    rows = run("lr_too_high", 4)
    assert rows[0]["approx_kl"] > 0.1 and rows[-1]["approx_kl"] < rows[0]["approx_kl"]
    assert rows[-1]["malformed"] > 1 and rows[-1]["reward"] < 0.05


def test_reward_hacking_raises_the_reward_alone(run):
    """The paid verifier and the hidden tests part on the same episodes."""
    rows = run("reward_hacking", 6)
    assert mean(rows[-2:], "reward") > 0.8 and mean(rows[-2:], "pass_rate") < 0.05 < rows[0]["pass_rate"]
    assert mean(rows[-2:], "hardcode") > mean(rows[:2], "hardcode") + 0.5


def test_an_entropy_penalty_outruns_the_reward(run):
    """Entropy falls below a quarter of its start, reading vanishes, the reward stays behind; a healthy run explores."""
    rows, healthy = run("entropy_collapse", 12), run(steps=12)
    assert mean(rows[-2:], "entropy") < 0.25 * rows[0]["entropy"]
    assert mean(healthy[-2:], "entropy") > 0.4 * healthy[0]["entropy"]
    assert mean(rows[-2:], "reads") < 0.1 < mean(healthy[-2:], "reads")
    assert mean(rows[-4:], "reward") < 0.9 * mean(healthy[-4:], "reward")


def test_a_sign_error_descends(run):
    """Reward falls to almost nothing while the optimizer metrics look healthy."""
    rows = run("sign_flip", 6)
    assert mean(rows[-3:], "reward") < 0.5 * mean(rows[:3], "reward")
    assert max(row["approx_kl"] for row in rows) < 0.02
