"""The engine ``ray``: clients are trained by actors of a Ray cluster (the extra ``ray``), in place of processes of this machine.

An actor is given chunks of clients. The data are put into Ray's store once, and every node fetches them once for all its actors.
Ray pickles and stores objects within one cluster, whose machines must trust one another.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.errors import ConfigError, EngineError, install_hint
from motley.engines import ray_token
from motley.engines.base import Setting
from motley.engines.cores import cores
from motley.engines.distributed import Distributed
from motley.engines.ray_nodes import ComparedNodes, explained, needs
from motley.engines.serialization import unwrap, wrap
from motley.engines.workers import Failed, RemoteWorker, Worker, WorkerCall, WorkerDied

__all__ = ["RayCluster", "connect", "disconnect"]

Bytes = NDArray[np.uint8]


def connect(address: str | None, threads: int | None) -> bool:
    """Connect to a cluster unless this process is connected; return whether this call connected, so that its caller disconnects.

    Parameters
    ----------
    address: of a running cluster; None: a cluster of this machine's cores is started, unless there is a connection already.
    threads: cores of the cluster that is started; None: all that the process may use.

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
            _check_listening(address)
            ray_token.agree(address)
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **here)
        except ConfigError:
            raise
        except Exception as error:  # of no class of its own where Ray's processes do not come up in time
            ray_token.restore()
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


def disconnect() -> None:
    """End the connection that :func:`connect` made, and a cluster that it started."""
    _ray().shutdown()
    ray_token.restore()


def _check_listening(address: str | None) -> None:
    """Raise OSError if nothing listens at ``host:port``; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), _LISTENING_S).close()


_LISTENING_S = 5.0
_STARTS, _LATE = 3, "timed out"
"""Attempts to start Ray, which gives its processes half a minute that a busy machine may miss, and the error that is retried."""
_MISSING = f"Ray is not installed; get it with: {install_hint('ray')}"


def _installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns that one day this will be the default
    return importlib.import_module("ray")


def _array(obj: object) -> Bytes:
    """Return an object as bytes that Ray stores without pickling them."""
    made = np.empty(0, np.uint8)

    def allocate(size: int) -> memoryview:
        nonlocal made
        made = np.empty(size, np.uint8)
        return made.data

    wrap(obj, allocate)
    return made


class _Actor:
    """A worker as an actor; its arguments lie in its node's store."""

    def __init__(self, setting: Bytes, threads: int, device: str | None) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        torch.set_num_threads(threads)
        self._worker = Worker(setting.data, device)

    def node(self) -> str:
        """Return the id of the node on which the actor is."""
        return str(_ray().get_runtime_context().get_node_id())

    def execute(self, call: Bytes, shared: Bytes) -> Bytes:
        """See :meth:`Worker.execute`."""
        return self._worker.execute(unwrap(bytearray(call)), unwrap(shared.data), _array)


class _ActorWorker(RemoteWorker[Any]):
    """An actor on whichever node has room.

    Parameters
    ----------
    setting: of the run, in Ray's store. threads: cores of the actor. device: replaces the setting's own if given.
    nodes: of the cluster, of which one that does not differ is taken.
    """

    def __init__(self, setting: Any, threads: int, device: str | None, nodes: ComparedNodes) -> None:
        self._setting, self._threads, self._device, self._nodes = setting, threads, device, nodes
        self._actor: Any = None
        self._node: Any = None

    @override
    def start(self) -> None:
        self.close()
        gpus = 0 if self._device is None else 1
        kind = (
            _ray()
            .remote(_Actor)
            .options(num_cpus=self._threads, num_gpus=gpus, max_restarts=0, label_selector=self._nodes.labels())
        )
        self._actor = kind.remote(self._setting, self._threads, self._device)
        self._node = self._actor.node.remote()

    @override
    def execute(self, call: WorkerCall, shared: Any) -> Any:
        ray, actor = _ray(), self._actor
        if actor is None:
            raise WorkerDied("with its engine")
        try:
            answer = ray.get(actor.execute.remote(_array(call), shared))
            node = ray.get(self._node)
        except ray.exceptions.RayTaskError as error:
            return Failed(EngineError(f"a worker failed: {error}"))
        except ray.exceptions.RayError as error:  # the actor, its node, or the answer on its way is gone
            raise WorkerDied(f"as {type(error).__name__}") from None
        self._nodes.worked(node)
        result = unwrap(bytearray(answer))
        return Failed(explained(result.error, self._nodes.name(node))) if isinstance(result, Failed) else result

    @override
    def close(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and _ray().is_initialized():
            _ray().kill(actor)


class RayCluster(Distributed[Any]):
    """Trains chunks of clients in the actors of a Ray cluster, on this machine or many."""

    name: ClassVar[str] = "ray"
    options: ClassVar[frozenset[str]] = frozenset({"workers", "address", "differing_nodes"})

    def __init__(self, setting: Setting) -> None:
        self._disconnects = connect(setting.address, setting.threads)
        try:
            self._nodes = ComparedNodes(needs(setting), setting.differing_nodes or "skip")
            self._nodes.begin()
            if self._nodes.left_out():
                most = self._nodes.cores()
                setting = dataclasses.replace(setting, threads=min(most, setting.threads or most))
            super().__init__(setting)
        except BaseException:
            self._on_close()()
            raise

    @override
    def _on_close(self) -> Callable[[], None]:
        return disconnect if self._disconnects else super()._on_close()

    @classmethod
    @override
    def available_cores(cls, setting: Setting) -> int:
        there = int(_ray().cluster_resources().get("CPU", 1))
        return there if setting.threads is None else min(setting.threads, there)

    @classmethod
    @override
    def available_gpus(cls) -> int:
        return int(_ray().cluster_resources().get("GPU", 0))

    @override
    def _share(self, obj: object) -> Any:
        return _ray().put(_array(obj))

    @override
    def _load(self, shared: Any) -> Any:
        return unwrap(_ray().get(shared).data)

    @override
    def _worker(self, number: int, setting: Any) -> RemoteWorker[Any]:
        device = "cuda:0" if self.setting.device == "cuda" else None  # Ray shows an actor its own GPU only
        return _ActorWorker(setting, self.cores_each, device, self._nodes)

    @property
    @override
    def nodes(self) -> Mapping[str, str]:
        return self._nodes.record()

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        return super().refuses(setting) if _installed() else _MISSING
