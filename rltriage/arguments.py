"""What `rltriage.watch` and the hooks are given, checked before training starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rltriage.engine.intake import find_profile
from rltriage.rules.errors import RltriageError
from rltriage.rules.model import SEVERITIES, RulePack, Severity
from rltriage.rules.validate import meant

if TYPE_CHECKING:
    from rltriage.engine.report import Alert


DIRECTORY = "runs"
"""Where runs are written unless the call says otherwise."""
LOOK_SECONDS = 5.0
"""How long a disk is asked whether a folder is one."""


class WatchOptions(TypedDict, total=False):
    """What `watch` and every hook take."""

    name: str | None
    config: Mapping[str, Any] | None
    profile: str
    rules: str | Path | Sequence[str | Path]
    reference: str | Path | Sequence[str | Path] | None
    labels: Mapping[str, str] | None
    listen: str | int | None
    directory: str | Path | None
    on_alert: Callable[[Alert], object] | None
    halt_on: Severity | None
    quiet: bool


def check_options(options: Mapping[str, Any]) -> None:
    """Raises RltriageError for an option that there is not, or that cannot be what was given."""
    for name, value in options.items():
        if name not in WatchOptions.__annotations__:
            near = meant(name, WatchOptions.__annotations__)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(WatchOptions.__annotations__)}"
            raise RltriageError(f"there is no option {name}: {hint}")
        wanted, fits = _SHAPES.get(name, ("", _anything))
        if value is not None and not fits(value):
            raise RltriageError(f"{name}={value!r} cannot be: write {wanted}")
    halt_on, profile = options.get("halt_on"), options.get("profile") or "auto"
    if halt_on is not None and halt_on not in SEVERITIES:
        raise RltriageError(f"halt_on={halt_on!r} is no severity: write one of {', '.join(SEVERITIES)}")
    if profile != "auto":
        find_profile(profile)
    if options.get("listen") is not None:
        _check_listen(options["listen"])
    directory = options.get("directory")
    if directory is not None and directory != DIRECTORY:  # a default that cannot be is no mistake in the call
        _check_directory(Path(directory))


def address(listen: str | int) -> str:
    """HOST:PORT of what `listen` may be: it, or a port of this machine alone."""
    return listen if isinstance(listen, str) else f"127.0.0.1:{listen}"


def _check_listen(listen: str | int) -> None:
    """Raises RltriageError for what is no address, or one that would need a protection which no option gives."""
    from rltriage.exporters.access import Web, claim, is_local

    try:
        host, _ = claim(address(listen), Web(), insecure=True)
    except RltriageError:
        wanted = "a port from 0 to 65535, or HOST:PORT as in '127.0.0.1:9464'"
        raise RltriageError(f"listen={listen!r} cannot be: write {wanted}") from None
    if not is_local(host):
        how = "write a port of 127.0.0.1, or let `rltriage watch` serve the run's folder with both"
        raise RltriageError(f"listen={listen!r} cannot be: others would read it without TLS and authentication; {how}")


def _check_directory(directory: Path) -> None:
    """Raises RltriageError where a file is in the way. What the disk does not say in time it says at the first row."""
    from rltriage.journal import in_time

    def in_the_way() -> Path | None:
        found = next((each for each in (directory, *directory.parents) if each.exists()), None)
        return None if found is None or found.is_dir() else found

    named = str(directory)
    if "\0" in named:
        raise RltriageError(f"directory={named!r} cannot be: write a path without NUL")
    try:
        file = in_time(in_the_way, LOOK_SECONDS)
    except OSError:
        return
    if file is not None:
        raise RltriageError(f"directory={named!r} cannot be: {file} is a file; write a folder's path")


def _anything(value: object) -> bool:
    return True


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _are_paths(value: object) -> bool:
    return _is_path(value) or (isinstance(value, Sequence) and all(map(_is_path, value)))


_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "config": ("a mapping, as in config={'kl_coef': 0.1}", lambda value: isinstance(value, Mapping)),
    "labels": ("a mapping, as in labels={'team': 'core'}", lambda value: isinstance(value, Mapping)),
    "profile": ("a framework's name, as in profile='trl', or 'auto'", lambda value: isinstance(value, str)),
    "rules": ("a pack or several, as in rules=['triage', 'mine.yaml']", _are_paths),
    "reference": ("a healthy reference's file or an earlier run's folder, or several", _are_paths),
    "listen": ("a port, or 'HOST:PORT'", lambda value: isinstance(value, (str, int)) and not isinstance(value, bool)),
    "directory": ("a folder's path, or None to write nothing", _is_path),
    "on_alert": ("a function that takes an alert", callable),
    "halt_on": (f"one of {', '.join(SEVERITIES)}", lambda value: isinstance(value, str)),
}


MOST_UNKNOWN = 20
"""Unknown config facts that are told: a whole configuration of a framework may have thousands."""
LONGEST_NAME = 80


def unknown_facts(keys: Iterable[str], pack: RulePack) -> Iterator[str]:
    """A sentence for each fact that no profile knows (`keys` are those) and no rule of the pack reads: it may be a slip."""
    from rltriage.rules.crosscheck import rule_facts
    from rltriage.rules.profiles import FACTS

    keys, left = list(keys), MOST_UNKNOWN
    read = {fact for rule in pack.rules for fact in rule_facts(rule)} if keys else frozenset[str]()
    for key in keys:
        if key in read:
            continue
        if not left:
            yield "no rule or profile knows several more of the config facts"
            return
        left -= 1
        name = key if len(key) <= LONGEST_NAME else key[: LONGEST_NAME - 3] + "..."
        near = meant(name, FACTS)
        hint = f"; did you mean '{near}'?" if near else ""
        # A name with a line's end or a terminal's control sequence is shown as Python writes it.
        shown = f"'{name}'" if name.isprintable() else ascii(name)
        yield f"no rule or profile knows the config fact {shown}{hint}"
