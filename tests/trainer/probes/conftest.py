"""A GRPO trainer small enough for a test: a random two-layer Qwen2 and a tokenizer built in code, nothing downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = ["<pad>", "<eos>", "<user>", "<bot>", *(f"w{number}" for number in range(12))]


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model and its tokenizer: 16 words, one of them ends a completion."""
    pytest.importorskip("trl", reason="trl is not installed")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("qwen")
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>", padding_side="left"
    ).save_pretrained(folder)
    shape = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        attention_dropout=0.0,
        initializer_range=0.2,  # the default .02 gives all words the same probability
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(shape).save_pretrained(folder)
    return folder


@pytest.fixture
def grpo(tiny_qwen: Path, tmp_path: Path) -> Callable[..., Any]:
    """Builds a GRPOTrainer on the CPU: `grpo(trainer_class=None, **GRPOConfig fields)`, 2 micro-batches an update."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    def early_words(completions: list[str], **_: Any) -> list[float]:
        """The share of a completion that is made of the first five words."""
        wanted = set(WORDS[4:9])
        texts = [completion.split() for completion in completions]
        return [sum(word in wanted for word in text) / max(len(text), 1) for text in texts]

    def build(trainer_class: Any = GRPOTrainer, **fields: Any) -> Any:
        settings = {
            "output_dir": str(tmp_path / "out"),
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "seed": 7,
            "max_steps": 2,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 2,
            "num_generations": 4,
            "max_completion_length": 16,
            "learning_rate": 1e-3,
            "save_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
        }
        prompts = [" ".join(f"w{(number + k) % 12}" for k in range(1 + number % 5)) for number in range(11)]
        return trainer_class(
            model=AutoModelForCausalLM.from_pretrained(tiny_qwen),
            reward_funcs=early_words,
            args=GRPOConfig(**(settings | fields)),
            train_dataset=Dataset.from_dict({"prompt": prompts * 2}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(tiny_qwen),
        )

    return build
