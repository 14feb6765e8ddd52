"""What the console formats share: cleaning what terminals and launchers add to lines, telling metrics from chatter."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]")
# Patterns that meet any line take time in proportion to its length: nothing unbounded stands beside what it can also match.
_WORKER = re.compile(r"^\s*(?:\((?=[A-Za-z_][^()]*?\b(?:pid|ip|rank)=)[^()]*\)|\[(?:rank|default|trainer)(\d+)\]:?)\s?")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?")
_RANK = re.compile(r"\brank=(\d+)")
_REPEATED = re.compile(r"\[repeated \d+x across [^\[\]]*\]")
_METRIC = re.compile(
    r"loss|reward|grad|learning_rate|\blr\b|(?:^|[^a-z])kl|entropy|acc(?:uracy)?\b|return|score|advantage|adv\b|pass|clip"
    r"|logp|ratio|runtime|l2_norm",
    re.IGNORECASE,
)


def clean(line: str) -> str | None:
    """The line without colours and what Ray, torchrun or a container puts around it; None if it is another rank's."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if line[:2] == "20" and (stamp := _STAMP.match(line)):
        line = line[stamp.end() :]
    if line[:1] in "([ " and (prefix := _WORKER.match(line)):
        rank = prefix.group(1) or ((found := _RANK.search(prefix.group())) and found.group(1))
        if rank and int(rank):
            return None
        line = line[prefix.end() :]
    if line.find("[repeated ") > 0 and (repeated := _REPEATED.search(line)):
        line = line[: repeated.start()].rstrip()
    return line


def is_metric_name(name: str) -> bool:
    """Whether a console key looks like something that a training loop measures (not a pid, a port, a shape)."""
    return _METRIC.search(name) is not None
