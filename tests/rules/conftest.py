"""A few condition kinds of the tests' own, so that tests of the rule language do not depend on any shipped kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from rltriage.rules import conditions, schema
from rltriage.rules.conditions.base import Check, Condition, Kind, Verdict, View
from rltriage.rules.model import Catalogue, Fault, FirstTest, MetricInfo


@dataclass(frozen=True, slots=True)
class Span:
    """A window."""

    last: int = field(metadata={"help": "how many observations", "minimum": 1, "maximum": 512})
    stat: Literal["mean", "median"] = "median"


@dataclass(frozen=True, slots=True)
class Operand:
    """A number, a fact or a metric."""

    metric: str | None = None
    config: str | None = None
    value: float | None = None
    times: float = 1.0
    plus: Operand | None = None

    def problems(self) -> list[str]:
        given = [source for source in (self.metric, self.config, self.value) if source is not None]
        return [] if len(given) == 1 else ["give exactly one of metric, config, value"]


class Pure(Kind):
    """What the tests' kinds share: they are only read and written, never evaluated."""

    __slots__ = ()

    def metrics(self) -> frozenset[str]:
        return frozenset()

    def bind(self, view: View) -> Check:
        raise NotImplementedError

    def explain(self, view: View) -> Verdict:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Level(Pure):
    """A metric is above or below a limit.

    level: {metric: reward, above: 0.5}
    """

    kind: ClassVar[str] = "level"

    metric: str = field(metadata={"help": "the metric that is judged"})
    above: Operand | None = field(default=None, metadata={"help": "holds when greater"})
    below: Operand | None = None
    window: Span | None = None
    strict: bool = False

    def problems(self) -> list[tuple[str, str, str]]:
        if (self.above is None) == (self.below is None):
            return [("below", "give exactly one of above, below", "remove one of them")]
        return []

    def metrics(self) -> frozenset[str]:
        return frozenset((self.metric,))


@dataclass(frozen=True, slots=True)
class Listed(Pure):
    """Every shape of parameter that the language knows."""

    kind: ClassVar[str] = "listed"

    names: tuple[str, ...]
    left: str | Operand = "reward"
    share: float = field(default=0.5, metadata={"exclusiveMinimum": 0, "maximum": 1})
    weights: dict[str, float] | None = None
    mode: Literal["all", "any"] | float = "all"

    def metrics(self) -> frozenset[str]:
        return frozenset(self.names)


@dataclass(frozen=True, slots=True)
class Both(Pure):
    """All of several conditions."""

    kind: ClassVar[str] = "both"

    of: tuple[Condition, ...]

    def metrics(self) -> frozenset[str]:
        return frozenset().union(*(part.metrics() for part in self.of))


@dataclass(frozen=True, slots=True)
class Neither(Pure):
    """The opposite of a condition."""

    kind: ClassVar[str] = "neither"

    part: Condition

    def metrics(self) -> frozenset[str]:
        return self.part.metrics()


@dataclass(frozen=True, slots=True)
class Often(Pure):
    """A condition held several times."""

    kind: ClassVar[str] = "often"

    when: Condition
    at_least: int = field(default=2, metadata={"minimum": 1})

    def metrics(self) -> frozenset[str]:
        return self.when.metrics()


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The language with the tests' kinds alone."""
    own = {cls.kind: cls for cls in (Level, Listed, Both, Neither, Often)}
    monkeypatch.setattr(conditions, "load_kinds", lambda: own)
    schema.pack_schema.cache_clear()
    yield
    schema.pack_schema.cache_clear()


@pytest.fixture
def catalogue() -> Catalogue:
    """Two faults, a first test and three metrics."""
    return Catalogue(
        faults={name: Fault(name, name, name) for name in ("mask_shift", "sign_flip")},
        first_tests={"run_invariants": FirstTest("run_invariants", "run all", "trainer", "Run them.")},
        metrics={name: MetricInfo(name, "outcome", "", "", "", "") for name in ("reward", "kl_ref", "entropy")},
    )


RULE = """\
  - id: {id}
    summary: "reward is {{reward:.3g}}"
    group: outcome
    severity: info
    when: {{level: {{metric: reward, above: 0.5}}}}
    suspects: {{mask_shift: 0.5}}
    first_test: run_invariants
"""


class Folder:
    """Writes packs into a temporary folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str | bytes, name: str = "mine.yaml") -> str:
        """The path of a file with this content."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return str(target)

    def pack(self, *ids: str, head: str = "", name: str = "mine.yaml") -> str:
        """The path of a pack with one plain rule per id below `head`."""
        rules = "".join(RULE.format(id=rule) for rule in ids)
        return self.write("version: 1\n" + head + ("rules:\n" + rules if ids else ""), name)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Where a test writes its packs."""
    return Folder(tmp_path)
