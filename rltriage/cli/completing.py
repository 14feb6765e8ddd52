"""What a shell offers for arguments and options, beside commands and their names: found when it is asked, never before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

Items = list[CompletionItem]


def logs(context: click.Context, param: click.Parameter, typed: str) -> Items:
    """Files, and the ids of the runs in `runs`."""
    return [CompletionItem(typed, type="file"), *_among(_names("runs/*/rows.jsonl"), typed)]


def files(context: click.Context, param: click.Parameter, typed: str) -> Items:
    """Files."""
    return [CompletionItem(typed, type="file")]


def packs(context: click.Context, param: click.Parameter, typed: str) -> Items:
    """Files, and the shipped packs."""
    return [CompletionItem(typed, type="file"), *_among(["triage"], typed)]


def rules(context: click.Context, param: click.Parameter, typed: str) -> Items:
    """The rules of the packs that the command line names so far, else of the shipped one."""
    from rltriage.rules.errors import RltriageError
    from rltriage.rules.loader import load_rules

    try:
        pack = load_rules(*(context.params.get("packs") or ("triage",)))
    except RltriageError:
        return []
    return _among((rule.id for rule in pack.rules), typed)


def faults(context: click.Context, param: click.Parameter, typed: str) -> Items:
    """The faults that the reference trainer can have; nothing where it is not installed."""
    try:
        from rltriage.trainer.faults import FAULTS
    except ImportError:
        return []
    return [CompletionItem(fault.id, help=fault.title) for fault in FAULTS.values() if fault.id.startswith(typed)]


def profiles(context: click.Context, param: click.Parameter, typed: str) -> Items:
    """The frameworks."""
    from rltriage.rules.profiles import load_profiles

    return _among(["auto", *load_profiles()], typed)


def _names(pattern: str) -> list[str]:
    return sorted(path.parent.name for path in Path().glob(pattern))


def _among(names: Iterable[str], typed: str) -> Items:
    return [CompletionItem(name) for name in names if name.startswith(typed)]
