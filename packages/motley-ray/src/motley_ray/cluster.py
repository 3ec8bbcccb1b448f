"""The engine ``ray``: clients are trained by actors of a Ray cluster, in place of processes of
this machine.

An actor is given chunks of clients. The data are put into Ray's store once, and every node fetches
them once for all its actors. Ray pickles and stores objects within one cluster, whose machines must
trust one another.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from motley.algorithms.parts import ClientState, Tensors
from motley.core.errors import ConfigError, EngineError, install_hint
from motley.core.usable_cores import cores
from motley.engines.distributed import Distributed
from motley.engines.engine import WORKER_OPTIONS, EngineEvent, Job, Setting, TrainResult
from motley.engines.serialization import unwrap
from motley.engines.workers import RemoteWorker
from motley_ray import auth_token, node_watch
from motley_ray.actors import ActorWorker, as_bytes
from motley_ray.cluster_state import (
    ClusterState,
    alive_nodes,
    divided,
    ray_package,
    room,
    usable_nodes,
)
from motley_ray.compared_nodes import ComparedNodes, needs


def connect(address: str | None, threads: int | None) -> bool:
    """Connect to a cluster unless this process is connected; return whether this call connected, so
    that its caller disconnects.

    Parameters
    ----------
    address: of a running cluster; None or ``local``: a cluster of this machine's cores is started,
    unless there is a connection already.
    threads: cores of the cluster that is started; None: all that the process may use.

    Raises
    ------
    ConfigError: Ray is not installed, the address is none, or there is no cluster. EngineError:
    none can be started here.
    """
    if not _installed():
        raise ConfigError(_MISSING, "engine")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise ConfigError(
            f"got {address!r}; expected host:port, as 10.0.0.1:6379, or auto", "engine.address"
        )
    ray = ray_package()
    if ray.is_initialized():
        return False
    address = None if address == "local" else address
    here: dict[str, Any] = (
        {"num_cpus": cores(threads), "include_dashboard": False} if address is None else {}
    )
    for left in range(_STARTS if address is None else 1, 0, -1):
        try:
            _check_listening(address)
            auth_token.agree(address)
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **here)
        except ConfigError:
            raise
        except Exception as error:
            # of no class of its own where Ray's processes do not come up in time
            auth_token.restore()
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if left > 1 and _LATE in reason:
                continue
            if address is None:
                raise EngineError(f"Ray does not start on this machine: {reason}") from None
            raise ConfigError(
                f"got {address!r}, and no cluster answers there ({reason}); start one with: ray "
                "start --head",
                "engine.address",
            ) from None
        break
    if "/" not in (address or ""):  # Ray's client has its node on another machine
        node_watch.begin()
    return True


def disconnect() -> None:
    """End the connection that :func:`connect` made, and a cluster that it started."""
    ray_package().shutdown()
    node_watch.end()  # not before, as the shutdown waits for a process that stands still, too
    auth_token.restore()


def _check_listening(address: str | None) -> None:
    """Raise OSError if nothing listens at ``host:port``; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), _LISTENING_S).close()


_ADDRESS = re.compile(r"auto|local|.*/.*|[^\s:]+:\d+|\[[0-9a-fA-F:]+\]:\d+")
_LISTENING_S = 5.0
_STARTS = 3
_LATE = "timed out"
"""Attempts to start Ray, which gives its processes half a minute that a busy machine may miss, and
the error that is retried."""
_MISSING = f"Ray is not installed; get it with: {install_hint(folder='motley-ray')}"


def _installed() -> bool:
    return importlib.util.find_spec("ray") is not None


class RayCluster(Distributed[Any]):
    """Trains chunks of clients in the actors of a Ray cluster, on this machine or many."""

    name: ClassVar[str] = "ray"
    options: ClassVar[frozenset[str]] = frozenset(WORKER_OPTIONS)

    def __init__(self, setting: Setting) -> None:
        self._disconnects = connect(setting.address, setting.threads)
        try:
            self._compared = ComparedNodes(needs(setting), setting.differing_nodes or "skip")
            self._compared.begin()
            self._state = ClusterState(
                self._compared, self._shares(setting)[1], _gpus(setting), setting.wait_s
            )
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
        there = sum(node.cores for node in alive_nodes().values())
        return there if setting.threads is None else min(setting.threads, there)

    @override
    def _shares(self, setting: Setting) -> tuple[int, int]:
        """Return the number of workers and the cores of each, which lie on one node."""
        return divided(
            usable_nodes(self._compared).values(),
            setting.threads,
            setting.workers,
            setting.worker_cores,
            gpus=_gpus(setting),
        )

    @override
    def workers_at_once(self) -> int:
        limit = self.setting.threads
        return (
            self.workers if limit is None else min(self.workers, max(1, limit // self.cores_each))
        )

    @override
    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """See :meth:`Engine.train`. Nodes that have joined since the last call are used from now
        on."""
        self._state.look()
        self._use_new_nodes()
        yield from super().train(jobs, download, client_states, want)

    def _use_new_nodes(self) -> None:
        """Start further workers where there is room for them, at most one for every chunk; results
        do not depend on them."""
        if self.setting.workers is not None and self.setting.worker_cores is None:
            return
        most = self.chunks_at_once()
        if self.setting.threads is not None:
            most = min(most, self.setting.threads // self.cores_each)
        fit = room(self._state.nodes.values(), self.cores_each, self._state.gpus)
        for number in range(self._started, min(fit, most)):
            self._pool.add(self._worker(number, self._setting))

    @override
    def take_events(self) -> list[EngineEvent]:
        return self._state.take_events()

    @override
    def condition(self) -> str:
        return self._state.condition(self._started)

    @override
    def _on_wait(self) -> Callable[[float], None]:
        return self._state.on_wait

    @override
    def _share(self, obj: object) -> Any:
        return ray_package().put(as_bytes(obj))

    @override
    def _load(self, shared: Any) -> Any:
        return unwrap(ray_package().get(shared).data)

    @override
    def _worker(self, number: int, setting: Any) -> RemoteWorker[Any]:
        self._started = number + 1
        # Ray shows an actor its own GPU only
        device = "cuda:0" if self.setting.device == "cuda" else None
        return ActorWorker(number, setting, self._state, device)

    @property
    @override
    def nodes(self) -> Mapping[str, str]:
        return self._compared.record()

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        return super().refuses(setting) if _installed() else _MISSING


def _gpus(setting: Setting) -> float:
    """Return the GPUs of each worker: none, one, or a share of one."""
    if not setting.device.startswith("cuda"):
        return 0
    return 1.0 if setting.gpu_share is None else setting.gpu_share
