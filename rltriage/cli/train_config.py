"""`rltriage train --config`: the reference trainer's own fields, each checked before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rltriage.rules.errors import RltriageError
from rltriage.trainer.config import TrainConfig

MOST_COUNT = 1000
"""Of what is counted (episodes of a group, epochs): far above what this agent needs, and what a machine holds."""
MOST_NUMBER = 1e6
"""Of every other number: torch refuses what leaves single precision, an Adam step of 1e38 for one."""


def train_config(overrides: Mapping[str, Any]) -> TrainConfig:
    """The trainer's config with fields of the user's. RltriageError for an unknown field, or a value it cannot have.

    The types are those of the dataclass; a whole number is taken where any number is.
    """
    known = get_type_hints(TrainConfig)
    for key in overrides:
        if key not in known:
            raise RltriageError(f"the trainer has no '{key}'; it has {', '.join(known)}")
    config = replace(TrainConfig(), **{key: _value(key, value, known[key]) for key, value in overrides.items()})
    if config.minibatches > config.episodes_per_step:
        raise RltriageError(
            f"minibatches={config.minibatches} cannot be: a step has {config.episodes_per_step} episodes "
            "(tasks_per_step * group_size)"
        )
    return config


def _value(key: str, value: Any, hint: Any) -> Any:
    """The value as the trainer takes it."""
    if get_origin(hint) is Literal:
        fits, wanted = isinstance(value, str) and value in get_args(hint), " or ".join(get_args(hint))
    else:
        least, most = _range(key, hint)
        numbers = (int, float) if hint is float else (int,)
        fits = isinstance(value, numbers) and not isinstance(value, bool) and least <= value <= most
        wanted = f"a {'whole ' if hint is int else ''}number from {least:g} to {most:g}"
    if not fits:
        raise RltriageError(f"{key}={value!r} cannot be: write {wanted}")
    return hint(value) if hint is float else value


def _range(key: str, hint: type) -> tuple[float, float]:
    """What the annotation does not say: whole numbers are counts, other numbers weights and rates, but for a few."""
    match key:
        case "tasks_per_step":  # drawn without replacement
            from rltriage.trainer.gym import make_tasks

            return 1, len(make_tasks("train"))
        case "max_turns":
            return 1, _most_turns()
        case "eval_every":  # more than there are steps: at the start and the end alone
            return 1, 100_000
        case "temperature":  # a divisor
            return 1e-6, MOST_NUMBER
        case "entropy_coef":  # a penalty is a negative bonus
            return -MOST_NUMBER, MOST_NUMBER
    return (1, MOST_COUNT) if hint is int else (0, MOST_NUMBER)


def _most_turns() -> int:
    """Turns whose longest calls and answers still have a position each."""
    from rltriage.trainer.gym import MAX_CALL, Episode, make_tasks
    from rltriage.trainer.policy import LONGEST
    from rltriage.trainer.sampling import LONGEST_ANSWER

    prompt = max(len(Episode(task).ids) for task in make_tasks("train") + make_tasks("heldout"))
    return (LONGEST - prompt) // (MAX_CALL + LONGEST_ANSWER)
