"""The rollout half of a metric row: what the episodes of a step say. Canonical names, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rltriage.trainer.gym import Episode


def rollout_metrics(episodes: Sequence[Episode], rewards: Sequence[float], group_size: int) -> dict[str, float]:
    """Metrics of a step's episodes, `rewards` being what the trainer was paid (one per episode, group by group).

    Counts (`turns`, `reads`, `tests`, `edits`, `malformed`) are means per episode, so malformed can exceed 1;
    `hardcode` and `submitted` are shares of episodes; lengths count policy tokens. `length_pass` and `length_fail` are
    absent where no episode passed, or none failed. An episode that never submits ends on its turn budget, so a
    truncation share would only repeat `submitted` and is not logged.
    """
    passed = [e.hidden_pass for e in episodes]
    lengths = [e.length for e in episodes]
    groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
    mean = fmean(rewards)
    row = {
        "reward": mean,
        "reward_std": fmean((r - mean) ** 2 for r in rewards) ** 0.5,
        "pass_rate": fmean(passed),
        "zero_adv_frac": fmean(max(g) == min(g) for g in groups),
        "all_pass_frac": fmean(min(g) >= 1 for g in groups),
        "all_fail_frac": fmean(max(g) <= 0 for g in groups),
        "length": fmean(lengths),
        "length_min": float(min(lengths)),
        "length_max": float(max(lengths)),
        "turns": fmean(e.turns for e in episodes),
        "reads": fmean(e.operations.count("read") for e in episodes),
        "tests": fmean(e.operations.count("test") for e in episodes),
        "edits": fmean(e.operations.count("edit") for e in episodes),
        "malformed": fmean(e.malformed for e in episodes),
        "hardcode": fmean(e.hardcoded for e in episodes),
        "submitted": fmean(e.submitted for e in episodes),
        "n_episodes": float(len(episodes)),
        "n_groups": float(len(groups)),
    }
    for name, wanted in (("length_pass", True), ("length_fail", False)):
        picked = [length for length, ok in zip(lengths, passed, strict=True) if ok == wanted]
        if picked:
            row[name] = fmean(picked)
    return row
