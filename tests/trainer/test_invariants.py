"""The check-by-fault matrix of chapter 18.6 and the two checks that go beyond it."""

import dataclasses
import functools

import pytest
import torch

from rltriage.rules.errors import RltriageError
from rltriage.trainer import CHECKS, FAULTS, as_metrics, reference_probe, run_checks
from rltriage.trainer.policy import load_base
from rltriage.trainer.probe import CHECKED

FAILING = {
    None: set(),
    "mask_shift": {1, 2, 5},
    "stale_old_logp": {7},
    "entropy_collapse": {10},
    "sign_flip": {8},
    "accum_norm": {6},
    "temperature_mismatch": {2, 3},
    "ref_is_policy": {9},
}


@pytest.fixture(scope="module")
def healthy():
    """All checks of the healthy trainer, run once, and the policy that they looked at."""
    policy = load_base()
    return run_checks(reference_probe(policy=policy)), policy


SMALL = dataclasses.replace(CHECKED, tasks_per_step=4)
"""Half of the batch of `rltriage check`: every check still has groups with a spread to judge by."""


@pytest.mark.parametrize("fault", FAILING)
def test_each_code_fault_fails_exactly_its_checks(fault, healthy):
    """The chapter's matrix, 8 rows by 9 columns, plus check 10 for the entropy penalty that its nine let pass."""
    results = run_checks(reference_probe(fault, SMALL)) if fault else healthy[0]
    assert [r.number for r in results] == list(range(1, 12))
    assert all(r.passed is not None for r in results)
    assert {r.number for r in results if not r.passed} == FAILING[fault]


def test_the_matrix_has_a_row_for_every_code_fault_of_the_chapter():
    """A fault added to the chapter's list cannot be forgotten here."""
    assert {f.id for f in FAULTS.values() if f.number and f.kind == "code"} == set(FAILING) - {None}


def test_configuration_faults_pass_every_check():
    """Learning rate, reward and loss mode are correct code with a wrong setting (chapter 18.6)."""
    for fault in ("lr_too_high", "reward_hacking", "length_bias"):
        assert all(r.passed for r in run_checks(reference_probe(fault, SMALL)))


def test_healthy_values_have_the_chapters_margins(healthy):
    """The mask is exact, sampler and trainer agree to fp32 rounding, the gradient is the same in one pass."""
    value = {r.number: r.value for r in healthy[0]}
    assert value[1] == value[3] == value[6] == 0
    assert 0 < value[2] < 1e-5
    assert value[4] < 1e-6 and value[5] < 1e-7


@functools.cache
def probe():
    """The healthy trainer's, whose batch is sampled once; checks change nothing in it."""
    return reference_probe()


class Tampered:
    """The healthy probe with some of its answers changed."""

    def __init__(self, **changes):
        self._probe, self._changes = probe(), changes

    def __getattr__(self, name):
        answer = getattr(self._probe, name)
        change = self._changes.get(name)
        return (lambda *args, **kwargs: change(answer(*args, **kwargs))) if change else answer


def results(only, **changes):
    """The named checks on a tampered probe, by number."""
    return {r.number: r for r in run_checks(Tampered(**changes), only=only)}


def test_advantages_of_a_shuffled_batch_fail_the_layout_check_only():
    """Advantages computed after a shuffle out of the group layout pass the chapter's check 4: block means are still 0."""
    from rltriage.trainer.losses import group_advantages

    rewards = probe().sample().rewards
    order = torch.randperm(len(rewards), generator=torch.Generator().manual_seed(0))
    shuffled = torch.zeros_like(rewards)
    shuffled[order] = group_advantages(rewards[order], 8)
    found = results([4, 11], prepare=lambda made: dataclasses.replace(made, advantages=shuffled))
    assert found[11].passed is False
    in_order = group_advantages(rewards[order], 8)
    found = results([4, 11], prepare=lambda made: dataclasses.replace(made, advantages=in_order))
    assert found[4].passed is True and found[11].passed is False


def test_any_affine_baseline_passes_the_layout_check():
    """Mean-only advantages (Dr. GRPO) and other scales are not a fault."""
    changed = lambda made: dataclasses.replace(made, advantages=made.advantages * 0.3)  # noqa: E731
    assert results([11], prepare=changed)[11].passed is True


@pytest.mark.parametrize(
    ("check", "settings", "reason"),
    [
        (4, {"group_size": None}, "groups"),
        (7, {"updates_per_batch": 1}, "one update per batch"),
        (7, {"lr": 0.0}, "lr is 0"),
        (8, {"lr": 0.0}, "lr is 0"),
        (9, {"kl_coef": 0.0}, "kl_coef is 0"),
        (10, {"entropy_coef": 0.01}, "entropy bonus"),
        (11, {"group_size": None}, "groups"),
    ],
)
def test_a_check_that_cannot_judge_is_not_applicable(check, settings, reason):
    """Not applicable is neither pass nor fail, says why, and leaves no metric behind."""
    result = results([check], settings=lambda made: dataclasses.replace(made, **settings))[check]
    assert result.passed is None and result.value is None and reason in result.reason
    assert as_metrics([result]) == {}


def test_update_checks_need_two_groups_with_different_rewards():
    """An update on flat groups has no gradient, so its direction would be noise."""
    flat = lambda made: dataclasses.replace(made, rewards=torch.ones_like(made.rewards))  # noqa: E731
    assert {n: r.passed for n, r in results([7, 8, 9, 11], sample=flat).items()} == {7: None, 8: None, 9: None, 11: None}


def test_a_nan_fails_its_check():
    """A value that compares with nothing must not pass."""
    broken = lambda made: dataclasses.replace(made, loss=float("nan"))  # noqa: E731
    assert results([5], backward=broken)[5].passed is False


def test_the_gap_tolerance_is_the_probes_own():
    """A bf16 engine sets its measured tolerance; the verdict carries it."""
    loose = results([2], settings=lambda made: dataclasses.replace(made, gap_tolerance=1e-9))[2]
    assert loose.passed is False and loose.threshold == 1e-9


def test_checks_are_chosen_by_number_or_id_and_unknown_names_are_refused():
    """`only` takes both forms; a typo says what exists."""
    assert [r.number for r in run_checks(probe(), only=["mask_is_policy_tokens", 4])] == [1, 4]
    with pytest.raises(RltriageError, match="no check is called '12': write one of 1 mask_is_policy_tokens"):
        run_checks(probe(), only=[12])


def test_json_has_the_public_shape():
    """The object of DESIGN section 9."""
    (result,) = run_checks(probe(), only=[1])
    assert result.as_json() == {
        "number": 1,
        "check": "mask_is_policy_tokens",
        "value": 0.0,
        "threshold": 0,
        "passed": True,
        "title": "mask = policy tokens",
    }


def test_checking_leaves_the_policy_alone(healthy):
    """The run goes on with the bits it had: no parameter, no gradient changes."""
    policy, before = healthy[1], load_base()
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), before.parameters(), strict=True))
    assert all(p.grad is None for p in policy.parameters())


def test_check_ids_are_unique_and_numbered_in_order():
    """Ids become metric names."""
    assert [c.number for c in CHECKS] == list(range(1, 12))
    assert len({c.id for c in CHECKS}) == 11
