"""Rule tests: subset matching, silence, exactness, a readable difference, and no test that passes by a typo."""

import pytest

from rltriage.engine import ruletests
from rltriage.engine.ruletests import firing_example, run_rule_tests
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.errors import RulePackError
from rltriage.rules.loader import load_rules

PACK = """
version: 1
pack: mine
rules:
  - id: gap
    summary: "gap {logp_gap}"
    group: consistency
    severity: critical
    when: {threshold: {metric: logp_gap, above: 0.1}}
    suspects: {mask_shift: 0.8}
    first_test: mask_equals_policy_tokens
  - id: low
    summary: "reward {reward}"
    group: outcome
    severity: warning
    when: {threshold: {metric: reward, below: 0.1}}
    suspects: {}
    first_test: run_invariants
"""


@pytest.fixture
def run(tmp_path):
    """Runs the tests of a text against the pack above."""

    def call(tests):
        (tmp_path / "mine.yaml").write_text(PACK)
        (tmp_path / "mine.tests.yaml").write_text("version: 1\ntests:\n" + tests)
        return run_rule_tests(tmp_path / "mine.tests.yaml", load_rules(tmp_path / "mine.yaml"), load_catalogue())

    return call


def test_an_expectation_matches_the_fields_that_it_names(run):
    """Step and fault are enough; severity is not asked for."""
    (result,) = run('  - {name: a, rule: gap, series: {logp_gap: "0 0.2 0"}, expect: [{step: 1, fault: mask_shift}]}')
    assert result.passed and result.kind == "firing" and result.rules == ("gap",)


def test_a_failure_shows_what_was_expected_beside_what_happened(run):
    """The difference can be read without rerunning anything."""
    (result,) = run('  - {name: a, rule: gap, series: {logp_gap: "0 0.2 0"}, expect: [{step: 2}]}')
    assert not result.passed
    assert "expected:  rule gap, state firing, step 2" in result.message
    assert "happened:  rule gap, state firing, step 1, severity critical, fault mask_shift" in result.message


def test_a_failure_says_why_a_rule_did_nothing(run):
    """Where nothing happened, the numbers that were compared last, or the metric that is missing, tell why."""
    quiet, absent = run(
        '  - {name: a, rule: gap, series: {logp_gap: "0 0.05"}, expect: [{step: 1}]}\n'
        '  - {name: b, rule: gap, series: {reward: "0 0.05"}, expect: [{step: 1}]}'
    )
    assert "happened:  rule gap did nothing; at the last row: logp_gap" in quiet.message and "0.05" in quiet.message
    assert "logp_gap" in absent.message.splitlines()[1]


def test_an_example_that_fires_comes_from_the_tests_beside_the_pack(run, tmp_path):
    """The first test that expects the rule to fire, with what the rule says then; a rule without one has no example."""
    run('  - {name: "a gap", rule: gap, series: {logp_gap: "0 0.2"}, expect: [{step: 1}]}')
    pack = load_rules(tmp_path / "mine.yaml")
    assert firing_example("gap", pack) == "a gap:\n  logp_gap: 0 0.2\n  -> critical at step 1: gap 0.2"
    assert firing_example("low", pack) == ""


def test_a_rule_that_has_to_be_silent_and_fires_fails(run):
    """Silence is checked over all rows."""
    (result,) = run('  - {name: a, rule: gap, series: {logp_gap: "0 0.2"}, silent: true}')
    assert not result.passed and "has to be silent" in result.message


def test_exact_allows_nothing_else(run):
    """Another rule's alert, and the resolution, are surplus unless they are expected."""
    series = 'series: {logp_gap: "0 0.2 0", reward: "0.5 0.5 0.05"}'
    loose, exact = run(
        f"  - {{name: a, rule: gap, {series}, expect: [{{step: 1}}]}}\n"
        f"  - {{name: b, rule: gap, {series}, expect: [{{step: 1}}], exact: true}}"
    )
    assert loose.passed and not exact.passed
    assert "not expected: rule low" in exact.message and "state resolved" in exact.message


def test_config_and_steps(run):
    """Rows carry the steps that the test asks for."""
    (result,) = run(
        '  - {name: a, rule: gap, steps: {first: 10, every: 5}, series: {logp_gap: "0 0.2"}, expect: [{step: 15}]}'
    )
    assert result.passed, result.message


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ('{name: a, rule: nope, series: {x: "1"}, silent: true}', "there is no rule `nope`"),
        ('{name: a, rule: gap, series: {x: "1"}}', "expects nothing"),
        ('{name: a, rule: gap, serie: {x: "1"}, silent: true}', "`serie` is no key"),
        ('{name: a, rule: gap, series: {x: "1", y: "1 2"}, silent: true}', "differ in length"),
        ('{name: a, rule: gap, series: {x: "1q"}, silent: true}', "is no value of a series"),
        ("{name: a, rule: gap, series: {x: 0x5}, silent: true}", "hexadecimal"),
        ('{name: a, rule: gap, series: {x: "1"}, expect: [{when: 3}]}', "`when` is no field"),
        ('{name: a, series: {x: "1"}, silent: true}', "no rule is named"),
        ("{name: a, rule: gap, series: all, silent: true}", "`series` must be a mapping"),
        ('{name: a, rule: gap, series: {x: "1"}, expect: [fires]}', "must be a mapping"),
        ('{name: a, rule: gap, series: {x: "1"}, config: kl_coef, silent: true}', "`config` must be a mapping"),
        ('{name: a, rule: gap, series: {x: "1"}, config: {kl_coef: {a: 1}}, silent: true}', "the field `kl_coef` must be"),
        ('{name: a, rule: gap, series: {x: "1"}, steps: {first: one}, silent: true}', "`first` must be a whole number"),
        ('{name: a, rule: gap, series: {x: "1"}, steps: {firts: 1}, silent: true}', "no field `firts`"),
        ('{name: a, rule: gap, series: {x: "1"}, silence: long, silent: true}', "`silence` must be a number"),
        ('{name: a, rule: gap, series: {x: "1"}, reference: {x: [1]}, silent: true}', "must have 2 elements"),
        ('{name: a, rule: gap, series: {x: "1"}, silent: [[gap]]}', "must be text"),
        ('{name: a, rule: gap, series: {x: "1"}, exact: 1, silent: true}', "`exact` must be true or false"),
        ('{name: [a], rule: gap, series: {x: "1"}, silent: true}', "`name` must be text"),
        ('{name: a, rule: gap, series: {x: "1x999999999999"}, silent: true}', "is no value of a series"),
    ],
)
def test_a_mistake_in_a_test_is_an_error_with_its_place(run, test, message):
    """A typo never makes a test pass."""
    with pytest.raises(RulePackError, match=r"mine\.tests\.yaml:3:") as raised:
        run(f"  - {test}")
    assert message in str(raised.value)


def test_the_tests_of_a_file_make_a_bounded_number_of_rows(run, monkeypatch):
    """A short text can stand for a hundred thousand rows: the file is refused at the test that makes them too many."""
    monkeypatch.setattr(ruletests, "MAX_ALL_VALUES", 100)
    test = '  - {name: a, rule: gap, series: {logp_gap: "0x60"}, silent: true}'
    (result,) = run(test)
    assert result.passed
    with pytest.raises(RulePackError, match=r"tests\.yaml:4:.*more than 100 values"):
        run(f"{test}\n{test}")
