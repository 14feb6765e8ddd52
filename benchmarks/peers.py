"""rltriage beside rlwatch, rldoctor and rlprobe on the same rows: what each says, and how many rows a second it takes.

    python -m venv peers && peers/bin/pip install rlwatch==0.5.1 rldoctor==0.2.0 rlprobe==0.1.0
    python benchmarks/peers.py export DIR                 recorded runs and cases, for the peers to read
    peers/bin/python benchmarks/peers.py peers DIR        what they say
    peers/bin/python benchmarks/peers.py peers-speed DIR  how many rows a second they take
    python benchmarks/peers.py ours DIR
    python benchmarks/peers.py ours-speed DIR
    python benchmarks/peers.py page DIR                   docs/peers.md

The steps of the peers import nothing of ours and run in an environment of their own; they are no dependency. Every tool
gets its own names for the same numbers, its defaults, and the whole run: rlwatch row by row, as it works; rldoctor and
rlprobe their diagnosis of the finished run, which sees most. Speed is CPU time of the live path, cut at 60 s.
"""

from __future__ import annotations

import io
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPEED_ROWS, CUT = 100_000, 60.0
Rows = Sequence[Mapping[str, float]]

RLWATCH = {
    "entropy": "entropy", "kl_ref": "kl_divergence", "reward": "reward_mean", "reward_std": "reward_std", "loss": "loss",
    "lr": "learning_rate", "clip_frac": "clip_fraction", "grad_norm": "grad_norm",
}  # fmt: skip
RLPROBE = {
    "reward": "reward_mean", "reward_std": "reward_std", "kl_ref": "kl_mean", "entropy": "entropy_mean",
    "ratio_mean": "ratio_mean", "clip_frac": "clip_fraction", "adv_mean": "adv_mean",
    "zero_adv_frac": "zero_variance_group_frac", "explained_variance": "value_explained_variance", "loss": "loss",
    "lr": "lr", "grad_norm": "grad_norm", "length": "completion_len_mean", "length_max": "completion_len_max",
    "truncated_frac": "truncation_rate",
}  # fmt: skip
RLDOCTOR = {
    "reward": "reward", "reward_std": "reward_std", "kl_ref": "kl", "entropy": "entropy", "clip_frac": "clip_ratio",
    "zero_adv_frac": "frac_reward_zero_std", "loss": "loss", "lr": "learning_rate", "grad_norm": "grad_norm",
    "length": "completions/mean_length", "truncated_frac": "completions/clipped_ratio", "eval_pass": "eval/accuracy",
    "adv_mean": "advantages_mean", "explained_variance": "explained_variance",
}  # fmt: skip
NAMES = {
    "entropy_collapse": ("entropy_collapse",), "reward_hacking": ("reward_hacking",), "loss_nan": ("nonfinite",),
    "advantage_collapse": ("zero_advantage_groups",), "length_pathology": ("truncation_cap", "length_bias"),
    "kl_explosion": ("kl_blowup",), "kl_drift": ("kl_blowup", "ref_is_policy"), "KL_BLOWUP": ("kl_blowup",),
    "ENTROPY_COLLAPSE": ("entropy_collapse",), "REWARD_HACK_LENGTH": ("reward_hacking",),
    "FORMAT_GAMING": ("reward_hacking",), "DEGENERATE_GROUPS": ("zero_advantage_groups",),
    "TRUNCATION_STARVE": ("truncation_cap",), "reward_composition": ("reward_hacking",),
    "VALUE_DIVERGENCE": ("critic_untrained",),
}  # fmt: skip
"""Which of our faults a peer's detector can be said to name; the others (a spike, a plateau) name none."""


def renamed(row: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    """A row under a peer's names, finite or not."""
    return {other: row[name] for name, other in names.items() if name in row}


def rlwatch_live(rows: Rows, deadline: float = math.inf) -> tuple[list[str], int]:
    """(detectors at warning or above, rows taken)."""
    import rlwatch.core
    from rlwatch.config import load_config

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        config = load_config(None)
        config.framework, config.storage.log_dir = "manual", folder
        monitor, said, taken = rlwatch.core.RLWatch(config), [], 0
        monitor.start()
        for row in rows:
            said += [alert.detector for alert in monitor.log_step(int(row["step"]), **renamed(row, RLWATCH))]
            taken += 1
            if taken % 256 == 0 and time.process_time() > deadline:
                break
        monitor.stop()
    return said, taken


def rldoctor_whole(rows: Rows, config: Mapping[str, Any]) -> list[str]:
    """Detectors at warning or above in its diagnosis of a finished run."""
    from rl_doctor import Severity, diagnose, run_from_records

    known = {name: config[name] for name in ("kl_coef", "clip_eps", "group_size") if name in config}
    records = [{"step": row["step"], **renamed(row, RLDOCTOR)} for row in rows]
    found = diagnose(run_from_records(records, config=known or None)).problems
    return [finding.detector for finding in found if finding.severity >= Severity.WARNING]


def rldoctor_live(rows: Rows, deadline: float) -> int:
    """Rows that its live monitor takes."""
    from rl_doctor.live import LiveMonitor

    monitor, taken = LiveMonitor(on_finding=lambda finding: None), 0
    for row in rows:
        monitor.log(renamed(row, RLDOCTOR), step=int(row["step"]))
        taken += 1
        if time.process_time() > deadline:
            break
    return taken


def rlprobe_view(rows: Rows) -> Any:
    """The run as its doctor sees it."""
    from rlprobe.doctor.runview import RunView
    from rlprobe.schemas import RunManifest, StepRecord

    records = [StepRecord(step=int(row["step"]), **renamed(row, RLPROBE)) for row in rows]
    manifest = RunManifest(run_id="run", algorithm="grpo", created_at="2026-01-01T00:00:00Z")
    return RunView(manifest, records, lambda: [])


def rlprobe_whole(rows: Rows) -> list[str]:
    """Signatures in its diagnosis of a finished run, `info` left out."""
    from rlprobe.doctor.engine import diagnose_view

    found = diagnose_view(rlprobe_view(rows))
    return [
        finding.signature_id for finding in found if str(getattr(finding.severity, "value", finding.severity)) != "info"
    ]


def rlprobe_live(rows: Rows, deadline: float) -> int:
    """Rows taken when it diagnoses every 25 rows from row 30 on, as its watcher does."""
    from rlprobe.doctor.engine import diagnose_view

    for end in range(50, len(rows), 25):
        diagnose_view(rlprobe_view(rows[:end]))
        if time.process_time() > deadline:
            return end
    return len(rows)


def peers_say(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tool -> run -> what it says."""
    tools: dict[str, Callable[[Rows, Mapping[str, Any]], list[str]]] = {
        "rlwatch": lambda rows, config: rlwatch_live(rows)[0],
        "rldoctor": rldoctor_whole,
        "rlprobe": lambda rows, config: rlprobe_whole(rows),
    }
    return {name: {run["name"]: tool(run["rows"], run["config"]) for run in data["runs"]} for name, tool in tools.items()}


def peers_speed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tool -> rows taken and CPU seconds."""
    tools: dict[str, Callable[[Rows, float], int]] = {
        "rlwatch": lambda rows, deadline: rlwatch_live(rows, deadline)[1],
        "rldoctor": rldoctor_live,
        "rlprobe": rlprobe_live,
    }
    rows = list(speed_rows(data))
    return {name: timed(take, rows) for name, take in tools.items()}


def timed(take: Callable[[Rows, float], int], rows: Rows) -> dict[str, float]:
    """Rows taken and CPU seconds."""
    began = time.process_time()
    taken = take(rows, began + CUT)
    return {"rows": taken, "seconds": time.process_time() - began}


def speed_rows(data: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """100,000 rows: those of the healthy runs again and again, with steps that go on."""
    healthy = [row for run in data["runs"] if run["group"] == "healthy" for row in run["rows"]]
    for step in range(SPEED_ROWS):
        yield {**healthy[step % len(healthy)], "step": step}


def export() -> dict[str, Any]:
    """The recorded runs without invariants, and every case, under canonical names."""
    import yaml

    from rltriage.detection import without_checks
    from rltriage.engine.feed import Feed
    from rltriage.engine.sources import open_source
    from rltriage.recorded import REFERENCE, read_runs

    runs = []
    for recorded in read_runs(ROOT / "tests" / "data" / "runs"):
        if recorded.group.name != REFERENCE:
            rows = [{"step": row.step, **without_checks(row).metrics} for row in recorded.rows]
            accepted = [recorded.group.fault] if recorded.group.fault else []
            config = recorded.group.facts
            runs.append(
                {"name": recorded.name, "group": recorded.group.name, "accept": accepted, "config": config, "rows": rows}
            )
    for path in sorted((ROOT / "tests" / "data" / "cases").glob("*.yaml")):
        case = yaml.safe_load(path.read_text())
        expected = case["expected"]
        feed = Feed(open_source(str(path.with_suffix(".jsonl"))), path.stem, config=case["config"])
        rows = [{"step": row.step, **row.metrics} for _, row in feed.rows()]
        accepted = [expected["fault"], *expected.get("accept", ())] if expected["fault"] else []
        group = "cases" if accepted else "look-alikes"
        runs.append({"name": path.stem, "group": group, "accept": accepted, "config": case["config"], "rows": rows})
    return {"runs": runs}


def watched(run: Mapping[str, Any], pack: Any, heard: Any) -> Any:
    """A run of rltriage as `rltriage replay` would have it."""
    from rltriage.engine.rows import Fact, Run
    from rltriage.watching import WatchedRun

    facts = {name: Fact(value, "declared") for name, value in run["config"].items()}
    return WatchedRun(Run(run["name"], facts=facts), pack, (heard,))


def we_say(data: Mapping[str, Any]) -> dict[str, Any]:
    """Run -> the rules that fired at warning or above, and who was first suspect at some time."""
    from rltriage.detection import Listener
    from rltriage.engine.rows import Row
    from rltriage.rules.loader import load_rules

    pack = load_rules("triage")
    said: dict[str, Any] = {"fired": {}, "named": {}}
    for run in data["runs"]:
        heard = Listener()
        monitor = watched(run, pack, heard)
        for row in run["rows"]:
            monitor.emit(Row(int(row["step"]), {name: value for name, value in row.items() if name != "step"}))
        said["fired"][run["name"]] = [alert.rule for _, alert in heard.loud]
        named = {suspect.fault for _, incident in heard.incidents for suspect in incident.suspects[:1]}
        said["named"][run["name"]] = sorted(named)
    return said


def our_speed(data: Mapping[str, Any]) -> dict[str, float]:
    """Rows taken and CPU seconds, rows made beforehand, with a sink that listens."""
    from rltriage.detection import Listener
    from rltriage.engine.rows import Row
    from rltriage.rules.loader import load_rules

    healthy = next(run for run in data["runs"] if run["group"] == "healthy")
    monitor = watched(healthy, load_rules("triage"), Listener())
    rows = [Row(int(row.pop("step")), row) for row in speed_rows(data)]

    def take(_: Rows, deadline: float) -> int:
        for row in rows:
            monitor.emit(row)
        return len(rows)

    return timed(take, ())


def counted(data: Mapping[str, Any], said: Mapping[str, Sequence[str]], names: Callable[[str], set[str]]) -> list[str]:
    """`alarmed/named of runs` for faults, cases, healthy runs and look-alikes."""
    cells = []
    for wanted in (("faults",), ("cases",), ("healthy",), ("look-alikes",)):
        runs = [run for run in data["runs"] if kind(run) in wanted]
        alarmed = sum(bool(said[run["name"]]) for run in runs)
        named = sum(bool(names(run["name"]) & set(run["accept"])) for run in runs)
        faulty = wanted[0] in ("faults", "cases")
        cells.append(f"{alarmed} / {named} of {len(runs)}" if faulty else f"{alarmed} of {len(runs)}")
    return cells


def kind(run: Mapping[str, Any]) -> str:
    """Which column a run counts in."""
    if run["group"] in ("cases", "look-alikes"):
        return str(run["group"])
    return "faults" if run["accept"] else "healthy"


def page(found: Mapping[str, Any]) -> str:
    """`docs/peers.md` from what the other steps found, by step."""
    data, peers, own = found["export"], found["peers"], found["ours"]
    own_rate = found["ours-speed"]["rows"] / found["ours-speed"]["seconds"]

    def line(tool: str, cells: Sequence[str], speed: Mapping[str, float]) -> str:
        rate = speed["rows"] / speed["seconds"]
        cut = "" if speed["rows"] == SPEED_ROWS else f" (cut after {speed['rows']:,.0f} rows)"
        return f"| {tool} | {' | '.join(cells)} | {rate:,.0f}{cut} | {own_rate / rate:,.1f} |"

    lines = [HEAD]
    lines.append(line("rltriage", counted(data, own["fired"], lambda run: set(own["named"][run])), found["ours-speed"]))
    for tool, said in peers.items():

        def names(run: str, said: Mapping[str, Sequence[str]] = said) -> set[str]:
            return {fault for detector in said[run] for fault in NAMES.get(detector, ())}

        lines.append(line(tool, counted(data, said, names), found["peers-speed"][tool]))
    lines.append("\n## What fired on healthy runs\n")
    for tool, said in {"rltriage": own["fired"], **peers}.items():
        fired = Counter(name for run in data["runs"] if kind(run) == "healthy" for name in set(said[run["name"]]))
        told = ", ".join(f"`{name}` in {count}" for name, count in fired.most_common())
        lines.append(f"- {tool}: {told or 'nothing'}")
    return "\n".join(lines) + "\n"


HEAD = """# Beside other tools

What four tools say about the same rows, and how many rows a second they take. The rows are the recorded runs of the
reference trainer ([detection.md](detection.md); without results of invariants, as other trainers log) and the cases
rebuilt from public bug reports (`tests/data/cases`); the tools are rltriage, rlwatch 0.5.1, rldoctor 0.2.0 and rlprobe
0.1.0, each under its own metric names and with its defaults.

*Alarmed* counts runs with any alert at warning or above, *named* those in which the right fault was named: for
rltriage as first suspect at some time, for the others by any detector whose name can be read as that fault (the
mapping is in `benchmarks/peers.py`). Recorded runs have 24 rows: rlprobe wants 30 before it says anything and rlwatch
waits for 20 to 50, so their silence there is a minimum length and not a judgement. Speed is rows per CPU second of
the live path on 100,000 rows (rldoctor and rlprobe diagnose again every 25 rows, as they do live), cut at 60 s; the
last column is how many times faster rltriage was. rlwatch is faster: its seven detectors read eight metrics, where
rltriage judges all rules over the forty-odd metrics of a row, and it says no more after fifty alerts. The first lines
of `benchmarks/peers.py` say how to repeat it; this page is generated.

| tool | faults: alarmed / named | cases: alarmed / named | healthy alarmed | look-alikes alarmed | rows/s | ratio |
|---|---|---|---|---|---|---|"""


STEPS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "peers": peers_say,
    "peers-speed": peers_speed,
    "ours": we_say,
    "ours-speed": our_speed,
}


def main(step: str, folder: Path) -> None:
    """One step; its result goes into the folder under its name."""
    if step == "page":
        found = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("export", *STEPS)}
        (ROOT / "docs" / "peers.md").write_text(page(found))
        return
    result = export() if step == "export" else STEPS[step](json.loads((folder / "export.json").read_text()))
    (folder / f"{step}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
