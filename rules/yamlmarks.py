"""YAML, bounded and with a position for everything: one walk over the parser's events gives a tree of marked nodes.

Scalars follow the YAML 1.2 core schema (`1e-4` is a number, `on` and `no` are text, `010` is 10); keys are always text. Not
`yaml.safe_load`: it resolves by YAML 1.1, keeps the last of two equal keys silently, expands aliases without a bound and
forgets where anything stood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rltriage.rules.model import Mark, Problem

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 100_000  # with every alias expanded: a pack of 70 rules has about 3,000
TEXT_SIZE = 100  # so many characters count as a value: a long text behind many aliases is as large as many values
MAX_DIGITS = 300  # a longer integer does not fit a float
MAX_PROBLEMS = 100  # of one file's syntax
SOURCE_WIDTH = 160

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_OCT_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Scalar = str | int | float | bool | None


def resolve_scalar(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar by the YAML 1.2 core schema. Raises ValueError for an endless integer."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text in _NAN:
        return float("nan")
    if len(text) > MAX_DIGITS and (_INT.fullmatch(text) or _OCT_HEX.fullmatch(text)):
        raise ValueError(f"a number of {len(text)} digits")
    if _INT.fullmatch(text):
        return int(text)
    if _OCT_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    infinite = _INF.fullmatch(text)
    return float(infinite[1] + "inf") if infinite else text


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A file's path as users wrote it, and its lines, for the caret."""

    path: str
    lines: tuple[str, ...] = ()

    def problem(
        self, line: int, column: int, code: str, message: str, hint: str = "", level: Literal["error", "warning"] = "error"
    ) -> Problem:
        """A Problem at a place of this file; line and column count from 1."""
        text = self.lines[line - 1].replace("\t", " ") if 0 < line <= len(self.lines) else ""
        if len(text) > SOURCE_WIDTH:
            text = text[:SOURCE_WIDTH] + "..." if column <= SOURCE_WIDTH else ""
        return Problem(Mark(self.path, line, column), code, message, hint, text.rstrip(), level)


@dataclass(slots=True, eq=False)
class Node:
    """A value of a file. `entries` and `keys` belong to a mapping, `elements` to a list, `value` to a scalar."""

    source: Source
    line: int
    column: int
    kind: Literal["scalar", "mapping", "list"] = "scalar"
    value: Scalar = None
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Node] = field(default_factory=dict)
    elements: list[Node] = field(default_factory=list)
    size: int = 1
    height: int = 1

    @property
    def mark(self) -> Mark:
        return Mark(self.source.path, self.line, self.column)

    def problem(self, code: str, message: str, hint: str = "", level: Literal["error", "warning"] = "error") -> Problem:
        """A Problem at this node."""
        return self.source.problem(self.line, self.column, code, message, hint, level)

    def key(self, name: str) -> Node:
        """Where the key `name` stands, or the mapping itself if it has none."""
        return self.keys.get(name, self)

    def get(self, name: str) -> Node | None:
        """The value under `name`, if this is a mapping that has it."""
        return self.entries.get(name)

    def at(self, *path: str | int) -> Node:
        """The node at a path of keys and indices, or the deepest one that exists on it."""
        node = self
        for part in path:
            below = node.entries.get(part) if isinstance(part, str) else next(iter(node.elements[part : part + 1]), None)
            if below is None:
                break
            node = below
        return node

    def plain(self) -> Any:
        """Plain data without marks."""
        if self.kind == "mapping":
            return {key: node.plain() for key, node in self.entries.items()}
        if self.kind == "list":
            return [node.plain() for node in self.elements]
        return self.value

    def walk(self) -> Iterator[Node]:
        """This node and all below it, keys included, in the order of the file."""
        yield self
        for name, node in self.entries.items():
            yield self.keys[name]
            yield from node.walk()
        for node in self.elements:
            yield from node.walk()


A_PACK = "a pack starts with `version: 1` and `rules:`"


def read(path: Path, name: str | None = None, begins: str = A_PACK) -> tuple[Node | None, list[Problem]]:
    """The marked tree of a file, or None with every problem that kept it from being read; `begins` as in `parse`."""
    source = Source(name or str(path))
    try:
        if not path.is_file():
            return None, [
                source.problem(1, 1, "file", "there is no such file" if not path.exists() else "this is not a file")
            ]
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return None, [source.problem(1, 1, "file", f"the file cannot be read: {getattr(error, 'strerror', None) or error}")]
    return parse(data, source.path, begins)


def parse(data: bytes | str, path: str, begins: str = A_PACK) -> tuple[Node | None, list[Problem]]:
    """The marked tree of one YAML document, or None with its problems (syntax, duplicate keys, tags, bounds).

    `begins` says what such a document starts with, to whoever wrote none.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 1024} KiB"
        return None, [Source(path).problem(1, 1, "size", message, "make it smaller; packs may be several in one folder")]
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        source = Source(path, tuple(raw.decode("utf-8", "replace").splitlines()))
        line, column = _place(before)
        hint = "save the file as UTF-8 text" if b"\0" not in raw else "this looks like a binary file, not YAML"
        return None, [source.problem(line, column, "encoding", "the file is not UTF-8 text", hint)]
    source = Source(path, tuple(text.splitlines()))
    control = _UNPRINTABLE.search(text)
    if control:
        line, column = _place(text[: control.start()])
        found = f"the file holds the control character U+{ord(control[0]):04X}"
        return None, [source.problem(line, column, "encoding", found, "delete it: YAML is plain text")]
    return _Builder(source, begins).build(text)


def _place(before: str) -> tuple[int, int]:
    """Line and column, from 1, of the character that follows `before`."""
    lines = (before + "|").splitlines()
    return len(lines), len(lines[-1])


class _Stop(Exception):
    """Ends the walk: what follows cannot be read sensibly."""


class _Builder:
    """Turns the parser's events into nodes, without recursion, so that no input can exhaust the stack."""

    def __init__(self, source: Source, begins: str) -> None:
        self.source = source
        self.begins = begins
        self.problems: list[Problem] = []
        self.stack: list[tuple[Node, str | None]] = []  # open collections with their anchors
        self.pending: list[Node | None] = []  # the key that waits for its value, per open mapping
        self.anchors: dict[str, Node] = {}
        self.root: Node | None = None

    def build(self, text: str) -> tuple[Node | None, list[Problem]]:
        import yaml

        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for event in yaml.parse(text, Loader=loader):
                self.take(event)
                if len(self.problems) >= MAX_PROBLEMS:
                    break
        except _Stop:
            pass
        except yaml.MarkedYAMLError as error:
            self.syntax(error)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.problems.append(self.source.problem(1, 1, "syntax", f"this is not YAML: {' '.join(str(error).split())}"))
        if self.root is None and not self.problems:
            self.problems.append(self.source.problem(1, 1, "empty", "the file is empty", self.begins))
        return (None if self.problems else self.root), self.problems

    def fail(self, event: yaml.Event, code: str, message: str, hint: str = "") -> None:
        self.problems.append(self.node(event).problem(code, message, hint))

    def node(self, event: yaml.Event, kind: Literal["scalar", "mapping", "list"] = "scalar", value: Scalar = None) -> Node:
        mark: Any = event.start_mark  # the parser's events always have one
        return Node(self.source, mark.line + 1, mark.column + 1, kind, value)

    def syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        if mark and mark.line >= len(self.source.lines) and error.context_mark:
            mark = error.context_mark  # something is still open at the end of the file: where it was opened
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        source = self.source.lines[line - 1] if line <= len(self.source.lines) else ""
        message, hint = _friendly(str(error.problem or error.context or error), source, column)
        self.problems.append(self.source.problem(line, column, "syntax", message, hint))

    def take(self, event: yaml.Event) -> None:
        """Handle one event. Dispatches on the class's name, because yaml itself is imported only on use."""
        kind = type(event).__name__
        if kind == "DocumentStartEvent" and self.root is not None:
            self.fail(event, "documents", "the file holds a second YAML document", "one file is one pack: remove the `---`")
            raise _Stop
        if kind == "AliasEvent":
            self.alias(event)
        elif kind == "ScalarEvent":
            self.check_tag(event)
            self.add(self.scalar(event), getattr(event, "anchor", None))
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self.check_tag(event)
            self.open(event, "mapping" if kind == "MappingStartEvent" else "list")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            node, anchor = self.stack.pop()
            self.pending.pop()
            self.add(node, anchor)

    def check_tag(self, event: yaml.Event) -> None:
        tag = getattr(event, "tag", None)
        if tag and tag != "!":
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            self.fail(event, "tag", f"the tag {shown} is not allowed", "remove it: plain data needs none")

    def scalar(self, event: yaml.Event) -> Node:
        text: str = getattr(event, "value")  # noqa: B009  (only scalar events have it)
        value: Scalar = text
        if getattr(event, "style", None) in (None, ""):
            try:
                value = resolve_scalar(text)
            except ValueError as error:
                self.fail(event, "number", f"{error} is too long", "write it as 1e9, or quote it if it is text")
        node = self.node(event, value=text if self.at_key() else value)  # keys are text whatever they look like
        node.size += len(text) // TEXT_SIZE
        return node

    def at_key(self) -> bool:
        return bool(self.stack) and self.stack[-1][0].kind == "mapping" and self.pending[-1] is None

    def open(self, event: yaml.Event, kind: Literal["mapping", "list"]) -> None:
        if self.at_key():
            self.fail(event, "key", "a key must be one word, not a list or mapping", "quote it if it contains [ or {")
            raise _Stop
        if len(self.stack) >= MAX_DEPTH:
            self.fail(event, "depth", f"values are nested more than {MAX_DEPTH} deep", "write it flatter")
            raise _Stop
        self.stack.append((self.node(event, kind), getattr(event, "anchor", None)))
        self.pending.append(None)

    def alias(self, event: yaml.Event) -> None:
        name = getattr(event, "anchor", "")
        target = self.anchors.get(name)
        if target is None:
            self.fail(event, "alias", f"*{name} refers to no anchor &{name} above it", "an anchor is set with &name")
            raise _Stop
        if self.at_key():
            self.fail(event, "key", "a key cannot be an alias", "write the key out")
            raise _Stop
        if len(self.stack) + target.height > MAX_DEPTH:
            self.fail(event, "depth", f"with *{name} values are nested more than {MAX_DEPTH} deep", "write it flatter")
            raise _Stop
        self.add(target, None)

    def add(self, node: Node, anchor: str | None) -> None:
        """Put a finished node into the collection that is open, as a key, a value or an element."""
        if anchor:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1][0]
        if self.at_key():
            self.pending[-1] = node
            return
        key, self.pending[-1] = self.pending[-1], None
        if parent.kind == "list":
            parent.elements.append(node)
        elif key is not None:
            self.add_entry(parent, key, node)
        parent.size += node.size + (key.size - 1 if key is not None else 0)
        parent.height = max(parent.height, node.height + 1)
        if parent.size > MAX_NODES:
            message = f"the file expands to more than {MAX_NODES} values"
            self.problems.append(node.problem("size", message, "use fewer aliases, or split the file"))
            raise _Stop

    def add_entry(self, parent: Node, key: Node, node: Node) -> None:
        name = str(key.value)
        if name == "<<":
            hint = "merge keys are not YAML 1.2: use `extends` and `override`, or repeat the fields"
            self.problems.append(key.problem("key", "`<<` is not supported", hint))
        elif name in parent.entries:
            first = parent.keys[name]
            message = f"the key `{name}` is used twice in one mapping (first in line {first.line})"
            self.problems.append(key.problem("duplicate", message, "delete one of them"))
        else:
            parent.entries[name] = node
            parent.keys[name] = key


def _friendly(problem: str, line: str, column: int) -> tuple[str, str]:
    """What the parser's complaint means to somebody who does not know YAML's grammar: message and hint."""
    rest = line[column - 1 :]
    if "\t" in line[: len(line) - len(line.lstrip())] or rest.startswith("\t"):
        return "a tab is used for indentation", "indent with spaces: YAML forbids tabs"
    if "nesting depth" in problem:
        return f"values are nested more than {MAX_DEPTH} deep", "write it flatter"
    if "mapping values are not allowed" in problem:
        return "a second `:` in one line, or a line indented too far", 'put text that contains ": " in quotes'
    if "cannot start any token" in problem:
        return f"a value cannot start with {rest[:1]!r}", "put it in quotes"
    if "could not find expected ':'" in problem:
        return "a `:` is missing after a key", 'write `key: value`, with a space after the ":"'
    if "did not find expected key" in problem or "expected <block end>" in problem:
        return "this line does not fit the indentation or quoting before it", "align it with the keys or dashes above"
    if "',' or ']'" in problem:
        return "a `]` or `,` is missing in a list", "close every [ with ]"
    if "',' or '}'" in problem:
        return "a `}` or `,` is missing in a mapping", "close every { with }"
    if "unexpected end of stream" in problem:
        return "the file ends inside a quoted text", "close the quote"
    return f"this is not YAML: {problem}", "check quotes, brackets and indentation of this line and the one before"
