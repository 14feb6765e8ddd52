"""Hostile input for everything that reads something: no crash, no hang, no traceback. `make fuzz`

    python benchmarks/fuzz.py [TARGET...] [--seconds 60] [--seed 0]

Each target turns bytes into one kind of input, as files, rows, answers or requests, and fails on any exception besides the
project's own errors, on SECONDS of processor time and on BYTES of memory for one input. Variants of shipped files come from
`hostile.py`; with Atheris installed they are guided by the code that they reach, each target in a process of its own.
What is found is kept in .cache/fuzz and told once a place, and the exit code is 1. The tests run every target briefly.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import hostile

ROOT = Path(__file__).parents[1]
FINDS = ROOT / ".cache" / "fuzz"
ATHERIS = importlib.util.find_spec("atheris") is not None
HANG_SECONDS = 60
"""Of the clock, for what no signal ends, such as a regular expression that runs in C without looking up."""


def main() -> int:
    """Every named target for so many seconds, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="one of those that fuzz_targets.py holds; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the variants (default: 0)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        return _here(given.targets[0], given.seconds, given.seed)
    known = _names()
    if unknown := [name for name in given.targets if name not in known]:
        parser.error(f"there is no target {unknown[0]}: choose from {', '.join(known)}")
    print("guided by coverage" if ATHERIS else "by chance alone: `pip install 'atheris>=3,<4'` for coverage", flush=True)
    failed = False
    for name in given.targets or known:
        command = [sys.executable, __file__, name, "--here", f"--seconds={given.seconds}", f"--seed={given.seed}"]
        failed |= subprocess.run(command, check=False).returncode != 0
        failed |= any((FINDS / name).glob("find-*"))
    return int(failed)


def _names() -> list[str]:
    from fuzz_targets import TARGETS

    return list(TARGETS)


class Finds:
    """What went wrong, each place in the code once, with the input that showed it."""

    def __init__(self, target: str) -> None:
        self.folder = FINDS / target
        self.folder.mkdir(parents=True, exist_ok=True)
        self.inputs = 0

    def run(self, judge: Callable[[bytes], None], data: bytes) -> None:
        """Judge one input."""
        self.inputs += 1
        try:
            judge(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            place = [f"{frame.filename}:{frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
            ours = [at for at in place if "rltriage" in at or str(ROOT) in at][-2:]
            key = hashlib.sha256(f"{type(error).__name__} {ours}".encode()).hexdigest()[:12]
            file = self.folder / f"find-{key}"
            if not file.exists():
                file.write_bytes(data)
                told = "".join(traceback.format_exception(error, limit=-6))
                file.with_suffix(".txt").write_text(told, encoding="utf-8", errors="backslashreplace")
                print(f"{self.folder.name}: {file.relative_to(ROOT)}\n{told[-1500:]}", file=sys.stderr, flush=True)


def _here(name: str, seconds: int, seed: int) -> int:
    """One target in this process; Atheris ends it."""
    if ATHERIS:
        import atheris

        with atheris.instrument_imports(include=["rltriage"]):
            from fuzz_targets import TARGETS, bounded
    else:
        from fuzz_targets import TARGETS, bounded
    with tempfile.TemporaryDirectory(prefix="rltriage-fuzz-") as folder:
        target, finds = TARGETS[name](Path(folder)), Finds(name)
        judge = bounded(target.judge)
        begun = time.monotonic()
        draw = random.Random(seed)
        first = [*target.seeds, *(hostile.variant(draw, target.seeds) for _ in range(200))]
        for data in first:
            finds.run(judge, data)
        if not ATHERIS:
            while time.monotonic() - begun < seconds:
                finds.run(judge, hostile.variant(draw, target.seeds))
            print(json.dumps({"target": name, "inputs": finds.inputs, "seconds": round(time.monotonic() - begun)}), flush=True)
            return 0
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(first):
            (corpus / str(number)).write_bytes(data)

        def mutated(data: bytes, size: int, number: int) -> bytes:
            if number % 2:
                return bytes(atheris.Mutate(data, size))
            return hostile.changed(data, size, number)

        arguments = [name, str(corpus), f"-max_total_time={seconds}", f"-seed={seed + 1}", f"-timeout={HANG_SECONDS}",
                     f"-max_len={hostile.MAX_BYTES}", "-rss_limit_mb=6000", f"-artifact_prefix={finds.folder}/find-",
                     "-verbosity=0", "-print_final_stats=1"]  # fmt: skip
        atheris.Setup(arguments, lambda data: finds.run(judge, data), custom_mutator=mutated)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
