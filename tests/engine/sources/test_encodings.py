"""What surrounds the rows of a log: encodings, packing, containers, launchers, ranks, garbage."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import random
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.engine.feed import Feed, check
from rltriage.engine.sources import open_source
from rltriage.engine.sources.base import to_float, to_step
from rltriage.engine.sources.console import clean
from rltriage.engine.sources.tail import Tail
from rltriage.rules.errors import SourceError

ROWS = [{"step": step, "reward": step / 8, "loss": 0.5, "näme": 1.0} for step in range(6)]
TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def steps(path: Path) -> list[int]:
    return [row.step for _, row in Feed(open_source(str(path)), "run").rows()]


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.encode("utf-16"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"),
        TEXT.encode("latin-1"),
        TEXT.replace("\n", "\r\n").encode(),
        gzip.compress(TEXT.encode()),
        bz2.compress(TEXT.encode()),
        lzma.compress(TEXT.encode()),
        gzip.compress(TEXT.encode("utf-16")),
        gzip.compress(TEXT.encode("utf-32")),
    ],
    ids=[
        "mark",
        "utf-16",
        "utf-16 big",
        "utf-32",
        "utf-32 big",
        "latin-1",
        "crlf",
        "gzip",
        "bz2",
        "xz",
        "gzip of utf-16",
        "gzip of utf-32",
    ],
)
def test_every_row_is_read_however_it_is_encoded(tmp_path: Path, data: bytes) -> None:
    """No row is lost, the first neither, which a byte-order mark precedes."""
    path = tmp_path / "log"
    path.write_bytes(data)
    assert steps(path) == list(range(6))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_documents_and_tables_are_decoded_alike(tmp_path: Path, encoding: str) -> None:
    """A JSON document and a CSV table with a mark: the first column's name does not hold it."""
    (tmp_path / "a.json").write_bytes(json.dumps({"log_history": ROWS}).encode(encoding))
    (tmp_path / "a.csv").write_bytes("step,reward,loss\n1,0.5,0.5\n2,0.5,0.5\n".encode(encoding))
    assert steps(tmp_path / "a.json") == list(range(6)) and steps(tmp_path / "a.csv") == [1, 2]


@pytest.mark.parametrize("encoding", ["utf-32", "utf-16", "utf-8-sig", "utf-8"])
def test_a_followed_file_may_be_cut_anywhere(tmp_path: Path, encoding: str) -> None:
    """Half a character, half a mark: what is polled byte by byte is what is read whole."""
    path = tmp_path / "log"
    path.write_bytes(b"")
    tail = Tail(str(path), open_source.__globals__["SourceStats"]())
    seen = []
    with open(path, "ab", buffering=0) as file:
        for byte in TEXT.encode(encoding):
            file.write(bytes([byte]))
            seen += [line for _, line in tail.lines()]
    assert [json.loads(line) for line in seen] == ROWS


def test_a_packed_file_that_is_cut_off_gives_what_it_holds(tmp_path: Path) -> None:
    """A copy that was interrupted: rows up to there, and one counted problem that says so."""
    path = tmp_path / "log.gz"
    rows = "".join(json.dumps({"step": n, "reward": random.Random(n).random()}) + "\n" for n in range(5000))
    path.write_bytes(gzip.compress(rows.encode())[:-2000])
    source = open_source(str(path))
    assert 1000 < len(list(source.records())) < 5000
    assert any("damaged or cut off" in example.reason for example in source.stats.examples)


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bz2", "xz"])
@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_packed_file_that_is_damaged_from_its_start_is_not_called_empty(
    tmp_path: Path, packed: Callable[[bytes], bytes], damage: str
) -> None:
    """One short sentence: what is wrong, where, what to do; a packed file with nothing in it is empty."""
    path = tmp_path / "log"
    data = packed(TEXT.encode())
    path.write_bytes(data[:10] if damage == "cut" else data[:10] + b"\xff" * len(data))
    with pytest.raises(SourceError, match=r"cut off or damaged before its first line .*: copy or write it anew") as caught:
        open_source(str(path))
    assert len(str(caught.value)) < len(str(path)) + 300 and str(caught.value).isprintable()
    path.write_bytes(packed(b""))
    with pytest.raises(SourceError, match="the file is empty"):
        open_source(str(path))


def test_what_zstd_raises_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is none of Python's own; a stand-in for the reader, which this Python need not have."""

    class ZstdError(Exception):
        """As `compression.zstd` has it."""

    class Damaged(io.FileIO):
        """Rows, then damage."""

        def read1(self, size: int) -> bytes:
            if chunk := self.read(size):
                return chunk
            raise ZstdError("Data corruption detected")

    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    unpacked = tmp_path / "unpacked"
    unpacked.write_text(TEXT)
    reader = SimpleNamespace(ZstdError=ZstdError, open=lambda path, mode: Damaged(unpacked))
    monkeypatch.setitem(sys.modules, "compression.zstd", reader)
    monkeypatch.setattr("rltriage.engine.sources.tail.Tail._replaced", lambda self: False)
    source = open_source(str(path))
    assert len(list(source.records())) == 6
    assert any("damaged or cut off here: Data corruption" in example.reason for example in source.stats.examples)
    unpacked.write_text("")
    with pytest.raises(SourceError, match="damaged before its first line"):
        open_source(str(path))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_wide_text_without_a_mark_says_how_to_convert_it(tmp_path: Path, encoding: str) -> None:
    """One sentence that names the encoding; nothing of the bytes is shown."""
    path = tmp_path / "log"
    path.write_bytes(TEXT.encode(encoding))
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    with pytest.raises(SourceError, match=f"iconv -f {name} -t UTF-8") as caught:
        open_source(str(path))
    assert "x00" not in str(caught.value)


def test_an_archive_says_to_unpack_it(tmp_path: Path) -> None:
    """Also where its members are stored as they are, so that rows could be guessed among the headers."""
    (tmp_path / "a.jsonl").write_text(TEXT)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.jsonl")
    for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as packed:
            packed.add(tmp_path / "a.jsonl", "a.jsonl")
    for name, kind in (("a.zip", "zip"), ("a.tar", "tar"), ("a.tar.gz", "tar")):
        with pytest.raises(SourceError, match=f"{name}: a {kind} archive: unpack it"):
            open_source(str(tmp_path / name))


def test_zstd_says_what_to_do_where_there_is_no_reader(tmp_path: Path) -> None:
    """One clear error with the command that helps, unless this Python can read it."""
    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\x00" * 20)
    with pytest.raises(SourceError, match=r"zstd -dk FILE|empty|Error"):
        open_source(str(path))


def test_garbage_inside_a_log_costs_only_itself(tmp_path: Path) -> None:
    """Binary bytes between rows are counted, wherever they are; a file of nothing else is no log."""
    garbage = random.Random(1).randbytes(700)
    path = tmp_path / "log"
    path.write_bytes(TEXT.encode() + garbage + b"\n" + TEXT.encode())
    source = open_source(str(path))
    assert len(list(source.records())) == 12 and source.stats.bad >= 1
    path.write_bytes(garbage * 5)
    with pytest.raises(SourceError, match="binary data"):
        open_source(str(path))


@pytest.mark.parametrize(
    "inside", [TEXT, "".join(f"step:{n} - actor/pg_loss:0.5 - critic/score/mean:0.25\n" for n in range(6))]
)
def test_docker_logs(tmp_path: Path, inside: str) -> None:
    """Docker's json-file driver wraps each line; what is inside is found out as if it were the file."""
    wrapped = [{"log": line + "\n", "stream": "stdout", "time": "2026-11-30T00:00:00.1Z"} for line in inside.splitlines()]
    path = tmp_path / "log"
    path.write_text("".join(json.dumps(line) + "\n" for line in wrapped))
    assert steps(path) == list(range(6))


def test_lines_of_a_container_runtime(tmp_path: Path) -> None:
    """Kubernetes puts a time, the stream and a flag before each line."""
    path = tmp_path / "log"
    path.write_text("".join(f"2026-11-30T00:00:00.123456789Z stdout F {line}\n" for line in TEXT.splitlines()))
    assert steps(path) == list(range(6))


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[default{}]:", "[trainer{}]:", "(Worker rank={} pid=9) "])
def test_only_rank_0_of_a_shared_console_counts(tmp_path: Path, prefix: str) -> None:
    """Four ranks print the same step; without a step each line would be a step of its own."""
    lines = [f"{prefix.format(rank)}{{'loss': {rank}.5, 'reward': 0.{n}}}\n" for n in range(3) for rank in (2, 0, 1, 3)]
    path = tmp_path / "log"
    path.write_text("".join(lines))
    rows = [row for _, row in Feed(open_source(str(path)), "run").rows()]
    assert [(row.step, row.metrics["loss"]) for row in rows] == [(0, 0.5), (1, 0.5), (2, 0.5)]


def test_only_rank_0_of_shared_records_counts(tmp_path: Path) -> None:
    """Records that name their rank; a `rank` that is never 0 is something else, as of an adapter."""
    path = tmp_path / "log"
    path.write_text(
        "".join(json.dumps({"step": n, "rank": rank, "reward": rank}) + "\n" for n in range(3) for rank in range(4))
    )
    feed = Feed(open_source(str(path)), "run")
    assert [(row.step, row.metrics["reward"]) for _, row in feed.rows()] == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert feed.intakes["run"].skipped == {"record of another rank": 9}
    path.write_text("".join(json.dumps({"step": n, "rank": 16, "reward": 0.5, "loss": 0.5}) + "\n" for n in range(3)))
    assert steps(path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - a/b:2\x1b[32m [repeated 2x across cluster]\x1b[0m", "step:1 - a/b:2"),
        ("loss: 1 [repeated 63x across all nodes] (Ray deduplicates logs by default.)", "loss: 1"),
        ("\x1b(B\x1b[mloss: 1", "loss: 1"),
        ("\x1b]0;title\x07loss: 1", "loss: 1"),
        ("[rank0]:loss: 1", "loss: 1"),
        ("[rank12]: loss: 1", None),
        ("2026-11-30T00:00:00.123456789Z stdout F | loss | 1 |", "| loss | 1 |"),
        ("2026-11-30T00:00:00+01:00 loss: 1", "loss: 1"),
        ("2026-11-30 00:00:00 loss: 1", "2026-11-30 00:00:00 loss: 1"),
    ],
)
def test_what_launchers_and_terminals_add(line: str, rest: str | None) -> None:
    """Ray's note on repeats, charset switches and window titles are cut; another rank's line is none of ours."""
    assert clean(line) == rest


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "NAN", "1.#QNAN", "1.#IND00", "tensor(nan)", "[nan]"])
def test_not_a_number_however_it_is_spelt(text: str) -> None:
    """C, Windows, numpy and torch spell it differently; in values and in console lines."""
    number = to_float(text)
    assert number is not None and math.isnan(number)


@pytest.mark.parametrize(
    ("text", "number"), [("Infinity", math.inf), ("-INF", -math.inf), ("1.#INF", math.inf), ("[2.]", 2.0)]
)
def test_infinities(text: str, number: float) -> None:
    """As numbers, with their sign."""
    assert to_float(text) == number


def test_console_lines_hold_every_spelling(tmp_path: Path) -> None:
    """A reward that is no number is a row with a reward, not a row without."""
    words = ["NaN", "nan", "-nan", "NAN", "1.#QNAN", "Inf", "-INF", "Infinity"]
    path = tmp_path / "log"
    path.write_text("".join(f"step={n} reward={word} loss=0.5\n" for n, word in enumerate(words)))
    rows = [row.metrics for _, row in Feed(open_source(str(path)), "run").rows()]
    assert len(rows) == len(words) and not [row for row in rows if math.isfinite(row["reward"])]


def test_steps_of_a_total() -> None:
    """`7/100` is step 7; a date or a share is no step."""
    assert [to_step(text) for text in ("7/100", " 7 / 100 ", "1/2/3", "a/7")] == [7, 7, None, None]


def test_a_file_that_may_not_be_opened_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files must not look like a quiet log; it is read as soon as it can be."""
    path = tmp_path / "log"
    path.write_text(TEXT)
    source: Any = open_source(str(path))

    def refuse(_: str) -> Any:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("rltriage.engine.sources.tail.open_log", refuse)
        assert source.poll() == [] and source.poll() == []
    assert [example.reason for example in source.stats.examples] == ["cannot be opened: [Errno 24] Too many open files"]
    assert len(source.poll()) == 6


def test_pretty_printed_json_objects_one_after_the_other(tmp_path: Path) -> None:
    """`json.dump(row, file, indent=2)` in a loop is no JSON document and no JSON Lines; nested objects are joined."""
    path = tmp_path / "log"
    rows = [row | {"nested": {"a": 1.5, "b": [1, 2]}} for row in ROWS]
    path.write_text("".join(json.dumps(row, indent=2) + "\n" for row in rows))
    found = [row for _, row in Feed(open_source(str(path)), "run").rows()]
    assert [row.step for row in found] == list(range(6)) and found[1].metrics["nested/a"] == 1.5


SUPERVISED = {
    "hf.log": "".join(
        f"{{'loss': {2 - n / 10}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {n / 10}}}\n" for n in range(6)
    ),
    "keras.csv": "epoch,accuracy,loss,val_accuracy,val_loss\n" + "".join(f"{n},0.{n},1.{n},0.{n},1.2\n" for n in range(6)),
    "lightning.csv": "epoch,step,train_loss,val_loss\n" + "".join(f"{n},{n * 10},0.5,0.{n}\n" for n in range(6)),
    "cities.csv": "city,population,area\nA,100,2.5\nB,200,3.5\n",
}


@pytest.mark.parametrize("name", sorted(SUPERVISED))
def test_foreign_logs_are_no_frameworks(tmp_path: Path, name: str) -> None:
    """Supervised training and plain tables are read by common names, and the check says that nothing of RL is in them."""
    path = tmp_path / name
    path.write_text(SUPERVISED[name])
    run = check(open_source(str(path)), "run")["runs"][0]
    assert run["profile"] == "generic"
    assert run["lacks"].startswith("nothing in it is particular to reinforcement learning")


def test_a_log_of_rl_lacks_nothing_of_it(tmp_path: Path) -> None:
    """One metric of RL is enough."""
    path = tmp_path / "log"
    path.write_text(TEXT)
    assert check(open_source(str(path)), "run")["runs"][0]["lacks"] == ""
