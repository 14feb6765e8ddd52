"""What ends a process in the middle of a row: it passes, at any line, and leaves a whole journal and a usable run."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rltriage
from rltriage import reloading

PACKAGE = str(Path(rltriage.__file__).parents[1])
KL_ON = {"kl_coef": 0.05, "updates_per_batch": 2}
AT = 8
"""The row in which things happen; alerts fire in it."""


def row(step: int) -> dict[str, float]:
    """A row of a run whose reference is its policy."""
    return {"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01, "odd": 1}


def steps(path: Path) -> list[int]:
    """The steps in a run's file, in its order."""
    return [json.loads(line)["step"] for line in (path / "rows.jsonl").read_text().splitlines()]


@pytest.fixture
def open_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., rltriage.Watch]:
    """Opens runs that share one reading of the rules: there are hundreds of them."""
    pack = rltriage.load_rules("triage")
    monkeypatch.setattr(reloading, "load_rules", lambda *_: pack)
    return lambda name, **options: rltriage.watch(name, directory=tmp_path, config=KL_ON, quiet=True, **options)


def at_line(number: int, happens: Callable[[], object], during: Callable[[], object]) -> bool:
    """Do something at a line of our code, counted from the start of `during`; whether it got that far."""
    left = number

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                happens()
                return None
        return local

    def calls(frame: FrameType, event: str, argument: Any) -> Any:
        ours = frame.f_code.co_filename
        return local if ours.startswith(PACKAGE) and "/tests/" not in ours and "/.venv/" not in ours else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        during()
    finally:
        sys.settrace(before)
    return left <= 0


def interrupt() -> None:
    """What Ctrl-C does in the main thread."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("at", "every"), [(AT, 101), (3, 211), (0, 901)])
def test_ctrl_c_at_any_line_of_a_row_passes_and_leaves_the_run_whole(
    at: int, every: int, open_run: Callable[..., rltriage.Watch], tmp_path: Path
) -> None:
    """It reaches the training loop; in a notebook the loop may go on, and the rows after it are judged and written."""
    for attempt in itertools.count():
        run = open_run(f"r{attempt}")
        for step in range(at):
            run.log(step, row(step))
        try:
            reached = at_line(1 + attempt * every, interrupt, lambda: run.log(at, row(at)))  # noqa: B023
        except KeyboardInterrupt:
            reached = True
        else:
            assert not reached, "the interrupt was swallowed"
        for step in range(at + 1, at + 12):
            run.log(step, row(step))
        run.close()
        written = steps(tmp_path / run.id)
        assert [step for step in written if step != at] == [*range(at), *range(at + 1, at + 12)], attempt
        assert run.errors == 0 and written == sorted(set(written))
        assert json.loads((tmp_path / run.id / "run.json").read_text())["ended"]["state"] == "finished"
        if not reached:
            assert attempt > 10
            return


def test_a_signal_handler_may_close_the_run_at_any_line(open_run: Callable[..., rltriage.Watch], tmp_path: Path) -> None:
    """A scheduler's SIGTERM comes in the middle of a row: the handler's `close` neither hangs nor breaks a line."""
    for attempt in itertools.count():
        run = open_run(f"r{attempt}")
        for step in range(AT):
            run.log(step, row(step))
        reached = at_line(1 + attempt * 101, run.close, lambda: run.log(AT, row(AT)))  # noqa: B023
        run.log(AT + 1, row(AT + 1))
        run.close()
        written = steps(tmp_path / run.id)
        if not reached:
            assert attempt > 10
            return
        assert written[:AT] == list(range(AT)) and len(written) <= AT + 1
        assert json.loads((tmp_path / run.id / "run.json").read_text())["ended"]["state"] == "finished"


def test_an_end_that_ctrl_c_interrupts_is_done_again(open_run: Callable[..., rltriage.Watch], tmp_path: Path) -> None:
    """Whoever presses Ctrl-C while the run closes has it closed by the end of the script."""
    for attempt in itertools.count():
        run = open_run(f"r{attempt}", listen=0)
        for step in range(AT):
            run.log(step, row(step))
        try:
            reached = at_line(1 + attempt * 131, interrupt, run.close)
        except KeyboardInterrupt:
            reached = True
        run._at_exit()
        assert json.loads((tmp_path / run.id / "run.json").read_text())["ended"]["state"] in ("finished", "crashed")
        assert steps(tmp_path / run.id) == list(range(AT)) and run.errors == 0
        assert run._server is not None and run._server._server.socket.fileno() == -1
        if not reached:
            assert attempt > 2
            return


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_what_is_meant_to_end_the_process_passes_from_on_alert(
    kind: type[BaseException], open_run: Callable[..., rltriage.Watch], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sys.exit` in `on_alert` stops training, after the row, its alerts and the notice are where they belong."""
    told: list[str] = []

    def leave(alert: rltriage.Alert) -> None:
        told.append(alert.rule)
        raise kind("enough")

    run = open_run("r", on_alert=leave, halt_on="info")
    run._notices._quiet = False
    with pytest.raises(kind, match="enough"):
        for step in range(1, AT):
            last = step
            run.log(step, row(step))
    assert run.should_stop and told and "or it is" in capsys.readouterr().err
    assert run._run is not None
    left = len(run._run.monitor.open_alerts) - 1
    run._notices._on_alert = lambda alert: told.append(alert.rule)
    run.log(last + 1, row(last + 1))
    assert len(told) >= 1 + left, "the alerts beside the first are told next time"
    run.close()
    assert steps(tmp_path / "r") == list(range(1, last + 2)) and run.errors == 0
    written = [json.loads(line) for line in (tmp_path / "r" / "alerts.jsonl").read_text().splitlines()]
    assert told[0] in {line.get("rule") for line in written}


def test_an_exit_in_on_alert_ends_the_script_with_its_code(tmp_path: Path) -> None:
    """The exit code is the user's; the run is closed on the way, and its end asks `on_alert` once more without harm."""
    code = f"""
import sys
import rltriage
with rltriage.watch("r", directory={str(tmp_path)!r}, quiet=True, config={KL_ON},
                    on_alert=lambda alert: alert.severity == "critical" and sys.exit(9)) as run:
    for step in range(1, 50):
        run.log(step, {{"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01}})
print("went on")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (9, "", "")
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"]["state"] == "finished"
    states = [json.loads(line).get("state") for line in (tmp_path / "r" / "alerts.jsonl").read_text().splitlines()]
    assert "firing" in states and "ended" in states


def test_on_alert_may_log_and_close(open_run: Callable[..., rltriage.Watch], tmp_path: Path) -> None:
    """The user's function runs when the row is done: it may use the run, from a thread of its own, too."""

    def again(alert: rltriage.Alert) -> None:
        if alert.state == "firing" and not run.should_stop:
            run.should_stop = True
            run.log(100, row(100))
            run.close()

    run = open_run("r", on_alert=again)
    for step in range(1, AT):
        run.log(step, row(step))
    assert run.errors == 0 and steps(tmp_path / "r")[-1] == 100
