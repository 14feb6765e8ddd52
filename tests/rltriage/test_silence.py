"""`rltriage silence` and the service that heeds it."""

import json

import pytest


@pytest.fixture
def state(tmp_path):
    """A state folder that does not exist yet."""
    return tmp_path / "state"


def test_a_silence_is_made_listed_and_ended(rltriage, state):
    """The short form adds; `end` takes the same words."""
    made = rltriage("silence", "grpo-*", "kl-*", "--for", "30m", "--why", "new reference", "--state", state)
    assert made.code == 0 and made.out.startswith("grpo-* kl-* until ") and made.out.endswith("UTC: new reference\n")
    (listed,) = map(json.loads, rltriage("silence", "list", "--json", "--state", state).out.splitlines())
    assert listed["until"] - listed["created"] == 1800 and listed["why"] == "new reference"
    assert rltriage("silence", "end", "grpo-*", "kl-*", "--state", state).out == "grpo-* kl-* is no longer silenced\n"
    assert rltriage("silence", "list", "--state", state).out == "nothing is silenced\n"


def test_an_acknowledgement_has_no_time(rltriage, state):
    """Options may stand first; the state folder can be named by the service's configuration."""
    file = state.parent / "rltriage.yaml"
    file.write_text("version: 1\nstate_dir: state\nsources: []\n")
    assert rltriage("silence", "--ack", "r1", "*", "--file", file).out == "r1 * until the alert ends\n"
    assert json.loads(rltriage("silence", "list", "--json", "--state", state).out)["until"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["r1", "x", "--for", "soon"], "30m, 2h or 3d"),
        (["r1", "x", "--for", "0h"], "30m, 2h or 3d"),
        (["r1", "x", "--for", "1h", "--ack"], "leave out --for"),
        (["r1"], "RULE"),
        (["end", "r1", "x"], "rltriage silence list"),
    ],
)
def test_a_mistake_is_said_with_what_to_write(rltriage, state, arguments, words):
    """Exit code 2 and one message."""
    ran = rltriage("silence", *arguments, "--state", state)
    assert ran.code == 2 and words in ran.err


def test_the_state_folder_must_be_named(rltriage, tmp_path, monkeypatch):
    """Without a rltriage.yaml here, nothing says which service is meant."""
    monkeypatch.chdir(tmp_path)
    ran = rltriage("silence", "list")
    assert ran.code == 2 and "--state DIR" in ran.err


def test_a_rule_that_is_not_shipped_is_pointed_out(rltriage, state):
    """A misspelt rule keeps nothing back; it may be one's own, so the silence is made all the same."""
    ran = rltriage("silence", "r1", "kl-ref-exactly-zer", "--state", state)
    assert ran.code == 0 and "did you mean 'kl-ref-exactly-zero'?" in ran.err
    assert rltriage("silence", "r1", "kl-*", "--state", state).err == ""
