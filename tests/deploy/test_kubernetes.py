"""The Kubernetes manifests: valid by the schemas of the API, generated parts up to date, and what they name exists."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rltriage.rules.config import load_config, parse_config
from rltriage.rules.loader import load_rules

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(
    path for path in FOLDER.rglob("*.yaml") if path.name not in ("kustomization.yaml", "rltriage.yaml", "mine.yaml")
)


@pytest.fixture
def objects(documents):
    """Every object, (kind, name) -> object."""
    return {(found["kind"], found["metadata"]["name"]): found for path in MANIFESTS for found in documents(path)}


def pods(objects):
    """The pod specification of each workload."""
    return {
        name: found["spec"]["template"]["spec"] for (kind, name), found in objects.items() if kind in ("StatefulSet", "Job")
    }


def containers(pod):
    """Every container of a pod, sidecars included."""
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_every_object_is_valid_by_the_schemas_of_the_api(path, documents, kubernetes_errors):
    """Strictly: a key that the API does not know is an error too."""
    found = documents(path)
    assert found and [error for each in found for error in kubernetes_errors(each)] == []


def test_the_schemas_refuse_mistakes(objects, kubernetes_errors):
    """A misspelt key, a wrong type and a missing field are seen, in Kubernetes' objects and in the operator's."""
    workload = copy.deepcopy(objects["StatefulSet", "rltriage"])
    workload["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    assert any("readinesProbe" in error for error in kubernetes_errors(workload))
    workload = copy.deepcopy(objects["StatefulSet", "rltriage"])
    workload["spec"]["replicas"] = "one"
    assert kubernetes_errors(workload)
    monitor = copy.deepcopy(objects["PodMonitor", "rltriage-trainers"])
    monitor["spec"]["podMetricsEndpoints"][0]["intervall"] = "15s"
    assert any("intervall" in error for error in kubernetes_errors(monitor))
    rules = copy.deepcopy(objects["PrometheusRule", "rltriage"])
    del rules["spec"]["groups"][0]["rules"][0]["expr"]
    assert any("expr" in error for error in kubernetes_errors(rules))


def test_the_rules_load_in_prometheus(objects, server_binary, tmp_path):
    """Each object's groups are a rule file that promtool accepts."""
    found = [each["spec"] for (kind, _), each in objects.items() if kind == "PrometheusRule"]
    assert len(found) >= 2
    for number, spec in enumerate(found):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(spec))
    command = [server_binary("promtool"), "check", "rules", *map(str, sorted(tmp_path.iterdir()))]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pulled_alerts_link_to_where_pushed_ones_do(objects):
    """The engine's configuration and the rules name one page and one runbook."""
    config = load_config(FOLDER / "rltriage.yaml")
    for alert in objects["PrometheusRule", "rltriage"]["spec"]["groups"][0]["rules"]:
        found = alert["annotations"]
        assert found["page_url"].startswith(f"{config.external_url}/runs/")
        assert found.get("runbook_url", config.runbook_url).startswith(config.runbook_url)
    assert config.external_url and config.runbook_url


def test_kustomize_builds_what_the_folders_hold():
    """kubectl's own kustomize, where kubectl is: every object comes out, with hashed names and pinned images."""
    kubectl = shutil.which("kubectl") or pytest.skip("kubectl is not installed: kustomizations are not built")
    for folder in (FOLDER, FOLDER / "sidecar"):
        built = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        found = list(yaml.safe_load_all(built.stdout))
        images = [each["image"] for one in found if one["kind"] in ("StatefulSet", "Job")
                  for each in containers(one["spec"]["template"]["spec"])]  # fmt: skip
        assert images and all(re.fullmatch(r"registry\.example/\w+:[\d.]+", image) for image in images)
        configured = [one["metadata"]["name"] for one in found if one["kind"] == "ConfigMap"]
        used = re.findall(r"name: (rltriage-[\w-]+)", built.stdout)
        assert configured and set(configured) <= set(used)


def test_kustomizations_name_every_file():
    """A manifest that no kustomization lists is never applied."""
    for folder in (FOLDER, FOLDER / "sidecar"):
        text = yaml.safe_load((folder / "kustomization.yaml").read_text())
        named = {*text["resources"], *(file for each in text["configMapGenerator"] for file in each["files"])}
        assert named == {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}


def test_configurations_are_what_rltriage_reads():
    """Both of them, and the user's pack extends the shipped one."""
    for path in (FOLDER / "rltriage.yaml", FOLDER / "sidecar" / "rltriage.yaml"):
        assert load_config(path).listen == "0.0.0.0:9464"
    assert len(load_rules("triage", str(FOLDER / "mine.yaml")).rules) == len(load_rules("triage").rules) + 1


def test_paths_of_the_configurations_are_mounted(objects):
    """State folder, logs and packs lie in a volume of the container that reads the configuration."""
    for name, folder in (("rltriage", FOLDER), ("grpo-example", FOLDER / "sidecar")):
        container = containers(pods(objects)[name])[0]
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        given = parse_config((folder / "rltriage.yaml").read_text())
        wanted = [str(given.state_dir), *(source.where for source in given.sources), *given.packs[1:]]
        for path in wanted:
            assert any(str(path).startswith(mount) for mount in mounts), f"{path} is in no volume of {name}"


def test_containers_may_do_nothing_that_they_do_not_need(objects):
    """The restricted pod security standard, and a read-only root file system."""
    for pod in pods(objects).values():
        assert (
            pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        )
        assert pod["automountServiceAccountToken"] is False
        for container in containers(pod):
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False and rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]}


def test_probes_ask_addresses_that_the_endpoint_has(objects):
    """/-/healthy and /-/ready, at the port that the gauges are served at."""
    from urllib.request import urlopen

    from rltriage.exporters.gauges import Gauges
    from rltriage.exporters.http import serve_metrics

    asked = set()
    for pod in pods(objects).values():
        for container in containers(pod):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    get = container[probe]["httpGet"]
                    assert ports[get["port"]] == 9464
                    asked.add(get["path"])
    assert asked == {"/-/healthy", "/-/ready"}
    with serve_metrics(Gauges({})) as server:
        for path in asked:
            with urlopen(server.url + path, timeout=30) as answer:
                assert answer.status == 200


def test_arguments_are_those_of_the_command_line(objects, takes):
    """`rltriage` takes them."""
    for pod in pods(objects).values():
        for container in containers(pod):
            if container["image"] == "rltriage":
                takes(container["args"])


def test_what_is_scraped_is_labelled_so(objects):
    """The monitors select the pods and the service, by labels that these carry, and a port that they have."""
    trainers = objects["PodMonitor", "rltriage-trainers"]["spec"]
    job = objects["Job", "grpo-example"]["spec"]["template"]
    assert trainers["selector"]["matchLabels"].items() <= job["metadata"]["labels"].items()
    served = objects["ServiceMonitor", "rltriage"]["spec"]
    service = objects["Service", "rltriage"]
    assert served["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    workload = objects["StatefulSet", "rltriage"]["spec"]
    assert service["spec"]["selector"] == workload["selector"]["matchLabels"] == workload["template"]["metadata"]["labels"]
    for endpoint in (*trainers["podMetricsEndpoints"], *served["endpoints"]):
        assert endpoint["port"] == "metrics"
        assert {"targetLabel": "job", "replacement": "rltriage"}.items() <= endpoint["relabelings"][1].items()
