"""Which process watches."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.trainer.hooks.ranks import any_rank_wants, is_rank_zero


def _distributed(rank: int, initialised: bool = True) -> dict[str, Any]:
    state = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: initialised, get_rank=lambda: rank)
    return {"torch.distributed": state}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, True),
        ({"RANK": "0", "WORLD_SIZE": "8"}, True),
        ({"RANK": "3", "WORLD_SIZE": "8"}, False),
        ({"RANK": "3"}, False),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, False),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "5", "WORLD_SIZE": "8"}, False),
        ({"RANK": "none"}, True),
    ],
)
def test_the_launcher_decides_before_torch_does(environ: dict[str, str], expected: bool) -> None:
    """Rank 0 of torchrun, MPI or Slurm watches, and a process that nobody numbers."""
    assert is_rank_zero(environ, {}) is expected


def test_an_initialised_process_group_decides() -> None:
    """torch.distributed knows better than the environment, once it is initialised."""
    assert not is_rank_zero({"RANK": "0"}, _distributed(1))
    assert is_rank_zero({"RANK": "1"}, _distributed(0))
    assert not is_rank_zero({"RANK": "1"}, _distributed(0, initialised=False))


def test_all_ranks_of_a_job_stop_together(tmp_path: Any) -> None:
    """One process that wants to stop makes every process of its group stop (two real processes)."""
    pytest.importorskip("torch.distributed")
    fork = multiprocessing.get_context("fork")  # a new interpreter would spend seconds on importing torch
    ranks = [fork.Process(target=_vote, args=(rank, str(tmp_path / "rendezvous"), str(tmp_path))) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert sorted(path.read_text() for path in tmp_path.glob("vote-*")) == ["0 [False, True]", "1 [False, True]"]


def test_a_single_process_decides_alone() -> None:
    """Without a process group no exchange happens."""
    assert any_rank_wants(True, "cpu", {}) and not any_rank_wants(False, "cpu", {})


def _vote(rank: int, rendezvous: str, folder: str) -> None:
    import torch.distributed as distributed

    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    votes = [any_rank_wants(False, "cpu"), any_rank_wants(rank == 0, "cpu")]
    with open(f"{folder}/vote-{rank}", "w") as file:
        file.write(f"{rank} {votes}")
    distributed.destroy_process_group()
