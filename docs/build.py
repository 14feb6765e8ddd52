"""Writes the generated parts of the pages, deploy/ and the schemas anew: `make docs`.

A test compares what is committed with it. A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`;
the text around it is written by hand.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rltriage.exporters.compile_prometheus import compile_metrics
from rltriage.exporters.meta_alerts import META_ALERTS
from rltriage.exporters.naming import Family, Names
from rltriage.exporters.recording import ALL as RECORDED
from rltriage.exporters.schema import json_schema
from rltriage.exporters.state import BANDED
from rltriage.rules import frameworks, shapes
from rltriage.rules.conditions import KINDS
from rltriage.rules.conditions.terms import Term, Window
from rltriage.rules.config import _schema as config_schema
from rltriage.rules.facts import CONFIG_FACTS, describe_test
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Fault, Rule
from rltriage.rules.schema import pack_schema, rule_schema
from rltriage.trainer.checks import ALL_CHECKS

ROOT = Path(__file__).parents[1]
# Programs beside the package, which write parts of the pages.
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "deploy")]
PACK = load_rules("triage")
CATALOGUE = PACK.catalogue
LIKELY = 0.2
_PART = re.compile(r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; `|` inside cells is escaped."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def sentence(text: str) -> str:
    """Text on one line with a capital and a full stop; names such as `grad_norm` as code."""
    text = re.sub(r"(?<![`\w.:/-])[a-z]\w*_\w+(?![`\w])", r"`\g<0>`", " ".join(text.split()))
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".!?" else ".")


def inline(value: Any) -> str:
    """A value as code; nothing for no value."""
    return "" if value in (None, "", ()) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


# ---------------------------------------------------------------- faults


def rules_for(fault: str) -> list[Rule]:
    """The rules that suspect a fault, strongest first."""
    found = [rule for rule in PACK.rules if fault in rule.suspects]
    return sorted(found, key=lambda rule: -rule.suspects[fault])


def faults() -> list[Fault]:
    """The chapter's ten by number, then the others in the catalogue's order."""
    return sorted(CATALOGUE.faults.values(), key=lambda fault: fault.number or 99)


def found(prefix: str = "docs/faults.md") -> str:
    """The table of faults: what each is, and what sees it. Rules that give it less than `LIKELY` do not count."""
    tables = []
    for part in ([each for each in faults() if each.number], [each for each in faults() if not each.number]):
        rows = ([str(each.number or ""), f"[`{each.id}`]({prefix}#{each.id})", each.title, _seen_by(each)] for each in part)
        tables.append(table(("no.", "fault", "what it is", "seen by"), rows))
    rest = f"<details><summary>And {len(faults()) - 10} more, from public bug reports</summary>"
    return f"{tables[0]}\n{rest}\n\n{tables[1]}\n</details>\n"


def _seen_by(fault: Fault) -> str:
    rules = [each for each in rules_for(fault.id) if each.suspects[fault.id] >= LIKELY and not each.id.startswith("check-")]
    numbers = sorted(_number(check) for check in fault.failing_checks | fault.may_fail)
    seen = [f"{len(rules)} rule{'s' if len(rules) != 1 else ''}"] if rules else []
    seen += [f"invariant{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"] if numbers else []
    return ", ".join(seen) + (" only" if numbers and not rules else "")


def _number(check: str) -> int:
    return next(each.number for each in ALL_CHECKS if each.id == check)


def runbook() -> str:
    """One section a fault; the heading is the id, so that its anchor never changes."""
    return "\n".join(_fault(fault) for fault in faults())


def _fault(fault: Fault) -> str:
    number = f" Fault {fault.number} of the chapter." if fault.number else ""
    lines = [f"## {fault.id}", "", f"**{sentence(fault.title)}**{number} {sentence(fault.summary)}", ""]
    lines += [f"- **Signature.** {sentence(fault.signature)}"] if fault.signature else []
    if fault.look_alikes:
        lines += ["- **Looks the same:**", *(f"  - {sentence(each)}" for each in fault.look_alikes)]
    lines += _first_test(fault)
    lines += [f"- **Fix.** {sentence(fault.fix)}"] if fault.fix else []
    lines.append(f"- **The run meanwhile:** {fault.action}.")
    if fault.failing_checks:
        lines.append(f"- **Failing invariants:** {', '.join(f'`{each}`' for each in sorted(fault.failing_checks))}.")
    if fault.may_fail:
        lines.append(f"- **In some set-ups failing:** {', '.join(f'`{each}`' for each in sorted(fault.may_fail))}.")
    if fault.excluded_when:
        tests = " and ".join(describe_test(fact, tests) for fact, tests in fault.excluded_when.items())
        lines.append(f"- **Impossible when** {tests}.")
    lines.append(f"- **Rules that suspect it:** {_suspecting(fault.id)}.")
    lines += [f"- **Source:** {', '.join(fault.sources)}."] if fault.sources else []
    return "\n".join(lines) + "\n"


def _suspecting(fault: str) -> str:
    """The rules with their weights; many rules hold a common fault for unlikely, which is one word."""
    rules = rules_for(fault)
    strong = [f"`{rule.id}` ({rule.suspects[fault]:.0%})" for rule in rules if rule.suspects[fault] >= LIKELY]
    rest = f"{len(rules) - len(strong)} more with less than {LIKELY:.0%}"
    return ", ".join([*strong, *([rest] if len(strong) < len(rules) else [])]) or "none"


def _first_test(fault: Fault) -> list[str]:
    test = CATALOGUE.first_tests.get(fault.first_test)
    if test is None:
        return []
    lines = [f"- **First test** ([`{test.id}`](#{test.id})): {sentence(test.title)}"]
    return lines + ([f"  Run `{test.command}`."] if test.command else [])


def tests() -> str:
    """One section a first test."""
    needs = {"rows": "the logged metrics", "dump": "a recorded batch or sampled text", "trainer": "a probe of the trainer"}
    parts = []
    for test in CATALOGUE.first_tests.values():
        lines = [f"### {test.id}", "", f"**{sentence(test.title)}** Needs {needs[test.tier]}. {sentence(test.how)}", ""]
        lines += [f"- Run `{test.command}`."] if test.command else []
        for outcome, fault in test.decides.items():
            name = f"[`{fault}`](#{fault})" if fault in CATALOGUE.faults else fault
            lines.append(f"- {sentence(outcome).rstrip('.')}: {name}.")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


# ---------------------------------------------------------------- rules


def kinds() -> str:
    """One section a condition kind: its docstring and its keys."""
    return "\n".join(_kind(kind) for kind in sorted(KINDS))


def _kind(kind: str) -> str:
    text, _, example = (inspect.getdoc(KINDS[kind]) or "").rpartition("\n\n")
    if shapes.inline_field(KINDS[kind]) is not None:
        keys = (
            "Written without a key of its own: `"
            + {"not": "not: CONDITION"}.get(kind, f"{kind}: [CONDITION, ...]")
            + "`.\n"
        )
    else:
        keys = keys_of(KINDS[kind])
    return f"### {kind}\n\n{text}\n\n```yaml condition\n{example}\n```\n\n{keys}"


def keys_of(cls: Any) -> str:
    """The YAML keys of a dataclass."""
    rows = []
    for field in shapes.fields(cls):
        default = "required" if field.required else inline(shapes.plain(field.default))
        rows.append([f"`{field.key}`", _type(field.hint), default, field.metadata.get("help", "")])
    return table(("key", "type", "default", "what it is"), rows)


def _type(hint: Any) -> str:
    """A type hint in a reader's words."""
    names = {float: "number", int: "whole number", str: "text", bool: "true or false", Term: "operand", Window: "window"}
    options = []
    for option in shapes.members(hint):
        if shapes.element_of(option) is not None:
            options.append(f"list of {_type(shapes.element_of(option))}")
        elif option in names:
            options.append(names[option])
        elif getattr(option, "__args__", None):
            options.append(", ".join(f"`{word}`" for word in option.__args__))
        else:
            options.append(option.__name__.lower().removesuffix("term"))
    return " or ".join(dict.fromkeys(options))


def schema_keys(schema: Mapping[str, Any]) -> str:
    """The keys that a JSON Schema's mapping has."""
    rows = []
    for key, entry in schema["properties"].items():
        need = "required" if key in schema.get("required", ()) else ""
        choices = ", ".join(f"`{each}`" for each in entry.get("enum", ()))
        rows.append([f"`{key}`", need, "; ".join(filter(None, (entry.get("description") or _below(entry), choices)))])
    return table(("key", "", "what it is"), rows)


def _below(entry: Mapping[str, Any]) -> str:
    """The keys of a mapping, with what each is where that is said there."""
    named = {key: sub.get("description", "") for key, sub in entry.get("properties", {}).items()}
    return "a mapping: " + "; ".join(f"`{key}`" + (f" {text}" if text else "") for key, text in named.items())


def facts() -> str:
    """The config facts."""
    return table(("fact", "what it is"), ([f"`{name}`", text] for name, text in CONFIG_FACTS.items()))


def operand() -> str:
    """The keys of an operand and of its window."""
    parts = []
    for name, cls in (("operand", Term), ("window", Window)):
        text, _, example = (inspect.getdoc(cls) or "").rpartition("\n\n")
        parts.append(f"**{name}**: {text}\n\n```text\n{example}\n```\n\n{keys_of(cls)}")
    return "\n".join(parts)


# ---------------------------------------------------------------- prometheus and deployment


def metrics() -> str:
    """The gauges of the canonical metrics."""
    rows = []
    for info in filter(lambda info: info.prometheus, CATALOGUE.metrics.values()):
        labels = ", ".join(f'{name}="{value}"' for name, value in info.labels.items())
        rows.append(
            [f"`{info.name}`", f"`{info.prometheus}`" + (f" `{{{labels}}}`" if labels else ""), info.unit, info.help]
        )
    return table(("metric", "Prometheus name", "unit", "help"), rows)


def healthy() -> str:
    """The metrics whose healthy range is exported."""
    names = Names(CATALOGUE.metrics)
    found = ((metric, names.healthy(metric)) for metric in BANDED)
    rows = ([f"`{metric}`", f"`{place[0].name}`"] for metric, place in found if place is not None)
    return table(("metric", "Prometheus name of its healthy range"), rows)


def recorded() -> str:
    """The recording rules."""
    return table(("recorded as", "expression"), ([f"`{each.record}`", f"`{each.expression}`"] for each in RECORDED))


def families() -> str:
    """The families that describe runs, alerts, deliveries and the exporter itself."""
    seen: dict[str, Family] = {}
    for module in ("exporters.gauges", "exporters.samples", "service"):
        for value in vars(import_module(f"rltriage.{module}")).values():
            if isinstance(value, Family):
                seen[value.sample_name] = value
    return table(("name", "type", "help"), ([f"`{name}`", seen[name].kind, seen[name].help] for name in sorted(seen)))


def meta() -> str:
    """The runbook of the alerts on rltriage itself; the heading is the alert's name."""
    parts = []
    for alert in META_ALERTS:
        held = f" Held for {alert.hold}." if alert.hold else ""
        parts.append(
            f"## {alert.name}\n\n{alert.meaning}\n\n- **What to do.** {alert.todo}\n"
            f"- **Severity:** {alert.severity}.{held}\n\n```promql\n{alert.expression}\n```\n"
        )
    return "\n".join(parts)


def translated() -> str:
    """How much of the shipped pack `rules compile --from metrics` translates, and why not the rest."""
    left = compile_metrics(PACK, CATALOGUE).left_out
    reasons = Counter(_reason(why) for why in left.values())
    rows = ([reason, str(count)] for reason, count in reasons.most_common())
    said = (
        f"Of the {len(PACK.rules)} shipped rules, {len(PACK.rules) - len(left)} are translated. The rest is left out:\n\n"
    )
    return said + table(("why", "rules"), rows)


def _reason(why: str) -> str:
    """A reason without the names of one rule's metrics and facts."""
    why = re.sub(r"needs \w+ of \w+,", "needs a statistic of the whole run,", re.sub(r" \(.*?\)", "", why))
    return re.sub(r"^\w+ looks at", "its kind looks at", why)


def settings() -> str:
    """Every key of rltriage.yaml."""
    schema = config_schema()
    parts = [schema_keys(schema)]
    for name, title in (("rules", "rules"), ("web", "web")):
        parts.append(f"`{title}`:\n\n{schema_keys(schema['properties'][name])}")
    for name in ("source", "receiver", "basic_auth", "secret"):
        parts.append(f"A {name.replace('_', ' ')}:\n\n{schema_keys(schema['$defs'][name])}")
    return "\n".join(parts)


def extra_faults() -> str:
    """What sees each fault beyond the chapter's: the recorded runs, judged by the rules as they are."""
    return f"{import_module('extra_faults').section()}\n"


def index() -> str:
    """Every page with its title and its first sentence."""
    rows = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        first = re.search(r"^(?![#<\[|-]|```|\s*$)(.+?[.])(?=\s|$)", text, re.MULTILINE | re.DOTALL)
        if page.name != "README.md":
            rows.append(
                [f"[{page.name}]({page.name})", title[1] if title else "", " ".join(first[1].split()) if first else ""]
            )
    return table(("page", "title", "what for"), rows)


PARTS = {
    "index": index,
    "extra-faults": extra_faults,
    "found": found,
    "runbook": runbook,
    "tests": tests,
    "kinds": kinds,
    "rule-keys": lambda: schema_keys(rule_schema()),
    "pack-keys": lambda: schema_keys(pack_schema()),
    "facts": facts,
    "operand": operand,
    "metrics": metrics,
    "families": families,
    "healthy": healthy,
    "recorded": recorded,
    "translated": translated,
    "meta": meta,
    "settings": settings,
    "frameworks": lambda: frameworks.tables(PACK.rules),
    **import_module("scale_tables").PARTS,
}


def rebuilt(text: str) -> str:
    """A page with its generated parts written anew."""
    return _PART.sub(lambda part: f"{part['head']}\n{PARTS[part['name']]()}\n{part['end']}", text)


def build() -> dict[Path, str]:
    """What every generated page, the schemas of rules and output, and the files of deploy/ have to hold."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {page: page.read_text(encoding="utf-8") for page in pages}
    found = {page: rebuilt(text) for page, text in found.items() if _PART.search(text)}
    found[ROOT / "rules" / "rules.schema.json"] = json.dumps(pack_schema(), indent=2) + "\n"
    found[ROOT / "exporters" / "report.schema.json"] = json.dumps(json_schema(), indent=1) + "\n"
    return found | import_module("manifests").generated()


if __name__ == "__main__":
    for path, text in build().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
