"""Opening a log's file whatever wrote it: plain or compressed, UTF-8 with or without a mark, UTF-16 and UTF-32 with one."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
import sys
import zlib
from typing import Any, BinaryIO, cast

from rltriage.rules.errors import SourceError

_ZSTD = b"\x28\xb5\x2f\xfd"
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_ZSTD_READERS = ("compression.zstd", "backports.zstd")
# UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ARCHIVES = (
    (b"PK\x03\x04", 0, "zip"),
    (b"ustar", 257, "tar"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7z"),
    (b"Rar!\x1a\x07", 0, "rar"),
)
# Which bytes of four are mostly zero.
_WIDE: dict[tuple[bool, ...], str] = {
    (False, True, True, True): "UTF-32LE",
    (True, True, True, False): "UTF-32BE",
    (False, True, False, True): "UTF-16LE",
    (True, False, True, False): "UTF-16BE",
}


def broken() -> tuple[type[Exception], ...]:
    """What reading a packed file that is cut off or damaged raises."""
    zstd = (sys.modules[name].ZstdError for name in _ZSTD_READERS if name in sys.modules)
    return (EOFError, OSError, zlib.error, lzma.LZMAError, *zstd)


def open_log(path: str) -> tuple[BinaryIO, bool]:
    """The bytes of a log, unpacked, and whether it was packed (gzip, bz2, xz, zstd); SourceError where zstd has no reader.

    A packed file is read as a finished one: nobody appends to it. Raises OSError as `open` does.
    """
    with open(path, "rb") as file:
        head = file.read(6)
    if head.startswith(_ZSTD):
        return cast(BinaryIO, _zstd(path)(path, "rb")), True
    for magic, opener in _PACKED.items():
        if head.startswith(magic):
            return cast(BinaryIO, opener(path, "rb")), True
    return open(path, "rb"), False


def read_start(path: str, size: int) -> tuple[bytes, bool]:
    """The first bytes of a log and whether that is all of it; what can be read of a damaged packed file is its all.

    SourceError where that is nothing.
    """
    file, packed = open_log(path)
    sample = bytearray()
    with file:
        try:
            while len(sample) < size and (chunk := read_some(file, size - len(sample))):
                sample += chunk
            return bytes(sample), not file.read(1)
        except broken() as error:
            if not packed:
                raise
            if not sample.strip():
                why = " ".join(str(error).split())[:200]
                raise SourceError(
                    f"{path}: packed, and cut off or damaged before its first line ({why}): copy or write it anew"
                ) from None
            return bytes(sample), True


def read_some(file: BinaryIO, size: int) -> bytes:
    """At most so many bytes, and of a packed file what one step of unpacking gives: all that precedes damage is read."""
    return bytes(getattr(file, "read1", file.read)(size))


def encoding_of(head: bytes) -> str | None:
    """The encoding that a mark at the start of a file names, or None: then it is UTF-8."""
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)


def is_part_of_mark(head: bytes) -> bool:
    """Whether what there is of a file may yet become a mark; nothing may."""
    return any(mark.startswith(head) and mark != head for mark, _ in _MARKS)


def archive_of(sample: bytes) -> str | None:
    """The kind of archive that a file is, if it is one."""
    return next((name for magic, place, name in _ARCHIVES if sample.startswith(magic, place)), None)


def wide_encoding_of(sample: bytes) -> str | None:
    """The encoding of a text that has no mark and zeros where UTF-16 or UTF-32 has them for Latin letters."""
    start = sample[:4096]
    mostly = tuple(start[place::4].count(0) > len(start) / 6 for place in range(4))
    return _WIDE.get(mostly)


def decode(data: bytes) -> str:
    """A whole text; bytes that are none of its encoding become U+FFFD."""
    return data.decode(encoding_of(data) or "utf-8", "replace")


def decoder_of(head: bytes) -> codecs.IncrementalDecoder | None:
    """What turns the chunks of a marked file into text, None for plain UTF-8."""
    encoding = encoding_of(head)
    return None if encoding is None else codecs.getincrementaldecoder(encoding)("replace")


def _zstd(path: str) -> Any:
    """Python's own reader (3.14), or the package that backports it; neither is asked for."""
    for module in _ZSTD_READERS:
        try:
            return importlib.import_module(module).open
        except ImportError:
            continue
    raise SourceError(
        f"{path}: compressed with zstd, which this Python cannot read: unpack it first, as in `zstd -dk FILE`"
    )
