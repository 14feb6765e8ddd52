"""docs/hooks.md: every option and every part of a watched run is on it."""

from __future__ import annotations

from pathlib import Path

from rltriage.arguments import WatchOptions
from rltriage.watched import Watch

PAGE_FOLDER = Path(__file__).parents[2] / "docs"
PAGE = (PAGE_FOLDER / "hooks.md").read_text()


def test_the_page_has_every_option() -> None:
    """An option that is not documented is not found."""
    for name in WatchOptions.__annotations__:
        assert f"\n| `{name}` |" in PAGE


def test_the_page_has_every_part_of_a_run() -> None:
    """What a watched run offers, methods and properties."""
    public = [name for name in vars(Watch) if not name.startswith("_")]
    for name in (*public, "should_stop", "path"):
        assert f"`run.{name}" in PAGE


def test_the_readme_shows_what_its_loop_prints(read_blocks, tmp_path, capfd, monkeypatch) -> None:
    """The block behind the own loop of the README is what that loop writes on stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    blocks = read_blocks(PAGE_FOLDER.parent / "README.md")
    place = next(at for at, block in enumerate(blocks) if "rltriage.watch(" in block.text and "run" in block.words)
    exec(compile(blocks[place].text, "README.md", "exec"), {"__name__": "__main__"})
    assert capfd.readouterr().err.strip() == blocks[place + 1].text.strip()
