"""Draw a dashboard's panels from Prometheus' answers to their queries, for one recorded run: docs/images/grafana-run.png.

`python benchmarks/dashboards.py [--fault mask_shift]`. There is no Grafana in it: the pictures show what the queries give,
on the dashboard's grid, with healthy ranges and alert marks. Needs prometheus, promtool (deploy/fetch_servers.sh) and
matplotlib.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rltriage.exporters.backfill import Recording
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.grafana.run import run_dashboard
from rltriage.recorded import RecordedRun, read_runs
from rltriage.rules.loader import load_rules
from rltriage.watching import WatchedRun

ROOT = Path(__file__).parents[1]
SECONDS = 30
END = 1_767_225_600
UNIT_INCHES = 0.56, 0.27
"""Width and height of one cell of Grafana's grid."""
COLORS = {"critical": "tab:red", "warning": "tab:orange", "info": "tab:blue"}

Series = tuple[dict[str, str], list[tuple[float, float]]]


def backfilled(recorded: RecordedRun, folder: Path) -> None:
    """The run's rows, alerts and healthy ranges as blocks of a Prometheus, the last row at END."""
    pack = load_rules("triage")
    gauges, recording, run = Gauges(pack.catalogue.metrics), Recording(), recorded.run()
    watched = WatchedRun(run, pack, (gauges,))
    for index, row in enumerate(recorded.rows):
        timed = type(row)(row.step, row.metrics, END - SECONDS * (len(recorded.rows) - 1 - index))
        watched.emit(timed)
        recording.take(run, timed, gauges.samples_of(run.id))
    blocks(recording.lines(), folder)


def blocks(lines: Iterable[str], folder: Path) -> None:
    """OpenMetrics with times as the data folder of a Prometheus."""
    (folder / "wal").mkdir(parents=True)
    source = folder.with_suffix(".om")
    with source.open("w") as file:
        file.writelines(lines)
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=168h"]
    subprocess.run([*command, str(source), str(folder)], check=True, capture_output=True)


def program(name: str) -> str:
    """Where a program of Prometheus is."""
    found = shutil.which(name) or shutil.which(name, path=str(ROOT / ".cache" / "servers" / "usr" / "bin"))
    if found is None:
        raise SystemExit(f"{name} is not installed: run deploy/fetch_servers.sh")
    return found


@contextmanager
def prometheus(data: Path) -> Iterator[str]:
    """The address of a Prometheus over these blocks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = data.parent / "prometheus.yml"
    config.write_text("{}")
    options = [f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}"]
    command = [program("prometheus"), *options, "--storage.tsdb.retention.time=10y", "--log.level=error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{address}/-/ready"):
                    break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def ask(address: str, target: Mapping[str, Any], run: str, start: float) -> list[Series]:
    """The answer to a panel's query: all of the run's time, or its end."""
    expression = target["expr"].replace("$run", run).replace("$__rate_interval", "2m")
    if target.get("instant"):
        path, given = "query", {"query": expression, "time": END}
    else:
        path, given = "query_range", {"query": expression, "start": start, "end": END, "step": SECONDS}
    with urllib.request.urlopen(f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(given)}") as body:
        found = json.load(body)["data"]["result"]
    return [
        (each["metric"], [(float(at), float(value)) for at, value in each.get("values", [each.get("value")])])
        for each in found
    ]


def legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Grafana's legend: {{name}} filled in."""
    text = str(target.get("legendFormat", ""))
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def draw_curves(axis: Any, panel: Mapping[str, Any], answers: Sequence[Sequence[Series]], marks: Sequence[Series]) -> None:
    """Lines, the healthy range shaded, alerts as lines where they began; the step in minutes of the run."""
    ranges: dict[str, list[tuple[float, float]]] = {}
    right = {
        each["matcher"]["options"]
        for each in panel["fieldConfig"]["overrides"]
        if {"id": "custom.axisPlacement", "value": "right"} in each["properties"]
    }
    other = axis.twinx() if right else axis
    for target, answer in zip(panel["targets"], answers, strict=True):
        for labels, points in answer:
            name = legend(target, labels)
            if name.startswith("healthy "):
                ranges[name] = points
                continue
            color = f"C{len(axis.lines) + (len(other.lines) if right else 0)}"
            place, style = (other, "--") if name in right else (axis, "-")
            place.plot(*zip(*minutes(points), strict=True), style, label=name[:38], color=color, linewidth=1.1)
    for name, points in ranges.items():
        if name.endswith("from") and name[:-4] + "to" in ranges:
            at, low = zip(*minutes(points), strict=True)
            axis.fill_between(
                at, low, [value for _, value in ranges[name[:-4] + "to"]], color="tab:green", alpha=0.13, linewidth=0
            )
    for labels, points in marks:
        axis.axvline(minutes(points)[0][0], color=COLORS[labels["severity"]], linewidth=0.5, alpha=0.5)
    if panel["fieldConfig"]["defaults"]["custom"].get("scaleDistribution", {}).get("type") == "log":
        axis.set_yscale("log")
    lines = [*axis.lines[: len(axis.lines) - len(marks)], *(other.lines if right else [])]
    axis.legend(lines, [line.get_label() for line in lines], fontsize=5.5, loc="upper left", frameon=False, ncols=2)
    axis.tick_params(labelsize=6)
    if right:
        other.tick_params(labelsize=6)


def minutes(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times as minutes before the run's end."""
    return [((at - END) / 60, value) for at, value in points]


def draw_table(axis: Any, answers: Sequence[Sequence[Series]]) -> None:
    """The newest values as rows, hidden columns left out."""
    rows = [(labels, points[-1][1]) for labels, points in answers[0]][:9]
    names = [name for name in ("severity", "rule", "fault", "first_test", "profile") if rows and name in rows[0][0]]
    shown = names + (["value"] if names == ["fault"] else [])
    cells = [
        [*(labels.get(name, "") for name in names), *([f"{value:.1%}"] if "value" in shown else [])]
        for labels, value in rows
    ]
    axis.axis("off")
    if cells:
        table = axis.table(cells, colLabels=shown, loc="upper left", cellLoc="left", edges="horizontal")
        table.auto_set_font_size(False)
        table.set_fontsize(5)
        table.auto_set_column_width(list(range(len(shown))))


def draw_stat(axis: Any, panel: Mapping[str, Any], answers: Sequence[Sequence[Series]]) -> None:
    """One word or number."""
    labels, points = answers[0][0] if answers[0] else ({}, [(0.0, 0.0)])
    text = legend(panel["targets"][0], labels) if panel["options"]["textMode"] == "name" else f"{points[-1][1]:g}"
    axis.axis("off")
    axis.text(0.5, 0.45, text, ha="center", va="center", fontsize=9, weight="bold", color="tab:red")


def draw_timeline(axis: Any, panel: Mapping[str, Any], answers: Sequence[Sequence[Series]]) -> None:
    """A bar a series where it has a value: green for a passed invariant, an alert in the colour of its severity."""
    target = panel["targets"][0]
    found = sorted(answers[0], key=lambda each: each[1][0][0])[:16]
    for place, (labels, points) in enumerate(found):
        for at, value in minutes(points):
            color = COLORS[labels["severity"]] if "severity" in labels else "tab:green" if value else "tab:red"
            axis.barh(-place, SECONDS / 60, left=at, color=color, height=0.7)
    axis.set_yticks([-place for place in range(len(found))], [legend(target, labels)[:34] for labels, _ in found])
    axis.tick_params(labelsize=4.5)


def below(panels: Iterable[Mapping[str, Any]], rows: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The panels below the headings `rows`."""
    shown = False
    for panel in panels:
        if panel["type"] == "row":
            shown = panel["title"] in rows
        elif shown:
            yield panel


def moved_up(panels: Sequence[Mapping[str, Any]]) -> tuple[dict[int, int], int]:
    """Where each line of panels begins if nothing else is drawn, by where it begins on the dashboard; and the height."""
    found, taken = {}, 0
    for top in sorted({panel["gridPos"]["y"] for panel in panels}):
        found[top] = taken
        taken += max(each["gridPos"]["h"] for each in panels if each["gridPos"]["y"] == top)
    return found, taken


def draw(address: str, run: str, rows: Sequence[str], out: Path) -> None:
    """Every panel below the headings `rows`, where the dashboard has it."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 7, "axes.spines.top": False})
    from matplotlib import pyplot

    dashboard = run_dashboard(load_rules("triage").catalogue.metrics)
    start = END - SECONDS * 23
    marks = [each for query in dashboard["annotations"]["list"] for each in ask(address, query["target"], run, start)]
    panels = list(below(dashboard["panels"], rows))
    y, taken = moved_up(panels)
    figure = pyplot.figure(figsize=(24 * UNIT_INCHES[0], taken * UNIT_INCHES[1]))
    for panel in panels:
        place = panel["gridPos"]
        box = (
            (place["x"] + 0.9) / 24,
            1 - (y[place["y"]] + place["h"] - 0.8) / taken,
            (place["w"] - 1.5) / 24,
            (place["h"] - 2.2) / taken,
        )
        if panel["type"] == "state-timeline":
            box = box[0] + 2.6 / 24, box[1], box[2] - 2.6 / 24, box[3]
        axis = figure.add_axes(box)
        axis.set_title(panel["title"], fontsize=7.5, loc="left")
        answers = [ask(address, target, run, start) for target in panel["targets"]]
        if panel["type"] == "timeseries":
            draw_curves(axis, panel, answers, marks)
        elif panel["type"] == "table":
            draw_table(axis, answers)
        elif panel["type"] == "stat":
            draw_stat(axis, panel, answers)
        else:
            draw_timeline(axis, panel, answers)
    figure.savefig(out, dpi=90)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description="Draw the run's dashboard from Prometheus' answers.")
    parser.add_argument("--fault", default="mask_shift")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "grafana-run.png")
    parser.add_argument(
        "--rows", nargs="*", default=["Triage", "Outcome: is the task being solved?", "Optimizer: what does the update do?"]
    )
    options = parser.parse_args()
    (recorded,) = [run for run in read_runs(ROOT / "tests" / "data" / "runs", [options.fault]) if run.seed == 0]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        backfilled(recorded, data)
        with prometheus(data) as address:
            draw(address, recorded.name, options.rows, options.out)


if __name__ == "__main__":
    main()
