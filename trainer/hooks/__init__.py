"""Hooks into the training frameworks that people already use: one file each, nothing imported before it is needed.

A hook knows its framework's callbacks, metric rows and configuration, and nothing of what watches them: it writes into a
`Watched`, which the front door builds (`rltriage.watch`). A hook never raises into training. Source: DESIGN section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

End = Literal["finished", "crashed"]


class Watched(Protocol):
    """One watched run, as a hook sees it. No method raises."""

    @property
    def should_stop(self) -> bool:
        """True once an alert was bad enough for the user to have asked for a stop."""
        ...

    def declare(self, config: Mapping[str, Any], profile: str | None = None, name: str | None = None) -> None:
        """The run's configuration, keys canonical or the framework's own, the profile that reads them, the run's name."""
        ...

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> object:
        """One row under the framework's own names; `step` None means that the row does not say."""
        ...

    def close(self, state: End = "finished") -> None:
        """No more rows. Calling it again does nothing."""
        ...
