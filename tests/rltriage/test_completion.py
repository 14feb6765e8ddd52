"""Shell completion: click's, through the lazy group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from rltriage.cli import root


def completed(words: list[str], incomplete: str) -> set[str]:
    """What a shell would offer."""
    complete = ShellComplete(root, {}, "rltriage", "_RLTRIAGE_COMPLETE")
    return {item.value for item in complete.get_completions(words, incomplete)}


def test_commands_their_subcommands_and_options_are_offered() -> None:
    """At every level, by what has been typed."""
    assert completed([], "re") >= {"recorder", "replay"}
    assert completed(["rules"], "co") == {"compile"}
    assert completed(["replay"], "--ex") == {"--explain"}
    assert completed(["replay", "--fail-on"], "c") == {"critical"}


def test_what_a_command_takes_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and files where a log goes, rules, faults, packs and profiles where one of those goes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "rows.jsonl").touch()
    for command in (["report"], ["replay"], ["watch"], ["coverage"], ["profiles", "check"], ["recorder", "list"]):
        assert completed(command, "m") == {"m", "mine"}  # the first stands for the files that the shell finds
    assert completed(["rules", "explain"], "kl-ref-exact") == {"kl-ref-exactly-zero"}
    assert completed(["silence", "add", "mine"], "kl-ref-exact") == {"kl-ref-exactly-zero"}
    assert completed(["rules", "check"], "tri") == {"tri", "triage"}
    assert completed(["replay", "--rules"], "tri") == {"tri", "triage"}
    assert completed(["replay", "--profile"], "trl") >= {"trl", "trl/grpo"}
    pytest.importorskip("torch", reason="the reference trainer needs torch")
    assert completed(["train", "--fault"], "mask") == {"mask_shift"}


def test_a_rule_of_a_pack_that_is_named_first_is_offered(tmp_path: Path) -> None:
    """And with a pack that cannot be read, nothing is, without a word."""
    pack = tmp_path / "mine.yaml"
    pack.write_text(
        "version: 1\npack: mine\nrules:\n  - {id: my-rule, summary: s, group: behavior, severity: info, "
        "when: {threshold: {metric: entropy, below: 0.1}}, suspects: {entropy_collapse: 0.5}, "
        "first_test: entropy_term_sign}\n"
    )
    assert completed(["rules", "explain", "--rules", str(pack)], "") == {"my-rule"}
    pack.write_text("version: 1\n\tpack")
    assert completed(["rules", "explain", "--rules", str(pack)], "") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_gives_a_script(shell: str) -> None:
    """`_RLTRIAGE_COMPLETE=..._source rltriage` prints a script that calls rltriage back."""
    result = subprocess.run(
        [sys.executable, "-c", "from rltriage.cli import main; main()"],
        env={**os.environ, "_RLTRIAGE_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0 and f"{shell}_complete" in result.stdout
