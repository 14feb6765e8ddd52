"""TinyAgent: tasks, calls, verdicts, token owners."""

import pytest

from rltriage.trainer.gym import VOCABULARY, Episode, Owner, Task, decode, encode, make_tasks

TASK = Task("f07", "m2", current=1, answer=3)


def play(*calls, task=TASK, **settings):
    """An episode after the given calls, with the observation of each."""
    episode, seen = Episode(task, **settings), []
    for call in calls:
        for token in encode(call):
            episode.policy_token(token, -0.5)
        start = len(episode.ids)
        while episode.pending:
            episode.environment_token()
        seen.append(decode(episode.ids[start:]))
    return episode, seen


def call(body):
    """A well-formed call."""
    return f"<call> {body} </call>"


def test_the_vocabulary_and_the_splits_have_the_declared_sizes():
    """62 tokens; 20 training and 10 held-out tasks with balanced answers, 30 % vague, no name in both."""
    train, heldout = make_tasks("train"), make_tasks("heldout")
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 62
    for tasks, size in ((train, 20), (heldout, 10)):
        assert len(tasks) == size and sum(t.vague for t in tasks) == 0.3 * size
        assert sorted(t.answer for t in tasks) == sorted(list(range(5)) * (size // 5))
        assert all(t.current != t.answer for t in tasks)
    assert not {t.name for t in train} & {t.name for t in heldout}
    assert train == make_tasks("train")
    with pytest.raises(ValueError, match="write 'train' or 'heldout'"):
        make_tasks("test")


def test_reading_and_fixing_passes():
    """The observation names the current and the expected value; no observation follows the submit."""
    episode, seen = play(call("read"), call("edit v3"), call("test"), call("submit"))
    assert seen == ["<obs> line v1 expected v3 </obs>", "<obs> ok </obs>", "<obs> pass </obs>", ""]
    assert episode.done and episode.hidden_pass and episode.reward == 1.0 and episode.turns == 4
    assert episode.operations == ["read", "edit", "test", "submit"] and episode.malformed == 0


def test_a_vague_task_does_not_say_what_is_expected():
    """Reading cannot help there: the plateau of the gym."""
    assert play(call("read"), task=Task("f00", "m0", 1, 3, vague=True))[1] == ["<obs> unclear </obs>"]


def test_the_last_edit_counts_and_must_be_submitted():
    """The verifier looks at what was submitted."""
    assert not play(call("edit v3"), call("edit v0"), call("submit"))[0].hidden_pass
    assert not play(call("edit v3"))[0].hidden_pass


def test_hard_coding_fools_the_public_verifier_only():
    """Public tests pass, hidden ones do not; the reward follows the verifier that pays."""
    calls = (call("hardcode_tests"), call("test"), call("submit"))
    hidden, seen = play(*calls)
    public, _ = play(*calls, reward_kind="public")
    assert seen[1] == "<obs> pass </obs>" and hidden.hardcoded
    assert (hidden.reward, public.reward, public.hidden_pass) == (0.0, 1.0, False)


@pytest.mark.parametrize(
    "text",
    [
        *("read </call>", "<call> </call>", "<call> edit </call>", "<call> read v1 </call>", "<call> edit m1 </call>"),
        *("<call> edit v1 v2 </call>", "<call> v1 </call>", "</call>", "read read read read read read"),
    ],
)
def test_anything_else_is_malformed_and_answered_by_an_error(text):
    """It costs a turn and counts once."""
    episode, seen = play(text)
    assert seen == ["<obs> error </obs>"] and episode.malformed == 1 and episode.turns == 1 and not episode.operations


def test_the_turn_budget_ends_an_episode_on_a_policy_token():
    """No observation follows the last turn."""
    episode, _ = play(*[call("read")] * 2, max_turns=2)
    assert episode.done and not episode.submitted and episode.owners[-1] is Owner.POLICY


def test_every_token_has_an_owner_and_a_log_probability():
    """Policy tokens carry the sampler's record, all others the placeholder 0."""
    episode, _ = play(call("read"), call("submit"))
    assert len(episode.ids) == len(episode.owners) == len(episode.logps)
    assert {logp for owner, logp in zip(episode.owners, episode.logps, strict=True) if owner is Owner.POLICY} == {-0.5}
    assert {logp for owner, logp in zip(episode.owners, episode.logps, strict=True) if owner is not Owner.POLICY} == {0.0}
    assert episode.length == 6 and episode.owners[:7] == [Owner.PROMPT] * 7
