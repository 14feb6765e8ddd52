"""A run belongs to the process that opened it: children, copies, ranks and a second script of one name stay apart."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage import recalling
from rltriage.engine.report import EMPTY
from rltriage.engine.rundir import RunDirectory, claim
from rltriage.rules.errors import RltriageError

ROW = {"reward": 0.5, "entropy": 1.0}
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def steps(path: Path) -> list[int]:
    """The steps in a run's file, in its order."""
    return [json.loads(line)["step"] for line in (path / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def child() -> Iterator[Any]:
    """Forks a child that does something, tells whether all went well, and lives until the test is over."""
    ends: list[tuple[int, int]] = []

    def fork(job: Any) -> bool:
        told, tell = os.pipe()
        wait, end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(end)
                os.write(tell, b"y" if job() else b"n")
                os.read(wait, 1)
            finally:
                os._exit(0)
        os.close(wait)
        os.close(tell)
        ends.append((pid, end))
        answer = os.read(told, 1)
        os.close(told)
        return answer == b"y"

    yield fork
    for pid, end in ends:
        os.close(end)
        os.waitpid(pid, 0)


@forks
def test_a_child_that_lives_on_keeps_neither_port_nor_files(tmp_path: Path, child: Any) -> None:
    """Loader workers outlive a run: its port can be bound again, its folder resumed, no scrape hangs in a child."""
    run = rltriage.watch("r", directory=tmp_path, listen=0, quiet=True)
    run.log(0, ROW)
    run.log(1, ROW)
    assert run.url is not None and run._server is not None and run._journal is not None
    address = run._server._server.server_address
    files = run._journal.directory._rows._file

    def job() -> bool:
        assert run._server is not None
        return run._server._server.socket.fileno() == -1 and files.closed and run.log(7, ROW) is EMPTY

    assert child(job)
    with urllib.request.urlopen(run.url, timeout=10) as answer:  # the parent's own are untouched
        assert b"rltriage_training_step" in answer.read()
    run.log(2, ROW)
    run.close()
    assert steps(tmp_path / "r") == [0, 1, 2] and run.errors == 0
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(address)
        again.listen()
    RunDirectory(tmp_path / "r", "r", resume=True).close()


@forks
def test_a_fork_in_the_middle_of_everything_does_not_hang_the_child(tmp_path: Path, child: Any) -> None:
    """Locks that another thread of the parent holds at the fork are never asked for in the child."""
    alerts: list[Any] = []
    run = rltriage.watch("r", directory=tmp_path, quiet=True, on_alert=alerts.append)
    run.log(0, ROW)
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with run._lock:
            held.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)

    def job() -> bool:
        before = len(alerts)
        run.declare({"kl_coef": 1.0})
        report = run.log(1, {"reward": float("nan")})
        run.close("crashed")
        return report is EMPTY and run.errors == 0 and run.url is None and len(alerts) == before

    try:
        assert child(job)
    finally:
        over.set()
        holder.join(60)
    run.close()
    assert steps(tmp_path / "r") == [0]


@forks
def test_a_child_may_watch_a_run_of_its_own(tmp_path: Path, child: Any) -> None:
    """A sweep forks one process for each trial: each has its run, its journal and its folder."""
    run = rltriage.watch("r", directory=tmp_path, quiet=True)
    run.log(0, ROW)

    def job() -> bool:
        with rltriage.watch("r", directory=tmp_path, quiet=True) as own:
            own.log(5, ROW)
            own.log(6, ROW)
        return own.id == "r-2" and own.errors == 0

    assert child(job)
    run.log(1, ROW)
    run.close()
    assert steps(tmp_path / "r") == [0, 1] and steps(tmp_path / "r-2") == [5, 6]


@forks
def test_a_pool_of_forked_workers_comes_and_goes(tmp_path: Path) -> None:
    """`multiprocessing` forks in the middle of a run and its workers end as usual; they report nothing."""
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        run.log(0, ROW)
        workers = [multiprocessing.get_context("fork").Process(target=run.log, args=(step, ROW)) for step in (7, 8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        run.log(1, ROW)
    assert [worker.exitcode for worker in workers] == [0, 0] and steps(tmp_path / "r") == [0, 1]


@forks
def test_workers_of_a_data_loader_leave_the_run_alone(tmp_path: Path) -> None:
    """torch's loader forks workers that hold the data set, and with it the run."""
    torch = pytest.importorskip("torch")

    class Numbers(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __init__(self, run: Any) -> None:
            self.run = run

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            self.run.log(100 + index, ROW)
            return index

    with rltriage.watch("r", directory=tmp_path, quiet=True, listen=0) as run:
        run.log(0, ROW)
        loader = torch.utils.data.DataLoader(Numbers(run), batch_size=4, num_workers=2)
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(8))
        run.log(1, ROW)
    assert steps(tmp_path / "r") == [0, 1] and run.errors == 0


SPAWNED = """
import multiprocessing, sys
import rltriage
from rltriage.engine.report import EMPTY

run = rltriage.watch("r", directory=sys.argv[1], listen=int(sys.argv[2]), quiet=True)

def work(step, inherited=None):
    for one in (run, inherited):
        assert one is None or one.log(step, {"reward": 0.5, "entropy": 1.0}) == EMPTY
        assert one is None or one.url is None

if __name__ == "__main__":
    run.log(0, {"reward": 0.5, "entropy": 1.0})
    workers = [multiprocessing.get_context("spawn").Process(target=work, args=(7, run)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    run.log(1, {"reward": 0.5, "entropy": 1.0})
    print([worker.exitcode for worker in workers], run.url is not None, run.errors)
"""


def test_spawned_workers_import_the_script_again_and_open_nothing(tmp_path: Path) -> None:
    """A run that a script opens at its top level is opened once; a worker that gets the run itself gets a silent one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)
    command = [sys.executable, str(script), str(tmp_path / "runs"), str(port)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("[0, 0] True 0\n", "", 0)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["r"] and steps(tmp_path / "runs" / "r") == [0, 1]


def test_a_copy_within_the_process_is_the_run_itself(tmp_path: Path) -> None:
    """Trainers copy their callbacks and configurations; a run in them stays the one that is watched."""
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        assert copy.deepcopy({"callbacks": [run]})["callbacks"][0] is run
        assert pickle.loads(pickle.dumps(run)) is run
        stored = pickle.dumps(run)
    code = f"import pickle, sys; run = pickle.loads({stored!r}); run.log(1, {{'reward': 1.0}}); run.close(); print(run.id)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("r\n", "") and not (tmp_path / "runs").exists()


RACER = """
import sys
import rltriage
run = rltriage.watch("same", directory=sys.argv[1], quiet=True)
print("ready", flush=True)
sys.stdin.readline()
for step in range(300):
    run.log(step, {"reward": 0.5, "entropy": 1.0, "who": float(sys.argv[2])})
run.close()
print(run.id, run.errors)
"""


def test_processes_of_one_name_that_start_at_once_have_a_folder_each(tmp_path: Path) -> None:
    """The name is claimed with the file itself: no two of them write into one, and no line is torn."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(who)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(3)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = sorted(process.communicate(timeout=120)[0] for process in started)
    assert said == ["same 0\n", "same-2 0\n", "same-3 0\n"]
    for name in ("same", "same-2", "same-3"):
        rows = [json.loads(line) for line in (tmp_path / name / "rows.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(300)) and len({row["who"] for row in rows}) == 1
        assert json.loads((tmp_path / name / "run.json").read_text())["id"] == name


def test_one_name_twice_in_a_process_is_two_runs(tmp_path: Path) -> None:
    """Both are open at the same time, log in turns, and keep apart."""
    first, second = (rltriage.watch("r", directory=tmp_path, quiet=True) for _ in range(2))
    for step in range(6):
        first.log(step, ROW)
        second.log(step + 10, ROW)
    first.close()
    second.close()
    assert (first.id, second.id) == ("r", "r-2")
    assert steps(tmp_path / "r") == list(range(6)) and steps(tmp_path / "r-2") == list(range(10, 16))


def test_a_run_that_is_still_written_is_not_resumed_into(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever resumes a run whose process lives is watched without a journal, and hears why; no row is torn."""
    first = rltriage.watch("r", directory=tmp_path, quiet=True)
    first.log(0, ROW)
    first.log(1, ROW)
    again = rltriage.watch("r", directory=tmp_path, quiet=True, config={"resumed_at": 1})
    for step in range(1, 5):
        assert again.log(step, ROW).step == step
    first.log(2, ROW)
    again.close()
    first.close()
    assert "another process is writing this run" in caplog.text and again.errors == 1 and again.path is None
    assert steps(tmp_path / "r") == [0, 1, 2]
    assert "resumed_at" not in json.loads((tmp_path / "r" / "run.json").read_text())["config"]
    with rltriage.watch("r", directory=tmp_path, quiet=True, config={"resumed_at": 2}) as later:
        later.log(3, ROW)
    assert steps(tmp_path / "r") == [0, 1, 2, 3] and later.errors == 0


def test_a_damaged_folder_is_resumed_as_far_as_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line, a `run.json` that is none, more rows than are recalled: the run goes on behind what is there."""
    monkeypatch.setattr(recalling, "MOST_RECALLED", 5)
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        for step in range(20):
            run.log(step, ROW | {"reward": step / 10})
    (tmp_path / "r" / "run.json").write_text("{")
    with open(tmp_path / "r" / "rows.jsonl", "ab") as file:
        file.write(b'\xff{"step": 20, "rew')
    with rltriage.watch("r", directory=tmp_path, quiet=True, config={"resumed_at": 19}) as again:
        again.log(20, ROW)
        again.log(21, ROW)
        assert again._run is not None and again._run.monitor.counters.rows == 4 + 2 and again.errors == 0
    lines = (tmp_path / "r" / "rows.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["step"] for line in lines if line.endswith(b"}")] == [*range(20), 20, 21] and len(lines) == 23


def test_whoever_comes_second_changes_nothing(tmp_path: Path) -> None:
    """A folder that is taken, by rows or by a process, keeps its `run.json` and its rows to the byte."""
    first = RunDirectory(tmp_path / "r", "first", config={"lr": 1.0})
    before = (tmp_path / "r" / "run.json").read_bytes()
    with pytest.raises(RltriageError, match="another process is writing this run"):
        RunDirectory(tmp_path / "r", "second", resume=True)
    first.write_rows(b'{"step": 0}\n')
    first.close()
    with pytest.raises(RltriageError, match="already holds rows"):
        RunDirectory(tmp_path / "r", "second")
    assert (tmp_path / "r" / "run.json").read_bytes() == before


def test_a_name_is_claimed_once(tmp_path: Path) -> None:
    """Claims number each other, a file in the way counts as taken, and a folder that cannot be made is an error."""
    (tmp_path / "b").write_text("a file")
    assert [claim(tmp_path, name) for name in ("a", "a", "b", "a")] == ["a", "a-2", "b-2", "a-3"]
    with pytest.raises(OSError):
        claim(tmp_path / "b", "x")


RANKS = """
import os, sys
import rltriage
run = rltriage.watch("job", directory=sys.argv[1], listen=int(sys.argv[2]), halt_on="critical")
for step in range(6):
    run.log(step, {"reward": float("nan"), "entropy": 1.0})
print(run.should_stop, run.url is not None, run.errors)
"""


def test_of_the_ranks_of_a_job_one_speaks(tmp_path: Path) -> None:
    """torchrun starts a process for each rank with one script: one folder, one port, one voice."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANKS, str(tmp_path), port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]
    (zero, spoken), (one, silent) = (process.communicate(timeout=120) for process in started)
    assert (zero, one) == ("True True 0\n", "False False 0\n")
    assert "CRITICAL" in spoken and silent == ""
    assert [path.name for path in tmp_path.iterdir()] == ["job"] and len(steps(tmp_path / "job")) == 6
