"""Healthy runs and faults in other shapes: what stays silent, what stays named.

    python benchmarks/variations.py                          write tests/data/variations.json (for docs/detection.md)
    RLTRIAGE_CASES=DIR python benchmarks/variations.py -v    also vary the logs in DIR/real-logs; -v names what went wrong

A variation changes what a setup, a scale or chance could change in the rows and leaves the run healthy, or faulty, as it
was. Healthy material (recorded runs, look-alikes, healthy and flat logs) has to stay below `warning`; of faults (recorded
runs without invariants, bug reports) the right one has to be among the first two suspects of some incident.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from cases import CASES, DISPUTED, READINGS, Bench
from margins import RUNS, logged

from rltriage.detection import NOT_VISIBLE, Listener, without_checks
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.rundir import write_atomically
from rltriage.recorded import HEALTHY, read_runs
from rltriage.watching import WatchedRun

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "data" / "variations.json"
PACK = ROOT / "rules" / "packs" / "triage.yaml"
Rows = list[Row]
Vary = Callable[[Rows, Run, random.Random], tuple[Rows, Run]]
SCALED = (
    "reward",
    "reward_std",
    "grad_norm",
    "loss",
    "length",
    "length_pass",
    "length_fail",
    "length_min",
    "length_max",
    "turns",
)
IDENTITIES = ("step", "check_", "lr", "length", "ratio", "clip_frac", "kl_ref", "n_", "eval_n")
"""Metrics, by the head of their names, on which noise would break an identity: exactly 0 stays exactly 0."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A run to vary. `accepted` are the faults that may be named, empty for a healthy one."""

    name: str
    group: str
    run: Run
    rows: Rows
    accepted: frozenset[str] = frozenset()


def _edit(rows: Rows, change: Callable[[int, dict[str, float]], None]) -> Rows:
    found = []
    for index, row in enumerate(rows):
        metrics = dict(row.metrics)
        change(index, metrics)
        found.append(Row(row.step, metrics, row.time))
    return found


def _told(run: Run, **facts: Any) -> Run:
    return replace(run, facts={**run.facts, **{name: Fact(value, "declared") for name, value in facts.items()}})


def _stride(rows: Rows) -> int:
    return max(1, rows[-1].step - rows[-2].step) if len(rows) > 1 else 1


def as_it_is(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Unchanged."""
    return rows, run


def rescaled(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Rewards, gradients and lengths on another scale; what is told of ceilings goes along."""
    factors = {"reward": 10.0, "reward_std": 10.0, "grad_norm": 5.0, "loss": 5.0, "turns": 1.0}

    def change(_: int, metrics: dict[str, float]) -> None:
        for name in metrics:
            if name in SCALED or name.startswith(("reward/", "rewards/")):
                metrics[name] *= factors.get(name, 10.0 if name.startswith("reward") else 3.0)

    facts = {name: run.facts[name].value for name in ("reward_max", "max_length") if name in run.facts}
    known = {name: value for name, value in facts.items() if isinstance(value, int | float)}
    return _edit(rows, change), _told(run, **{n: v * (10 if n == "reward_max" else 3) for n, v in known.items()})


def noisier(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """5 % of noise on every metric that is no identity."""

    def change(_: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if value and math.isfinite(value) and not name.startswith(IDENTITIES):
                top = 1.0 if 0 <= value <= 1 and ("frac" in name or "pass" in name) else math.inf
                metrics[name] = min(top, value * math.exp(chance.gauss(0, 0.05)))

    return _edit(rows, change), run


def plateau(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Three times as long: the last third goes on, its rows in any order."""
    tail, stride = rows[-max(3, len(rows) // 3) :], _stride(rows)
    end = {name: value for name, value in rows[-1].metrics.items() if name == "lr"}
    count = min(2 * len(rows), 400)
    more = [Row(rows[-1].step + stride * (n + 1), {**chance.choice(tail).metrics, **end}) for n in range(count)]
    return [*rows, *more], run


def saturated(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """The task is solved in the end: all groups pass, the gradient and the entropy nearly vanish."""
    last, stride, found = rows[-1], _stride(rows), list(rows)
    best = max((row.metrics["reward"] for row in rows if "reward" in row.metrics), default=1.0)
    ceiling = run.facts["reward_max"].value if "reward_max" in run.facts else best
    for n in range(20):
        share, metrics = (n + 1) / 20, dict(last.metrics)
        for name, end in (
            ("reward", ceiling),
            ("pass_rate", 1.0),
            ("eval_pass", 0.95),
            ("zero_adv_frac", 0.97),
            ("all_pass_frac", 0.97),
        ):
            if name in metrics:
                metrics[name] += (end - metrics[name]) * min(1.0, 2 * share)
        for name in ("entropy", "grad_norm", "approx_kl", "reward_std", "all_fail_frac"):
            if name in metrics:
                metrics[name] *= 1 - 0.95 * share
        found.append(Row(last.step + stride * (n + 1), metrics))
    return found, run


def warmup_and_decay(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """The learning rate rises for a tenth of the run and falls to 0 along a cosine."""
    warm = max(3, len(rows) // 10)

    def change(index: int, metrics: dict[str, float]) -> None:
        done = (index - warm) / max(1, len(rows) - warm)
        metrics["lr"] = 1e-6 * ((index + 1) / warm if index < warm else (1 + math.cos(math.pi * done)) / 2)

    return _edit(rows, change), _told(run, lr=1e-6, warmup_steps=warm)


def resumed(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Stopped in the middle and resumed five strides later, with one noisy row."""
    cut, stride = len(rows) // 2, _stride(rows)
    return [Row(row.step + (5 * stride if index >= cut else 0), row.metrics) for index, row in enumerate(rows)], run


def rewound(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Crashed in the middle and gone back a few steps to its checkpoint."""
    cut = len(rows) // 2
    return [*rows[:cut], *rows[max(1, cut - 4) :]], run


HARDER = {
    "reward": 0.67,
    "pass_rate": 0.67,
    "zero_adv_frac": 0.6,
    "length": 1.4,
    "length_pass": 1.4,
    "length_fail": 1.4,
}


def curriculum(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Harder tasks from the middle on: rewards drop by a third in one row, answers grow by 40 %, learning goes on."""
    cut = len(rows) // 2

    def change(index: int, metrics: dict[str, float]) -> None:
        for name, factor in HARDER.items() if index >= cut else ():
            if name in metrics:
                metrics[name] *= factor

    return _edit(rows, change), run


def evaluated(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Held-out tasks, 40 of them, every fifth row: the batch's pass rate with the noise of 40 draws."""

    def change(index: int, metrics: dict[str, float]) -> None:
        metrics.pop("eval_pass", None)
        rate = metrics.get("pass_rate", metrics.get("reward", -1.0))
        if index % 5 == 0 and 0 <= rate <= 1:
            metrics["eval_pass"] = sum(chance.random() < rate for _ in range(40)) / 40
            metrics["eval_n"] = 40.0

    return _edit(rows, change), run


def sparsely_logged(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """A row for every three steps, with their means."""
    found = []
    for start in range(0, len(rows), 3):
        part = rows[start : start + 3]
        names = dict.fromkeys(name for row in part for name in row.metrics)
        metrics = {name: fmean(row.metrics[name] for row in part if name in row.metrics) for name in names}
        found.append(Row(part[-1].step, metrics, part[-1].time))
    return found, run


def stopped_early(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Cut off somewhere."""
    return rows[: chance.randint(1, len(rows))], run


def spiky(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Two rows whose KL and gradient are twenty times the usual, and nothing else."""
    at = {len(rows) * 2 // 3, len(rows) * 2 // 3 + 4}

    def change(index: int, metrics: dict[str, float]) -> None:
        for name in ("approx_kl", "kl_ref", "grad_norm") if index in at else ():
            if name in metrics:
                metrics[name] *= 20

    return _edit(rows, change), run


def slow_start(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Fifteen rows in which hardly any group has a spread, at a reward near 0, before the run gets going."""
    stride, head, first = _stride(rows), [], rows[: max(3, len(rows) // 3)]
    for n in range(15):
        metrics = dict(chance.choice(first).metrics)
        metrics |= {name: value for name, value in rows[0].metrics.items() if name == "lr"}
        for name in ("reward", "pass_rate", "eval_pass"):
            if metrics.get(name, 0.0) > 0:
                metrics[name] *= chance.choice([0.0, 0.05, 0.1])
        for name in ("zero_adv_frac", "all_fail_frac"):
            if name in metrics:
                metrics[name] = chance.choice([0.875, 0.92, 0.95])
        head.append(Row(rows[0].step + n * stride, metrics))
    return [*head, *(Row(row.step + 15 * stride, row.metrics) for row in rows)], run


def fewer_metrics(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """A third of the metrics is not logged."""
    names = sorted({name for row in rows for name in row.metrics})
    gone = set(chance.sample(names, len(names) // 3))
    return [Row(row.step, {k: v for k, v in row.metrics.items() if k not in gone}, row.time) for row in rows], run


def nothing_declared(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """No config fact is known."""
    return rows, replace(run, facts={})


def other_group_size(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Groups of half the size: flat ones are more frequent, a share f becomes the root of f."""

    def change(_: int, metrics: dict[str, float]) -> None:
        for name in ("zero_adv_frac", "all_fail_frac", "all_pass_frac"):
            if 0 <= metrics.get(name, -1.0) <= 1:
                metrics[name] = metrics[name] ** 0.5

    size = run.facts["group_size"].value if "group_size" in run.facts else None
    return _edit(rows, change), _told(run, group_size=size // 2) if isinstance(size, int) and size > 3 else run


def later_onset(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """Eight healthy rows of the reference trainer come first: the fault begins at row 8."""
    group = "control_kl_coef_0.1" if "kl_ref" in rows[0].metrics else HEALTHY
    head = [without_checks(row) for row in read_runs(RUNS, (group,))[0].rows[:8]]
    return [*head, *(Row(row.step + 8, row.metrics) for row in rows)], run


def metric_missing(rows: Rows, run: Run, chance: random.Random) -> tuple[Rows, Run]:
    """One metric is not logged."""
    gone = chance.choice(sorted({name for row in rows for name in row.metrics}))
    return [Row(row.step, {k: v for k, v in row.metrics.items() if k != gone}, row.time) for row in rows], run


HEALTHY_SHAPES: tuple[Vary, ...] = (
    as_it_is, rescaled, noisier, plateau, saturated, warmup_and_decay, resumed, rewound, curriculum, evaluated,
    sparsely_logged, stopped_early, spiky, slow_start, fewer_metrics, other_group_size, nothing_declared,
)  # fmt: skip
FAULTY_SHAPES: tuple[Vary, ...] = (as_it_is, rescaled, noisier, plateau, resumed, other_group_size, metric_missing)
RECORDED_SHAPES = (*FAULTY_SHAPES, later_onset)
"""A recorded fault has healthy rows of its own trainer to begin with."""


def healthy(seeds: int) -> Iterator[Subject]:
    """Recorded healthy runs and look-alikes."""
    for recorded in read_runs(RUNS, (HEALTHY, "control_max_turns_12", "control_kl_coef_0.1")):
        if recorded.seed < seeds:
            rows = [without_checks(row) for row in recorded.rows]
            yield Subject(recorded.name, "recorded healthy runs", recorded.run(), rows)
    for path in sorted(CASES.glob("H*.yaml")):
        case = yaml.safe_load(path.read_text())
        for source in logged(path.with_suffix(".jsonl"), case["config"], None):
            yield Subject(source.name, "look-alikes", source.run, list(source.rows))


def faulty(seeds: int) -> Iterator[Subject]:
    """Recorded faults that rows can show, and bug reports."""
    for recorded in read_runs(RUNS):
        fault = recorded.group.fault
        if fault and fault != NOT_VISIBLE and recorded.seed < seeds:
            rows = [without_checks(row) for row in recorded.rows]
            yield Subject(recorded.name, "recorded faults", recorded.run(), rows, frozenset({fault}))
    for path in sorted(CASES.glob("B*.yaml")):
        case = yaml.safe_load(path.read_text())
        accepted = frozenset({case["expected"]["fault"], *case["expected"].get("accept", ())})
        for source in logged(path.with_suffix(".jsonl"), case["config"], None):
            yield Subject(source.name, "bug reports", source.run, list(source.rows), accepted)


def real_logs(folder: Path) -> Iterator[Subject]:
    """Healthy and flat logs of other people's runs."""
    for path in sorted(path for path in folder.iterdir() if path.suffix in {".json", ".jsonl", ".csv", ".log"}):
        if path.name[:2] not in DISPUTED and path.name[:2] not in READINGS:
            for source in logged(path, {}, None):
                yield Subject(source.name, "healthy and flat logs", source.run, list(source.rows))


def shapes_of(group: str) -> tuple[Vary, ...]:
    """The variations that a group goes through."""
    return {"recorded faults": RECORDED_SHAPES, "bug reports": FAULTY_SHAPES}.get(group, HEALTHY_SHAPES)


@dataclass(frozen=True, slots=True)
class Judged:
    """What was said of one variation of one run: alerts from `warning` up, and who was among the first two suspects."""

    subject: Subject
    shape: str
    rows: int
    loud: tuple[str, ...]
    named: frozenset[str]

    @property
    def right(self) -> bool:
        """Whether a healthy run stayed silent, or a fault was named."""
        return bool(self.named & self.subject.accepted) if self.subject.accepted else not self.loud


def judge(subject: Subject, vary: Vary, bench: Bench) -> Judged:
    """Vary and replay; chance is that of run and variation, the same every time."""
    rows, run = vary(subject.rows, subject.run, random.Random(f"{subject.name}/{vary.__name__}"))
    heard = Listener()
    watched = WatchedRun(run, bench.pack, (heard,))
    for row in rows:
        watched.emit(row)
    loud = tuple(f"{alert.rule} at row {row}" for row, alert in heard.loud)
    named = frozenset(suspect.fault for _, incident in heard.incidents for suspect in incident.suspects[:2])
    return Judged(subject, vary.__name__, len(rows), loud, named)


def table(judged: Sequence[Judged]) -> dict[str, dict[str, dict[str, int]]]:
    """group -> variation -> runs, how many were right, rows, alerts at `warning` or above."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for one in judged:
        cell = found.setdefault(one.subject.group, {}).setdefault(
            one.shape, {"runs": 0, "right": 0, "rows": 0, "alerts": 0}
        )
        cell["runs"] += 1
        cell["right"] += one.right
        cell["rows"] += one.rows
        cell["alerts"] += len(one.loud)
    return found


def rules_hash() -> str:
    """The hash of the pack that the rates speak of."""
    return hashlib.sha256(PACK.read_bytes()).hexdigest()


def main() -> None:
    """Judge everything and write what came of it."""
    parser = argparse.ArgumentParser(description="Vary healthy runs and faults; write the rates for docs/detection.md.")
    parser.add_argument("-v", "--verbose", action="store_true", help="name what went wrong")
    parser.add_argument("--seeds", type=int, default=6, help="healthy seeds; a fifth of them of each fault")
    parser.add_argument("--only", default="", help="only groups whose name holds this")
    options = parser.parse_args()
    bench, shared, judged = Bench(), os.environ.get("RLTRIAGE_CASES"), []
    subjects = [*healthy(options.seeds), *faulty(max(1, options.seeds // 5))]
    subjects += real_logs(Path(shared) / "real-logs") if shared else []
    for subject in subjects:
        if options.only in subject.group:
            for vary in shapes_of(subject.group):
                judged.append(judge(subject, vary, bench))
                if options.verbose and not judged[-1].right:
                    print(
                        subject.name, vary.__name__, "; ".join(judged[-1].loud[:4]), *sorted(judged[-1].named), flush=True
                    )
    found: Mapping[str, Any] = table(judged)
    for group, shapes in found.items():
        for shape, cell in shapes.items():
            print(f"{group:<24}{shape:<20}{cell['right']:>4} of {cell['runs']:<4} {cell['alerts']} alerts")
    before = json.loads(FILE.read_text())
    groups = {**before["groups"], **found}  # groups that were not judged now keep their rates
    rules = before["rules"] if options.only else rules_hash()
    write_atomically(FILE, json.dumps({"rules": rules, "groups": groups}, indent=1) + "\n")


if __name__ == "__main__":
    main()
