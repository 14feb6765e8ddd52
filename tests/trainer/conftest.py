"""Runs that several tests read, made once, on one thread (results depend on the thread count)."""

import functools

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


HEALTHY_STEPS = 14  # the longest healthy run that a test asks for: the shorter ones are its first rows


@pytest.fixture(scope="session")
def run():
    """`run(fault, steps, **config)`: the metrics of each row of a seed-0 run without checks and evaluations."""
    from rltriage.trainer import TrainConfig, train

    @functools.cache
    def made(fault, steps, **config):
        rows = train(TrainConfig(**config), fault=fault, steps=steps, checks=False, eval_tasks=())
        return [row.metrics for row in rows]

    def run(fault=None, steps=4, **config):
        return made(fault, steps, **config) if fault or config else made(None, HEALTHY_STEPS)[:steps]

    return run
