"""Lines as the frameworks' own code writes them, made by the format strings of their sources; the numbers are ours."""

from __future__ import annotations

import json
import logging
import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.intake import Intake
from rltriage.engine.rows import Row
from rltriage.engine.sources import open_source


def read(path: Path, text: str, config: Mapping[str, Any] | None = None) -> tuple[list[Row], Intake, Any]:
    path.write_text(text, encoding="utf-8")
    feed = Feed(open_source(str(path)), "run", config=config)
    rows = [row for _, row in feed.rows()]
    return rows, feed.intakes["run"], feed.source.stats


def merged(rows: list[Row]) -> dict[int, dict[str, float]]:
    """Records of one step together, as the engine takes them."""
    steps: dict[int, dict[str, float]] = {}
    for row in rows:
        steps.setdefault(row.step, {}).update(row.metrics)
    return steps


OPENRLHF = logging.Formatter("%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s", datefmt="%m-%d %H:%M:%S")


def _openrlhf(message: str) -> str:
    record = logging.LogRecord("openrlhf", logging.INFO, "/x/ppo_trainer.py", 552, message, (), None)
    return "\x1b[36m(PPOTrainer pid=77, ip=10.0.0.3)\x1b[0m " + OPENRLHF.format(record)


def test_openrlhf_console(tmp_path: Path) -> None:
    """One row a global step behind Ray's prefix; the bars over minibatches are none, the evaluation joins its step."""
    lines = ["(PPOTrainer pid=77) Loading the model"]
    for step in (1, 2, 3):
        bar = {"act_loss": "-0.0123", "reward": "0.5", "kl": "0.001", "act_lr": "1e-06", "grad_norm": "1.25"}
        shown = ", ".join(f"{name}={value}" for name, value in bar.items())
        lines += [
            f"(PolicyModelActor pid=9) Train epoch [1/1]:  {25 * n}%|##  | {n}/4 [00:0{n}<00:03, {shown}]\r"
            for n in range(1, 5)
        ]
        status = {
            "policy_loss": -0.0123,
            "actor_lr": 1e-06,
            "actor_grad_norm": 1.25,
            "ppo_clip_ratio": 0.02,
            "ppo_kl": -1e-4,
        }
        status |= {"kl": 0.01, "reward": 0.4, "response_length": 210.0, "timing/ppo_train": 9.5}
        status |= {"rollout/reward_mean": step / 4, "rollout/reward_std": 0.5, "rollout/truncated_rate": 0.125}
        status |= {"rollout/response_length_mean": 200.0, "rollout/num_samples": 1024.0, "vllm_kl": 0.001}
        lines.append(_openrlhf(f"✨ Global step {step}: {status}"))
        logs = {"eval_gsm8k_pass4": 0.75, "eval_gsm8k_pass1": 0.5, "eval_num_samples": 64.0}
        lines.append(_openrlhf(f"✨ Evaluation completed in 0:00:10, global_step {step}, eval_metrics: {logs}"))
    config = {"actor.loss_agg_mode": "seq-mean-token-mean", "train.async_enable": False, "train.async_queue_size": 1}
    rows, intake, stats = read(tmp_path / "log", "\n".join(lines) + "\n", config)
    steps = merged(rows)
    assert intake.run.profile == "openrlhf" and stats.bad == 0
    assert {step: row["reward"] for step, row in steps.items()} == {1: 0.25, 2: 0.5, 3: 0.75}
    expected = {"approx_kl": -1e-4, "clip_frac": 0.02, "grad_norm": 1.25, "eval_pass": 0.5, "n_episodes": 1024.0}
    assert expected.items() <= steps[2].items() and "sampler_kl" not in steps[2]
    assert intake.run.facts["loss_mode"].value == "sequence_mean" and intake.run.facts["async_lag"].value == 0


def test_skyrl_console(tmp_path: Path) -> None:
    """Loguru's line ends in the step, a pretty-printed dict of stringified floats follows; 0 stands for no such sample."""
    data = {
        "reward/avg_raw_reward": 0.25,
        "policy/policy_entropy": 0.5,
        "policy/policy_kl": 0.0012,
        "policy/policy_lr": 1e-06,
    }
    data |= {"policy/loss_metrics/clip_ratio": 0.01, "policy/grad_norm": 0.75, "policy/final_loss": -0.02}
    data |= {"generate/avg_num_tokens": 120.5, "generate/avg_tokens_non_zero_rewards": 0.0}
    data |= {"generate/avg_tokens_zero_rewards": 120.5, "policy/loss_metrics/is_ratio_mean": 0.999}
    text = ""
    for step in (1, 2):
        floats = {name: f"{value:.4f}" for name, value in data.items()}
        text += "2026-11-30 00:00:01.123 | INFO     | skyrl.train.utils.tracking:log:189 - "
        text += f"Step {step}: \n{pprint.pformat(floats)}\n"
    rows, intake, _ = read(tmp_path / "log", text, {"algorithm.use_kl_in_reward": True, "algorithm.kl_loss_coef": 0.001})
    assert intake.run.profile == "skyrl" and [row.step for row in rows] == [1, 2]
    assert {"reward": 0.25, "length_fail": 120.5, "is_ratio_mean": 0.999, "kl_ref": 0.0012}.items() <= rows[
        0
    ].metrics.items()
    assert "length_pass" not in rows[0].metrics and "lr" not in rows[0].metrics, "four decimals of 1e-06 are no rate"
    assert intake.run.facts["kl_coef"].value == 0.001


def test_slime_console_has_three_axes(tmp_path: Path) -> None:
    """Two train steps a rollout: train steps count, and what a rollout or evaluation says never sends the run back."""
    text = ""
    for rollout in range(4):
        perf = {"rollout/response_len/mean": 100.0, "rollout/truncated_ratio": 0.1, "rollout/zero_std/count_0.0": 4}
        perf |= {"rollout/zero_std/count_1.0": 2}
        text += f"[2026-11-30 00:00:0{rollout}] rollout.py:900 - perf {rollout}: {perf}\n"
        text += f"rollout {rollout}: {{'rollout/raw_reward': 0.{rollout}, 'rollout/rewards': 0.0}}\n"
        for step in (2 * rollout, 2 * rollout + 1):
            train = {"train/loss": 0.1, "train/pg_loss": 0.1, "train/entropy_loss": 0.5, "train/ppo_kl": 1e-3 * (step % 2)}
            train |= {"train/pg_clipfrac": 0.0, "train/grad_norm": 1.0, "train/train_rollout_logprob_abs_diff": 0.02}
            text += f"step {step}: {train | {'train/lr-pg_0': 1e-06, 'train/step': step}}\n"
        text += f"eval {rollout}: {{'eval/aime': 0.25, 'eval/aime-truncated_ratio': 0.5}}\n"
    rows, intake, _ = read(tmp_path / "log", text, {"rollout_batch_size": 8, "use_rollout_logprobs": True})
    steps = [row.step for row in rows]
    assert intake.run.profile == "slime" and steps == sorted(steps) and set(steps) == set(range(8))
    assert {"all_fail_frac": 0.5, "all_pass_frac": 0.25, "zero_adv_frac": 0.75}.items() <= merged(rows)[1].items()
    assert merged(rows)[5]["reward"] == 0.3 and merged(rows)[5]["logp_gap"] == 0.02
    assert intake.run.facts["old_logp_source"].value == "sampler"


def test_slime_rollouts_alone_keep_their_steps(tmp_path: Path) -> None:
    """Where no train step is logged the rollouts' own steps are the steps."""
    text = "".join(f"rollout {n}: {{'rollout/raw_reward': 0.{n}, 'rollout/rewards': 0.0}}\n" for n in (5, 6, 7, 0, 1))
    assert [row.step for row in read(tmp_path / "log", text)[0]] == [5, 6, 7, 0, 1]


def test_prime_rl_records_of_one_step_merge(tmp_path: Path) -> None:
    """The trainer writes several records a step; both generations of the orchestrator's names are read."""
    records: list[dict[str, Any]] = []
    for step in range(3):
        records += [
            {"perf/throughput": 1e4, "perf/mfu": 12.0, "step": step},
            {"optim/lr": 1e-06, "optim/zero_grad_ratio": 0.0, "step": step, "optim/grad_norm": 0.5},
            {"entropy/all/mean": 0.4, "mismatch_kl/all/mean": 1e-3, "is_masked/mean": 0.01, "loss/mean": 0.1, "step": step},
        ]
    rows, intake, _ = read(tmp_path / "trainer.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert intake.run.profile == "prime_rl" and set(merged(rows)) == {0, 1, 2}
    assert {"entropy": 0.4, "sampler_kl": 1e-3, "grad_norm": 0.5, "clip_frac": 0.01}.items() <= merged(rows)[2].items()
    old = {"reward/all/mean": 0.5, "solve_none/all": 0.25, "solve_all/all": 0.5, "effective_batch_size/all": 0.25}
    old |= {"decode_len/all/mean": 90.0, "is_truncated/all/mean": 0.1, "seq_len/all/mean": 300.0, "step": 3}
    rows, intake, _ = read(tmp_path / "old.jsonl", json.dumps(old) + "\n")
    assert intake.run.profile == "prime_rl"
    assert {"reward": 0.5, "all_fail_frac": 0.25, "zero_adv_frac": 0.75, "length": 90.0}.items() <= rows[0].metrics.items()


def test_prime_rl_console(tmp_path: Path) -> None:
    """The line of a step, and no row for the debug lines of its micro-batches."""
    text = ""
    for step in range(3):
        text += f"00:00:01 DEBUG Micro Step {step}/8 | Loss 0.1000 | Entropy 0.5000\n"
        text += f"00:00:02 SUCCESS Step {step} |   1.20s | Loss 0.1000 | Entropy 0.5000 | Mismatch KL 0.0010 | "
        text += "Grad. Norm 0.5000 | LR 1.00e-06 | Throughput 1234 tokens/s | MFU 12.3% | Peak Mem. 10.0 GiB\n"
    rows, _, _ = read(tmp_path / "log", text)
    assert [row.step for row in rows] == [0, 1, 2]
    assert {"entropy": 0.5, "sampler_kl": 1e-3, "grad_norm": 0.5, "lr": 1e-06}.items() <= rows[0].metrics.items()


def test_roll_console(tmp_path: Path) -> None:
    """`metrics_tag: {json}` with step and metrics; the share of correct samples is that of the groups."""
    metrics = {
        "critic/score/mean": 0.4,
        "critic/correct/mean": 1.0,
        "group/correct_ratio/mean": 0.4,
        "actor/approxkl": 1e-4,
    }
    metrics |= {"group/mixed_groups_ratio": 0.75, "actor/ratio_min": 1e10, "actor/train_infer_ratio_mean": 1.01}
    metrics |= {"token/response_length/mean": 80.0, "actor/kl_loss": 0.01, "critic/kl": -0.01, "actor/clipfrac": 0.0}
    text = "".join(f"metrics_tag: {json.dumps({'step': step, 'metrics': metrics})}\n" for step in range(3))
    rows, intake, _ = read(tmp_path / "log", text)
    assert intake.run.profile == "roll" and [row.step for row in rows] == [0, 1, 2]
    assert {"pass_rate": 0.4, "zero_adv_frac": 0.25, "is_ratio_mean": 1.01, "kl_ref": 0.01}.items() <= rows[
        0
    ].metrics.items()
    assert "ratio_min" not in rows[0].metrics and intake.run.facts["kl_ref_kind"].value == "k3"


def test_ms_swift_logging_jsonl(tmp_path: Path) -> None:
    """TRL's names with the step as `7/100`, the mean entropy and the rollout correction under names of its own."""
    record = {"loss": 0.1, "grad_norm": 0.2, "learning_rate": 1e-06, "reward": 0.5, "reward_std": 0.1, "entropy/mean": 0.4}
    record |= {"frac_reward_zero_std": 0.0, "completions/mean_length": 9.0, "rollout_correction/k3_kl": 1e-3}
    lines = [record | {"global_step/max_steps": f"{step}/100", "elapsed_time": "1m 2s"} for step in (5, 6, 7)]
    rows, intake, _ = read(tmp_path / "logging.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert intake.run.profile == "trl" and [row.step for row in rows] == [5, 6, 7] and not intake.ordinal_steps
    assert {"entropy": 0.4, "sampler_kl": 1e-3}.items() <= rows[0].metrics.items()


def test_nemo_rl_record(tmp_path: Path) -> None:
    """Percentages of flat groups, exp of the gap, -1 for no valid token, the correction's mean weight."""
    record = {
        "train/reward": 0.5,
        "train/token_mult_prob_error": 1.02,
        "train/gen_kl_error": 1e-3,
        "train/probs_ratio": 1.0,
    }
    record |= {"train/probs_ratio_max": -1.0, "train/baseline_reward/pct_0": 25.0, "train/baseline_reward/pct_mixed": 50.0}
    record |= {"train/sampling_importance_ratio": 0.99, "train/approx_entropy": 0.4, "train/loss": 0.1, "_step": 4}
    rows, intake, _ = read(tmp_path / "x.jsonl", json.dumps(record) + "\n", {"loss_fn.reference_policy_kl_type": "k2"})
    assert intake.run.profile == "nemo_rl" and rows[0].step == 4
    assert rows[0].metrics["logp_gap"] == pytest.approx(0.02)
    assert {"all_fail_frac": 0.25, "zero_adv_frac": 0.5, "is_ratio_mean": 0.99}.items() <= rows[0].metrics.items()
    assert "ratio_max" not in rows[0].metrics and intake.run.facts["sampler_kl_kind"].value == "k2"


def test_areal_record(tmp_path: Path) -> None:
    """AReaL logs new minus old and minus kl_ctl times the KL; both are turned."""
    record = {
        "ppo_actor/task_reward/avg": 0.5,
        "ppo_actor/update/approx_kl/avg": -0.002,
        "ppo_actor/kl_rewards/avg": -0.001,
    }
    record |= {"ppo_actor/correct_n_seqs": 16.0, "ppo_actor/n_seqs": 64.0, "ppo_actor/eps_clip": 0.2, "global_step": 3}
    rows, intake, _ = read(tmp_path / "x.jsonl", json.dumps(record) + "\n", {"kl_ctl": 0.1, "actor.kl_estimator": "k1"})
    assert intake.run.profile == "areal"
    assert rows[0].metrics["approx_kl"] == 0.002 and rows[0].metrics["kl_ref"] == pytest.approx(0.01)
    assert rows[0].metrics["pass_rate"] == 0.25
    assert (intake.run.facts["clip_eps"].value, intake.run.facts["kl_ref_kind"].value) == (0.2, "k1")


@pytest.mark.parametrize(("loaded", "expected"), [(True, 0.05), (False, 0.0)])
def test_open_instruct_has_a_kl_term_only_with_a_reference(tmp_path: Path, loaded: bool, expected: float) -> None:
    """`beta` counts for nothing while the reference policy is not loaded."""
    record = {"scores": 5.0, "val/sequence_lengths": 90.0, "objective/kl2_avg": 0.01, "objective/kl_avg": 9.0}
    record |= {"debug/vllm_vs_local_logprob_diff_mean": 0.02, "lr": 1e-06, "training_step": 2, "val/ratio": 1.0}
    config = {"beta": 0.05, "load_ref_policy": loaded, "use_vllm_logprobs": False}
    rows, intake, _ = read(tmp_path / "x.jsonl", json.dumps(record) + "\n", config)
    assert intake.run.profile == "open_instruct" and rows[0].step == 2 and rows[0].metrics["kl_ref"] == 0.01
    assert intake.run.facts["kl_coef"].value == expected and intake.run.facts["old_logp_source"].value == "trainer"


def test_cleanrl_console(tmp_path: Path) -> None:
    """Gymnasium's returns are arrays of one number."""
    text = "".join(f"global_step={64 * n}, episodic_return=[{n}.]\nSPS: 900\n" for n in range(1, 4))
    rows, _, _ = read(tmp_path / "log", text)
    assert [(row.step, row.metrics) for row in rows] == [(64 * n, {"reward": float(n)}) for n in (1, 2, 3)]


def test_online_dpo_is_not_ppo_and_offline_dpo_is_neither(tmp_path: Path) -> None:
    """Online DPO logs PPO's objective/* too; offline DPO logs rewards/* without any rollout."""
    offline = {"loss": 0.6, "grad_norm": 1.0, "learning_rate": 1e-06, "rewards/chosen": 0.1, "rewards/margins": 0.2}
    online = offline | {"objective/kl": 9.0, "objective/entropy": 50.0, "val/contain_eos_token": 0.75, "beta": 0.1}
    online |= {"objective/scores_margin": 0.5, "objective/scores": 0.25, "objective/rlhf_reward": 0.2}
    rows, intake, _ = read(tmp_path / "online.jsonl", json.dumps(online) + "\n")
    assert intake.run.profile == "trl/online_dpo" and "has_critic" in intake.run.facts
    assert rows[0].metrics["truncated_frac"] == 0.25 and "kl_ref" not in rows[0].metrics
    assert intake.run.facts["kl_coef"].value == 0.1 and intake.run.facts["has_critic"].value is False
    assert read(tmp_path / "offline.jsonl", json.dumps(offline) + "\n")[1].run.profile == "generic"


def test_a_reward_function_that_applies_to_no_sample_is_no_fault(tmp_path: Path) -> None:
    """TRL averages what a function did not refuse: its NaN says nothing, while NaN of the reward itself does."""
    record = {"loss": 0.1, "reward": 0.5, "reward_std": 0.1, "completions/mean_length": 9.0, "frac_reward_zero_std": 0.0}
    lines = [
        record | {"step": 1, "rewards/math/mean": 0.5, "rewards/math/std": 0.1},
        record | {"step": 2, "rewards/math/mean": float("nan"), "rewards/math/std": None},
        record | {"step": 3, "reward": float("nan")},
    ]
    rows, intake, _ = read(tmp_path / "x.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert intake.run.profile == "trl" and "rewards/math/mean" in rows[0].metrics
    assert not [name for name, value in rows[1].metrics.items() if value != value]
    assert rows[2].metrics["reward"] != rows[2].metrics["reward"]


@pytest.mark.parametrize(
    ("record", "profile"),
    [
        ({"rollout/ep_rew_mean": 1.0, "train/loss": 0.1, "train/explained_variance": float("nan")}, "stable_baselines3"),
        ({"charts/episodic_return": 1.0, "losses/explained_variance": float("nan")}, "cleanrl"),
        ({"episode_reward_mean": float("nan"), "num_env_steps_sampled_lifetime": 9, "training_iteration": 1}, "rllib"),
    ],
)
def test_nothing_to_average_is_no_fault(tmp_path: Path, record: dict[str, Any], profile: str) -> None:
    """Equal returns explain nothing, and before the first episode has ended there is no return."""
    rows, intake, _ = read(tmp_path / "x.jsonl", json.dumps(record | {"step": 1}) + "\n")
    assert intake.run.profile == profile and all(value == value for row in rows for value in row.metrics.values())
