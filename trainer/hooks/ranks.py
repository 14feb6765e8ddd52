"""Which process of a distributed job this is: only rank 0 watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from rltriage.saying import warn

# torchrun, accelerate and DeepSpeed set RANK; the others are launchers that start one process per rank themselves.
_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def is_rank_zero(environ: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> bool:
    """Whether this process should watch: rank 0 of its job, or a process that no job numbers.

    An initialised `torch.distributed` decides where it is loaded (it is never imported for this); then the launcher's rank,
    where it started more than one process. A rank that is no number counts as 0.
    """
    distributed = modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return bool(distributed.get_rank() == 0)
    except Exception:  # a build without a usable backend: the environment decides
        pass
    for rank, size in _RANKS:
        if environ.get(rank, "").isdigit() and environ.get(size, "2") != "1":
            return int(environ[rank]) == 0
    return True


def any_rank_wants(flag: bool, device: Any, modules: Mapping[str, Any] = sys.modules) -> bool:
    """True on every rank when it is True on one. A collective: every rank must call it at the same place.

    Rank 0 alone must never decide to stop: the others would wait for it in the next gradient exchange for ever. So where
    the flag cannot be exchanged, which is so on every rank alike, nobody stops, and it is logged.
    """
    distributed = modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return flag
    torch = modules["torch"]
    try:
        shared = torch.tensor([int(flag)], device=device)
        distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
        return bool(shared.item())
    except Exception:
        if flag:
            warn("the run should stop, but ranks cannot tell each other", exc_info=True)
        return False
