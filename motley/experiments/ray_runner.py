"""Runs the experiments of a comparison on a Ray cluster: one Ray task for each run, on some of a node's cores.

All nodes must have the folder of the runs under the same path. A run that is finished there is not run again.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, EngineError
from motley.engines.ray_cluster import connect, disconnect
from motley.engines.serialization import unsendable
from motley.experiments.config import Experiment

__all__ = ["spread"]

Work = Callable[[Experiment, Path, Path | None], Any]


def spread(
    address: str, work: Work, experiments: Sequence[Experiment], folders: Sequence[Path], data: Path | None
) -> Generator[tuple[int, Exception | None]]:
    """Call ``work(experiment, folder, data)`` for each experiment on some node; yield its number when it is done, and its error.

    Parameters
    ----------
    address: of a running cluster; ``auto``: the cluster of this machine; ``local``: start one on this machine.
    work: function that runs one experiment; nodes must be able to import it. folders: one for each run. data: folder of data packs.

    Raises
    ------
    ConfigError: no Ray, no cluster, or experiments that want a cluster themselves.
    """
    if any(experiment.engine.name == "ray" for experiment in experiments):
        raise ConfigError("each run of a spread comparison has one node; use another engine, e.g. processes", "engine.name")
    disconnects = connect(None if address == "local" else address, None)
    ray = importlib.import_module("ray")
    origin = (os.getcwd(), os.environ.get("MOTLEY_DATA"))
    waiting: dict[Any, int] = {}
    try:
        for number, (experiment, folder) in enumerate(zip(experiments, folders, strict=True)):
            cores, gpus = experiment.engine.threads or 1, int(experiment.engine.device.startswith("cuda"))
            task = ray.remote(_attempt).options(num_cpus=cores, num_gpus=gpus, max_retries=0)
            mine = experiment.replace({"engine.threads": cores})
            waiting[task.remote(work, mine, str(folder.resolve()), data and str(data.resolve()), origin)] = number
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            try:
                error = ray.get(done)
            except ray.exceptions.RayError as death:
                error = EngineError(f"its worker was lost ({type(death).__name__})")
            yield waiting.pop(done), error
    finally:
        for unfinished in waiting:
            ray.cancel(unfinished, force=True)
        if disconnects:
            disconnect()


def _attempt(
    work: Work, experiment: Experiment, folder: str, data: str | None, origin: tuple[str, str | None]
) -> Exception | None:
    """Call ``work`` on a node and return the error that it raised, if any."""
    directory, packs = origin
    if Path(directory).is_dir():
        os.chdir(directory)
    if packs is not None:
        os.environ.setdefault("MOTLEY_DATA", packs)
    try:
        work(experiment, Path(folder), None if data is None else Path(data))
    except Exception as error:
        return error if unsendable({"error": error}) is None else EngineError(f"{type(error).__name__}: {error}")
    return None
