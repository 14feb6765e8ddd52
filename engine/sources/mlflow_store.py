"""An MLflow store, through MLflow's own client (extra `mlflow`): `mlflow:URI` or the SQLite file of a local store."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.rules.errors import SourceError
from rltriage.rules.yamlmarks import resolve_scalar

MAX_RUNS = 1000
"""Of each experiment: the newest, which are what MLflow gives at once."""
_PLUMBING = "system/"
_DATABASES = ("sqlite:", "mysql", "postgresql", "mssql")


class MlflowStore:
    """Every run of every experiment; a run's parameters come first, as a record of its own.

    `URI` is what `mlflow.set_tracking_uri` takes. All metrics of one step are one record; verl's `_at_` is `@` again. A run
    that MLflow cannot read is refused, and the others are read.
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
        self._told: set[str] = set()

    def records(self) -> Iterator[Record]:
        """Everything that is stored now; SourceError if the store does not answer."""
        try:
            experiments = list(self._client.search_experiments())
        except Exception as error:  # a damaged store makes the client raise whatever Python and YAML know
            raise SourceError(f"{self.name}: no answer from MLflow: {_why(error)}") from None
        for experiment in experiments:
            for run in self._runs(experiment.experiment_id):
                yield from self._whole(run)

    def poll(self) -> list[Record]:
        found: list[Record] = []
        try:
            for record in self.records():
                found.append(record)  # not list(): what was given before an error is not given again
        except SourceError as error:
            self.stats.refuse(0, str(error))
        return found

    def close(self) -> None:
        return None

    def _runs(self, experiment: str) -> Iterator[Any]:
        """Its runs. A store of files gives all of them at once or none, so where that fails each is asked for."""
        try:
            page = self._client.search_runs([experiment], max_results=MAX_RUNS)
        except Exception as error:
            ids = _run_folders(self.name, experiment)
            if not ids:
                raise SourceError(f"{self.name}: no answer from MLflow: {_why(error)}") from None
            yield from self._one_by_one(ids)
            return
        if page.token:
            self._tell(f"experiment {experiment} has more than {MAX_RUNS} runs: the newest {MAX_RUNS} are read")
        yield from page

    def _one_by_one(self, ids: list[str]) -> Iterator[Any]:
        for run_id in ids:
            try:
                run = self._client.get_run(run_id)
            except Exception as error:
                self._tell(f"MLflow cannot read run {run_id}: {_why(error)}")
                continue
            if run.info.lifecycle_stage == "active":
                yield run

    def _whole(self, run: Any) -> Iterator[Record]:
        """What is new of a run that can be read; what cannot is no reason to leave out the others."""
        try:
            records = list(self._new(run))
        except Exception as error:
            if _unreachable(self.name, error):  # or each further run would be waited for
                raise SourceError(f"{self.name}: no answer from MLflow: {_why(error)}") from None
            self._tell(f"MLflow cannot read run {run.info.run_name or run.info.run_id}: {_why(error)}")
            return
        yield from records

    def _tell(self, reason: str) -> None:
        """Refuse once, though every poll meets it."""
        if reason not in self._told:
            self._told.add(reason)
            self.stats.refuse(0, reason)

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


def _run_folders(uri: str, experiment: str) -> list[str]:
    """The ids of the runs in a local store of files; none for any other store."""
    parts = urlsplit(uri)
    folder = os.path.join(url2pathname(parts.path) if parts.scheme in ("", "file") else os.devnull, experiment)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [name for name in names if os.path.isfile(os.path.join(folder, name, "meta.yaml"))]


def _unreachable(uri: str, error: BaseException | None) -> bool:
    """Whether it is the server that is gone, and not a run that is damaged: its client's errors are OSErrors inside."""
    if urlsplit(uri).scheme not in ("http", "https"):
        return False
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error is not None


def _why(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


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
