"""Config facts: which there are, how users write them, and what a rule's `requires` says about them (DESIGN section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rltriage.rules.errors import RltriageError

CONFIG_FACTS: Mapping[str, str] = {
    "algorithm": "name of the algorithm, such as grpo, ppo, rloo",
    "kl_coef": "weight of the KL penalty to the reference policy; 0 means none",
    "kl_term": "whether a KL to the reference policy is computed: true once a row shows one that is not 0",
    "updates_per_batch": "optimizer steps on one batch: epochs x minibatches",
    "epochs": "passes over one batch",
    "minibatches": "minibatches of one pass",
    "loss_mode": "how token losses are averaged: token_mean, sequence_mean, fixed_length, ...",
    "temperature": "sampling temperature",
    "top_p": "nucleus sampling; 1 means off",
    "top_k": "top-k sampling; 0 or -1 means off",
    "precision": "number format of the trainer's forward pass: fp32, bf16, fp16, fp8",
    "has_critic": "whether a value network is trained",
    "group_size": "completions of one prompt",
    "reward_max": "largest possible reward",
    "reward_weights": "weight of each reward component",
    "max_length": "largest completion length in tokens",
    "max_turns": "largest number of turns of an episode",
    "lr": "configured peak learning rate",
    "warmup_steps": "steps over which the learning rate rises",
    "weight_decay": "weight decay of the optimizer",
    "entropy_coef": "weight of the entropy bonus; 0 means none",
    "clip_eps": "clip range of the ratio",
    "steps": "planned number of steps",
    "async_lag": "how many policy versions the sampler may be behind; 0 means synchronous",
    "resumed_at": "step at which the run was resumed from a checkpoint",
    "old_logp_source": "who computes old_logp: trainer or sampler",
    "approx_kl_kind": "estimator of approx_kl: k1 (signed), k2 or k3",
}

_WORDS = {"above": ">", "below": "<", "equals": "is", "not": "is not", "in": "is one of"}


class Judgement(NamedTuple):
    """What facts say about tests on them.

    `holds` is True, False or None (unknown); `unknown` are the facts to ask for, `violated` those that speak against it;
    `question` is the one sentence that asks for the unknown ones, empty if nothing is open.
    """

    holds: bool | None
    unknown: tuple[str, ...]
    violated: tuple[str, ...]
    question: str


Tell = Callable[[Sequence[str]], str]
"""How somebody tells the watcher of a run the facts of these names: it depends on what watches."""


def by_option(facts: Sequence[str]) -> str:
    """On the command line."""
    return "pass " + " ".join(f"--config {fact}=..." for fact in facts)


def by_argument(facts: Sequence[str]) -> str:
    """In the process that trains."""
    wanted = ", ".join(f'"{fact}": ...' for fact in facts)
    return f"pass config={{{wanted}}} to rltriage.watch or its hook"


def by_file(name: str) -> Tell:
    """In the configuration of a service."""
    return lambda facts: f"write config: {{{', '.join(f'{fact}: ...' for fact in facts)}}} at its source in {name}"


def judge(requires: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any], tell: Tell = by_option) -> Judgement:
    """Judge `requires` (or `excluded_when`): a fact that is None or not in `facts` is unknown. One violation decides.

    `tell` says in the question how to answer it.
    """
    unknown: list[str] = []
    violated: list[str] = []
    for fact, tests in requires.items():
        verdict = fact_passes(tests, facts.get(fact))
        if verdict is False:
            violated.append(fact)
        elif verdict is None:
            unknown.append(fact)
    if violated:
        return Judgement(False, tuple(unknown), tuple(violated), "")
    if not unknown:
        return Judgement(True, (), (), "")
    wanted = " and ".join(describe_test(fact, requires[fact]) for fact in unknown)
    return Judgement(None, tuple(unknown), (), f"a fault only if {wanted}: {tell(unknown)}")


def fact_passes(tests: Mapping[str, Any], value: Any) -> bool | None:
    """All tests of one fact in Kleene logic, without a word about it; None is a fact that is unknown."""
    known = value is not None
    if "known" in tests and tests["known"] != known:
        return False
    others = [_judge_test(name, limit, value) for name, limit in tests.items() if name != "known"]
    if not others:
        return True
    if not known:
        return None
    return False if False in others else None if None in others else True


def _judge_test(name: str, limit: Any, value: Any) -> bool | None:
    if name in ("above", "below"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None  # a text where a number belongs says nothing
        return bool(value > limit) if name == "above" else bool(value < limit)
    if name == "in":
        return any(_same(value, option) for option in limit)
    return _same(value, limit) == (name == "equals")


def _same(value: Any, limit: Any) -> bool:
    """Equal, with text compared as users write it (`token_mean`, `token-mean`) and true never equal to 1."""
    if isinstance(value, str) and isinstance(limit, str):
        return value.strip().lower().replace("-", "_") == limit.strip().lower().replace("-", "_")
    return bool(isinstance(value, bool) == isinstance(limit, bool) and value == limit)


def describe_test(fact: str, tests: Mapping[str, Any]) -> str:
    """A fact's tests in words: `updates_per_batch > 1`."""
    parts = []
    for name, limit in tests.items():
        if name == "known":
            parts.append(f"{fact} is {'known' if limit else 'unknown'}")
        else:
            shown = ", ".join(map(str, limit)) if isinstance(limit, list | tuple) else limit
            parts.append(f"{fact} {_WORDS[name]} {shown}")
    return " and ".join(parts)


def parse_fact(text: str) -> tuple[str, Any]:
    """`KEY=VALUE` of `--config`, VALUE as in YAML 1.2. Raises RltriageError that says how to write it."""
    from rltriage.rules.yamlmarks import parse, resolve_scalar

    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key:
        raise RltriageError(f"{text!r} is not KEY=VALUE: write for example --config kl_coef=0.05")
    if not value.startswith(("[", "{", '"', "'")):
        try:
            return key, resolve_scalar(value)
        except ValueError as error:
            raise RltriageError(f"{key}: {error} is too long: write it as 1e9") from error
    node, problems = parse(value, f"--config {key}")
    if node is None:
        raise RltriageError(f"{key}={value} cannot be read: {problems[0].message}: {problems[0].hint}".rstrip(": "))
    return key, node.plain()
