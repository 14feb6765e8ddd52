"""Loading packs: what mistakes read like, how packs build on packs, and that nothing but RulePackError ever comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltriage.rules import loader
from rltriage.rules.crosscheck import slips
from rltriage.rules.errors import RulePackError
from rltriage.rules.loader import check_rules, dump_pack, load_rules
from rltriage.rules.model import Catalogue, RulePack

pytestmark = pytest.mark.usefixtures("kinds")

TEN_MISTAKES = """\
version: 1
pakc: mine
rules:
  - id: Bad Id
    summary: "reward {reward!r}"
    group: outcom
    severity: info
    requires: {kl_coef: {abov: 0}}
    when:
      both:
        - levle: {metric: reward, above: 1}
        - level: {metric: reward, above: "0.1"}
        - level: {above: 3}
    for: 0
    suspects: {mask_shfit: 0.5}
    first_test: run_all
  - id: second
    summary: "{entropy} fell"
    group: outcome
    severity: info
    when: {level: {metric: reward, above: 1, below: 2}}
    suspects: {mask_shift: 0.7, sign_flip: 0.7}
    first_test: run_invariants
  - id: second
    summary: text
    group: outcome
    severity: info
    when: {level: {metric: reward, above: 1}}
    suspects: {}
    first_test: run_invariants
"""


def problems_of(text: str, folder, catalogue: Catalogue) -> list[str]:
    path = folder.write(text)
    found = check_rules([path], catalogue)
    return [f"{p.mark.line}:{p.mark.column} {p.level} {p.message} | {p.hint}" for p in found]


def test_all_mistakes_of_a_file_are_reported_at_once(folder, catalogue: Catalogue) -> None:
    """Thirteen different mistakes give thirteen located messages in one run, each with what to write instead."""
    assert problems_of(TEN_MISTAKES, folder, catalogue) == [
        "2:1 error the pack has no field `pakc` | did you mean `pack`?",
        "4:9 error `id` cannot be 'Bad Id' | write it in lower case with dashes: bad-id",
        "6:12 error `group` cannot be the text 'outcom': it is one of outcome, behavior, optimizer, consistency, liveness"
        " | did you mean `outcome`?",
        "8:26 error the config fact `kl_coef` has no field `abov` | did you mean `above`?",
        "11:11 error `levle` is not a condition kind | did you mean `level`?",
        "12:42 error `above` must be a number or a mapping, not the text '0.1' | write 0.1 without quotes",
        "13:18 error `level` lacks `metric` | add `metric: ...`: the metric that is judged",
        "14:10 error `for` must be at least 1, not 0 | observations the condition must hold before the alert fires",
        "15:16 error there is no fault `mask_shfit` | did you mean `mask_shift`?",
        "16:17 error there is no first test `run_all` | declare your own under `first_tests:`",
        "21:53 error give exactly one of above, below | remove one of them",
        "22:5 error the suspects add up to 1.4 | they are probabilities of one cause: at most 1 together",
        "24:9 error there are two rules called `second` (the first at " + folder.path.as_posix() + "/mine.yaml:17:5)"
        " | rename one, or change fields of the first with `override: {second: ...}`",
    ]


def test_loading_raises_once_with_all_files(folder, catalogue: Catalogue) -> None:
    """Problems of several packs come in one error, each line beginning with its path, line and column."""
    first, second = folder.pack("a", head="x: 1\n"), folder.write("version: 2\nrules: []", "other.yaml")
    with pytest.raises(RulePackError) as caught:
        load_rules(first, second, catalogue=catalogue)
    assert [problem.mark.path for problem in caught.value.problems] == [first, second]
    assert str(caught.value).startswith(f"{first}:2:1: error: the pack has no field `x`\n    x: 1\n    ^\n")


def test_a_refused_condition_inside_others_is_one_problem(folder, catalogue: Catalogue) -> None:
    """What a kind's own check refuses does not break the conditions around it."""
    when = "{both: [{neither: {level: {metric: reward}}}, {often: {when: {level: {metric: reward, above: 1}}}}]}"
    folder.pack("a", name="base.yaml")
    found = problems_of(f"version: 1\nextends: base.yaml\noverride: {{a: {{when: {when}}}}}", folder, catalogue)
    assert [message.split(" | ")[0][5:] for message in found] == ["error give exactly one of above, below"]


def test_thousands_of_equal_mistakes_are_counted_not_listed(folder, catalogue: Catalogue) -> None:
    """The first of many unknown names are shown, the rest is one line: no file can buy minutes of near-miss searches."""
    wrong = "".join(f"k{number}: 1\n" for number in range(3000))
    names = ", ".join(f"r{number}" for number in range(3000))
    found = problems_of(f"version: 1\nrules: []\ndisable: [{names}]\n{wrong}", folder, catalogue)
    assert len(found) == 42
    assert [message for message in found if "2980 more names here are unknown too" in message] == [found[20], found[41]]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("rules:\n  - {id: a, references: [" + "1, " * 90_000 + "1]}\n", 1010),
        ("rules:\n  - {id: a, when: {both: [" + "{a: 1, b: 2}, " * 20_000 + "{c: 1}]}}\n", 1010),
        ('x-a: &a "' + "k" * 400_000 + '"\nrules: [' + "*a, " * 50_000 + "*a]\n", 1),
    ],
    ids=["wrong elements", "wrong conditions", "one long text many times"],
)
def test_a_huge_bad_file_costs_no_time(folder, catalogue: Catalogue, text: str, most: int) -> None:
    """However many mistakes a file repeats, the first thousand of a rule are reported and memory stays bounded."""
    assert 1 <= len(problems_of("version: 1\n" + text, folder, catalogue)) <= most


def test_a_rule_is_built_as_written(folder, catalogue: Catalogue) -> None:
    """Suspects come strongest first, labels are text, whole floats become integers where counts are meant."""
    text = """\
version: 1
pack: mine
x-notes: free
rules:
  - id: a-rule
    x-owner: me
    summary: "{reward:.3g} and {config.kl_coef} at {step} after {observations}"
    group: optimizer
    severity: critical
    requires: {kl_coef: {above: 0}, loss_mode: {in: [a, b]}}
    when:
      both:
        - level: {metric: reward, above: {config: lr, times: 2}}
        - neither: {level: {metric: reward, below: 1e-4}}
    for: 3.0
    suspects: {sign_flip: 0.2, mask_shift: 0.7}
    first_test: run_invariants
    labels: {team: rl, shift: 2, night: on, page: true}
"""
    pack = load_rules(folder.write(text), catalogue=catalogue)
    (rule,) = pack.rules
    assert (pack.name, rule.pack, rule.hold, type(rule.hold)) == ("mine", "mine", 3, int)
    assert list(rule.suspects.items()) == [("mask_shift", 0.7), ("sign_flip", 0.2)]
    assert rule.labels == {"team": "rl", "shift": "2", "night": "on", "page": "true"}
    assert rule.metrics == {"reward"}
    assert rule.mark is not None and (rule.mark.line, rule.mark.column) == (5, 5)
    assert dump_pack(pack, catalogue)["rules"][0]["when"]["both"][1] == {
        "neither": {"level": {"metric": "reward", "below": 1e-4}}
    }


def test_three_lines_change_one_threshold(folder, catalogue: Catalogue) -> None:
    """`override` merges into the rule of the extended pack and leaves the rest alone."""
    folder.pack("a", "b", name="base.yaml")
    path = folder.write("version: 1\nextends: base.yaml\noverride: {a: {when: {level: {above: 0.9}}}}")
    pack = load_rules(path, catalogue=catalogue)
    assert [rule.id for rule in pack.rules] == ["a", "b"]
    assert [rule.when.above.value for rule in pack.rules] == [0.9, 0.5]
    assert [rule.pack for rule in pack.rules] == ["base", "base"]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ("{severity: critical, suspects: {sign_flip: 0.1}}", lambda r: (r.severity, len(r.suspects)) == ("critical", 2)),
        ("{suspects: {mask_shift: null, sign_flip: 1}}", lambda r: dict(r.suspects) == {"sign_flip": 1}),
        ("{summary: s, when: {neither: {level: {metric: entropy, below: 1}}}}", lambda r: r.metrics == {"entropy"}),
        ("{when: {level: {above: null, below: 3}}}", lambda r: r.when.above is None and r.when.below.value == 3),
        ("{when: {level: {above: {config: lr, times: 2}}}}", lambda r: r.when.above.config == "lr"),
        ("{unless: {level: {metric: kl_ref, above: 1}}}", lambda r: r.metrics == {"reward", "kl_ref"}),
    ],
)
def test_what_an_override_can_change(change: str, check, folder, catalogue: Catalogue) -> None:
    """Mappings merge, null removes, another kind of condition replaces, another operand replaces."""
    folder.pack("a", name="base.yaml")
    path = folder.write(f"version: 1\nextends: [base.yaml]\noverride: {{a: {change}}}")
    assert check(load_rules(path, catalogue=catalogue).rules[0])


def test_a_mistake_in_an_override_is_reported_where_it_was_written(folder, catalogue: Catalogue) -> None:
    """The merged rule is validated, and the mark is the override's."""
    folder.pack("a", name="base.yaml")
    text = "version: 1\nextends: base.yaml\noverride:\n  a: {when: {level: {abov: 0.9}}}\n  aa: {for: 2}\ndisable: [c]"
    found = problems_of(text, folder, catalogue)
    assert found[0] == "4:22 error `level` has no field `abov` | did you mean `above`?"
    assert found[1].startswith("5:3 error there is no rule `aa` to override")
    assert found[2].startswith("6:11 error there is no rule `c` to disable")
    assert len(found) == 3


def test_disabled_rules_are_gone_and_a_later_pack_may_override_an_earlier_one(folder, catalogue: Catalogue) -> None:
    """Packs given side by side build on each other in their order."""
    first = folder.pack("a", "b", "c", name="first.yaml")
    second = folder.pack("d", name="second.yaml", head="disable: [b]\noverride: {c: {after: 7}}\n")
    pack = load_rules(first, second, first, catalogue=catalogue)
    assert [(rule.id, rule.after) for rule in pack.rules] == [("a", 0), ("c", 7), ("d", 0)]
    assert pack.name == "first+second+first"
    assert pack.paths == (first, second)


def test_a_folder_is_a_pack_of_its_files_without_their_tests(folder, catalogue: Catalogue) -> None:
    """All .yaml files of a folder are read in the order of their names; rule tests beside them are not rules."""
    folder.pack("b", name="many/2.yaml")
    folder.pack("a", name="many/1.yml")
    folder.write("tests: []", "many/1.tests.yaml")
    folder.write("no pack", "many/readme.txt")
    pack = load_rules(folder.path / "many", catalogue=catalogue)
    assert [rule.id for rule in pack.rules] == ["a", "b"]
    assert pack.name == "many"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"mine.yaml": "version: 1\nextends: mine.yaml"}, "in a circle"),
        ({"mine.yaml": "version: 1\nextends: b.yaml", "b.yaml": "version: 1\nextends: mine.yaml"}, "in a circle"),
        ({"mine.yaml": "version: 1\nextends: gone.yaml"}, "there is no file gone.yaml"),
        ({"mine.yaml": "version: 1\nextends: gone"}, "no shipped pack called `gone`"),
        ({"mine.yaml": "version: 1"}, "lacks `rules`"),
        ({"mine.yaml": "rules: []"}, "lacks `version`"),
        ({"mine.yaml": "- a\n- b"}, "the pack must be a mapping"),
        ({"mine.yaml": "version: 1\nrules: {a: 1}"}, "`rules` must be a list"),
        ({"mine.yaml": "version: 1\nrules: [1]"}, "must be a mapping"),
        ({"mine.yaml": "version: 1\nrules: [{summary: x}]"}, "lacks `id`"),
        ({"mine.yaml": "version: true\nrules: []"}, "must be 1"),
    ],
)
def test_files_that_cannot_be_packs_say_why(files: dict[str, str], says: str, folder, catalogue: Catalogue) -> None:
    """Circles, missing files and wrong shapes are located problems like any other."""
    for name, text in files.items():
        folder.write(text, name)
    found = check_rules([folder.path / "mine.yaml"], catalogue)
    assert any(says in problem.message for problem in found)


def test_unknown_pack_names_suggest_the_shipped_ones(monkeypatch: pytest.MonkeyPatch, folder, catalogue: Catalogue) -> None:
    """A bare name means a shipped pack; a near miss is suggested."""
    folder.pack("a", name="triage.yaml")
    folder.write("tests: []", "triage.tests.yaml")
    monkeypatch.setattr(loader, "SHIPPED", folder.path)
    assert load_rules("triage", catalogue=catalogue).rules[0].id == "a"
    (problem,) = check_rules(["triaje"], catalogue)
    assert "no shipped pack" in problem.message and problem.hint == "did you mean `triage`?"
    assert "no such file" in check_rules(["./gone.yaml"], catalogue)[0].message


def test_packs_declare_their_own_faults_tests_and_metrics(folder, catalogue: Catalogue) -> None:
    """What a pack declares counts as known, in the pack and in the catalogue that comes with it."""
    head = """\
metrics: {my_metric: {help: ours}}
faults: {my_fault: {title: T, summary: S, first_test: my_test}}
first_tests: {my_test: {title: T, tier: rows, how: H, decides: {yes: my_fault}}}
"""
    path = folder.pack("a", head=head + "override: {a: {when: {level: {metric: my_metric}}, suspects: {my_fault: .1}, "
                       "summary: text, first_test: my_test}}\n")  # fmt: skip
    pack = load_rules(path, catalogue=catalogue)
    assert not pack.warnings
    assert pack.catalogue.faults["my_fault"].first_test == "my_test"
    assert pack.catalogue.metrics["my_metric"].help == "ours"
    again = load_rules(folder.write(json.dumps(dump_pack(pack, catalogue)), "again.yaml"), catalogue=catalogue)
    assert (again.rules, again.catalogue) == (pack.rules, pack.catalogue)
    wrong = problems_of(
        "version: 1\nrules: []\nfaults: {sign_flip: {title: T, summary: S, first_test: tst}}\n"
        "first_tests: {t: {title: T, tier: rows, how: H, decides: {yes: sign_flop}}}",
        folder,
        catalogue,
    )
    assert [message.split(" | ")[0] for message in wrong] == [
        "3:10 error the fault `sign_flip` exists already",
        "3:56 error there is no first test `tst`",
        "4:64 error there is no fault `sign_flop`",
    ]


def test_an_unknown_metric_is_a_warning_and_a_foreign_one_is_not(folder, catalogue: Catalogue) -> None:
    """A misspelt metric is pointed out without stopping anybody; frameworks' own names pass."""
    override = "override: {a: {summary: s, when: {level: {metric: METRIC}}}}\n"
    pack = load_rules(folder.pack("a", head=override.replace("METRIC", "rewrd")), catalogue=catalogue)
    (warning,) = pack.warnings
    assert (warning.level, warning.mark.line, warning.mark.column) == ("warning", 2, 51)
    assert warning.hint.startswith("did you mean `reward`?")
    for metric in ("actor/entropy", "check_mask_is_policy_tokens", "check_old_logp_frozen_value", "check_mine"):
        assert not check_rules([folder.pack("a", head=override.replace("METRIC", metric))])


@pytest.mark.parametrize(
    ("metric", "meant"),
    [("entrpy", "entropy"), ("check_mask_is_polcy_tokens_value", "check_mask_is_policy_tokens_value")],
)
def test_a_slip_is_an_unknown_name_that_is_near_a_known_one(metric: str, meant: str, folder) -> None:
    """It is what a load points out, in one line; a name that is declared, or like none, is the user's own."""
    override = "override: {a: {summary: s, when: {level: {metric: METRIC, above: 1}}}}\n"
    path = folder.pack("a", head=override.replace("METRIC", metric))
    (slip,) = slips(load_rules(path))
    assert slip.startswith(f"{path}:2:") and f"`{metric}` is not in the catalogue; did you mean `{meant}`?" in slip
    assert not slips(
        load_rules(folder.pack("a", head=f"metrics: {{{metric}: {{}}}}\n" + override.replace("METRIC", metric)))
    )
    far = load_rules(folder.pack("a", head=override.replace("METRIC", "tool_latency")))
    assert far.warnings and not slips(far)


def test_a_misspelt_fact_is_a_slip_and_ones_own_is_not(folder) -> None:
    """A rule that requires a fact which nobody can know is never sure of itself."""
    pack = load_rules(folder.pack("a", head="override: {a: {requires: {kl_ceof: {above: 0}, my_fact: {above: 0}}}}\n"))
    assert len(pack.warnings) == 2
    (slip,) = slips(pack)
    assert "`kl_ceof` is not one of the known config facts; did you mean `kl_coef`?" in slip


@pytest.mark.parametrize(
    "summary", ["{entropy}", "{reward", "{reward!r}", "{reward:zz}", "{}", "{config.lrr}", "{reward.real}"]
)
def test_a_summary_that_cannot_be_filled_is_an_error(summary: str, folder, catalogue: Catalogue) -> None:
    """Templates are checked against what the rule reads."""
    path = folder.pack("a", head=f'override: {{a: {{summary: "{summary}"}}}}\n')
    (problem,) = check_rules([path], catalogue)
    assert problem.code == "summary" and problem.mark.line == 2


# Random packs: what is dumped loads again to the same rules.
numbers = st.one_of(st.integers(-1000, 1000), st.floats(-1e9, 1e9, allow_nan=False))
words = st.text("abc xyz:{}#'\"", min_size=1, max_size=8).map(lambda s: s.replace("{", "{{").replace("}", "}}"))
operands = st.recursive(
    numbers | st.fixed_dictionaries({"metric": st.just("reward")}, optional={"times": numbers}),
    lambda inner: st.fixed_dictionaries({"config": st.just("lr"), "plus": inner}),
    max_leaves=3,
)
levels = st.fixed_dictionaries(
    {"metric": st.sampled_from(["reward", "kl_ref"])},
    optional={"window": st.fixed_dictionaries({"last": st.integers(1, 512)}), "strict": st.booleans()},
).flatmap(lambda level: st.builds(lambda key, value: {**level, key: value}, st.sampled_from(["above", "below"]), operands))
listed = st.fixed_dictionaries(
    {"names": st.lists(st.just("entropy"), min_size=1, max_size=3)},
    optional={
        "left": st.sampled_from(["entropy", {"metric": "reward", "times": 2}, 3.5]),
        "share": st.floats(0.01, 1),
        "weights": st.dictionaries(st.sampled_from("ab"), numbers, min_size=1),
        "mode": st.one_of(st.sampled_from(["all", "any"]), numbers),
    },
)
conditions = st.recursive(
    st.builds(lambda value: {"level": value}, levels) | st.builds(lambda value: {"listed": value}, listed),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"both": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"neither": part}, inner),
        st.builds(lambda part, n: {"often": {"when": part, "at_least": n}}, inner, st.integers(1, 9)),
    ),
    max_leaves=5,
)
TESTS = [{"above": 0}, {"in": ["a", 1]}, {"known": True, "not": "x"}]
rules = st.fixed_dictionaries(
    {
        "summary": words,
        "group": st.sampled_from(["outcome", "liveness"]),
        "severity": st.sampled_from(["info", "warning", "critical"]),
        "when": conditions,
        "suspects": st.dictionaries(st.sampled_from(["mask_shift", "sign_flip"]), st.floats(0.01, 0.5)),
        "first_test": st.just("run_invariants"),
    },
    optional={
        "unless": conditions,
        "clear_when": conditions,
        "for": st.integers(1, 50),
        "keep_firing_for": st.integers(0, 50),
        "after": st.integers(0, 50),
        "requires": st.dictionaries(
            st.sampled_from(["lr", "loss_mode"]), st.sampled_from([{"above": 0}, {"in": ["a", 1]}])
        ),
        "labels": st.dictionaries(st.text("abc", min_size=1), st.text("on123", max_size=4)),
        "references": st.lists(words, max_size=2),
        "why": words,
        "maturity": st.sampled_from(["experimental", "stable"]),
    },
)


def round_trip(rules: list[dict[str, object]], folder, catalogue: Catalogue) -> tuple[RulePack, RulePack]:
    written = [{"id": f"r{number}", **rule} for number, rule in enumerate(rules)]
    first = load_rules(folder.write(json.dumps({"version": 1, "rules": written})), catalogue=catalogue)
    return first, load_rules(folder.write(json.dumps(dump_pack(first, catalogue)), "again.yaml"), catalogue=catalogue)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(rules, max_size=3))
def test_a_pack_survives_a_round_trip(folder, catalogue: Catalogue, rules: list[dict[str, object]]) -> None:
    """Dumped to plain data and loaded again, every rule is equal."""
    first, second = round_trip(rules, folder, catalogue)
    assert first.rules == second.rules


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80)))
def test_random_files_raise_nothing_but_the_pack_error(folder, catalogue: Catalogue, data: bytes | str) -> None:
    """Any content of a file ends in a pack or in one RulePackError."""
    try:
        load_rules(folder.write(data), catalogue=catalogue)
    except RulePackError as error:
        assert error.problems


FIELDS = (
    "version pack extends override disable metrics faults first_tests rules id summary group severity requires when unless",
    "for suspects first_test labels references",
)
leaves = st.one_of(
    st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=5), st.sampled_from(["level", "reward"])
)
keys = st.sampled_from(["level", "both", "metric", "x-y", "a"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=6)
fields = st.sampled_from(sorted(" ".join(FIELDS).split()))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(rules, st.dictionaries(fields, values, max_size=3), st.dictionaries(fields, values, max_size=2))
def test_damaged_packs_raise_nothing_but_the_pack_error(folder, catalogue, rule, in_rule, in_pack) -> None:
    """Wrong values in any field of a pack or rule end in a pack or in one RulePackError."""
    damaged = {"version": 1, "rules": [{"id": "a", **rule, **in_rule}], **in_pack}
    text = json.dumps(damaged).replace("NaN", ".nan").replace("Infinity", ".inf")
    try:
        load_rules(folder.write(text), catalogue=catalogue)
    except RulePackError as error:
        assert all(str(problem).count(":") >= 3 for problem in error.problems)


def test_the_path_in_messages_is_the_one_given(monkeypatch: pytest.MonkeyPatch, folder, catalogue: Catalogue) -> None:
    """A relative path stays relative, so that messages can be clicked where the command was typed."""
    folder.pack("A")
    monkeypatch.chdir(folder.path)
    assert check_rules(["mine.yaml"], catalogue)[0].mark.path == str(Path("mine.yaml"))
