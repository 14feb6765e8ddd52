"""What TRL's real argument classes say, variant by variant, and its other trainers with the hook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage.engine.intake import Intake
from rltriage.trainer.hooks import trl

pytest.importorskip("trl", reason="trl is not installed")

BASE = {"output_dir": "out", "report_to": "none", "use_cpu": True, "bf16": False}
GROUPS = {"per_device_train_batch_size": 8, "num_generations": 4}


def facts(args: Any, rows: Any) -> dict[str, Any]:
    """The canonical facts of a trainer's arguments, by the hook's own choice of profile."""
    state = type("State", (), {"is_world_process_zero": True, "global_step": 0, "max_steps": 10})()
    trl.callback(rows).on_train_begin(args, state, None)
    return {name: fact.value for name, fact in Intake("r", rows.profile, rows.config).run.facts.items()}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"kl_coef": 0.0, "updates_per_batch": 1, "loss_mode": "token_mean", "temperature": 1.0, "precision": "fp32"}),
        ({"beta": 0.04, "num_iterations": 3}, {"kl_coef": 0.04, "updates_per_batch": 3, "epochs": 3}),
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 2}, {"updates_per_batch": 2, "minibatches": 2}),
        ({"generation_batch_size": 32}, {"updates_per_batch": 4}),
        ({"loss_type": "grpo"}, {"loss_mode": "sequence_mean"}),
        ({"loss_type": "bnpo"}, {"loss_mode": "token_mean"}),
        ({"loss_type": "dr_grpo", "scale_rewards": "none"}, {"loss_mode": "constant_length"}),
        ({"loss_type": "cispo", "epsilon_high": 5.0}, {"loss_mode": "token_mean"}),
        ({"loss_type": "sapo"}, {"loss_mode": "sequence_mean"}),
        ({"loss_type": "vespo"}, {"loss_mode": "token_mean"}),
        ({"loss_type": "luspo", "importance_sampling_level": "sequence"}, {"loss_mode": "other"}),
        ({"temperature": 0.7, "top_p": 0.9, "top_k": 20}, {"temperature": 0.7, "top_p": 0.9, "top_k": 20}),
        ({"mask_truncated_completions": True, "max_completion_length": 64}, {"max_length": 64}),
        ({"use_vllm": True, "vllm_importance_sampling_correction": True}, {"kl_coef": 0.0, "updates_per_batch": 1}),
        ({"reward_weights": [1.0, 0.5]}, {"reward_weights": [1.0, 0.5]}),
        ({"bf16": True}, {"precision": "bf16"}),
    ],
    ids=lambda value: ",".join(value) if "out" not in value else "",
)
def test_facts_of_grpo(rows: Any, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """The real GRPOConfig resolves its own defaults; the facts are those of the resolved one."""
    from trl import GRPOConfig

    found = facts(GRPOConfig(**(BASE | GROUPS | fields)), rows)
    assert expected.items() <= found.items() and found["algorithm"] == "grpo" and rows.profile == "trl"
    assert found["kl_ref_kind"] == "k3" and found["has_critic"] is False


def test_facts_of_the_other_trainers(rows: Any) -> None:
    """Each trainer has its profile, and a user's own class that of what it descends from."""
    from trl import RLOOConfig
    from trl.experimental.async_grpo import AsyncGRPOConfig
    from trl.experimental.gmpo import GMPOConfig
    from trl.experimental.online_dpo import OnlineDPOConfig

    class Mine(RLOOConfig):  # type: ignore[misc, unused-ignore]
        """A user's own."""

    found = facts(Mine(**BASE, **GROUPS), rows)
    assert rows.profile == "trl/rloo" and (found["kl_ref_kind"], found["algorithm"]) == ("k1", "rloo")
    found = facts(AsyncGRPOConfig(**BASE), rows)
    assert rows.profile == "trl/async" and (found["async_lag"], found["old_logp_source"]) == (4, "sampler")
    found = facts(OnlineDPOConfig(**BASE), rows)
    assert rows.profile == "trl/online_dpo" and found["kl_coef"] == 0.1 and "loss_mode" not in found
    assert facts(GMPOConfig(**BASE, **GROUPS), rows)["kl_coef"] == 0.0 and rows.profile == "trl"


@pytest.fixture
def watched_rloo(tiny_policy: Path, tmp_path: Path) -> Callable[..., tuple[list[Any], list[dict[str, float]]]]:
    """Trains the real RLOOTrainer with the hook; the alerts from `warning` up, and the rows as the engine got them."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import RLOOConfig, RLOOTrainer

    def train(**fields: Any) -> tuple[list[Any], list[dict[str, float]]]:
        fired: list[Any] = []
        hook = rltriage.trl_callback(
            directory=str(tmp_path / "runs"),
            on_alert=lambda alert: fired.append(alert) if alert.severity != "info" and alert.state == "firing" else None,
            quiet=True,
        )
        settings = {"seed": 7, "max_steps": 10, "logging_steps": 1, "max_completion_length": 64, "save_strategy": "no"}
        settings |= {"disable_tqdm": True, "per_device_train_batch_size": 16, "num_generations": 8, "learning_rate": 1e-3}
        RLOOTrainer(
            model=AutoModelForCausalLM.from_pretrained(tiny_policy),
            reward_funcs=lambda completions, **_: [float(len(text) % 3 == 0) for text in completions],
            args=RLOOConfig(**(BASE | settings | fields) | {"output_dir": str(tmp_path / "out")}),
            train_dataset=Dataset.from_dict({"prompt": [f"w{number} w{number + 1}" for number in range(11)] * 2}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(tiny_policy),
            callbacks=[hook],
        ).train()
        from rltriage.engine.feed import Feed
        from rltriage.engine.sources import open_source

        (run,) = (tmp_path / "runs").iterdir()
        return fired, [dict(row.metrics) for _, row in Feed(open_source(str(run)), "run").rows()]

    return train


def test_rloo_is_watched_and_silent(watched_rloo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """RLOO's rows arrive with its signed KL; its defaults (one update, KL in the reward) alarm nobody."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    fired, rows = watched_rloo()
    assert fired == [] and len(rows) == 10
    assert {"reward", "kl_ref", "entropy", "clip_frac", "length", "zero_adv_frac", "grad_norm"} <= rows[0].keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"loss_type": "dr_grpo", "scale_rewards": "none"},
        {"loss_type": "cispo", "epsilon_high": 5.0, "num_iterations": 2},
        {"loss_type": "sapo", "num_iterations": 2, "beta": 0.04},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "num_iterations": 2},
        {"scale_rewards": "batch", "mask_truncated_completions": True},
        {"steps_per_generation": 4, "beta": 0.04},
    ],
    ids=lambda fields: ",".join(str(value) for value in fields.values()),
)
def test_variants_of_grpo_are_silent(grpo: Any, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses without a clip, sequence ratios, batch scaling, several updates: what is constant by design is no fault."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    fired: list[Any] = []

    def remember(alert: Any) -> None:
        if alert.state == "firing" and alert.severity != "info":
            fired.append(alert)

    hook = rltriage.trl_callback(directory=None, on_alert=remember, quiet=True)
    grpo([hook], max_steps=26, **fields).train()
    assert [(alert.rule, alert.step) for alert in fired] == []
