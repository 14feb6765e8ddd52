"""Every target by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuzzing import commands, files, rows, sources, web
from fuzzing.bounds import Target

MADE_BY = (
    *(files.rules, files.ruletests, files.profile, files.config, files.reference, files.silences, rows.rows, rows.watch),
    *(sources.logs, sources.rundir, sources.events, sources.wandb, sources.trackio, sources.mlflow, sources.answers),
    *(web.endpoint, web.page, commands.commands),
)
TARGETS: dict[str, Callable[[Path], Target]] = {make.__name__: make for make in MADE_BY}
