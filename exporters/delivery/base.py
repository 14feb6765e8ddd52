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


def send_halving(post: Callable[[Sequence[int]], Answer], indices: Sequence[int]) -> Outcome:
    """Post `indices` together; if the content is refused, halve until each bad one is alone and the good ones are through.

    A failure that is not about the content ends it: the rest is left for later.
    """
    answer = post(indices)
    if answer.ok:
        return Outcome(accepted=frozenset(indices))
    words = f"answered {answer.status}: {answer.detail}" if answer.status else answer.detail
    if not answer.refuses_content:
        return Outcome(problem=words, retry_after=answer.retry_after)
    if len(indices) == 1:
        return Outcome(refused={indices[0]: words})
    half = len(indices) // 2
    first = send_halving(post, indices[:half])
    if first.problem:
        return first
    second = send_halving(post, indices[half:])
    refused = {**first.refused, **second.refused}
    return Outcome(first.accepted | second.accepted, refused, second.problem, second.retry_after)
