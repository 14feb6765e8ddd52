"""A small catalogue, and builders of alerts and rules for the triage tests."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from rltriage.engine.report import Alert, Suspect
from rltriage.rules.model import Catalogue, Fault, FirstTest, Rule, RulePack


@dataclass(frozen=True)
class Level:
    """A condition as triage sees one: a metric and the side of its limit."""

    metric: str
    above: float | None = None
    below: float | None = None
    equals: float | None = None
    kind: ClassVar[str] = "level"

    def metrics(self):
        """The metric that it names."""
        return frozenset({self.metric})

    def bind(self, view):
        """Triage never evaluates."""
        raise NotImplementedError


@dataclass(frozen=True)
class Both:
    """A conjunction as triage sees one."""

    all: tuple[object, ...]
    kind: ClassVar[str] = "all"

    def metrics(self):
        """All that its parts name."""
        return frozenset().union(*(part.metrics() for part in self.all))


def fault(name, number=None, checks=(), explains=(), **more):
    """A catalogue entry."""
    return Fault(
        name, name.replace("_", " "), "", number=number, failing_checks=frozenset(checks), explains=tuple(explains), **more
    )


MASK, SAMPLER, RATIO, PADDING = (
    "mask_is_policy_tokens",
    "sampler_equals_trainer",
    "ratio_one_before_step",
    "loss_invariant_to_padding",
)


@pytest.fixture
def catalogue():
    """Faults with the rows of the chapter's matrix that the tests need."""
    faults = [
        fault(
            "mask_shift",
            1,
            (MASK, SAMPLER, PADDING),
            [("grad_norm", "up"), ("entropy", "up"), ("malformed", "up")],
            action="stop",
            first_test="check_mask",
        ),
        fault("stale_old_logp", 2, ("old_logp_frozen",), excluded_when={"updates_per_batch": {"below": 2}}),
        fault("entropy_collapse", 3, ("no_advantage_no_gradient",)),
        fault("sign_flip", 5, ("update_follows_advantage",)),
        fault("lr_too_high", 7, excluded_when={"lr": {"equals": 0}}),
        fault("accum_norm", 8, ("accumulated_equals_one_pass",)),
        fault("temperature_mismatch", 9, (SAMPLER, RATIO)),
        fault("engine_mismatch", None, (SAMPLER, RATIO)),
        fault("truncation_cap", None, (), [("zero_adv_frac", "up"), ("grad_norm", "zero")]),
        fault("zero_advantage_groups", None, (), [("grad_norm", "zero")]),
        fault("nonfinite", None, (), [("reward", "down")]),
    ]
    tests = [
        FirstTest("check_mask", "the loss mask is the policy's tokens", "trainer", "", check=1),
        FirstTest("lower_lr", "rerun at lr/10", "trainer", ""),
        FirstTest("read_tail", "read one completion", "dump", ""),
        FirstTest(
            "temperatures",
            "regress one log-probability on the other",
            "dump",
            "",
            decides={"a slope off 1": "temperature_mismatch", "a slope of 1 with scatter": "engine_mismatch"},
        ),
    ]
    return Catalogue({entry.id: entry for entry in faults}, {test.id: test for test in tests}, {})


@pytest.fixture
def alert():
    """Builds a firing alert of a rule."""

    def make(rule, suspects, severity="critical", since=0, group="consistency", test="check_mask", state="firing"):
        named = tuple(Suspect(name, name, weight) for name, weight in suspects.items())
        return Alert(f"id-{rule}", "run", rule, state, severity, group, since, since, 0, rule, {}, named, test)

    return make


@pytest.fixture
def pack():
    """Builds a pack of rules from (id, condition) pairs."""

    def make(**conditions):
        return RulePack(
            "test",
            tuple(Rule(name, name, "consistency", "critical", when, {}, "check_mask") for name, when in conditions.items()),
        )

    return make
