"""What is generated is up to date, and nothing that is shipped is missing from the pages."""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages() -> Any:
    """docs/build.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_what_the_project_says(pages: Any) -> None:
    """`make docs` would change nothing."""
    stale = [str(path) for path, text in pages.build().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run `make docs`: {stale}"


def test_every_fault_and_test_has_an_anchor() -> None:
    """Alerts and the pages link to `faults.md#<id>`: the heading is the id itself."""
    from rltriage.rules.catalogue import load_catalogue

    catalogue = load_catalogue()
    heads = set(re.findall(r"^##+ (\w+)$", (DOCS / "faults.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert {*catalogue.faults, *catalogue.first_tests} <= heads


def test_the_example_pack_uses_every_kind() -> None:
    """And its tests make every rule fire and stay silent; they pass."""
    from rltriage.engine.ruletests import run_rule_tests
    from rltriage.rules.conditions import KINDS
    from rltriage.rules.loader import load_rules

    text = (DOCS / "examples" / "every_kind.yaml").read_text(encoding="utf-8")
    pack = load_rules(DOCS / "examples" / "every_kind.yaml")
    results = run_rule_tests(DOCS / "examples" / "every_kind.tests.yaml", pack, pack.catalogue)
    assert {kind for kind in KINDS if re.search(rf"\b{kind}:", text)} == set(KINDS)
    assert all(result.passed for result in results)
    for kind in ("firing", "silent"):
        assert {rule for result in results if result.kind == kind for rule in result.rules} == {r.id for r in pack.rules}


def test_the_index_lists_every_example() -> None:
    """A file that nobody links to is a file that nobody reads; pages list themselves."""
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert not [path.name for path in (DOCS / "examples").iterdir() if f"(examples/{path.name})" not in index]


def dependencies() -> dict[str, str]:
    """Name -> licence as the page has it."""
    text = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \| ([^|]+?) \|", text, re.MULTILINE)
    return {name.lower(): licence for name, licence in rows}


def test_every_dependency_has_its_reason() -> None:
    """What pyproject.toml and requirements-dev.txt ask for is on the page, and nothing else."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"]]
    wanted += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    wanted += [line for line in (ROOT / "requirements-dev.txt").read_text().splitlines() if line and line[0] != "#"]
    names = {re.split(r"[^\w.-]", each)[0].lower() for each in wanted}
    assert set(dependencies()) == names


def test_what_tests_fetch_has_its_reason() -> None:
    """Every package that tests/fetch.py pins is on the page."""
    fetched = re.findall(r'"(@?[\w/-]+)(?:@|==)\d', (ROOT / "tests" / "fetch.py").read_text(encoding="utf-8"))
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    assert len(fetched) >= 8 and [name for name in fetched if f"`{name}`" not in page] == []


def test_licences_are_those_of_the_installed_packages() -> None:
    """As their own metadata say; packages that are not installed cannot be asked."""
    wrong = {}
    for name, licence in dependencies().items():
        try:
            found = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue
        said = " ".join([*found.get_all("Classifier", []), found.get("License-Expression", ""), found.get("License") or ""])
        if licence.split("-")[0].lower() not in said.lower().replace("apache software", "apache"):
            wrong[name] = (licence, said[-200:])
    assert not wrong


def test_nothing_shipped_can_execute_what_it_reads() -> None:
    """What security.md promises: no eval, no exec, no pickle, no torch.load, no shell, in any module."""
    import ast

    modules = {"pickle", "subprocess", "marshal", "shelve"}
    calls = {"eval", "exec", "os.system", "os.popen", "torch.load", "yaml.load"}
    found = []
    for layer in ("rules", "engine", "exporters", "trainer", "rltriage"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                bad: set[str] = set()
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                    bad = modules & {name.split(".")[0] for name in names}
                elif isinstance(node, ast.Call):
                    bad = calls & {ast.unparse(node.func)}
                found += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in bad]
    assert not found
