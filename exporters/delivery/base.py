"""What a receiver is: something that takes messages and says what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rltriage.exporters.delivery.http import Answer
from rltriage.exporters.delivery.message import Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch, by index. What is neither accepted nor refused is tried again after a while.

    `refused` maps an index to the receiver's words; `problem` says why the rest did not go through.
    """

    accepted: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""
    retry_after: float = 0.0


class Receiver(Protocol):
    """Sends messages. `send` never raises and never takes longer than its time limits.

    `batch` is how many messages one call takes. `reminded` receivers hold state that expires, so open alerts are re-sent
    to them; the others are told once, several alerts of one fault as one notification.
    """

    @property
    def name(self) -> str: ...
    @property
    def batch(self) -> int: ...
    @property
    def reminded(self) -> bool: ...
    def send(self, messages: Sequence[Message], now: float) -> Outcome: ...
    def close(self) -> None: ...


def send_halving(
    post: Callable[[Sequence[int]], Answer], indices: Sequence[int], lane: Callable[[int], object] = lambda index: index
) -> Outcome:
    """Post `indices` together; if the content is refused, halve until each bad one is alone and the good ones are through.

    A failure that is not about the content ends it: the rest is left for later. So is what comes behind a refused one in
    the same `lane`, whose order must hold.
    """
    found = _Halves(post, lane)
    found.send(indices)
    return Outcome(frozenset(found.accepted), found.refused, found.problem, found.retry_after)


class _Halves:
    """What a batch has come to so far."""

    def __init__(self, post: Callable[[Sequence[int]], Answer], lane: Callable[[int], object]) -> None:
        self._post, self._lane = post, lane
        self._closed: set[object] = set()
        self.accepted: set[int] = set()
        self.refused: dict[int, str] = {}
        self.problem = ""
        self.retry_after = 0.0

    def send(self, indices: Sequence[int]) -> None:
        indices = [index for index in indices if self._lane(index) not in self._closed]
        if not indices or self.problem:
            return
        answer = self._post(indices)
        words = f"answered {answer.status}: {answer.detail}" if answer.status else answer.detail
        if answer.ok:
            self.accepted.update(indices)
        elif not answer.refuses_content:
            self.problem, self.retry_after = words, answer.retry_after
        elif len(indices) == 1:
            self.refused[indices[0]] = words
            self._closed.add(self._lane(indices[0]))
        else:
            half = len(indices) // 2
            self.send(indices[:half])
            self.send(indices[half:])
