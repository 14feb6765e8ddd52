"""What `rltriage.watch` and the hooks are given: wrong words are one clear error, before training starts."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage import arguments
from rltriage.arguments import MOST_UNKNOWN, WatchOptions, check_options, unknown_facts
from rltriage.rules.loader import load_rules

SLIP = """\
version: 1
rules:
  - {id: mine, summary: low, group: behavior, severity: info, suspects: {}, first_test: entropy_term_sign,
     when: {any: [{threshold: {metric: entrpy, below: 1}}, {threshold: {metric: tool_latency, above: 9}}]}}
"""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rules": 5}, "rules=5 cannot be: write a pack or several"),
        ({"rules": ["triage", 5]}, "rules="),
        ({"config": "kl_coef=0.1"}, "config='kl_coef=0.1' cannot be: write a mapping"),
        ({"config": ["kl_coef"]}, "config="),
        ({"labels": "core"}, "labels='core' cannot be"),
        ({"profile": 3}, "profile=3 cannot be"),
        ({"listen": 2.5}, "listen=2.5 cannot be: write a port"),
        ({"listen": True}, "listen=True"),
        ({"listen": "x"}, "listen='x' cannot be: write a port from 0 to 65535, or HOST:PORT"),
        ({"listen": ""}, "listen='' cannot be"),
        ({"listen": 99999}, "listen=99999 cannot be"),
        ({"listen": -1}, "listen=-1 cannot be"),
        ({"listen": "0.0.0.0:9464"}, "others would read it without TLS and authentication; write a port of 127.0.0.1"),
        ({"directory": 3}, "directory=3 cannot be"),
        ({"directory": __file__}, "is a file; write a folder's path"),
        ({"directory": Path(__file__) / "runs"}, f"{__file__} is a file"),
        ({"directory": "a\0b"}, "write a path without NUL"),
        ({"on_alert": "print"}, "on_alert='print' cannot be: write a function"),
        ({"halt_on": 1}, "halt_on=1 cannot be: write one of info, warning, critical"),
    ],
)
def test_what_cannot_be_is_refused_at_the_call(options: dict[str, Any], says: str) -> None:
    """Every wrong type is an RltriageError that names the option and what to write, from `watch` and from the hooks."""
    for call in (lambda: rltriage.watch("r", **{"directory": None, **options}), lambda: check_options(options)):
        with pytest.raises(rltriage.RltriageError) as error:
            call()
        assert says in str(error.value)


def test_an_option_that_may_work_later_is_no_error(tmp_path: Path) -> None:
    """A free port by its host's name, and a folder that is not there yet."""
    with rltriage.watch("r", directory=tmp_path / "new" / "runs", listen="localhost:0", quiet=True) as run:
        run.log(0, {"reward": 0.1})
        assert run.url is not None
    assert run.errors == 0 and (tmp_path / "new" / "runs" / "r").is_dir()


def test_a_disk_that_hangs_at_the_call_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a file is in the way is asked for a moment only."""
    goes_on = threading.Event()
    monkeypatch.setattr(arguments, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Path, "exists", lambda path: goes_on.wait(60))
    check_options({"directory": tmp_path})
    goes_on.set()


def test_a_name_that_looks_misspelt_in_the_rules_is_pointed_out_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the call, and after a reload only what is new: a rule must not be off in silence. Own names are no slips."""
    pack = tmp_path / "mine.yaml"
    pack.write_text(SLIP)
    with rltriage.watch("r", directory=None, rules=["triage", pack], quiet=True) as run:
        assert caplog.text.count("the metric `entrpy` is not in the catalogue; did you mean `entropy`?") == 1
        for number, text in enumerate((SLIP + "# more\n", SLIP.replace("tool_latency", "rewrd"))):
            pack.write_text(text)
            os.utime(pack, (number, number))
            run._read_rules()
        assert run._read is not None
    assert caplog.text.count("`entrpy`") == 1 and caplog.text.count("`rewrd`") == 1
    assert "tool_latency" not in caplog.text and run.errors == 0


def test_the_shipped_rules_are_loaded_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in them looks misspelt."""
    rltriage.watch("r", directory=None, quiet=True).close()
    assert caplog.text == ""


def test_a_hooks_misspelt_option_is_not_ignored() -> None:
    """Hooks take any keyword, so one that there is not must be said."""
    for hook in (rltriage.trl_callback, rltriage.sb3_callback, rltriage.verl_backend, rltriage.openrlhf_logger):
        with pytest.raises(rltriage.RltriageError, match="no option halton: did you mean halt_on"):
            hook(halton="critical")


def test_options_that_are_none_are_left_out() -> None:
    """None means the default, whatever the option."""
    check_options(dict.fromkeys(WatchOptions.__annotations__))
    with rltriage.watch("r", directory=None, config=None, rules=None, labels=None) as run:
        run.log(0, {"reward": 0.1})
    assert run.errors == 0


def test_a_fact_that_nobody_knows_is_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    """What the user declared and no profile knows is said once with what was meant; a hook's other settings are not."""
    with caplog.at_level(logging.WARNING), rltriage.watch("r", directory=None, config={"kl_ceof": 0.1}, quiet=True) as run:
        run.declare({"per_device_batch": 3})
        for step in range(8):
            run.log(step, {"reward": 0.1, "entropy": 0.4})
    said = [line for line in caplog.text.splitlines() if "config fact" in line]
    assert len(said) == 1
    assert "'kl_ceof'; did you mean 'kl_coef'?" in said[0]


def test_a_fact_of_ones_own_rules_is_known(tmp_path) -> None:
    """A rule may require a fact that no profile has; declaring it is no slip."""
    pack = tmp_path / "mine.yaml"
    pack.write_text(
        "version: 1\nrules:\n  - {id: mine, summary: low, group: behavior, severity: info,\n"
        "     requires: {my_fact: {known: true}}, when: {threshold: {metric: entropy, below: 1}},\n"
        "     suspects: {}, first_test: entropy_term_sign}\n"
    )
    assert [line.split("'")[1] for line in unknown_facts(["my_fact", "your_fact"], load_rules(str(pack)))] == ["your_fact"]


def test_unknown_facts_are_told_in_bounds() -> None:
    """Thousands of them, long names and control characters fill no terminal and change no line of it."""
    pack = load_rules("triage")
    said = list(unknown_facts(["evil\n\x1b[2Jname\u202e", "k" * 5000, *(f"zz{i}" for i in range(100_000))], pack))
    assert len(said) == MOST_UNKNOWN + 1 and said[-1] == "no rule or profile knows several more of the config facts"
    assert all(line.isprintable() and len(line) < 200 for line in said)
    assert said[0].endswith(r"'evil\n\x1b[2Jname\u202e'")
    assert len(list(unknown_facts((f"zz{i}" for i in range(MOST_UNKNOWN)), pack))) == MOST_UNKNOWN
