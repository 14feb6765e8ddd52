"""Every query of the dashboards, asked of a real Prometheus: over a live service, and over a finished run in its blocks."""

import json
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from rltriage.cli.export import command
from rltriage.engine.rows import Row
from rltriage.exporters.recording import recording_rules
from rltriage.recorded import read_runs
from rltriage.rules.config import load_config
from rltriage.service import Service

RUNS = Path(__file__).parents[2] / "data" / "runs"
PAUSE = threading.Event()
FIRST = 12
"""Rows that are there when the service starts; the others come while Prometheus scrapes."""
LATER = 400
"""Rows that the live run goes on for, so that something grows as long as anybody asks."""
NOT_LOGGED = {
    "kl_ref",
    "sampler_kl",
    "is_ratio_mean",
    "probs_diff_mean",
    "probs_diff_max",
    "explained_variance",
    "truncated_frac",
}


class Log:
    """A run directory of a recorded faulty run, with values for every metric that the recorded run lacks."""

    def __init__(self, folder, metrics, *, start, more):
        (recorded,) = [run for run in read_runs(RUNS, ["mask_shift"]) if run.seed == 0]
        folder.mkdir(parents=True)
        head = {"format": 1, "id": folder.name, "labels": {}, "config": dict(recorded.group.facts), "profile": "generic"}
        (folder / "run.json").write_text(json.dumps(head))
        extra = dict.fromkeys(sorted(set(metrics) - set(recorded.rows[0].metrics)), 0.5) if more else {}
        extra = {name: value for name, value in extra.items() if "<id>" not in name}
        own = {"my/odd.metric": 1.0} if more else {}
        self.file = folder / "rows.jsonl"
        last = recorded.rows[-1]
        later = [Row(last.step + 1 + index, last.metrics) for index in range(LATER if more else 0)]
        self.rows = [
            json.dumps({"step": row.step, "time": start + 30 * index, **extra, **row.metrics, **own})
            for index, row in enumerate([*recorded.rows, *later])
        ]

    def write(self, count):
        """Append so many more rows."""
        with self.file.open("a") as file:
            file.writelines(row + "\n" for row in self.rows[:count])
        del self.rows[:count]


class Prometheus:
    """Asks a server, and adds a row to the live run at each round of waiting."""

    def __init__(self, address, log):
        self.address = address
        self.log = log

    def ask(self, expression, at=None):
        """How many series the answer has; 0 while the server is not there."""
        given = {"query": expression} | ({"time": at} if at else {})
        try:
            with urllib.request.urlopen(
                f"http://{self.address}/api/v1/query?{urllib.parse.urlencode(given)}", timeout=10
            ) as body:
                return len(json.load(body)["data"]["result"])
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is not ready yet
                return 0
            pytest.fail(f"{expression}: {error.read().decode()}")
        except OSError:
            return 0

    def empty(self, expressions, seconds=60.0):
        """Those of the expressions that are still without an answer after so long."""
        deadline = time.monotonic() + seconds
        left = set(expressions)
        while not self.ask('rltriage_training_step{run="live"}') and time.monotonic() < deadline:
            PAUSE.wait(0.2)
        while left and time.monotonic() < deadline:
            self.log.write(1)
            left = {expression for expression in left if not self.ask(expression)}
            PAUSE.wait(0.3 if left else 0)
        return left


@pytest.fixture(scope="module")
def prometheus(server_binary, metrics, tmp_path_factory):
    """A Prometheus over a live service and a finished run of a day ago, with the recording rules."""
    binary, promtool = server_binary("prometheus"), server_binary("promtool")
    folder = tmp_path_factory.mktemp("grafana")
    now = time.time()
    finished = Log(folder / "old" / "finished", metrics, start=now - 86_400, more=False)
    finished.write(len(finished.rows))
    _backfill(promtool, finished, folder / "data")
    log = Log(folder / "runs" / "live", metrics, start=now - 600, more=True)
    log.write(FIRST)
    config = folder / "rltriage.yaml"
    config.write_text(
        f"version: 1\nlisten: 127.0.0.1:0\nstate_dir: {folder}/state\nsources: [{{path: {folder}/runs/*/rows.jsonl}}]\n"
        "receivers: [{name: nobody, webhook: http://127.0.0.1:9/, min_severity: info, group_window: 0s}]\n"
    )
    service = Service(load_config(config))
    service.start()
    try:
        with _serve(binary, folder, service.url) as address:
            yield Prometheus(address, log)
    finally:
        service.stop()


def _backfill(promtool, log, data):
    done = CliRunner().invoke(command, [str(log.file.parent)])
    assert done.exit_code == 0, done.output
    (data / "wal").mkdir(parents=True)
    source = data.parent / "finished.om"
    source.write_text(done.stdout)
    made = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=168h", str(source), str(data)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


class _serve:
    """A Prometheus that scrapes the service every 200 ms."""

    def __init__(self, binary, folder, url):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "recording.yaml").write_text(recording_rules().replace("interval: 30s", "interval: 1s"))
        job = {"job_name": "rltriage", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
        config = {"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [job]}
        (folder / "prometheus.yml").write_text(json.dumps(config | {"rule_files": ["recording.yaml"]}))
        self.command = [
            binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={self.address}", "--storage.tsdb.retention.time=10y", "--log.level=error",
        ]  # fmt: skip

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return self.address

    def __exit__(self, *error):
        self.process.terminate()
        self.process.communicate(timeout=10)


def expressions(dashboard, panels, run, window):
    """Every expression of a dashboard: panels, annotations and variables, with the variables filled in."""
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    found += [each["target"]["expr"] for each in dashboard["annotations"]["list"]]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            family, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
            found.append(f'{family}{{{label}!=""}}')
    return [expression.replace("$run", run).replace("$__rate_interval", window) for expression in found]


# The run first: the healthy reference knows 24 steps, and each round of waiting is one more.
@pytest.mark.parametrize("name", ["run", "fleet", "recorded"])
def test_every_expression_has_an_answer(prometheus, dashboards, every_panel, name):
    """Nothing on the dashboards stays empty beside a service with a faulty run that logs everything."""
    asked = expressions(dashboards[name], [panel for owner, panel in every_panel if owner == name], "live", "30s")
    assert len(asked) > 30
    assert prometheus.empty(asked) == set()


def test_a_finished_run_is_shown_from_its_blocks(prometheus, dashboards, every_panel, metrics):
    """With alerts, suspects and healthy ranges; empty is only what the run did not log, and what takes a service."""
    panels = [panel for owner, panel in every_panel if owner == "run"]
    asked = expressions(dashboards["run"], panels, "finished", "5m")
    at = time.time() - 86_400 + 23 * 30
    names = {metrics[metric].prometheus for metric in NOT_LOGGED}
    for expression in asked:
        lacking = any(name in expression for name in names) or "rltriage_extra_" in expression
        lacking = lacking or ('severity="warning"' in expression and "critical" not in expression)
        if not lacking and "rltriage_healthy_" not in expression:
            assert prometheus.ask(expression, at), expression
    assert prometheus.ask('rltriage_healthy_policy_entropy_nats{run="finished"}', at) == 2
