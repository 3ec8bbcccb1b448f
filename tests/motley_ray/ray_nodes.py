"""A Ray cluster on this machine whose nodes can be added, killed, stopped and cut off.

The tests and campaigns of the engine ``ray`` use it. Each node beside the head lives in a network
namespace of its own, joined to the head by a veth pair and a bridge, so that it has an address of
its own and the bytes that it sends can be counted. Where namespaces are refused, all nodes are on
the loopback.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psutil

__all__ = ["Node", "RayNodes"]

RAY = str(Path(sys.executable).with_name("ray"))
START_S = 120.0
"""Seconds in which a node must be there; the machine may be busy."""
STORE_BYTES = 80_000_000


class Node:
    """One node of a cluster: its address and its processes.

    Parameters
    ----------
    name: of its namespace and of its end of the veth pair at the bridge. ip: its address. process:
    ``ray start --block``.
    namespace: whether it has one.
    """

    def __init__(
        self, name: str, ip: str, process: subprocess.Popen[bytes], namespace: bool
    ) -> None:
        self.name = name
        self.ip = ip
        self.process = process
        self.namespace = namespace
        self._known: set[psutil.Process] = set()

    def processes(self) -> list[psutil.Process]:
        """Return the node's processes that are alive, ``ray start`` first; those seen once are
        remembered, if their parent died."""
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self.process.pid)
            self._known |= {first, *first.children(recursive=True)}
        for one in tuple(self._known):
            with contextlib.suppress(psutil.Error):
                self._known |= set(one.children(recursive=True))
        return sorted((one for one in self._known if one.is_running()), key=lambda one: one.pid)

    def actors(self) -> list[psutil.Process]:
        """Return the processes of Motley's actors and tasks on this node."""
        found = []
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                # Ray's own have names without an underscore
                if "".join(one.cmdline()[:1]).startswith("ray::_"):
                    found.append(one)
        return found

    def raylet(self) -> psutil.Process:
        """Return the process that Ray knows as the node."""
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                if one.name() == "raylet":
                    return one
        raise LookupError(f"no raylet on {self.name}")

    def signal(self, number: int) -> None:
        """Send a signal to all of the node's processes."""
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                one.send_signal(number)

    def stop(self) -> None:
        """Stop all processes of the node (SIGSTOP): it is silent, and its connections stay."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stopped node go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes of the node at once, and remove its namespace."""
        self.kill_processes()
        if self.namespace:
            _ip("link", "del", self.name)  # the kernel takes its time to do so with the namespace
            _ip("netns", "del", self.name)

    def kill_processes(self) -> None:
        """Kill all processes of the node at once."""
        while left := self.processes():
            for one in left:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            self.process.poll()
            psutil.wait_procs(left, timeout=0.2)
        self.process.wait()

    def cut(self) -> None:
        """Cut the node off the network without a word to anybody."""
        _ip("link", "set", self.name, "down")

    def join(self) -> None:
        """Undo :meth:`cut`."""
        _ip("link", "set", self.name, "up")

    def sent_bytes(self) -> int:
        """Return the bytes that the node has sent to the bridge so far."""
        return self._count("rx_bytes")

    def received_bytes(self) -> int:
        """Return the bytes that the node has received from the bridge so far."""
        return self._count("tx_bytes")

    def _count(self, name: str) -> int:
        return int(Path(f"/sys/class/net/{self.name}/statistics/{name}").read_text())


class RayNodes:
    """A cluster of a head and any number of further nodes; a context manager that ends all of them.

    Parameters
    ----------
    cores: of the head and of each node that does not say otherwise. namespaces: whether nodes live
    in network namespaces;
    None: where the machine allows them, which :attr:`namespaces` then says.
    """

    def __init__(self, cores: int = 1, namespaces: bool | None = None) -> None:
        self.cores = cores
        self.nodes = []
        self._number = 1
        # a token file that some other run left behind would make the head want tokens of everybody
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        self.folder = Path(tempfile.mkdtemp(prefix="mray-"))
        self.bridge = ""
        self._net = ""
        self.namespaces = _namespaces() if namespaces is None else namespaces
        if not self.namespaces:
            print(
                "network namespaces are refused here: the nodes are on the loopback",
                file=sys.stderr,
            )
        self.port = _free_port()
        try:
            if self.namespaces:
                self._make_bridge()
            self.head = self._start(
                "head",
                self._address(1),
                ["--head", f"--port={self.port}", "--include-dashboard=false"],
                cores,
            )
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """``host:port`` of the cluster."""
        return f"{self._address(1)}:{self.port}"

    def add_node(
        self,
        cores: int | None = None,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Node:
        """Start a node and return it when it has joined. ``options``: of ``ray start``. ``env``:
        added to its environment."""
        self._number += 1
        name = f"{self.bridge or 'loop'}n{self._number}"
        ip = self._address(self._number)
        if self.namespaces:
            _ip("netns", "add", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", name, "master", self.bridge, "up")
            for words in (
                ("link", "set", "lo", "up"),
                ("link", "set", "eth0", "up"),
                ("addr", "add", f"{ip}/24", "dev", "eth0"),
            ):
                _ip("-n", name, *words)
        words = [f"--address={self.address}", *options]
        node = self._start(name, ip, words, self.cores if cores is None else cores, env)
        self.nodes.append(node)
        return node

    def _start(
        self, name: str, ip: str, words: list[str], cores: int, env: dict[str, str] | None = None
    ) -> Node:
        """Start a node; Ray gives it 30 seconds to come up, which a busy machine may miss."""
        for left in (4, 3, 2, 1, 0):
            try:
                return self._started(name, ip, words, cores, env)
            except RuntimeError as late:
                if not left or "timed out" not in str(late):
                    raise
        raise AssertionError

    def _started(
        self, name: str, ip: str, words: list[str], cores: int, env: dict[str, str] | None
    ) -> Node:
        """Start ``ray start`` and wait until its node is there."""
        inside = ["ip", "netns", "exec", name] if self.namespaces and name != "head" else []
        more = (
            [f"--temp-dir={self.folder}", f"--ray-client-server-port={_free_port()}"]
            if name == "head"
            else []
        )
        ports = ["--min-worker-port=0", "--max-worker-port=0"]
        command = [
            *inside,
            RAY,
            "start",
            *words,
            *more,
            *ports,
            f"--node-ip-address={ip}",
            f"--num-cpus={cores}",
            f"--object-store-memory={STORE_BYTES}",
            "--disable-usage-stats",
            "--block",
        ]
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # whatever token lies in this home
                env={"RAY_AUTH_MODE": "disabled", **os.environ, **(env or {})},
            )
        node = Node(name, ip, process, bool(inside))
        limit = time.monotonic() + START_S
        while b"Ray runtime started" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > limit:
                node.kill_processes()
                raise RuntimeError(f"the node {name} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        node.processes()
        return node

    def _address(self, number: int) -> str:
        return f"{self._net}.{number}" if self.namespaces else "127.0.0.1"

    def _make_bridge(self) -> None:
        """Make a bridge whose network no other cluster on this machine uses."""
        for number in range(1, 255):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("link", "add", f"mray{number}", "type", "bridge")
                self.bridge = f"mray{number}"
                self._net = f"10.213.{number}"
                _ip("addr", "add", f"{self._net}.1/24", "dev", self.bridge)
                _ip("link", "set", self.bridge, "up")
                return
        raise RuntimeError("no bridge can be made")

    def close(self) -> None:
        """Kill all nodes and remove what was made for them."""
        nodes = [*self.nodes, *([self.head] if hasattr(self, "head") else [])]
        for node in nodes:
            with contextlib.suppress(subprocess.CalledProcessError):
                node.kill()
        if self.bridge:
            for name in subprocess.run(
                ["ip", "netns", "list"], capture_output=True, text=True, check=True
            ).stdout.split():
                if name.startswith(f"{self.bridge}n"):
                    _ip("netns", "del", name)
            _ip("link", "del", self.bridge)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _namespaces() -> bool:
    """Return whether this process may make network namespaces."""
    name = f"mtry{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])
