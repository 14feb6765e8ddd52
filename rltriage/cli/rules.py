"""`rltriage rules`: check, list, explain and test rule packs, and print their schema."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rltriage.cli import completing
from rltriage.cli.guesses import Group
from rltriage.cli.options import json_option, url_option
from rltriage.cli.output import wrapped
from rltriage.cli.runs import find_rule

PACK_HELP = "A shipped pack's name (triage), a file, or a folder of packs."


@click.group("rules", cls=Group)
def command() -> None:
    """Check, list, explain and test rule packs."""


@command.command("check")
@click.argument("packs", nargs=-1, metavar="[PACK]...", shell_complete=completing.packs)
@click.option("--strict", is_flag=True, help="Warnings count as problems, for a pipeline.")
def check(packs: tuple[str, ...], strict: bool) -> None:
    """Report every problem of every pack in one go. Exit 0 clean or with warnings alone, 1 problems, 2 unreadable.

    A name that nobody knows is a warning, because a trainer may log it: of a metric, or of a config fact.
    """
    from rltriage.rules.loader import check_rules

    problems = check_rules(packs or ("triage",))
    for problem in problems:
        click.echo(str(problem))
    warnings = sum(problem.level == "warning" for problem in problems)
    errors = len(problems) - warnings
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}"
        for count, word in ((errors, "problem"), (warnings, "warning"))
        if count
    ]
    if any(problem.code == "file" for problem in problems):
        raise click.exceptions.Exit(2)
    verdict = ", ".join(counts)
    if errors:
        click.echo(verdict)
        raise click.exceptions.Exit(1)
    click.echo(f"{', '.join(packs or ('triage',))}: {verdict or 'no problems'}")
    if strict and warnings:
        raise click.exceptions.Exit(1)


@command.command("list")
@click.argument("packs", nargs=-1, metavar="[PACK]...", shell_complete=completing.packs)
@json_option
def list_rules(packs: tuple[str, ...], as_json: bool) -> None:
    """One line a rule: severity, id, strongest suspect, first test."""
    from rltriage.rules.loader import load_rules

    pack = load_rules(*(packs or ("triage",)))
    if as_json:
        for rule in pack.rules:
            click.echo(
                json.dumps(
                    {
                        "format": 1,
                        "type": "rule",
                        "id": rule.id,
                        "group": rule.group,
                        "severity": rule.severity,
                        "suspects": dict(rule.suspects),
                        "first_test": rule.first_test,
                        "metrics": sorted(rule.metrics),
                        "requires": {fact: dict(tests) for fact, tests in rule.requires.items()},
                        "pack": rule.pack,
                    }
                )
            )
        return
    for group in dict.fromkeys(rule.group for rule in pack.rules):
        click.echo(group)
        for rule in pack.rules:
            if rule.group == group:
                suspect = next(iter(rule.suspects), "-")
                click.echo(f"  {rule.severity:<8} {rule.id:<38} {suspect}")
    click.echo(f"{len(pack.rules)} rules; `rltriage rules explain ID` tells what one means", err=True)


@command.command("explain", short_help="What a rule sees, whom it suspects, which test decides.")
@click.argument("rule_id", metavar="RULE", shell_complete=completing.rules)
@click.option("--rules", "packs", multiple=True, metavar="PACK", help=PACK_HELP)
def explain(rule_id: str, packs: tuple[str, ...]) -> None:
    """What a rule sees, why its threshold is what it is, whom it suspects and which test decides."""
    from rltriage.engine.ruletests import firing_example
    from rltriage.rules.explain import describe_rule
    from rltriage.rules.loader import load_rules

    pack = load_rules(*(packs or ("triage",)))
    rule = find_rule(pack, rule_id, "" if packs else " A rule of your own needs `--rules FILE`.")
    click.echo(describe_rule(rule, pack.catalogue, firing_example(rule.id, pack)), nl=False)


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of rule packs, for editors."""
    from rltriage.rules.schema import pack_schema

    click.echo(json.dumps(pack_schema(), indent=2))


@command.command("test")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...", shell_complete=completing.files)
@click.option(
    "--rules",
    "packs",
    multiple=True,
    metavar="PACK",
    help="The packs under test. Default: NAME.yaml beside NAME.tests.yaml, else triage.",
)
def test(files: tuple[Path, ...], packs: tuple[str, ...]) -> None:
    """Run YAML unit tests of rules. Without FILE: the tests of the shipped pack. Exit 0 all pass, 1 some fail."""
    from rltriage.engine.ruletests import run_rule_tests
    from rltriage.rules.loader import load_rules

    results = []
    for path in files or _shipped_tests():
        pack = load_rules(*(packs or _tested_by(path)))
        results += run_rule_tests(path, pack, pack.catalogue)
    failed = [result for result in results if not result.passed]
    for result in failed:
        click.echo(f"FAIL {result.name}\n{result.message}")
    click.echo(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise click.exceptions.Exit(1)


@command.command("compile")
@click.argument("packs", nargs=-1, metavar="[PACK]...", shell_complete=completing.packs)
@click.option(
    "--to",
    "target",
    type=click.Choice(["prometheus", "prometheusrule"]),
    default="prometheus",
    show_default=True,
    help="A rule file, or the same as an object for prometheus-operator.",
)
@click.option(
    "--from",
    "basis",
    type=click.Choice(["engine", "metrics"]),
    default="engine",
    show_default=True,
    help="Alert on the engine's exported state, or on the gauges alone where a rule translates exactly.",
)
@click.option(
    "--kind",
    type=click.Choice(["alerts", "meta", "recording"]),
    default="alerts",
    show_default=True,
    help="The pack's alerts; alerts on rltriage itself (exporter down, run stalled, notifications failing, ...); recording "
    "rules for dashboards over very many runs.",
)
@url_option("--docs", "Where the pages of docs/ lie: each alert links to its part of the runbook.")
@url_option("--runbook", "Your own runbook instead, as runbook_url in rltriage.yaml.", placeholders=("fault", "rule"))
@url_option("--page", "The address of the on-call page, as external_url in rltriage.yaml: each alert links to its run.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The rule file. Default: stdout.")
@click.option("--tests", type=click.Path(path_type=Path), help="Also write the `promtool test rules` file that proves it.")
def compile_(
    packs: tuple[str, ...],
    target: str,
    basis: str,
    kind: str,
    docs: str,
    runbook: str,
    page: str,
    output: Path | None,
    tests: Path | None,
) -> None:
    """Write Prometheus alerting rules. What cannot be translated is listed on stderr with the reason."""
    from rltriage.engine.rundir import write_atomically

    if kind != "alerts":
        if packs or tests:
            raise click.UsageError(f"--kind {kind} is about no pack and comes with its tests: leave out PACK and --tests")
        _refuse_links(kind, docs, runbook or page)
        _write(_as(target, _others(kind, docs), f"rltriage-{kind}"), output)
        return
    from rltriage.exporters.compile_prometheus import compile_engine, compile_metrics
    from rltriage.exporters.delivery.message import Links
    from rltriage.rules.loader import load_rules

    links = Links(page, runbook or (f"{docs.rstrip('/')}/faults.md" if docs else ""))
    pack = load_rules(*(packs or ("triage",)))
    compiler = compile_engine if basis == "engine" else compile_metrics
    compiled = compiler(pack, pack.catalogue, output.name if output else "rules.yml", links)
    _write(_as(target, compiled.rules), output)
    if tests:
        write_atomically(tests, compiled.tests)
    for why in dict.fromkeys(compiled.left_out.values()):
        rules = [rule for rule, reason in compiled.left_out.items() if reason == why]
        click.echo(wrapped(f"left out, {why}: {', '.join(rules)}"), err=True)


def _refuse_links(kind: str, docs: str, others: str) -> None:
    """An option that would do nothing is an error."""
    if others:
        raise click.UsageError(f"--runbook and --page are for alerts about runs: leave them out with --kind {kind}")
    if docs and kind == "recording":
        raise click.UsageError("recording rules link to nothing: leave out --docs")


def _others(kind: str, docs: str) -> str:
    """Rule files that are the same for every pack."""
    from rltriage.exporters.meta_alerts import meta_alerts
    from rltriage.exporters.recording import recording_rules

    return meta_alerts(docs) if kind == "meta" else recording_rules()


def _as(target: str, rules: str, name: str = "rltriage") -> str:
    """A rule file as it is, or as an object for prometheus-operator."""
    from rltriage.exporters.prometheusrule import prometheus_rule

    return prometheus_rule(rules, name) if target == "prometheusrule" else rules


def _write(text: str, output: Path | None) -> None:
    from rltriage.engine.rundir import write_atomically

    if output:
        write_atomically(output, text)
    else:
        click.echo(text, nl=False)


def _tested_by(tests: Path) -> tuple[str, ...]:
    """The pack that a file of tests lies beside: `mine.yaml` for `mine.tests.yaml`."""
    beside = tests.with_name(tests.name.replace(".tests.", ".", 1))
    return (str(beside),) if beside != tests and beside.is_file() else ("triage",)


def _shipped_tests() -> list[Path]:
    from rltriage import rules

    return sorted(Path(rules.__file__).parent.glob("packs/*.tests.yaml"))
