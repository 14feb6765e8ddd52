"""What is shipped: the sdist builds a wheel that holds the whole tree and works when installed, outside the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("rltriage", "rules", "engine", "exporters", "trainer")
SHIPPED = {".py", ".yaml", ".json", ".safetensors", ".typed", ".html", ".css", ".js"}
BESIDE = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md")
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from a copy of the tracked files: a stale build folder cannot lend it anything."""
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "tree"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__", "data"))
    for name in BESIDE:
        shutil.copy(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-c", SDIST, str(folder)], cwd=copy, check=True, capture_output=True)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist as a package index's users would build it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(sdist)]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment that has the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(str(Path(click.__file__).parents[1]) + "\n")
    return folder / "bin"


def run(program: Path, *arguments: str, cwd: Path) -> str:
    """What an installed program prints, away from the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([str(program), *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_wheel_holds_every_file_of_the_tree(wheel: Path) -> None:
    """No module, pack, catalogue, profile or checkpoint is forgotten, on the way through the sdist too."""
    tree = {
        str(Path("rltriage", path.relative_to(ROOT)) if layer != "rltriage" else path.relative_to(ROOT))
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*")
        if path.is_file() and path.suffix in SHIPPED
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == tree


def test_sdist_and_wheel_carry_licence_and_types(sdist: Path, wheel: Path) -> None:
    """The licence's text, its id in the metadata, the README, and the marker that tells type checkers to look."""
    with tarfile.open(sdist) as archive:
        held = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    assert set(map(Path, BESIDE)) <= held and Path("tests") not in held, "some tests without what they need are no use"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(n for n in names if n.endswith("/METADATA"))).decode())
    assert any(name.endswith("licenses/LICENSE") for name in names) and "rltriage/py.typed" in names
    assert metadata["License-Expression"] == "Apache-2.0" and "# rltriage" in str(metadata.get_payload())


def test_installed_commands_run_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    """`rltriage` and `python -m rltriage` of a clean environment: version, shipped rules, their tests."""
    import rltriage

    assert run(installed / "rltriage", "--version", cwd=tmp_path) == f"rltriage, version {rltriage.__version__}\n"
    place = run(installed / "python", "-c", "import rltriage; print(rltriage.__file__)", cwd=tmp_path)
    assert place.startswith(str(installed.parent))
    run(installed / "python", "-m", "rltriage", "rules", "check", cwd=tmp_path)
    assert run(installed / "python", "-m", "rltriage", "--version", cwd=tmp_path).endswith(f"{rltriage.__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_installed_command_completes_itself(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """The line of docs/deployment.md gives each shell a script that asks this command."""
    monkeypatch.setenv("_RLTRIAGE_COMPLETE", f"{shell}_source")
    script = run(installed / "rltriage", cwd=tmp_path)
    assert f"{shell}_complete" in script and "rltriage" in script


USER = """
import rltriage
from rltriage.rules.loader import load_rules

with rltriage.watch("mine", config={"kl_coef": 0.1}, listen=None) as run:
    report = run.log(0, {"reward": 0.5})
    severities: list[str] = [alert.severity for alert in report.alerts]
name: str = load_rules("triage").rules[0].id
number: int = load_rules("triage").rules[0].id
"""


def test_a_users_type_checker_sees_the_types(installed: Path, tmp_path: Path) -> None:
    """`mypy --strict` beside the installed wheel: a right program passes, and its one mistake is found by our types."""
    (tmp_path / "mine.py").write_text(USER)
    # What the dependencies' own types are is not asked, and reading torch's takes longer than all the rest.
    skipped = ",".join(
        f"{name}.*" for name in ("click", "jinja2", "jsonschema", "msgspec", "numpy", "rich", "torch", "urllib3")
    )
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\n[mypy-{skipped}]\nfollow_imports = skip\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", str(installed / "python"), "mine.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1 and "mine.py:9" in errors[0] and '"str"' in errors[0] and '"int"' in errors[0], checked.stdout


def test_versions_agree() -> None:
    """The package, pyproject.toml and CITATION.cff name one version."""
    import tomllib

    import yaml

    import rltriage

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert rltriage.__version__ == declared == yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
