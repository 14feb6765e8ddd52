"""Rows as a training loop logs them."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from fuzzing.bounds import Target
from fuzzing.seeds import lines, pack, sample
from rltriage.engine.intake import Intake
from rltriage.engine.rows import Record
from rltriage.engine.rundir import RunDirectory
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.jsonlines import alert_json, dumps
from rltriage.exporters.page.board import Board
from rltriage.exporters.report.html import report_html
from rltriage.exporters.report.plain import report_json
from rltriage.nonnumbers import NonNumbers
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


def rows(folder: Path) -> Target:
    """JSON lines as the rows that a training loop logs: evaluated, shown and written as `rltriage.watch` does it."""
    objects = _objects()
    seeds = [
        lines(sample()),
        lines([{"step": n, "actor/pg_loss": 0.1, "critic/score/mean": n / 9, "actor/ppo_kl": 0.0} for n in range(9)]),
    ]
    seeds += [lines([{"config": {"beta": 0.1}}, *({"train": {"reward": n, "kl": 0}, "global_step": n} for n in range(6))])]
    number = iter(range(1 << 60))

    def value(given: Any, depth: int = 0) -> Any:
        if isinstance(given, dict) and depth < 50:
            return {key: value(inner, depth + 1) for key, inner in given.items()}
        return objects.get(given, given) if isinstance(given, str) else given

    def judge(data: bytes) -> None:
        board, gauges = Board(pack()), Gauges(pack().catalogue.metrics, pack().rules)
        directory = RunDirectory(folder / str(next(number)), "run", resume=True)
        intake, odd = Intake("run", config={"kl_coef": 0.1}), NonNumbers()
        watched = WatchedRun(intake.run, pack(), (gauges, board, Journal(directory, pack().catalogue)))
        for line in data.split(b"\n")[:40]:
            with contextlib.suppress(ValueError, RecursionError):
                given = value(json.loads(line))
                if isinstance(given, dict):
                    _log(given, intake, watched, odd)
        for row in intake.finish():
            watched.emit(row, intake.run)
        watched.end("finished", 0.0)
        assert not watched.failures and not watched.monitor.failed_rules, watched.monitor.failed_rules
        _shown(board, gauges, whole=zlib.crc32(data) % 16 == 0)

    return Target(seeds, judge)


def _log(given: Mapping[str, Any], intake: Intake, watched: WatchedRun, odd: NonNumbers) -> None:
    try:
        odd.look("run", given)
    except RecursionError:
        return  # a mapping that holds itself: `Watch.log` counts it
    for row in intake.rows(Record(given)):
        assert type(row.step) is int and all(type(number) is float for number in row.metrics.values()), row
        watched.emit(row, intake.run)


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
