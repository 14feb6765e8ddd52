"""The chapter's three figures from our runs. The only module of the trainer that needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltriage.trainer.chapter_data import RUNS, TRIAGE, ChapterRun
from rltriage.trainer.faults import FAULTS
from rltriage.trainer.invariants import CHECKS

if TYPE_CHECKING:
    from rltriage.trainer.chapter import History
    from rltriage.trainer.chapter_page import Results

RED, BLUE, GREY, GREEN = "#c0392b", "#2c6fad", "#666666", "#e3f1e3"
LOGARITHMIC = {"logp_gap"}


def draw_all(results: Results, folder: Path) -> None:
    """Write the three figures as PNG files into `folder`."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    dashboard(results, folder / "chapter-dashboard.png")
    checks(results, folder / "chapter-checks.png")
    triage(folder / "chapter-triage.png")


def pyplot() -> Any:
    """Imported here because only `make chapter` needs it."""
    return import_module("matplotlib.pyplot")


def save(figure: Any, path: Path) -> None:
    """Write without a software stamp, so that the same results give the same file."""
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot().close(figure)


def lines(axes: Any, histories: Sequence[History], metric: str, colour: str) -> None:
    """One thin line per seed and a thick median over the seeds that have the step."""
    steps = range(max(len(rows) for rows in histories))
    for rows in histories:
        axes.plot([row.get(metric, math.nan) for row in rows], color=colour, alpha=0.25, linewidth=0.7)
    middle = []
    for step in steps:
        values = sorted(rows[step][metric] for rows in histories if step < len(rows) and metric in rows[step])
        middle.append(values[len(values) // 2] if values else math.nan)
    axes.plot(middle, color=colour, linewidth=1.8)


def dashboard(results: Results, path: Path) -> None:
    """Ten failures in two rows of five; each has the reward above and the metric that betrays it below, faulty in red."""
    failures = sorted((run for run in RUNS if run.telltale), key=lambda run: FAULTS[run.name].number or 0)
    figure, grid = pyplot().subplots(4, 5, figsize=(13, 9), layout="constrained")
    for index, run in enumerate(failures):
        top, bottom = grid[2 * (index // 5)][index % 5], grid[2 * (index // 5) + 1][index % 5]
        pair(results, run, top, bottom)
    figure.suptitle("Red: the fault. Blue: its healthy partner. Thin lines are seeds, thick ones their median.", fontsize=9)
    save(figure, path)


def pair(results: Results, run: ChapterRun, top: Any, bottom: Any) -> None:
    """The two panels of one failure, the healthy partner cut to the same number of steps."""
    faulty = results.runs[run.name]
    steps = len(faulty[0])
    healthy = [rows[:steps] for rows in results.runs[run.compare]]
    for axes, metric in ((top, "reward"), (bottom, run.telltale)):
        lines(axes, healthy, metric, BLUE)
        lines(axes, faulty, metric, RED)
        axes.set_ylabel(metric)
    top.set_ylim(-0.03, 1.03)
    top.set_title(f"({FAULTS[run.name].number}) {run.name}", fontsize=9)
    if run.telltale in LOGARITHMIC:
        bottom.set_yscale("log")
    bottom.set_xlabel("step")


def checks(results: Results, path: Path) -> None:
    """The matrix of faults and checks with the measured values; failing cells are red."""
    figure, axes = pyplot().subplots(figsize=(13, 4.4), layout="constrained")
    names = list(results.matrix)
    for row, name in enumerate(names):
        for column, (value, passed) in enumerate(results.matrix[name]):
            colour = RED if passed is False else GREEN if passed else "#dddddd"
            axes.add_patch(pyplot().Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            text = "n/a" if value is None else f"{value:.2g}"
            ink = "white" if passed is False else "black"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=ink, fontsize=8)
    titles = [f"{check.number}. {wrapped(check.title)}" for check in CHECKS]
    axes.set_xticks([i + 0.5 for i in range(len(CHECKS))], titles, fontsize=7)
    axes.set_yticks([i + 0.5 for i in range(len(names))], names)
    axes.set(xlim=(0, len(CHECKS)), ylim=(len(names), 0))
    axes.axvline(9, color="black", linewidth=1.2)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("Left of the line: the chapter's nine checks. Red fails.", fontsize=8)
    save(figure, path)


def wrapped(title: str, width: int = 15) -> str:
    """A title broken into short lines."""
    import textwrap

    return "\n".join(textwrap.wrap(title, width))


def triage(path: Path) -> None:
    """Symptom, first test, faults: one line each; tests that several symptoms share are drawn once."""
    figure, axes = pyplot().subplots(figsize=(13, 6.2), layout="constrained")
    tests = list(dict.fromkeys(test for _, test, _ in TRIAGE))
    faults = sorted(FAULTS[run.name].number or 0 for run in RUNS if run.telltale)
    titles = {FAULTS[run.name].number: run.name for run in RUNS if run.telltale}
    place_test = {test: (len(TRIAGE) - 1) * (i + 0.5) / len(tests) for i, test in enumerate(tests)}
    place_fault = {number: (len(TRIAGE) - 1) * (i + 0.5) / len(faults) for i, number in enumerate(faults)}
    for row, (symptom, test, suspects) in enumerate(TRIAGE):
        box(axes, 0.0, row, symptom, "#eef3f8", "left")
        link(axes, (0.08, row), (0.385, place_test[test]), 1.2)  # starts behind its opaque box
        for rank, number in enumerate(suspects):
            link(axes, (0.48, place_test[test]), (0.755, place_fault[number]), 1.2 if rank == 0 else 0.5)
    for test, y in place_test.items():
        box(axes, 0.39, y, test, "#fdf3e1", "left")
    for number, y in place_fault.items():
        box(axes, 0.76, y, f"({number}) {titles[number]}", "#f9e7e5", "left")
    for x, title in ((0.0, "Symptom"), (0.39, "First test"), (0.76, "Suspected fault")):
        axes.text(x, -1.1, title, fontsize=10, fontweight="bold")
    axes.set(xlim=(-0.01, 1.0), ylim=(len(TRIAGE) - 0.3, -1.6))
    axes.axis("off")
    save(figure, path)


def box(axes: Any, x: float, y: float, text: str, colour: str, align: str) -> None:
    """A labelled box whose left edge is at `x`."""
    style = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": "none"}
    axes.text(x, y, text, va="center", ha=align, fontsize=8.5, bbox=style)


def link(axes: Any, start: tuple[float, float], end: tuple[float, float], width: float) -> None:
    """A smooth line between two columns; thin for the weaker suspect."""
    steps = [i / 30 for i in range(31)]
    ease = [3 * t * t - 2 * t * t * t for t in steps]
    xs = [start[0] + (end[0] - start[0]) * t for t in steps]
    ys = [start[1] + (end[1] - start[1]) * e for e in ease]
    axes.plot(xs, ys, color=GREY, linewidth=width, zorder=0)
