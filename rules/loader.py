"""Loads rule packs: files and folders, `extends`, `override` and `disable`, then the schema, then the cross-check.

Packs are merged as marked nodes before anything is validated, so that an overridden field is checked like any other and its
mistakes are reported where they were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rltriage.rules import schema
from rltriage.rules.build import build_rule, merge_catalogue, plain_rule
from rltriage.rules.catalogue import load_catalogue, plain_entry
from rltriage.rules.crosscheck import check_ids, check_rule
from rltriage.rules.errors import RulePackError
from rltriage.rules.model import Catalogue, Problem, RulePack
from rltriage.rules.overlay import overlay
from rltriage.rules.salvage import salvaged, touched
from rltriage.rules.validate import Checker, capped, closest
from rltriage.rules.yamlmarks import Node, Source, read

SHIPPED = Path(__file__).parent / "packs"
SUFFIXES = (".yaml", ".yml")
TESTS_SUFFIX = ".tests"
MAX_CHAIN = 16
MAX_FILES = 1000


def load_rules(*packs: str | Path, catalogue: Catalogue | None = None) -> RulePack:
    """The rules of one or several packs, in their order: a shipped pack's name (`triage`), a file or a folder of files.

    A later pack may override and disable the rules of the earlier ones. Raises RulePackError once, with every problem of
    every file; warnings alone do not raise and are in `RulePack.warnings`.
    """
    pack, problems = _load(packs, catalogue)
    if any(problem.level == "error" for problem in problems):
        raise RulePackError(problems)
    return pack


def check_rules(paths: Sequence[str | Path], catalogue: Catalogue | None = None) -> list[Problem]:
    """Every problem and warning of these packs, in the order of files and lines; empty if all is well."""
    try:
        return _load(paths, catalogue)[1]
    except RulePackError as error:  # a shipped catalogue is broken
        return list(error.problems)


def dump_pack(pack: RulePack, catalogue: Catalogue | None = None) -> dict[str, object]:
    """A pack as plain data that loads again (JSON is YAML) to an equal one: extensions resolved, own entries included."""
    shipped = catalogue or load_catalogue()
    dumped: dict[str, object] = {"version": 1, "pack": pack.name}
    for section in ("metrics", "faults", "first_tests"):
        known, entries = getattr(shipped, section), getattr(pack.catalogue, section)
        own = {name: plain_entry(entry) for name, entry in entries.items() if known.get(name) != entry}
        dumped |= {section: own} if own else {}
    return {**dumped, "rules": [plain_rule(rule) for rule in pack.rules]}


def _load(packs: Sequence[str | Path], catalogue: Catalogue | None) -> tuple[RulePack, list[Problem]]:
    catalogue = catalogue or load_catalogue()
    files = _Files()
    for pack in packs:
        files.add(pack)
    for node in files.raw.values():
        files.problems += files.checker.check(node.rule, schema.reference("rule"), f"the rule `{node.id}`")
    broken = {(p.mark.path, p.mark.line, p.mark.column) for p in files.problems}
    merged = merge_catalogue(catalogue, files.packs, files.problems)
    rules = []
    for raw in files.raw.values():
        files.problems += check_ids(raw.rule, merged)
        whole = not touched(raw.rule, broken)
        left = raw.rule if whole else salvaged(raw.rule, broken)
        rule = build_rule(left, raw.pack, files.problems) if left is not None else None
        if left is not None and rule is not None:
            files.problems += check_rule(rule, left, merged)
            rules += [rule] if whole else []
    problems = _in_order(files.problems)
    warnings = tuple(problem for problem in problems if problem.level == "warning")
    return RulePack("+".join(files.names), tuple(rules), tuple(files.paths), merged, warnings), problems


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Each problem once (an aliased value has as many as it has uses), by file, then line."""
    return sorted(dict.fromkeys(problems), key=lambda p: (p.mark.path, p.mark.line, p.mark.column))


@dataclass(slots=True)
class _Raw:
    """A rule that has not been validated yet."""

    id: str
    rule: Node
    pack: str


@dataclass(slots=True)
class _Files:
    """All files read so far and the rules that stand after their overrides."""

    raw: dict[str, _Raw] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    packs: list[Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    done: set[Path] = field(default_factory=set)
    checker: Checker = field(default_factory=lambda: Checker(schema.pack_schema()["$defs"]))

    def add(self, pack: str | Path) -> None:
        """Read what the user named: a shipped pack, a file or a folder."""
        here = Source(str(pack)).problem(1, 1, "file", "")
        name, files = self.find(str(pack), Path(), here)
        names = [self.add_file(file, name if len(files) == 1 else file.stem, ()) for file in files]
        self.names += names if len(files) == 1 else [name] if files else []

    def find(self, pack: str, base: Path, here: Problem) -> tuple[str, list[Path]]:
        """The name and the files of a pack; a problem at `here` if there are none."""
        if "\0" in pack or not pack:
            return pack, self.missing(here, f"{pack!r} is not a pack", "")
        if "/" not in pack and "\\" not in pack and not pack.endswith(SUFFIXES):
            shipped = SHIPPED / f"{pack}.yaml"
            if shipped.is_file():
                return pack, [shipped]
            if not (base / pack).exists():
                names = sorted(path.stem for path in SHIPPED.glob("*.yaml") if not path.stem.endswith(TESTS_SUFFIX))
                hint = (
                    closest(pack, names) or f"shipped: {', '.join(names) or 'none'}; for a file write its path with .yaml"
                )
                return pack, self.missing(here, f"there is no shipped pack called `{pack}`", hint)
        path = base / pack
        if not path.is_dir():
            return path.stem, [path]
        files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and not p.stem.endswith(TESTS_SUFFIX))
        if not files:
            return path.name, self.missing(
                here, f"the folder {pack} holds no rule pack", "packs are files that end in .yaml"
            )
        return path.name, files[:MAX_FILES]

    def missing(self, here: Problem, message: str, hint: str) -> list[Path]:
        self.problems.append(Problem(here.mark, "file", message, hint, here.source))
        return []

    def add_file(self, path: Path, name: str, chain: tuple[Path, ...]) -> str:
        """Read one pack after those that it extends and return its name; a file that was read before counts once."""
        resolved = path.resolve()
        if resolved in self.done:
            return name
        self.done.add(resolved)
        node, found = read(path)
        self.problems += found
        if node is None:
            return name
        self.paths.append(str(path))
        if not self.fits(node):
            return name
        named = node.get("pack")
        name = str(named.value) if named is not None else name
        self.extend(node, path, (*chain, resolved))
        self.packs.append(node)
        for rule in node.at("rules").elements if node.get("rules") else ():
            self.add_rule(rule, name)
        self.override(node)
        self.disable(node)
        return name

    def fits(self, node: Node) -> bool:
        """Check the pack without its rules, which are validated once they are merged; False if it cannot be used."""
        full = schema.pack_schema()
        if (
            node.kind == "mapping"
            and node.get("rules") is None
            and not {"extends", "override", "disable"} & set(node.entries)
        ):
            self.problems.append(node.problem("missing", "the pack lacks `rules`", "add `rules:` with a list of rules"))
        head = {**full, "properties": {**full["properties"], "rules": _RULES_HEAD}}
        found = self.checker.check(node, head, "the pack")
        self.problems += found
        return node.kind == "mapping" and not any(_blocks(node, problem) for problem in found)

    def extend(self, node: Node, path: Path, chain: tuple[Path, ...]) -> None:
        listed = node.get("extends")
        if listed is None:
            return
        for target in listed.elements or [listed]:
            here = target.problem("file", "")
            name, files = self.find(str(target.value), path.parent, here)
            for file in files:
                if file.resolve() in chain or len(chain) >= MAX_CHAIN:
                    message = f"the packs extend each other in a circle: {file.name} is already being loaded"
                    self.problems.append(target.problem("extends", message, "remove one `extends`"))
                elif not file.is_file():
                    hint = f"the path is relative to {path.parent}"
                    self.problems.append(target.problem("file", f"there is no file {target.value}", hint))
                else:
                    self.add_file(file, name, chain)

    def add_rule(self, rule: Node, pack: str) -> None:
        identity = rule.get("id")
        if identity is None or not isinstance(identity.value, str):
            self.problems += self.checker.check(rule, schema.reference("rule"), "the rule")
            return
        first = self.raw.get(identity.value)
        if first is None:
            self.raw[identity.value] = _Raw(identity.value, rule, pack)
            return
        message = f"there are two rules called `{identity.value}` (the first at {first.rule.mark})"
        hint = f"rename one, or change fields of the first with `override: {{{identity.value}: ...}}`"
        self.problems.append(identity.problem("duplicate", message, hint))

    def override(self, node: Node) -> None:
        unknown: list[Node] = []
        for name, changes in node.at("override").entries.items() if node.get("override") else ():
            raw = self.raw.get(name)
            if raw is not None:
                raw.rule = overlay(raw.rule, changes)
                renamed = changes.get("id")
                if renamed is not None and renamed.value != name:
                    self.problems.append(
                        renamed.problem("value", "the id of a rule cannot be overridden", "remove this line")
                    )
            elif name not in self.disabled:
                unknown.append(node.at("override").key(name))
        self.unknown(unknown, "override")

    def disable(self, node: Node) -> None:
        unknown: list[Node] = []
        for target in node.at("disable").elements if node.get("disable") else ():
            name = str(target.value)
            if self.raw.pop(name, None) is not None:
                self.disabled.add(name)
            elif name not in self.disabled:
                unknown.append(target)
        self.unknown(unknown, "disable")

    def unknown(self, places: list[Node], action: str) -> None:
        def problem(place: Node) -> Problem:
            hint = closest(str(place.value), self.raw) or "`rltriage rules list` lists them; is `extends: triage` missing?"
            return place.problem("unknown", f"there is no rule `{place.value}` to {action}", hint)

        self.problems += capped(places, problem)


_RULES_HEAD = {"type": "array", "items": {"type": "object", "x-noun": "rule"}, "description": "the rules"}


def _blocks(node: Node, problem: Problem) -> bool:
    """Whether a problem leaves nothing to work with: a list that is none, a wrong `extends`."""
    shaped = [below for key in ("rules", "override", "disable", "extends", "metrics", "faults", "first_tests")
              if (below := node.get(key)) is not None]  # fmt: skip
    return any(problem.mark == below.mark for below in shaped)
