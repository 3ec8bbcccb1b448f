"""Actors of a Ray cluster, and the driver's end of each, which notices when the actor or its node
is gone or stands still.

While a call goes on, an actor answers questions after its health in another thread. A worker that
has not answered for :data:`SILENT_S` seconds has its call done by another worker, too; an actor
that has not for :data:`GIVEN_UP_S` is killed and replaced.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.errors import EngineError
from motley.engines.serialization import unwrap, wrap
from motley.engines.workers import Failed, RemoteWorker, Worker, WorkerCall, WorkerDied
from motley_ray.cluster_state import ClusterNode, ClusterState, alive_nodes, ray_package
from motley_ray.compared_nodes import ComparedNodes, explained

Bytes = NDArray[np.uint8]

SILENT_S = 7.0
GIVEN_UP_S = 45.0
"""Seconds without an answer after which an actor's call is done by another worker, too, and after
which it is killed."""
LOOK_S = 1.0
"""Seconds between two looks at an actor."""
_PLACED_S = 120.0
"""Seconds after which an actor that waits for room is asked for anew: one that was stopped while it
started would never come."""
_KILLED_S = 10.0
"""Seconds that Ray's process of a node has to kill an actor; it waits for 5 of them itself."""
_HEALTH = "health"


def as_bytes(obj: object) -> Bytes:
    """Return an object as bytes that Ray stores without pickling them."""
    buffer = np.empty(0, np.uint8)

    def allocate(size: int) -> memoryview:
        nonlocal buffer
        buffer = np.empty(size, np.uint8)
        return buffer.data

    wrap(obj, allocate)
    return buffer


class ListeningActor:
    """An actor that says where it is and, while a call goes on, that it is alive.

    Its calls take large arguments as references inside a list: as plain arguments, they would hold
    up the questions after its health until they are there.
    """

    def node(self) -> str:
        """Return the id of the node on which the actor is."""
        return str(ray_package().get_runtime_context().get_node_id())

    def node_stands(self) -> bool:
        """Return whether Ray's process of the node, this one's parent, is stopped, so that no
        answer could leave; False where that cannot be told."""
        try:
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in ("T", "t")

    def end(self) -> None:
        """End the actor's process, unless Ray's process of the node kills it before, which Ray does
        not report as a failure."""
        time.sleep(_KILLED_S)
        os._exit(1)


class RemoteActor:
    """The driver's end of an actor on whichever compared node has room.

    Parameters
    ----------
    kind: class of the actor.
    compared: the nodes that it may be on.
    cores, gpus: of the actor.
    """

    def __init__(
        self, kind: type[ListeningActor], compared: ComparedNodes, cores: int, gpus: float
    ) -> None:
        self._compared = compared
        self._labels = compared.labels()
        options = {
            "num_cpus": cores,
            "num_gpus": gpus,
            "max_restarts": 0,
            "label_selector": self._labels,
        }
        actor_class = ray_package().remote(concurrency_groups={_HEALTH: 1}, **options)(kind)
        self.methods = actor_class.remote()
        self._asked_s = time.monotonic()
        self.listen()

    def to_be_asked_anew(self) -> bool:
        """Return whether an actor that is not placed yet should be asked for again: it has waited
        long, or other nodes may be used by now."""
        late = time.monotonic() > self._asked_s + _PLACED_S
        return late or self._labels != self._compared.labels()

    def listen(self) -> None:
        """Begin to ask anew, for a new call."""
        self._question: Any = None
        self._heard_s: float | None = None

    def silent_s(self) -> float:
        """Return the seconds since the actor last answered, or was first asked; ask it again.

        Raises
        ------
        RayError: the actor is gone.
        """
        ray = ray_package()
        now_s = time.monotonic()
        if self._heard_s is None:
            self._heard_s = now_s
        if self._question is not None and ray.wait([self._question], timeout=0)[0]:
            if not ray.get(self._question):
                self._heard_s = now_s
            self._question = None
        if self._question is None:
            health = self.methods.node_stands.options(concurrency_group=_HEALTH)
            self._question = health.remote()
        return now_s - self._heard_s

    def give_up(self) -> None:
        """Have the actor's process end, if Ray's process of the node, which may be stopped, does
        not kill it."""
        self.methods.end.options(concurrency_group=_HEALTH).remote()

    def kill(self) -> None:
        """Have Ray's process of the node kill the actor's process."""
        ray = ray_package()
        if ray.is_initialized():
            ray.kill(self.methods)


class _Actor(ListeningActor):
    """A worker as an actor."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def prepare(self, setting: list[Any], threads: int, device: str | None) -> None:
        """Make the worker's engine. ``setting``: reference to the run's setting; its tensors are
        used where they lie."""
        os.environ["OMP_NUM_THREADS"] = str(threads)
        _use_threads(threads)
        self._threads = threads
        self._worker = Worker(ray_package().get(setting[0]).data, device)

    def execute(self, call: list[Any], shared: list[Any]) -> Bytes:
        """See :meth:`Worker.execute`; both are references."""
        if self._worker is None:
            raise EngineError("the worker was not prepared")
        _use_threads(self._threads)
        get = ray_package().get
        return self._worker.execute(
            unwrap(bytearray(get(call[0]))), unwrap(get(shared[0]).data), as_bytes
        )


def _use_threads(threads: int) -> None:
    """Set torch's threads of this Python thread; Ray executes calls in another one than it makes
    the actor in."""
    # torch settles the thread's count here, so it cannot overwrite the next line's
    torch.get_num_threads()
    torch.set_num_threads(threads)


class ActorWorker(RemoteWorker[Any]):
    """An actor on whichever node has room.

    Parameters
    ----------
    number: of the worker in its run.
    setting: of the run, in Ray's store.
    state: what the run knows of the cluster.
    device: replaces the setting's own if given.
    """

    def __init__(self, number: int, setting: Any, state: ClusterState, device: str | None) -> None:
        self._number = number
        self._setting = setting
        self._state = state
        self._device = device
        self._lock = threading.Lock()
        self._closed = False
        self._lost_one = False
        self._actor: RemoteActor | None = None
        self._node: ClusterNode | None = None

    @override
    def start(self) -> None:
        self._kill()
        state = self._state
        with self._lock:
            self._check_open()
            actor = RemoteActor(_Actor, state.compared, state.cores, state.gpus)
            self._actor = actor
        node = self._wait(actor, actor.methods.node.remote(), None)
        self._node = alive_nodes().get(node)
        answer = actor.methods.prepare.remote([self._setting], state.cores, self._device)
        prepared = self._wait(actor, answer, lambda: None)
        if isinstance(prepared, Failed):
            raise WorkerDied(f"as {prepared.error}")
        if self._node is None:  # it left the cluster in between
            raise WorkerDied("with its node", counts=False)
        state.arrived(self._number, self._node, self._lost_one)

    @override
    def execute(self, call: WorkerCall, shared: Any, silent: Callable[[], None]) -> Any:
        actor = self._actor
        node = self._node
        begun_s = time.monotonic()
        if actor is None or node is None:
            raise WorkerDied("with its engine", counts=False)
        arguments = [ray_package().put(as_bytes(call))]
        try:
            answer = self._wait(actor, actor.methods.execute.remote(arguments, [shared]), silent)
        except WorkerDied as death:
            self._state.left(self._number)
            self._lost_one = True
            if not self._closed:
                where = "" if death.counts else ", and so is the node"
                self._state.note(
                    "lost",
                    f"a worker on the node {node.ip} is gone ({death}){where}; others do its work",
                )
            raise
        if call.method == "train" and not isinstance(answer, Failed):
            steps = sum(job.steps for job in call.arguments["jobs"])
            self._state.spent(node, time.monotonic() - begun_s, steps)
        result = answer if isinstance(answer, Failed) else unwrap(bytearray(answer))
        self._state.compared.worked(node.id)
        if isinstance(result, Failed):
            return Failed(explained(result.error, self._state.compared.name(node.id)))
        return result

    def _wait(self, actor: RemoteActor, answer: Any, silent: Callable[[], None] | None) -> Any:
        """Wait for an answer of the actor while it is alive.

        ``silent``: called when it seems not to be; None: it may not be placed yet.

        Raises
        ------
        WorkerDied: the actor, its node, or the answer on its way is gone, or it was given up.
        """
        ray = ray_package()
        warned = False
        actor.listen()
        try:
            while not ray.wait([answer], timeout=LOOK_S)[0]:
                self._check_open()
                if silent is None:
                    if actor.to_be_asked_anew():
                        raise WorkerDied("as it was not placed", counts=False)
                    continue
                silent_s = actor.silent_s()
                if silent_s > SILENT_S and not warned:
                    warned = True
                    self._tell_silent(silent)
                if silent_s > GIVEN_UP_S:
                    raise WorkerDied(f"given up after {GIVEN_UP_S:g} s without an answer")
            return ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            return Failed(EngineError(f"a worker failed: {error}"))
        except ray.exceptions.RayError as error:
            raise WorkerDied(
                how_lost(error), counts=self._node is None or self._node.reached()
            ) from None

    def _tell_silent(self, silent: Callable[[], None]) -> None:
        silent()
        if self._node is not None:
            where = f"a worker on the node {self._node.ip}"
            self._state.note(
                "unanswered",
                f"{where} has not answered for {SILENT_S:g} s; another one does its work, too",
            )

    def _check_open(self) -> None:
        if self._closed:
            raise WorkerDied("with its engine", counts=False)

    def _kill(self) -> None:
        with self._lock:
            actor = self._actor
            self._actor = None
            self._node = None
        self._state.left(self._number)
        if actor is not None:
            actor.kill()

    @override
    def close(self) -> None:
        self._closed = True
        self._kill()


def how_lost(error: Exception) -> str:
    """Return why an actor is gone: the kind of Ray's error with the exit that Ray saw, or with the
    error that was raised where the actor was made."""
    text = str(error).strip()
    seen = re.search(r"[Ww]orker exit type: (\w+)", text)
    reason = ""
    if seen:
        reason = seen[1]
    elif "creation task" in text:
        reason = text.splitlines()[-1].strip()
    return f"as {type(error).__name__}" + (f": {reason}" if reason else "")
