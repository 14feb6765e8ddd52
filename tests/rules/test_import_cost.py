"""Importing the rules is cheap: parser and validator are loaded with the first pack."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import rltriage.rules, rltriage.rules.facts, rltriage.rules.templates, rltriage.rules.catalogue
print(sorted({"yaml", "jsonschema", "torch"} & set(sys.modules)))
try:
    rltriage.rules.load_rules("/nowhere.yaml", catalogue=rltriage.rules.Catalogue({}, {}, {}))
except rltriage.rules.RulePackError:
    pass
print(sorted({"torch", "prometheus_client", "requests", "urllib3"} & set(sys.modules)))
"""


def test_neither_import_nor_loading_pulls_what_it_does_not_need() -> None:
    """`import rltriage.rules` loads neither a YAML parser nor jsonschema; loading a pack loads nothing of the network."""
    done = subprocess.run([sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_every_public_name_resolves() -> None:
    """What `rltriage.rules` promises, it has; other names are attribute errors."""
    import rltriage.rules as rules

    assert all(getattr(rules, name) is not None for name in rules.__all__)
    assert not hasattr(rules, "nothing")
