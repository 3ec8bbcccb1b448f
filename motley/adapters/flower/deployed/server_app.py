"""Motley's own loop on a Flower grid: what Flower's strategies cannot do, because they wait for everybody, round by round.

::

    app = ServerApp()

    @app.main()
    def main(grid, context):
        run(grid, load("experiment.toml"), out="/srv/federation/run-1")

The experiment is the one that a simulation would run: selector, algorithm, synchrony (deadline with over-selection, buffered and
asynchronous steps), compression with error feedback, ``stop``. Its seconds are seconds here; what it says of devices, links,
availability and failures is passed over, for these are real. The folder it leaves is a run's folder: ``motley report`` reads it.

After every server step all that evolves is written, new and then switched. Started again with the same ``out`` a deployment goes on
at the next step; a finished one is only loaded.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motley.adapters.flower.deployed.client_registry import Limits
from motley.adapters.flower.deployed.deployment import Deployment
from motley.adapters.flower.deployed.transport import Transport, WaitingTransport
from motley.core.errors import ConfigError
from motley.engines.cores import torch_threads
from motley.experiments.build import Ready, prepare
from motley.experiments.config import Experiment
from motley.experiments.run import as_experiment, numerics_of, save_model
from motley.experiments.store import RunFolder, default_folder, describe, ensure_space
from motley.results.load import Run
from motley.results.load import load as load_results
from motley.results.writer import Writer
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.config import Round
from motley.rounds.server_signals import SERVER_SIGNALS
from motley.selectors.base import Selector
from motley.tasks.base import Task

__all__ = ["Limits", "refuses", "run"]


def run(
    grid: Any,
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    task: Task | None = None,
    limits: Limits | None = None,
    key: str = "partition-id",
    told: Callable[[Round], None] | None = None,
    selector: Selector[Any] | None = None,
    rounds_done: int = 0,
    clients_sent: int = 0,
) -> Run:
    """Run an experiment on real clients to its end, and load its results.

    Parameters
    ----------
    grid: Flower's ``Grid``, or a :class:`~motley.adapters.flower.deployed.transport.Transport`.
    experiment: an Experiment, its keys, or the path of its TOML file. overrides: settings like ``"local.epochs=2"``.
    out: folder of the run, ``runs/<name>/<run id>-deployed`` by default; an interrupted deployment goes on there.
    data: folder to look into first for data packs. task: the server's model and test samples, where data lies with the sites alone.
    limits: how long to wait for what. key: of ``--node-config``, a client's stable whole number.
    told: hears of every step. selector: one that has learned elsewhere, in place of a new one; rounds_done, clients_sent: what lies
    behind it (``simulation.round``, ``simulation.dispatch``), so that it goes on counting.

    Raises
    ------
    UserError: one sentence about what is wrong.
    """
    experiment = as_experiment(experiment, overrides)
    limits = limits or Limits()
    alone = experiment.replace({"engine.name": "sequential"})  # a server trains nobody
    ready = prepare(alone, Path(data) if data is not None else None, task)
    if selector is not None:
        ready = ready._replace(selector=_same(selector, ready))
    reason = refuses(experiment, ready)
    if reason:
        raise ConfigError(f"this experiment cannot be deployed: {reason}")
    mailbox = grid if isinstance(grid, Transport) else _on(grid, key, limits)
    name = f"{experiment.run_id()}-deployed"  # a simulation of the same is another run
    path = Path(out) if out is not None else default_folder(experiment).with_name(name)
    folder = RunFolder(path)
    with folder.lock():
        state = folder.state(name, resume=True)
        if state == "finished":
            return load_results(path)
        ensure_space(path)
        record = {**_record(experiment, ready), "run_id": name}
        folder.write(record)
        checkpoints = Checkpoints(path / "checkpoints")
        saved = checkpoints.load()
        label = f"{experiment.run_id()}-{secrets.token_hex(4)}" if saved is None else str(saved["run"])
        post = WaitingTransport(mailbox, limits.poll_s, limits.look_s, 0.0 if saved is None else float(saved["now_s"]))
        deployment = Deployment(experiment, ready, label, post, limits)
        deployment.round, deployment.dispatch = rounds_done, clients_sent
        if saved is not None:
            deployment.restore(saved)
        _go(deployment, checkpoints, saved is not None, path, told)
        folder.write({**record, "finished": True})
        shutil.rmtree(path / "checkpoints", ignore_errors=True)
    return load_results(path)


def refuses(experiment: Experiment, ready: Ready) -> str | None:
    """Why an experiment cannot be deployed, in one sentence with the way out; None: it can."""
    plan = ready.plan
    if experiment.recalibrate is not None:
        return "clients estimate BatchNorm statistics anew only in a simulation; leave recalibrate out"
    if plan.examine.diagnostics:
        return "diagnostics need every client's gradient, which only a simulation has; leave evaluate.diagnostics out"
    algorithm, shipping = plan.setting.algorithm, plan.upload_config
    if algorithm.server.asks_clients:
        return f"{type(algorithm.server).__name__} asks clients again in mid-round, as only a simulation does; use another algorithm"
    data, own = plan.setting.task.federation, algorithm.correction.personal_start
    if plan.stop.target and (own or (data.global_test is None and not len(data.test.values))):
        return "stop.target is never reached, for the server has nothing to examine; give it test samples, or another end"
    signals = sorted(ready.selector.rule.needs().reported & SERVER_SIGNALS)
    if shipping.feedback.incremental and signals:
        name = type(shipping.feedback).__name__
        return f"the selector wants {signals[0]!r} of updates, and under {name} only their changes arrive; use another feedback"
    if "uplink_mbps" in shipping.allocator.requires:
        name = type(shipping.allocator).__name__
        return f"{name} must know every uplink beforehand, as only a simulation does; use uniform or by_score"
    if plan.world.drift.moves_window or plan.world.drift.renames_classes:
        return "a site's data is what it is; leave drift out"
    return None


def _on(grid: Any, key: str, limits: Limits) -> Transport:
    from motley.adapters.flower.deployed.grid_transport import GridTransport  # what Flower needs is looked up here alone

    return GridTransport(grid, key, limits.query_s)


def _record(experiment: Experiment, ready: Ready) -> dict[str, Any]:
    """What ``run.json`` says of it."""
    setting = ready.plan.setting
    about: dict[str, Any] = {"metric": setting.task.metric, "classes": list(setting.task.federation.names)}
    notes = {
        **setting.task.federation.notes,
        "deployment": "real clients: seconds are the wall clock's, devices and links are real",
    }
    numerics = numerics_of(setting, ready.engine)
    return describe(experiment, numerics, {**about, "notes": notes}, setting.task.layout.size)


def _same(selector: Selector[Any], ready: Ready) -> Selector[Any]:
    """The selector given, if it follows the experiment's rule."""
    if selector.rule != ready.selector.rule:
        raise ConfigError(f"got a selector {selector.rule!r}; expected the experiment's, {ready.selector.rule!r}", "selector")
    return selector


def _go(
    deployment: Deployment, checkpoints: Checkpoints, resumed: bool, path: Path, told: Callable[[Round], None] | None
) -> None:
    """From wherever the deployment is to its end."""
    new = not resumed and not any(path.glob("*.arrows"))
    deployment.writer = writer = Writer(path, resume_at=None if new else deployment.round if resumed else -1)
    while not deployment.done:
        began = time.perf_counter()
        with torch_threads(deployment.engine.threads):
            done = deployment.step()
        writer.add("timings", {"round": done.round, "wall_s": time.perf_counter() - began})
        writer.flush()
        checkpoints.save(deployment.round, deployment.save())
        if told is not None:
            told(done)
    writer.finish()
    deployment.engine.close()
    save_model(deployment.setting, deployment.newcomer(), path / "model.safetensors")
