"""`rltriage check`: what it says where there is no probe to check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("probe", ["MODULE:FUNCTION", "my_pkg.probe:FUNCTION"])
def test_a_placeholder_is_recognised(rltriage: Any, probe: str) -> None:
    """The command of an alert, pasted as it stands: it is said what belongs there and where that is explained."""
    ran = rltriage("check", "--only", "9", "--probe", probe)
    assert ran.code == 128
    assert probe in ran.err and "docs/probes.md" in ran.err and "GRPOProbe" in ran.err and "importlib" not in ran.err


def test_a_module_that_is_not_there(rltriage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said where it was looked for, and not where Python's own import failed."""
    monkeypatch.chdir(tmp_path)
    ran = rltriage("check", "--probe", "no_such_package.probe:make")
    assert ran.code == 125
    assert ran.err.strip() == f"there is no module no_such_package: it is looked for in {tmp_path} and on PYTHONPATH"


@pytest.mark.parametrize("given", [(), ("--probe", "needs_torch:make")])
def test_without_torch_it_says_what_to_install(tmp_path: Path, given: tuple[str, ...]) -> None:
    """As `train` does, whether the reference trainer or somebody's probe needs it."""
    (tmp_path / "needs_torch.py").write_text("def make():\n    import torch\n    return torch\n")
    # None is what `import torch` takes for a module that is not there.
    start = "import sys; sys.modules['torch'] = None; from rltriage.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", start, "check", *given], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 125
    assert "pip install 'rltriage[trainer]'" in ran.stderr and str(tmp_path) not in ran.stderr
