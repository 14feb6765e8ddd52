"""Results of measurements that take too long for the tests: kept with where, when and of which sources they were taken.

`benchmarks/results/NAME.json` is the result, and the section of `docs/delivery.md` between the marks of its name is written
from it. Tests fail when the section differs from the result, or when the sources have changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rltriage.engine.rundir import write_atomically
from rltriage.recorded import processor

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "delivery.md"
SOURCES = {
    "chaos": (
        *("exporters/delivery/*.py", "rltriage/service.py", "rltriage/following.py", "rltriage/places.py"),
        "benchmarks/chaos.py",
    ),
    "load": ("benchmarks/load.py",),
}
"""What a result speaks of: a change to any of these files makes it stale. The load's also depends on nearly all of the
engine; it is taken anew for a release, and says from which commit it is."""


def path(name: str) -> Path:
    """Where a result is kept."""
    return ROOT / "benchmarks" / "results" / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """A kept result."""
    found: dict[str, Any] = json.loads(path(name).read_text(encoding="utf-8"))
    return found


def sources_hash(name: str) -> str:
    """The hash of the files that a result speaks of."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in SOURCES[name] for file in ROOT.glob(pattern)):
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def record(name: str, command: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep a result, and write its section of the page."""
    result = {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "sources": sources_hash(name),
        "rows": list(rows),
    }
    path(name).parent.mkdir(exist_ok=True)
    write_atomically(path(name), json.dumps(result, indent=1) + "\n")
    write_atomically(PAGE, page(PAGE.read_text(encoding="utf-8"), name, result))


def machine() -> str:
    """The processor, its cores, the system and Python."""
    return f"{processor()}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def page(text: str, name: str, result: Mapping[str, Any]) -> str:
    """The page with the section of a result written anew."""
    begin, end = f"<!-- measured: {name} -->\n", "<!-- end -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + section(name, result) + "\n" + end + rest.split(end, 1)[1]


def section(name: str, result: Mapping[str, Any]) -> str:
    """A result as it stands on the page."""
    head = "`{command}`, {date}, on {machine}, load {load} at the end.\n".format(**result)
    columns = COLUMNS[name]
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(cell(row) for cell in columns.values()) + " |" for row in result["rows"]]
    return head + "\n" + "\n".join(lines) + "\n"


def _times(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: f"{row[key]['median']:.2f} / {row[key]['p99']:.2f} s"


COLUMNS: dict[str, dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "chaos": {
        "seed": lambda row: str(row["seed"]),
        "kills": lambda row: str(row["kills"]),
        "due": lambda row: str(row["expected"]),
        "told before the last start": lambda row: str(row["told_between_kills"]),
        "lost": lambda row: str(row["lost"]),
        "repeated": lambda row: str(row["repeated"]),
        "in the crash window": lambda row: str(row["excused"]),
        "after a kill on a full disk": lambda row: str(row["unnoted"]),
        "runs out of order": lambda row: str(row["disordered"]),
        "wrong in Alertmanager": lambda row: str(row["not_in_alertmanager"]),
        "seconds": lambda row: f"{row['seconds']:.0f}",
    },
    "load": {
        "runs": lambda row: str(row["runs"]),
        "seconds": lambda row: f"{row['seconds']:.0f}",
        "rows judged": lambda row: f"{row['rows_seen']} of {row['rows_written']}",
        "start": lambda row: f"{row['start_seconds']:.0f} s",
        "processor": lambda row: f"{row['cores']:.2f} cores",
        "the writer's own": lambda row: f"{row['writer_cores']:.2f} cores",
        "memory": lambda row: f"{row['peak_mib']:.0f} MiB",
        "row written to row judged, median / p99": _times("lag"),
        "faulty row to the receiver": _times("told"),
        "scrape": _times("scrape"),
        "bytes of a scrape": lambda row: f"{row['scrape_bytes'] / 2**20:.2f} MiB, {row['text_bytes'] / 2**20:.1f} unpacked",
    },
}
