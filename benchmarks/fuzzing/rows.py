"""Rows as a training loop logs them."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import rltriage
from fuzzing.bounds import Target
from fuzzing.seeds import ROOT, lines, pack, sample
from rltriage.engine.intake import Intake
from rltriage.engine.report import StepReport
from rltriage.engine.rows import Record
from rltriage.engine.rundir import RunDirectory
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.jsonlines import alert_json, dumps
from rltriage.exporters.page.board import Board
from rltriage.exporters.report.html import report_html
from rltriage.exporters.report.plain import report_json
from rltriage.watching import Journal, WatchedRun


class _Odd:
    """An object of the training loop that is no number, and says so loudly."""

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _objects() -> dict[str, Any]:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle["b"] = cycle
    return {
        "@float": Decimal("0.1"),
        "@error": _Odd(),
        "@array": memoryview(b"abc"),
        "@bytes": b"\xff",
        "@complex": 1j,
        "@set": {1},
        "@cycle": cycle,
        "@huge": 10**400,
        "@object": object(),
        "@key": {1: {None: 2.0}},
    }


def _given(data: bytes, objects: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines that are JSON objects, with objects of Python in place of their names."""

    def value(given: Any, depth: int = 0) -> Any:
        if isinstance(given, dict) and depth < 50:
            return {key: value(inner, depth + 1) for key, inner in given.items()}
        return objects.get(given, given) if isinstance(given, str) else given

    found = []
    for line in data.split(b"\n")[:40]:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(value(json.loads(line)))
    return [given for given in found if isinstance(given, dict)]


def _seeds() -> list[bytes]:
    verl = [{"step": n, "actor/pg_loss": 0.1, "critic/score/mean": n / 9, "actor/ppo_kl": 0.0} for n in range(9)]
    nested = [{"config": {"beta": 0.1}}, *({"train": {"reward": n, "kl": 0}, "global_step": n} for n in range(6))]
    return [lines(sample()), lines(verl), lines(nested)]


def rows(folder: Path) -> Target:
    """JSON lines as rows, one by one: evaluated, shown and written as every command and `rltriage.watch` does it."""
    objects, rules = _objects(), pack()

    def judge(data: bytes) -> None:
        board, gauges = Board(rules), Gauges(rules.catalogue.metrics, rules.rules)
        (folder / "rows.jsonl").unlink(missing_ok=True)
        directory = RunDirectory(folder, "run")
        intake = Intake("run", config={"kl_coef": 0.1})
        watched = WatchedRun(intake.run, rules, (gauges, board, Journal(directory, rules.catalogue)))
        records = [Record(given) for given in _given(data, objects)]
        for row in [*(row for record in records for row in intake.rows(record)), *intake.finish()]:
            assert type(row.step) is int and all(type(number) is float for number in row.metrics.values()), row
            watched.emit(row, intake.run)
        watched.end("finished", 0.0)
        assert not watched.failures and not watched.monitor.failed_rules, watched.monitor.failed_rules
        _shown(board, gauges, whole=zlib.crc32(data) % 16 == 0)

    return Target(_seeds(), judge)


def watch(folder: Path) -> Target:
    """The same as calls of `rltriage.watch(...).log`, step and time included: none raises or fails inside."""
    objects, rules = _objects(), folder / "rules.yaml"
    rules.write_text((ROOT / "docs/examples/every_kind.yaml").read_text(encoding="utf-8"), encoding="utf-8")

    def judge(data: bytes) -> None:
        with rltriage.watch("run", rules=rules, directory=None, quiet=True) as run:
            for given in _given(data, objects):
                step, time = given.pop("step", None), given.pop("time", None)
                assert type(run.log(step, given, time)) is StepReport

    return Target(_seeds(), judge)


def _shown(board: Board, gauges: Gauges, whole: bool) -> None:
    """What people and programs may ask about the run; with `whole` its reports too, which cost more than all the rest."""
    for openmetrics in (False, True):
        gauges.render(openmetrics).decode()
    for summary in board.summaries():
        report = board.report(summary.outlook.id) if whole else None
        if report is not None:
            json.loads(dumps(report_json(report)))
            report_html([report])
        for alert in summary.outlook.standing:
            json.loads(dumps(alert_json(alert, board.pack.catalogue)))
