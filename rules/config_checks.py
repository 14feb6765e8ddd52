"""What the schema of `rltriage.yaml` cannot say, and how problems are told without repeating a secret.

A secret that was written out all the same is a problem; neither its message nor the quoted line shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePath
from string import Template
from urllib.parse import urlsplit

from rltriage.rules.model import Problem
from rltriage.rules.validate import choices, closest
from rltriage.rules.yamlmarks import Node

SOURCE_KINDS = ("path", "metrics", "prometheus")
_PATHS = frozenset({"path", "reference", "extra", "cert_file", "key_file", "ca_file", "file", "state_dir"})
RECEIVER_KINDS = ("alertmanager", "webhook", "apprise")
PLACEHOLDERS = (
    "alerts", "command", "count", "fault", "first_test", "id", "page_url", "rule", "run", "runbook_url", "runs", "severity",
    "state", "status", "step", "suspects", "text", "title", "values",
)  # fmt: skip
"""What a webhook's body may name with `$`."""
RUNBOOK_PLACEHOLDERS = ("fault", "rule")
DAY = 86400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY, "w": 7 * DAY}
_SECRET_KEY = re.compile(r"pass|secret|token|credential|auth|api.?key|apprise|webhook|cookie|(?:^|_)key$", re.IGNORECASE)
_SECRET_LINE = re.compile(
    r"""(?i)^(.*(?:pass|secret|token|credential|auth|api.?key|apprise|webhook|cookie)[\w"'-]*\s*:\s*)\S.*$"""
)
_USER_INFO = re.compile(r"://[^/\s@]+@")
_LISTEN = re.compile(r"(?:(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]*)):)?([0-9]{1,5})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UPPER, _LOWER, _NUMBER = "[A-Z]{1,24}[0-9]{0,3}", "[A-Z]?[a-z]{1,24}[0-9]{0,3}", "[0-9]{1,3}"
_USUAL_VARIABLE = re.compile(f"_?{_UPPER}(_({_UPPER}|{_NUMBER}))*")
_USUAL_FILE = re.compile(f"[._-]?({_UPPER}|{_LOWER})([._-]+({_UPPER}|{_LOWER}|{_NUMBER}))*")
_NOT_SHOWN = "not shown here, in case it is the secret itself"
_HIDDEN = "***"
_SHORT = 5
_LONGEST_NAME = 64


def crosscheck(root: Node) -> Iterator[Problem]:
    """What the schema cannot say: exactly one of several, unique names, URLs, durations, placeholders, plain secrets."""
    for source in _elements(root, "sources"):
        yield from _exactly_one(source, SOURCE_KINDS, "a source")
        yield from _urls(source, "metrics", "prometheus")
        yield from _only_with(source, "query", "prometheus")
    seen: dict[str, int] = {}
    for receiver in _elements(root, "receivers"):
        yield from _receiver(receiver)
        name = receiver.get("name")
        if name is not None and isinstance(name.value, str):
            if name.value in seen:
                message = f"the receiver `{name.value}` is defined twice (first in line {seen[name.value]})"
                yield name.problem("duplicate", message, "give each its own name: the outbox remembers by it what was said")
            seen.setdefault(name.value, name.line)
    yield from _urls(root, "external_url", "runbook_url")
    yield from _placeholders(root.get("runbook_url"), RUNBOOK_PLACEHOLDERS)
    yield from _duration(root.get("retention"), "retention")
    yield from _listens(root.get("listen"))
    for node in root.walk():
        yield from _named(node.get("env"), "`env` is not the name of an environment variable", _is_variable)
        yield from _named(node.get("file"), "`file` is an address, not the path of a file", lambda name: "://" not in name)
        if isinstance(node.value, str) and "\0" in node.value:
            yield node.problem("value", "a text holds the character U+0000", "delete it: no path, name or address has one")
        for key in _PATHS & node.entries.keys():
            yield from _homes(node.entries[key])
        if {"env", "file"} <= set(node.entries):
            yield node.key("file").problem(
                "value", "a secret is in one place, not both `env` and `file`", "delete one of them"
            )


def _is_variable(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None


def _named(node: Node | None, message: str, fits: Callable[[str], bool]) -> Iterator[Problem]:
    """What stands where the place of a secret should."""
    if node is not None and isinstance(node.value, str) and node.value and not fits(node.value):
        yield node.problem("secret", f"{message} ({_NOT_SHOWN})", _SECRET_HINT)


def _receiver(receiver: Node) -> Iterator[Problem]:
    yield from _exactly_one(receiver, RECEIVER_KINDS, "a receiver")
    yield from _urls(receiver, "alertmanager", "webhook")
    yield from _only_with(receiver, "body", "webhook")
    yield from _duration(receiver.get("group_window"), "group_window")
    for name in ("headers", "basic_auth", "ca_file"):
        yield from _only_with(receiver, name, "alertmanager", "webhook")
    for node in (receiver.get("body") or receiver).walk() if receiver.get("body") else ():
        yield from _placeholders(node, PLACEHOLDERS)
    headers = receiver.get("headers")
    for name, node in headers.entries.items() if headers is not None else ():
        if _SECRET_KEY.search(name) and isinstance(node.value, str):
            yield node.problem("secret", f"the header {name} holds a secret in plain text", _SECRET_HINT)


_SECRET_HINT = "write {env: NAME} or {file: PATH} and keep the secret there"


def _elements(root: Node, key: str) -> list[Node]:
    node = root.get(key)
    return [element for element in node.elements if element.kind == "mapping"] if node is not None else []


def _exactly_one(node: Node, names: tuple[str, ...], what: str) -> Iterator[Problem]:
    given = [name for name in names if name in node.entries]
    words = ", ".join(f"`{name}`" for name in names[:-1]) + f" or `{names[-1]}`"
    if not given:
        yield node.problem("missing", f"{what} needs one of {words}", f"add `{names[0]}: ...`")
    for name in given[1:]:
        message = f"{what} has either `{given[0]}` or `{name}`, not both"
        yield node.key(name).problem("value", message, "make two of it, one each")


def _only_with(node: Node, name: str, *kinds: str) -> Iterator[Problem]:
    if name in node.entries and not any(kind in node.entries for kind in kinds):
        yield node.key(name).problem(
            "value", f"`{name}` means nothing here", f"it belongs to {' or '.join(kinds)}: delete it"
        )


def _urls(node: Node, *names: str) -> Iterator[Problem]:
    for name in names:
        below = node.get(name)
        for element in (below.elements or [below]) if below is not None else ():
            if not isinstance(element.value, str):
                continue
            if _USER_INFO.search(element.value):
                hint = "use basic_auth, or give the whole URL as {env: NAME} or {file: PATH}"
                yield element.problem("secret", f"`{name}` holds a password in plain text", hint)
            elif not _is_url(element.value):
                yield element.problem(
                    "value", f"`{name}` must be an http:// or https:// URL", "for example http://host:9093"
                )


def _homes(node: Node) -> Iterator[Problem]:
    """Paths below another user's home folder, of a user that there is not."""
    for path in node.elements or [node]:
        if isinstance(path.value, str) and path.value.startswith("~"):
            try:
                Path(path.value).expanduser()
            except RuntimeError:
                # Not named: it may be a secret in the place of its file's name.
                yield path.problem("value", "there is no home folder of that user", "write the path from / on")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _duration(node: Node | None, name: str) -> Iterator[Problem]:
    if node is not None and isinstance(node.value, str) and seconds(node.value) is None:
        hint = "write a number with s, m, h, d or w: 90s, 12h, 30d"
        yield node.problem("value", f"`{name}` cannot be {node.value!r}: it is no duration", hint)


def seconds(value: object) -> float | None:
    """The seconds that a duration means: a number, or text such as 90s, 12h, 30d; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])", value.strip()) if isinstance(value, str) else None
    return float(match[1]) * _UNITS[match[2]] if match else None


def _placeholders(node: Node | None, names: tuple[str, ...]) -> Iterator[Problem]:
    if node is not None and isinstance(node.value, str):
        for code, message, hint in _wrong_placeholders(node.value, names):
            yield node.problem(code, message, hint)


def _wrong_placeholders(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Code, message and hint of each."""
    template = Template(text)
    if not template.is_valid():
        yield "value", "a `$` stands alone in this text", "write $$ for a dollar sign"
        return
    for name in template.get_identifiers():
        if name not in names:
            yield "unknown", f"`${name}` stands for nothing", closest(name, names) or choices(names, 20)


def address_problem(text: str, placeholders: tuple[str, ...] | None = None) -> str:
    """What is wrong with the address of a page that links lead to, in words without its password; empty if nothing is.

    `placeholders` are what it may name with `$`; with None a `$` is one.
    """
    if _USER_INFO.search(text):
        return "it holds a password in plain text, which everybody would see who sees the link: leave it out"
    if not _is_url(text):
        return "it must be an http:// or https:// URL, for example https://docs.example/rltriage"
    wrong = () if placeholders is None else _wrong_placeholders(text, placeholders)
    return "; ".join(f"{message}: {hint}" for _, message, hint in wrong)


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, or of a port of this machine alone; without a host before the colon, of all addresses.

    Raises ValueError in words for what is neither.
    """
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is no address to listen on: write HOST:PORT, as in 127.0.0.1:9464")
    bracketed, host, port = match.groups()
    return bracketed or ("127.0.0.1" if host is None else host or "0.0.0.0"), int(port)


def _listens(node: Node | None) -> Iterator[Problem]:
    if node is not None and isinstance(node.value, str) and node.value:
        try:
            listen_address(node.value)
        except ValueError as error:
            message, _, hint = str(error).partition(" to listen on: ")
            yield node.problem("value", f"{message} to listen on", hint)


def variable_shown(name: str) -> str:
    """The name of an environment variable for a message; a name as no variable has one may be the secret itself."""
    if len(name) <= _LONGEST_NAME and _USUAL_VARIABLE.fullmatch(name):
        return f"the environment variable {name}"
    return f"the environment variable that `env` names ({_NOT_SHOWN})"


def file_shown(path: str) -> str:
    """A secret's file for a message; its folder alone if its name is as no file has one: it may be the secret itself."""
    name = PurePath(path).name
    if len(name) <= _LONGEST_NAME and _USUAL_FILE.fullmatch(name):
        return f"the secret file {path}"
    return f"the secret file in {PurePath(path).parent} ({_NOT_SHOWN})"


def secrets_in(root: Node, problems: Sequence[Problem] = ()) -> frozenset[str]:
    """Every text that may be a secret written out in the file, so that no message repeats it.

    What stands under a key that does not exist may have been meant for one that holds a secret, and where a mapping should
    be, in `web` and `receivers`, a lone text may be the secret itself.
    """
    unknown = {(problem.mark.line, problem.mark.column) for problem in problems if problem.code == "unknown"}
    found = set(_secrets(root, False))
    for node in root.walk():
        found.update(_secrets_named(node))
        for name, below in node.entries.items():
            key = node.key(name)
            if (key.line, key.column) in unknown:
                found.update(_secrets(below, True))
    for part in (root.get("web"), root.get("receivers")):
        for lone in (part, *part.elements) if part is not None else ():
            if lone.kind == "scalar":
                found.update(_secrets(lone, True))
    return frozenset(found)


def _secrets(node: Node, secret: bool) -> Iterator[str]:
    """The texts below keys that sound secret, and URLs with a password; keys and the names of secrets are none.

    Of a webhook's URL the path is often the secret.
    """
    if node.kind == "scalar" and node.value not in (None, "") and (secret or _USER_INFO.search(str(node.value))):
        yield str(node.value)
    for key, below in node.entries.items():
        if key not in ("env", "file", "username"):
            yield from _secrets(below, secret or bool(_SECRET_KEY.search(key)))
    for element in node.elements:
        yield from _secrets(element, secret)


def _secrets_named(node: Node) -> Iterator[str]:
    """What stands where the name of a secret should, and does not look like one."""
    for key, shows in (("env", variable_shown), ("file", file_shown)):
        below = node.get(key)
        if below is not None and below.kind == "scalar" and str(below.value) not in shows(str(below.value)):
            yield str(below.value)


def redacted(problem: Problem, hidden: Set[str]) -> Problem:
    """The problem without the secrets, in its words and in the line that it quotes."""

    def clean(text: str) -> str:
        for secret in sorted(hidden, key=len, reverse=True):
            # A short one is also part of innocent words; where values are quoted, it is quoted whole.
            short = len(secret) < _SHORT
            text = text.replace(repr(secret), repr(_HIDDEN)) if short else text.replace(secret, _HIDDEN)
        return _USER_INFO.sub(f"://{_HIDDEN}@", text)

    source = _SECRET_LINE.sub(rf"\1{_HIDDEN}", clean(problem.source))
    return replace(problem, message=clean(problem.message), hint=clean(problem.hint), source=source)
