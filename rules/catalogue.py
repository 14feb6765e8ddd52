"""The shipped catalogues: faults, first tests and metrics, each a YAML file of this folder with ids as keys."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rltriage.rules.errors import RulePackError
from rltriage.rules.model import Catalogue, Fault, FirstTest, MetricInfo, Problem

if typing.TYPE_CHECKING:
    from rltriage.rules.yamlmarks import Node

FOLDER = Path(__file__).parent
T = TypeVar("T")


@cache
def load_catalogue() -> Catalogue:
    """The shipped catalogue. Raises RulePackError with every problem of its three files."""
    problems: list[Problem] = []
    catalogue = Catalogue(
        faults=read_entries(FOLDER / "faults.yaml", "faults", problems),
        first_tests=read_entries(FOLDER / "first_tests.yaml", "first_tests", problems),
        metrics=read_entries(FOLDER / "metrics.yaml", "metrics", problems),
    )
    if problems:
        raise RulePackError(problems)
    return catalogue


def read_entries(path: Path, section: str, problems: list[Problem]) -> dict[str, Any]:
    """The entries of one catalogue file (`faults`, `first_tests` or `metrics`); what is wrong goes to `problems`."""
    from rltriage.rules import schema, validate
    from rltriage.rules.yamlmarks import read

    node, found = read(path)
    problems += found
    if node is None:
        return {}
    entry = {"faults": schema.fault_schema, "first_tests": schema.first_test_schema, "metrics": schema.metric_schema}[
        section
    ]()
    table = schema.table(section[:-1].replace("_", " "), entry, "id -> entry")
    shape = schema.mapping("catalogue", {"version": {"const": 1}, section: table}, ("version", section))
    wrong = validate.validate(node, shape, path.name)
    problems += wrong
    return {} if wrong else ENTRY[section](node.at(section))


def faults_of(node: Node) -> dict[str, Fault]:
    """Faults of a validated mapping of ids to fields."""
    convert: dict[str, Callable[[Any], Any]] = {"failing_checks": frozenset, "may_fail": frozenset, "explains": _pairs}
    return {key: _entry(Fault, key, below, convert) for key, below in _own(node)}


def first_tests_of(node: Node) -> dict[str, FirstTest]:
    """First tests of a validated mapping of ids to fields."""
    return {key: _entry(FirstTest, key, below, {}) for key, below in _own(node)}


def metrics_of(node: Node) -> dict[str, MetricInfo]:
    """Metrics of a validated mapping of names to fields; a pack may leave every field out."""
    return {key: _entry(MetricInfo, key, below, {}, identity="name") for key, below in _own(node)}


ENTRY: Mapping[str, Callable[[Node], dict[str, Any]]] = {
    "faults": faults_of,
    "first_tests": first_tests_of,
    "metrics": metrics_of,
}


def _own(node: Node) -> list[tuple[str, Node]]:
    return [(key, below) for key, below in node.entries.items() if not key.startswith("x-")]


def _pairs(rows: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((metric, direction) for metric, direction in rows)


def _entry(cls: type[T], key: str, node: Node, convert: Mapping[str, Callable[[Any], Any]], identity: str = "id") -> T:
    """One dataclass of a catalogue; a text field without a default is empty if it is left out."""
    values: dict[str, Any] = {identity: key}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        below = node.get(field.name)
        if below is not None:
            value = below.plain()
            value = tuple(value) if isinstance(value, list) and field.name not in convert else value
            values[field.name] = convert.get(field.name, lambda same: same)(value)
        elif field.name not in values and field.default is dataclasses.MISSING is field.default_factory:
            values[field.name] = ""
    return cls(**values)


def plain_entry(entry: Any) -> dict[str, Any]:
    """A catalogue entry as YAML data, without its id and without empty fields."""
    found = {}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.name in ("id", "name") or value in (None, "", (), {}, frozenset()):
            continue
        if isinstance(value, frozenset):
            value = sorted(value)
        elif isinstance(value, tuple):
            value = [list(item) if isinstance(item, tuple) else item for item in value]
        found[field.name] = dict(value) if isinstance(value, Mapping) else value
    return found
