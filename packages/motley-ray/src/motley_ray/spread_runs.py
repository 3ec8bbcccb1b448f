"""Runs the experiments of a comparison or study on a Ray cluster, each in an actor on some of a
node's cores; an actor takes one run after the other.

All nodes must have the folder of the runs under the same path. A run that is finished there is not
run again. A run whose actor or node is lost, or stands still, goes on elsewhere from its last
checkpoint.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, EngineError, StoreError, UserError
from motley.core.own_code import keep_own_code
from motley.engines.serialization import unsendable
from motley.engines.workers import MAX_DEATHS, WorkerDied
from motley.experiments.config import Experiment
from motley_ray.actors import GIVEN_UP_S, LOOK_S, ListeningActor, RemoteActor, how_lost
from motley_ray.cluster import connect, disconnect
from motley_ray.cluster_state import (
    free_in_words,
    in_words,
    needs_in_words,
    ray_package,
    room,
    usable_nodes,
)
from motley_ray.compared_nodes import ComparedNodes, explained

Work = Callable[[Experiment, Path, Path | None], Any]

_PAUSE_S = 5.0
_HELD = 24
"""Wall seconds before a run whose actor was lost is begun again, and attempts while its folder is
still held."""
_NONE_S = 30.0
"""Wall seconds without an actor after which it is said that runs wait."""


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
    disconnects = connect(address, None)
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
    work: function that runs one experiment; nodes must be able to import it.
    folders: one for each run.
    data: folder of data packs.

    Raises
    ------
    ConfigError: no Ray, no cluster, no node in it that does not differ or that has the cores of a
    run, or experiments that want a cluster themselves.
    """
    with connected(address, experiments):
        compared = ComparedNodes((work, experiments))
        compared.begin()
        sweep = _Sweep(compared, _runs(work, experiments, folders, data))
        try:
            yield from sweep.outcomes()
        finally:
            sweep.close()


def _runs(
    work: Work, experiments: Sequence[Experiment], folders: Sequence[Path], data: Path | None
) -> list[_SpreadRun]:
    """Return the runs of a sweep; those that name no number of threads have one core."""
    origin = (os.getcwd(), os.environ.get("MOTLEY_DATA"))
    packs = data and str(data.resolve())
    runs = []
    for number, (experiment, folder) in enumerate(zip(experiments, folders, strict=True)):
        cores = experiment.engine.threads or 1
        mine = experiment.replace({"engine.threads": cores})
        arguments = (work, mine, str(folder.resolve()), packs, origin)
        shape = (cores, int(experiment.engine.device.startswith("cuda")))
        runs.append(_SpreadRun(number, folder, arguments, shape))
    return runs


@dataclass(eq=False)
class _SpreadRun:
    """One run on the cluster.

    ``number``: in the sweep. ``arguments``: of :func:`_attempt`. ``shape``: cores and GPUs of
    its actor. ``due_s``: moment from which it may begin. ``lost``, ``held``: attempts whose actor
    was lost, and attempts since then while its folder was held.
    """

    number: int
    folder: Path
    arguments: tuple[Any, ...]
    shape: tuple[int, int]
    due_s: float = 0.0
    lost: int = 0
    held: int = 0

    def ended(self, error: Exception | None) -> bool:
        """Return whether an attempt that ended with this error was the last one."""
        again = bool(self.lost) and isinstance(error, StoreError) and self.held < _HELD
        self.held += again  # by an actor that was given up, and that still runs
        self.due_s = time.monotonic() + _PAUSE_S
        return not again

    def died(self, death: WorkerDied) -> UserError | None:
        """Note that the actor is gone; return an error if that was once too often."""
        self.lost += death.counts
        self.due_s = time.monotonic() + _PAUSE_S * death.counts
        if self.lost < MAX_DEATHS:
            return None
        return UserError(
            f"its worker was lost {self.lost} times (the last time {death}); if memory ran out "
            "there, let each run have more of a node's cores (engine.threads)"
        )


class _RunActor(ListeningActor):
    """Executes runs, one after the other."""

    def attempt(self, reference: list[Any]) -> Exception | None:
        """Call :func:`_attempt`; ``reference``: to its arguments."""
        return _attempt(*ray_package().get(reference[0]))


class _Place:
    """An actor, and the run that it has; it is asked for because of a first run."""

    def __init__(self, compared: ComparedNodes, run: _SpreadRun) -> None:
        self._compared = compared
        self._actor = RemoteActor(_RunActor, compared, *run.shape)
        self._node: str | None = None
        self.run: _SpreadRun | None = run
        self.shape = run.shape
        self.answer = self._actor.methods.node.remote()

    @property
    def placed(self) -> bool:
        """Whether the actor is on a node."""
        return self._node is not None

    @property
    def node(self) -> str:
        """The actor's node, in words."""
        return "a node" if self._node is None else f"the node {self._compared.name(self._node)}"

    def give(self, run: _SpreadRun) -> None:
        """Have the actor, which is placed, begin a run."""
        self.run = run
        self._actor.listen()
        # the run's data are put into Ray's store when they are needed, not those of all runs
        self.answer = self._actor.methods.attempt.remote([ray_package().put(run.arguments)])

    def look(self) -> tuple[bool, Exception | None]:
        """Return whether the run has ended, and its error.

        Raises
        ------
        WorkerDied: the actor is gone, or was given up. It does not count if the actor found no
        room.
        """
        ray = ray_package()
        try:
            if not ray.wait([self.answer], timeout=0)[0]:
                self._check_alive()
                return False, None
            answer = ray.get(self.answer)
        except ray.exceptions.RayTaskError as error:  # where the arguments are read
            reason = str(error).strip().splitlines()[-1]
            return True, UserError(
                f"on {self.node}: the run cannot be read there ({reason}); a module that it needs "
                "must be importable on every node"
            )
        except ray.exceptions.RayError as error:
            raise WorkerDied(how_lost(error)) from None
        if self._node is not None:
            return True, answer and explained(answer, self._compared.name(self._node))
        self._node = answer
        if self.run is not None:
            self.give(self.run)
        return False, None

    def _check_alive(self) -> None:
        if not self.placed:
            if self._actor.to_be_asked_anew():
                raise WorkerDied("as it was not placed", counts=False)
        elif self._actor.silent_s() > GIVEN_UP_S:
            self._actor.give_up()
            raise WorkerDied(f"given up after {GIVEN_UP_S:g} s without an answer")

    def end(self) -> None:
        """Kill the actor."""
        self._actor.kill()


class _Sweep:
    """Runs that wait, and actors that execute them, as many as the cluster has room for."""

    def __init__(self, compared: ComparedNodes, runs: Sequence[_SpreadRun]) -> None:
        self._compared = compared
        self._queue = list(runs)
        self._places: list[_Place] = []
        self._placed_s = time.monotonic()
        self._told = False
        nodes = list(usable_nodes(compared).values())
        for cores, gpus in sorted({run.shape for run in runs}):
            if not room(nodes, cores, gpus):
                raise ConfigError(
                    f"got {cores}: a run of {needs_in_words(cores, gpus)} fits on no node of the "
                    f"cluster ({in_words(nodes)}); expected a node with room for one",
                    "engine.threads",
                )

    def outcomes(self) -> Generator[tuple[int, Exception | None]]:
        """Yield the number of each run when it has ended, and its error."""
        while self._queue or self._places:
            self._give()
            self._ask()
            self._say_if_none()
            busy = [place.answer for place in self._places if place.run is not None]
            if busy:
                ray_package().wait(busy, timeout=LOOK_S)
            else:
                time.sleep(LOOK_S)
            for place in list(self._places):
                if place.run is not None:
                    yield from self._look(place, place.run)

    def _give(self) -> None:
        """Give runs to the actors that have none; end those for which there will be none."""
        for place in list(self._places):
            if place.run is None:
                same = [run for run in self._queue if run.shape == place.shape]
                run = self._taken(same)
                if run is not None:
                    place.give(run)
                elif not same:
                    self._end(place)

    def _ask(self) -> None:
        """Ask for more actors while there may be room."""
        nodes = usable_nodes(self._compared).values()
        for shape in dict.fromkeys(run.shape for run in self._queue):
            there = sum(place.shape == shape for place in self._places)
            for _ in range(room(nodes, *shape) - there):
                run = self._taken([run for run in self._queue if run.shape == shape])
                if run is not None:
                    self._places.append(_Place(self._compared, run))

    def _taken(self, runs: Sequence[_SpreadRun]) -> _SpreadRun | None:
        """Take the first of these runs that may begin now out of the queue."""
        now_s = time.monotonic()
        run = next((run for run in runs if run.due_s <= now_s), None)
        if run is not None:
            self._queue.remove(run)
        return run

    def _say_if_none(self) -> None:
        """Say, once, that there has been no actor for a while."""
        now_s = time.monotonic()
        if any(place.placed for place in self._places):
            self._placed_s = now_s
            self._told = False
        elif now_s > self._placed_s + _NONE_S and not self._told:
            self._told = True
            cluster = free_in_words(usable_nodes(self._compared).values())
            warnings.warn(f"runs wait for a worker: {cluster}", stacklevel=2)

    def _look(self, place: _Place, run: _SpreadRun) -> Iterator[tuple[int, Exception | None]]:
        """Look what became of an actor and its run; yield the run's number and error if it has
        ended."""
        error: Exception | None
        try:
            ended, error = place.look()
        except WorkerDied as death:
            self._end(place)
            error = run.died(death)
            ended = True
            again = error is None
            if again and death.counts:
                warnings.warn(
                    f"the worker of {run.folder} on {place.node} is gone ({death}); the run goes "
                    "on with another one",
                    stacklevel=2,
                )
        else:
            place.run = None if ended else run
            again = ended and not run.ended(error)
        if again:
            self._queue.insert(0, run)
        elif ended:
            yield run.number, error

    def _end(self, place: _Place) -> None:
        self._places.remove(place)
        place.end()

    def close(self) -> None:
        """End all actors."""
        for place in list(self._places):
            self._end(place)


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
        if unsendable({"error": error}) is None:
            return error
        plain = EngineError(f"{type(error).__name__}: {error}")
        keep_own_code(plain, like=error)
        return plain
    return None
