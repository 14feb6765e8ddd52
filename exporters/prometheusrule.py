"""Rule files as PrometheusRule objects, which prometheus-operator and Mimir's operator turn into rules on a cluster.

Source: the CustomResourceDefinition `prometheusrules.monitoring.coreos.com`, whose `spec.groups` is a rule file's `groups`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from rltriage.rules.errors import RltriageError

LABELS = {"release": "kube-prometheus-stack"}
"""What kube-prometheus-stack selects by unless it is told otherwise; kube-prometheus takes every rule."""
MAX_BYTES = 1_000_000
"""An object in etcd has at most 1.5 MiB, and the operator puts all rules into ConfigMaps of 1 MiB."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def prometheus_rule(rules: str, name: str, labels: Mapping[str, str] = LABELS) -> str:
    """The object `name` with the groups of a rule file. Its namespace is left to kubectl or kustomize.

    Raises RltriageError for a name that Kubernetes refuses, and for rules that are too large for one object.
    """
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise RltriageError(f"{name!r} is no name of an object: use small letters, digits and dashes")
    found = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"groups": yaml.safe_load(rules)["groups"]},
    }
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = str(yaml.dump(found, Dumper=dumper, sort_keys=False, width=120, allow_unicode=True))
    if len(text.encode()) > MAX_BYTES:
        raise RltriageError(
            f"{len(text.encode())} bytes of rules are too many for one object: compile the packs one by one"
        )
    return text
