"""Rule files as objects for prometheus-operator."""

from __future__ import annotations

import pytest
import yaml

from rltriage.exporters import prometheusrule
from rltriage.exporters.prometheusrule import prometheus_rule
from rltriage.rules.errors import RltriageError

RULES = 'groups:\n- name: g\n  rules:\n  - {alert: A, expr: up == 0, annotations: {summary: "{{ $labels.run }} é"}}\n'


def test_an_object_holds_the_groups_as_they_are():
    """Templates and letters of all languages included; the namespace is left to whoever applies it."""
    found = yaml.safe_load(prometheus_rule(RULES, "mine", {"prometheus": "k8s"}))
    assert found["apiVersion"] == "monitoring.coreos.com/v1" and found["kind"] == "PrometheusRule"
    assert found["metadata"] == {"name": "mine", "labels": {"prometheus": "k8s"}}
    assert found["spec"] == yaml.safe_load(RULES)


@pytest.mark.parametrize("name", ["", "Mine", "a_b", "-a", "a" * 254])
def test_a_name_that_kubernetes_refuses_is_refused_here(name):
    """Before anybody applies it."""
    with pytest.raises(RltriageError, match="small letters"):
        prometheus_rule(RULES, name)


def test_rules_that_fit_no_object_are_refused(monkeypatch):
    """etcd would say so, in its own words, to the operator."""
    monkeypatch.setattr(prometheusrule, "MAX_BYTES", 100)
    with pytest.raises(RltriageError, match="too many for one object"):
        prometheus_rule(RULES, "mine")
