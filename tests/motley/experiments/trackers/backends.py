"""What the tests hold against each tracker: the tool itself, or a small fake of what is used of it,
and how its store is read back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import types
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

Steps = dict[str, dict[int, float]]
"""Figure -> round -> value; an assertion fails where a round is there twice."""
Place = tuple[Any, str]


class Backend:
    """One tool. ``places``: where it fails at the beginning, in the middle and at the end: object
    and name of the function."""

    name: str
    places: tuple[Place, Place, Place]

    def steps(self, run: Path) -> Steps:
        """Return the figures that the store holds of a run."""
        raise NotImplementedError


def once(points: list[tuple[str, int, float]]) -> Steps:
    out: Steps = {}
    for name, step, value in points:
        assert step not in out.setdefault(name, {}), f"{name} of round {step} is there twice"
        out[name][step] = value
    return out


class Board(Backend):
    name = "tensorboard"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("tensorboard")
        from torch.utils import tensorboard

        self.places = (
            (tensorboard, "SummaryWriter"),
            (tensorboard.SummaryWriter, "add_scalar"),
            (tensorboard.SummaryWriter, "close"),
        )

    def steps(self, run: Path) -> Steps:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's own imports
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

            events = EventAccumulator(str(run / "tensorboard"))
            events.Reload()
            points = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
            return once([(name, p.step, p.value) for name, held in points.items() for p in held])


# -------------------------------------------------------------------------------------------- fakes


def install(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def record(**values: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**values)


class FakeMLflowError(Exception):
    """Stands for ``MlflowException``."""


class FakeClient:
    """What is used of ``mlflow.MlflowClient``; the stores lie in memory, by address."""

    stores: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, tracking_uri: str) -> None:
        self.store = self.stores.setdefault(tracking_uri, {"experiments": {}, "runs": {}})

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.store["experiments"].get(name)
        return found and record(experiment_id=found)

    def create_experiment(self, name: str) -> str:
        assert name not in self.store["experiments"]
        self.store["experiments"][name] = str(len(self.store["experiments"]))
        return self.store["experiments"][name]

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        run_id = f"run-{len(self.store['runs'])}"
        new = {
            "name": run_name,
            "of": experiment_id,
            "status": "RUNNING",
            "params": {},
            "tags": {},
            "points": [],
        }
        self.store["runs"][run_id] = new
        return record(info=record(run_id=run_id))

    def update_run(self, run_id: str, status: str) -> None:
        if run_id not in self.store["runs"]:
            raise FakeMLflowError(run_id)
        self.store["runs"][run_id]["status"] = status

    set_terminated = update_run

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self.store["runs"][run_id]["tags"][key] = value

    def get_run(self, run_id: str) -> Any:
        return record(
            data=record(
                metrics={name: value for name, _, value in self.store["runs"][run_id]["points"]}
            )
        )

    def get_metric_history(self, run_id: str, name: str) -> list[Any]:
        return [
            record(step=step, value=value)
            for of, step, value in self.store["runs"][run_id]["points"]
            if of == name
        ]

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        held = self.store["runs"][run_id]
        assert len(params) <= 100
        for one in params:
            assert held["params"].setdefault(one.key, one.value) == one.value, (
                "parameters cannot be changed"
            )
        held["points"] += [(one.key, one.step, one.value) for one in metrics]


class FakeMLflow(Backend):
    name = "mlflow"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE"):
            monkeypatch.setenv(key, "true")
        monkeypatch.setattr(FakeClient, "stores", {})
        module = install(monkeypatch, "mlflow", MlflowClient=FakeClient)
        install(
            monkeypatch,
            "mlflow.entities",
            Metric=lambda key, value, timestamp, step: record(key=key, value=value, step=step),
            Param=lambda key, value: record(key=key, value=value),
        )
        install(monkeypatch, "mlflow.exceptions", MlflowException=FakeMLflowError)
        self.places = (
            (module, "MlflowClient"),
            (FakeClient, "log_batch"),
            (FakeClient, "set_terminated"),
        )

    def store(self, run: Path) -> dict[str, Any]:
        run_id = json.loads((run / "mlflow.json").read_text())["run_id"]
        (held,) = [
            one["runs"][run_id] for one in FakeClient.stores.values() if run_id in one["runs"]
        ]
        return held

    def steps(self, run: Path) -> Steps:
        return once(self.store(run)["points"])


class FakeRun:
    """What is used of a run of ``wandb.init``; its points lie in a file of its folder."""

    def __init__(self, **keys: Any) -> None:
        self.mode = (keys.pop("mode"), keys.pop("resume"))
        assert self.mode in (("offline", None), ("online", "allow"))
        self.keys = keys
        self.summary = {}
        self.folder = Path(keys["dir"]) / "wandb" / f"offline-run-{keys['id']}"
        self.folder.mkdir()

    def log(self, figures: dict[str, float], step: int) -> None:
        with (self.folder / "points").open("a") as file:
            file.writelines(
                json.dumps([name, step, value]) + "\n" for name, value in figures.items()
            )

    def finish(self, exit_code: int) -> None:
        about = {
            name: self.keys[name] for name in ("project", "name", "group", "job_type", "config")
        }
        (self.folder / "end").write_text(
            json.dumps(
                {**about, "mode": self.mode[0], "summary": self.summary, "exit_code": exit_code}
            )
        )


class FakeWandB(Backend):
    name = "wandb"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        module = install(monkeypatch, "wandb", init=FakeRun, Settings=dict)
        self.places = (module, "init"), (FakeRun, "log"), (FakeRun, "finish")

    def end(self, run: Path) -> dict[str, Any]:
        (file,) = (run / "wandb").glob("offline-run-*/end")
        return json.loads(file.read_text())

    def steps(self, run: Path) -> Steps:
        (file,) = (run / "wandb").glob("offline-run-*/points")
        return once([tuple(json.loads(line)) for line in file.read_text().splitlines()])


# ----------------------------------------------------------------------------- the tools themselves


class MLflowServer:
    """A real server in a process of its own, with its database and artifacts in a folder."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        options = {
            "--backend-store-uri": f"sqlite:///{folder}/server.db",
            "--artifacts-destination": str(folder / "artifacts"),
            "--host": "127.0.0.1",
            "--port": str(port),
            "--workers": "1",
        }
        words = [word for pair in options.items() for word in pair]
        self.log = (folder / "server.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *words],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self) -> None:
        while True:
            assert self.process.poll() is None, Path(self.log.name).read_text()
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


class RealMLflow(Backend):
    name = "mlflow"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow = pytest.importorskip("mlflow")
        self.client = mlflow.MlflowClient
        self.places = (
            (mlflow, "MlflowClient"),
            (self.client, "log_batch"),
            (self.client, "set_terminated"),
        )

    def read(self, run: Path) -> tuple[Any, Any]:
        stores = [
            folder / "mlruns" for folder in run.resolve().parents if (folder / "mlruns").is_dir()
        ]
        client = self.client(tracking_uri=stores[0].as_uri())
        return client, client.get_run(json.loads((run / "mlflow.json").read_text())["run_id"])

    def steps(self, run: Path) -> Steps:
        client, held = self.read(run)
        points = {
            name: client.get_metric_history(held.info.run_id, name) for name in held.data.metrics
        }
        return once([(name, p.step, p.value) for name, history in points.items() for p in history])


class RealWandB(Backend):
    name = "wandb"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        wandb = pytest.importorskip("wandb")
        self.places = (
            (wandb, "init"),
            (wandb.sdk.wandb_run.Run, "log"),
            (wandb.sdk.wandb_run.Run, "finish"),
        )

    def records(self, run: Path, kind: str) -> list[Any]:
        """Return the records of one kind of the one offline run in a run's folder."""
        from wandb.proto import wandb_internal_pb2

        (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
        found = [
            wandb_internal_pb2.Record.FromString(data) for data in log_records(file.read_bytes())
        ]
        return [getattr(one, kind) for one in found if one.WhichOneof("record_type") == kind]

    def steps(self, run: Path) -> Steps:
        points = []
        for row in self.records(run, "history"):
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in row.item
            }
            points += [
                (name, int(items["_step"]), value)
                for name, value in items.items()
                if not name.startswith("_")
            ]
        return once(points)


def log_records(data: bytes) -> list[bytes]:
    """Return the records of a W&B file: LevelDB's log format (blocks of 32 KiB; checksum, length,
    type) behind a header of 7 bytes."""
    records = []
    parts = b""
    at = 7
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no room for a head: the rest of the block is empty
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            records.append(parts)
            parts = b""
    return records


REAL = (pytest.mark.trackers, pytest.mark.filterwarnings("ignore"))
BACKENDS: list[Any] = [
    pytest.param(Board, id="tensorboard"),
    pytest.param(FakeMLflow, id="mlflow"),
    pytest.param(FakeWandB, id="wandb"),
    pytest.param(RealMLflow, id="real-mlflow", marks=REAL),
    pytest.param(RealWandB, id="real-wandb", marks=REAL),
]
Make = Callable[[pytest.MonkeyPatch], Backend]
