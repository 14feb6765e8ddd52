"""`rltriage serve`: the page over runs on disk, in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the page needs the extra 'web'")
pytest.importorskip("uvicorn", reason="the page needs the extra 'web'")


def test_rows_on_disk_reach_the_page(tmp_path: Path) -> None:
    """A log in the watched folder becomes a run on the page, judged; SIGTERM ends the process cleanly."""
    rows = [{"step": s, "reward": 0.2 + 0.01 * (s % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3} for s in range(12)]
    (tmp_path / "live.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--page", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--config", "kl_coef=0.1", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-m", "rltriage", "serve", *given], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        page = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{page}/events", timeout=60) as stream:
            named: list[tuple[str, str]] = []
            while not named and stream.readline():  # each line is waited for; the last one comes after the last row
                named = [(run["run"], run["fault"]) for run in _runs(page) if run["rows"] == len(rows)]
        assert named == [("live", "ref_is_policy")]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "CRITICAL  live, step" in process.stdout.read()  # as `watch` prints it


def test_the_page_is_not_opened_to_everybody(rltriage, tmp_path: Path) -> None:
    """An address that others reach is refused before anything starts."""
    ran = rltriage("serve", "--page", "0.0.0.0:0", tmp_path)
    assert ran.code == 2
    assert "--insecure" in ran.err


def _runs(page: str) -> list[dict]:
    with urllib.request.urlopen(f"{page}/api/runs", timeout=60) as answer:
        found: list[dict] = json.load(answer)["runs"]
    return found
