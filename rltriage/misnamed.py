"""Logged names that no rule reads though they look like one that rules do: a slip, or the trainer's own word for it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from rltriage.engine.intake import Intake
from rltriage.rules.model import RulePack
from rltriage.rules.profiles import METRICS

MOST_LOOKED_AT = 200
"""Names of one run that are compared: a log may make names up."""
AT_ONCE = 2
"""Names that are compared at one row: training waits for it, a tenth of a millisecond each."""
MOST_SAID = 6
LONGEST_NAME = 80
ALIKE = 0.75
"""Share of letters in common from which on a word is taken for a misspelt one."""
_WORD = re.compile(r"[a-z0-9]+")
_FILLERS = frozenset(
    ("mean", "avg", "average", "policy", "model", "train", "training", "actor", "nats", "the", "to", "of", "my")
)
"""Words that a name may have more without meaning something else."""
_SHORT = {"reference": "ref", "gradient": "grad", "fraction": "frac", "rewards": "reward", "lengths": "length"}
_LIMITS = frozenset(("max_grad_norm",))
"""Settings that read like a metric with its words in another order."""


class Misnamed:
    """Finds them among a run's names, each once. What resembles no metric is the user's own, and nobody's business."""

    def __init__(self) -> None:
        self._looked = 0
        self._said = 0

    def sentence(self, intake: Intake, pack: RulePack, where: str = "", at_once: int = AT_ONCE) -> str:
        """One line about the next names that are new and near a metric that this run lacks; "" if there are none.

        `where` is how the run is named on a command line, if it can be.
        """
        end = min(len(intake.unmapped), MOST_LOOKED_AT)
        if self._looked >= end or self._said >= MOST_SAID:
            return ""
        new = intake.unmapped[self._looked : min(end, self._looked + at_once)]
        self._looked += len(new)
        found = list(_near(new, intake, pack))[: MOST_SAID - self._said]
        self._said += len(found)
        if not found:
            return ""
        told = ", ".join(f"{_shown(name)} (did you mean `{metric}`?)" for name, metric in found)
        return f"no rule reads: {told}" + (f"; `rltriage profiles check {where}` lists all" if where else "")


def _near(names: Iterable[str], intake: Intake, pack: RulePack) -> Iterator[tuple[str, str]]:
    read = {metric for rule in pack.rules for metric in rule.metrics}
    lacking = [metric for metric in METRICS if metric not in intake.mapped and metric in read]
    for name in names:
        if name not in read and len(name) <= LONGEST_NAME and (metric := near_metric(name, lacking)):
            yield name, metric


def near_metric(name: str, metrics: Sequence[str]) -> str:
    """The metric that a name seems to mean: its words in another order or with fillers, or misspelt word by word; else "".

    A word more, or another statistic, is another thing: `value_grad_norm`, `is_ratio_max`.
    """
    words = _words(name)
    if "_".join(words) in _LIMITS or not words:
        return ""
    bare = frozenset(words) - _FILLERS
    meant = next((metric for metric in metrics if bare and bare == _bare(metric)), "")
    return meant or next((metric for metric in metrics if _misspelt(words, _known(metric))), "")


def _misspelt(words: Sequence[str], known: Sequence[str]) -> bool:
    return len(words) == len(known) and all(map(_alike, words, known))


def _alike(word: str, known: str) -> bool:
    if word == known:
        return True
    matcher = difflib.SequenceMatcher(None, known, word)
    return min(len(word), len(known)) > 3 and matcher.real_quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE


def _words(name: str) -> tuple[str, ...]:
    return tuple(_SHORT.get(word, word) for word in _WORD.findall(name.lower()))


@lru_cache(maxsize=1024)
def _known(metric: str) -> tuple[str, ...]:
    return _words(metric)


@lru_cache(maxsize=1024)
def _bare(metric: str) -> frozenset[str]:
    return frozenset(_words(metric)) - _FILLERS


def _shown(name: str) -> str:
    """A name with a line's end or a terminal's control sequence is shown as Python writes it."""
    return name if name.isprintable() else ascii(name)
