"""The compose file and the image: valid, pinned, and nothing that they name is missing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from rltriage.rules.config import load_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"


@pytest.fixture(scope="module")
def composed():
    """The compose file with the default of every variable, and merge keys resolved."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text())
    assert "${" not in text, "every variable has a default"
    return yaml.safe_load(text)


def test_docker_accepts_it():
    """`docker compose config`, where the client has compose."""
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker has no compose here: the schema's test stands in")
    checked = subprocess.run([docker, "compose", "-f", str(COMPOSE), "config", "-q"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_it_is_valid_by_the_compose_specification(composed, schemas):
    """Its JSON Schema, which refuses unknown keys; a misspelt one is seen."""
    validator = jsonschema.Draft7Validator(json.loads((schemas / "compose.json").read_text()))
    assert [f"{error.json_path}: {error.message}"[:300] for error in validator.iter_errors(composed)] == []
    composed = json.loads(json.dumps(composed))
    composed["services"]["grafana"]["volume"] = []
    assert list(validator.iter_errors(composed))


def test_images_are_pinned_and_ports_stay_on_this_machine(composed):
    """A version for each image; whoever may look is decided by who may log in here."""
    for name, service in composed["services"].items():
        assert re.search(r":v?\d+\.\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True


def test_what_is_mounted_exists(composed):
    """A missing file would be made by Docker, as a folder of root's."""
    mounts = [mount.split(":") for service in composed["services"].values() for mount in service.get("volumes", ())]
    sources = {source for source, *_ in mounts}
    assert {source for source in sources if "/" not in source} == set(composed["volumes"])
    for source in sources:
        if source.startswith("./"):
            assert (DEPLOY / source).exists(), source


def test_compiled_alerts_link_to_the_page_that_pushed_ones_link_to(composed):
    """The address of the page is in the engine's configuration and in the command that compiles the rules."""
    command = composed["services"]["rules"]["command"]
    assert command[command.index("--page") + 1] == load_config(DEPLOY / "rltriage.yaml").external_url


def test_services_reach_each_other_by_the_names_of_the_configurations(composed):
    """Every host that a configuration names is a service."""
    texts = [*(DEPLOY / "prometheus" / "targets").glob("*.yaml"), DEPLOY / "alertmanager" / "alertmanager.yaml"]
    hosts = set(re.findall(r"[/\"](\w+):9\d{3}", "".join(file.read_text() for file in [*texts, DEPLOY / "rltriage.yaml"])))
    assert hosts - {"localhost"} <= set(composed["services"]) and len(hosts) >= 4


def test_commands_are_those_of_the_command_line(composed, takes):
    """`rltriage` takes what its two services give it."""
    for name in ("rltriage", "rules"):
        takes(composed["services"][name]["command"])


def test_the_image_copies_what_there_is_and_all_that_is_needed():
    """Each COPY finds its source, the ignore file lets it through, and every package is among them."""
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied and all((ROOT / source).exists() for source in copied)
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == set(copied)
    folders = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert folders <= set(copied)
    assert re.search(r"^USER [1-9]\d*", text, re.MULTILINE) and "HEALTHCHECK" in text
    assert all(re.search(r":\d+\.\d+\.\d+-", line) for line in re.findall(r"^FROM (\S+)", text, re.MULTILINE))


def test_the_image_s_build_gives_a_wheel_with_everything(tmp_path):
    """pip builds from the copied files alone, as in the image (dependencies apart, which the network brings)."""
    text = (DEPLOY / "Dockerfile").read_text()
    for source in [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.M) for word in line.split()[:-1]]:
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), "."], check=True, cwd=tmp_path, capture_output=True)
    shipped = {path.relative_to(target).as_posix() for path in (target / "rltriage").rglob("*.yaml")}
    assert {"rltriage/rules/packs/triage.yaml", "rltriage/rules/metrics.yaml"} <= shipped
