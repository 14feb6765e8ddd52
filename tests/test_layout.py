"""The package list of pyproject.toml is the tree's."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_folder_with_python_files_is_a_listed_package():
    """A subpackage that the list forgets works in an editable install and is missing from the wheel."""
    folders = {
        path.parent.relative_to(ROOT)
        for name in ("rltriage", "rules", "engine", "trainer", "exporters")
        for path in (ROOT / name).rglob("*.py")
    }
    found = {".".join(("rltriage", *folder.parts) if folder.parts[0] != "rltriage" else folder.parts) for folder in folders}
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert found == set(listed)
