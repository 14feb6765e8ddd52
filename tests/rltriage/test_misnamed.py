"""Names that look like a metric's and are none: said once, where the run lacks the metric; a user's own names are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage.misnamed import near_metric
from rltriage.rules.profiles import METRICS

ROW = {"reward": 0.5, "grad_norm": 0.3, "lr": 1e-6}


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("kl_to_ref_model", "kl_ref"),
        ("ref_kl", "kl_ref"),
        ("kl_reference", "kl_ref"),
        ("entropi", "entropy"),
        ("reward_avg", "reward"),
        ("clip_fraction", "clip_frac"),
        ("grad_norms", "grad_norm"),
    ],
)
def test_a_name_near_a_metric_is_recognised(name: str, metric: str) -> None:
    """Misspelt, in another order, abbreviated otherwise, or with words that change nothing."""
    assert near_metric(name, METRICS) == metric


@pytest.mark.parametrize(
    "name",
    [
        *("my_score", "aux_loss", "format_reward", "eval_reward", "epoch", "num_tokens", "accuracy", "gpu/mem", "é", ""),
        *("max_grad_norm", "value_grad_norm", "value_clip_frac", "length_loss", "is_ratio_max", "kl_target"),
        *("policy_entropy_coef", "critic/entropy_loss"),
    ],
)
def test_a_name_of_its_own_is_nobodys_business(name: str) -> None:
    """Words in common with a metric are no likeness: there are many losses and rewards, and norms of other networks."""
    assert near_metric(name, METRICS) == ""


def test_a_run_says_it_once(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    """In one line with what was meant and where all names are listed, also for a name that comes later; not in each row."""
    monkeypatch.delenv("RANK", raising=False)
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        for step in range(4):
            late = {"entropi": 0.5} if step > 1 else {}
            run.log(step, {**ROW, "kl_to_ref_model": 0.0, "my_score": 1.0, **late})
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"run=r: no rule reads: {name} (did you mean `{metric}`?); `rltriage profiles check {tmp_path / 'r'}` lists all"
        for name, metric in (("kl_to_ref_model", "kl_ref"), ("entropi", "entropy"))
    ]
    assert run.errors == 0


def test_a_metric_that_the_run_has_is_not_asked_for(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    """Beside `kl_ref`, `kl_to_ref_model` is a number of the user's own."""
    monkeypatch.delenv("RANK", raising=False)
    with rltriage.watch("r", directory=None, quiet=True) as run:
        run.log(0, {**ROW, "kl_ref": 0.1, "kl_to_ref_model": 0.0})
    assert not caplog.records


def test_a_hostile_log_is_not_compared_without_end(monkeypatch: Any, caplog: Any) -> None:
    """Thousands of names that are near a metric's are some in one line, and no more."""
    monkeypatch.delenv("RANK", raising=False)
    with rltriage.watch("r", directory=None, quiet=True) as run:
        for step in range(30):
            run.log(step, {**ROW, **{f"grad_nurm_{step}_{i}": 1.0 for i in range(100)}, "entropi\n": 1.0})
    assert sum("no rule reads" in record.getMessage() for record in caplog.records) <= 1
    assert all(len(record.getMessage()) < 1000 and "\n" not in record.getMessage() for record in caplog.records)


def test_replay_says_it_too(rltriage: Any, tmp_path: Path) -> None:
    """On stderr, so that --json stays readable."""
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"step": step, **ROW, "kl_to_ref_model": 0.0}) + "\n" for step in range(3)))
    ran = rltriage("replay", "--json", file)
    assert "log: no rule reads: kl_to_ref_model (did you mean `kl_ref`?); `rltriage profiles check" in ran.err
    assert "no rule reads" not in ran.out


def test_a_followed_log_says_it_once(tmp_path: Path, caplog: Any) -> None:
    """As the rows come, not with each of them."""
    from rltriage.following import Fleet
    from rltriage.places import RunNames
    from rltriage.rules.config import SourceConfig
    from rltriage.rules.loader import load_rules

    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"step": step, **ROW, "kl_to_ref_model": 0.0}) + "\n" for step in range(3)))
    fleet = Fleet(
        [SourceConfig("path", str(file))],
        load_rules("triage"),
        (),
        names=RunNames(tmp_path / "runs.json"),
        retention=1e9,
        owners={},
        open_alerts=lambda run, alerts, all_known: None,
    )
    fleet.discover(0.0, file.stat().st_mtime)
    fleet.poll(0.0)
    fleet.close()
    assert sum("no rule reads: kl_to_ref_model" in record.getMessage() for record in caplog.records) == 1


def test_the_check_of_a_log_lists_facts_that_rules_ask_for(rltriage: Any) -> None:
    """Those that the shipped rules read and nobody has told, with how to tell one."""
    log = Path(__file__).parents[2] / "docs" / "examples" / "live_reference.jsonl"
    told = " ".join(rltriage("profiles", "check", log).out.split())
    assert "asked for by rules, not known: " in told and "updates_per_batch (" in told and "reward_max (" in told
    found = json.loads(rltriage("profiles", "check", log, "--json").out)
    assert "kl-ref-exactly-zero" in found["runs"][0]["asked"]["kl_coef"]
