"""Profiles: every shipped file is sound, mistakes are located, and frameworks are told apart by their names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.conditions.logic import All
from rltriage.rules.conditions.logic import Any as Any_
from rltriage.rules.conditions.terms import number
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.errors import RulePackError
from rltriage.rules.frameworks import can_judge, details, listing, logged_metrics, verification
from rltriage.rules.model import Problem, Rule
from rltriage.rules.profiles import FACTS, KINDS, METRICS, load_profile, load_profiles, match, parse_profile

FRAMEWORKS = {
    *("trl", "verl", "openrlhf", "skyrl", "prime_rl", "slime", "nemo_rl", "areal", "tinker_cookbook", "open_instruct"),
    *("roll", "stable_baselines3", "cleanrl", "rllib", "verl_prometheus", "generic"),
}

# One record per framework as its own code writes it: the names of its source, invented values.
NAMES: dict[str, list[str]] = {
    "trl": [
        "loss",
        "grad_norm",
        "learning_rate",
        "completions/clipped_ratio",
        "reward",
        "reward_std",
        "frac_reward_zero_std",
    ],
    "trl/ppo": ["objective/kl", "objective/scores", "policy/approxkl_avg", "val/ratio", "lr", "episode"],
    "trl/async": ["loss", "reward", "kl", "ratio", "clip_ratio/region_mean", "sample/staleness_mean", "learning_rate"],
    "verl": ["actor/entropy", "actor/pg_loss", "actor/ppo_kl", "critic/score/mean", "response_length/mean"],
    "openrlhf": [
        "train/rollout/reward_mean",
        "train/ppo_clip_ratio",
        "train/actor_grad_norm",
        "train/kl",
        "train/actor_lr",
    ],
    "skyrl": ["reward/avg_raw_reward", "policy/policy_entropy", "policy/policy_kl", "generate/avg_num_tokens"],
    "prime_rl": ["entropy/all/mean", "mismatch_kl/all/mean", "is_masked/mean", "optim/lr", "optim/grad_norm"],
    "slime": ["rollout/raw_reward", "rollout/response_len/mean", "rollout/rewards"],
    "nemo_rl": ["train/reward", "train/token_mult_prob_error", "train/gen_kl_error", "train/loss", "train/lr"],
    "areal": ["ppo_actor/task_reward/avg", "ppo_actor/update/entropy/avg", "ppo_actor/update/lr"],
    "tinker_cookbook": ["env/all/reward/total", "optim/kl_sample_train_v1", "optim/entropy", "optim/lr", "progress/batch"],
    "open_instruct": ["scores", "val/sequence_lengths", "debug/vllm_vs_local_logprob_diff_mean", "lr", "loss/policy_avg"],
    "roll": ["critic/score/mean", "actor/approxkl", "actor/ratio_max", "token/response_length/mean", "actor/lr"],
    "stable_baselines3": ["rollout/ep_rew_mean", "rollout/ep_len_mean", "train/approx_kl", "train/loss", "time/fps"],
    "cleanrl": ["charts/episodic_return", "losses/approx_kl", "losses/entropy", "charts/learning_rate"],
    "rllib": ["env_runners/episode_return_mean", "learners/default_policy/entropy", "learners/default_policy/mean_kl_loss"],
    "verl_prometheus": ["rl_insight_monitor_training_global_step", "rl_insight_monitor_actor_entropy"],
    "generic": ["reward", "loss", "kl", "entropy"],
}


def test_the_frameworks_there_are() -> None:
    """Each framework has a file, and every file loads without a problem."""
    assert {name.split("/")[0] for name in load_profiles()} == FRAMEWORKS


def test_the_metrics_that_profiles_may_map_are_in_the_catalogue() -> None:
    """A profile maps to nothing that the catalogue of metrics does not describe."""
    assert set(METRICS) - set(load_catalogue().metrics) <= {"value_loss"}


@pytest.mark.parametrize("name", sorted(load_profiles()))
def test_a_profile_speaks_of_what_exists(name: str) -> None:
    """Metrics and facts are canonical, transforms plain data, and a title and a version are given."""
    profile = load_profiles()[name]
    assert set(profile.metrics) <= set(METRICS) and set(profile.not_logged) <= set(METRICS)
    assert set(profile.config) | set(profile.logged) <= {*FACTS, *KINDS}
    assert set(profile.facts) <= {*FACTS, *KINDS}
    assert profile.title and (profile.read_from or name == "generic")
    assert "/" in name or profile.detect


@pytest.mark.parametrize("name", sorted(set(load_profiles()) - {"generic"}))
def test_every_profile_says_what_it_was_verified_against(name: str) -> None:
    """A package or repository, its version or commit, the day, and whether rows of real runs or the source told."""
    at = load_profiles()[name].verified
    assert bool(at.get("package")) != bool(at.get("repository")) and bool(at.get("version")) != bool(at.get("commit"))
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", at["date"]) and at["how"] in ("source", "run")
    shown = details(load_profiles()[name])
    assert shown["verified"] == dict(at) and verification(load_profiles()[name])


def test_only_what_real_runs_are_tested_with_says_so() -> None:
    """`how: run` is for frameworks that the tests of the hooks train with."""
    trained = {name for name, profile in load_profiles().items() if profile.verified.get("how") == "run"}
    assert trained == {"trl", "trl/grpo", "trl/rloo", "stable_baselines3"}


@pytest.mark.parametrize("name", sorted(name for name in load_profiles() if "/" not in name and name != "generic"))
def test_all_names_of_a_profile_are_its_own(name: str) -> None:
    """A log that holds every name a profile maps is read with that profile, whatever it shares with others."""
    from rltriage.engine.intake import decide

    profile = load_profiles()[name]
    natives = [source.native for sources in profile.metrics.values() for source in sources] + list(profile.detect)
    chosen = decide([dict.fromkeys((native.replace("*", "x").replace("+", "x") for native in natives), 1.0)])
    assert chosen is not None and chosen.name == name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_frameworks_are_told_apart_by_their_names(name: str) -> None:
    """The names that a framework logs score highest with its own profile, over the threshold."""
    from rltriage.engine.intake import decide

    chosen = decide([dict.fromkeys(NAMES[name], 1.0)])
    assert chosen is not None and chosen.name == name


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"generic"}))
def test_no_framework_is_taken_for_another_even_with_prefixes(name: str) -> None:
    """Half of a framework's names never make another framework win."""
    from rltriage.engine.intake import decide

    for half in (NAMES[name][::2], NAMES[name][1::2]):
        chosen = decide([dict.fromkeys(half, 1.0)])
        assert chosen is None or chosen.name.split("/")[0] in (name.split("/")[0], "generic")


@pytest.mark.parametrize(
    ("pattern", "name", "holds"),
    [
        ("a/b", "a/b", True),
        ("a/*/c", "a/b/x/c", True),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a.b", "axb", False),
        ("val-core/*/acc/mean@*", "val-core/openai/gsm8k/acc/mean@8", True),
        ("*_reward", "mean_reward_x", False),
    ],
)
def test_patterns(pattern: str, name: str, holds: bool) -> None:
    """`*` matches anything, `+` anything without a slash, the rest is literal."""
    assert match(pattern, name) is holds


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("profile: x\nmetrics: {rewrad: a}", "'rewrad' is no canonical metric", (2, 11)),
        ("profile: x\nmetrics: {reward: {frm: a}}", "needs a native name", (2, 11)),
        ("profile: x\nmetrics: {reward: {from: a, reduce: best}}", "cannot reduce by 'best'", (2, 29)),
        ("profile: x\nmetrics: {reward: {from: a, times: 2}}", "unknown key 'times'", (2, 29)),
        ("profile: x\nmetrics: {reward: {from: a, scale: big}}", "'big' is no number", (2, 29)),
        ("profile: x\nmetrics: 3", "metrics must be a mapping", (2, 1)),
        ("profile: x\nnotes: 3", "notes must be a list", (2, 1)),
        ("profile: x\nvariants: [y]", "variants must map names", (2, 1)),
        ("profile: x\nvariants:\n  y: {metrics: {rewrad: a}}", "'rewrad' is no canonical metric", (3, 17)),
        ("profile: x\nconfig: {kl_coeff: beta}", "'kl_coeff' is no config fact", (2, 10)),
        ("profile: x\nconfig: {kl_coef: 3}", "needs a config key", (2, 10)),
        ("profile: x\nvariant: {}", "unknown key 'variant'", (2, 1)),
        ("profile: x\nverified: {pakage: x}", "unknown key 'pakage'", (2, 12)),
        ("profile: x\nundefined: a", "undefined must be a list", (2, 1)),
        ("profile: x\ntitle: [y]", "title must be text", (2, 1)),
        ("profile: x\naxis: {}", "axis must be text", (2, 1)),
        ("profile: x\nstep_keys: [[a]]", "step_keys must be a name or a list of names", (2, 1)),
        ("profile: x\nstrip: [3]", "strip must be a name or a list of names", (2, 1)),
        ("profile: x\nlogged: {lr: [true]}", "lr must be a name or a list of names", (2, 10)),
        ("profile: x\nmetrics: {reward: {from: a, divide_by: [b]}}", "divide_by must be a name", (2, 29)),
        ("profile: x\nmetrics: {reward: {from: a, beside: 3}}", "beside must be a name", (2, 29)),
        ("profile: x\nconfig: {kl_coef: {product: [[a]]}}", "product must be a name or a list of names", (2, 20)),
        ("profile: x\nconfig: {kl_coef: {key: a, divide_by: 3}}", "divide_by must be a name or a list of names", (2, 28)),
        ("profile: x\nconfig: {kl_coef: {key: a, divide_by: [b, c]}}", "more keys than product", (2, 28)),
        ("profile: x\nconfig: {kl_coef: {lookup: [a]}}", "lookup must be a name", (2, 20)),
        ("profile: x\nconfig: {kl_coef: {lookup: a, values: [b]}}", "values must be a mapping", (2, 31)),
        ("metrics: {}", "a profile is a mapping", (1, 1)),
        ("profile: x\nprofile: y", "", (2, 1)),
    ],
)
def test_mistakes_are_problems_at_their_place(text: str, message: str, place: tuple[int, int]) -> None:
    """Every mistake is one problem with file, line and column; nothing is raised."""
    problems: list[Problem] = []
    parse_profile(text, "x.yaml", problems)
    assert len(problems) == 1 and message in problems[0].message
    assert (problems[0].mark.path, problems[0].mark.line, problems[0].mark.column) == ("x.yaml", *place)


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    """A user's file is a profile like the shipped ones; mistakes in it are raised together, with their places."""
    path = tmp_path / "mine.yaml"
    path.write_text("profile: mine\nmetrics: {pass_rate: reward/f, reward: {from: r, scale: 1e-2}}\n")
    profile = load_profile(path)
    assert profile.name == "mine" and profile.metrics["reward"][0].scale == 0.01
    path.write_text("profile: mine\nmetrics: {rewrad: a}\nconfig: {kl: b}\n")
    with pytest.raises(RulePackError) as caught:
        load_profile(path)
    assert len(caught.value.problems) == 2
    with pytest.raises(RulePackError):
        load_profile(tmp_path / "none.yaml")


def test_a_variant_lies_over_its_profile() -> None:
    """A variant changes what it names, removes what it sets to null and keeps the rest."""
    text = "profile: x\nmetrics: {reward: a, loss: b, lr: c}\nvariants: {y: {metrics: {loss: null, lr: d}}}"
    base, variant = parse_profile(text, "x.yaml", [])
    names: dict[str, Any] = {metric: sources[0].native for metric, sources in variant.metrics.items()}
    assert variant.name == "x/y" and names == {"reward": "a", "lr": "d"} and len(base.metrics) == 3


def test_listing_and_details_are_plain_data() -> None:
    """What `profiles list` and `profiles show` print."""
    assert [entry["profile"] for entry in listing()] == list(load_profiles())
    shown = details(load_profiles()["tinker_cookbook"])
    assert shown["metrics"]["zero_adv_frac"] == ["1 - env/all/by_group/frac_mixed"]
    assert details(load_profiles()["nemo_rl"])["metrics"]["logp_gap"] == ["token_mult_prob_error - 1"]
    assert details(load_profiles()["verl"])["config"]["updates_per_batch"] == [
        "ppo_epochs * train_batch_size / ppo_mini_batch_size"
    ]


def test_what_a_framework_cannot_log_is_not_counted() -> None:
    """A name that only a fork logs is mapped but not promised; what follows exactly is."""
    assert "approx_kl" not in logged_metrics(load_profiles()["trl"])
    assert "adv_abs_max" in logged_metrics(load_profiles()["verl"])


def test_one_logged_alternative_is_enough() -> None:
    """A rule that can speak through either of two metrics can be judged where one is logged; one that needs both cannot."""
    rule = Rule("x", "", "outcome", "info", when=_threshold("length"), suspects={}, first_test="")
    either = replace(rule, when=Any_((_threshold("length"), _threshold("ratio_max"))))
    both = replace(rule, when=All((_threshold("length"), _threshold("ratio_max"))))
    assert [can_judge(load_profiles()["verl"], one) for one in (rule, either, both)] == [True, True, False]


def _threshold(metric: str) -> Threshold:
    return Threshold(metric=metric, above=number(1.0))
