"""Clients on a Ray cluster: the crew of :mod:`motley.engines.processes`, with actors for workers (``motley-fl[ray]``).

An actor is given chunks, never single clients. The data are put into Ray's store once, and every node fetches them once for all
its actors. What Ray pickles and stores stays among the machines of one cluster, which must trust one another.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import socket
import weakref
from collections import deque
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import ConfigError, EngineError
from motley.engines.base import Setting
from motley.engines.cores import cores
from motley.engines.distributed import Distributed
from motley.engines.serialization import unwrap, wrap
from motley.engines.worker import Worker
from motley.engines.worker_pool import Died, Failed, Order, WorkerTransport

__all__ = ["RayCluster", "connect"]

Bytes = NDArray[np.uint8]


def connect(address: str | None, threads: int | None) -> bool:
    """Be connected to a cluster; whether this call has connected, and its caller is to disconnect.

    Parameters
    ----------
    address: of a running cluster; None: one of this machine's cores is started, unless there is a connection already.
    threads: cores of the cluster that is started; None: all the process may use.

    Raises
    ------
    ConfigError: Ray is not installed, or there is no cluster. EngineError: none can be started here.
    """
    if not _installed():
        raise ConfigError(_MISSING, "engine")
    ray = _ray()
    if ray.is_initialized():
        return False
    here: dict[str, Any] = {"num_cpus": cores(threads), "include_dashboard": False} if address is None else {}
    for left in range(_STARTS if address is None else 1, 0, -1):
        try:
            _knock(address)
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **here)
        except Exception as error:  # of no class of its own where Ray's processes do not come up in time
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if left > 1 and _LATE in reason:
                continue
            if address is None:
                raise EngineError(f"Ray does not start on this machine: {reason}") from None
            raise ConfigError(
                f"got {address!r}, and no cluster answers there ({reason}); start one with: ray start --head", "engine.address"
            ) from None
        break
    return True


def _knock(address: str | None) -> None:
    """Whether anybody listens at ``host:port``; Ray itself would ask for minutes."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), _KNOCK_S).close()


_KNOCK_S = 5.0
_STARTS, _LATE = 3, "timed out"
"""Ray gives its processes half a minute to come up, which a busy machine may miss; so often it is tried."""
_MISSING = "Ray is not installed; get it with: pip install 'motley-fl[ray]'"


def _installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns that one day this will be the default
    return importlib.import_module("ray")


def _array(obj: object) -> Bytes:
    """An object in bytes that Ray stores as they are."""
    made = np.empty(0, np.uint8)

    def allocate(size: int) -> memoryview:
        nonlocal made
        made = np.empty(size, np.uint8)
        return made.data

    wrap(obj, allocate)
    return made


class _Actor:
    """A worker as an actor; what it is handed lies in its node's store."""

    def __init__(self, setting: Bytes, threads: int, device: str | None) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        torch.set_num_threads(threads)
        self._worker = Worker(setting.data, device)

    def execute(self, own: Bytes, posted: Bytes) -> Bytes:
        """The answer to an order."""
        answer = self._worker.execute(unwrap(bytearray(own)), unwrap(posted.data))
        try:
            return _array(answer)
        except Exception as error:  # an exception may hold anything
            said = answer.error if isinstance(answer, Failed) else error
            return _array(Failed(EngineError(f"a worker failed: {type(said).__name__}: {said}")))


class _Actors(WorkerTransport[Any]):
    """Carries orders to actors.

    Parameters
    ----------
    setting: for all. threads: cores of each. device: of each; None: the setting's own. ends: whether the connection is ours to end.
    """

    def __init__(self, setting: Setting, threads: int, device: str | None, ends: bool) -> None:
        self._setting = self.post(setting)
        self._device, self._threads, self._ends = device, threads, ends
        self.actors: dict[int, Any] = {}
        self._answers: dict[int, deque[Any]] = {}

    def start(self, worker: int) -> None:
        """An actor on whichever node has room."""
        ray = _ray()
        self._end(worker)
        gpus = 0 if self._device is None else 1
        kind = ray.remote(_Actor).options(num_cpus=self._threads, num_gpus=gpus, max_restarts=0)
        self.actors[worker] = kind.remote(self._setting, self._threads, self._device)
        self._answers[worker] = deque()

    def seen(self) -> Setting:
        """In this node's store."""
        found: Setting = unwrap(_ray().get(self._setting).data)
        return found

    def post(self, what: Any) -> Any:
        """Into the store."""
        return _ray().put(_array(what))

    def send(self, worker: int, order: Order, posted: Any) -> None:
        """A call of the actor."""
        self._answers[worker].append(self.actors[worker].execute.remote(_array(order), posted))

    def wait(self) -> tuple[int, Any]:
        """See :meth:`WorkerTransport.wait`."""
        ray = _ray()
        first = {answers[0]: worker for worker, answers in self._answers.items() if answers}
        ready, _ = ray.wait(list(first), num_returns=1)
        worker = first[ready[0]]
        try:
            found = ray.get(ready[0])
        except ray.exceptions.RayTaskError as error:
            self._answers[worker].popleft()
            return worker, Failed(EngineError(f"a worker failed: {error}"))
        except ray.exceptions.RayError as error:  # the actor, its node, or the answer on its way is gone
            return worker, Died(f"as {type(error).__name__}")
        self._answers[worker].popleft()
        return worker, unwrap(bytearray(found))

    def _end(self, worker: int) -> None:
        actor = self.actors.pop(worker, None)
        self._answers.pop(worker, None)
        if actor is not None:
            _ray().kill(actor)

    def close(self) -> None:
        """End the actors, and the connection where it was made for them."""
        if self.actors and _ray().is_initialized():
            for worker in list(self.actors):
                self._end(worker)
            if self._ends:
                _ray().shutdown()


class RayCluster(Distributed):
    """Chunks of clients in the actors of a Ray cluster, on this machine or many."""

    name: ClassVar[str] = "ray"
    options: ClassVar[frozenset[Literal["workers", "address"]]] = frozenset({"workers", "address"})

    def __init__(self, setting: Setting) -> None:
        ends = self._ends = connect(setting.address, setting.threads)
        try:
            super().__init__(setting)
        except BaseException:
            if ends:
                _ray().shutdown()
            raise

    @classmethod
    def _cores(cls, setting: Setting) -> int:
        there = int(_ray().cluster_resources().get("CPU", 1))
        return there if setting.threads is None else min(setting.threads, there)

    @classmethod
    def _devices(cls) -> int:
        return int(_ray().cluster_resources().get("GPU", 0))

    def _carrier(self, told: Setting) -> WorkerTransport[Any]:
        device = "cuda:0" if self.setting.device == "cuda" else None  # Ray shows an actor its own GPU only
        carrier = _Actors(told, self.each, device, self._ends)
        weakref.finalize(self, carrier.close)
        return carrier

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """What cannot be sent to another process; everything where Ray is not installed."""
        return super().refuses(setting) if _installed() else _MISSING
