"""Runs in parallel processes."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rltriage.rules.errors import RltriageError
from rltriage.trainer import TrainConfig, train
from rltriage.trainer.parallel import Job, run_jobs


def test_parallel_runs_give_the_rows_of_single_ones():
    """Streaming changes nothing: same metrics per seed, in order, one end mark each, dated by the wall clock."""
    config = TrainConfig(tasks_per_step=2, eval_episodes=1)
    jobs = [Job(seed=seed, steps=1, config=config, checks=False) for seed in (0, 1)]
    rows, ended = {0: [], 1: []}, []
    for index, row in run_jobs(jobs, processes=2):
        if row is None:
            ended.append(index)
        else:
            rows[index].append(row)
    assert sorted(ended) == [0, 1]
    for job, got in zip(jobs, rows.values(), strict=True):
        expected = train(config, steps=1, seed=job.seed, checks=False)
        assert [r.metrics for r in got] == [r.metrics for r in expected]
        assert all(r.time is not None for r in got)


def test_an_error_of_a_run_reaches_the_caller():
    """A run that cannot start must not leave the caller waiting."""
    with pytest.raises(RltriageError, match="cannot inject the fault"):
        list(run_jobs([Job(fault="no_such_fault")], processes=1))


def test_workers_die_with_a_killed_parent():
    """Their inherited standard output reaches its end, which it does only when the last of them is gone."""
    code = (
        "from rltriage.trainer.parallel import Job, run_jobs\n"
        "if __name__ == '__main__':\n"
        "    for index, row in run_jobs([Job(steps=100_000, checks=False)], processes=1):\n"
        "        print('row', flush=True)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "parent.py")
        script.write_text(code)
        parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        assert parent.stdout.readline() == "row\n"
        parent.kill()
        parent.communicate(timeout=60)
