"""Console lines of people's own loops: `loss=0.1 reward=0.5`, `Reward: 0.5, KL_ref: 0.01`, `7/100 | loss=...`,
`Step 12 | Loss 0.1 | Entropy 0.2`, dicts among the pairs included."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, flatten, to_float
from rltriage.engine.sources.console import is_metric_name
from rltriage.engine.sources.dict_lines import closing, parse_dict

MAX_TEXT = 20_000
_NUMBER = (
    r"[+-]?(?:\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|(?i:nan|inf(?:inity)?)|1\.#(?i:inf|q?nan|ind)0*)"
)
_VALUE = rf"(?:{_NUMBER}%?|\[\s*{_NUMBER}\s*\]|[A-Za-z_][\w.]{{0,30}}\({_NUMBER}(?:,[^()]{{0,60}})?\))"
# A name begins where a word does and has an end: a word of thousands of letters is looked at once, not once a letter.
_WORD = r"[A-Za-z_][\w./@-]{0,120}"
_NAME = rf"(?<![A-Za-z_]){_WORD}(?: {_WORD}){{0,3}}"
PAIR = re.compile(rf"({_NAME})\s*[:=]\s*({_VALUE})(?=$|[\s,;|)\]}}])")
_CELL = re.compile(rf"^\s*({_NAME}) +({_NUMBER}%?)\s*$")
_NESTED = re.compile(rf"(?<![A-Za-z_])({_WORD})\s*[:=]\s*(?=\{{)")
_FRACTION = re.compile(r"(?<![\d./:-])(\d{1,9})\s*/\s*(\d{1,9})(?![\d./:-])")
_SPARSE = re.compile(r"eval|val|test|acc|pass|score|reward", re.IGNORECASE)
# Lines about a part of a step: micro-batches, and the bars that OpenRLHF draws over the minibatches of a step.
_INNER = re.compile(r"\bmicro[ _-]?(?:step|batch)\b|\bTrain epoch \[\d+/\d+\]", re.IGNORECASE)
_STEP = re.compile(r"^(?:global[_ ]?|train(?:ing)?[_ ]?)?(?:step|iter|iteration|update|batch)$", re.IGNORECASE)


class KeyValueLines:
    """A line format: a row is a line with two or more numbers by name, one of them something that training measures.

    A line with a single number that is an evaluation (`eval_acc: 0.48`) is joined to the next row.
    """

    def __init__(self, stats: SourceStats) -> None:
        self._stats = stats
        self._sparse: dict[str, Any] = {}

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        if len(line) > MAX_TEXT:
            self._stats.refuse(number, f"console line longer than {MAX_TEXT} characters")
            return None
        values = {} if _INNER.search(line) else pairs(line)
        measured = [name for name in values if is_metric_name(name)]
        if not measured:
            return None
        if len(values) == 1:
            if _SPARSE.search(measured[0]) and len(self._sparse) < 50:
                self._sparse.update(values)
            return None
        joined = {**self._sparse, **values}
        self._sparse = {}
        has_step = any(_STEP.match(name) for name in values)
        return (Record(joined, step=None if has_step else _fraction(line)),)

    def flush(self, ended: bool) -> Iterable[Record]:
        return ()

    def reset(self) -> None:
        self._sparse = {}


def pairs(line: str) -> dict[str, Any]:
    """Every number with a name in a line; a dict's numbers are joined to its name."""
    values: dict[str, Any] = {}
    at = 0
    while (nested := _NESTED.search(line, at)) is not None:
        at = nested.start()
        end = closing(line[nested.end() :])
        inner = parse_dict(line[nested.end() :]) if end > 0 else None
        if inner is None:
            line = line[: nested.start()]
            break
        flat = flatten({nested.group(1): inner})
        values.update({name: value for name, value in flat.items() if to_float(value) is not None})
        line = line[: nested.start()] + line[nested.end() + end :]
    for name, value in PAIR.findall(line):
        values.setdefault(_short(name), value)
    if line.count("|") > 1:
        for cell in line.split("|"):
            if (found := _CELL.match(cell)) is not None:
                values.setdefault(_short(found.group(1)), found.group(2))
    return values


def _short(name: str) -> str:
    """A name without the level that a logger put before it (`INFO reward` is `reward`)."""
    for level in ("INFO ", "DEBUG ", "WARNING "):
        name = name.removeprefix(level)
    return name


def _fraction(line: str) -> int | None:
    """The step in `7/100`: the number over the largest total; `Epoch [2/3] (7/100)` counts through the epochs."""
    found = [(int(n), int(total), at.start()) for at in _FRACTION.finditer(line) for n, total in [at.groups()]]
    found = [(n, total, start) for n, total, start in found if n <= total and total > 0]
    if not found:
        return None
    step, total, start = max(found, key=lambda item: item[1])
    epoch = re.search(r"epoch\W{0,4}$", line[: found[0][2]], re.IGNORECASE)
    if len(found) > 1 and epoch is not None and found[0][2] != start:
        return (found[0][0] - 1) * total + step
    return step
