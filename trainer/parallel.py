"""Many runs at once, one process and one thread each, their rows streamed back as they are made.

One thread per run because results depend on the thread count and because two processes beat one with two threads.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rltriage.engine.rows import Row
from rltriage.trainer.config import TrainConfig


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the reference trainer; `checks` puts the results of all checks into its first row."""

    fault: str | None = None
    seed: int = 0
    steps: int = 24
    config: TrainConfig = field(default_factory=TrainConfig)
    checks: bool = True


_rows: Any = None  # the worker's end of the queue


def run_jobs(jobs: Sequence[Job], processes: int | None = None) -> Iterator[tuple[int, Row | None]]:
    """Yield `(index of the job, row)` as rows arrive, in order within a job, and `(index, None)` when a job is done.

    `processes` defaults to the cores. Closing the iterator cancels what has not begun. An error of a run is raised here.
    """
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    rows: Any = context.Queue()
    pool = ProcessPoolExecutor(processes or os.cpu_count(), context, _set_up, (rows,))
    try:
        futures = [pool.submit(_run, index, job) for index, job in enumerate(jobs)]
        yield from _drain(rows, futures)
    finally:
        pool.shutdown(cancel_futures=True)


def _drain(rows: queue.Queue[tuple[int, Row | None]], futures: Sequence[Future[None]]) -> Iterator[tuple[int, Row | None]]:
    """Everything on the queue until every job has said that it is done; a job that died is raised."""
    left = len(futures)
    while left:
        try:
            index, row = rows.get(timeout=0.5)
        except queue.Empty:
            for future in futures:
                if future.done():
                    future.result()
            continue
        left -= row is None
        yield index, row


def _set_up(rows: Any) -> None:
    """In a worker: remember the queue, take one thread, and die with the parent however that ends."""
    global _rows
    import torch

    torch.set_num_threads(1)
    _rows = rows
    _rows.cancel_join_thread()  # whoever stops listening must not wait for rows that nobody reads
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """A killed parent closes its sentinel; its workers would train on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(index: int, job: Job) -> None:
    """In a worker: one run."""
    from rltriage.trainer.probes.reference import train_checked

    train_checked(job, lambda row: _rows.put((index, row)), time.time)
    _rows.put((index, None))
