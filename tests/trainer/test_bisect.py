"""`git bisect run rltriage check --probe ...` finds the commit that broke a trainer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# A package of its own around pieces of the reference trainer: `advantages.py` and `masks.py` are what the commits change.
PROBE = """
from rltriage.trainer.invariants import ProbePrepared
from rltriage.trainer.probe import CHECKED, ReferenceProbe
from rltriage.trainer.policy import Policy, load_base
from mine.advantages import advantages
from mine.masks import loss_mask


class Probe(ReferenceProbe):
    def prepare(self, batch):
        made = super().prepare(batch)
        return ProbePrepared(loss_mask(batch.data.mask), made.old_logp, advantages(batch.rewards))


def make():
    return Probe(load_base(), CHECKED)
"""
ADVANTAGES = """def advantages(rewards):
    groups = rewards.view(-1, 8)
    return (groups - groups.mean(-1, keepdim=True)).flatten()
"""
MASK = "def loss_mask(mask):\n    return mask\n"
SHIFTED = "def loss_mask(mask):\n    return mask.roll(1, -1)\n"
FASTER = """def advantages(rewards):
    groups = rewards.unflatten(0, (-1, 8))
    return groups.sub(groups.mean(1, True)).flatten()
"""
# Subject and the files that the commit writes. The third does not import, the fifth plants the regression.
HISTORY = (
    ("Start", {"__init__.py": "", "probe.py": PROBE, "advantages.py": ADVANTAGES, "masks.py": MASK}),
    ("Note the shapes", {"masks.py": "# [B, T-1]\n" + MASK}),
    ("Rename a module, halfway", {"advantages.py": "from mine.groups import grouped\n"}),
    ("Speed up the advantages", {"advantages.py": FASTER}),
    ("Vectorize the mask", {"masks.py": "# [B, T-1]\n" + SHIFTED}),
    ("Document the mask", {"masks.py": "# [B, T-1], aligned with the targets\n" + SHIFTED}),
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with that history."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init", "-q")
    for subject, files in HISTORY:
        for name, text in files.items():
            path = tmp_path / "mine" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", subject)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    """What git prints; no configuration of this machine takes part."""
    identity = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {
        **os.environ,
        **identity,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_bisect_names_the_commit_that_shifted_the_mask(repository: Path) -> None:
    """Five commits to search, one of them unbuildable (exit code 125): three runs find the first that fails check 1."""
    check = [sys.executable, "-m", "rltriage", "check", "--only", "1,4", "--probe", "mine.probe:make"]
    git(repository, "bisect", "start", "HEAD", "HEAD~5")
    found = git(repository, "bisect", "run", *check)
    assert "could not be built" not in found and "is the first bad commit" in found
    assert git(repository, "show", "-s", "--format=%s", "refs/bisect/bad").strip() == "Vectorize the mask"
    log = git(repository, "bisect", "log")
    assert "git bisect skip" in log, "the commit that does not import was to be skipped"
