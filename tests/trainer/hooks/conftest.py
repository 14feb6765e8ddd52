"""A run that remembers, files of real frameworks, and a GRPO trainer small enough for a test, built in code."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

FRAMEWORKS = Path(__file__).parents[3] / ".cache" / "frameworks"
WORDS = ["<pad>", "<eos>", "<user>", "<bot>", *(f"w{number}" for number in range(12))]


class Rows:
    """A watched run that only remembers what a hook wrote into it."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.config: dict[str, Any] = {}
        self.profile: str | None = None
        self.rows: list[tuple[int | None, dict[str, Any]]] = []
        self.closed: list[str] = []
        self.stop_at = stop_at

    @property
    def should_stop(self) -> bool:
        return self.stop_at is not None and any((step or 0) >= self.stop_at for step, _ in self.rows)

    def declare(self, config: Any, profile: str | None = None) -> None:
        self.config, self.profile = dict(config), profile

    def log(self, step: int | None, metrics: Any) -> None:
        self.rows.append((step, dict(metrics)))

    def close(self, state: str = "finished") -> None:
        self.closed.append(state)


@pytest.fixture
def rows() -> Rows:
    """A run that remembers."""
    return Rows()


@pytest.fixture
def framework_file(missing: Callable[[str], NoReturn]) -> Callable[[str], Any]:
    """Loads one file of a framework alone, by its path: importing the package would import ray, or vLLM."""

    def load(name: str) -> Any:
        path = FRAMEWORKS / name
        if not path.is_file():
            missing(f"{name} is not there: python tests/fetch.py frameworks")
        spec = importlib.util.spec_from_file_location(name.removesuffix(".py").replace("/", "_"), path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random Llama of 2 layers and its tokenizer: 16 words, one of them ends a completion."""
    pytest.importorskip("trl", reason="trl is not installed")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("policy")
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>", padding_side="left"
    )
    tokenizer.save_pretrained(folder)
    shape = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(shape).save_pretrained(folder)
    return folder


@pytest.fixture
def grpo(tiny_policy: Path, tmp_path: Path) -> Callable[..., Any]:
    """Builds a GRPOTrainer on the CPU: `grpo(callbacks, trainer_class=None, **GRPOConfig fields)`."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    def early_words(completions: list[str], **_: Any) -> list[float]:
        """1 for a completion of which a third is made of the first five words: some pass and some do not."""
        wanted = set(WORDS[4:9])
        texts = [completion.split() for completion in completions]
        return [float(sum(word in wanted for word in text) > len(text) / 3) for text in texts]

    def build(callbacks: list[Any], trainer_class: Any = GRPOTrainer, **fields: Any) -> Any:
        settings = {
            "output_dir": str(tmp_path / "out"),
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "seed": 7,
            "max_steps": 12,
            "logging_steps": 1,
            "per_device_train_batch_size": 16,
            "num_generations": 8,
            "max_completion_length": 32,
            "learning_rate": 1e-3,
            "save_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
        }
        policy = AutoModelForCausalLM.from_pretrained(tiny_policy)
        return trainer_class(
            model=policy,
            reward_funcs=early_words,
            args=GRPOConfig(**(settings | fields)),
            train_dataset=Dataset.from_dict({"prompt": [f"w{number} w{number + 1}" for number in range(11)] * 2}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(tiny_policy),
            callbacks=callbacks,
        )

    return build
