"""Hostile variants of valid files: of their bytes, and of the values in those that are JSON or YAML.

One generator decides everything, so that a variant can be made again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

MAX_BYTES = 1 << 16
"""A variant's size: what takes more than seconds at this size would take minutes at a line's or file's largest."""
_HERE = "@here@"
VALUES = (
    *("null", "true", "false", "0", "-1", "-0.0", "1e308", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1.5"),
    *(
        "1" * 400,
        "1" * 5000,
        str(2**63),
        str(-(2**63)),
        str(2**64),
        "0.1e-400",
        '"0.5"',
        '"nan"',
        '"1e5"',
        '"1_0"',
        '"50%"',
    ),
    *('""', '" "', '"\\ud800"', '"\\u0000"', '"\\u001b[2J"', '"\\u2028"', '"../../x"', '"~nobody-of-this-name/x"', '"$"'),
    *('"{reward"', '"{0}"', '"{a.__class__}"', '"{reward:>9999999999}"', '"{{"', '"%s"', '"<b>"', '"*"', '"http://["'),
    *('"http://a:b@c:99999999/"', '"12/9"', '"x" ', json.dumps("k" * 3000), '"9" ', '"1e99d"', '"9999999999999d"'),
    *(
        "[]",
        "{}",
        "[[]]",
        "[null]",
        '[""]',
        '{"": null}',
        '{"a": {}}',
        '{"a": 1, "a": 2}',
        "[1, 2]",
        "[true, 1]",
        '[{"a": 1}]',
    ),
    *("[" * 40 + "]" * 40, "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000, "[" + "0," * 999 + "0]"),
    *('"@float"', '"@error"', '"@array"', '"@bytes"', '"@complex"', '"@set"', '"@cycle"', '"@huge"', '"@object"', '"@key"'),
    *(
        ".nan",
        ".inf",
        "&a [*a]",
        "&b b",
        "*b",
        "!!binary x",
        "!!python/object/apply:os.system [x]",
        "{<<: {a: 1}}",
        "0o17",
        "~",
    ),
)
"""Texts that stand for a value in JSON or YAML; in rows, `@name` becomes an object (`rows.py`)."""
TOKENS = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\n",
        b"\r",
        b"\r\n",
        b"\t",
        b" " * 300,
        b"\x1b[31m",
        b"\x1b]",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"'",
        b"'" * 3,
        b":",
        b",",
        b"|",
        b"-",
        b"---\n",
        b"? ",
        b"- " * 50,
        b"&a ",
        b"*a",
        b"!!",
    ),
    *(
        b"<<: ",
        b"|\n",
        b">-\n",
        b"%YAML 9.9\n",
        b"#",
        b"=",
        b";",
        b"nan",
        b"inf",
        b"1e999",
        b"1" * 400,
        b"step:1 - ",
        b"tensor(",
    ),
    *(
        b"{'loss': ",
        b"reward=",
        b"[repeated 2x across cluster]",
        b"(Worker pid=1) ",
        b"epoch [",
        b"1/9 ",
        b"%",
        b"\\",
        b"\\ud800",
    ),
    *(b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n"),
    *(
        b"Authorization: Basic ",
        b"Authorization: Bearer ",
        b"Cookie: rltriage_page=",
        b"?token=",
        b"//",
        b"/../",
        b"%00",
        b"%ff",
    ),
)


def variant(draw: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed in one to four ways."""
    data = draw.choice(seeds)
    for _ in range(draw.choice((1, 1, 2, 4))):
        data = _value(draw, data) if draw.random() < 0.6 else draw.choice(_WAYS)(draw, data, seeds)
    return data[:MAX_BYTES]


def _value(draw: random.Random, data: bytes) -> bytes:
    """A value or a key somewhere in a JSON text, or in one of its lines, replaced; other data as it is."""
    lines = [data]
    try:
        tree = json.loads(data)
        at = 0
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
        at = draw.randrange(len(lines))
        try:
            tree = json.loads(lines[at])
        except (ValueError, RecursionError):
            return draw.choice(_WAYS)(draw, data, [data])
    text = json.dumps(_replaced(draw, tree))
    lines[at] = text.replace(json.dumps(_HERE), draw.choice(VALUES), 1).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _replaced(draw: random.Random, tree: Any) -> Any:
    """The tree with a mark in place of one of its values, or with one key renamed, doubled or taken away."""
    places = list(_places(tree))
    if not places:
        return _HERE
    holder, key = draw.choice(places)
    if isinstance(holder, dict) and draw.random() < 0.25:
        value = holder.pop(key)
        renamed = draw.choice((None, "", "x", key.upper(), key + "x", draw.choice(list(holder) or ["x"]), "\ud800", "a\0"))
        if renamed is not None:
            holder[renamed] = value
    else:
        holder[key] = _HERE
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            yield node, key
            stack.append(value)


def _span(draw: random.Random, data: bytes) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + int(2 ** draw.uniform(0, 9)))


def _flip(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _span(draw, data)
    return data[:start] + draw.randbytes(min(end - start, 8)) + data[min(end, start + 8) :]


def _cut(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _span(draw, data)
    return data[:start] + data[end:]


def _end(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _insert(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, _ = _span(draw, data)
    token = draw.choice(TOKENS) if draw.random() < 0.7 else draw.choice(VALUES).encode()
    return data[:start] + token + data[start:]


def _repeat(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A part many times over: what costs more than its length shows here."""
    start, end = _span(draw, data)
    part = data[start:end]
    room = max(0, int(2 ** draw.uniform(8, 16)) - len(data)) // max(1, len(part))
    return data[:end] + part * max(1, room) + data[end:]


def _splice(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = draw.choice(seeds)
    return data[: _span(draw, data)[0]] + other[_span(draw, other)[0] :]


_WAYS: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (_flip, _cut, _end, _insert, _repeat, _splice)
