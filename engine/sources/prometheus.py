"""Prometheus in the other direction: a `/metrics` endpoint, or a server that has scraped one."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.errors import SourceError

Sample = tuple[str, Mapping[str, str], float]
TIMEOUT = 5.0
MAX_BODY = 64 << 20
STEP_NAMES = (
    *("rltriage_training_step", "rl_insight_monitor_training_global_step"),
    *("training_global_step", "trainer_step", "step"),
)
RUN_LABELS = ("run", "experiment_name", "run_id", "run_name")
_SPLITTING = frozenset(("outcome", "le", "quantile", "check", "rule", "fault", "severity", "first_test", "state"))
_PLUMBING = frozenset(("job", "instance", "__name__"))
_OURS = "rltriage_"
_EXTRA = "rltriage_extra_"
_NO_SERVER = "not a Prometheus server; give the address of its API or of a /metrics page"
_NOT_METRICS = ("go_", "python_", "process_", "scrape_", "up", "promhttp_")


def open_address(url: str) -> MetricsEndpoint | PrometheusServer:
    """The source behind an address: Prometheus' text format, or the API of a server; SourceError if neither."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise SourceError(f"{url.rpartition('@')[2]}: no address: {error}") from None
    options = dict(parse_qsl(parts.query))
    if "query" in options or "match" in options:
        return PrometheusServer(url)
    if parts.path not in ("", "/"):
        endpoint = MetricsEndpoint(url)
        endpoint.probe()
        return endpoint
    server = PrometheusServer(url)
    server.now()
    return server


class MetricsEndpoint:
    """One scrape a poll, one record per label set that names a run, given when its step (or any value) has changed."""

    kind = "metrics endpoint"
    profile: str | None = None

    def __init__(self, url: str) -> None:
        self.name, self._login = _without_login(url)
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._last: dict[str | None, Any] = {}

    def probe(self) -> None:
        """SourceError if nobody answers, or with something that is no metrics."""
        _samples(_get(self.name, self._login), self.name)

    def records(self) -> Iterator[Record]:
        """What the endpoint shows now; SourceError if it does not answer."""
        yield from self._changed(_samples(_get(self.name, self._login), self.name))

    def poll(self) -> list[Record]:
        try:
            return list(self._changed(_samples(_get(self.name, self._login), self.name)))
        except SourceError as error:
            self.stats.refuse(0, str(error))
            return []

    def close(self) -> None:
        return None

    def _changed(self, samples: Iterable[Sample]) -> Iterator[Record]:
        for run, values in _by_run(samples).items():
            step = _step(values)
            mark = step if step is not None else values
            if self._last.get(run) != mark:
                self._last[run] = mark
                self.stats.records += 1
                yield Record(values, step=step, run=run)


class PrometheusServer:
    """Range queries against a server: `http://host:9090/?query=SELECTOR&minutes=60&resolution=15`, one run per label set.

    The server's clock decides what now is. A sample in which the step has not advanced is no new record.
    """

    kind = "prometheus server"
    profile: str | None = None

    def __init__(self, url: str) -> None:
        self.name, self._login = _without_login(url)
        parts = urlsplit(self.name)
        options = dict(parse_qsl(parts.query))
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._query = options.get("query") or options.get("match") or '{__name__=~"rltriage_.+|rl_insight_monitor_.+"}'
        self._span = _positive(options, "minutes", 60.0, self.name) * 60
        self._resolution = _positive(options, "resolution", 15.0, self.name)
        self._until = 0.0
        self._last: dict[str | None, Any] = {}

    def now(self) -> float:
        """The server's time in unix seconds; SourceError if it is no Prometheus server."""
        result = self._ask("query", {"query": "time()"})
        try:
            return float(result["result"][1])
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise SourceError(f"{self.name}: {_NO_SERVER}") from None

    def records(self) -> Iterator[Record]:
        """Everything in the range that ends now."""
        yield from self._range()

    def poll(self) -> list[Record]:
        try:
            return list(self._range())
        except SourceError as error:
            self.stats.refuse(0, str(error))
            return []

    def close(self) -> None:
        return None

    def _range(self) -> Iterator[Record]:
        end = self.now()
        start = max(end - self._span, self._until + self._resolution) if self._until else end - self._span
        if start > end:
            return
        # The server refuses more than 11,000 points a series.
        step = max(self._resolution, (end - start) / 10_000)
        data = self._ask("query_range", {"query": self._query, "start": start, "end": end, "step": step})
        try:
            at = self._by_time(data.get("result", ()))
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise SourceError(f"{self.name}: {_NO_SERVER}") from None
        self._until = max([self._until, *at])
        for time in sorted(at):
            for run, values in _by_run(at[time]).items():
                step_now = _step(values)
                mark = step_now if step_now is not None else values
                if self._last.get(run) != mark:
                    self._last[run] = mark
                    self.stats.records += 1
                    yield Record(values, step=step_now, time=time, run=run)

    def _by_time(self, result: Iterable[Mapping[str, Any]]) -> dict[float, list[Sample]]:
        """A range query's samples by their time. Raises what Python does where they have another shape."""
        at: dict[float, list[Sample]] = {}
        for series in result:
            labels = {str(key): str(text) for key, text in series.get("metric", {}).items()}
            for time, value in series.get("values", ()):
                at.setdefault(float(time), []).append((labels.get("__name__", self._query), labels, float(value)))
        return at

    def _ask(self, endpoint: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        body = _get(f"{self._base}/api/v1/{endpoint}?{urlencode(parameters)}", self._login)
        try:
            answer = json.loads(body)
            if answer["status"] != "success":
                raise SourceError(f"{self.name}: the server refused the query: {answer.get('error', 'no reason given')}")
            data = answer["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise SourceError(f"{self.name}: {_NO_SERVER}")
        return data


def _without_login(url: str) -> tuple[str, str | None]:
    """An address without the `user:password@` in it, which is then sent as basic authentication and shown nowhere."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    return urlunsplit(parts._replace(netloc=host)), b64encode(unquote(login).encode()).decode()


def _get(url: str, login: str | None) -> str:
    headers = {"Accept": "application/json, text/plain;version=0.0.4", "User-Agent": "rltriage"}
    if login is not None:
        headers["Authorization"] = f"Basic {login}"
    request = Request(url, headers=headers)
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            body = response.read(MAX_BODY + 1)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SourceError(f"{url}: no answer: {reason}") from None
    if len(body) > MAX_BODY:
        raise SourceError(f"{url}: an answer over {MAX_BODY >> 20} MiB")
    return str(body.decode("utf-8", "replace"))


def _samples(text: str, url: str) -> list[Sample]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(text))
    except Exception:  # the parser raises whatever the text makes it stumble over
        families = []
    samples: list[Sample] = [(s.name, s.labels, float(s.value)) for family in families for s in family.samples]
    if not samples:
        raise SourceError(f"{url}: no metrics in the Prometheus text format there")
    return samples


def _by_run(samples: Iterable[Sample]) -> dict[str | None, dict[str, float]]:
    """Samples as one flat mapping per run; labels that split a metric become part of its name, as Prometheus writes it."""
    runs: dict[str | None, dict[str, float]] = {}
    for name, labels, value in samples:
        if name.startswith(_NOT_METRICS) or name.endswith(("_bucket", "_created")):
            continue
        run = next((labels[key] for key in RUN_LABELS if labels.get(key)), None)
        if run is None:
            rest = {key: text for key, text in sorted(labels.items()) if key not in _PLUMBING | _SPLITTING}
            run = ",".join(f"{key}={text}" for key, text in rest.items()) or None
        split = tuple((key, text) for key, text in sorted(labels.items()) if key in _SPLITTING)
        known = _canonical(name, split) if name.startswith(_OURS) else _spelled(name, split)
        if known is not None:
            runs.setdefault(run, {})[known] = value
    return runs


def _spelled(name: str, split: tuple[tuple[str, str], ...]) -> str:
    inner = ",".join(f'{key}="{text}"' for key, text in split)
    return f"{name}{{{inner}}}" if inner else name


def _canonical(name: str, split: tuple[tuple[str, str], ...]) -> str | None:
    """The metric behind a gauge of our own exporter; None for what tells of alerts, runs and the exporter itself."""
    if name in STEP_NAMES:
        return name
    if name.startswith(_EXTRA):
        return name[len(_EXTRA) :]
    for check in (text for key, text in split if key == "check"):
        placed = _own_gauges().get((name, (("check", "<id>"),)))
        return None if placed is None else placed.replace("<id>", check)
    return _own_gauges().get((name, split))


@cache
def _own_gauges() -> dict[tuple[str, tuple[tuple[str, str], ...]], str]:
    metrics = load_catalogue().metrics.values()
    return {(metric.prometheus, tuple(sorted(metric.labels.items()))): metric.name for metric in metrics}


def _step(values: Mapping[str, float]) -> int | None:
    for name in STEP_NAMES:
        step = values.get(name)
        if step is not None and math.isfinite(step):
            return int(step)
    return None


def _positive(options: Mapping[str, str], key: str, default: float, url: str) -> float:
    try:
        number = float(options.get(key, default))
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise SourceError(f"{url}: {key} must be a positive number, not {options[key]!r}")
    return number
