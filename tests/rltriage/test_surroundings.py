"""The process around a run: many threads, event loops, closed streams, limits, odd clocks, an interpreter that ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage import watched
from rltriage.engine.report import EMPTY

KL_ON = {"kl_coef": 0.05, "updates_per_batch": 2}
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of the system as Linux has them")


def row(step: int) -> dict[str, float]:
    """A row of a run whose reference is its policy."""
    return {"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01}


def steps(path: Path) -> list[int]:
    """The steps in a run's file, in its order."""
    return [json.loads(line)["step"] for line in (path / "rows.jsonl").read_text().splitlines()]


SCRIPT = f"""
import rltriage
run = rltriage.watch("r", directory="runs", config={KL_ON}, halt_on="critical", on_alert=lambda alert: None)
BEFORE
for step in range(1, 12):
    run.log(step, {{"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01}})
AFTER
"""


def run_script(folder: Path, before: str = "", after: str = "", first: str = "", **options: Any) -> Any:
    """Train in a process of its own, in a folder; the rows that it wrote."""
    code = first + SCRIPT.replace("BEFORE", before).replace("AFTER", after)
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, **options)


def test_rows_of_many_threads_are_each_written_once_and_whole(tmp_path: Path) -> None:
    """Threads that log at the same time take turns; no row is lost, torn or told twice."""
    told: list[tuple[str, str]] = []
    start = threading.Barrier(8)
    with rltriage.watch(
        "r", directory=tmp_path, config=KL_ON, quiet=True, on_alert=lambda alert: told.append((alert.id, alert.state))
    ) as run:

        def work(first: int) -> None:
            start.wait(30)
            for number in range(50):
                run.log(None, row(first * 50 + number) | {"mine": float(first * 50 + number)})

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert run.errors == 0
    rows = [json.loads(line) for line in (tmp_path / "r" / "rows.jsonl").read_text().splitlines()]
    assert sorted(found["mine"] for found in rows) == [float(number) for number in range(400)]
    assert [found["step"] for found in rows] == list(range(400))
    assert len(told) == len(set(told)) > 0


def test_a_run_that_is_closed_while_threads_log_stays_closed(tmp_path: Path) -> None:
    """A row that waits for its turn when the run closes is ignored as any later one, and raises nothing."""
    run = rltriage.watch("r", directory=tmp_path, quiet=True)
    for step in range(6):
        run.log(step, row(step))
    with ThreadPoolExecutor(1) as threads:
        with run._lock:
            waits = threads.submit(run.log, 6, row(6))
            run.close()
        assert waits.result(30) in (EMPTY, rltriage.StepReport(6))
        threads.submit(run.close).result(30)
    assert steps(tmp_path / "r") == list(range(6)) and run.errors == 0 and run.log(7, row(7)) is EMPTY


def test_an_event_loop_logs_as_any_loop(tmp_path: Path) -> None:
    """Asynchronous trainers log from a coroutine, and from tasks that are cancelled."""

    async def train() -> None:
        async def one(step: int) -> None:
            run.log(step, row(step))
            await asyncio.sleep(3600)

        with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
            tasks = [asyncio.create_task(one(step)) for step in range(10)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert run.errors == 0

    with ThreadPoolExecutor(1) as loop:  # a browser test before this one may have left a loop in the main thread
        loop.submit(asyncio.run, train()).result()
    assert steps(tmp_path / "r") == list(range(10))


@linux
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_closed_streams_cost_nothing_but_the_words(tmp_path: Path, closed: str) -> None:
    """A daemon without stdout and stderr, or with a full one: rows and alerts are written, and the run may stop itself."""
    after = "open('said', 'w').write(f'{run.should_stop} {run.errors}')"
    code = SCRIPT.replace("BEFORE", "").replace("AFTER", after)
    (tmp_path / "train.py").write_text(code)
    ran = subprocess.run(["sh", "-c", f"exec '{sys.executable}' train.py {closed}"], cwd=tmp_path, timeout=120)
    assert ran.returncode in (0, 120)  # 120: Python itself could not flush stderr
    assert (tmp_path / "said").read_text() == "True 0"
    assert steps(tmp_path / "runs" / "r") == list(range(1, 12))


def test_a_closed_stderr_does_not_keep_alerts_from_the_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be printed still reaches W&B and its like."""
    posts: list[Any] = []
    monkeypatch.setattr(sys, "stderr", None)
    with rltriage.watch("r", directory=None, config=KL_ON) as run:
        monkeypatch.setattr(run._notices._trackers, "post", posts.append)
        for step in range(1, 12):
            run.log(step, row(step))
        assert run.errors == 0
    assert posts


class Strict(logging.Handler):
    """A user's handler that takes no warning lightly."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError(record.getMessage())


@pytest.fixture
def strict() -> Iterator[None]:
    """Every log record of ours raises."""
    handler = Strict()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


def test_a_log_handler_that_raises_costs_no_row(strict: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of warning is on its way, and each would raise: rows are judged and written all the same."""

    def broken(alert: Any) -> None:
        raise ValueError("mine")

    run = rltriage.watch("r", directory=tmp_path, config=KL_ON | {"kl_cof": 1}, quiet=True, on_alert=broken)
    for step in range(1, 12):
        run.log(step, row(step) | {"text": "x"})  # type: ignore[dict-item]
    run.log("seven", row(12))  # type: ignore[arg-type]
    run.log(13, None)  # type: ignore[arg-type]
    run.declare({"late": 1})
    run.close()
    assert steps(tmp_path / "r")[:11] == list(range(1, 12)) and run.ignored == {"text": 11} and run.errors > 14


def test_logging_that_is_shut_down_is_no_matter(tmp_path: Path) -> None:
    """Handlers are closed before our end runs; warnings go nowhere, rows go to disk."""
    before = "import atexit, logging; logging.basicConfig(filename='log'); logging.shutdown()"
    ran = run_script(tmp_path, before, "run.log('seven', {'reward': 1.0})")
    assert ran.returncode == 0 and "Traceback" not in ran.stderr
    assert json.loads((tmp_path / "runs" / "r" / "run.json").read_text())["ended"]["state"] == "finished"


LATE = """
import atexit, rltriage

class Last:
    def __init__(self, run):
        self.run = run
    def __del__(self):
        print(self.run.log(99, {"reward": 1.0}), self.run.close())

atexit.register(lambda: print("after", run.log(98, {"reward": 1.0}).step, run.close()))
"""


def test_rows_that_come_when_the_interpreter_ends_are_ignored(tmp_path: Path) -> None:
    """Exit handlers and finalizers of the user's may still call the run, when much of Python is gone."""
    ran = run_script(tmp_path, after="last = Last(run); import builtins; builtins.keep = last", first=LATE)
    assert ran.returncode == 0 and "Exception ignored" not in ran.stderr and "after -1 None" in ran.stdout, ran.stderr
    assert steps(tmp_path / "runs" / "r") == list(range(1, 12))


def test_a_run_that_is_opened_by_an_exit_handler_is_written(tmp_path: Path) -> None:
    """A last evaluation at the end of a script is a run like any other; threads may no longer be started then."""
    code = f"import atexit\ndef last():\n{'    '.join(['', *SCRIPT.splitlines(keepends=True)])}\natexit.register(last)"
    code = code.replace("BEFORE", "pass").replace("AFTER", "run.close()")
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
    assert steps(tmp_path / "runs" / "r") == list(range(1, 12))


def test_a_notebook_has_no_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `__main__.__file__`, without arguments, and with a kernel's: a run without a name gets a readable one."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    for arguments in ([], [""], ["-c"], ["/opt/ipykernel_launcher.py", "-f", "kernel.json"]):
        monkeypatch.setattr(sys, "argv", arguments)
        with rltriage.watch(directory=tmp_path, quiet=True) as run:
            run.log(0, row(0))
        assert run.errors == 0 and run.id.startswith(("run-", "ipykernel_launcher-"))
    monkeypatch.delattr(sys, "argv")
    assert rltriage.watch(directory=None).id.startswith("run-")


@pytest.mark.parametrize("how", ["read-only", "gone", "a file"])
def test_a_working_directory_that_takes_nothing_leaves_the_run_watched(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The default folder is below it: without one the rules work, and it is said once."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if how == "gone":
        folder.rmdir()
    elif how == "a file":
        (folder / "runs").write_text("")
    elif os.geteuid() == 0:
        monkeypatch.setattr(watched, "claim", _refuse)  # nothing is read-only for root
    else:
        folder.chmod(0o500)
    alerts: list[Any] = []
    run = rltriage.watch("r", config=KL_ON, quiet=True, on_alert=alerts.append)
    for step in range(1, 12):
        run.log(step, row(step))
    run.close()
    assert alerts and run.errors == 1 and run.path is None and caplog.text.count("not written to disk: ") == 1
    assert "Traceback" not in caplog.text


def _refuse(parent: Path, name: str) -> str:
    raise PermissionError(13, "Permission denied", str(parent))


def test_a_script_may_change_its_working_directory(tmp_path: Path) -> None:
    """Rows, the first alert's file and the end all stay where the run began."""
    (tmp_path / "elsewhere").mkdir()
    ran = run_script(
        tmp_path, "run.log(0, {'kl_ref': 0.0, 'reward': 0.0}); import os; os.chdir('elsewhere')", "print(run.path)"
    )
    assert ran.returncode == 0 and ran.stdout == f"{tmp_path / 'runs' / 'r'}\n"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "runs" / "r").iterdir()) == ["alerts.jsonl", "rows.jsonl", "run.json"]
    assert "rltriage report runs/r" in ran.stderr


def test_no_environment_at_all_will_do(tmp_path: Path) -> None:
    """Neither HOME nor PATH nor a locale: as a scheduler may start a job."""
    ran = run_script(tmp_path, after="print(run.errors)", env={})
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr


def test_a_clock_that_is_set_back_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time servers move clocks, virtual machines jump: rows keep their order, and no alert comes of it."""
    clock = iter([1e9, 2e9, 1.5e9, 0.0, -5.0, 1e9 + 1, float("nan"), 1e18] * 10)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    alerts: list[rltriage.Alert] = []
    with rltriage.watch("r", directory=tmp_path, listen=0, quiet=True, on_alert=alerts.append) as run:
        for step in range(30):
            run.log(step, {"reward": 0.5 + 0.01 * step, "entropy": 2.0 - 0.01 * step})
        assert run.errors == 0
    assert steps(tmp_path / "r") == list(range(30)) and [a for a in alerts if a.severity != "info"] == []


LIMITS = {
    "files": ("resource.RLIMIT_NOFILE", "(len(os.listdir('/proc/self/fd')) + 1,) * 2"),
    "memory": (
        "resource.RLIMIT_AS",
        "(int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (1 << 20),) * 2",
    ),
}


@linux
@pytest.mark.parametrize("what", LIMITS)
def test_a_process_at_its_limits_goes_on_training(what: str, tmp_path: Path) -> None:
    """Out of file descriptors or of memory when the first row comes: nothing is raised, nothing hangs, training ends."""
    kind, limit = LIMITS[what]
    before = f"import os, resource; resource.setrlimit({kind}, {limit})"
    ran = run_script(tmp_path, before, "print('trained', run.log(12, {'reward': 1.0}) is not None)")
    assert (ran.returncode, ran.stdout) == (0, "trained True\n"), ran.stderr


@linux
def test_an_endpoint_without_descriptors_lets_the_run_be(tmp_path: Path) -> None:
    """Scrapes that cannot be accepted cost the run no row; with descriptors again they are answered."""
    after = """
import os, resource, urllib.request
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
import socket
host = ("127.0.0.1", int(run.url.split(":")[2].split("/")[0]))
client = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
client.connect(host)
client.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
for step in range(12, 200):
    assert run.log(step, {"reward": 1.0 + step, "entropy": 1.0}).step == step
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(b"rltriage_training_step" in b"".join(iter(lambda: client.recv(65536), b"")), run.errors)
"""
    first = "import rltriage\nreal = rltriage.watch\nrltriage.watch = lambda *a, **o: real(*a, **o, listen=0)\n"
    ran = run_script(tmp_path, after=after, first=first)
    assert (ran.returncode, ran.stdout) == (0, "True 0\n"), ran.stderr
    assert steps(tmp_path / "runs" / "r") == list(range(1, 200))
