"""The few errors that leave the package. Each message is one sentence: what is wrong, where, what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltriage.rules.model import Problem


class RltriageError(Exception):
    """Base of every error that rltriage raises on purpose; the command line turns it into exit code 2."""


class RulePackError(RltriageError):
    """A rule pack, catalogue, profile or configuration file is wrong; holds every problem found, not just the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SourceError(RltriageError):
    """A run cannot be read: the file is missing, empty, or nothing in it is a metric row."""


class DeliveryError(RltriageError):
    """An alert or a gauge could not be handed over: a port in use, a receiver that refuses."""
