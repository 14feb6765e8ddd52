"""The metric catalogue is complete, consistent and named as Prometheus wants it."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from rltriage.rules.model import MetricInfo

CATALOGUE = yaml.safe_load((Path(__file__).parents[2] / "rules" / "metrics.yaml").read_text())
METRICS = CATALOGUE["metrics"]
GROUPS = {"outcome", "behavior", "optimizer", "consistency", "liveness"}
# DESIGN section 5, with the two families of invariants.
CANONICAL = """
reward pass_rate eval_pass entropy approx_kl clip_frac ratio_max ratio_min grad_norm loss lr kl_ref zero_adv_frac
all_pass_frac all_fail_frac length length_pass length_fail truncated_frac turns reads tests edits malformed hardcode
submitted logp_gap logp_gap_p99 logp_gap_max logp_gap_gt1_frac logp_placeholder_frac probs_diff_mean probs_diff_max
explained_variance reward_std adv_mean adv_min adv_max adv_abs_max ratio_mean ratio_first_max is_ratio_mean sampler_kl
approx_kl_max grad_norm_max length_min length_max n_episodes n_groups eval_n loss_tokens check_<id> check_<id>_value
"""


def test_every_canonical_metric_is_declared_and_nothing_else():
    """A metric that rules can name has a unit, a meaning and a gauge."""
    assert set(METRICS) == set(CANONICAL.split())


@pytest.mark.parametrize("name", METRICS)
def test_an_entry_has_every_field_and_no_other(name):
    """Entries are MetricInfo's fields; range and labels may be left out."""
    entry = METRICS[name]
    known = {field.name for field in fields(MetricInfo)} - {"name"}
    assert known - {"low", "high", "labels"} <= set(entry) <= known
    info = MetricInfo(name=name, **entry)
    assert info.group in GROUPS and info.help and info.flags and info.unit
    assert not info.help.endswith(".") and not info.flags.endswith(".")


@pytest.mark.parametrize("name", METRICS)
def test_a_name_says_its_unit_as_prometheus_wants(name):
    """Base units in the name, `_ratio` for shares and only for them, no suffix that means another type."""
    info = MetricInfo(name=name, **METRICS[name])
    assert re.fullmatch(r"rltriage_[a-z0-9]+(_[a-z0-9]+)*", info.prometheus)
    assert (info.unit == "share") == info.prometheus.endswith("_ratio")
    assert (info.unit in ("nats", "tokens")) == (info.prometheus.rpartition("_")[2] in ("nats", "tokens"))
    assert not info.prometheus.endswith(("_total", "_info", "_sum", "_count", "_bucket"))
    if info.unit == "share":
        assert (info.low, info.high) == (0, 1)


def test_only_metrics_with_labels_share_a_family():
    """Two metrics of one name would be one series."""
    seen = {}
    for name, entry in METRICS.items():
        key = entry["prometheus"], tuple(entry.get("labels", {}).items())
        assert seen.setdefault(key, name) == name
    by_family = {}
    for entry in METRICS.values():
        by_family.setdefault(entry["prometheus"], set()).add((entry["help"], tuple(entry.get("labels", {}))))
    assert all(len(helps) == 1 for helps in by_family.values())
