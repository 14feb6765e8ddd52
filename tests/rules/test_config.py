"""`rltriage.yaml`: every problem at once, at its place, without repeating a secret."""

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest

from rltriage.rules.config import SCHEMA_FILE, Secret, load_config, parse_config, text_of
from rltriage.rules.config_checks import seconds
from rltriage.rules.errors import DeliveryError, RulePackError
from rltriage.rules.yamlmarks import parse

WHOLE = """
version: 1
state_dir: state
retention: 12h
listen: 127.0.0.1:9999
external_url: http://watch:9464
runbook_url: https://wiki.example/rl/$fault
rules:
  packs: [triage]
  extra: [my/rules.yaml, /etc/more]
sources:
  - path: runs/*/rows.jsonl
    profile: verl
    labels: {team: post}
    config: {kl_coef: 1e-2}
  - metrics: http://trainer:8000/metrics
  - prometheus: {env: PROM_URL}
    query: '{job="rl"}'
web:
  tls: {cert_file: tls/cert.pem, key_file: tls/key.pem}
  basic_auth: {ann: {file: ann.secret}}
receivers:
  - name: am
    alertmanager: [http://one:9093, {env: SECOND_AM}]
    basic_auth: {username: u, password: {env: AM_PASSWORD}}
    ca_file: ca.pem
  - name: hook
    webhook: {file: hook.url}
    headers: {Authorization: {env: TOKEN}, X-Team: post}
    body: {text: "$title: $$5", alerts: $alerts, x: [1, null, true]}
    min_severity: info
    match: {run: grpo-*, team: [post, pre]}
    group_window: 2m
  - name: pager
    apprise: {env: PAGER}
    page: true
x-mine: anything
"""


def problems(text: str) -> list[str]:
    with pytest.raises(RulePackError) as caught:
        parse_config(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_whole_configuration_is_read():
    """Paths start from the file's folder; numbers are YAML 1.2; one receiver has its own window, severity and match."""
    config = parse_config(WHOLE, folder=Path("/etc/rlt"))
    assert config.state_dir == Path("/etc/rlt/state") and config.retention == 43200.0
    assert config.packs == ("triage", "/etc/rlt/my/rules.yaml", "/etc/more")
    path, metrics, prometheus = config.sources
    assert (path.where, path.profile, path.labels, path.config) == (
        "/etc/rlt/runs/*/rows.jsonl",
        "verl",
        {"team": "post"},
        {"kl_coef": 0.01},
    )
    assert metrics.where == "http://trainer:8000/metrics" and prometheus.where == Secret(env="PROM_URL")
    assert (
        config.web.users == {"ann": Secret(file="/etc/rlt/ann.secret")} and config.web.cert_file == "/etc/rlt/tls/cert.pem"
    )
    am, hook, pager = config.receivers
    assert am.urls == ("http://one:9093", Secret(env="SECOND_AM")) and am.ca_file == "/etc/rlt/ca.pem"
    assert am.basic_auth is not None and am.basic_auth.password == Secret(env="AM_PASSWORD")
    assert hook.body == {"text": "$title: $$5", "alerts": "$alerts", "x": [1, None, True]}
    assert (hook.min_severity, hook.group_window, hook.match) == (
        "info",
        120.0,
        {"run": ("grpo-*",), "team": ("post", "pre")},
    )
    assert pager.page and pager.kind == "apprise" and pager.min_severity == "warning"


def test_the_shortest_configuration_has_sensible_defaults():
    """Only the version is needed; nothing listens on other addresses."""
    config = parse_config("version: 1")
    assert config.packs == ("triage",) and config.listen.startswith("127.0.0.1:") and not config.receivers


def test_every_problem_is_reported_in_one_go_in_the_order_of_the_file():
    """With line, column, source line, caret and what to write instead."""
    found = problems(
        "version: 2\nsorces: []\nretention: 5 parsecs\nsources:\n  - {path: a, metrics: http://x/m}\n  - {profile: verl}\n"
        "receivers:\n  - name: a\n    webhook: ftp://x\n    body: {text: $titel}\n  - {name: a, alertmanager: http://x,"
        " min_severity: critcal, body: {}}\n"
    )
    heads = [problem.splitlines()[0].replace("rltriage.yaml:", "") for problem in found]
    places = [head.split(": ")[0] for head in heads]
    assert places == ["1:10", "2:1", "3:12", "5:15", "6:5", "9:14", "10:18", "11:12", "11:53", "11:62"]
    assert "did you mean `sources`?" in found[1] and "90s, 12h, 30d" in found[2]
    assert "`$titel` stands for nothing" in found[6] and "did you mean `title`?" in found[6]
    assert "defined twice (first in line 8)" in found[7] and "did you mean `critical`?" in found[8]
    assert found[1].splitlines()[1:3] == ["    sorces: []", "    ^"]


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ("wiki/faults", "2:14", "must be an http:// or https:// URL"),
        ("https://wiki/$falut", "2:14", "did you mean `fault`?"),
        ("https://wiki/$", "2:14", "write $$ for a dollar sign"),
        ("https://u:hunter2@wiki/", "2:14", "holds a password in plain text"),
        ("3", "2:14", "text"),
    ],
)
def test_a_runbooks_address_is_checked_at_its_place(value, place, words):
    """A URL without a password; only the fault and the rule can be named in it."""
    (problem,) = problems(f"version: 1\nrunbook_url: {value}\n")
    assert problem.startswith(f"rltriage.yaml:{place}: ") and words in problem and "hunter2" not in problem


@pytest.mark.parametrize(
    "line",
    [
        "web: {basic_auth: {ann: hunter2}}",
        "receivers: [{name: a, apprise: 'slack://hunter2/x'}]",
        "receivers: [{name: a, webhook: 'http://bob:hunter2@host/x'}]",
        "receivers: [{name: a, webhook: http://x, headers: {Authorization: Bearer hunter2}}]",
        "receivers: [{name: a, webhook: http://x, basic_auth: {username: u, password: hunter2}}]",
        "receivers: [{name: a, webhook: http://x, passwrod: hunter2}]",
        "receivers:\n  - {name: a, webhook: http://x, basic_auth: {username: u, password: {evn: hunter2}}}",
        "receivers:\n  - name: a\n    password: hunter2: x",
        "sources: [{metrics: 'http://u:hunter2@host/metrics'}]",
        "web: {tokn: hunter2}",
        "web: hunter2",
        "web: [hunter2]",
        "receivers: hunter2",
        "receivers: [hunter2]",
        "tokn: {x: [{y: hunter2}]}",
        "receivers: [{name: a, webhook: ['https://hooks.example/services/hunter2']}]",
        "receivers: [{name: a, webhook: https://hooks.example/services/hunter2, min_severity: x}]",
        "receivers: [{name: a, webhook: https://x, body: {key: hunter2, other: $nothing}}]",
    ],
)
def test_a_secret_that_was_written_out_is_refused_and_not_repeated(line):
    """Neither in the message nor in the quoted line, whatever else is wrong with it."""
    found = problems(f"version: 1\n{line}\n")
    assert found and "hunter2" not in "".join(found)


def test_secrets_are_read_when_used_and_never_shown(tmp_path, monkeypatch):
    """From the environment or a file; a missing one is named; the repr holds the place, not the secret."""
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("RLT_TOKEN", "from-env")
    assert Secret(env="RLT_TOKEN")() == "from-env" and text_of(Secret(file=str(tmp_path / "token")))() == "from-file"
    assert text_of("plain")() == "plain" and "from-env" not in repr(Secret(env="RLT_TOKEN"))
    monkeypatch.delenv("RLT_TOKEN")
    with pytest.raises(DeliveryError, match="RLT_TOKEN is not set"):
        Secret(env="RLT_TOKEN")()
    with pytest.raises(DeliveryError, match=r"missing cannot be read"):
        Secret(file=str(tmp_path / "missing"))()
    (tmp_path / "token").write_text(" \n")
    with pytest.raises(DeliveryError, match="is empty"):
        Secret(file=str(tmp_path / "token"))()


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2-S3cr3t!xyz",
        "https://hooks.slack.example/services/T0/B0/hunter2",
        "Bearer hunter2.def.ghi",
        "hunter2hunter2",
        "xoxb1hunter2",
        "AKIA5OSFODNN7HUNTER2",
        "k" * 40,
        "31415926535897932384",
    ],
)
@pytest.mark.parametrize("key", ["env", "file"])
def test_a_secret_in_the_place_of_its_name_is_not_repeated(monkeypatch, key, secret):
    """Somebody pastes it where its variable or file should be named: neither loading nor using the file shows it."""
    monkeypatch.delenv(secret, raising=False)
    text = f"version: 1\nreceivers:\n  - {{name: a, webhook: {{{key}: {secret!r}}}}}\n"
    try:
        config = parse_config(text)
    except RulePackError as error:
        said = str(error)
        assert "write {env: NAME}" in said
    else:
        with pytest.raises(DeliveryError) as caught:
            config.receivers[0].urls[0]()
        said = str(caught.value)
    assert "not shown here, in case it is the secret itself" in said
    assert not any(part in said for part in (secret, "hunter2", "HUNTER2"))
    beside = "".join(problems(f"{text}    colour: red\n"))
    assert "colour" in beside and secret not in beside and "hunter2" not in beside


@pytest.mark.parametrize("name", ["RLT_TOKEN", "SLACK_URL_2", "_X", "AWS_S3_KEY", "TOKEN1"])
def test_the_name_of_a_missing_variable_is_shown(monkeypatch, name):
    """As variables are usually named."""
    monkeypatch.delenv(name, raising=False)
    with pytest.raises(DeliveryError, match=rf"the environment variable {name} is not set"):
        Secret(env=name)()


@pytest.mark.parametrize("name", ["token", "slack-url.txt", ".chat_url", "TOKEN", "pager2", "am.key"])
def test_the_name_of_a_missing_file_is_shown(tmp_path, name):
    """As files are usually named."""
    with pytest.raises(DeliveryError, match=re.escape(f"the secret file {tmp_path / name} cannot be read")):
        Secret(file=str(tmp_path / name))()


def test_a_secret_is_a_small_file(tmp_path):
    """A folder, a pipe, a device without an end and a huge file are refused with the reason, and waited for by nobody."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("x" * 70_000)
    for file, says in (("", "a folder"), ("pipe", "a pipe"), ("large", "longer than 65536"), ("none", "No such file")):
        with pytest.raises(DeliveryError, match=f"cannot be read: .*{says}"):
            Secret(file=str(tmp_path / file))()
    if os.path.exists("/dev/zero"):
        with pytest.raises(DeliveryError, match="a device"):
            Secret(file="/dev/zero")()


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('sources: [{path: "~nobody-of-this-name/x"}]', "2:18"),
        ('sources: [{path: x, reference: [a, "~nobody-of-this-name/x"]}]', "2:36"),
        ('rules: {extra: ["~nobody-of-this-name/x"]}', "2:17"),
        ('state_dir: "~nobody-of-this-name"', "2:12"),
        ('web: {token: {file: "~nobody-of-this-name/x"}}', "2:21"),
        ('receivers: [{name: a, webhook: {file: "~nobody-of-this-name/x"}}]', "2:39"),
    ],
)
def test_the_home_of_nobody(line, place):
    """A path below the home folder of a user that there is not is a problem at its place."""
    (found,) = problems(f"version: 1\n{line}")
    assert f":{place}: " in found and "there is no home folder" in found


@pytest.mark.parametrize("line", ['sources: [{path: "a\\0b"}]', 'web: {token: {file: "\\0"}}', 'listen: "\\0:1"'])
def test_no_text_holds_a_character_that_ends_it(line):
    """U+0000, which YAML can spell, is refused where it stands: no system takes it in a path or a name."""
    assert "a text holds the character U+0000" in "".join(problems(f"version: 1\n{line}"))


def test_a_secret_has_one_place():
    """`env` and `file` together are a mistake, and so is neither."""
    assert "not both" in problems("version: 1\nreceivers: [{name: a, apprise: {env: A, file: b}}]")[0]
    assert "is empty" in problems("version: 1\nreceivers: [{name: a, apprise: {}}]")[0]


def test_a_file_is_loaded_from_its_own_folder(tmp_path):
    """A missing file is one problem, not a traceback."""
    (tmp_path / "rltriage.yaml").write_text("version: 1\nstate_dir: state\n")
    assert load_config(tmp_path / "rltriage.yaml").state_dir == tmp_path / "state"
    with pytest.raises(RulePackError, match="no such file"):
        load_config(tmp_path / "other.yaml")


def test_editors_read_the_schema_as_we_do():
    """It is a valid draft 2020-12 schema that accepts the whole example and refuses an unknown field."""
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    root, _ = parse(WHOLE, "x")
    assert root is not None
    assert not list(validator.iter_errors(root.plain()))
    assert list(validator.iter_errors({"version": 1, "sorces": []})) and list(
        validator.iter_errors({"version": 1, "web": []})
    )


def test_durations():
    """Numbers are seconds."""
    assert [seconds(value) for value in (5, 1.5, "90s", "2m", "1.5h", "30d", "1w")] == [
        5,
        1.5,
        90,
        120,
        5400,
        2592000,
        604800,
    ]
    assert [seconds(value) for value in ("5", "h", "-1s", "1 parsec", None, True)] == [None] * 6


def test_a_source_names_references_from_the_files_folder(tmp_path: Path) -> None:
    """One or several; an empty list is refused like an empty text."""
    one = "version: 1\nsources:\n  - {path: runs, reference: healthy.json}\n  - {path: more, reference: [a.json, r1]}\n"
    sources = parse_config(one, folder=tmp_path).sources
    assert [source.references for source in sources] == [
        (str(tmp_path / "healthy.json"),),
        (str(tmp_path / "a.json"), str(tmp_path / "r1")),
    ]
    for wrong in ("[]", "{a: b}", "3"):
        with pytest.raises(RulePackError, match="reference"):
            parse_config(f"version: 1\nsources:\n  - {{path: runs, reference: {wrong}}}\n")


@pytest.mark.parametrize(("listen", "taken"), [("9464", "127.0.0.1:9464"), ("0", "127.0.0.1:0"), ('":1"', ":1")])
def test_a_port_is_an_address(listen, taken):
    """A number needs no quotes: it is a port of this machine."""
    assert parse_config(f"version: 1\nlisten: {listen}\n").listen == taken


@pytest.mark.parametrize(
    ("listen", "says"),
    [("94640", "must be at most 65535"), ("localhost", "write HOST:PORT, as in 127.0.0.1:9464"), ("true", "HOST:PORT")],
)
def test_what_is_no_address_is_said_at_its_place(listen, says):
    """Before anything starts, and with a hint that works."""
    (said,) = problems(f"version: 1\nlisten: {listen}\n")
    assert said.startswith("rltriage.yaml:2:9: ") and says in said and '"True"' not in said


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_configuration_is_told_how_one_begins(text):
    """And not how a rule pack does."""
    (said,) = problems(text)
    assert "a configuration starts with `version: 1` and `sources:`" in said


def test_a_secret_that_is_missing_is_said_with_its_place(tmp_path, monkeypatch):
    """Whoever has several configurations learns which line to look at."""
    monkeypatch.delenv("NOPE_X", raising=False)
    config = parse_config(
        "version: 1\nweb:\n  basic_auth: {ann: {env: NOPE_X}}\n  token: {env: NOPE_X}\n"
        "sources: [{metrics: {env: NOPE_X}}]\nreceivers:\n"
        "  - {name: a, webhook: {file: nope.url}, headers: {X-Key: {env: NOPE_X}},\n"
        "     basic_auth: {username: u, password: {env: NOPE_X}}}\n",
        folder=tmp_path,
    )
    (receiver,), (source,) = config.receivers, config.sources
    secrets = {
        "3:21": config.web.users["ann"],
        "4:10": config.web.token,
        "5:21": source.where,
        "7:24": receiver.urls[0],
        "7:59": receiver.headers["X-Key"],
        "8:42": receiver.basic_auth.password,
    }
    for place, secret in secrets.items():
        with pytest.raises(DeliveryError, match=rf"^rltriage\.yaml:{place}: .* (is not set|cannot be read)"):
            secret()
