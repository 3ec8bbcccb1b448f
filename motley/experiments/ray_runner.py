"""Runs of a comparison spread over a Ray cluster: one task a run, each on its share of a node's cores.

All nodes must see the folder of the runs under the same path. What is finished there is not run again, whoever finished it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, EngineError
from motley.engines.ray_cluster import connect
from motley.engines.serialization import unsendable
from motley.experiments.config import Experiment

__all__ = ["spread"]

Work = Callable[[Experiment, Path, Path | None], Any]


def spread(
    address: str, work: Work, experiments: Sequence[Experiment], folders: Sequence[Path], data: Path | None
) -> Iterator[tuple[int, Exception | None]]:
    """Do ``work(experiment, folder, data)`` for each experiment somewhere; the number of each that is done, and its error.

    Parameters
    ----------
    address: of a running cluster, ``auto`` for the one of this machine, ``local`` to start one here.

    Raises
    ------
    ConfigError: no Ray, no cluster, or experiments that want a cluster themselves.
    """
    if any(experiment.engine.name == "ray" for experiment in experiments):
        raise ConfigError("each run of a spread comparison has one node; use another engine, e.g. processes", "engine.name")
    ends = connect(None if address == "local" else address, None)
    ray = importlib.import_module("ray")
    where = (os.getcwd(), os.environ.get("MOTLEY_DATA"))
    waiting: dict[Any, int] = {}
    try:
        for number, (experiment, folder) in enumerate(zip(experiments, folders, strict=True)):
            cores, gpus = experiment.engine.threads or 1, int(experiment.engine.device.startswith("cuda"))
            task = ray.remote(_attempt).options(num_cpus=cores, num_gpus=gpus, max_retries=0)
            keys = experiment.replace({"engine.threads": cores}).resolved()
            waiting[task.remote(work, keys, str(folder.resolve()), data and str(data.resolve()), where)] = number
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
        if ends:
            ray.shutdown()


def _attempt(
    work: Work, keys: dict[str, Any], folder: str, data: str | None, where: tuple[str, str | None]
) -> Exception | None:
    """On the node: what ``work`` raised, if anything."""
    directory, packs = where
    if Path(directory).is_dir():
        os.chdir(directory)
    if packs is not None:
        os.environ.setdefault("MOTLEY_DATA", packs)
    try:
        work(Experiment(**keys), Path(folder), None if data is None else Path(data))
    except Exception as error:
        return error if unsendable({"error": error}) is None else EngineError(f"{type(error).__name__}: {error}")
    return None
