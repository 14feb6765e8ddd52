"""What the console formats share: cleaning what terminals and launchers add to lines, telling metrics from chatter."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_WORKER = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*(?:\([A-Za-z_][^()]*?\b(?:pid|ip|rank)=[^()]*\)|\[rank\d+\]:?)\s?")
_METRIC = re.compile(
    r"loss|reward|grad|learning_rate|\blr\b|(?:^|[^a-z])kl|entropy|acc(?:uracy)?\b|return|score|advantage|adv\b|pass|clip"
    r"|logp|ratio|runtime|l2_norm",
    re.IGNORECASE,
)


def clean(line: str) -> str:
    """The line without ANSI codes and without Ray's or torchrun's worker prefix."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if line[:1] in "([ " and (prefix := _WORKER.match(line)):
        line = line[prefix.end() :]
    return line


def is_metric_name(name: str) -> bool:
    """Whether a console key looks like something that a training loop measures (not a pid, a port, a shape)."""
    return _METRIC.search(name) is not None
