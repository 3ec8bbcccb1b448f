"""MLflow: the figures of all runs of a folder in one store of files, which ``mlflow ui`` shows, or
at a server, with its registry of models."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from motley.experiments.lineage import result_keys
from motley.experiments.trackers.tracker import Figures, Status, TrackedRun, Tracker

_MOST = 100
"""Parameters in one call."""
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MLflow(Tracker):
    """Writes into the folder ``mlruns`` that the runs of a comparison share: an MLflow experiment
    is the experiment's name, an MLflow run a run, its parameters the keys that change results, its
    step the round.

    With ``online = true`` the store is the server at ``uri``. A finished run's weights become a new
    version of the model ``register`` in its registry, where the table names one.

    MLflow's own run id stays in ``mlflow.json`` in the run's folder, so that a run that is resumed
    goes on in the same MLflow run; of its rounds those are written that the store does not hold
    yet, for it deletes nothing.
    """

    _client: Any
    _metric: Any
    _id: str
    _run: TrackedRun

    @override
    def begin(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # newer versions would rather have a database
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        # of a server that is gone: MLflow would try for minutes, each round
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        store = run.store.resolve() / "mlruns"
        note = run.folder / "mlflow.json"
        with _alone(store):
            uri = run.online.get("uri")
            if uri:
                self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            else:
                self._client = MlflowClient(tracking_uri=store.as_uri())
            self._run = run
            self._metric = Metric
            experiment = self._client.get_experiment_by_name(run.experiment)
            if experiment is None:
                group = self._client.create_experiment(run.experiment)
            else:
                group = experiment.experiment_id
        self._id = self._old(run, note) or self._new(run, group, note)
        for key, value in _tags(run).items():
            self._client.set_tag(self._id, key, value)
        held = self._client.get_run(self._id).data.metrics
        self._last = {
            name: max(point.step for point in self._client.get_metric_history(self._id, name))
            for name in held
        }
        for number, figures in run.history():
            self.log(number, figures)

    def _old(self, run: TrackedRun, note: Path) -> str | None:
        """Return the id of the MLflow run that a note names, which then goes on; None where there
        is none in this store."""
        from mlflow.exceptions import MlflowException

        try:
            noted = json.loads(note.read_text(encoding="utf-8"))
            run_id = str(noted["run_id"])
            if noted.get("uri") != run.online.get("uri"):
                return None
            self._client.update_run(run_id, status="RUNNING")
        except (OSError, ValueError, KeyError, TypeError, MlflowException):
            return None
        return run_id

    def _new(self, run: TrackedRun, group: str, note: Path) -> str:
        """Create an MLflow run with the run's parameters, and note its id."""
        from mlflow.entities import Param

        run_id = str(self._client.create_run(group, run_name=run.name).info.run_id)
        place = {"uri": run.online["uri"]} if run.online else {}
        note.write_text(json.dumps({"run_id": run_id, **place}), encoding="utf-8")
        params = [
            Param(_key(name), value) for name, value in _flat(result_keys(run.config)).items()
        ]
        for first in range(0, len(params), _MOST):
            self._client.log_batch(run_id, params=params[first : first + _MOST])
        return run_id

    @override
    def log(self, round: int, figures: Figures) -> None:
        now_ms = time.time_ns() // 10**6
        named = {_key(name): value for name, value in figures.items()}
        new = [name for name in named if round > self._last.get(name, -1)]
        self._client.log_batch(
            self._id, metrics=[self._metric(name, named[name], now_ms, round) for name in new]
        )
        self._last |= dict.fromkeys(new, round)

    @override
    def end(self, status: Status, final: Figures) -> None:
        if final:
            self.log(max(self._last.values(), default=0), final)
        if status == "finished" and "register" in self._run.online:
            self._register(self._run.online["register"])
        self._client.set_terminated(self._id, _STATUS[status])

    def _register(self, model: str) -> None:
        """Make the run's weights a new version of a model in the registry, which is begun if there
        is none of this name."""
        from mlflow.exceptions import MlflowException

        self._client.log_artifact(self._id, str(self._run.folder / "model.safetensors"), "model")
        try:
            self._client.create_registered_model(model)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        source = f"{self._client.get_run(self._id).info.artifact_uri}/model"
        self._client.create_model_version(model, source, run_id=self._id)


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Let no other process create the store or an experiment in it inside the block."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.with_name("mlruns.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _tags(run: TrackedRun) -> dict[str, str]:
    """Return what is told of a run beside its parameters: also what may change when it is
    resumed."""
    stop = {key: value for key, value in run.config["stop"].items() if value is not None}
    about = {
        "label": run.label,
        "seed": run.seed,
        "run_id": run.run_id,
        "kind": run.kind,
        "version": run.version,
    }
    tags = {**about, "stop": json.dumps(stop), "folder": run.folder.resolve()}
    return {
        "mlflow.source.name": "motley",
        **{f"motley.{key}": str(value) for key, value in tags.items()},
    }


def _key(name: str) -> str:
    """Return a name with ``_`` in place of the characters that MLflow refuses.

    >>> _key("F1 (macro)")
    'F1 _macro_'
    """
    return re.sub(r"[^\w.\-/: ]", "_", name)


def _flat(node: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Return dotted key -> value as text; keys without a value are left out.

    >>> _flat({"seed": 1, "selector": {"name": "oort", "pacer": None}})
    {'seed': '1', 'selector.name': 'oort'}
    """
    out: dict[str, str] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{path}{key}.")
        elif value is not None:
            out[f"{path}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return out
