"""TRL's GRPOTrainer watched by the shipped rules: a healthy run is silent, a planted fault is named.

Each fault is planted where the real bug would live, by a subclass of the trainer; the hook is all that the user adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rltriage

pytest.importorskip("trl", reason="trl is not installed")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def watched(grpo: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[rltriage.Alert]]:
    """Trains with the hook and gives the alerts from `warning` up that fired."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)

    def train(trainer_class: Any = None, **fields: Any) -> list[rltriage.Alert]:
        fired: list[rltriage.Alert] = []

        def remember(alert: rltriage.Alert) -> None:
            if alert.state == "firing" and alert.severity != "info":
                fired.append(alert)

        hook = rltriage.trl_callback(directory=None, on_alert=remember, quiet=True)
        classes = {} if trainer_class is None else {"trainer_class": trainer_class}
        grpo([hook], **(classes | fields)).train()
        return fired

    return train


def test_a_default_run_is_silent(watched: Any) -> None:
    """TRL's defaults: no KL, one update per generation, so the ratio is 1 and nothing is clipped by construction."""
    assert watched(max_steps=14) == []


def test_a_run_with_a_kl_term_and_two_updates_is_silent(watched: Any) -> None:
    """With a reference and a second update the same zeros would be faults; here they are none."""
    assert watched(max_steps=24, beta=0.04, num_iterations=2, learning_rate=3e-3) == []


def test_a_reference_that_is_the_policy_is_named(watched: Any) -> None:
    """The reference shares the policy's weights, so the KL is exactly zero for ever."""
    from trl import GRPOTrainer

    class RefIsPolicy(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.ref_model = self.model

    fired = watched(RefIsPolicy, max_steps=8, beta=0.04)
    assert fired[0].suspects[0].fault == "ref_is_policy"
    assert fired[0].severity == "critical" and fired[0].step <= 5


def test_old_log_probabilities_of_the_live_policy_are_named(watched: Any) -> None:
    """Without stored old log-probabilities TRL falls back on the live ones: the ratio is 1 in every update."""
    from trl import GRPOTrainer

    class StaleOldLogp(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            output.pop("old_per_token_logps", None)
            return output

    fired = watched(StaleOldLogp, max_steps=24, num_iterations=2, learning_rate=3e-3)
    assert fired[0].suspects[0].fault == "stale_old_logp"


def test_training_stops_at_a_critical_alert_when_asked(grpo: Any) -> None:
    """`halt_on="critical"` ends `train()` at the row that fired, long before the last step."""
    from trl import GRPOTrainer

    class RefIsPolicy(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.ref_model = self.model

    hook = rltriage.trl_callback(directory=None, quiet=True, halt_on="critical")
    trainer = grpo([hook], RefIsPolicy, max_steps=40, beta=0.04)
    trainer.train()
    assert trainer.state.global_step <= 5


def test_the_example_of_the_readme_runs_as_it_stands(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's lines for TRL, executed word for word with a tiny `model`, `args`, `dataset` and `reward`."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = next((block for block in blocks if "trl_callback" in block), None)
    if example is None:
        pytest.skip("the README shows no TRL example yet")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "GRPOTrainer": GRPOTrainer,
        "model": str(tiny_policy),
        "args": GRPOConfig(
            output_dir="out",
            report_to="none",
            use_cpu=True,
            bf16=False,
            max_steps=3,
            logging_steps=1,
            per_device_train_batch_size=8,
            max_completion_length=16,
            save_strategy="no",
        ),
        "dataset": Dataset.from_dict({"prompt": ["w1 w2", "w3 w4"] * 8}),
        "reward": lambda completions, **_: [float(len(text)) for text in completions],
    }
    exec(example, names)
    written = list((tmp_path / "runs").glob("*/rows.jsonl"))
    assert len(written) == 1 and len(written[0].read_text().splitlines()) == 3
