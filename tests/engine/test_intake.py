"""The intake: native records become canonical rows, config becomes facts with where each came from."""

from __future__ import annotations

import csv
import json
import math
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from rltriage.engine.facts import resolve
from rltriage.engine.feed import Feed, run_ids
from rltriage.engine.intake import Intake, decide, find_profile
from rltriage.engine.rows import Record, Row
from rltriage.engine.sources import open_source
from rltriage.rules.errors import RltriageError
from rltriage.rules.profiles import ConfigSource

CASES = Path(__file__).parents[1] / "data" / "cases"
REAL = os.environ.get("RLTRIAGE_CASES")


def read(records: list[dict[str, Any]], **options: Any) -> tuple[Intake, list[Row]]:
    intake = Intake("run", **options)
    rows = [row for record in records for row in intake.rows(Record(record))]
    return intake, rows + intake.finish()


def trl(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 0.1, "completions/clipped_ratio": 0.25, "completions/mean_length": 40.0 + step, **more}


def test_native_names_become_canonical_and_the_rest_passes_through() -> None:
    """Mapped names change, unmapped ones keep theirs and are listed, reserved keys are no metrics."""
    intake, rows = read([trl(1, reward=1, epoch=0.5)])
    assert rows == [Row(1, {"loss": 0.1, "truncated_frac": 0.25, "length": 41.0, "reward": 1.0, "epoch": 0.5})]
    assert intake.unmapped == ["epoch"] and intake.run.profile == "trl"


def test_a_canonical_name_that_no_profile_maps_is_not_unmapped() -> None:
    """Rows of our own trainer hold names that frameworks lack: they have a meaning, so nobody is told otherwise."""
    intake, _ = read([{"step": 0, "reward": 0.1, "reads": 2, "check_old_logp_frozen": 1, "mine": 3}], profile="generic")
    assert intake.unmapped == ["mine"]


def test_the_first_present_name_wins_and_the_other_stays() -> None:
    """Two native names of one metric: the profile's first is it, the second passes through."""
    _, rows = read([trl(1, completion_length=99.0)])
    assert rows[0].metrics["length"] == 41.0 and rows[0].metrics["completion_length"] == 99.0


def test_values_are_numbers_or_absent() -> None:
    """Text numbers and booleans count, null, lists and words do not, nested names are joined."""
    _, rows = read([trl(1, kl="0.5", flag=True, words="abc", hist=[1, 2], entropy=None, tools={"calls": {"n": 3}})])
    assert rows[0].metrics.items() >= {"kl_ref": 0.5, "flag": 1.0, "tools/calls/n": 3.0}.items()
    assert not {"words", "hist", "entropy"} & set(rows[0].metrics)


def test_a_null_where_a_number_was_is_nan_only_if_the_logger_hides_nan_so() -> None:
    """TRL and verl write NaN as null: such a null is NaN once the metric was finite; elsewhere null is absent."""
    _, rows = read([trl(1, grad_norm=None), trl(2, grad_norm=1.0), trl(3, grad_norm=None)])
    assert "grad_norm" not in rows[0].metrics and math.isnan(rows[2].metrics["grad_norm"])
    own = [{"step": 1, "reward": 1.0, "loss": 1.0}, {"step": 2, "reward": None, "loss": 1.0}]
    assert read(own)[1][1].metrics == {"loss": 1.0}


def test_auto_waits_for_a_record_that_decides() -> None:
    """A first record with nothing distinctive is held back and comes, under the right names, with the one that decides."""
    intake = Intake("run")
    assert intake.rows(Record({"val/nq/test_score": "0.2"}, step=0)) == []
    rows = intake.rows(Record({"actor/pg_loss": 0.1, "critic/score/mean": 0.5}, step=1))
    assert rows == [Row(0, {"eval_pass": 0.2}), Row(1, {"loss": 0.1, "reward": 0.5})]
    assert intake.run.profile == "verl"


def test_auto_gives_up_after_five_records_or_at_the_end() -> None:
    """Nothing known in five records, or at the end of the log: the run is read as a generic one, and no row is lost."""
    assert len(read([{"step": n, "zebra": float(n)} for n in range(3)])[1]) == 3
    intake = Intake("run")
    counts = [len(intake.rows(Record({"step": n, "zebra": float(n)}))) for n in range(7)]
    assert counts == [0, 0, 0, 0, 5, 1, 1] and intake.run.profile == "generic"


def test_rows_of_ours_are_read_again_unchanged() -> None:
    """A canonical name wins over the native names that passed through beside it."""
    native = {"critic/score/mean": 0.5, "critic/rewards/mean": 0.25, "actor/pg_loss": 0.1}
    _, once = read([{"step": 1, **native}], profile="verl")
    _, twice = read([{"step": 1, **once[0].metrics}], profile="verl")
    assert once == twice and once[0].metrics["reward"] == 0.5


def test_steps() -> None:
    """A step key is used; without one the ordinal is the step, and said; a record without its step joins the last."""
    intake, rows = read([{"reward": 1.0, "loss": 0.5}, {"reward": 2.0, "loss": 0.5}])
    assert [row.step for row in rows] == [0, 1] and intake.ordinal_steps
    intake, rows = read([{"global_step": 7, "reward": 1.0, "loss": 0.5}, {"eval_acc": 0.5}])
    assert [row.step for row in rows] == [7, 7] and not intake.ordinal_steps


def test_wall_time_in_seconds_or_milliseconds() -> None:
    """Unix times are the row's time; an elapsed time under the same key is a metric like any other."""
    _, rows = read(
        [
            {"step": 1, "reward": 1.0, "loss": 0.5, "timestamp": 1.7e12},
            {"step": 2, "reward": 1.0, "loss": 0.5, "time": 12.5},
        ]
    )
    assert rows[0].time == 1.7e9 and "timestamp" not in rows[0].metrics
    assert rows[1].time is None and rows[1].metrics["time"] == 12.5


def test_summary_and_config_records_are_no_rows() -> None:
    """A config record first gives facts that the log holds; a train summary last is not a row; both are counted."""
    config = {"beta": 0.04, "num_iterations": 2, "model": "x"}
    intake, rows = read([config, trl(1), trl(2), {"train_runtime": 9.0, "train_loss": 0.1, "step": 2}], profile="trl")
    assert [row.step for row in rows] == [1, 2]
    assert intake.skipped == {"config record": 1, "summary record": 1}
    assert (intake.run.facts["kl_coef"].value, intake.run.facts["kl_coef"].provenance) == (0.04, "logged")


def test_provenance() -> None:
    """Declared beats logged beats inferred; what beats what is per fact, and unknown keys are listed."""
    rows = [
        {"step": n, "actor/pg_loss": 0.1, "actor/ppo_kl": 0.0, "actor/kl_coef": 0.001, "critic/vf_loss": 0.5}
        for n in range(2)
    ]
    intake, _ = read(rows)
    facts = {name: (fact.value, fact.provenance) for name, fact in intake.run.facts.items()}
    assert facts == {"kl_coef": (0.001, "logged"), "approx_kl_kind": ("k1", "inferred"), "has_critic": (True, "inferred")}
    intake, _ = read(rows, config={"kl_coef": 0.5, "colour": "red"}, beside={"kl_coef": 0.25, "temperature": 0.7})
    assert intake.run.facts["kl_coef"].value == 0.5 and intake.run.facts["temperature"].value == 0.7
    assert intake.unknown_config == ("colour",)


@pytest.mark.parametrize(
    ("profile", "config", "fact", "value"),
    [
        ("verl", {"ppo_epochs": 2, "train_batch_size": 256, "ppo_mini_batch_size": 64}, "updates_per_batch", 8),
        ("verl", {"actor_rollout_ref.actor.ppo_epochs": 2}, "updates_per_batch", 2),
        ("verl", {"train_batch_size": 256}, "updates_per_batch", None),
        ("verl", {"use_kl_loss": False, "kl_loss_coef": 0.001}, "kl_coef", 0),
        (
            "verl",
            {"use_kl_loss": False, "kl_loss_coef": 1, "use_kl_in_reward": True, "kl_ctrl": {"kl_coef": 0.5}},
            "kl_coef",
            0.5,
        ),
        ("verl", {"kl_loss_coef": 0.001}, "kl_coef", None),
        ("verl", {"adv_estimator": "gae"}, "has_critic", True),
        ("verl", {"adv_estimator": "grpo"}, "has_critic", False),
        ("verl", {"rollout": {"temperature": 0.6, "val_kwargs": {"temperature": 0}}}, "temperature", 0.6),
        ("trl", {"num_iterations": 4}, "updates_per_batch", 4),
        ("trl", {"num_iterations": 2, "steps_per_generation": 8, "gradient_accumulation_steps": 4}, "updates_per_batch", 4),
        ("trl", {"gradient_accumulation_steps": 4}, "updates_per_batch", None),
        ("trl", {"beta": 0.0}, "kl_coef", 0.0),
        ("trl", {}, "kl_coef", None),
        ("trl", {"bf16": True}, "precision", "bf16"),
        ("trl", {"loss_type": "dapo"}, "loss_mode", "token_mean"),
        ("trl", {"algorithm": "rloo"}, "kl_ref_kind", "k1"),
    ],
)
def test_framework_config_becomes_canonical_facts(profile: str, config: dict[str, Any], fact: str, value: Any) -> None:
    """Products, quotients, lookups and presence as the profile says; what would need a default stays unknown."""
    facts = Intake("run", profile, config).run.facts
    assert (facts[fact].value if fact in facts else None) == value


def test_forward_filled_logs_lose_their_copies() -> None:
    """Once three distinct rows were each repeated at once, later copies are dropped; a constant run keeps all its rows."""
    filled = [{"step": n, "reward": float(n // 4), "loss": 0.5} for n in range(40)]
    intake, rows = read(filled)
    assert intake.skipped == {"forward-filled copy": 40 - len(rows)}
    assert [row.step for row in rows if row.step >= 13] == [16, 20, 24, 28, 32, 36]
    assert len(read([{"step": n, "reward": 0.0, "loss": 0.0} for n in range(40)])[1]) == 40


def test_a_log_that_doubles_its_records_loses_no_step() -> None:
    """Two records of one step say nothing about what a new step with the same values is: a collapse to constants."""
    doubled = [{"step": n // 2, "reward": max(0.0, 0.4 - n // 2 / 10), "loss": 0.0} for n in range(100)]
    intake, rows = read(doubled)
    assert [row.step for row in rows] == list(range(50))
    assert intake.skipped == {"repeated record": 50}


def test_resolution_of_rounded_text() -> None:
    """Text that always has the same few decimals tells how a metric is rounded; text that does not, and numbers, do not."""
    records = [{"actor/pg_loss": f"{n / 10:.3f}", "actor/ppo_kl": "0.0", "critic/score/mean": 0.5} for n in range(4)]
    intake, _ = read([{"step": n, **record} for n, record in enumerate(records)])
    found = {name: fact.value for name, fact in intake.run.facts.items() if name.startswith("resolution.")}
    assert found == {"resolution.loss": 0.001}
    records[3]["actor/pg_loss"] = "0.0001"
    intake, _ = read([{"step": n, **record} for n, record in enumerate(records)])
    assert intake.run.facts["resolution.loss"].value == 0.0


def test_a_learning_rate_rounded_away_is_absent() -> None:
    """verl's console prints 1e-6 as 0.000, which is no rate of 0; a plain 0 is one."""
    records = [{"step": n, "actor/lr": text, "actor/pg_loss": "0.1"} for n, text in enumerate(("0.000", "0.0"))]
    _, rows = read(records)
    assert "lr" not in rows[0].metrics and rows[1].metrics["lr"] == 0.0


def test_the_largest_advantage_is_derived() -> None:
    """The largest absolute advantage follows exactly from the extremes."""
    assert (
        read([{"step": 1, "reward": 0.5, "advantages/min": -3.0, "advantages/max": 2.0}])[1][0].metrics["adv_abs_max"]
        == 3.0
    )


def test_several_data_sets_are_one_held_out_number() -> None:
    """verl's validation of several data sets is their mean, and accuracy goes before reward."""
    record = {
        "val-core/a/acc/mean@1": 0.5,
        "val-core/b/acc/mean@1": 1.0,
        "val-core/a/reward/mean@1": 9.0,
        "actor/pg_loss": 0.0,
    }
    assert read([{"step": 1, **record}])[1][0].metrics["eval_pass"] == 0.75


def test_several_runs_in_one_file(tmp_path: Path) -> None:
    """The `run` key tells runs apart, each with its own profile and steps; without it the given id is the run's."""
    lines = [{"run": name, "step": n, "reward": 0.5, "loss": 0.1} for n in range(3) for name in ("a", "b")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"step": 0, "reward": 0.1, "loss": 1}]))
    found = [(intake.run.id, row.step) for intake, row in Feed(open_source(str(path)), "file").rows()]
    assert found == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("file", 0)]


def test_run_ids_are_stems_with_the_folder_where_they_clash(tmp_path: Path) -> None:
    """Two logs of one name are told apart by their folders."""
    assert run_ids(["x/a.jsonl", "y/a.jsonl", "b.csv"]) == ["x/a", "y/a", "b"]


def test_an_unknown_profile_is_one_clear_error() -> None:
    """The error lists the profiles that there are."""
    with pytest.raises(RltriageError, match="no profile 'trx'; choose one of"):
        find_profile("trx")
    assert decide([{"zebra": 1}]) is None


ALIASES = {
    **{"trl": "trl", "verl": "verl", "slime": "slime", "areal": "areal", "open-instruct": "open_instruct"},
    **{"stable-baselines3": "stable_baselines3", "lightrft": "openrlhf"},
}


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.jsonl")))
def test_bug_report_rows_reach_the_rules(case: str) -> None:
    """Every case is read whole, and with its config no key of a metric that rules read is lost."""
    meta = yaml.safe_load((CASES / f"{case}.yaml").read_text())
    feed = Feed(open_source(str(CASES / f"{case}.jsonl")), case, config=meta["config"])
    rows = list(feed.rows())
    lines = (CASES / f"{case}.jsonl").read_text().splitlines()
    assert [row.step for _, row in rows] == [json.loads(line)["step"] for line in lines]
    framework = meta["framework"].split("/")[0]
    expected = ALIASES.get(framework) or ALIASES.get(framework.split("-")[0].split(" ")[0])
    if expected:
        assert feed.intakes[case].run.profile.split("/")[0] == expected


# What the index calls a framework -> the profile that reads it.
PROFILES = {
    **{"trl": "trl", "verl": "verl", "tinker-cookbook": "tinker_cookbook", "tinker-distill": "tinker_cookbook"},
    **{"stable-baselines3": "stable_baselines3"},
}


@pytest.mark.skipif(not REAL, reason="RLTRIAGE_CASES is not set: real logs are not part of the repository")
def test_real_logs() -> None:
    """Every real log is read with its framework found by itself, whole, and with as many rows as its index counts."""
    folder = Path(str(REAL)) / "real-logs"
    with open(folder / "INDEX.tsv", encoding="utf-8") as file:
        entries = list(csv.DictReader(file, delimiter="\t"))
    assert entries
    for entry in entries:
        feed = Feed(open_source(str(folder / entry["file"])), "run")
        rows = list(feed.rows())
        intake = feed.intakes["run"]
        # The index counts a summary record that repeats metrics (files 12 and 20); it is no row of a step.
        summaries = intake.skipped.get("summary record", 0) if entry["file"][:2] in ("12", "20") else 0
        expected = (PROFILES.get(entry["framework"], "generic"), int(entry["rows"]))
        assert (intake.run.profile, len(rows) + summaries) == expected, entry["file"]
        assert feed.source.stats.bad == 0, entry["file"]
        assert {"reward", "loss", "pass_rate"} & set(intake.mapped), entry["file"]


def test_a_configuration_in_every_record_is_facts() -> None:
    """RLlib repeats its configuration in each result: it gives facts that the log holds and no metrics."""
    record = {
        "training_iteration": 3,
        "env_runners": {"episode_return_mean": 1.5},
        "learners": {"default_policy": {"entropy": 0.5, "mean_kl_loss": 0.25}},
        "config": {"clip_param": 0.3, "env": {"size": 4}},
    }
    intake, rows = read([record, record])
    assert rows[0] == Row(3, {"reward": 1.5, "entropy": 0.5, "approx_kl": 0.25})
    assert (intake.run.profile, intake.run.facts["clip_eps"].value) == ("rllib", 0.3)
    assert intake.run.facts["clip_eps"].provenance == "logged"


@pytest.mark.parametrize(
    ("values", "mean"),
    [([0.1, 0.2], 0.15), ([math.inf, -math.inf], math.nan), ([1e308, 1e308, 1e308], math.inf), ([math.nan, 1.0], math.nan)],
)
def test_the_mean_of_several_names_of_any_numbers(values: list[float], mean: float) -> None:
    """Infinities of both signs and sums beyond the largest float are numbers like any others."""
    _, rows = read([{"step": 1, **{f"val-core/{i}/acc/mean@8": x for i, x in enumerate(values)}}], profile="verl")
    assert rows[0].metrics["eval_pass"] == pytest.approx(mean, nan_ok=True)


def test_divisors_too_small_to_multiply() -> None:
    """Two divisors whose product is 0 in floats are divided by one after the other."""
    source = ConfigSource(product=("a", "b"), divide_by=("c", "d"))
    profile = replace(find_profile("generic"), config={"minibatches": (source,)})
    facts, _ = resolve(profile, {"a": 1e-200, "b": 1.0, "c": 1e-200, "d": 1e-200}, "declared")
    assert facts["minibatches"].value == pytest.approx(1e200)


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_time(time: float) -> None:
    """A source's wall time that is no finite number is unknown."""
    assert Intake("run", "generic").row(Record({"reward": 1.0}, step=1, time=time)) == Row(1, {"reward": 1.0}, None)


def test_sets_of_names_without_end_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of a log that makes up names is bounded by their number; its rows are the same."""
    monkeypatch.setattr("rltriage.engine.intake.MAX_PLANNED", 50)
    intake, rows = read([{"step": n, **{f"n{n}_{k}": 1.0 for k in range(20)}} for n in range(9)], profile="generic")
    assert len(intake._plans) == 3 and len(rows) == 9 and all(len(row.metrics) == 20 for row in rows)


class Odd:
    """Raises whatever it is asked."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Odd(), "Odd"),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (Path("a/b"), "a/b"),
        (Decimal("0.5"), 0.5),
        ([Odd(), (1, None)], ["Odd", [1, None]]),
        (True, True),
        (3, 3),
    ],
    ids=["odd", "huge", "negative", "path", "decimal", "list", "true", "three"],
)
def test_a_configuration_of_any_objects(value: Any, plain: Any) -> None:
    """Facts are plain values, declared, beside the log or in it: no object of a script's ends the watching of its run."""
    for given in ({"config": {"algorithm": "grpo", "kl_coef": value}}, {"beside": {"kl_coef": value}}):
        intake, _ = read([trl(1)], **given)
        assert intake.run.facts["kl_coef"].value == plain
    intake, rows = read([{"config": {"kl_coef": value}}, trl(1)], profile="trl")
    assert intake.run.facts["kl_coef"].value == plain and len(rows) == 1


def test_numpy_values_in_a_configuration() -> None:
    """Arrays are text, scalars numbers, and a truth value stays one."""
    numpy = pytest.importorskip("numpy")
    config = {"kl_coef": numpy.float32(0.5), "lr": numpy.array([1.0, 2.0]), "top_k": numpy.int64(3)}
    intake, _ = read([trl(1)], config={**config, "async_lag": numpy.bool_(True)})
    facts = {name: fact.value for name, fact in intake.run.facts.items()}
    assert (facts["kl_coef"], facts["lr"], facts["top_k"]) == (0.5, "[1. 2.]", 3)
    assert facts["async_lag"] is True


def test_mappings_that_hold_each_other_are_followed_to_a_bound() -> None:
    """A row that holds itself is read as far as it is new; it costs a moment, not the training run."""
    inner: dict[str, Any] = {"reward": 1.0}
    inner.update({f"k{n}": inner for n in range(9)})
    _, rows = read([{"step": 1, "reward": 0.5, "more": inner}], profile="generic")
    assert rows[0].metrics["reward"] == 0.5 and len(rows[0].metrics) <= 200_000


def test_a_record_that_is_logged_twice_is_one_row() -> None:
    """From the first one on, NaN included; another value, a further metric or another step make a row of their own."""
    nan = float("nan")
    twice = [{"step": n, "reward": 0.1 * n, "loss": float("nan")} for n in range(20) for _ in range(2)]
    intake, rows = read(twice)
    assert [row.step for row in rows] == list(range(20)) and intake.rows_seen == 20
    assert sum(intake.skipped.values()) == 20
    forms = [{"step": 0, "reward": 0.1}, {"step": 0, "reward": 0.2}, {"step": 0, "reward": 0.2, "loss": nan}]
    assert len(read([*forms, {"step": 1, "reward": 0.2, "loss": 0.5}, {"step": 2, "reward": 0.2, "loss": 0.5}])[1]) == 5
