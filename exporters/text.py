"""Alerts and incidents as people read them, the same block in the terminal, in annotations and in chat.

The heading names severity, fault and confidence; under it follow, in the order in which somebody on call needs them, what
is seen, since when, what to run first, what else it could be. Nothing in a block depends on colour.
Source: DESIGN section 4.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from rltriage.engine.report import CLOSED, Alert, ConfigChange, Incident, Note, Suspect
from rltriage.exporters.jsonlines import test_command
from rltriage.rules.model import Catalogue

if TYPE_CHECKING:
    from rich.text import Text

    from rltriage.engine.sources import BadLine

_LABEL = 11
_SEVERITY = 8
_SHOWN_VALUES = 6
_WORTH_NAMING = 0.01
_TOGETHER = re.compile(r"\(fault \d+\)|[\d<>]+ \d* ?%")  # never broken across lines
_COLOURS = {"critical": "bold white on red", "warning": "bold black on yellow", "info": "bold black on cyan"}
_LINE_COLOURS = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
_CLOSED_COLOUR = "bold black on green"
_STYLES = {"label": "dim", "plain": "", "strong": "bold", "command": "bold cyan", "note": "italic"}
Style = Literal["plain", "strong", "command", "note"]


class _Part(NamedTuple):
    """One labelled paragraph of a block. Commands are never wrapped: they are there to be copied."""

    label: str
    text: str
    style: Style = "plain"


class _Block(NamedTuple):
    badge: str
    colour: str
    heading: str
    parts: tuple[_Part, ...]


def many(count: int, noun: str) -> str:
    """A count with its noun: `1 row`, `3 rows`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def unread(count: int, examples: Sequence[BadLine]) -> str:
    """How many lines of a log were not understood, and the first of them with the reason; empty where all were."""
    if not count:
        return ""
    where = f"line {examples[0].line}: " if examples[0].line else ""
    first = "" if count == 1 else "the first is "
    return f"{many(count, 'line')} {'was' if count == 1 else 'were'} not understood, {first}{where}{examples[0].reason}"


def alert_text(alert: Alert, catalogue: Catalogue, width: int = 80) -> str:
    """An alert at a transition as plain text of at most `width` columns (commands may be longer), no final newline."""
    return "\n".join("".join(text for text, _ in line) for line in _lines(_alert_block(alert, catalogue), width))


def incident_text(incident: Incident, catalogue: Catalogue, width: int = 80) -> str:
    """What is wrong with a run, in the same form."""
    return "\n".join("".join(text for text, _ in line) for line in _lines(_incident_block(incident, catalogue), width))


def alert_rich(alert: Alert, catalogue: Catalogue, width: int = 80) -> Text:
    """The same words for a rich console, which drops the colours where they do not belong."""
    return _rich(_alert_block(alert, catalogue), width)


def incident_rich(incident: Incident, catalogue: Catalogue, width: int = 80) -> Text:
    """The same words as `incident_text` for a rich console."""
    return _rich(_incident_block(incident, catalogue), width)


def alert_line(alert: Alert, width: int = 80) -> str:
    """An alert in a list: severity in a column, rule, step, and what is seen, in as many lines as that takes."""
    state = "" if alert.state == "firing" else f"{alert.state}: "
    lines = _wrapped(f"{alert.rule}, step {alert.step}: {state}{alert.summary}", width - _SEVERITY - 1)
    first = f"{alert.severity:<{_SEVERITY}} "
    return first + f"\n{' ' * len(first)}".join(lines)


def alert_line_rich(alert: Alert, width: int = 80) -> Text:
    """The same words for a rich console; an alert that fires has its severity in colour."""
    from rich.text import Text

    found = Text(alert_line(alert, width))
    if alert.state == "firing":
        found.stylize(_LINE_COLOURS[alert.severity], 0, len(alert.severity))
    elif alert.state in CLOSED:
        found.stylize("dim")
    return found


def suspect_text(suspect: Suspect) -> str:
    """`mask_shift (fault 1), 93 %`: the id that the commands take, the chapter's number, the confidence."""
    number = f" (fault {suspect.number})" if suspect.number is not None else ""
    return f"{suspect.fault}{number}, {percent(suspect.score)}"


def rule_suspect_text(suspect: Suspect) -> str:
    """The same of one rule's suspect: its own weight, which is not the likelihood that an incident makes of all alerts."""
    return f"{suspect_text(suspect)} by this rule"


def seen_text(alert: Alert) -> str:
    """An alert's summary without its stop; one that hangs on an unknown config fact says on which."""
    summary = alert.summary.rstrip(".")
    return f"{summary} ({alert.question.partition(':')[0]})" if alert.question else summary


def percent(share: float) -> str:
    """A likelihood in whole percent. None is a certainty: a score of 1 is one that was rounded, or a rule's own weight."""
    if share < 0.005:
        return "< 1 %"
    if share >= 0.995:
        return "> 99 %"
    return f"{share:.0%}".replace("%", " %")


def _alert_block(alert: Alert, catalogue: Catalogue) -> _Block:
    place = f"{alert.run}, step {alert.step}: "
    if alert.state in CLOSED:
        return _Block(alert.state.upper(), _CLOSED_COLOUR, place + alert.rule, tuple(_closed_parts(alert)))
    badge = alert.severity if alert.state == "firing" else f"{alert.severity}, {alert.state}"
    heading = place + (rule_suspect_text(alert.suspects[0]) if alert.suspects else alert.rule)
    heading += "?" * bool(alert.question)
    return _Block(badge.upper(), _COLOURS[alert.severity], heading, tuple(_open_parts(alert, catalogue)))


def _open_parts(alert: Alert, catalogue: Catalogue) -> Iterator[_Part]:
    if alert.suspects and alert.suspects[0].title:
        yield _Part("would mean" if alert.question else "it means", alert.suspects[0].title)
    yield _Part("seen", _seen(alert))
    yield _Part("since", f"step {alert.since_step}, rule {alert.rule}")
    if alert.explained_by:
        yield _Part("part of", f"{alert.explained_by}, which explains this: follow that alert", "note")
        return
    yield from _test_parts("do first", alert.first_test, alert.run, catalogue)
    yield from _rivals(alert.suspects)
    if alert.question:
        yield _Part("tell us", alert.question, "note")


def _closed_parts(alert: Alert) -> Iterator[_Part]:
    yield _Part("was", _seen(alert))
    yield _Part(
        "since",
        f"step {alert.since_step}" + (f", suspected {rule_suspect_text(alert.suspects[0])}" if alert.suspects else ""),
    )


def _incident_block(incident: Incident, catalogue: Catalogue) -> _Block:
    suspect = suspect_text(incident.suspects[0]) if incident.suspects else "no suspect stands out"
    heading = f"{incident.run}, step {incident.step}: {suspect}"
    badge = f"INCIDENT, {incident.severity.upper()}"
    return _Block(badge, _COLOURS[incident.severity], heading, tuple(_incident_parts(incident, catalogue)))


def _incident_parts(incident: Incident, catalogue: Catalogue) -> Iterator[_Part]:
    if incident.suspects and incident.suspects[0].title:
        yield _Part("it means", incident.suspects[0].title)
    yield _Part("since", f"step {incident.onset_step}")
    yield _Part("seen by", ", ".join(incident.rules))
    yield _Part("the run", _action(incident), "strong")
    yield from _test_parts("do first", incident.first_test, incident.run, catalogue)
    if incident.best_test != incident.first_test:
        yield from _test_parts("best test", incident.best_test, incident.run, catalogue)
    yield from _rivals(incident.suspects)
    if incident.rivals_told_apart_by:
        yield _Part("decided by", incident.rivals_told_apart_by)
    for line in changes_text(incident.changed):
        yield _Part("config", line)
    if incident.unexplained:
        yield _Part("left over", ", ".join(incident.unexplained))
    for note in incident.notes:
        yield _Part("also asked" if note.question else "also noted", note_text(note), "note")


def note_text(note: Note) -> str:
    """`stale_old_logp (stale-old-logp), a fault only if updates_per_batch > 1: pass --config updates_per_batch=...`"""
    about = f"{note.fault} ({note.rule})" if note.fault else note.rule
    return f"{about}, {note.question}" if note.question else about


def changes_text(changed: Sequence[ConfigChange]) -> list[str]:
    """`differs from the healthy reference tinyagent: kl_coef 0.04 -> 0, lr 0.001 -> 0.01`, a line for each comparison."""
    against = dict.fromkeys(change.against for change in changed)
    return [
        f"differs from {name}: "
        + ", ".join(f"{one.fact} {_value(one.before)} -> {_value(one.now)}" for one in changed if one.against == name)
        for name in against
    ]


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _rivals(suspects: Sequence[Suspect]) -> Iterator[_Part]:
    rivals = [suspect for suspect in suspects[1:4] if suspect.score >= _WORTH_NAMING]
    if rivals:
        yield _Part("or it is", "; ".join(suspect_text(suspect) for suspect in rivals))


_ACTIONS = {
    "continue": "may continue meanwhile",
    "stop": "should be stopped: its steps are wasted or harmful",
    "roll back": "should stop and go back to a checkpoint from before step {onset}",
}


def _action(incident: Incident) -> str:
    """What to do with the run; one that was wrong from its first step has no checkpoint to go back to."""
    if incident.action == "roll back" and incident.onset_step <= 0:
        return "should be started anew: no checkpoint of it is good"
    return _ACTIONS.get(incident.action, incident.action).format(onset=incident.onset_step)


def _test_parts(label: str, test: str, run: str, catalogue: Catalogue) -> Iterator[_Part]:
    """The test's title and its command; where nothing can be run, the first sentence of how to do it by hand."""
    if not test:
        return
    entry = catalogue.first_tests.get(test)
    yield _Part(label, entry.title if entry is not None else test, "strong")
    if entry is not None and entry.command:
        yield _Part("", f"$ {test_command(entry.command, run)}", "command")
    elif entry is not None and entry.how:
        yield _Part("", entry.how.split(". ")[0].rstrip(".") + ".")


def _seen(alert: Alert) -> str:
    """The summary, then those numbers of the verdict that it does not already hold."""
    told = {float(text) for text in re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", alert.summary)}
    untold = [
        f"{name} {value:.4g}"
        for name, value in alert.values.items()
        if not any(float(f"{value:.{digits}g}") in told for digits in range(2, 7))
    ]
    return f"{alert.summary} ({', '.join(untold[:_SHOWN_VALUES])})" if untold else alert.summary


def _lines(block: _Block, width: int) -> Iterator[list[tuple[str, str]]]:
    """Lines of (text, style); the badge and labels stand in a column of their own."""
    badge = f" {block.badge} "
    first, *more = _wrapped(block.heading, width - len(badge) - 1)
    yield [(badge, block.colour), (" " + first, _STYLES["strong"])]
    for text in more:
        yield [(" " * (len(badge) + 1) + text, _STYLES["strong"])]
    room = width - _LABEL - 2
    for part in block.parts:
        texts = [" ".join(part.text.split())] if part.style == "command" else _wrapped(part.text, room)
        for index, text in enumerate(texts):
            label = f"  {part.label if index == 0 else '':<{_LABEL}}"
            yield [(label, _STYLES["label"]), (text, _STYLES[part.style])]


def _wrapped(text: str, width: int) -> Sequence[str]:
    glued = _TOGETHER.sub(lambda found: found.group().replace(" ", "\0"), text)
    lines = textwrap.wrap(glued, max(width, 20), break_on_hyphens=False) or [""]
    return [line.replace("\0", " ") for line in lines]


def _rich(block: _Block, width: int) -> Text:
    from rich.text import Text

    found = Text()
    for index, line in enumerate(_lines(block, width)):
        if index:
            found.append("\n")
        for text, style in line:
            found.append(text, style)
    return found
