"""Hostile input for everything that reads something: no crash, no hang, no traceback. `make fuzz`

    python benchmarks/fuzz.py [TARGET...] [--seconds 60] [--seed 0]

Each target (`fuzzing/targets.py`) turns bytes into one kind of input: files, rows, answers or requests. It fails on any
exception besides the project's own errors, on one that is only logged, and on too much processor time or memory. Variants
of valid input come from `fuzzing/hostile.py`; with Atheris installed they are guided by the code that they reach. Each
target has a process of its own. What is found is kept in .cache/fuzz, told once a place, and the exit code is 1. What was
kept before is judged again first, each in a process of its own; what does not fail any more is deleted, and that is said.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzing import hostile

ROOT = Path(__file__).parents[1]
FINDS = ROOT / ".cache" / "fuzz"
ATHERIS = importlib.util.find_spec("atheris") is not None
HANG_SECONDS = 60
"""Of the clock, for what no signal ends: work in C that does not look up."""
FIRST = 200
"""Variants that coverage begins with, besides the seeds."""


def main() -> int:
    """Every named target for so many seconds, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all in fuzzing/targets.py")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the variants (default: 0)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--again", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.again:
        return _again(given.targets[0], given.again)
    if given.here:
        return _here(given.targets[0], given.seconds, given.seed)
    from fuzzing.targets import TARGETS

    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]}: choose from {', '.join(TARGETS)}")
    print("guided by coverage" if ATHERIS else "by chance alone: `pip install 'atheris>=3,<4'` guides it", flush=True)
    failed = False
    for name in given.targets or TARGETS:
        judge_again(name)
        command = [sys.executable, __file__, name, "--here", f"--seconds={given.seconds}", f"--seed={given.seed}"]
        failed |= subprocess.run(command, check=False).returncode != 0
        failed |= bool(kept(name))
    return int(failed)


def kept(target: str) -> list[Path]:
    """The inputs that failed, each beside a text that says how."""
    return sorted(file for file in (FINDS / target).glob("find-*") if file.suffix != ".txt")


def judge_again(target: str) -> None:
    """Delete what was kept and does not fail any more. In other processes: what was kept may hang, or end them."""
    for file in kept(target):
        command = [sys.executable, __file__, target, f"--again={file}"]
        try:
            fails = subprocess.run(command, check=False, timeout=HANG_SECONDS).returncode != 0
        except subprocess.TimeoutExpired:
            fails = True
        if not fails:
            file.unlink()
            file.with_suffix(".txt").unlink(missing_ok=True)
        print(f"{target}: {file.name} {'still fails' if fails else 'does not fail any more: deleted'}", flush=True)


class Finds:
    """What went wrong, each place in the code once, with the input that showed it; and how many inputs there were."""

    def __init__(self, target: str) -> None:
        self.folder = FINDS / target
        self.folder.mkdir(parents=True, exist_ok=True)
        self._target = target
        self._inputs = 0
        self._begun = self._told = time.monotonic()

    def run(self, judge: Callable[[bytes], None], data: bytes) -> None:
        """Judge one input."""
        self._inputs += 1
        try:
            judge(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._keep(error, data)
        if time.monotonic() - self._told > 5:
            self.tell()

    def tell(self) -> None:
        """Say how far it is; Atheris ends a process without a word."""
        self._told = time.monotonic()
        found = len(list(self.folder.glob("find-*.txt")))
        print(f"{self._target}: {self._inputs} inputs in {self._told - self._begun:.0f} s, {found} finds", flush=True)

    def _keep(self, error: BaseException, data: bytes) -> None:
        frames = [f"{frame.filename}:{frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
        ours = [frame for frame in frames if str(ROOT) in frame][-2:]
        file = self.folder / f"find-{hashlib.sha256(f'{type(error).__name__} {ours}'.encode()).hexdigest()[:12]}"
        if file.exists():
            return
        file.write_bytes(data)
        told = "".join(traceback.format_exception(error, limit=-6))
        file.with_suffix(".txt").write_text(told, encoding="utf-8", errors="backslashreplace")
        print(f"{self._target}: {file.relative_to(ROOT)}\n{told[-1500:]}", file=sys.stderr, flush=True)


def _again(name: str, file: Path) -> int:
    """One input that was kept: it ends with a traceback where it still fails."""
    from fuzzing.bounds import bounded
    from fuzzing.targets import TARGETS

    with tempfile.TemporaryDirectory(prefix="rltriage-fuzz-") as folder:
        bounded(TARGETS[name](Path(folder)).judge)(file.read_bytes())
    return 0


def _here(name: str, seconds: int, seed: int) -> int:
    """One target in this process."""
    if ATHERIS:
        import atheris

        with atheris.instrument_imports(include=["rltriage"]):
            from fuzzing.bounds import bounded
            from fuzzing.targets import TARGETS
    else:
        from fuzzing.bounds import bounded
        from fuzzing.targets import TARGETS
    with tempfile.TemporaryDirectory(prefix="rltriage-fuzz-") as folder:
        target, finds, draw = TARGETS[name](Path(folder)), Finds(name), random.Random(seed)
        judge = bounded(target.judge)
        first = [*target.seeds, *(hostile.variant(draw, target.seeds) for _ in range(FIRST))]
        for data in first:
            finds.run(judge, data)
        if ATHERIS:
            _guided(
                atheris, Path(folder) / "corpus", first, lambda data: finds.run(judge, data), finds.folder, seconds, seed
            )
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            finds.run(judge, hostile.variant(draw, target.seeds))
        finds.tell()
    return 0


def _guided(
    atheris: Any, corpus: Path, first: list[bytes], one: Callable[[bytes], None], kept: Path, seconds: int, seed: int
) -> None:
    """Let Atheris choose: it ends the process. Every second variant is one of its own."""
    corpus.mkdir()
    for number, data in enumerate(first):
        (corpus / str(number)).write_bytes(data)

    def mutated(data: bytes, size: int, number: int) -> bytes:
        return bytes(atheris.Mutate(data, size)) if number % 2 else hostile.variant(random.Random(number), [data])[:size]

    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={HANG_SECONDS}",
        f"-report_slow_units={HANG_SECONDS}",  # the judge counts processor time: a busy machine makes no find
        f"-max_len={hostile.MAX_BYTES}",
        "-rss_limit_mb=6000",
    ]
    options = [f"-seed={seed + 1}", f"-artifact_prefix={kept}/find-", "-verbosity=0"]
    atheris.Setup([__file__, str(corpus), *limits, *options], one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
