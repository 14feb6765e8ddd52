"""The shipped pack on public bug reports, healthy look-alikes and real logs (DESIGN section 10)."""

import json
import os
from pathlib import Path

import cases
import pytest
import yaml
from cases import CASES

LOGS = Path(os.environ.get("RLTRIAGE_CASES", "/nonexistent")) / "real-logs"


@pytest.fixture(scope="module")
def bench():
    """The rules."""
    return cases.Bench()


def ids(pattern):
    """The cases' names."""
    return sorted(path.stem for path in CASES.glob(pattern))


@pytest.mark.parametrize("name", ids("*.yaml"))
def test_case(name, bench):
    """The expected fault is named by its deadline; look-alikes stay silent."""
    found = cases.judge_case(CASES / f"{name}.yaml", bench)
    assert found.right, f"expected {found.expected}, found {found.found}"


HEADS = {
    "B06_format_zero_by_truncation": 15,
    "B23_drift_with_lr_zero": 20,
    "B25_mismatch_climb": 20,
    "B38_tool_tokens_in_kl": 10,
    "B44_gradnorm_nan": 29,
    "B54_resume_spike": 29,
    "B56_staleness_unclipped_is": 15,
    "B93_entropy_explosion": 50,
    "B96_length_explosion": 55,
    "B98_gradnorm_entropy_spike": 80,
}
"""Rows before the fault began or had grown to anything, by the report's own account; the other cases are faulty at once."""


@pytest.mark.parametrize("name", HEADS)
def test_the_healthy_head_of_a_fault_case_is_silent(name, tmp_path, bench):
    """What is named later is not named before there is anything to see."""
    head = tmp_path / f"{name}.jsonl"
    head.write_text("\n".join((CASES / f"{name}.jsonl").read_text().splitlines()[: HEADS[name]]))
    config = yaml.safe_load((CASES / f"{name}.yaml").read_text())["config"]
    assert bench.replay(head, config).loud() == []


def test_unknown_names_raise_nothing(tmp_path, bench):
    """The rows of every case under names that no profile knows raise nothing but nonfinite."""
    for path in sorted(CASES.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        names = {
            name: f"zz{index}"
            for index, name in enumerate(dict.fromkeys(key for row in rows for key in row))
            if name != "step"
        }
        copy = tmp_path / path.name
        copy.write_text("\n".join(json.dumps({names.get(key, key): value for key, value in row.items()}) for row in rows))
        fired = {alert.rule for _, alert in bench.replay(copy).alerts}
        assert fired <= {"not-finite"}, path.stem


@pytest.fixture(scope="module")
def judged(bench):
    """Every real log, judged once."""
    return cases.judge_logs(LOGS, bench)


@pytest.mark.skipif(not LOGS.is_dir(), reason="RLTRIAGE_CASES names no folder with real-logs")
class TestRealLogs:
    """Logs of real runs; they are other people's data and not part of the repository."""

    def test_bad_logs_are_named(self, judged):
        """At least 12 of the 13 judged bad logs have the right first suspect (14 are read as bad)."""
        bad = [entry for entry in judged if entry.expected not in ("silent", "disputed")]
        assert sum(entry.right for entry in bad) >= len(bad) - 1, [entry for entry in bad if not entry.right]

    def test_healthy_and_flat_logs_are_silent(self, judged):
        """No critical, and under one warning per 1,000 rows."""
        silent = [entry for entry in judged if entry.expected == "silent"]
        assert sum(entry.critical for entry in silent) == 0
        assert sum(entry.false_alarms for entry in silent) < sum(entry.rows for entry in silent) / 1000, silent


def test_the_printed_table_has_a_title_heads_and_totals() -> None:
    """Each block says what it is about; a wrong line is marked."""
    judged = [
        cases.Judgement("B01_a", "sign_flip by 3", "sign_flip at 2", True, 10),
        cases.Judgement("H01_b", "silent", "kl-high (critical) row 1", False, 10, 1, 1),
    ]
    title, heads, right, wrong, totals = cases.table("Reports", judged)
    assert title == "Reports" and heads.split() == ["log", "expected", "found"]
    assert heads.index("found") == right.index("sign_flip at 2") == wrong.index("kl-high")
    assert wrong.startswith("BAD ") and not right.startswith("BAD")
    assert totals.startswith("right: 1/1 faults, 0/1 silent; false alarms 1 (1 critical) on 10 rows")
