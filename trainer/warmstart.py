"""Build the base policy: `python -m rltriage.trainer.warmstart [OUT]`. Supervised on demonstrations, bit-reproducible.

Stage 1 teaches the mechanics (read, then edit to the expected value: without it the policy never learns to copy a value).
Stage 2 teaches the habits of a mediocre agent: it mostly guesses, seldom reads, sometimes wanders until its budget ends.
That leaves GRPO everything to gain: about .2 of episodes pass, and reading is rare but known. The held-out tasks' names
never appear. Numbers and their reasons: DESIGN section 7; the shipped file was chosen over seeds (docs/chapter.md).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from rltriage.trainer.gym import MODULES, NAMES, OPERATIONS, Episode, Task, encode
from rltriage.trainer.losses import masked_mean, token_logps
from rltriage.trainer.policy import CHECKPOINT, Policy
from rltriage.trainer.sampling import collate

BATCH, STEPS, DEMONSTRATIONS = 48, 250, 2000
SEED = 1  # of the shipped base


@dataclass(frozen=True, slots=True)
class Habits:
    """Probabilities of what a demonstrator does; each is per episode or per opportunity."""

    read: float  # opens with a read
    use: float = 1.0  # acts on what it read, else reads again
    wander: float = 0.0  # never gets to the point: calls without an aim, mostly the same one again
    hardcode: float = 0.0
    test: float = 0.0  # tests after an edit
    retry: float = 0.0  # edits again after a failed test
    hasty: float = 0.0  # edits again, blindly, without a test
    slip: float = 0.0  # malforms a call
    stop_wandering: float = 0.0  # submits after a call without an aim
    repeat: float = 0.0  # makes the same aimless call again
    turns: int = 12


MECHANICS = Habits(read=0.7)
MEDIOCRE = Habits(
    read=0.14,
    use=0.7,
    wander=0.2,
    hardcode=0.06,
    test=0.6,
    retry=0.04,
    hasty=0.25,
    slip=0.008,
    stop_wandering=0.15,
    repeat=0.8,
)


def practice_task(rng: random.Random) -> Task:
    """A training task's name with a random bug: names carry no answer, so only reading pays."""
    current, answer = rng.sample(range(5), 2)
    return Task(rng.choice(NAMES[:20]), rng.choice(MODULES), current, answer, rng.random() < 0.3)


def guess(rng: random.Random) -> str:
    return f"edit v{rng.randrange(5)}"


def calls(task: Task, habits: Habits, rng: random.Random) -> Iterator[str]:
    """The calls of one demonstration, without its slips; the episode's budget may cut it."""
    kind = rng.random()
    if kind < habits.wander:
        aimless = ""
        while not aimless or rng.random() >= habits.stop_wandering:
            if not aimless or rng.random() >= habits.repeat:
                aimless = rng.choice(("read", "test", guess(rng)))
            yield aimless
        yield "submit"
        return
    if kind < habits.wander + habits.hardcode:
        yield "hardcode_tests"
        yield "submit"
        return
    known = rng.random() < habits.read
    if known:
        yield "read"
        while rng.random() >= habits.use:
            yield "read"
    edit = f"edit v{task.answer}" if known and not task.vague else guess(rng)
    yield edit
    if rng.random() < habits.hasty:
        yield (edit := guess(rng))
    while rng.random() < habits.test:
        yield "test"
        if edit == f"edit v{task.answer}" or rng.random() >= habits.retry:
            break
        yield (edit := guess(rng))
    yield "submit"


def slip(call: str, rng: random.Random) -> str:
    """A malformed version of a call."""
    return rng.choice((f"{call} {rng.choice(OPERATIONS)}", "edit", f"read v{rng.randrange(5)}", f"v{rng.randrange(5)}"))


def demonstration(habits: Habits, rng: random.Random) -> Episode:
    """One scripted episode on a practice task."""
    task = practice_task(rng)
    episode = Episode(task, habits.turns)
    for call in calls(task, habits, rng):
        words = slip(call, rng) if rng.random() < habits.slip else call
        for token in encode(f"<call> {words} </call>"):
            episode.policy_token(token, 0.0)
        if episode.done:
            break
        while episode.pending:
            episode.environment_token()
    return episode


def fit(policy: Policy, habits: Habits, lr: float, rng: random.Random, progress: bool = False) -> None:
    """Train `policy` in place on the policy tokens of demonstrations."""
    shown = [demonstration(habits, rng) for _ in range(DEMONSTRATIONS)]
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    for step in range(STEPS):
        batch = collate(rng.sample(shown, BATCH))
        loss = masked_mean(-token_logps(policy(batch.ids)[:, :-1], batch.ids), batch.mask)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if progress and step % 50 == 49:
            print(f"step {step + 1}/{STEPS}  loss {loss.item():.4f}", file=sys.stderr)


def build(seed: int = SEED, mediocre: Habits = MEDIOCRE, progress: bool = False) -> Policy:
    """The base policy of a seed. The same seed and thread count give the same bits."""
    rng = random.Random(f"warm start {seed}")
    policy = Policy(seed)
    fit(policy, MECHANICS, 3e-3, rng, progress)
    fit(policy, mediocre, 2e-3, rng, progress)
    return policy


def main() -> None:
    """Write the checkpoint to the path given, by default over the shipped one."""
    from safetensors.torch import save_file

    parser = argparse.ArgumentParser(description="Rebuild the base policy of the reference trainer.")
    parser.add_argument("out", nargs="?", type=Path, default=CHECKPOINT)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = build(options.seed, progress=True)
    partial = options.out.with_suffix(".partial")
    save_file(policy.state_dict(), partial)
    os.replace(partial, options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
