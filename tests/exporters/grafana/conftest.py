"""What the tests of the dashboards share: the dashboards, each of their panels, and the TypeScript compiler."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rltriage.exporters.grafana.fleet import fleet_dashboard
from rltriage.exporters.grafana.run import run_dashboard

SCHEMA = Path(__file__).parents[3] / ".cache" / "grafana-schema"


def panels_of(dashboard):
    """Every panel but the rows' headings, also inside collapsed rows."""
    inside = [panel for each in dashboard["panels"] for panel in each.get("panels", [])]
    return [panel for panel in (*dashboard["panels"], *inside) if panel["type"] != "row"]


@pytest.fixture(scope="session")
def dashboards(metrics):
    """The fleet's dashboard, the same on recording rules, and a run's."""
    return {"fleet": fleet_dashboard(), "recorded": fleet_dashboard(recorded=True), "run": run_dashboard(metrics)}


@pytest.fixture(scope="session")
def every_panel(dashboards):
    """(dashboard, panel) of all three."""
    return [(name, panel) for name, dashboard in dashboards.items() for panel in panels_of(dashboard)]


@pytest.fixture(scope="session")
def compile_typescript(tmp_path_factory, missing):
    """Compiles a TypeScript text beside Grafana's types; what the compiler objects to, empty if nothing."""
    node = shutil.which("node")
    if node is None or not SCHEMA.exists():
        missing("needs node and Grafana's types: python tests/fetch.py grafana-schema")
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(SCHEMA / "node_modules")
    options = [
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--module",
        "esnext",
        "--moduleResolution",
        "bundler",
        "--target",
        "es2022",
    ]

    def compile_(text):
        (folder / "dashboard.ts").write_text(text)
        command = [node, "node_modules/typescript/bin/tsc", *options, "dashboard.ts"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        assert (done.returncode == 0) == (done.stdout == ""), done.stdout + done.stderr
        return done.stdout

    return compile_
