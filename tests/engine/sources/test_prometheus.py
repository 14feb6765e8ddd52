"""Reading from Prometheus: a page of metrics and a server's API, answered by a local stand-in."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source
from rltriage.engine.sources.prometheus import PrometheusServer
from rltriage.rules.errors import SourceError

logins: list[str | None] = []
Answer = Callable[[str, dict[str, str]], str]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    servers: list[HTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                self.server.logins.append(self.headers["Authorization"])  # type: ignore[attr-defined]
                body = answer(parts.path, dict(parse_qsl(parts.query))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return None

        server = HTTPServer(("127.0.0.1", 0), Handler)
        server.logins = logins  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


PAGE = """\
# HELP rl_insight_monitor_training_global_step step
# TYPE rl_insight_monitor_training_global_step gauge
rl_insight_monitor_training_global_step{{experiment_name="a",worker="0"}} {a}
rl_insight_monitor_actor_entropy{{experiment_name="a",worker="0"}} 0.5
rl_insight_monitor_actor_ppo_kl{{experiment_name="a",worker="0"}} NaN
rl_insight_monitor_training_global_step{{experiment_name="b",worker="0"}} 7
rl_insight_monitor_actor_entropy{{experiment_name="b",worker="0"}} 0.25
python_gc_objects_collected_total{{generation="0"}} 3
"""


def test_a_metrics_page_is_followed_by_steps(serve: Callable[[Answer], str]) -> None:
    """A scrape gives a row per run whose step has advanced, under verl's exporter names; the process's own are left out."""
    steps = iter((1, 1, 1, 2))
    url = serve(lambda path, _: PAGE.format(a=next(steps))) + "/metrics"
    feed = Feed(open_source(url), "x")
    first = {intake.run.id: row for intake, row in feed.poll()}
    assert {name: row.step for name, row in first.items()} == {"a": 1, "b": 7}
    assert first["a"].metrics["entropy"] == 0.5 and first["a"].metrics["approx_kl"] != first["a"].metrics["approx_kl"]
    assert not any(name.startswith("python_") for name in first["a"].metrics)
    assert feed.poll() == []
    assert [(intake.run.id, row.step) for intake, row in feed.poll()] == [("a", 2)]
    assert feed.intakes["a"].run.profile == "verl_prometheus"


def test_a_page_without_metrics_and_nobody_there(serve: Callable[[Answer], str]) -> None:
    """Something that is no metrics, or nobody at all, is one clear error when opened and a counted one when followed."""
    url = serve(lambda path, _: "<html>hello</html>") + "/metrics"
    with pytest.raises(SourceError, match="no metrics in the Prometheus text format"):
        open_source(url)
    with pytest.raises(SourceError, match="no answer"):
        open_source("http://127.0.0.1:9/metrics")


def matrix(values: dict[str, list[float]], run: str, times: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "metric": {"__name__": name, "run": run, "job": "x"},
            "values": [[t, str(v)] for t, v in zip(times, vs, strict=True)],
        }
        for name, vs in values.items()
    ]


def server(ranges: list[dict[str, str]], now: list[float]) -> Answer:
    """A stand-in for a server that scraped run a at 985 and at 1000, both at step 1, and run b at 1000, at step 9."""

    def answer(path: str, query: dict[str, str]) -> str:
        if path.endswith("/query"):
            data: dict[str, Any] = {"resultType": "scalar", "result": [now[0], str(now[0])]}
        else:
            ranges.append(query)
            series = matrix({"rltriage_training_step": [1, 1], "rltriage_reward_mean": [0.5, 0.5]}, "a", [985, 1000])
            series += matrix({"rltriage_training_step": [9], "rltriage_reward_mean": [0.25]}, "b", [1000])
            data = {"resultType": "matrix", "result": series if len(ranges) == 1 else []}
        return json.dumps({"status": "success", "data": data})

    return answer


def test_a_range_query_is_one_run_per_label_set(serve: Callable[[Answer], str]) -> None:
    """Samples become rows with the server's time; a sample of the same step is none; a poll asks only for what is new."""
    ranges: list[dict[str, str]] = []
    now = [1000.0]
    source = open_source(serve(server(ranges, now)))
    rows = [(record.run, record.step, record.time, record.values["reward"]) for record in source.records()]
    assert rows == [("a", 1, 985.0, 0.5), ("b", 9, 1000.0, 0.25)]
    assert float(ranges[0]["start"]) == 1000 - 3600 and float(ranges[0]["step"]) == 15
    assert source.poll() == [] and len(ranges) == 1
    now[0] = 1030.0
    assert source.poll() == [] and float(ranges[1]["start"]) == 1015


def test_options_and_refusals(serve: Callable[[Answer], str]) -> None:
    """The selector and the range come from the address; a refused query and a page that is no API are clear errors."""
    refused = serve(lambda path, _: json.dumps({"status": "error", "error": "parse error at char 3"}))
    with pytest.raises(SourceError, match="refused the query: parse error"):
        list(PrometheusServer(refused + "/?query=x{&minutes=5").records())
    with pytest.raises(SourceError, match="not a Prometheus server"):
        open_source(serve(lambda path, _: "hello"))
    with pytest.raises(SourceError, match="minutes must be a positive number"):
        PrometheusServer("http://127.0.0.1:9/?minutes=-1")


@pytest.mark.parametrize(
    "result",
    [
        "[1]",
        '[{"metric": [], "values": [[1, "1"]]}]',
        '[{"metric": {}, "values": [1]}]',
        '[{"metric": {}, "values": [["../x", "1"]]}]',
        '[{"metric": {}, "values": [[1, null]]}]',
        "[" * 5000,
    ],
)
def test_answers_of_another_shape(serve: Callable[[Answer], str], result: str) -> None:
    """A server that answers with something else is one clear error, and a counted one when followed."""

    def answer(path: str, _: dict[str, str]) -> str:
        data = '[1, "1000"]' if path.endswith("/query") else result
        return f'{{"status": "success", "data": {{"result": {data}}}}}'

    source = open_source(serve(answer))
    with pytest.raises(SourceError, match="not a Prometheus server"):
        list(source.records())
    assert source.poll() == [] and source.stats.bad == 1


def test_a_login_is_sent_and_never_shown(serve: Callable[[Answer], str]) -> None:
    """`user:password@` becomes basic authentication; neither name nor errors hold it."""
    logins.clear()
    url = serve(lambda path, _: "<html>").replace("//", "//me:s%40fe@")
    with pytest.raises(SourceError) as caught:
        open_source(url + "/metrics")
    assert logins == ["Basic " + b64encode(b"me:s@fe").decode()]
    assert "me" not in str(caught.value).split("127.0.0.1")[0] and "s%40fe" not in str(caught.value)
    assert PrometheusServer(url).name.startswith("http://127.0.0.1")


OWN = """\
rltriage_training_step{run="a"} 3
rltriage_reward_mean{run="a"} 0.5
rltriage_outcome_response_length_mean_tokens{run="a",outcome="correct"} 40
rltriage_outcome_response_length_mean_tokens{run="a",outcome="incorrect"} 60
rltriage_check_passed{run="a",check="ratio_is_one"} 0
rltriage_extra_tool_calls{run="a"} 2
rltriage_alert_firing{run="a",rule="x",severity="critical",fault="mask_shift",first_test="y"} 1
rltriage_exporter_runs 1
"""


def test_our_own_gauges_are_metrics_again(serve: Callable[[Answer], str]) -> None:
    """What our exporter shows comes back under the canonical names; alert state and the exporter's own health do not."""
    records = list(open_source(serve(lambda path, _: OWN) + "/metrics").records())
    assert [(record.run, record.step) for record in records] == [("a", 3)]
    assert records[0].values == {
        "rltriage_training_step": 3.0,
        "reward": 0.5,
        "length_pass": 40.0,
        "length_fail": 60.0,
        "check_ratio_is_one": 0.0,
        "tool_calls": 2.0,
    }
