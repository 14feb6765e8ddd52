"""Rerun the chapter: `python -m rltriage.trainer.chapter [--seeds 0-4] [--processes 2] [--out docs]`.

Repeats every run of sections 18.2 to 18.8 with our trainer and writes `chapter.md` (a table of the chapter's numbers beside
ours, the check matrix, the measurement on rare tokens, the three reruns) and the three figures. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median

from rltriage.trainer.chapter_data import RUNS
from rltriage.trainer.parallel import run_jobs

Metrics = Mapping[str, float]
History = Sequence[Metrics]  # one run's rows
SOURCES = (
    *("config", "faults", "gym", "metrics", "policy", "sampling", "losses"),
    *("loop", "plain", "invariants", "probe"),
)


def sources_hash() -> str:
    """A hash of the code and the base policy that the results depend on, so that a test can tell a stale `docs/chapter.md`.

    Docstrings, comment lines and blank lines are left out: an edited comment is no reason for a rerun.
    """
    folder = Path(__file__).parent
    digest = hashlib.sha256((folder / "base.safetensors").read_bytes())
    for name in SOURCES:
        digest.update(f"{name}\n{code_lines((folder / f'{name}.py').read_text())}\n".encode())
    return digest.hexdigest()[:16]


def code_lines(source: str) -> str:
    """The lines of a module without docstrings, comment lines and blank lines."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return "\n".join(line for n, line in lines if n not in texts and line.strip() and not line.strip().startswith("#"))


def ends(rows: History, key: str) -> tuple[float, float]:
    """Mean of a metric over the first four rows and over the last four; NaN where it never occurs."""
    parts = ([row[key] for row in part if key in row] for part in (rows[:4], rows[-4:]))
    first, last = (fmean(part) if part else float("nan") for part in parts)
    return first, last


@dataclass(frozen=True, slots=True)
class Rare:
    """Tokens that the update should reinforce, rare or common under the sampler, and what the clip does to them."""

    tokens: int
    mean_ratio: float
    clipped: float


def rare_tokens(sampler_temperature: float, seeds: Iterable[int]) -> tuple[Rare, Rare]:
    """Section 18.3: pi / mu on positive-advantage tokens of batches sampled too cold, before any update.

    Rare tokens had a sampler probability below .5; clipped ones start above 1.2. Pooled over `seeds`.
    """
    import torch

    from rltriage.trainer.gym import make_tasks
    from rltriage.trainer.loop import prepare, trainer_logps
    from rltriage.trainer.policy import load_base
    from rltriage.trainer.probe import CHECKED
    from rltriage.trainer.sampling import sample_groups

    policy, ratios, rare = load_base(), [], []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        tasks = make_tasks("train")[: CHECKED.tasks_per_step]
        batch = sample_groups(policy, tasks, replace(CHECKED, temperature=sampler_temperature), generator)
        positive = (prepare(policy, batch, CHECKED).advantages > 0)[:, None] & (batch.mask > 0)
        ratios.append((trainer_logps(policy, batch.ids, CHECKED) - batch.sample_logp).exp()[positive])
        rare.append(batch.sample_logp.exp()[positive] < 0.5)
    ratio, is_rare = torch.cat(ratios), torch.cat(rare)
    picked = (ratio[is_rare], ratio[~is_rare])
    first, second = (Rare(len(r), r.mean().item(), (r > 1.2).float().mean().item()) for r in picked)
    return first, second


@dataclass(frozen=True, slots=True)
class Reruns:
    """Section 18.8: how far three kinds of rerun move the first six steps."""

    identical: bool
    rewards_equal_noise: int
    grad_norm_noise: float
    rewards_equal_seed: int
    grad_norm_seed: float


def reruns(steps: int = 6) -> Reruns:
    """Same seed, weights times (1 + 1e-5 noise), another seed: each compared with seed 0."""
    import torch

    from rltriage.trainer.loop import train
    from rltriage.trainer.policy import Policy, load_base

    def metrics(seed: int = 0, policy: Policy | None = None, evaluate: bool = False) -> list[Metrics]:
        tasks = None if evaluate else ()
        return [row.metrics for row in train(steps=steps, seed=seed, policy=policy, checks=False, eval_tasks=tasks)]

    nudged = load_base()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in nudged.parameters():
            p.mul_(1 + 1e-5 * torch.randn(p.shape, generator=generator))
    first, again, noisy, other = metrics(evaluate=True), metrics(), metrics(policy=nudged), metrics(seed=1)

    def compared(rows: list[Metrics]) -> tuple[int, float]:
        pairs = list(zip(first, rows, strict=True))
        return sum(a["reward"] == b["reward"] for a, b in pairs), max(
            abs(a["grad_norm"] - b["grad_norm"]) for a, b in pairs
        )

    same = all(a[key] == b[key] for a, b in zip(first, again, strict=True) for key in ("reward", "length", "grad_norm"))
    return Reruns(same, *compared(noisy), *compared(other))


def equals_plain(steps: int = 5) -> bool:
    """Section 18.2: parameters and shared statistics of the instrumented and the plain trainer are the same bits."""
    import torch

    from rltriage.trainer.config import TrainConfig
    from rltriage.trainer.loop import train
    from rltriage.trainer.plain import train_plain
    from rltriage.trainer.policy import load_base

    plain = load_base()
    logged = copy.deepcopy(plain)
    expected = train_plain(plain, TrainConfig(), steps=steps)
    rows = train(steps=steps, policy=logged, checks=False)
    parameters = zip(plain.parameters(), logged.parameters(), strict=True)
    return all(torch.equal(p, q) for p, q in parameters) and all(
        row.metrics[key] == stats[key] for row, stats in zip(rows, expected, strict=True) for key in stats
    )


def run_all(
    seeds: Sequence[int], processes: int, tell: Callable[[str], None], cache: Path | None = None
) -> dict[str, list[History]]:
    """Every run of `RUNS` with every seed, in parallel; histories by run, in order of the seeds.

    Finished runs are kept in `cache` as long as the sources stay the same, so that an interrupted rerun goes on.
    """
    names = {f"{run.name}, seed {seed}": replace(run.job, seed=seed, checks=False) for seed in seeds for run in RUNS}
    done = cached(cache)
    todo = [name for name in names if name not in done]
    rows: dict[str, list[Metrics]] = {name: [] for name in todo}
    for index, row in run_jobs([names[name] for name in todo], processes):
        name = todo[index]
        if row is not None:
            rows[name].append(row.metrics)
            continue
        done[name] = rows[name]
        tell(f"{len(names.keys() & done.keys())}/{len(names)} runs: {name}")
        if cache is not None:
            write(cache, json.dumps({"sources": sources_hash(), "runs": done}))
    return {run.name: [done[f"{run.name}, seed {seed}"] for seed in seeds] for run in RUNS}


def cached(cache: Path | None) -> dict[str, History]:
    """The finished runs of these sources."""
    stored = json.loads(cache.read_text()) if cache is not None and cache.exists() else {}
    runs: dict[str, History] = stored["runs"] if stored.get("sources") == sources_hash() else {}
    return runs


def write(file: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, file)


def matrix() -> dict[str, list[tuple[float | None, bool | None]]]:
    """Value and verdict of the eleven checks for the healthy trainer and every code fault of the chapter."""
    from rltriage.trainer.chapter_data import MATRIX
    from rltriage.trainer.invariants import run_checks
    from rltriage.trainer.probe import reference_probe

    found = {}
    for name in MATRIX:
        results = run_checks(reference_probe(None if name == "healthy" else name))
        found[name] = [(r.value, r.passed) for r in results]
    return found


def summary(histories: Sequence[History], pick: Callable[[History], float]) -> tuple[float, float, float]:
    """Mean, minimum and maximum over seeds."""
    values = [pick(rows) for rows in histories]
    return fmean(values), min(values), max(values)


def quantiles(rows: History, key: str) -> tuple[float, float, float, float, float]:
    """Step 0, last, minimum, median and maximum of a metric over a run."""
    values = [row[key] for row in rows if key in row]
    return values[0], values[-1], min(values), median(values), max(values)


def parse_seeds(text: str) -> list[int]:
    """`0-4` or `1,3` to a list."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(part) for part in text.split(",")]


def publish(
    runs: Mapping[str, Sequence[History]],
    seeds: Sequence[int],
    out: Path,
    tell: Callable[[str], None],
    command: str,
    origin: str = "",
) -> Path:
    """Measure what is no run (checks, reruns, rare tokens), write `chapter.md` and the figures into `out`.

    `command` and `origin`, a sentence on where the runs are from, go into the page's head; why some of it differs is told
    where `out` holds that measurement.
    """
    from rltriage.trainer import chapter_gaps
    from rltriage.trainer.chapter_figures import draw_all
    from rltriage.trainer.chapter_page import Results, page

    tell("checks, reruns, rare tokens")
    results = Results(
        runs=runs,
        seeds=seeds,
        matrix=matrix(),
        reruns=reruns(),
        rare={seeds: rare_tokens(0.7, seeds) for seeds in ((1,), tuple(range(1, 21)))},
        equals_plain=equals_plain(),
        sources=sources_hash(),
        command=command,
        origin=origin,
        gaps=chapter_gaps.read(out),
    )
    tell(json.dumps(asdict(results.reruns)))
    (out / "images").mkdir(parents=True, exist_ok=True)
    draw_all(results, out / "images")
    write(out / "chapter.md", page(results))
    return out / "chapter.md"


def trained_anew(total: int, kept: int, processes: int, seconds: float) -> str:
    """Where the runs of a rerun are from, for the page's head; `kept` of them from an interrupted one."""
    last = f"the last {total - kept} of them" if kept else "all of them"
    return (
        f"The page was rebuilt from scratch: its {total} runs were trained anew from these sources, {last} in "
        f"{seconds / 60:.1f} minutes with {processes} process{'es' * (processes > 1)}."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything and write the page and its figures."""
    parser = argparse.ArgumentParser(description="Rerun the chapter's experiments and write docs/chapter.md.")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-4"), help="0-4 or 0,3 (default 0-4)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--cache", type=Path, default=Path(".cache/chapter.json"), help="where finished runs are kept")
    options = parser.parse_args(arguments)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    import torch

    torch.set_num_threads(1)
    kept, began = len(cached(options.cache)), time.perf_counter()
    runs = run_all(options.seeds, options.processes, tell, options.cache)
    seeds = ",".join(map(str, options.seeds))
    origin = trained_anew(sum(map(len, runs.values())), kept, options.processes, time.perf_counter() - began)
    file = publish(runs, options.seeds, options.out, tell, f"python -m rltriage.trainer.chapter --seeds {seeds}", origin)
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
