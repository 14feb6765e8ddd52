"""TensorBoard event files, written by the real writer."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source
from rltriage.rules.errors import SourceError

pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.summary.writer.record_writer import masked_crc32c
from tensorboard.util.tensor_util import make_tensor_proto


def write(folder: Path, points: list[tuple[str, int, float]], suffix: str = "", tensor: bool = False) -> EventFileWriter:
    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    add(writer, points, tensor)
    return writer


def add(writer: EventFileWriter, points: list[tuple[str, int, float]], tensor: bool = False) -> None:
    for tag, step, value in points:
        content: dict[str, Any] = {"tensor": make_tensor_proto(value)} if tensor else {"simple_value": value}
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, **content)])
        writer.add_event(event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=summary))
    writer.flush()


def points(steps: range) -> list[tuple[str, int, float]]:
    return [
        (tag, step, step / 8) for step in steps for tag in ("losses/approx_kl", "losses/clipfrac", "charts/learning_rate")
    ]


@pytest.mark.parametrize("tensor", [False, True])
def test_tags_of_a_step_are_one_row(tmp_path: Path, tensor: bool) -> None:
    """Scalars in the old and the new form become rows with the step and the wall time; the profile is found by the tags."""
    write(tmp_path, points(range(3)), tensor=tensor).close()
    found = list(Feed(open_source(str(tmp_path)), "run").rows())
    assert [(row.step, row.time, row.metrics["approx_kl"], row.metrics["lr"]) for _, row in found] == [
        (0, 1.7e9, 0.0, 0.0),
        (1, 1.7e9 + 1, 0.125, 0.125),
        (2, 1.7e9 + 2, 0.25, 0.25),
    ]
    assert found[0][0].run.profile == "cleanrl"


def test_one_file_by_its_content(tmp_path: Path) -> None:
    """A single event file is known by what it holds, whatever its name."""
    write(tmp_path, points(range(2))).close()
    path = next(tmp_path.iterdir()).rename(tmp_path / "log.bin")
    assert len(list(open_source(str(path)).records())) == 2


def test_folders_are_runs(tmp_path: Path) -> None:
    """Each folder with event files is a run; several files of one folder are read in the order they were opened."""
    write(tmp_path / "a", points(range(2)), ".1").close()
    write(tmp_path / "a", points(range(2, 4)), ".2").close()
    write(tmp_path / "b/c", points(range(1))).close()
    records = list(open_source(str(tmp_path)).records())
    assert sorted((record.run, record.step) for record in records) == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b/c", 0)]


def test_following(tmp_path: Path) -> None:
    """A poll gives the steps that are over, and the last one as soon as nothing follows it."""
    writer = write(tmp_path, points(range(2)))
    source = open_source(str(tmp_path))
    assert [record.step for record in source.poll()] == [0]
    assert [record.step for record in source.poll()] == [1]
    add(writer, points(range(2, 3)))
    assert [record.step for record in source.poll()] + [record.step for record in source.poll()] == [2]
    assert source.poll() == [] and source.stats.records == 3
    write(tmp_path, points(range(3, 5)), ".later").close()
    assert source.poll() == []
    assert [record.step for record in source.poll()] + [record.step for record in source.poll()] == [3, 4]
    writer.close()


def test_a_torn_end_is_safe(tmp_path: Path) -> None:
    """A file cut in the middle of an event gives the steps before it."""
    write(tmp_path, points(range(4))).close()
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-20])
    assert [record.step for record in open_source(str(tmp_path)).records()] == [0, 1, 2, 3]
    path.write_bytes(path.read_bytes()[:40])
    assert list(open_source(str(path)).records()) == []


def test_a_folder_without_events_is_no_run(tmp_path: Path) -> None:
    """A name alone makes no event file."""
    (tmp_path / "events.out.tfevents.1.host").write_text("hello")
    with pytest.raises(SourceError, match="is no run"):
        open_source(str(tmp_path))


def framed(content: bytes, claimed: int | None = None) -> bytes:
    """A record as event files frame it, with right checksums, even of a length that is not its own."""
    head = struct.pack("<Q", len(content) if claimed is None else claimed)
    crc = [struct.pack("<I", masked_crc32c(part)) for part in (head, content)]
    return head + crc[0] + content + crc[1]


def event(step: int, **content: Any) -> event_pb2.Event:
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="losses/approx_kl", **content)])
    return event_pb2.Event(wall_time=1.7e9, step=step, summary=summary)


def huge() -> Any:
    tensor = make_tensor_proto(0.5)
    for _ in range(3):
        tensor.tensor_shape.dim.add(size=1 << 20)
    return tensor


def crooked() -> Any:
    tensor = make_tensor_proto([[0.5]])
    tensor.ClearField("tensor_content")
    tensor.ClearField("float_val")
    tensor.dtype = 99
    return tensor


@pytest.mark.parametrize(
    ("hostile", "bad"),
    [
        (framed(b"\xff" * 20), 1),
        (framed(event(2, tensor=huge()).SerializeToString()), 0),
        (framed(event(2, tensor=crooked()).SerializeToString()), 0),
    ],
    ids=["no event", "a tensor larger than memory", "a tensor that contradicts itself"],
)
def test_whole_records_that_are_no_scalars(tmp_path: Path, hostile: bytes, bad: int) -> None:
    """What is no event is counted, what is no scalar left out, and what follows is read."""
    path = tmp_path / "log"
    start = framed(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
    one, three = (framed(event(step, simple_value=0.5).SerializeToString()) for step in (1, 3))
    path.write_bytes(start + one + hostile + three)
    source = open_source(str(path))
    assert [record.step for record in source.records()] == [1, 3]
    assert source.stats.bad == bad


def test_a_record_that_claims_to_be_larger_than_memory(tmp_path: Path) -> None:
    """It ends the reading of its file, and is counted."""
    path = tmp_path / "log"
    start = framed(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
    path.write_bytes(start + framed(event(1, simple_value=0.5).SerializeToString()) + framed(b"", claimed=1 << 62))
    source = open_source(str(path))
    assert [record.step for record in source.records()] == [1]
    assert source.stats.bad == 1


def test_event_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more files than one source reads the first are read, those that come later included, and that is said once."""
    monkeypatch.setattr("rltriage.engine.sources.tensorboard._MAX_FILES", 2)
    for name in ("a", "b"):
        write(tmp_path / name, points(range(1))).close()
    source = open_source(str(tmp_path))
    assert len(source.poll()) == 2 and source.stats.bad == 0
    for name in ("c", "d"):
        write(tmp_path / name, points(range(1))).close()
        assert source.poll() == []
    assert source.stats.bad == 1 and "more than 2 event files" in source.stats.examples[0].reason
