"""What is shipped: the wheel holds the whole tree and works outside the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("rltriage", "rules", "engine", "exporters", "trainer")
SHIPPED = {".py", ".yaml", ".json", ".safetensors", ".typed", ".html", ".css", ".js"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tracked files: a stale build folder cannot lend it anything."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "tree"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(copy)]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_wheel_holds_every_file_of_the_tree(wheel: Path) -> None:
    """No module, pack, catalogue, profile or checkpoint is forgotten."""
    tree = {
        str(Path("rltriage", path.relative_to(ROOT)) if layer != "rltriage" else path.relative_to(ROOT))
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*")
        if path.is_file() and path.suffix in SHIPPED
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == tree


def test_command_line_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """`python -m rltriage` works from the unpacked wheel, away from the checkout."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = (
        "import sys, rltriage; assert rltriage.__file__.startswith(sys.argv[1]), rltriage.__file__;"
        "sys.argv[1:] = ['rules', 'check']; from rltriage.cli import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
