"""What a slip in a condition reads like: one message, at its place, that says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltriage.rules.conditions import KINDS
from rltriage.rules.loader import check_rules

RULE = """\
version: 1
rules:
  - id: a
    summary: s
    group: outcome
    severity: info
    suspects: {}
    first_test: run_invariants
    when: CONDITION
"""
LIMIT = "{threshold: {metric: reward, above: 1}}"
MISTAKES = {
    "threshold: {metric: reward, abov: 1}": "`threshold` has no field `abov` | did you mean `above`?",
    "threshold: {metric: reward, above: high}": "`above` must be a number or a mapping, not the text 'high'",
    "threshold: {metric: reward, above: 5%}": "not the text '5%' | write 0.05",
    "threshold: {metric: reward, above: 1, below: 2}": "`above` and `below` are several limits: write a threshold for each",
    "threshold: {metric: reward}": "the threshold has no limit: add one of above, at_least",
    "threshold: {metric: reward, above: {}}": "write a number, {metric: NAME} or {config: FACT}",
    "threshold: {metric: reward, above: {metric: x, config: lr}}": "`metric` and `config` are several sources",
    "threshold: {metric: reward, stat: best, window: {last: 5}, above: 1}": "give stat or window, not both",
    "equal: {left: {metric: reward}, right: 3}": "`right` must be a list, not the number 3 | write [3]",
    "equal: {left: {metric: reward}, right: []}": "`right` must have at least 1 element, not 0",
    "weighted_sum: {components: []}": "`components` must have at least 1 element",
    "weighted_sum: {component: [a]}": "did you mean `components`?",
    "trivial: {metric: kl_ref}": "`trivial` lacks `equals` | add `equals: ...`: the exact value",
    "trivial: {metric: kl_ref, equals: zero}": "`equals` must be a number, not the text 'zero'",
    "race: {falling: entropy}": "`race` lacks `rising`",
    "race: {falling: entropy, rising: reward, drop: half}": "`drop` must be a number, not the text 'half'",
    "divergence: {left: a, right: b}": "nothing says how far: add `factor: 2`",
    "divergence: {left: a, right: b, mode: product, factor: 2}": "it is one of ratio, difference",
    "departure: {metric: entropy, direction: up}": "nothing says how far: add `factor: 2`",
    "departure: {metric: entropy, direction: upp, factor: 2}": "did you mean `up`?",
    "spike: {metric: grad_norm, flor: 1}": "did you mean `floor`?",
    "spike: {metric: grad_norm, min: 30}": "min must be at most window",
    "trend: {metric: reward}": "`trend` lacks `direction` | add `direction: ...`: up | down | flat",
    "trend: {metric: reward, direction: flatt}": "did you mean `flat`?",
    "held_out: {training: reward}": "`held_out` lacks `held_out`",
    "held_out: {training: reward, held_out: eval_pass, gain: much}": "`gain` must be a number or a mapping",
    "trade: {componets: [a]}": "did you mean `components`?",
    "trade: {components: a}": "`components` must be a list, not the text 'a' | write [a]",
    "all_fail: {at_least: '0.5'}": "write 0.5 without quotes",
    "all_fail: {}": "`all_fail` lacks `at_least`",
    "band: {metric: reward, side: left}": "it is one of both, above, below",
    "band: {}": "`band` lacks `metric`",
    "absent: {}": "nothing says what is missing: add `metrics` or `overdue`",
    "absent: {metrics: [reward], overdue: 3, seconds: 3}": "`metrics` and `overdue` are two conditions",
    "nonfinite: {excpt: [reward]}": "did you mean `except`?",
    "nonfinite: {metrics: reward}": "`metrics` must be a list, not the text 'reward' | write [reward]",
    "rows: {to: first}": "`to` must be a whole number, not the text 'first'",
    "rows: {from: 5, to: 3}": "from must be at most to",
    "resumed: {row: 3}": "did you mean `rows`?",
    "resumed: {rows: -1}": "`rows` must be at least 1, not -1",
    "fact: {name: lr}": "nothing says what the fact must be: add one of above",
    "fact: {name: lr, above: high}": "`above` must be a number, not the text 'high'",
    f"all: {LIMIT}": "`all` must be a list, not a mapping | begin each element with `- `",
    "any: []": "`any` must have at least 1 element, not 0",
    f"not: [{LIMIT}]": "`not` must be a mapping (`key: value`), not a list",
    "repeated: {when: {rows: {to: 1}}, at_leat: 2}": "did you mean `at_least`?",
    "repeated: {when: {rows: {to: 1}}, at_least: 6, of: 5}": "at_least must be at most of",
}


@pytest.mark.parametrize(("condition", "message"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_says_what_to_write(condition: str, message: str, tmp_path: Path) -> None:
    """Wrong name, wrong type, several limits, none: the message is at the condition and can be acted on."""
    path = tmp_path / "mine.yaml"
    path.write_text(RULE.replace("CONDITION", f"{{{condition}}}"))
    found = check_rules([path])
    assert any(message in f"{problem.message} | {problem.hint}" for problem in found), found
    assert all(problem.mark.line == 9 and problem.level == "error" for problem in found)


def test_every_kind_has_its_mistakes() -> None:
    """A new kind brings its slips along."""
    assert {condition.split(":")[0] for condition in MISTAKES} == set(KINDS)
