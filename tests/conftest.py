"""Shared fixtures: where the public cases lie, and what may be missing on a developer's machine."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of public cases (RLTRIAGE_CASES); real logs are other people's data and are not part of the project."""
    folder = os.environ.get("RLTRIAGE_CASES")
    if not folder:
        pytest.skip("RLTRIAGE_CASES is not set: the real public logs are not part of the project")
    return Path(folder)


@pytest.fixture(scope="session")
def server_binary() -> Callable[[str], str]:
    """Finds a Prometheus program by name; without it the test is skipped, or fails where CI=1 says that it must run."""

    def find(name: str) -> str:
        path = shutil.which(name) or shutil.which(name, path=str(ROOT / ".cache" / "servers" / "usr" / "bin"))
        if path is None:
            reason = f"{name} is not installed: run deploy/fetch_servers.sh"
            if os.environ.get("CI") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
        return path

    return find


@pytest.fixture(scope="session")
def server_command(server_binary: Callable[[str], str]) -> Callable[[str], list[str]]:
    """The command that runs a server which `server_binary` finds.

    Debian's Alertmanager has the path of its templates compiled in, so an unpacked one gets a /usr/share of its own.
    """

    def command(name: str) -> list[str]:
        binary = server_binary(name)
        share = Path(binary).parents[1] / "share"
        if Path("/usr/share/prometheus/alertmanager/default.tmpl").exists() or share == Path("/usr/share"):
            return [binary]
        mount = 'mount --bind "$0" /usr/share && exec "$@"'
        return ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(share), binary]

    return command


@pytest.fixture(scope="session")
def benchmark_module() -> Callable[[str], ModuleType]:
    """Imports a program of benchmarks/ by name, for tests of a small version of it."""
    return importlib.import_module


def missing(what: str) -> None:
    """Skip, with a reason, where a server or browser is missing; fail instead where CI promises to have it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")
