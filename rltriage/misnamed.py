"""Logged names that no rule reads though they look like one that rules do: a slip, or the trainer's own word for it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from functools import cache

from rltriage.engine.intake import Intake
from rltriage.rules.model import RulePack
from rltriage.rules.profiles import METRICS

MOST_LOOKED_AT = 200
"""Names of one run that are compared: each costs a tenth of a millisecond, and a log may make names up."""
MOST_SAID = 6
LONGEST_NAME = 80
ALIKE = 0.8
"""Share of letters in common from which on a name is taken for a misspelt one."""
_WORD = re.compile(r"[a-z0-9]+")
_FILLERS = frozenset(("mean", "avg", "average", "policy", "train", "training", "actor", "the", "to", "of", "my"))
"""Words that a name may have more without meaning something else."""


class Misnamed:
    """Finds them among a run's names, each once. What resembles no metric is the user's own, and nobody's business."""

    def __init__(self) -> None:
        self._looked = 0
        self._said = 0

    def sentence(self, intake: Intake, pack: RulePack, where: str = "") -> str:
        """One line about the names that are new and near a metric that this run lacks; "" if there are none.

        `where` is how the run is named on a command line, if it can be.
        """
        if self._looked == len(intake.unmapped) or self._looked >= MOST_LOOKED_AT:
            return ""
        new = intake.unmapped[self._looked : MOST_LOOKED_AT]
        self._looked = min(len(intake.unmapped), MOST_LOOKED_AT)
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


def near_metric(name: str, metrics: Iterable[str]) -> str:
    """The metric that a name seems to mean: misspelt, with its words in another order, or with some more; else "".

    A metric of one word (`reward`, `loss`) is not meant by every name that holds the word: there are many losses.
    """
    words = _words(name)
    bare = words - _FILLERS
    joined = "_".join(_WORD.findall(name.lower()))
    best, score = "", 0.0
    for metric in metrics:
        wanted = _words(metric)
        if bare and bare == wanted - _FILLERS:
            return metric
        share = len(wanted) / len(words) if len(wanted) > 1 and wanted <= words and bare - wanted <= _MODELS else 0.0
        matcher = difflib.SequenceMatcher(None, metric, joined)
        if not share and matcher.real_quick_ratio() >= ALIKE and matcher.quick_ratio() >= ALIKE:
            alike = matcher.ratio()
            share = alike if alike >= ALIKE else 0.0
        if share > score:
            best, score = metric, share
    return best


_MODELS = frozenset(("model", "old", "loss", "value", "nats", "tokens", "token", "frac", "ratio"))
"""Words that may stand beside those of a metric of several words."""


_SHORT = {"reference": "ref", "gradient": "grad", "fraction": "frac", "rewards": "reward", "lengths": "length"}


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(_SHORT.get(word, word) for word in _WORD.findall(name.lower()))


def _shown(name: str) -> str:
    """A name with a line's end or a terminal's control sequence is shown as Python writes it."""
    return name if name.isprintable() else ascii(name)
