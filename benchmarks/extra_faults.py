"""What sees each of the extra faults: `make extra`, or `python benchmarks/extra_faults.py [--seeds 0-1]`.

Trains every fault beyond the chapter's ten for 24 steps a seed, with the results of all checks in row 0, stores the rows in
`tests/data/extra_runs` and writes the table of docs/probes.md. The table alone is written by `make docs`, from the stored
rows and the rules as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rltriage.detection import Verdict, judge_run
from rltriage.engine.rows import Row
from rltriage.engine.rundir import write_atomically
from rltriage.recorded import STEPS, Group, RecordedRun, read_manifest, read_runs, write_runs
from rltriage.rules.loader import load_rules
from rltriage.trainer.checks import ALL_CHECKS
from rltriage.trainer.faults import FURTHER_FAULTS

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "tests" / "data" / "extra_runs"
SHOWN = 4  # rules named in a cell


def made(group: Group, seed: int, cache: Path) -> RecordedRun:
    """One run, from the cache where these sources have made it already."""
    from rltriage.trainer.loop import train

    file = cache / f"{group.name}-s{seed}.json"
    if not file.exists():
        rows = train(group.config, fault=group.fault, steps=STEPS, seed=seed, checks=False)
        write_atomically(file, json.dumps([(row.step, dict(row.metrics)) for row in rows]))
        print(file.stem, file=sys.stderr, flush=True)
    return RecordedRun(group, seed, tuple(Row(step, metrics) for step, metrics in json.loads(file.read_text())))


def checked(runs: Sequence[RecordedRun]) -> Iterator[RecordedRun]:
    """The runs of one group with what the checks found, which look at the base policy and do not depend on the seed."""
    from rltriage.trainer.checks import run_all_checks
    from rltriage.trainer.invariants import as_metrics
    from rltriage.trainer.probes.reference import full_reference_probe

    found = as_metrics(run_all_checks(full_reference_probe(runs[0].group.fault)))
    for run in runs:
        first, *rest = run.rows
        yield RecordedRun(run.group, run.seed, (Row(first.step, {**first.metrics, **found}), *rest))


def section(folder: Path = RUNS) -> str:
    """The table as Markdown, from the stored runs and the shipped rules."""
    pack, manifest, runs = load_rules("triage"), read_manifest(folder), read_runs(folder)
    lines = []
    for fault in FURTHER_FAULTS:
        mine = [run for run in runs if run.group.fault == fault.id]
        bare, full = ([judge_run(run, pack, checks=on) for run in mine] for on in (False, True))
        lines.append(
            f"| `{fault.id}` | {failing(mine[0])} | {rules(bare)} | {first_suspects(bare)} | {first_suspects(full)} |"
        )
    seeds = ", ".join(map(str, next(iter(manifest["groups"].values()))["seeds"]))
    return "\n".join(
        (
            "| fault | checks that fail (value) | rules without checks (row, by seed) | first suspect | with checks |",
            "| - | - | - | - | - |",
            *lines,
            "",
            f"{STEPS} steps at seeds {seeds}, made {manifest['made']} by `{manifest['command']}` on {manifest['machine']}; "
            f"trainer sources `{manifest['sources']}`. Checks at the seed of `rltriage check`.",
        )
    )


def failing(run: RecordedRun) -> str:
    """Numbers and values of the checks that fail."""
    row = run.rows[0].metrics
    failed = [check for check in ALL_CHECKS if row.get(f"check_{check.id}") == 0]
    return ", ".join(f"{check.number} ({row[f'check_{check.id}_value']:.2g})" for check in failed) or "none"


def rules(verdicts: Sequence[Verdict]) -> str:
    """Rules at `warning` or above in order of their first row, with the row of each seed."""
    rows: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        for entry in verdict.loud:
            rule, _, row = entry.partition(" at row ")
            rows.setdefault(rule, {}).setdefault(verdict.run, row)
    cells = [f"`{rule}` ({', '.join(at.get(v.run, '-') for v in verdicts)})" for rule, at in rows.items()]
    rest = [f"{len(cells) - SHOWN} more"] if len(cells) > SHOWN else []
    return ", ".join([*cells[:SHOWN], *rest]) or "none"


def first_suspects(verdicts: Sequence[Verdict]) -> str:
    """Whom the last incident names first; one name where the seeds agree, `-` where there was no incident."""
    named = [verdict.suspects[0] if verdict.suspects else "-" for verdict in verdicts]
    return ", ".join(dict.fromkeys(f"`{name}`" if name != "-" else name for name in named))


def main() -> None:
    """Make the runs and the table."""
    import torch

    from rltriage.trainer.chapter import parse_seeds, sources_hash

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-1"))
    parser.add_argument("--out", type=Path, default=RUNS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cache = ROOT / ".cache" / "extra-runs" / sources_hash()
    cache.mkdir(parents=True, exist_ok=True)
    groups = [Group(fault.id, fault.id, options.seeds) for fault in FURTHER_FAULTS]
    runs = [run for group in groups for run in checked([made(group, seed, cache) for seed in group.seeds])]
    write_runs(options.out, runs, sources=sources_hash(), command="make extra")
    print(f"wrote {len(runs)} runs to {options.out}; now `make docs`")


if __name__ == "__main__":
    main()
