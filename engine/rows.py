"""Runs and rows: the two things that the engine is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NamedTuple

Provenance = Literal["declared", "logged", "inferred"]


def picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What takes the values of these names out of a mapping, in their order; `itemgetter` of one gives no tuple."""
    return itemgetter(*names) if len(names) > 1 else lambda values: tuple([values[name] for name in names])


def writable(text: str) -> str:
    """The text, with `?` for what UTF-8 cannot write."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


@dataclass(frozen=True, slots=True)
class Fact:
    """One config fact with where it came from (DESIGN section 3: declared > logged > inferred)."""

    value: Any
    provenance: Provenance
    source: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One training run: its id, its labels, its config facts under canonical names.

    In id and labels, what no encoding can write (half a surrogate pair, from a JSON escape or a file's name) becomes `?`.
    """

    id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    profile: str = "generic"

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", writable(self.id))
        if self.labels:
            object.__setattr__(self, "labels", {writable(name): writable(value) for name, value in self.labels.items()})


class Row(NamedTuple):
    """The metrics of one step under canonical names. Absent metrics are absent keys; NaN and infinities are kept.

    `time` is wall time in unix seconds, or None where the log does not say.
    """

    step: int
    metrics: Mapping[str, float]
    time: float | None = None


class Record(NamedTuple):
    """One record as a logger wrote it, before a profile names its metrics. Values may be anything JSON can hold.

    `step` is None where the log has no step key (the ordinal becomes the step, and the run says so).
    """

    values: Mapping[str, Any]
    step: int | None = None
    time: float | None = None
    run: str | None = None
