"""What `rules explain` says about a rule."""

from __future__ import annotations

import pytest

from rltriage.rules.explain import describe_rule
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Catalogue

pytestmark = pytest.mark.usefixtures("kinds")

PACK = """\
version: 1
pack: mine
rules:
  - id: a-rule
    summary: "reward is {reward}"
    group: outcome
    severity: warning
    requires: {kl_coef: {above: 0}}
    when: {both: [{level: {metric: reward, above: {config: lr, times: 2}}}]}
    unless: {level: {metric: kl_ref, above: 1}}
    for: 2
    suspects: {mask_shift: 0.7}
    first_test: run_invariants
    why: Measured on nothing but this test.
"""

TEXT = """\
a-rule (warning, outcome)

  reward is {reward}

holds when:
  both:
  - level:
      metric: reward
      above:
        config: lr
        times: 2.0

unless:
  level:
    metric: kl_ref
    above: 1.0

timing: for 2 observations before it fires

why:
  Measured on nothing but this test.

needs the metrics:
  - kl_ref
  - reward

needs the config facts (unknown: capped at info):
  - kl_coef > 0: weight of the KL penalty to the reference policy; 0 means none
  - lr: configured peak learning rate

suspects:
  -  70% mask_shift: mask_shift

first test: run all (needs a trainer probe)
  Run them.

defined at PATH:4:5 in pack mine
"""


def test_a_rule_is_described_in_full(folder, catalogue: Catalogue) -> None:
    """The description has the condition, the reason, what it needs, the suspects and the first test."""
    path = folder.write(PACK)
    (rule,) = load_rules(path, catalogue=catalogue).rules
    assert describe_rule(rule, catalogue) == TEXT.replace("PATH", path)
