"""Importing rltriage inside a training process is cheap and pulls in nothing."""

import subprocess
import sys

HEAVY = ("torch", "numpy", "jsonschema", "prometheus_client", "rich", "apscheduler", "click", "yaml")


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_rltriage_loads_no_heavy_library() -> None:
    """`import rltriage` loads none of the libraries that cost start-up time."""
    assert _modules_after("import rltriage").isdisjoint(HEAVY)


def test_trainer_package_and_its_hooks_load_no_torch() -> None:
    """The layer that uses torch loads it only when something of it runs."""
    assert "torch" not in _modules_after("import rltriage.trainer")


def test_public_names_resolve() -> None:
    """Every name that the front door promises exists."""
    import rltriage

    for name in rltriage.__all__:
        assert getattr(rltriage, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    """A misspelt public name fails as on any module."""
    result = subprocess.run([sys.executable, "-c", "import rltriage; rltriage.Monitr"], capture_output=True, text=True)
    assert "has no attribute 'Monitr'" in result.stderr
