"""The docstring of every kind is its help text: the examples in it must load."""

from __future__ import annotations

import re

import pytest

from rltriage.rules.conditions import KINDS
from rltriage.rules.loader import load_rules

PACK = """version: 1
pack: example
rules:
  - id: example
    summary: an example
    group: outcome
    severity: info
    suspects: {{mask_shift: 1}}
    first_test: {test}
    when:
{when}
"""


def examples(kind: str) -> list[str]:
    """The YAML at the end of a kind's docstring: what starts with a kind's name, with its continuation lines."""
    doc = (KINDS[kind].__doc__ or "").replace("\n    ", "\n")
    block = doc.rstrip().rpartition("\n\n")[2]
    return [one for one in re.split(r"\n(?=\w)", block) if one.split(":")[0] in KINDS]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_example_of_a_kind_loads(kind, tmp_path) -> None:
    """It parses, names only known fields, and uses the kind."""
    from rltriage.rules.catalogue import load_catalogue

    found = examples(kind)
    assert found
    for example in found:
        path = tmp_path / "example.yaml"
        indented = "\n".join(f"      {line}" for line in example.splitlines())
        test = next(iter(load_catalogue().first_tests))
        path.write_text(PACK.format(when=indented, test=test))
        (rule,) = load_rules(path).rules
        assert kind in example and rule.when.kind in example
