"""Puts the schemas that the manifests are tested with into .cache/schemas: `make schemas`. Nothing is installed.

Kubernetes' own from the PyPI package kubernetes-validate (Apache-2.0), those of prometheus-operator's resources from the
models in cloudcoil-models-prometheus-operator (Apache-2.0), the compose specification's from the npm package dclint (MIT).
Exit code 1, and one line that says why, where they cannot be had: the tests are then skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / ".cache" / "schemas"
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


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints. Raises CalledProcessError or OSError."""
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, timeout=600).stdout


def pip(*arguments: str) -> None:
    """pip of this Python."""
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


def kubernetes(work: Path, target: Path) -> None:
    """The schemas of one version, strict: unknown keys are errors."""
    pip("download", "--no-deps", "-d", str(work), "kubernetes-validate==1.37.0")
    folder = f"kubernetes_validate/kubernetes-json-schema/{KUBERNETES}/"
    with zipfile.ZipFile(next(work.glob("kubernetes_validate-*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(folder) and name.endswith(".json")]
        wheel.extractall(work, names)
    (work / folder).rename(target / "kubernetes")


def operator(work: Path, target: Path) -> None:
    """PodMonitor, ServiceMonitor and PrometheusRule."""
    pip("install", "--target", str(work / "models"), "cloudcoil-models-prometheus-operator==0.80.1.0")
    code = f"import sys; sys.path.insert(0, {str(work / 'models')!r})\n{OPERATOR}"
    (target / "operator.json").write_text(run(sys.executable, "-I", "-c", code), encoding="utf-8")


def compose(work: Path, target: Path) -> None:
    """The compose specification's."""
    name = run("npm", "pack", "--silent", "dclint@3.1.0", cwd=work).strip()
    with tarfile.open(work / name) as archive:
        found = archive.extractfile("package/schemas/compose.schema.json")
        assert found is not None
        (target / "compose.json").write_bytes(found.read())


def main() -> int:
    """Fetch what is missing, all or nothing; the exit code."""
    if TARGET.exists():
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TARGET.parent) as folder:
        work, target = Path(folder), Path(folder) / "schemas"
        target.mkdir()
        try:
            for fetch in (kubernetes, operator, compose):
                fetch(work, target)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            print(f"fetch_schemas: {fetch.__name__}: {said.strip().splitlines()[-1]}", file=sys.stderr)
            return 1
        shutil.move(target, TARGET)
    print(TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
