"""The nodes of a Ray cluster as a run sees them: how many workers fit, what was lost and came back,
and who is slow."""

from __future__ import annotations

import importlib
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from motley.core.errors import ConfigError
from motley.engines.engine import EngineEvent
from motley_ray.compared_nodes import ComparedNodes

WAIT_S = 600.0
"""Wall seconds to wait for room for a first worker, unless the run says otherwise."""
_REACHED_S = 1.0
_JOINS_S = 10.0
"""Wall seconds in which a node that has joined must say what it is to be used from this round
on."""
_SLOW = 1.25
"""A node is called the slowest if a step takes this many times as long there as on the fastest."""


def ray_package() -> Any:
    """Return the package ``ray``, which is imported when it is first used, without its usage
    statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # else it warns that one day this will be the default
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return importlib.import_module("ray")


class ClusterNode(NamedTuple):
    """A node that is alive: its id, address, cores, GPUs, and the port of Ray's process on it."""

    id: str
    ip: str
    cores: int
    gpus: int
    port: int

    def room(self, cores: int, gpus: float) -> int:
        """Return how many workers of so many cores, and GPUs or a share of one, fit on the node."""
        fits = self.cores // cores
        return fits if not gpus else min(fits, int(self.gpus / gpus + 1e-9))

    def reached(self) -> bool:
        """Return whether Ray's process on the node takes connections."""
        try:
            socket.create_connection((self.ip, self.port), _REACHED_S).close()
        except OSError:
            return False
        return True


def alive_nodes() -> dict[str, ClusterNode]:
    """Return the nodes that the cluster holds to be alive, by id."""
    nodes = {}
    for node in ray_package().nodes():
        if node["Alive"]:
            has = node["Resources"]
            ip = node["NodeManagerAddress"]
            cores = int(has.get("CPU", 0))
            gpus = int(has.get("GPU", 0))
            nodes[node["NodeID"]] = ClusterNode(
                id=node["NodeID"], ip=ip, cores=cores, gpus=gpus, port=node["NodeManagerPort"]
            )
    return nodes


def usable_nodes(compared: ComparedNodes, wait_s: float = 0.0) -> dict[str, ClusterNode]:
    """Return the nodes that are alive and do not differ from this process, by id; ``wait_s``: as
    for :meth:`ComparedNodes.usable`."""
    usable = set(compared.usable(wait_s))
    return {node: state for node, state in alive_nodes().items() if node in usable}


def in_words(nodes: Iterable[ClusterNode]) -> str:
    """Return ``10.0.0.1 has 1 core, 10.0.0.2 has 4 cores and 1 GPU``."""
    sizes = []
    for node in sorted(nodes, key=lambda node: node.ip):
        gpus = f" and {node.gpus} GPU{'s' * (node.gpus != 1)}" if node.gpus else ""
        sizes.append(f"{node.ip} has {_cores(node.cores)}{gpus}")
    return ", ".join(sizes)


def free_in_words(nodes: Iterable[ClusterNode]) -> str:
    """Return ``the cluster has 0 of 1 cores free (10.0.0.1 has 1 core)`` for these nodes."""
    nodes = list(nodes)
    free = int(ray_package().available_resources().get("CPU", 0))
    there = sum(node.cores for node in nodes)
    return f"the cluster has {free} of {there} cores free ({in_words(nodes)})"


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count != 1)}"


def room(nodes: Iterable[ClusterNode], cores: int, gpus: float) -> int:
    """Return how many workers of so many cores and GPUs fit on these nodes, if nothing else runs
    there."""
    return sum(node.room(cores, gpus) for node in nodes)


def divided(
    nodes: Iterable[ClusterNode],
    threads: int | None,
    workers: int | None,
    worker_cores: int | None,
    gpus: float,
) -> tuple[int, int]:
    """Return the number of workers and the cores of each, such that each worker has its cores on
    one node.

    Parameters
    ----------
    threads: cores that the run may use; None: all.
    workers, worker_cores: what the run asks for, None: left out; if both are given, they are taken
    as they are, and one worker must fit.
    gpus: of each worker.

    Raises
    ------
    ConfigError: so many workers, or so large ones, fit nowhere.
    """
    nodes = list(nodes)
    there = sum(node.cores for node in nodes)
    most = there if threads is None else min(threads, there)
    smallest = worker_cores or 1
    if not room(nodes, smallest, gpus) or smallest > most:
        key = "engine.worker_cores" if worker_cores else "engine"
        raise ConfigError(
            f"a worker of {needs_in_words(smallest, gpus)} fits on no node of the cluster "
            f"({in_words(nodes)}), and this run may use {_cores(most)}; expected a node with room "
            "for one",
            key,
        )
    if workers is not None and worker_cores is not None:
        return workers, worker_cores
    fits = min(room(nodes, smallest, gpus), most // smallest)
    count = fits if workers is None else workers
    if count > fits:
        raise ConfigError(
            f"got {count}, and this run may use {most} cores ({in_words(nodes)}); expected at most "
            f"{fits} worker{'s' * (fits != 1)} of {needs_in_words(smallest, gpus)}",
            "engine.workers",
        )
    each = smallest
    while (
        worker_cores is None and count * (each + 1) <= most and room(nodes, each + 1, gpus) >= count
    ):
        each += 1
    return count, each


def needs_in_words(cores: int, gpus: float) -> str:
    """Return ``1 core``, or ``1 core and 0.5 GPU``."""
    return f"{_cores(cores)} and {gpus:g} GPU" if gpus else _cores(cores)


class ClusterState:
    """What a run knows of the cluster. Threads of workers and the run's own share it.

    Parameters
    ----------
    compared: says which nodes may be used.
    cores, gpus: of each worker.
    wait_s: wall seconds to wait for a first worker.
    """

    def __init__(
        self, compared: ComparedNodes, cores: int, gpus: float, wait_s: float | None
    ) -> None:
        self.compared = compared
        self.cores = cores
        self.gpus = gpus
        self.wait_s = WAIT_S if wait_s is None else wait_s
        self.nodes = usable_nodes(compared)
        self._left_out = set(compared.left_out())
        self._lock = threading.Lock()
        self._events: list[EngineEvent] = []
        self._places: dict[int, ClusterNode] = {}
        self._step_s: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._waits = ""

    def note(self, event: str, reason: str) -> None:
        """Note what happened to a node or worker now."""
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with self._lock:
            self._events.append(EngineEvent(at, event, reason))

    def take_events(self) -> list[EngineEvent]:
        """Return the events since the last call."""
        with self._lock:
            taken = self._events
            self._events = []
        return taken

    def look(self) -> None:
        """Look which nodes are there, and note those that came or went."""
        now = usable_nodes(self.compared, _JOINS_S)
        before = self.nodes
        self.nodes = now
        for node in before.keys() - now.keys():
            self.note("disconnected", f"the node {before[node].ip} is gone from the cluster")
        for node in now.keys() - before.keys():
            self.note(
                "connected",
                f"the node {now[node].ip} has joined the cluster ({_cores(now[node].cores)})",
            )
        for name, why in self.compared.left_out().items():
            if name not in self._left_out:
                self._left_out.add(name)
                self.note(
                    "refused", f"the node {name} has joined the cluster and is not used: {why}"
                )

    def arrived(self, number: int, node: ClusterNode, replaces: bool) -> None:
        """Note that a worker is ready on a node; ``replaces``: another one was lost before."""
        with self._lock:
            self._places[number], self._waits = node, ""
        if replaces:
            self.note(
                "connected", f"a worker in place of a lost one is ready on the node {node.ip}"
            )

    def left(self, number: int) -> None:
        """Note that a worker is gone."""
        with self._lock:
            self._places.pop(number, None)

    def spent(self, node: ClusterNode, seconds: float, steps: int) -> None:
        """Note how long local steps took on a node."""
        with self._lock:
            taken = self._step_s[node.ip]
            taken[0] += seconds
            taken[1] += steps

    def slowest(self) -> str:
        """Return the node whose steps take longest, in words; the empty string where none stands
        out."""
        with self._lock:
            each = {ip: seconds / steps for ip, (seconds, steps) in self._step_s.items() if steps}
        if len(each) < 2:
            return ""
        slow = max(each, key=lambda ip: each[ip])
        # 1e-12: a node whose steps took no measurable time is the fastest, and no division by 0.
        times = each[slow] / max(min(each.values()), 1e-12)
        return f"slowest node {slow} ({times:.1f} times the fastest)" if times >= _SLOW else ""

    def condition(self, expected: int) -> str:
        """Return how many of the expected workers are ready, where, and what is waited for, in
        words."""
        with self._lock:
            places = list(self._places.values())
            waits = self._waits
        count = len(places)
        hosts = len({node.id for node in places})
        of = f"{count} of {expected}" if count < expected else str(count)
        workers = (
            f"{of} worker{'s' * (max(count, expected) != 1)} on {hosts} node{'s' * (hosts != 1)}"
        )
        return ", ".join(filter(None, (workers, self.slowest(), waits)))

    def on_wait(self, without_s: float) -> None:
        """Take note that no worker has been ready for so many seconds.

        Raises
        ------
        ConfigError: that was too long.
        """
        if not without_s:
            return
        nodes = list(usable_nodes(self.compared).values())
        held = "which others use" if room(nodes, self.cores, self.gpus) else "where no worker fits"
        cluster = free_in_words(nodes)
        self._waits = f"waits for a worker: {cluster}"
        if without_s > self.wait_s:
            raise ConfigError(
                f"got {self.wait_s:g}: no worker of {needs_in_words(self.cores, self.gpus)} was "
                f"ready within so many seconds; {cluster}, {held}; end another run, add a node, or "
                f"wait longer, e.g. engine.wait_s = {6 * self.wait_s:g}",
                "engine.wait_s",
            )
