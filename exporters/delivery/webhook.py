"""A webhook: one POST a notification, its JSON body shaped by a template that is itself data.

The template is the JSON wanted, with `$name` in its texts (string.Template). Not a text template: whatever an alert says,
the body is valid JSON, nothing needs escaping, and a template can neither run code nor read anything but these names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from rltriage.exporters.delivery.base import Outcome, send_halving
from rltriage.exporters.delivery.http import Answer, Poster
from rltriage.exporters.delivery.message import Message

DEFAULT_BODY: Mapping[str, Any] = {
    "format": 1,
    "status": "$status",
    "title": "$title",
    "text": "$text",
    "fault": "$fault",
    "page_url": "$page_url",
    "runbook_url": "$runbook_url",
    "runs": "$runs",
    "alerts": "$alerts",
}
_LINKS = (("page", "page_url"), ("runbook", "runbook_url"))


class Webhook:
    """Posts one notification for all messages that it is handed. `body` is the template, as plain JSON data."""

    batch = 200
    reminded = False

    def __init__(self, name: str, poster: Poster, body: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._poster = poster
        self._body = DEFAULT_BODY if body is None else body

    def send(self, messages: Sequence[Message], now: float) -> Outcome:
        def post(part: Sequence[int]) -> Answer:
            told = [messages[index] for index in part]
            return self._poster.post(fill(self._body, values(told)), {"Idempotency-Key": self._key(told)})

        return send_halving(post, range(len(messages)), lambda index: messages[index].run)

    def close(self) -> None:
        self._poster.close()

    def _key(self, messages: Sequence[Message]) -> str:
        """The same for the same notification after a crash, so that a receiver can drop the second one."""
        text = "\0".join([self.name, *sorted(f"{message.alert} {message.state}" for message in messages)])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def values(messages: Sequence[Message]) -> dict[str, Any]:
    """What the placeholders (`rules.config_checks.PLACEHOLDERS`) stand for; single fields are the worst open alert's."""
    lead = leading(messages)
    runs = sorted({message.run for message in messages})
    return {
        "alerts": [message.public() for message in messages],
        "command": lead.annotations.get("first_test_command", ""),
        "count": len(messages),
        "fault": lead.fault,
        "first_test": lead.labels.get("first_test", ""),
        "id": lead.alert,
        "page_url": lead.annotations.get("page_url", ""),
        "rule": lead.rule,
        "run": lead.run,
        "runbook_url": lead.annotations.get("runbook_url", ""),
        "runs": runs,
        "severity": lead.severity,
        "state": lead.state,
        "status": "firing" if any(message.open for message in messages) else "resolved",
        "step": lead.step,
        "suspects": lead.annotations.get("suspects", ""),
        "text": text(messages),
        "title": title(messages),
        "values": lead.annotations.get("values", ""),
    }


def leading(messages: Sequence[Message]) -> Message:
    """The message that stands for all: open before closed, then the most severe, then the first."""
    order = {"critical": 0, "warning": 1, "info": 2}
    return min(messages, key=lambda message: (not message.open, order[message.severity]))


def title(messages: Sequence[Message]) -> str:
    """One line for a notification; it counts the runs where there are several, and says when it is over."""
    lead = leading(messages)
    runs = len({message.run for message in messages})
    told = lead.title if lead.open else f"{lead.state}: {lead.title}"
    return f"{told} and {runs - 1} more run{'s' if runs > 2 else ''}" if runs > 1 else told


def text(messages: Sequence[Message], shown: int = 20) -> str:
    """The whole block of the leading message, a line for each of the others, then where to read on about the first."""
    lead = leading(messages)
    others = [message for message in messages if message is not lead]
    lines = [f"{message.state}: {message.rule} in {message.run} at step {message.step}" for message in others[:shown]]
    if len(others) > shown:
        lines.append(f"and {len(others) - shown} more")
    links = [f"{name}: {lead.annotations[key]}" for name, key in _LINKS if key in lead.annotations]
    return "\n".join([lead.text, *(["also:"] if lines else []), *lines, *links])


def fill(template: Any, found: Mapping[str, Any]) -> Any:
    """The template with its texts filled in. A text that is one placeholder takes the value itself, list or number."""
    if isinstance(template, Mapping):
        return {str(key): fill(value, found) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [fill(value, found) for value in template]
    if not isinstance(template, str):
        return template
    name = template[1:].strip("{}")
    if template in (f"${name}", f"${{{name}}}") and name in found:
        return found[name]
    plain = {key: ", ".join(map(str, value)) if key == "runs" else value for key, value in found.items()}
    return Template(template).safe_substitute(plain)
