"""The recipes of CONTRIBUTING.md, followed in a copy of what is shipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("rules", "engine", "exporters", "trainer")
TESTS = """version: 1
tests:
  - {name: stuck, rule: length-stuck, series: {length: "7 8 5x4"}, expect: [{step: 5, fault: truncation_cap}]}
  - {name: moves, rule: length-stuck, series: {length: "5x3 6 5x3"}, silent: true}
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package as it is installed, to be changed at will."""
    ignore = shutil.ignore_patterns("__pycache__", "*.safetensors")
    shutil.copytree(ROOT / "rltriage", tmp_path / "rltriage", ignore=ignore)
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, tmp_path / "rltriage" / layer, ignore=ignore)
    return tmp_path


def rltriage(copy: Path, *arguments: str) -> str:
    """What a command of the copy prints."""
    result = subprocess.run(
        [sys.executable, "-c", "from rltriage.cli import main; main()", *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_kind_is_one_file(copy: Path, read_blocks: Any) -> None:
    """With `stuck.py` in the folder, schema and packs know the kind, and its rule fires and stays silent."""
    blocks = read_blocks(ROOT / "CONTRIBUTING.md")
    (kind,) = (block for block in blocks if block.file == "stuck.py")
    (rules,) = (block.text for block in blocks if "stuck: {metric: length, rows: 4}" in block.text)
    (copy / "rltriage" / "rules" / "conditions" / "stuck.py").write_text(kind.text)
    (copy / "mine.yaml").write_text(f"version: 1\npack: mine\n{rules}")
    (copy / "mine.tests.yaml").write_text(TESTS)
    assert '"stuck"' in rltriage(copy, "rules", "schema")
    assert rltriage(copy, "rules", "test", "mine.tests.yaml", "--rules", "mine.yaml") == "2 passed, 0 failed\n"


def test_a_profile_is_one_file(copy: Path, read_blocks: Any) -> None:
    """With the YAML file in the folder, a log of the framework is recognised by its names, and scaled."""
    (profile,) = (block for block in read_blocks(ROOT / "CONTRIBUTING.md") if block.file == "my_framework.yaml")
    (copy / "rltriage" / "rules" / "profiles" / "my_framework.yaml").write_text(profile.text)
    rows = [
        f'{{"iteration": {i}, "my/mean_return": 0.5, "my/policy_entropy": 1, "my/clip_percent": {i}}}' for i in range(6)
    ]
    (copy / "log.jsonl").write_text("\n".join(rows) + "\n")
    assert "my_framework" in rltriage(copy, "profiles", "list")
    assert "read as my_framework" in rltriage(copy, "replay", "log.jsonl")
    assert "read as my_framework" in rltriage(copy, "replay", "log.jsonl", "--config", "kl_penalty=0.1")


def test_a_source_is_one_file_and_where_it_is_recognised(copy: Path, read_blocks: Any) -> None:
    """With the line format in the folder and its three lines in `_structured`, a log of that form is replayed."""
    blocks = {block.file: block.text for block in read_blocks(ROOT / "CONTRIBUTING.md") if block.file}
    folder = copy / "rltriage" / "engine" / "sources"
    (folder / "pipes.py").write_text(blocks["pipes.py"])
    text = (folder / "__init__.py").read_text()
    head, tail = text.split("    delimiter = delimiter_of(complete)\n", 1)
    head = head.replace("\n__all__", "\nfrom rltriage.engine.sources.pipes import PipeLines\n\n__all__", 1)
    (folder / "__init__.py").write_text(f"{head}{blocks['recognise.py']}    delimiter = delimiter_of(complete)\n{tail}")
    (copy / "log.txt").write_text("step | reward | loss\n0 | 0.5 | 0.1\n1 | 0.6 | nan\nbroken\n")
    shown = rltriage(copy, "replay", "log.txt", "--fail-on", "never")
    assert "log: 2 rows, steps 0 to 1" in shown and "1 line was not understood, line 4: 1 cells" in shown


def test_a_rule_is_an_entry_of_the_pack(copy: Path, read_blocks: Any) -> None:
    """The rule of the recipe, with two tests of its own, passes `rules check` and `rules test` in the shipped pack."""
    (rule,) = (block for block in read_blocks(ROOT / "CONTRIBUTING.md") if block.words == ("rules",))
    packs = copy / "rltriage" / "rules" / "packs"
    with (packs / "triage.yaml").open("a") as file:
        file.write(rule.text.removeprefix("rules:\n"))
    with (packs / "triage.tests.yaml").open("a") as file:
        test = "  - {{name: {}, rule: length-close-to-the-cap, config: {{max_length: 100}}, series: {{length: {}}}, {}}}\n"
        file.write(test.format("at the cap", '"99x8"', "expect: [{step: 5, severity: info}]"))
        file.write(test.format("below the cap", '"90x8"', "silent: true"))
    rltriage(copy, "rules", "check")
    assert " 0 failed" in rltriage(copy, "rules", "test")


def test_a_fault_is_an_entry_of_the_catalogue(copy: Path) -> None:
    """With an entry and a rule that suspects it, an alert names the new fault."""
    faults = copy / "rltriage" / "rules" / "faults.yaml"
    faults.write_text(
        faults.read_text() + "  tool_server_down:\n    title: the tool server is down\n    summary: No call works.\n"
    )
    rule = {
        "id": "no-call-works", "summary": "no call works", "group": "behavior", "severity": "warning",
        "when": {"threshold": {"metric": "malformed", "above": 2}}, "suspects": {"tool_server_down": 0.9},
        "first_test": "read_20_trajectories",
    }  # fmt: skip
    test = {"name": "down", "rule": rule["id"], "series": {"malformed": "0 3"}}
    test["expect"] = [{"step": 1, "fault": "tool_server_down"}]
    (copy / "mine.yaml").write_text(json.dumps({"version": 1, "pack": "mine", "rules": [rule]}))
    (copy / "mine.tests.yaml").write_text(json.dumps({"version": 1, "tests": [test]}))
    assert rltriage(copy, "rules", "test", "mine.tests.yaml", "--rules", "mine.yaml") == "1 passed, 0 failed\n"
