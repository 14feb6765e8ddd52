"""The condition kinds: one file of this folder each, found by looking, so that there is no list to keep by hand."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache

from rltriage.rules.conditions.base import Condition


@cache
def load_kinds() -> dict[str, type[Condition]]:
    """Every class of this folder's modules that has a `kind`, by that name. Raises ValueError if two share one."""
    found: dict[str, type[Condition]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for cls in vars(module).values():
            kind = vars(cls).get("kind") if inspect.isclass(cls) and cls.__module__ == module.__name__ else None
            if not isinstance(kind, str):
                continue
            if kind in found:
                raise ValueError(f"two condition classes are called {kind!r}: {found[kind]} and {cls}")
            found[kind] = cls
    return found


class _Kinds(Mapping[str, "type[Condition]"]):
    """Imports the kinds on first use: whoever only imports the package does not pay for them."""

    def __getitem__(self, kind: str) -> type[Condition]:
        return load_kinds()[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(load_kinds())

    def __len__(self) -> int:
        return len(load_kinds())


KINDS: Mapping[str, type[Condition]] = _Kinds()
