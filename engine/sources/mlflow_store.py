"""An MLflow store, through MLflow's own client (extra `mlflow`): `mlflow:URI` or the SQLite file of a local store."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.rules.errors import SourceError
from rltriage.rules.yamlmarks import resolve_scalar

MAX_RUNS = 1000
_PLUMBING = "system/"
_DATABASES = ("sqlite:", "mysql", "postgresql", "mssql")


class MlflowStore:
    """Every run of every experiment; a run's parameters come first, as a record of its own.

    `URI` is what `mlflow.set_tracking_uri` takes. All metrics of one step are one record; verl's `_at_` is `@` again.
    """

    kind = "mlflow"
    profile: str | None = None

    def __init__(self, uri: str) -> None:
        self.name = uri
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._client = _client(uri)
        self._newest: dict[str, Mapping[str, float]] = {}
        self._steps: dict[str, int] = {}

    def records(self) -> Iterator[Record]:
        """Everything that is stored now; SourceError if the store does not answer."""
        try:
            for run in self._runs():
                yield from self._new(run)
        except Exception as error:  # a damaged store makes the client raise whatever Python and YAML know
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise SourceError(f"{self.name}: no answer from MLflow: {why}") from None

    def poll(self) -> list[Record]:
        try:
            return list(self.records())
        except SourceError as error:
            self.stats.refuse(0, str(error))
            return []

    def close(self) -> None:
        return None

    def _runs(self) -> Iterator[Any]:
        for experiment in self._client.search_experiments():
            yield from self._client.search_runs([experiment.experiment_id], max_results=MAX_RUNS)

    def _new(self, run: Any) -> Iterator[Record]:
        """The steps after the last one that was given, of a run whose newest values have changed."""
        run_id, name = run.info.run_id, run.info.run_name or run.info.run_id
        latest = dict(run.data.metrics)
        if latest == self._newest.get(run_id):
            return
        if run_id not in self._newest and run.data.params:
            yield Record({"config": {key: _value(text) for key, text in run.data.params.items()}}, run=name)
        after = self._steps.get(run_id, -1)
        steps: dict[int, dict[str, float]] = {}
        times: dict[int, float] = {}
        for metric in latest:
            if not metric.startswith(_PLUMBING):
                for point in self._client.get_metric_history(run_id, metric):
                    if point.step > after:
                        steps.setdefault(point.step, {})[metric.replace("_at_", "@")] = float(point.value)
                        times[point.step] = point.timestamp / 1000
        for step in sorted(steps):
            self._steps[run_id] = step
            self.stats.records += 1
            yield Record(steps[step], step=step, time=times[step], run=name)
        self._newest[run_id] = latest  # last, so that a run that could not be read is asked again


def _client(uri: str) -> Any:
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise SourceError(f"{uri}: an MLflow store needs MLflow's client: pip install 'rltriage[mlflow]'") from None
    logging.getLogger("mlflow.store.tracking.file_store").addFilter(_in_brief)
    try:
        return MlflowClient(tracking_uri=uri)
    except (MlflowException, OSError, ValueError) as error:
        if uri.startswith(_DATABASES) and "unsupported URI" in str(error):
            raise SourceError(f"{uri}: a database is read by the whole package only: pip install mlflow") from None
        raise SourceError(f"{uri}: no MLflow store: {error}") from None


def _in_brief(record: logging.LogRecord) -> bool:
    """MLflow's warnings of damaged experiments without their tracebacks."""
    record.exc_info = None
    return True


def _value(text: str) -> Any:
    """A parameter, which MLflow keeps as text, as the value that it was."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return resolve_scalar(text)
    except ValueError:
        return text
