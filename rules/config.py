"""`rltriage.yaml`: what a service watches, by which rules, and whom it tells.

Checked like a rule pack: every problem at once, each with its place and what to write instead. Secrets are never in the
file, only `{env: NAME}` or `{file: PATH}`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rltriage.rules.config_checks import (
    DAY,
    RECEIVER_KINDS,
    SOURCE_KINDS,
    crosscheck,
    file_shown,
    redacted,
    seconds,
    secrets_in,
    variable_shown,
)
from rltriage.rules.errors import DeliveryError, RulePackError
from rltriage.rules.model import Mark, Problem, Severity
from rltriage.rules.validate import validate
from rltriage.rules.yamlmarks import Node, parse, read

SCHEMA_FILE = Path(__file__).with_name("config.schema.json")
_BEGINS = "a configuration starts with `version: 1` and `sources:`"
MAX_SECRET = 1 << 16


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is kept. Calling it reads the secret, each time anew, so that a rotated one needs no restart.

    `mark` is the place that says so.
    """

    env: str = ""
    file: str = ""
    mark: Mark | None = field(default=None, compare=False, repr=False)

    def __call__(self) -> str:
        """The secret. Raises DeliveryError that names the variable or file, never the secret, even if it is the name."""
        try:
            return self._read()
        except DeliveryError as error:
            raise DeliveryError(f"{self.mark}: {error}" if self.mark is not None else str(error)) from None

    def _read(self) -> str:
        if self.env:
            value = os.environ.get(self.env, "")
            if not value:
                raise DeliveryError(f"{variable_shown(self.env)} is not set: export the secret there")
            return value
        try:
            value = _text_in(Path(self.file)).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not text"
            raise DeliveryError(f"{file_shown(self.file)} cannot be read: {why}") from None
        if not value:
            raise DeliveryError(f"{file_shown(self.file)} is empty: write the secret into it")
        return value


def _text_in(path: Path) -> str:
    """A small file's text. OSError for a pipe or a device: some have no end, and others wait for a writer."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a folder, a pipe or a device")
    with path.open(encoding="utf-8") as file:
        text = file.read(MAX_SECRET + 1)
    if len(text) > MAX_SECRET:
        raise OSError(errno.EFBIG, f"it is longer than {MAX_SECRET} characters")
    return text


Setting = str | Secret


def text_of(setting: Setting) -> Callable[[], str]:
    """A function that gives the setting's text, whether it is a secret or not."""
    return setting if isinstance(setting, Secret) else lambda: setting


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """A user name with its password."""

    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One source: a file, folder or glob, an exporter's endpoint or a Prometheus server. Paths are absolute.

    `references` are files of healthy references, or directories of earlier runs, for its runs to be compared with.
    """

    kind: Literal["path", "metrics", "prometheus"]
    where: Setting
    query: str = ""
    profile: str = "auto"
    labels: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    file: str = ""
    """The name of the configuration that says so; empty where the command line does."""


@dataclass(frozen=True, slots=True)
class ReceiverConfig:
    """Who is told, and of what. `kind` is one of RECEIVER_KINDS; times are seconds.

    `urls` has several elements only for an Alertmanager's replicas.
    """

    name: str
    kind: str
    urls: tuple[Setting, ...]
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, Setting] = field(default_factory=dict)
    basic_auth: BasicAuth | None = None
    ca_file: str = ""
    min_severity: Severity = "warning"
    page: bool = False
    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group_window: float = 60.0


@dataclass(frozen=True, slots=True)
class WebConfig:
    """How the endpoint is protected; empty where it is not."""

    cert_file: str = ""
    key_file: str = ""
    users: Mapping[str, Secret] = field(default_factory=dict)
    token: Secret | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole `rltriage.yaml`. Paths are absolute, taken from the file's folder; `retention` is in seconds."""

    sources: tuple[SourceConfig, ...] = ()
    packs: tuple[str, ...] = ("triage",)
    listen: str = "127.0.0.1:9464"
    web: WebConfig = WebConfig()
    receivers: tuple[ReceiverConfig, ...] = ()
    state_dir: Path = Path("rltriage-state")
    retention: float = 3 * DAY
    external_url: str = ""
    runbook_url: str = ""
    quiet_rules: bool = True


def load_config(path: Path) -> Config:
    """The configuration in a file. Raises RulePackError with every problem of it."""
    root, problems = read(path, begins=_BEGINS)
    return _config(root, problems, path.absolute())


def parse_config(text: str, path: str = "rltriage.yaml", folder: Path = Path()) -> Config:
    """The configuration in a text; `folder` is what its paths start from. Raises RulePackError."""
    root, problems = parse(text, path, _BEGINS)
    return _config(root, problems, folder.absolute() / Path(path).name)


def _config(root: Node | None, problems: list[Problem], file: Path) -> Config:
    found = list(problems)
    if root is not None:
        found += validate(root, _schema(), "the configuration")
        found += crosscheck(root)
    if root is None or found:
        hidden = secrets_in(root, found) if root is not None else frozenset()
        found.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
        raise RulePackError([redacted(problem, hidden) for problem in found])
    return _build(root, file.parent, file.name)


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return schema


def _build(root: Node, folder: Path, name: str) -> Config:
    """The dataclasses of a checked tree."""
    data = root.plain()
    rules, web = data.get("rules", {}), data.get("web", {})
    default = Config()
    tls = web.get("tls", {})
    return Config(
        sources=tuple(_source(node, folder, name) for node in root.at("sources").elements),
        packs=(*rules.get("packs", default.packs), *(_absolute(extra, folder) for extra in rules.get("extra", ()))),
        listen=_listen(data.get("listen", default.listen)),
        web=WebConfig(
            _absolute(tls["cert_file"], folder) if tls else "",
            _absolute(tls["key_file"], folder) if tls else "",
            {user: _secret(node, folder) for user, node in root.at("web", "basic_auth").entries.items()}
            if "basic_auth" in web
            else {},
            _secret(root.at("web", "token"), folder) if "token" in web else None,
        ),
        receivers=tuple(_receiver_config(node, folder) for node in root.at("receivers").elements),
        state_dir=Path(_absolute(data.get("state_dir", str(default.state_dir)), folder)),
        retention=seconds(data.get("retention", default.retention)) or 0.0,
        external_url=data.get("external_url", ""),
        runbook_url=data.get("runbook_url", ""),
        quiet_rules=data.get("quiet_rules", default.quiet_rules),
    )


def _listen(address: str | float) -> str:
    """An address; a port alone is one of this machine."""
    return address if isinstance(address, str) else f"127.0.0.1:{int(address)}"


def _source(node: Node, folder: Path, file: str) -> SourceConfig:
    item = node.plain()
    kind = next(name for name in SOURCE_KINDS if name in item)
    where = _absolute(item[kind], folder) if kind == "path" else _setting(node.at(kind), folder)
    given = {name: item[name] for name in ("query", "profile", "labels", "config") if name in item}
    files = item.get("reference", [])
    references = tuple(_absolute(file, folder) for file in (files if isinstance(files, list) else [files]))
    return SourceConfig(kind, where, references=references, file=file, **given)  # type: ignore[arg-type]


def _receiver_config(node: Node, folder: Path) -> ReceiverConfig:
    item = node.plain()
    kind = next(name for name in RECEIVER_KINDS if name in item)
    urls = node.at(kind).elements if node.at(kind).kind == "list" else [node.at(kind)]
    given = {name: item[name] for name in ("body", "min_severity", "page") if name in item}
    if "basic_auth" in item:
        given["basic_auth"] = BasicAuth(item["basic_auth"]["username"], _secret(node.at("basic_auth", "password"), folder))
    if "ca_file" in item:
        given["ca_file"] = _absolute(item["ca_file"], folder)
    if "group_window" in item:
        given["group_window"] = seconds(item["group_window"])
    headers = {name: _setting(node.at("headers", name), folder) for name in item.get("headers", {})}
    match = {name: tuple(value) if isinstance(value, list) else (value,) for name, value in item.get("match", {}).items()}
    return ReceiverConfig(
        item["name"],
        kind,
        tuple(_setting(url, folder) for url in urls),
        headers=headers,
        match=match,
        **given,
    )


def _setting(node: Node, folder: Path) -> Setting:
    return node.value if isinstance(node.value, str) else _secret(node, folder)


def _secret(node: Node, folder: Path) -> Secret:
    item = node.plain()
    return Secret(item.get("env", ""), _absolute(item["file"], folder) if "file" in item else "", node.mark)


def _absolute(path: str, folder: Path) -> str:
    return str(folder / Path(path).expanduser())
