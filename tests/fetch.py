"""Fetches what some tests need besides Python packages into .cache/: `make fetch`, or `python tests/fetch.py [NAME ...]`.

What is there is not fetched again; what comes is moved into place when it is complete. Nothing of it is shipped, and
nothing is installed but Debian's chromium, where there is no browser and we may (root, apt). What cannot be had is said in
one line each, with exit code 1: the tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
KUBERNETES = "v1.34.0-local-strict"
OPERATOR = """
import json, sys
from cloudcoil.models.prometheus_operator import v1

def closed(schema):
    # The models ignore what they do not know; a cluster's API refuses it in strict validation, and so do our tests.
    if isinstance(schema, dict):
        if schema.get("properties") and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for value in schema.values():
            closed(value)
    elif isinstance(schema, list):
        for value in schema:
            closed(value)
    return schema

kinds = (v1.PodMonitor, v1.ServiceMonitor, v1.PrometheusRule)
json.dump({kind.__name__: closed(kind.model_json_schema(by_alias=True)) for kind in kinds}, sys.stdout)
"""


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """What a command prints. Raises CalledProcessError or OSError."""
    told = os.environ | environment
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, env=told, timeout=600).stdout


def pip(*arguments: str) -> None:
    """pip of this Python."""
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


def npm_install(target: Path, *packages: str) -> None:
    """Packages of npm with what they depend on."""
    run("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages, cwd=target)


def npm_files(target: Path, work: Path, package: str, *files: str) -> None:
    """Single files of a package of npm."""
    with tarfile.open(work / run("npm", "pack", "--silent", package, cwd=work).strip()) as archive:
        for file in files:
            found = archive.extractfile(f"package/{file}")
            assert found is not None
            (target / Path(file).name).write_bytes(found.read())


def axe_core(target: Path, work: Path) -> None:
    """axe-core (MPL-2.0), which looks for barriers on the on-call page."""
    npm_files(target, work, "axe-core@4.10.3", "axe.min.js", "LICENSE")


def grafana_schema(target: Path, work: Path) -> None:
    """Grafana's own types of a dashboard and the TypeScript compiler (both Apache-2.0)."""
    npm_install(target, "@grafana/schema@12.2.1", "typescript@5.9.3")


def yaml_language_server(target: Path, work: Path) -> None:
    """yaml-language-server (MIT), which editors check packs with."""
    npm_install(target, "yaml-language-server@1.19.2")


def frameworks(target: Path, work: Path) -> None:
    """verl and OpenRLHF (both Apache-2.0) without what they depend on: of each the files with the loggers."""
    pip("install", "--no-deps", "--target", str(work), "verl==0.9.1", "openrlhf==0.11.2")
    for file in (
        "verl/utils/tracking.py",
        "verl/utils/logger/aggregate_logger.py",
        "openrlhf/utils/logging_utils.py",
    ):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(work / file, target / file)


def schemas(target: Path, work: Path) -> None:
    """What the manifests are checked with: the schemas of Kubernetes, prometheus-operator and compose.

    From the packages kubernetes-validate (PyPI, Apache-2.0), whose strict schemas refuse unknown keys,
    cloudcoil-models-prometheus-operator (PyPI, Apache-2.0) and dclint (npm, MIT).
    """
    pip("download", "--no-deps", "-d", str(work), "kubernetes-validate==1.37.0")
    folder = f"kubernetes_validate/kubernetes-json-schema/{KUBERNETES}/"
    with zipfile.ZipFile(next(work.glob("kubernetes_validate-*.whl"))) as wheel:
        wheel.extractall(work, [name for name in wheel.namelist() if name.startswith(folder) and name.endswith(".json")])
    (work / folder).rename(target / "kubernetes")
    pip("install", "--target", str(work / "models"), "cloudcoil-models-prometheus-operator==0.80.1.0")
    code = f"import sys; sys.path.insert(0, {str(work / 'models')!r})\n{OPERATOR}"
    (target / "operator.json").write_text(run(sys.executable, "-I", "-c", code), encoding="utf-8")
    npm_files(target, work, "dclint@3.1.0", "schemas/compose.schema.json")
    (target / "compose.schema.json").rename(target / "compose.json")


FETCHED: dict[str, Callable[[Path, Path], None]] = {
    "axe-core": axe_core,
    "frameworks": frameworks,
    "grafana-schema": grafana_schema,
    "schemas": schemas,
    "yaml-language-server": yaml_language_server,
}
"""By folder of .cache/. Each fills the folder that it is given first; the second one is for what is thrown away."""


def fetch(name: str) -> None:
    """All of one folder or nothing. Raises CalledProcessError or OSError."""
    if (CACHE / name).exists():
        return
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        target, work = Path(folder, "target"), Path(folder, "work")
        target.mkdir()
        work.mkdir()
        FETCHED[name](target, work)
        target.rename(CACHE / name)
    print(CACHE / name)


def browser(name: str = "chromium") -> None:
    """Debian's chromium, installed. Raises CalledProcessError or OSError."""
    if os.environ.get("RLTRIAGE_CHROMIUM") or shutil.which(name) or shutil.which("google-chrome"):
        return
    if os.getuid() != 0:
        raise PermissionError("there is none, and only root may install it")
    install = ("apt-get", "install", "-qq", "-y", "--no-install-recommends", name)
    try:
        run(*install, DEBIAN_FRONTEND="noninteractive")
    except subprocess.CalledProcessError:  # a fresh machine has no lists of packages yet
        run("apt-get", "-qq", "update")
        run(*install, DEBIAN_FRONTEND="noninteractive")


def main(names: list[str]) -> int:
    """Fetch what is named, or everything; the exit code."""
    code = 0
    for name in names or ("chromium", *FETCHED):
        try:
            (browser if name == "chromium" else fetch)(name)
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
            print(f"fetch: {name} cannot be had: {''.join(said)}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
