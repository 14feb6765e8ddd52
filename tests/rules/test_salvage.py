"""One look at a pack tells every mistake in it, and no mistake twice."""

from __future__ import annotations

from rltriage.rules.loader import check_rules


def test_a_misspelt_field_is_one_mistake(tmp_path) -> None:
    """The key that is meant is named where the wrong one stands, and not missed as well; an `x-` key is no misspelling."""
    pack = tmp_path / "p.yaml"
    head = "version: 1\nrules:\n  - {id: one, group: behavior, severity: info,\n"
    head += "     when: {threshold: {metric: entropy, below: 1}},\n"
    pack.write_text(head + "     suspects: {}, first_test: entropy_term_sign, sumary: low}\n")
    (only,) = check_rules([pack])
    assert "`sumary`" in only.message
    assert "`summary`" in only.hint
    pack.write_text(head + "     suspects: {}, first_test: entropy_term_sign, x-summary: low}\n")
    assert ["lacks `summary`" in problem.message for problem in check_rules([pack])] == [True]


def test_mistakes_of_every_kind_are_told_at_once(tmp_path) -> None:
    """A rule that breaks the schema is cross-checked as far as it is whole: nothing waits for the next round."""
    pack = tmp_path / "p.yaml"
    pack.write_text(
        "version: 1\nrules:\n"
        "  - {id: one, summary: '{nope}', group: behaviour, severity: high,\n"
        "     when: {threshold: {metric: entropi, below: 1}}, suspects: {nobody: 0.5}, first_test: nothing}\n"
    )
    told = "\n".join(problem.message for problem in check_rules([pack]))
    for mistake in ("behaviour", "high", "{nope}", "`entropi`", "`nobody`", "`nothing`"):
        assert mistake in told


def test_what_is_broken_is_not_held_against_the_rest(tmp_path) -> None:
    """A summary that names what only a misspelt or broken part reads is no mistake of its own."""
    pack = tmp_path / "p.yaml"
    rule = "  - {id: one, summary: '{kl_ref}', group: behavior, severity: info, %s, suspects: {}, first_test: x}\n"
    fine = "when: {threshold: {metric: entropy, below: 1}}"
    for parts in (
        f"{fine}, unles: {{threshold: {{metric: kl_ref, below: 1}}}}",
        f"{fine}, unless: {{threshold: {{metric: kl_ref, below: x}}}}",
        "when: {threshold: {metric: kl_ref, belov: 1}}",
    ):
        pack.write_text("version: 1\nrules:\n" + rule % parts)
        assert not [problem for problem in check_rules([pack]) if problem.code == "summary"]
