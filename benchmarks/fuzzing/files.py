"""Packs, their tests, profiles, configurations, references and silences: what people write, or hand to others."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import yaml

from fuzzing.bounds import Target
from fuzzing.seeds import ROOT, as_json, pack, read_yaml, sample
from rltriage.engine.intake import Intake
from rltriage.engine.reference import read_reference
from rltriage.engine.rows import Record, Row, Run
from rltriage.engine.ruletests import run_rule_tests
from rltriage.exporters.delivery.silences import Silence, Silences
from rltriage.rules.config import parse_config
from rltriage.rules.errors import RltriageError
from rltriage.rules.explain import describe_rule
from rltriage.rules.loader import check_rules, dump_pack, load_rules
from rltriage.rules.profiles import load_profile
from rltriage.watching import WatchedRun


def rules(folder: Path) -> Target:
    """A pack beside another one that it may extend: checked, and if it loads, dumped, explained and run over rows."""
    every = read_yaml("docs/examples/every_kind.yaml")
    shipped = read_yaml("rules/packs/triage.yaml")
    (folder / "base.yaml").write_text(json.dumps({**every, "rules": every["rules"][:5]}), encoding="utf-8")
    base, file = every["rules"][0], folder / "pack.yaml"
    seeds = [as_json({**every, "rules": [rule]}) for rule in every["rules"]]
    seeds += [as_json({"version": 1, "rules": [rule]}) for rule in shipped["rules"]]
    seeds += [
        as_json(
            {
                "version": 1,
                "extends": ["base.yaml"],
                "override": {base["id"]: {"for": 2, "when": base["when"]}},
                "disable": [every["rules"][1]["id"]],
            }
        ),
        b'version: 1\nx-a: &a {reward: 1}\nrules:\n  - &r\n    id: a\n    summary: "{reward:.3g} {step} {config.lr}"\n'
        b"    group: outcome\n    severity: info\n    when: {threshold: {metric: reward, above: 1e-2}}\n    suspects: {}\n"
        b"    first_test: run_invariants\n",
    ]

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        problems = check_rules([file])
        assert all(str(problem) and problem.mark.line >= 1 and problem.mark.column >= 1 for problem in problems)
        if any(problem.level == "error" for problem in problems):
            return
        pack = load_rules(file)
        dump_pack(pack)
        for rule in pack.rules[:3]:
            describe_rule(rule, pack.catalogue)
        watched = WatchedRun(Run("run"), pack, ())
        for row in sample(8):
            watched.emit(Row(row.pop("step"), {**row, "reward": float("nan") if len(row) % 2 else 1e308}))
        assert not watched.monitor.failed_rules, watched.monitor.failed_rules

    return Target(seeds, judge)


def ruletests(folder: Path) -> Target:
    """A file of rule tests, run."""
    tests = read_yaml("docs/examples/every_kind.tests.yaml")["tests"]
    pack = load_rules(ROOT / "docs/examples/every_kind.yaml")
    file = folder / "pack.tests.yaml"

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(RltriageError):
            assert all(result.passed or result.message for result in run_rule_tests(file, pack, pack.catalogue))

    return Target([as_json({"version": 1, "tests": [test]}) for test in tests], judge)


def profile(folder: Path) -> Target:
    """A profile of the user's own: loaded, and used."""
    file = folder / "mine.yaml"

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(RltriageError):
            load_profile(file)
            intake = Intake("run", str(file), {"beta": 0.1, "learning_rate": 1e-6, "algorithm": "ppo"})
            for row in sample(3):
                intake.rows(Record({**row, "rewards/mean": 1.0, "loss": "0.1", "kl": None}))

    return Target(
        [as_json(read_yaml(f"rules/profiles/{path.name}")) for path in (ROOT / "rules/profiles").glob("*.yaml")], judge
    )


CONFIG = {
    "version": 1,
    "sources": [
        {
            "path": "logs/*.jsonl",
            "profile": "trl",
            "labels": {"team": "core"},
            "config": {"kl_coef": 0.1},
            "reference": ["healthy.json"],
        },
        {"metrics": "http://host:9000/metrics"},
        {"prometheus": {"env": "URL"}, "query": "up"},
    ],
    "rules": {"packs": ["triage"], "extra": ["mine.yaml"]},
    "listen": "127.0.0.1:9464",
    "quiet_rules": True,
    "web": {
        "tls": {"cert_file": "a.pem", "key_file": "b.pem"},
        "basic_auth": {"prom": {"env": "P"}},
        "token": {"file": "t"},
    },
    "receivers": [
        {
            "name": "a",
            "webhook": "https://host/x",
            "body": {"text": "$text $run"},
            "headers": {"X-A": {"env": "A"}},
            "min_severity": "warning",
            "match": {"run": ["a*"], "team": "core"},
            "group_window": "60s",
            "page": True,
        },
        {"name": "b", "alertmanager": ["http://host:9093"], "basic_auth": {"username": "u", "password": {"env": "P"}}},
    ],
    "state_dir": "state",
    "retention": "3d",
    "external_url": "https://host",
    "runbook_url": "https://host/$fault",
}


def config(folder: Path) -> Target:
    """A `rltriage.yaml`."""

    def judge(data: bytes) -> None:
        with contextlib.suppress(RltriageError):
            parse_config(data.decode("utf-8", "surrogateescape"), "rltriage.yaml", folder)

    return Target(
        [
            as_json(CONFIG),
            *(as_json({"version": 1, key: value}) for key, value in CONFIG.items()),
            yaml.safe_dump(CONFIG).encode(),
        ],
        judge,
    )


def reference(folder: Path) -> Target:
    """A file of a healthy reference: read, and asked."""
    file = folder / "healthy.json"
    shipped = json.loads(next((ROOT / "rules/references").glob("*.json")).read_text(encoding="utf-8"))
    metrics = dict(list(shipped["metrics"].items())[:2])
    few = {name: {part: values[:3] for part, values in columns.items()} for name, columns in metrics.items()}
    seed = {**shipped, "phases": shipped["phases"][:3], "metrics": few}

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(RltriageError):
            read = read_reference(file)
            watched = WatchedRun(Run("run"), pack(), (), [read])
            for row in sample(2):
                watched.emit(Row(row.pop("step"), row))
            assert not watched.monitor.failed_rules

    return Target([as_json(seed)], judge)


def silences(folder: Path) -> Target:
    """The file of a service's silences: read by the service, and changed by the command."""
    some = [
        {"run": "a*", "rule": "*", "created": 1.0, "until": 9e9, "why": "known"},
        {"run": "b", "rule": "c", "created": 1.0},
    ]
    file = folder / "silences.json"

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        for silence in Silences(folder).active(2.0):
            silence.covers("a" * 300, "b")
        with contextlib.suppress(RltriageError):
            Silences(folder).add(Silence("x", "y", 1.0), 2.0)

    return Target([as_json({"version": 1, "silences": some})], judge)
