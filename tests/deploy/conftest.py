"""Checks of manifests by the schemas that tests/fetch.py fetches, and of the commands that files of deploy/ run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import jsonschema
import pytest
import yaml
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.jsonschema import DRAFT7

from rltriage.cli import root

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / ".cache" / "schemas"


@pytest.fixture(scope="session")
def schemas(missing: Callable[[str], NoReturn]) -> Path:
    """The folder of schemas."""
    if not SCHEMAS.exists():
        missing("the schemas are missing: python tests/fetch.py schemas")
    return SCHEMAS


@pytest.fixture(scope="session")
def kubernetes_errors(schemas: Path) -> Callable[[dict[str, Any]], list[str]]:
    """What is wrong with an object, by Kubernetes' own schema or prometheus-operator's; unknown keys are errors."""
    operator = json.loads((schemas / "operator.json").read_text())
    definitions = DRAFT7.create_resource(json.loads((schemas / "kubernetes" / "_definitions.json").read_text()))
    registry = Registry().with_resource("/api/_definitions.json", definitions)

    def errors(found: dict[str, Any]) -> list[str]:
        group, _, version = found["apiVersion"].rpartition("/")
        if group == "monitoring.coreos.com":
            schema = operator[found["kind"]]
        else:
            name = "-".join(filter(None, (found["kind"].lower(), group.removesuffix(".k8s.io"), version)))
            schema = json.loads((schemas / "kubernetes" / f"{name}.json").read_text())
        validator = jsonschema.Draft7Validator(schema, registry=registry)
        # "is valid under none of the given schemas" says nothing: what is wrong with the alternative that fits best does.
        best = [best_match([error]) for error in validator.iter_errors(found)]
        return [f"{found['kind']} {error.json_path}: {error.message}"[:300] for error in best]

    return errors


@pytest.fixture(scope="session")
def documents() -> Callable[[Path], list[dict[str, Any]]]:
    """The YAML documents of a file of deploy/."""
    return lambda path: [found for found in yaml.safe_load_all(path.read_text(encoding="utf-8")) if found]


@pytest.fixture(scope="session")
def takes() -> Callable[[list[str]], None]:
    """Fails where `rltriage` does not take these arguments."""

    def check(arguments: list[str]) -> None:
        command: click.Command = root
        left = list(arguments)
        while isinstance(command, click.Group):
            name = left.pop(0)
            found = command.get_command(click.Context(command), name)
            assert found is not None, name
            command = found
        command.make_context(command.name, left)

    return check
