"""What `rltriage rules explain ID` prints: one rule in words, from it and the catalogues."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rltriage.rules.crosscheck import rule_facts
from rltriage.rules.facts import CONFIG_FACTS, describe_test
from rltriage.rules.model import Catalogue, Fault, FirstTest, Rule

WIDTH = 80


def describe_rule(rule: Rule, catalogue: Catalogue, example: str = "") -> str:
    """The rule in words: condition, reason, needed metrics and facts, its edge of the triage map, what to do first.

    `example` are rows under which it fires, as the caller found them in the pack's rule tests.
    """
    sections = [
        f"{rule.id} ({rule.severity}, {rule.group}{', experimental' if rule.maturity == 'experimental' else ''})",
        _wrap(rule.summary),
        *_conditions(rule),
        *_timing(rule),
        *_prose("why", rule.why),
        *_prose("when it fires on a healthy run", rule.false_positives),
        *_needs(rule, catalogue),
        *_suspects(rule, catalogue),
        *_first_test(rule, catalogue),
        *(["an example that fires:\n" + "\n".join(map(_hanging, example.splitlines()))] if example else []),
        *_prose("references", "; ".join(rule.references)),
    ]
    if rule.mark is not None:
        sections.append(f"defined at {rule.mark}" + (f" in pack {rule.pack}" if rule.pack else ""))
    return "\n\n".join(sections) + "\n"


def _wrap(text: str, indent: str = "  ") -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)


def _hanging(line: str) -> str:
    """A line of an example; what does not fit goes below its first word."""
    depth = len(line) - len(line.lstrip()) + 4
    return textwrap.fill(f"  {line}", WIDTH, subsequent_indent=" " * depth, break_on_hyphens=False, break_long_words=False)


def _prose(title: str, text: str) -> list[str]:
    return [f"{title}:\n{_wrap(text)}"] if text else []


def _conditions(rule: Rule) -> list[str]:
    """The conditions as they would be written in YAML."""
    import yaml

    from rltriage.rules.shapes import plain_condition

    found = []
    for title, part in (("holds when", rule.when), ("unless", rule.unless), ("resolves only when", rule.clear_when)):
        if part is not None:
            written = yaml.safe_dump(plain_condition(part), sort_keys=False, allow_unicode=True, width=WIDTH)
            found.append(f"{title}:\n{textwrap.indent(written.rstrip(), '  ')}")
    return found


def _timing(rule: Rule) -> list[str]:
    said = [f"for {rule.hold} observation{'s' if rule.hold != 1 else ''} before it fires"]
    if rule.keep_firing_for:
        said.append(f"not for {rule.keep_firing_for} observations before it resolves")
    if rule.after:
        said.append(f"ignores the first {rule.after} observations")
    return [textwrap.fill("timing: " + ", ".join(said), WIDTH, subsequent_indent="  ")]


def _needs(rule: Rule, catalogue: Catalogue) -> list[str]:
    lines = []
    for metric in sorted(rule.metrics):
        info = catalogue.metrics.get(metric)
        lines.append(_item(metric, info.help if info is not None else ""))
    needed = ["needs the metrics:\n" + "\n".join(lines)] if lines else []
    tests = [_item(describe_test(fact, tests), CONFIG_FACTS.get(fact, "")) for fact, tests in rule.requires.items()]
    read = [_item(fact, CONFIG_FACTS.get(fact, "")) for fact in sorted(rule_facts(rule) - set(rule.requires))]
    if tests or read:
        needed.append("needs the config facts (unknown: capped at info):\n" + "\n".join(tests + read))
    return needed


def _item(name: str, text: str) -> str:
    return textwrap.fill(f"{name}: {text}" if text else name, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _suspects(rule: Rule, catalogue: Catalogue) -> list[str]:
    if not rule.suspects:
        return ["suspects: none; it says that something is wrong, not what"]
    lines = []
    for fault, weight in rule.suspects.items():
        entry = catalogue.faults.get(fault)
        lines.append(_item(f"{weight:4.0%} {fault_name(fault, entry)}", entry.title if entry is not None else ""))
    return ["suspects:\n" + "\n".join(lines)]


def fault_name(fault: str, entry: Fault | None) -> str:
    """The id with the chapter's number, where it has one: `mask_shift (fault 1)`."""
    return fault if entry is None or entry.number is None else f"{fault} (fault {entry.number})"


def _first_test(rule: Rule, catalogue: Catalogue) -> list[str]:
    test = catalogue.first_tests.get(rule.first_test)
    return [f"first test: {rule.first_test}"] if test is None else ["\n".join(_test_lines(test))]


def _test_lines(test: FirstTest) -> Iterable[str]:
    needs = {"rows": "the metrics alone", "dump": "a recorded batch or sampled text", "trainer": "a trainer probe"}[
        test.tier
    ]
    yield textwrap.fill(f"first test: {test.title} (needs {needs})", WIDTH, subsequent_indent="  ")
    yield _wrap(test.how)
    if test.command:
        yield f"  $ {test.command}"
    for outcome, fault in test.decides.items():
        yield _item(outcome, fault)
