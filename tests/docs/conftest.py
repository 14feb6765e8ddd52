"""Pages, their fenced blocks, and a runner that shows what a terminal would show."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words behind it (`pack`, `file=NAME`) and where it stands."""

    place: str
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The name under which the page tells the reader to save it."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)

    @property
    def kind(self) -> str:
        """What a YAML block is: pack, tests, config, ..."""
        return next((word for word in self.words if "=" not in word), "")


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(f"{page.relative_to(ROOT)}:{line}", language, tuple(words), match["text"]))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `page` runs once a page."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


class Terminal:
    """Runs the few commands that a console block may hold, inside this process, and shows what a user would see."""

    def __init__(self) -> None:
        self.status = 0

    def run(self, line: str) -> str:
        """What `line` prints on stdout and stderr, in order."""
        if line == "echo $?":
            return f"{self.status}\n"
        words = shlex.split(line)
        if words[0] == "cat":
            return "".join(Path(name).read_text(encoding="utf-8") for name in words[1:])
        assert words[0] == "rltriage", f"console blocks run rltriage, cat and echo $?, not {line!r}: use a sh block"
        return self._rltriage(words)

    def _rltriage(self, words: list[str]) -> str:
        from rltriage.cli import main

        shown, before = io.StringIO(), sys.argv
        sys.argv = words
        try:
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                main()
        except SystemExit as stop:
            self.status = int(stop.code or 0)
        finally:
            sys.argv = before
        return shown.getvalue()


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal of 100 columns in an empty folder that holds what a clone holds for the pages' commands."""
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    yield Terminal()


@pytest.fixture(scope="session")
def read_blocks():
    """The function that reads a page's blocks: test modules cannot import from here."""
    return blocks
