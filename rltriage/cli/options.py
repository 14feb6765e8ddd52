"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rltriage.cli import completing

F = TypeVar("F", bound=Callable[..., Any])
SEED = click.IntRange(0, 2**32 - 1)
"""What every generator takes."""


def rules_option(function: F) -> F:
    """`--rules PACK`, several times: shipped packs by name, or files and folders."""
    return click.option(
        "--rules",
        "packs",
        multiple=True,
        metavar="PACK",
        shell_complete=completing.packs,
        help="A shipped pack's name, a file or a folder; several add up. Default: triage.",
    )(function)


def config_option(function: F) -> F:
    """`--config KEY=VALUE`, several times: config facts, canonical or the framework's own keys; values as in YAML 1.2."""
    return click.option(
        "--config",
        "config",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_facts,
        help="A config fact, e.g. kl_coef=0.04.",
    )(function)


def _facts(context: click.Context, option: click.Parameter, items: tuple[str, ...]) -> dict[str, Any]:
    from rltriage.rules.errors import RltriageError
    from rltriage.rules.facts import parse_fact

    try:
        return dict(map(parse_fact, items))
    except RltriageError as error:
        # Elsewhere `--config` names a file.
        takes_file = any("--file" in each.opts for each in context.command.params)
        hint = (
            "; a configuration file is named with --file" if takes_file and any("=" not in item for item in items) else ""
        )
        raise click.BadParameter(f"{error}{hint}") from error


def label_option(function: F) -> F:
    """`--label NAME=VALUE`, several times: labels of the run, in gauges and notifications."""
    return click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_labels,
        help="A label of the run, e.g. team=core.",
    )(function)


def _labels(context: click.Context, option: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{item!r} is not NAME=VALUE: write for example --label team=core")
        labels[name.strip()] = value.strip()
    return labels


def reference_option(function: F) -> F:
    """`--reference FILE`, several times: healthy references, of which the first that fits the run's config is used, and
    directories of earlier runs, to say what has changed in the configuration since."""
    return click.option(
        "--reference",
        "reference_files",
        multiple=True,
        metavar="FILE",
        shell_complete=completing.files,
        help="A healthy reference (`rltriage reference build`), or an earlier run's directory to say what changed. "
        "Default: the shipped reference where it fits.",
    )(function)


def json_option(function: F) -> F:
    """`--json`: one JSON object a line on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of text.")(function)


def profile_option(function: F) -> F:
    """`--profile NAME`: how a framework calls its metrics."""
    return click.option(
        "--profile",
        default="auto",
        show_default=True,
        shell_complete=completing.profiles,
        help="The framework that wrote the log; auto goes by its keys.",
    )(function)


def fail_on_option(default: str = "critical") -> Callable[[F], F]:
    """`--fail-on SEVERITY`: the lowest severity that makes the exit code 1."""
    return click.option(
        "--fail-on",
        type=click.Choice(["info", "warning", "critical", "never"]),
        default=default,
        show_default=True,
        help="The lowest severity of a fired alert that makes the exit code 1.",
    )


def service_options(function: F) -> F:
    """What the commands that follow runs as a service have in common: `--file` and `--insecure`."""
    file = click.option(
        "--file", "config_file", type=click.Path(path_type=Path), help="A rltriage.yaml: sources, receivers, state."
    )
    insecure = click.option(
        "--insecure", is_flag=True, help="Allow an address that others can reach without TLS and authentication."
    )
    return file(insecure(function))


def url_option(name: str, help: str, placeholders: tuple[str, ...] | None = None) -> Callable[[F], F]:
    """An option that takes the address of a page to link to; `placeholders` are what it may name with `$`."""

    def checked(context: click.Context, option: click.Parameter, value: str) -> str:
        from rltriage.rules.config_checks import address_problem

        problem = address_problem(value, placeholders) if value else ""
        if problem:
            raise click.BadParameter(problem)
        return value

    return click.option(name, metavar="URL", default="", callback=checked, help=help)
