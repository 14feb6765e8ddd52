"""Every block of every page does what the page says: YAML loads, console blocks print what they show, Python runs."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
LANGUAGES = {"yaml", "console", "python", "sh", "json", "text", "promql"}


def test_blocks_of_a_page(page: Path, terminal: Any, read_blocks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one folder: a file that one block names is there for the next."""
    for block in read_blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: a block needs one of the languages {sorted(LANGUAGES)}"
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        CHECKS.get(block.language, lambda block, terminal: None)(block, terminal)


def check_yaml(block: Any, terminal: Any) -> None:
    """A block says what it is, and is loaded as that."""
    assert block.kind in YAML_KINDS, f"{block.place}: write what it is behind `yaml`: {', '.join(YAML_KINDS)}"
    try:
        YAML_KINDS[block.kind](block)
    except Exception as error:
        raise AssertionError(f"{block.place}: {error}") from error


def _pack(block: Any) -> None:
    from rltriage.rules.loader import load_rules

    path = Path(block.file or "block.yaml")
    path.write_text(block.text, encoding="utf-8")
    assert load_rules(path).rules


def _rules(block: Any) -> None:
    """Some rules of a pack, without its head."""
    from rltriage.rules.loader import load_rules

    path = Path("block.yaml")
    path.write_text(f"version: 1\npack: block\nextends: triage\n{block.text}", encoding="utf-8")
    load_rules(path)


def _condition(block: Any) -> None:
    """One condition or several, each a mapping with one key."""
    from rltriage.rules.loader import load_rules

    for number, condition in enumerate(re.split(r"\n(?=\w)", block.text.strip())):
        rule = {
            "id": f"block-{number}", "summary": "a block", "group": "outcome", "severity": "info", "suspects": {},
            "first_test": "read_20_trajectories", "when": "CONDITION",
        }  # fmt: skip
        text = yaml.safe_dump({"version": 1, "pack": "block", "rules": [rule]})
        indented = "\n".join(f"      {line}" for line in condition.splitlines())
        path = Path("block.yaml")
        path.write_text(text.replace("when: CONDITION", "when:\n" + indented), encoding="utf-8")
        load_rules(path)


def _tests(block: Any) -> None:
    from rltriage.engine.ruletests import run_rule_tests
    from rltriage.rules.loader import load_rules

    pack = load_rules(*([block.words[-1].removeprefix("pack=")] if block.words[-1].startswith("pack=") else ["triage"]))
    results = run_rule_tests(Path(block.file), pack, pack.catalogue)
    assert results and all(result.passed for result in results), [result.message for result in results]


def _config(block: Any) -> None:
    from rltriage.rules.config import parse_config

    parse_config(block.text)


def _prometheus(block: Any) -> None:
    """A Prometheus configuration, checked by promtool where there is one; the files that it names are the reader's."""
    found = yaml.safe_load(block.text)
    assert set(found) <= {"global", "scrape_configs", "rule_files", "alerting"} and found
    tool = promtool()
    if tool:
        Path("prometheus.yml").write_text(block.text, encoding="utf-8")
        subprocess.run([tool, "check", "config", "--syntax-only", "prometheus.yml"], check=True, capture_output=True)


def _alertmanager(block: Any) -> None:
    found = yaml.safe_load(block.text)
    names = {receiver["name"] for receiver in found["receivers"]}
    routes = [found["route"], *found["route"].get("routes", [])]
    assert {route["receiver"] for route in routes} <= names


def _refused(block: Any) -> None:
    """A configuration that a page shows as wrong."""
    from rltriage.rules.config import parse_config
    from rltriage.rules.errors import RulePackError

    with pytest.raises(RulePackError):
        parse_config(block.text)


def _compose(block: Any) -> None:
    assert yaml.safe_load(block.text)["services"]


def _kubernetes(block: Any) -> None:
    assert all({"apiVersion", "kind", "metadata"} <= set(each) for each in yaml.safe_load_all(block.text) if each)


def _profile(block: Any) -> None:
    assert yaml.safe_load(block.text)["profile"]


YAML_KINDS: dict[str, Callable[[Any], None]] = {
    "pack": _pack,
    "rules": _rules,
    "condition": _condition,
    "tests": _tests,
    "config": _config,
    "refused": _refused,
    "prometheus": _prometheus,
    "alertmanager": _alertmanager,
    "profile": _profile,
    "compose": _compose,
    "kubernetes": _kubernetes,
}


def promtool() -> str | None:
    """promtool of the PATH or of deploy/fetch_servers.sh."""
    local = ROOT / ".cache/servers/usr/bin/promtool"
    return str(local) if local.exists() else shutil.which("promtool")


def check_console(block: Any, terminal: Any) -> None:
    """Each `$ command` prints what follows it; `...` stands for anything."""
    sessions = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not sessions[0].strip(), f"{block.place}: a console block starts with `$ `"
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for session in sessions[1:]:
        command, _, wanted = session.partition("\n")
        shown = terminal.run(command)
        assert checker.check_output(wanted, shown, flags), f"{block.place}: $ {command}\n{shown}"


def check_python(block: Any, terminal: Any) -> None:
    """It compiles; where the page says `run`, it runs."""
    if block.file == "recognise.py":
        return  # the inside of a function; test_recipes.py puts it there
    code = compile(block.text, block.place, "exec")
    if "run" in block.words:
        exec(code, {"__name__": "__main__"})
    import rltriage

    for name in re.findall(r"\brltriage\.(\w+)\(", block.text):
        assert hasattr(rltriage, name), f"{block.place}: rltriage has no {name}"


def check_sh(block: Any, terminal: Any) -> None:
    """Commands that need a network, a server or minutes are not run: their words must exist all the same."""
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[:1] == ["make"]:
            assert set(words[1:]) <= targets, f"{block.place}: {line}"
        for extra in re.findall(r"rltriage\[([\w,]+)\]", line):
            assert set(extra.split(",")) <= set(extras), f"{block.place}: {line}"
        if words[:1] == ["rltriage"]:
            parse(words[1:], f"{block.place}: {line}")


def parse(arguments: list[str], place: str) -> None:
    """The command line takes these arguments."""
    from rltriage.cli import root

    arguments = arguments[: next((i for i, word in enumerate(arguments) if word in ("|", ">", "&", "&&")), None)]
    command: click.Command = root
    context = click.Context(command)
    try:
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            found = command.get_command(context, arguments[0])
            assert found is not None, f"{place}: no command {arguments[0]}"
            command, arguments = found, arguments[1:]
        command.make_context("rltriage", list(arguments))
    except click.exceptions.Exit:
        pass
    except click.ClickException as error:
        raise AssertionError(f"{place}: {error.format_message()}") from error


def check_json(block: Any, terminal: Any) -> None:
    """It is JSON, and an object of the public format is one by its schema."""
    found = json.loads(block.text)
    if "type" in found:
        schema = json.loads((ROOT / "exporters" / "report.schema.json").read_text(encoding="utf-8"))
        jsonschema.validate(found, schema)


CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "yaml": check_yaml,
    "console": check_console,
    "python": check_python,
    "sh": check_sh,
    "json": check_json,
}


def test_links_of_a_page(page: Path) -> None:
    """Every relative link leads to a file of the project, and its anchor to a heading."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text):
        link = target[0] or target[1]
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(path), f"{page.name}: {link}: no such heading"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


_WRITTEN = re.compile(r"(?:\s-o|\s--output|\s--tests|\s--grafana|\s--svg|\s>)\s+([\w.-]+)(?=\s|$|`)", re.MULTILINE)


def test_what_a_page_writes_is_no_news_to_git(read_blocks: Callable[[Path], Any]) -> None:
    """Whoever follows README.md and docs/ in a clone has a clean `git status` afterwards."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone")
    names = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in read_blocks(page):
            names |= {block.file} if block.file else set()
            names |= set(_WRITTEN.findall(block.text)) if block.language in ("sh", "console") else set()
    told = subprocess.run(
        ["git", "check-ignore", "--no-index", *sorted(names)], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    assert {"mine.yaml", "mine.tests.yaml", "report.html"} <= names and names == set(told)
