"""Write `docs/detection.md` and its picture from the recorded runs: `make bench`, or `python benchmarks/detection.py`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import CASES, Bench, judge_cases

from rltriage.detection import COLUMNS, NOT_VISIBLE, Table, cells, measure, shortfalls
from rltriage.detection_picture import draw
from rltriage.engine.rundir import write_atomically
from rltriage.recorded import REFERENCE, STEPS, read_manifest, read_runs
from rltriage.rules.loader import load_rules

ROOT = Path(__file__).parents[1]
VARIATIONS = ROOT / "tests" / "data" / "variations.json"
RUNS, DOCS = ROOT / "tests" / "data" / "runs", ROOT / "docs"


FAULTY_GROUPS = ("recorded faults", "bug reports")
"""Groups of `benchmarks/variations.py` that have a fault to be named; the others have to stay silent."""


def tables() -> tuple[Table, Table, Table]:
    """Every recorded run but the reference's, judged with invariants, without, and without config facts either."""
    pack = load_rules("triage")
    runs = [run for run in read_runs(RUNS) if run.group.name != REFERENCE]
    return (
        measure(runs, pack, checks=True),
        measure(runs, pack, checks=False),
        measure(runs, pack, checks=False, declared=False),
    )


def page(on: Table, off: Table, bare: Table, manifest: Mapping[str, Any]) -> str:
    """`docs/detection.md`."""
    return "\n".join(_lines(on, off, bare, manifest)) + "\n"


def _lines(on: Table, off: Table, bare: Table, manifest: Mapping[str, Any]) -> Iterator[str]:
    faulty = [entry for entry in on.lines if entry.fault]
    alarmed, healthy = on.healthy
    yield _INTRO.format(
        faults=len(faulty),
        runs=sum(entry.runs for entry in faulty),
        healthy=healthy,
        first=sum(entry.named_first for entry in faulty),
        alarmed=alarmed,
        steps=STEPS,
    )
    yield "## With invariants\n"
    yield from _table(on)
    yield "\n## Without invariants\n"
    yield _WITHOUT
    yield from _table(off)
    yield "\n![When each run was named](images/detection.svg)\n"
    yield _COLUMNS_MEAN
    yield "## Without config facts either\n"
    yield _BARE
    yield from _table(bare)
    yield ""
    yield from _ranking(on, off)
    yield from _variations(json.loads(VARIATIONS.read_text())["groups"])
    yield _GUARDS.format(**_cases())
    missed = shortfalls(on, off)
    yield _BARS
    yield "\n".join(f"- {sentence}" for sentence in missed) if missed else "Nothing is below them."
    yield _REBUILD.format(**manifest, reference=len(manifest["groups"][REFERENCE]["seeds"]))


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---{'|---:' * (len(COLUMNS) - 1)}|"
    for entry in table.lines:
        yield f"| {' | '.join(cells(entry, checks=table.checks))} |"


def _ranking(on: Table, off: Table) -> Iterator[str]:
    """The ranking beside a plain noisy-or, in both modes."""
    yield _RANKING
    yield "| | runs | ranking | plain noisy-or |"
    yield "|---|---:|---:|---:|"
    for table in (on, off):
        entries = [entry for entry in table.lines if entry.fault and (table.checks or entry.fault != NOT_VISIBLE)]
        words = "with invariants" if table.checks else f"without ({NOT_VISIBLE} left out)"
        runs, first = sum(entry.runs for entry in entries), sum(entry.named_first for entry in entries)
        yield f"| {words} | {runs} | {first} | {sum(entry.noisy_or for entry in entries)} |"
    worst = [
        f"{entry.fault} ({entry.noisy_or} of {entry.runs})"
        for entry in off.lines
        if entry.fault and entry.fault != NOT_VISIBLE and entry.noisy_or < entry.named_first
    ]
    yield f"\nWithout invariants the noisy-or loses {', '.join(worst)}.\n" if worst else ""
    yield _EVIDENCE


def _variations(found: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    """Healthy groups and faults, a table each: variations as lines, groups as columns."""
    yield _SHAPES
    for words, faulty in (("silent", False), ("named", True)):
        groups = {name: shapes for name, shapes in found.items() if (name in FAULTY_GROUPS) is faulty}
        yield f"| {words} | {' | '.join(groups)} |"
        yield f"|---{'|---:' * len(groups)}|"
        for shape in dict.fromkeys(shape for shapes in groups.values() for shape in shapes):
            cells = (shapes.get(shape) for shapes in groups.values())
            told = (f"{cell['right']} of {cell['runs']}" if cell else "-" for cell in cells)
            yield f"| {shape.replace('_', ' ')} | {' | '.join(told)} |"
        totals = [Counter[str]() for _ in groups]
        for total, shapes in zip(totals, groups.values(), strict=True):
            for cell in shapes.values():
                total.update(cell)
        yield "| all | " + " | ".join(f"{one['right']} of {one['runs']}" for one in totals) + " |"
        if not faulty:
            rates = (f"{1000 * one['alerts'] / one['rows']:.2f}" for one in totals)
            yield f"| alerts per 1,000 rows | {' | '.join(rates)} |"
        yield ""


def _cases() -> dict[str, int]:
    judged = judge_cases(CASES, Bench())
    faults = [entry for entry in judged if entry.expected != "silent"]
    silent = [entry for entry in judged if entry.expected == "silent"]
    return {
        "cases": len(faults),
        "cases_right": sum(entry.right for entry in faults),
        "alike": len(silent),
        "alike_right": sum(entry.right for entry in silent),
    }


_INTRO = """# How well faults are named

Runs of the reference trainer with a known fault, and healthy ones, replayed as if they were live. {runs} runs have
one of the chapter's {faults} faults switched on, {healthy} are healthy; each has {steps} steps. With the invariants run at
step 0 the right fault is the first suspect in {first} of {runs} runs; {alarmed} of {healthy} healthy runs raise an alert at
warning or above. This page is generated from recorded rows (`tests/data/runs`) and a test fails when it is stale.
"""

_WITHOUT = """The same rows without their `check_*` metrics: what the log of somebody else's trainer offers. One
fault leaves no trace in any metric of a run, accumulated microbatches with the wrong normalization, and none is
invented for it.
"""

_BARE = """Rules ask what a run was told: a `clip_frac` of exactly 0 is a fault only with more than one update a batch, a
`kl_ref` of 0 only with a KL term. Where nobody says (`--config`, a `run.json`, a hook), such a rule is a note that asks
the one question that decides, and no alarm: faults 2, 4 and 10 are then mostly left to the reader, and healthy runs stay
silent.
"""

_COLUMNS_MEAN = """*named first*: the right fault is the first suspect of the run's last incident. *at once*: it was
so in the very first incident. *in top 3*: among the last incident's first three suspects. *first alert* and *named
from row*: medians over the runs of the row of the first alert at warning or above, and of the row from which on the
right fault was the first suspect to the end; rows count from 0. *alarmed*: runs with an alert at warning or above,
explained ones included. The two controls are healthy runs with a longer turn budget and with a KL term, which two of
the faults need.
"""

_RANKING = """## The ranking, and a plainer one

The first suspect is found by a sum of log-likelihood ratios, one per cluster of metrics that move together, in which
an alert that another one explains speaks for no rival (`engine/triage/rank.py`). A plain noisy-or, `1 - product(1 -
weight)` over all open alerts at the end of each run, names the right fault in:
"""

_EVIDENCE = """Rule weights measured on these runs (how often a rule fires with a fault and without) are not used:
the ranking has nothing left to gain here, and weights fitted to one toy trainer would be wrong elsewhere.
"""

_SHAPES = """## In other shapes

The same material as a setup, a scale or chance could have changed it (`benchmarks/variations.py` says how): healthy runs
must raise nothing at warning or above, and of a fault without results of invariants the right one must be among the first
two suspects of some incident. The logs are those of other people's healthy and flat runs and not part of the repository.
What still goes wrong, and cannot be mended with the rows alone:

- a harder set of tasks in mid-run, with which rewards drop by a third and answers grow by 40 % in one row, is a length bias
  or a crashed verifier to any rule that sees those: nothing in a row says that the tasks are others;
- a first third of the rows out of order (slow start) is no course of a real run, and some rules read it as one;
- a metric that is the only witness: each of the six reports that are lost has one (the gradient's norm, the explained
  variance, the truncated share, the sampler's gap, the held-out score, the entropy), and without it nothing else moves;
- a sign error that begins in mid-run (5), whose sign is the course from the first row on. Where it shows in turns and
  submissions it is named all the same; where it does not, the alert is a late one about flat groups.
"""

_GUARDS = """## Guards against tuning

- The rules are also judged on rows rebuilt from public bug reports (`tests/data/cases`): {cases_right} of {cases} faults
  are among the first two suspects by their deadline, {alike_right} of {alike} look-alikes stay silent.
- Rows of all cases with metric names permuted to unknown ones raise nothing, and each fault case cut to its own healthy
  head is silent (`tests/test_cases.py`).
- A threshold says in its rule's `why` where it was measured, and was chosen by what a fault does, not by a seed: no number
  of any rule lies within 10 % of what decided in one single case or log (`benchmarks/margins.py`, `tests/test_margins.py`).
- The runs behind the shipped healthy reference have seeds of their own: no healthy run is judged by a band it widened.
- Three quarters of the healthy runs and seed 4 of most faults were recorded after the last change of a rule.
- `rltriage bench --live --first-seed 500` judges seeds that nobody has looked at; with `--fault mask_shift --fault
  ref_is_policy --seeds 1 --healthy 1` it trains five runs in a minute or two.
"""

_BARS = """## The bars

With invariants every run names the right fault first, the code faults (1, 2, 3, 5, 8, 9, 10) at row 0. Without them nine of
ten faults are named first in every run, the consistency faults (1, 2, 9, 10) by row 3, and fault 8 raises nothing. No
healthy run raises an alert at warning or above. `rltriage bench` exits with 1 below these bars.
"""

_REBUILD = """
## Rebuild

```sh
make runs    # train all runs again, half an hour on two free cores
make bench   # judge them and write this page
```

Recorded {made} on {machine}, by `{command}`, from trainer
sources `{sources}`; the shipped healthy reference is built from {reference} further healthy seeds. Rows are rounded to
six significant digits, which changes no alert (`make runs` refuses to write rows of which that is not true).
`rltriage bench` prints the same tables; `--live` trains instead of replaying.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and the picture."""
    parser = argparse.ArgumentParser(description="Write docs/detection.md and its picture from the recorded runs.")
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args(arguments)
    on, off, bare = tables()
    (options.out / "images").mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "images" / "detection.svg", draw(on, off))
    write_atomically(options.out / "detection.md", page(on, off, bare, read_manifest(RUNS)))
    print(f"wrote {options.out / 'detection.md'}")


if __name__ == "__main__":
    main()
