"""The table of docs/probes.md, each extra fault with the checks and rules that see it: `python benchmarks/extra_faults.py`.

Checks: `rltriage check --fault ID` at seed 1. Rules: one run of 24 steps at seed 0 without invariants in its rows, so that
the rules see what a foreign log offers; alerts from warning up, in the order in which they fired.
"""

from __future__ import annotations

import argparse

import torch

import rltriage
from rltriage.trainer import TrainConfig, config_facts, faulty_config, train
from rltriage.trainer.checks import run_all_checks
from rltriage.trainer.faults import FURTHER_FAULTS
from rltriage.trainer.probes.reference import full_reference_probe

STEPS = 24


def failing_checks(fault: str) -> str:
    """Numbers of the checks that fail, with their values."""
    failed = [r for r in run_all_checks(full_reference_probe(fault)) if r.passed is False]
    return ", ".join(f"{r.number} ({r.value:.2g})" for r in failed) or "none"


def firing_rules(fault: str) -> tuple[str, str]:
    """Rules that fired at `warning` or above with the step, and the first suspect of the first alert."""
    fired: list[rltriage.Alert] = []

    def remember(alert: rltriage.Alert) -> None:
        if alert.state == "firing" and alert.severity != "info":
            fired.append(alert)

    config = TrainConfig()
    facts = config_facts(faulty_config(config, fault), steps=STEPS)
    with rltriage.watch(config=facts, directory=None, on_alert=remember, quiet=True) as run:
        train(
            config, fault=fault, steps=STEPS, checks=False, eval_tasks=(), emit=lambda row: run.log(row.step, row.metrics)
        )
    first: dict[str, int] = {}
    for alert in fired:
        first.setdefault(alert.rule, alert.step)
    rules = ", ".join(f"`{rule}` ({step})" for rule, step in first.items())
    return rules or "none", fired[0].suspects[0].fault if fired and fired[0].suspects else "-"


def main() -> None:
    """Print the table's rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="ID", help="default: every extra fault")
    torch.set_num_threads(1)
    print("| fault | checks that fail (value) | rules that fire (step) | first suspect |\n| - | - | - | - |")
    for fault in parser.parse_args().faults or [fault.id for fault in FURTHER_FAULTS]:
        rules, suspect = firing_rules(fault)
        print(f"| `{fault}` | {failing_checks(fault)} | {rules} | {suspect} |", flush=True)


if __name__ == "__main__":
    main()
