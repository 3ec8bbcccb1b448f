"""Runs the experiments of a comparison or study on a Ray cluster: one Ray task for each run, on
some of a node's cores.

All nodes must have the folder of the runs under the same path. A run that is finished there is not
run again. A run whose worker or node is lost goes on elsewhere from its last checkpoint.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, EngineError, StoreError, UserError
from motley.engines.ray_cluster import connect, disconnect
from motley.engines.ray_nodes import ComparedNodes
from motley.engines.serialization import unsendable
from motley.engines.workers import MAX_DEATHS
from motley.experiments.config import Experiment

__all__ = ["connected", "spread"]

Work = Callable[[Experiment, Path, Path | None], Any]

_PAUSE_S = 5.0
_HELD = 24
"""Wall seconds before a run whose worker was lost is begun again, and attempts while its folder is
still held."""


@contextmanager
def connected(address: str, experiments: Sequence[Experiment]) -> Iterator[None]:
    """Be connected to a cluster inside the block, to run these experiments on it; calls of
    :func:`spread` in it use the connection. Parameters and errors are those of :func:`spread`."""
    if any(experiment.engine.name == "ray" for experiment in experiments):
        raise ConfigError(
            "each run that is spread over a cluster has one node; use another engine, e.g. "
            "processes",
            "engine.name",
        )
    disconnects = connect(None if address == "local" else address, None)
    try:
        yield
    finally:
        if disconnects:
            disconnect()


def spread(
    address: str,
    work: Work,
    experiments: Sequence[Experiment],
    folders: Sequence[Path],
    data: Path | None,
) -> Generator[tuple[int, Exception | None]]:
    """Call ``work(experiment, folder, data)`` for each experiment on some node; yield its number
    when it is done, and its error.

    Parameters
    ----------
    address: of a running cluster; ``auto``: the cluster of this machine; ``local``: start one on
    this machine.
    work: function that runs one experiment; nodes must be able to import it. folders: one for each
    run. data: folder of data packs.

    Raises
    ------
    ConfigError: no Ray, no cluster or no node in it that does not differ, or experiments that want
    a cluster themselves.
    """
    with connected(address, experiments):
        yield from _spread(work, experiments, folders, data)


def _spread(
    work: Work, experiments: Sequence[Experiment], folders: Sequence[Path], data: Path | None
) -> Generator[tuple[int, Exception | None]]:
    """See :func:`spread`; this process is connected."""
    ray = importlib.import_module("ray")
    origin = (os.getcwd(), os.environ.get("MOTLEY_DATA"))
    waiting: dict[Any, int] = {}
    runs: list[_SpreadRun] = []
    try:
        compared = ComparedNodes((work, experiments))
        compared.begin()
        for number, (experiment, folder) in enumerate(zip(experiments, folders, strict=True)):
            cores = experiment.engine.threads or 1
            gpus = int(experiment.engine.device.startswith("cuda"))
            places = {
                "num_cpus": cores,
                "num_gpus": gpus,
                "label_selector": compared.labels_without_left_out(),
            }
            task = ray.remote(_attempt).options(max_retries=0, **places)
            mine = experiment.replace({"engine.threads": cores})
            begin = partial(
                task.remote, work, mine, str(folder.resolve()), data and str(data.resolve()), origin
            )
            runs.append(_SpreadRun(begin))
            waiting[begin()] = number
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done)
            error, again = runs[number].outcome(ray, done)
            if again:
                time.sleep(_PAUSE_S)
                waiting[runs[number].begin()] = number
            else:
                yield number, error
    finally:
        for unfinished in waiting:
            ray.cancel(unfinished, force=True)


@dataclass
class _SpreadRun:
    """One run on the cluster. ``begin``: starts it, or goes on from its last checkpoint, on a node
    that has room.
    ``lost``, ``held``: attempts whose worker was lost, and attempts since then while its folder was
    held."""

    begin: Callable[[], Any]
    lost: int = 0
    held: int = 0

    def outcome(self, ray: Any, done: Any) -> tuple[Exception | None, bool]:
        """Return the error of an attempt, if any, and whether the run is begun again."""
        try:
            error = ray.get(done)
        except ray.exceptions.RayError as death:
            self.lost += 1
            error = UserError(
                f"its worker was lost {self.lost} times (the last time by {type(death).__name__}); "
                "if memory ran out there, let each run have more of a node's cores (engine.threads)"
            )
            return error, self.lost < MAX_DEATHS
        again = bool(self.lost) and isinstance(error, StoreError) and self.held < _HELD
        self.held += again  # by a worker that Ray gave up, and that still runs
        return error, again


def _attempt(
    work: Work,
    experiment: Experiment,
    folder: str,
    data: str | None,
    origin: tuple[str, str | None],
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
        return (
            error
            if unsendable({"error": error}) is None
            else EngineError(f"{type(error).__name__}: {error}")
        )
    return None
