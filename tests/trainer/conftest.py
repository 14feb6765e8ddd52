"""Runs that several tests read, made once, on one thread (results depend on the thread count), and a tiny GRPO trainer."""

import functools

import pytest

WORDS = ["<pad>", "<eos>", "<user>", "<bot>", *(f"w{number}" for number in range(12))]


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


HEALTHY_STEPS = 14  # the longest healthy run that a test asks for: the shorter ones are its first rows


@pytest.fixture(scope="session")
def run():
    """`run(fault, steps, **config)`: the metrics of each row of a seed-0 run without checks and evaluations."""
    from rltriage.trainer import TrainConfig, train

    @functools.cache
    def made(fault, steps, **config):
        rows = train(TrainConfig(**config), fault=fault, steps=steps, checks=False, eval_tasks=())
        return [row.metrics for row in rows]

    def run(fault=None, steps=4, **config):
        return made(fault, steps, **config) if fault or config else made(None, HEALTHY_STEPS)[:steps]

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """`tiny_model("Llama", **shape)`: a folder with a random model of 2 layers and its tokenizer, built in code.

    16 words, one of them ends a completion. Nothing is downloaded.
    """
    pytest.importorskip("trl", reason="trl is not installed")
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    def save(kind, **shape):
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp(kind)
        words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>", padding_side="left"
        ).save_pretrained(folder)
        config = getattr(transformers, f"{kind}Config")(
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
            **shape,
        )
        getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def early_words():
    """A reward: the share of each completion that is made of the first five words."""
    wanted = set(WORDS[4:9])

    def share(completions):
        texts = [completion.split() for completion in completions]
        return [sum(word in wanted for word in text) / max(len(text), 1) for text in texts]

    return share


@pytest.fixture
def grpo_trainer(tmp_path):
    """Builds a trainer of TRL on the CPU from a folder of `tiny_model`; `fields` are GRPOConfig's."""

    def build(folder, reward, prompts, trainer_class=None, callbacks=None, **fields):
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
        from trl import GRPOConfig, GRPOTrainer

        settings = {
            "output_dir": str(tmp_path / "out"),
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "seed": 7,
            "learning_rate": 1e-3,
            "save_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
        }
        return (trainer_class or GRPOTrainer)(
            model=AutoModelForCausalLM.from_pretrained(folder),
            reward_funcs=reward,
            args=GRPOConfig(**(settings | fields)),
            train_dataset=Dataset.from_dict({"prompt": prompts * 2}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
            callbacks=callbacks,
        )

    return build
