"""Valid input that hostile input is made of."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack

ROOT = Path(__file__).parents[2]


@cache
def pack() -> RulePack:
    return load_rules("triage")


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def as_json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def sample(count: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "reward": 0.1 * (step % 5),
            "entropy": 0.5 - 0.02 * step,
            "kl_ref": 0.0,
            "grad_norm": 0.2,
            "lr": 1e-6,
            "approx_kl": 0.01,
            "clip_frac": 0.0,
            "length": 90.0 + step,
            "truncated_frac": 0.1,
            "logp_gap": 0.02,
        }
        for step in range(count)
    ]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(as_json(row) + b"\n" for row in rows)
