"""`rltriage profiles`: which framework's names mean which metrics, and what a log of yours holds of them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import click

from rltriage.cli import completing
from rltriage.cli.guesses import Group
from rltriage.cli.options import config_option, json_option, profile_option
from rltriage.cli.output import wrapped
from rltriage.cli.runs import open_runs


@click.group("profiles", cls=Group)
def command() -> None:
    """List and show framework profiles, and check a log against them."""


@command.command("list", short_help="The frameworks, and what is mapped of each.")
@json_option
def list_profiles(as_json: bool) -> None:
    """The frameworks: name, metrics and facts that it maps, versions it was read from."""
    from rltriage.rules.frameworks import listing, verified_name

    for entry in listing():
        if as_json:
            click.echo(json.dumps({"format": 1, "type": "profile", **entry}))
        else:
            seen = verified_name(entry["verified"])
            counts = f"{entry['profile']:<20} {entry['metrics']:>3} metrics {entry['facts']:>3} facts  {entry['title']}"
            click.echo(wrapped(counts + (f" (verified: {seen})" if seen else ""), 44))


@command.command("show", short_help="Everything that a profile says.")
@click.argument("name", metavar="PROFILE", shell_complete=completing.profiles)
@json_option
def show(name: str, as_json: bool) -> None:
    """Everything that a profile says: names, transforms, config keys, what the framework cannot log."""
    from rltriage.engine.intake import find_profile
    from rltriage.rules.frameworks import details, verification

    profile = find_profile(name)
    found = details(profile)
    if as_json:
        click.echo(json.dumps({"format": 1, "type": "profile", **found}))
        return
    click.echo(wrapped(f"{found['profile']}: {found['title']} (read from {found['read_from']})"))
    if checked := verification(profile):
        click.echo(wrapped(f"verified against {checked}"))
    for title, key in (("metrics", "metrics"), ("config facts", "config")):
        click.echo(f"\n{title}")
        for canonical, natives in found[key].items():
            click.echo(wrapped(f"  {canonical:<22} {', or '.join(natives)}", 25))
    click.echo("\n" + wrapped(f"cannot log: {', '.join(found['not_logged']) or 'nothing that is known'}"))
    for note in found["notes"]:
        click.echo(wrapped(f"note: {note}"))


@command.command("check", short_help="What SOURCE gives: mapped, unmapped, missing, facts.")
@click.argument("source", shell_complete=completing.logs)
@profile_option
@config_option
@json_option
def check(source: str, profile: str, config: dict[str, Any], as_json: bool) -> None:
    """What SOURCE gives under its profile: mapped, unmapped, missing, the config facts found and those that are not.

    Facts that are not known are those which a shipped rule asks for and whose metrics SOURCE has.
    """
    from rltriage.engine.feed import check as check_source
    from rltriage.exporters.jsonlines import dumps
    from rltriage.exporters.text import many
    from rltriage.rules.frameworks import asked_facts
    from rltriage.rules.loader import load_rules

    ((opened, run_id),) = open_runs((source,))
    with closing(opened):
        found = check_source(opened, run_id, profile, config)
    rules = load_rules("triage").rules
    for run in found["runs"]:
        known = {name: fact["value"] for name, fact in run["facts"].items()}
        run["asked"] = asked_facts(rules, run["mapped"], known)
    if as_json:
        click.echo(dumps({"format": 1, "type": "source", **found}))
        return
    counts = f"{many(found['records'], 'record')}, {found['bad_rows']} not understood"
    click.echo(wrapped(f"{found['source']}: {found['kind']}, {counts}"))
    for example in found["bad_examples"]:
        click.echo(wrapped(f"  line {example['line']}: {example['reason']}", 4))
    for run in found["runs"]:
        _show_run(run)


def _show_run(run: dict[str, Any]) -> None:
    from rltriage.exporters.text import many

    click.echo(f"\n{run['run']}: {many(run['rows'], 'row')}, read as {run['profile']}")
    if run["lacks"]:
        click.echo(wrapped(f"  {run['lacks']}"))
    for canonical, native in run["mapped"].items():
        click.echo(wrapped(f"  {canonical:<22} {native}", 25))
    for name, fact in run["facts"].items():
        source = f", {fact['source']}" if fact["source"] else ""
        click.echo(wrapped(f"  {name:<22} = {fact['value']}  ({fact['provenance']}{source})", 25))
    if run["asked"]:
        told = ", ".join(f"{fact} ({many(len(ids), 'rule')})" for fact, ids in run["asked"].items())
        click.echo(wrapped(f"  asked for by rules, not known: {told}; pass --config {next(iter(run['asked']))}=...", 4))
    for title, key in (
        ("without a canonical name", "unmapped"),
        ("known to the profile, not in this log", "missing"),
        ("never logged by this framework", "never"),
        ("config keys nobody knows", "unknown_config"),
    ):
        if run[key]:
            click.echo(wrapped(f"  {title}: {', '.join(run[key])}", 4))
