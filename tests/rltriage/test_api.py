"""`rltriage.watch`: rows in, the right fault named, and nothing that could disturb a training run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rltriage
from rltriage.engine.reference import HealthyRun, build, write_reference
from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row
from rltriage.watched import Watch

KL_ON = {"kl_coef": 0.05, "updates_per_batch": 2}


def _healthy(step: int) -> dict[str, float]:
    """A row of a run that learns slowly; every value varies, no value stands out."""
    wave = math.sin(step * 1.7)
    return {
        "reward": 0.3 + 0.004 * step + 0.02 * wave,
        "entropy": 2.0 - 0.002 * step + 0.01 * wave,
        "approx_kl": 0.001 + 0.0002 * wave,
        "clip_frac": 0.01 + 0.002 * wave,
        "ratio_max": 1.2 + 0.05 * wave,
        "grad_norm": 0.5 + 0.05 * wave,
        "kl_ref": 0.001 * step + 0.0001 * wave * step,
        "lr": 1e-6,
    }


def _same_reference(step: int) -> dict[str, float]:
    """The same run with a KL to the reference that is exactly zero."""
    return _healthy(step) | {"kl_ref": 0.0}


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(autouse=True)
def _single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    """Opens runs in a folder of the test, and closes them."""
    runs: list[Watch] = []

    def open_run(name: str = "r", **options: Any) -> Watch:
        runs.append(rltriage.watch(name, **({"directory": tmp_path} | options)))
        return runs[-1]

    yield open_run
    for run in runs:
        run.close()


def test_a_run_writes_its_directory(tmp_path: Path) -> None:
    """Rows under canonical names with step and time, and the run's facts, are on disk when the block ends."""
    with rltriage.watch("r", config=KL_ON, labels={"team": "maths"}, directory=tmp_path) as run:
        for step in range(1, 4):
            run.log(step, _healthy(step))
    assert run.path == tmp_path / "r"
    rows = _lines(tmp_path / "r" / "rows.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[1]["reward"] == _healthy(2)["reward"]
    assert all(row["time"] > 1e9 for row in rows)
    facts = json.loads((tmp_path / "r" / "run.json").read_text())
    assert (facts["id"], facts["config"], facts["labels"]) == ("r", KL_ON, {"team": "maths"})
    assert run.errors == 0


def test_a_planted_fault_is_named_everywhere_at_once(
    opened: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fault is on stderr, in `on_alert`, in the report, in `alerts.jsonl`, and stops the run that asked for it."""
    alerts: list[rltriage.Alert] = []
    run = opened(config=KL_ON, on_alert=alerts.append, halt_on="critical")
    reports = [run.log(step, _same_reference(step)) for step in range(1, 8)]
    told = capsys.readouterr().err
    assert "ref_is_policy" in told and "CRITICAL" in told
    fired = [alert for alert in alerts if alert.state == "firing" and alert.severity == "critical"]
    assert fired[0].suspects[0].fault == "ref_is_policy"
    assert fired[0] in [alert for report in reports for alert in report.alerts]
    assert run.should_stop
    run.close()
    written = _lines(tmp_path / "r" / "alerts.jsonl")
    assert "ref_is_policy" in {line["suspects"][0]["fault"] for line in written if line["type"] == "alert"}


def test_a_healthy_run_is_silent(opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred unremarkable rows: nothing at warning or above, nothing printed but where to look, no stop."""
    alerts: list[rltriage.Alert] = []
    run = opened(config=KL_ON, on_alert=alerts.append, halt_on="warning")
    for step in range(1, 101):
        run.log(step, _healthy(step))
    assert [alert for alert in alerts if alert.severity != "info"] == []
    assert capsys.readouterr().err == f"rltriage watches {run.id}, read as generic: rltriage report {run.path}\n"
    assert not run.should_stop and run.errors == 0


@pytest.mark.parametrize(("given", "called"), [(None, "theirs"), ("mine", "mine")])
def test_a_framework_may_name_the_run(tmp_path: Path, given: str | None, called: str) -> None:
    """Before the first row, and where `watch` was given no name; afterwards the run keeps the one that it has."""
    with rltriage.watch(given, directory=tmp_path, quiet=True) as run:
        run.declare({}, name="theirs")
        run.log(1, _healthy(1))
        run.declare({}, name="late")
    assert run.id == called and run.path == tmp_path / called


def _noted(run: Watch) -> None:
    """A KL of 0 without a word on `kl_coef`: a question, no alarm."""
    for step in range(1, 9):
        run.log(step, _same_reference(step))
    run.close()


def test_notes_are_counted_at_the_end(opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A run in which only notes arose says so once, and where to read them."""
    run = opened()
    _noted(run)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"rltriage: 1 note, no alarm: rltriage report {run.path}"


def test_notes_of_a_run_without_files_name_their_rules(opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no report to look at."""
    _noted(opened(directory=None))
    assert capsys.readouterr().err == "rltriage: 1 note, no alarm: kl-ref-exactly-zero\n"


@pytest.mark.parametrize("options", [{"quiet": True}, {"config": KL_ON}])
def test_notes_are_not_counted_where_that_says_nothing(opened: Any, capsys: Any, options: dict[str, Any]) -> None:
    """Not in a quiet run, and not where an alarm has sent somebody to the report."""
    _noted(opened(**options))
    assert "no alarm" not in capsys.readouterr().err


def test_quiet_prints_nothing(opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`quiet` leaves the terminal alone; alerts still reach `on_alert`."""
    alerts: list[rltriage.Alert] = []
    run = opened(config=KL_ON, on_alert=alerts.append, quiet=True)
    for step in range(1, 8):
        run.log(step, _same_reference(step))
    assert alerts and capsys.readouterr().err == ""


def test_names_of_a_framework_are_recognised(opened: Any, tmp_path: Path) -> None:
    """With verl's names the profile is found by itself and rows are written under canonical names."""
    run = opened()
    for step in range(1, 4):
        run.log(step, {"actor/pg_loss": 0.1, "critic/score/mean": 0.2 + step, "actor/ppo_kl": 0.001, "actor/entropy": 1.0})
    run.close()
    assert json.loads((tmp_path / "r" / "run.json").read_text())["profile"] == "verl"
    assert _lines(tmp_path / "r" / "rows.jsonl")[2]["reward"] == 3.2


class _Hostile:
    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("step", "metrics"),
    [
        ("seven", {"reward": 1.0}),
        (1, {"reward": _Hostile()}),
        (1, {"reward": None, "entropy": "high", "other": object()}),
        (1, {7: 1.0}),
        (1, {}),
        (-(10**30), {"reward": float("nan"), "entropy": float("inf")}),
        (1, None),
    ],
)
def test_no_row_can_raise(opened: Any, step: Any, metrics: Any) -> None:
    """Whatever a training loop hands over, `log` returns a report and later rows are read."""
    run = opened()
    assert isinstance(run.log(step, metrics), rltriage.StepReport)
    assert run.log(2, _healthy(2)).step == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log(3, {"reward": 0.5}, 9.0),
        lambda run: run.log({"reward": 0.5}, 3, 9.0),
        lambda run: run.log({"reward": 0.5}, step=3, time=9.0),
        lambda run: run.log(3, time=9.0, metrics={"reward": 0.5}),
        lambda run: run.log(metrics={"reward": 0.5}, step=3, time=9.0, commit=True),
        lambda run: run.log({"reward": 0.5, "step": 3, "time": 1.0}, time=9.0),
    ],
)
def test_a_row_in_the_order_of_trackers_is_the_same_row(opened: Any, call: Any, tmp_path: Path) -> None:
    """Step first or metrics first, by place or by name."""
    run = opened(profile="generic")
    assert call(run).step == 3
    run.close()
    assert _lines(tmp_path / "r" / "rows.jsonl") == [{"step": 3, "time": 9.0, "reward": 0.5}] and run.errors == 0


@pytest.mark.parametrize("call", [lambda run: run.log(), lambda run: run.log(3), lambda run: run.log(step=3, time=9.0)])
def test_a_row_without_metrics_is_counted(opened: Any, call: Any) -> None:
    """Not raised, as nothing is."""
    run = opened()
    assert call(run) == EMPTY and run.errors == 1


def test_what_goes_wrong_is_said_once(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Errors are counted; the log holds one line and not one per row."""
    run = opened()
    for _ in range(5):
        run.log("seven", {"reward": 1.0})
    assert run.errors == 5
    assert len(caplog.records) == 1


def test_a_user_function_that_raises_is_counted(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    """`on_alert` is the user's code: its errors do not reach the training loop either."""

    def broken(alert: rltriage.Alert) -> None:
        raise ValueError("mine")

    run = opened(config=KL_ON, on_alert=broken, quiet=True)
    for step in range(1, 8):
        run.log(step, _same_reference(step))
    assert run.errors >= 1
    assert "on_alert raised" in caplog.text


def test_numbers_of_other_libraries_are_numbers(opened: Any, tmp_path: Path) -> None:
    """numpy scalars and zero-dimensional tensors are read as the numbers that they hold; steps too."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    run = opened(profile="generic")
    run.log(numpy.int64(4), {"reward": numpy.float32(0.5), "entropy": torch.tensor(1.25), "length": numpy.array(7)})
    run.close()
    row = _lines(tmp_path / "r" / "rows.jsonl")[0]
    assert (row["step"], row["reward"], row["entropy"], row["length"]) == (4, 0.5, 1.25, 7.0)


def test_other_ranks_do_nothing(opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On rank 1 the same calls write nothing, print nothing and cost nothing."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = opened(config=KL_ON, halt_on="critical")
    for step in range(1, 8):
        run.log(step, _same_reference(step))
    run.close()
    assert not run.should_stop and list(tmp_path.iterdir()) == [] and run.errors == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"halt_on": "fatal"}, "halt_on='fatal' is no severity"),
        ({"profile": "trll"}, "no profile 'trll'"),
        ({"rules": ["no-such-pack"]}, "no-such-pack"),
    ],
)
def test_wrong_arguments_are_said_before_training(options: Mapping[str, Any], message: str) -> None:
    """A mistake in the call is one clear error at the call, not a run that nobody watches."""
    with pytest.raises(rltriage.RltriageError, match=message):
        rltriage.watch("r", directory=None, **options)


def test_a_directory_that_cannot_be_written_leaves_the_run_watched(
    opened: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a journal the rules still run; the reason is said once."""
    alerts: list[rltriage.Alert] = []
    run = opened(config=KL_ON, directory=tmp_path / "file", on_alert=alerts.append, quiet=True)
    (tmp_path / "file").write_text("")
    for step in range(1, 8):
        run.log(step, _same_reference(step))
    assert alerts and run.path is None
    assert run.errors == 1 and "not written to disk: " in caplog.text and "Traceback" not in caplog.text


def test_prometheus_reads_the_newest_row(opened: Any) -> None:
    """With `listen` the row and the state of its alerts are at `run.url`."""
    run = opened(config=KL_ON, listen=0, quiet=True)
    for step in range(1, 8):
        run.log(step, _same_reference(step))
    with urllib.request.urlopen(run.url, timeout=10) as answer:
        text = answer.read().decode()
    assert 'rltriage_training_step{run="r"} 7.0' in text
    firing = [line for line in text.splitlines() if line.startswith("rltriage_alert_firing{") and line.endswith(" 1.0")]
    assert any('fault="ref_is_policy"' in line for line in firing)


def test_a_port_in_use_leaves_the_run_watched(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A second run on the same port is watched without an endpoint, and says so."""
    first = opened("a", listen=0)
    second = opened("b", listen=int(first.url.rpartition(":")[2].partition("/")[0]))
    assert second.log(1, _healthy(1)).step == 1
    assert second.url is None and second.errors == 1 and "cannot scrape" in caplog.text


def test_two_runs_of_one_name_do_not_share_a_folder(opened: Any, tmp_path: Path) -> None:
    """A script started twice numbers the second run instead of mixing its rows into the first."""
    for _ in range(2):
        run = opened("same")
        run.log(1, _healthy(1))
        run.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["same", "same-2"]
    assert run.id == "same-2"


def test_a_resumed_run_goes_on_in_its_folder(opened: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `resumed_at` declared, the old rows are history again: what fired before is not told a second time."""
    for first, config in ((1, KL_ON), (8, {**KL_ON, "resumed_at": 7})):
        run = opened("r", config=config)
        for step in range(first, first + 7):
            run.log(step, _same_reference(step))
        run.close()
    assert [row["step"] for row in _lines(tmp_path / "r" / "rows.jsonl")] == list(range(1, 15))
    assert capsys.readouterr().err.count("ref_is_policy (fault 10)") == 1


def test_facts_of_a_hook_do_not_replace_the_users(opened: Any, tmp_path: Path) -> None:
    """What the caller of `watch` declares wins over what a hook reads; after the first row it is too late."""
    run = opened(config={"kl_coef": 0.5})
    run.declare({"kl_coef": 0.1, "temperature": 0.7}, profile="generic")
    run.log(1, _healthy(1))
    run.declare({"lr": 1.0})
    run.declare(None)
    config = json.loads((tmp_path / "r" / "run.json").read_text())["config"]
    assert config == {"kl_coef": 0.5, "temperature": 0.7}
    assert run.errors == 2


def test_rows_after_the_end_are_ignored(opened: Any, tmp_path: Path) -> None:
    """Closing twice and logging after it do nothing."""
    run = opened()
    run.log(1, _healthy(1))
    run.close()
    run.close()
    assert run.log(2, _healthy(2)) is not None
    assert len(_lines(tmp_path / "r" / "rows.jsonl")) == 1
    assert run.errors == 0


def test_open_alerts_end_with_the_script(tmp_path: Path) -> None:
    """A script that crashes outside any block still leaves whole files, and its open alerts as `ended`."""
    script = f"""
import rltriage
run = rltriage.watch("r", config={KL_ON}, directory={str(tmp_path)!r}, quiet=True)
for step in range(1, 8):
    run.log(step, {{"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01}})
raise SystemError("out of memory")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 1 and "out of memory" in done.stderr
    assert len(_lines(tmp_path / "r" / "rows.jsonl")) == 7
    states = [line["state"] for line in _lines(tmp_path / "r" / "alerts.jsonl") if line["type"] == "alert"]
    assert states[-1] == "ended" and "firing" in states


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_write_into_the_run(opened: Any, tmp_path: Path) -> None:
    """Workers of a data loader inherit the run: their rows and their end are not the run's."""
    run = opened()
    run.log(1, _healthy(1))
    child = os.fork()
    if child == 0:
        run.log(2, _healthy(2))
        run.close()
        os._exit(0)
    os.waitpid(child, 0)
    run.log(3, _healthy(3))
    run.close()
    assert [row["step"] for row in _lines(tmp_path / "r" / "rows.jsonl")] == [1, 3]


def test_verl_is_watched_on_its_driver_whatever_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's `Tracking` lives in one Ray actor, on a node whose launcher may have numbered it 3."""

    class Tracking:
        supported_backend: Any = ["console"]  # noqa: RUF012 (as verl has it)

        def __init__(self, project_name: str, experiment_name: str, default_backend: Any, config: Any = None) -> None:
            self.logger: dict[str, Any] = {}

        def finish(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "verl", ModuleType("verl"))
    monkeypatch.setitem(sys.modules, "verl.utils", ModuleType("verl.utils"))
    tracking = ModuleType("verl.utils.tracking")
    tracking.Tracking = Tracking  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verl.utils.tracking", tracking)
    monkeypatch.setenv("SLURM_PROCID", "3")
    rltriage.verl_backend(directory=tmp_path, quiet=True)
    run = Tracking("maths", "7b", ["rltriage"], {"data": {"train_batch_size": 8}})
    run.logger["rltriage"].log({"actor/pg_loss": 0.1, "critic/score/mean": 0.5}, 4)
    run.finish()
    assert _lines(tmp_path / "maths-7b" / "rows.jsonl")[0]["reward"] == 0.5


def test_openrlhf_is_watched_through_its_loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger that OpenRLHF builds gives rows under canonical names, in a folder called as its W&B run."""

    class WandbLogger:
        def __init__(self, args: Any) -> None: ...
        def log_train(self, global_step: int, logs_dict: Any) -> None: ...
        def log_eval(self, global_step: int, logs_dict: Any) -> None: ...
        def close(self) -> None: ...

    loggers = ModuleType("openrlhf.utils.logging_utils")
    loggers.WandbLogger, loggers.TensorboardLogger = WandbLogger, type("TensorboardLogger", (WandbLogger,), {})  # type: ignore[attr-defined]
    utils = ModuleType("openrlhf.utils")
    utils.logging_utils = loggers  # type: ignore[attr-defined]
    for name, module in (("openrlhf", ModuleType("openrlhf")), ("openrlhf.utils", utils)):
        monkeypatch.setitem(sys.modules, name, module)
    rltriage.openrlhf_logger(directory=tmp_path, quiet=True)
    logger = WandbLogger(SimpleNamespace(logger=SimpleNamespace(wandb=SimpleNamespace(run_name="r1"))))
    logger.log_train(2, {"rollout/reward_mean": 0.25, "ppo_kl": 0.001})
    logger.close()
    assert _lines(tmp_path / "r1" / "rows.jsonl")[0]["reward"] == 0.25


def test_the_front_door_loads_no_training_framework() -> None:
    """`rltriage.watch` costs a training script neither torch nor a web framework."""
    code = "import rltriage; rltriage.watch; rltriage.trl_callback; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "transformers", "rich", "apscheduler", "prometheus_client"}.isdisjoint(loaded)


RELOADED = """\
version: 1
rules:
  - {id: stays, summary: "{reward}", group: outcome, severity: info, when: {threshold: {metric: reward, above: 0}},
     suspects: {}, first_test: run_invariants}
  - {id: high, summary: "{reward}", group: outcome, severity: warning, when: {threshold: {metric: reward, above: LIMIT}},
     suspects: {}, first_test: run_invariants}
"""


def test_a_changed_rule_file_is_taken_and_a_wrong_one_is_not(
    opened: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake keeps the old rules and is logged; a change supersedes alerts of changed rules alone."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RELOADED.replace("LIMIT", "0.9"))
    alerts: list[rltriage.Alert] = []
    run = opened(rules=rules, on_alert=alerts.append, quiet=True, profile="generic")

    def told() -> list[tuple[str, str]]:
        seen = [(alert.rule, alert.state) for alert in alerts]
        alerts.clear()
        return seen

    run.log(1, {"reward": 0.5})
    assert told() == [("stays", "firing")]
    rules.write_text(RELOADED.replace("above: LIMIT", "abvoe: 1"))
    run._read_rules()
    run.log(2, {"reward": 0.5})
    assert told() == [] and "did you mean `above`" in caplog.text and run.errors == 1
    rules.write_text(RELOADED.replace("LIMIT", "0.3  "))
    run._read_rules()
    run.log(3, {"reward": 0.5})
    assert told() == [("high", "firing")]
    rules.write_text(RELOADED.replace("LIMIT", "0.35 "))
    run._read_rules()
    run.log(4, {"reward": 0.3})
    assert told() == [("high", "superseded")]
    assert run.errors == 1


class _Strange:
    """A value that breaks on use."""

    def __float__(self) -> float:
        raise RuntimeError("no number")


@pytest.mark.parametrize("step", [math.nan, math.inf, 10**400, [1], {}, b"x", _Strange()])
def test_a_step_that_is_none_costs_no_row(tmp_path: Path, step: Any) -> None:
    """A step that is no number is counted as an error; its row is evaluated and written all the same."""
    run = rltriage.watch("odd", directory=tmp_path, quiet=True)
    run.log(step, {"reward": 1.0}, time=step)
    run.log(step, {"reward": 2.0})
    run.close()
    assert run.errors == 2
    assert len((tmp_path / "odd" / "rows.jsonl").read_text().splitlines()) == 2


def test_a_name_of_any_length_or_type_is_a_folder(tmp_path: Path) -> None:
    """Names are numbers or whole prompts at times; two long ones that begin alike keep apart."""
    names: list[Any] = [5, "é" * 5000, "é" * 5000 + "x"]
    for name in names:
        run = rltriage.watch(name, directory=tmp_path, quiet=True)
        run.log(1, {"reward": 1.0})
        run.close()
        assert run.errors == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_a_config_that_is_no_json_leaves_the_rules_at_work(tmp_path: Path) -> None:
    """A config that contains itself cannot be written, and costs the journal only."""
    config: dict[str, Any] = {"kl_coef": 0.1}
    config["self"] = config
    run = rltriage.watch("loop", directory=tmp_path, config=config, quiet=True)
    fired = [alert for step in range(5) for alert in run.log(step, {"reward": math.nan, "kl": 0.1}).alerts]
    run.close()
    assert fired
    assert run.errors == 1


def test_a_run_is_compared_with_the_reference_that_is_given(tmp_path: Path) -> None:
    """A healthy reference makes `slower-than-reference` judge; a file that is none raises before training starts."""
    rows = [{"reward": 0.5 + step / 1000} for step in range(8)]
    runs = [
        HealthyRun(f"r{seed}", [Row(s, {"reward": r["reward"] + seed / 100}) for s, r in enumerate(rows)], {})
        for seed in range(10)
    ]
    file = tmp_path / "mine.json"
    write_reference(file, build(runs, "mine"))
    fired: list[str] = []
    with rltriage.watch(reference=file, directory=None, quiet=True, on_alert=lambda alert: fired.append(alert.rule)) as run:
        for step in range(8):
            run.log(step, {"reward": 0.1})
    assert "slower-than-reference" in fired
    with pytest.raises(rltriage.RltriageError, match="cannot read the reference"):
        rltriage.watch(reference=[tmp_path / "none.json"], directory=None)


def test_a_question_says_how_it_is_answered_where_it_is_read(opened) -> None:
    """In the training process a fact is an argument, not an option of a command."""
    heard: list[Any] = []
    run = opened(on_alert=heard.append, config={})
    for step in range(12):
        run.log(step, _same_reference(step))
    asked = next(alert for alert in heard if alert.rule == "kl-ref-exactly-zero")
    assert asked.question.endswith('pass config={"kl_coef": ...} to rltriage.watch or its hook')
    assert not any("--config" in alert.question for alert in heard)
