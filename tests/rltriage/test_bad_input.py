"""Bad input gets one clear message that says where and what to do, exit code 2, and leaves nothing half written."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from pathlib import Path

import pytest

GOOD = "".join(json.dumps({"step": step, "reward": 0.1 * step}) + "\n" for step in range(5))


def _one_message(err: str) -> str:
    """The message, and proof that it is one: no traceback, and no second paragraph."""
    assert "Traceback" not in err
    lines = [line for line in err.strip().splitlines() if line and not line.startswith(("Usage:", "Try "))]
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"   \n\n", "empty"),
        (bytes(range(256)) * 40, "binary"),
        (b"\x1f\x8b\x08\x00" + bytes(200), "damaged"),
        (b"[1, 2, 3]\n", "row"),
        (b'"only text"\n', "row"),
        (b"hello world\nnothing here\n", "row"),
    ],
)
def test_unreadable_source(rltriage, tmp_path: Path, content: bytes | None, says: str) -> None:
    """A source that is missing, empty, binary or holds no row is named with the reason."""
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_bytes(content)
    ran = rltriage("replay", path)
    assert ran.code == 2
    message = _one_message(ran.err)
    assert str(path) in message
    assert says in message.lower()
    assert ran.out == ""


def test_second_source_missing_costs_nothing(rltriage, tmp_path: Path) -> None:
    """All sources are opened before the first is evaluated."""
    good = tmp_path / "good.jsonl"
    good.write_text(GOOD)
    ran = rltriage("replay", good, tmp_path / "missing.jsonl")
    assert (ran.code, ran.out) == (2, "")


def test_rows_that_are_no_objects_are_counted_not_fatal(rltriage, tmp_path: Path) -> None:
    """One broken line among good ones is reported and the rest is read."""
    path = tmp_path / "run.jsonl"
    path.write_text(GOOD + "[1, 2]\n" + json.dumps({"step": 5, "reward": 0.5}) + "\n")
    ran = rltriage("replay", "--json", path)
    run = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, run["rows"], run["bad_rows"]) == (0, 6, 1)


def test_ten_megabyte_line_is_refused_and_counted(rltriage, tmp_path: Path) -> None:
    """A line far too long for a row neither stops nor slows the rest."""
    path = tmp_path / "run.jsonl"
    path.write_text(
        GOOD + '{"step": 5, "text": "' + "x" * 10_000_000 + '"}\n' + json.dumps({"step": 6, "reward": 1}) + "\n"
    )
    ran = rltriage("replay", "--json", path)
    run = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, run["rows"], run["bad_rows"]) == (0, 6, 1)


def test_rules_path_that_does_not_exist(rltriage, tmp_path: Path) -> None:
    """A pack that is not there is named before any row is read."""
    good = tmp_path / "good.jsonl"
    good.write_text(GOOD)
    ran = rltriage("replay", "--rules", tmp_path / "mine.yaml", good)
    assert ran.code == 2
    assert str(tmp_path / "mine.yaml") in ran.err
    assert "Traceback" not in ran.err


def test_misspelt_pack_name_gets_a_suggestion(rltriage, tmp_path: Path) -> None:
    """`--rules triag` is answered with the shipped pack's name."""
    good = tmp_path / "good.jsonl"
    good.write_text(GOOD)
    ran = rltriage("replay", "--rules", "triag", good)
    assert ran.code == 2
    assert "triage" in ran.err


def test_broken_pack_makes_replay_exit_2_and_check_exit_1(rltriage, tmp_path: Path) -> None:
    """The same problem is a finding for `rules check` and bad input for `replay`."""
    good, pack = tmp_path / "good.jsonl", tmp_path / "mine.yaml"
    good.write_text(GOOD)
    pack.write_text("version: 1\npack: mine\nrules:\n  - id: x\n    sumary: y\n")
    assert rltriage("rules", "check", pack).code == 1
    ran = rltriage("replay", "--rules", pack, good)
    assert ran.code == 2
    assert f"{pack}:5:5" in ran.err


SLIP = """\
version: 1
rules:
  - {id: mine, summary: low, group: behavior, severity: info, suspects: {}, first_test: entropy_term_sign,
     when: {threshold: {metric: METRIC, below: 1}}}
"""


def test_a_misspelt_metric_is_said_by_every_command_that_loads_the_rules(rltriage, tmp_path: Path) -> None:
    """A rule must not be off in silence: `rules check` counts a warning, the others say it once on stderr and go on."""
    good, pack = tmp_path / "good.jsonl", tmp_path / "mine.yaml"
    good.write_text(GOOD)
    pack.write_text(SLIP.replace("METRIC", "entrpy"))
    ran = rltriage("rules", "check", pack)
    assert ran.code == 0 and ran.out.endswith(f"{pack}: 1 warning\n") and "no problems" not in ran.out
    assert rltriage("rules", "check", "--strict", pack).code == 1
    assert rltriage("rules", "check", "--strict", "triage") == (0, "triage: no problems\n", "")
    for args in (
        ("replay", good),
        ("replay", good, "--diff", "triage"),
        ("coverage", good),
        ("report", good, "-o", tmp_path / "report.html"),
    ):
        ran = rltriage(*args, "--rules", pack)
        assert ran.code == 0 and ran.err.count("did you mean `entropy`?") == 1, args
    pack.write_text(SLIP.replace("METRIC", "tool_latency"))
    assert rltriage("replay", good, "--rules", pack).err == ""
    assert rltriage("replay", good).err == ""


def test_problems_and_warnings_are_counted_apart(rltriage, tmp_path: Path) -> None:
    """A pack with both has both in its last line."""
    pack = tmp_path / "mine.yaml"
    pack.write_text(SLIP.replace("METRIC", "entrpy").replace("entropy_term_sign", "no_such_test_at_all"))
    ran = rltriage("rules", "check", pack)
    assert ran.code == 1 and ran.out.endswith("\n1 problem, 1 warning\n")


def test_rules_check_of_a_missing_file_is_unreadable_not_wrong(rltriage, tmp_path: Path) -> None:
    """Exit 2 where there is nothing to judge, 1 where there is."""
    assert rltriage("rules", "check", tmp_path / "mine.yaml").code == 2


def test_a_config_fact_that_nobody_knows_is_pointed_out(rltriage, tmp_path: Path) -> None:
    """A slip in --config would leave a rule capped at info; it is kept, and said."""
    good = tmp_path / "good.jsonl"
    good.write_text(GOOD)
    ran = rltriage("replay", "--config", "kl_cof=1", good)
    assert ran.code == 0
    assert "kl_cof" in ran.err and "did you mean 'kl_coef'" in ran.err


def test_port_in_use(rltriage, tmp_path: Path) -> None:
    """A taken port is said before training starts, and no run directory is made."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = rltriage("train", "--steps", 1, "--listen", f"127.0.0.1:{port}", "--runs", tmp_path / "runs")
    assert ran.code == 2
    assert f"127.0.0.1:{port}" in _one_message(ran.err)
    assert not (tmp_path / "runs").exists()


def test_listening_beyond_this_machine_is_refused(rltriage, tmp_path: Path) -> None:
    """An address that others can reach needs TLS and authentication."""
    ran = rltriage("train", "--steps", 1, "--listen", "0.0.0.0:0", "--runs", tmp_path / "runs")
    assert ran.code == 2
    assert "0.0.0.0" in ran.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("train", "--fault", "mask_shfit"), "mask_shift"),
        (("replay", "--config", "kl_coef", "x"), "KEY=VALUE"),
        (("replay", "--profile", "trll", "x"), "x"),
        (("repaly",), "replay"),
        (("rules", "explain", "kl-ref-exactly-zer"), "kl-ref-exactly-zero"),
        (("train", "--config", "learning=3"), "lr"),
    ],
)
def test_misspelt_words_are_answered_with_what_there_is(rltriage, args: tuple[str, ...], says: str) -> None:
    """A typo in a fault, command, rule or option says what would be right."""
    ran = rltriage(*args)
    assert ran.code == 2
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_check_usage_errors_stop_a_bisect(rltriage) -> None:
    """128 for a usage error, 125 where the probe cannot be built: `git bisect run` must not blame a commit for either."""
    assert rltriage("check", "--only", "mask").code == 128
    assert rltriage("check", "--fault", "nonsense").code == 128
    assert rltriage("check", "--probe", "no_such_module:make").code == 125
    assert rltriage("check", "--probe", "no_function").code == 128
    assert rltriage("check", "--only", "99").code == 128
    assert rltriage("check", "--seed", "one").code == 128
    assert rltriage("check", "--seed", 2**70).code == 128
    assert rltriage("check", "--no-such-option").code == 128


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("probe_raises", "raise RuntimeError('boom')", "boom"),
        ("probe_exits", "import sys; sys.exit(0)", "SystemExit"),
        ("probe_exits_later", "import sys\ndef make(): sys.exit(0)", "SystemExit"),
        ("probe_is_none", "def make(): return None", "returned None"),
        (
            "probe_is_empty",
            "def make(): return object()",
            "returned something of type object, not a TrainerProbe: it lacks backward, logp",
        ),
    ],
)
def test_a_probe_that_does_not_work_is_skipped(
    rltriage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str, says: str
) -> None:
    """A probe that exits with 0, returns nothing or breaks while it is checked neither passes nor blames a commit."""
    pytest.importorskip("torch")
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    ran = rltriage("check", "--probe", f"{name}:make")
    assert ran.code == 125
    assert says in _one_message(ran.err)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("".join(f'{{"step": {step}, "reward": 1}}\n' for step in ("1", "9" * 400, "3")), ""),
        (f'[{{"step": 1, "reward": {"9" * 5000}}}]', "row"),
        (GOOD.encode("utf-16").decode("latin-1"), ""),
        ("\x1f\x8b\x08\x00" + "\x00" * 200, "damaged"),
    ],
)
def test_content_that_no_float_or_codec_takes(rltriage, tmp_path: Path, content: str, says: str) -> None:
    """Integers beyond a float and files in another coding end in rows or in one message, never in a traceback."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(content.encode("latin-1"))
    ran = rltriage("replay", "--json", path)
    assert "Traceback" not in ran.err
    assert ran.code == (2 if says else 0)
    assert says in ran.err


def test_a_pipe_is_refused_at_once(rltriage, tmp_path: Path) -> None:
    """A named pipe without a writer would hold the command up for ever, and one with a writer would lose rows."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ran = rltriage("replay", pipe)
    assert ran.code == 2
    assert "a pipe" in _one_message(ran.err)


@pytest.mark.parametrize("address", ["http://[bad", "http://host:99999999/metrics"])
def test_an_address_that_is_none(rltriage, address: str) -> None:
    """An address with a typo is said to be none."""
    ran = rltriage("replay", address)
    assert ran.code == 2
    assert "no address" in _one_message(ran.err)


def test_no_file_argument_waits_for_a_pipe(rltriage, tmp_path: Path) -> None:
    """A named pipe given as a reference, a pack, tests of rules, a configuration or a run's facts is refused at once."""
    rows = tmp_path / "run" / "rows.jsonl"
    rows.parent.mkdir()
    rows.write_text('{"step": 0, "reward": 0.1}\n')
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for args in (
        ("replay", rows, "--reference", pipe),
        ("report", rows, "--reference", pipe),
        ("reference", "show", pipe),
        ("replay", rows, "--rules", pipe),
        ("rules", "check", pipe),
        ("rules", "test", pipe),
        ("watch", "--file", pipe),
        ("serve", "--file", pipe),
        ("coverage", pipe),
        ("reference", "build", pipe, "-o", tmp_path / "x.json"),
    ):
        ran = rltriage(*args)
        assert ran.code == 2, args
        assert "file" in ran.err + ran.out, args
    os.mkfifo(rows.parent / "run.json")
    assert "no file" in rltriage("replay", rows.parent).err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"step": 0, "rew', "begins as JSON and breaks off"),
        ('{"step": 0,\n "reward": 0.1,\n "lo', "begins as JSON and breaks off"),
        ('{"step": 0, "reward": 0.1, "done": tr', "begins as JSON and breaks off"),
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 12]", "begins as JSON and is none from line 1, column 36 on"),
        ('{"a":' * 9000 + "1" + "}" * 9000, "JSON nested too deeply to be read: write its rows as flat objects"),
        ('{"a":' * 90_000 + "1" + "}" * 90_000, "JSON nested too deeply to be read: write its rows as flat objects"),
        ("[1, 2]", "it is JSON without a list of rows"),
        ("[INFO] all is well\n[INFO] still\n", "begins with '[INFO] all is well'"),
        ("all is well\n", "begins with 'all is well'"),
        (
            json.dumps({"step": 0, "reward": 1.0, "text": "a" * (1 << 21)}) + "\n",
            "first row is longer than 1 MiB: log numbers",
        ),
        ((json.dumps({"step": 0, "text": "a" * (1 << 21)}) + "\n") * 2, "first row is longer than 1 MiB: log numbers"),
    ],
)
def test_what_is_no_log_is_called_what_it_is(rltriage, tmp_path: Path, content: str, says: str) -> None:
    """A cut file, a text and a row of two megabytes: each error says which it is."""
    log = tmp_path / "log.jsonl"
    log.write_text(content)
    ran = rltriage("replay", log)
    assert ran.code == 2
    assert says in ran.err


def test_a_run_is_called_the_same_by_every_command(rltriage, tmp_path: Path) -> None:
    """`grow/rows.jsonl` is the run `grow`, as in `watch`, whether its file or its folder is named."""
    rows = tmp_path / "grow" / "rows.jsonl"
    rows.parent.mkdir()
    rows.write_text('{"step": 0, "reward": 0.1}\n')
    for place in (rows, rows.parent):
        assert rltriage("replay", place).out.startswith("grow: 1 row,")
        assert '"run": "grow"' in rltriage("replay", place, "--json").out


def test_a_misspelt_fault_gets_a_suggestion_and_the_list(rltriage) -> None:
    """`check --fault` says what was meant and where all are listed."""
    pytest.importorskip("torch")
    err = rltriage("check", "--fault", "mask_shif").err
    assert "did you mean 'mask_shift'" in err
    assert "--fault list" in err


def test_explaining_a_rule_of_ones_own_says_how(rltriage) -> None:
    """A rule that the shipped packs do not have may be in a file."""
    assert "`--rules FILE`" in rltriage("rules", "explain", "my-rule").err


def test_names_that_no_encoding_can_write_end_no_command(rltriage, tmp_path: Path) -> None:
    """Half a surrogate pair in a run's id or a metric's name: every rule works, and every command prints."""
    log = tmp_path / "log.jsonl"
    rows = [
        {"run": "a\ud800", "step": step, "kl_ref": 0, "grad_norm": 0.1, "lr": 0.1, "m\udfff": step} for step in range(6)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ran = rltriage("replay", log, "--config", "kl_coef=0.1")
    assert ran.code == 1
    assert "ref_is_policy" in ran.out
    for args in (("coverage", log), ("profiles", "check", log), ("replay", log, "--json")):
        assert rltriage(*args).code in (0, 1)
    assert rltriage("report", log, "-o", tmp_path / "r.html").code == 0
    assert "a?" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("command", ["replay", "replay --json", "report --format json", "report", "export", "coverage"])
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", '{"step": 1, "reward": "high"}\n' * 9, "no row has a number: reward is text ('high')"),
        ("a.jsonl", '{"step": 1}\n' * 9, "no row has a number: there is nothing but step"),
        ("a.jsonl", '{"step": 1, "reward": null}\n', "no row has a number: reward is null"),
        ("a.jsonl", '{"step": 1, "note": "x", "reward": [1, 2]}\n', "reward is a list, note is text ('x')"),
        ("a.jsonl", '{"step": 1, "a": {"reward": "\\u001b[2J"}}\n', "a/reward is text ('\\x1b[2J')"),
        (
            "a.csv",
            "step;reward;kl\n1;0,5;0,1\n2;0,6;0,1\n",
            "reward is text ('0,5'), kl is text ('0,1'); write decimals with",
        ),
    ],
)
def test_a_log_without_a_number_is_an_error(
    rltriage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, content: str, says: str
) -> None:
    """Silence and exit 0 would say that nothing is wrong: what was seen instead of numbers is named, exit 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    ran = rltriage(*command.split(), name)
    assert ran.code == 2 and says in _one_message(ran.err) and ran.out == ""
    assert not (tmp_path / "report.html").exists()


def test_a_run_without_rows_is_an_error(rltriage, tmp_path: Path) -> None:
    """A run's folder whose file of rows is empty, or holds nothing that is a row."""
    rows = tmp_path / "r" / "rows.jsonl"
    rows.parent.mkdir()
    rows.touch()
    assert _one_message(rltriage("report", rows.parent).err) == f"{rows.parent}: no row in it yet"
    rows.write_text("hello\n")
    assert "no line in it is a row; line 1: " in _one_message(rltriage("replay", rows.parent).err)


@pytest.mark.parametrize("content", [GOOD, GOOD[:-9], '{"step": 1}\n', "step,reward\n0,0.1\n1,0.2\n", '[{"reward": 1}]'])
@pytest.mark.parametrize("command", ["replay", "report --format md", "export", "coverage", "profiles check"])
def test_every_log_is_closed(rltriage, tmp_path: Path, recwarn, command: str, content: str) -> None:
    """Whatever comes of it, no file is left to the interpreter to close."""
    path = tmp_path / "run.log"
    path.write_text(content)
    rltriage(*command.split(), path)
    gc.collect()
    assert [str(warning.message) for warning in recwarn if "unclosed" in str(warning.message)] == []
