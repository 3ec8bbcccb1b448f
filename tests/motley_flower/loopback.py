"""A real deployment on this machine: a SuperLink and SuperNodes, each with all its children a group
of processes that can be killed, paused and started again. Ports are free ones, everything that is
started is stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.places import PYTHONPATH

ROOT = Path(__file__).resolve().parents[2]

PROJECT = """
[project]
name = "loopback"
version = "1.0.0"
description = "Motley's own loop"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "motley"

[tool.flwr.app.components]
serverapp = "loopback.server:app"
clientapp = "loopback.client:app"

[tool.flwr.app.config]
out = ""
"""


def free_ports(n):
    with ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in range(n)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def answers(port):
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


def until(what, seconds, otherwise):
    """Wait until ``what()`` holds, and return it; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            pytest.fail(otherwise() if callable(otherwise) else otherwise)
        time.sleep(0.2)
    return found


def write_app(folder, **modules):
    """Write a Flower app whose package ``loopback`` has these modules, by name."""
    (folder / "loopback").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    for name, text in modules.items():
        (folder / "loopback" / f"{name}.py").write_text(text)
    return folder


class Loopback:
    """A SuperLink and SuperNodes in a folder; each leads a group of processes that is stopped with
    it.

    Parameters
    ----------
    folder: for logs and everything else. nodes: how many; node k is client k, and what it keeps
    lies in ``site-k``. secure: TLS, and nodes with keys, so that a node that is started again has
    its id of before. database: whether the SuperLink keeps its state in a file, and finds it again.
    more: node -> what its configuration says besides, e.g. "share=0.5".
    """

    def __init__(self, folder, nodes, secure=False, database=False, more=None):
        self.more = more or {}
        self.folder = folder
        self.nodes = nodes
        self.secure = secure
        self.database = database
        self.running = {}
        self.port, *self.ports = free_ports(1 + nodes + 1)  # one for a node too many
        (folder / "home").mkdir(parents=True)
        keys = folder / "keys"
        trust = f'root-certificates = "{keys}/ca.crt"' if secure else "insecure = true"
        (folder / "home" / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = '
            f'"127.0.0.1:{self.port}"\n{trust}\n'
        )
        if secure:
            subprocess.run(
                [ROOT / "examples" / "flower" / "make-keys", keys, str(nodes)], check=True
            )
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": PYTHONPATH,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    # ------------------------------------------------------------------------------------- start

    def start(self, name, *command):
        if name in self.running:
            self.running[name].wait(30)  # the one of before has ended
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def up(self):
        self.start_link()
        for k in range(self.nodes):
            if self.secure:
                key = self.folder / "keys" / f"node-{k}.pub"
                command = [
                    shutil.which("flwr", path=self.environment["PATH"]),
                    "supernode",
                    "register",
                    key,
                    "here",
                ]
                subprocess.run(
                    command, env=self.environment, check=True, capture_output=True, timeout=120
                )
            self.start_node(k)

    def start_link(self):
        keys = self.folder / "keys"
        ssl = [
            "--ssl-ca-certfile",
            keys / "ca.crt",
            "--ssl-certfile",
            keys / "server.crt",
            "--ssl-keyfile",
            keys / "server.key",
        ]
        options = [*map(str, ssl), "--enable-supernode-auth"] if self.secure else ["--insecure"]
        options += ["--database", str(self.folder / "superlink.db")] if self.database else []
        self.start(
            "superlink",
            "flower-superlink",
            *options,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--disable-runtime-dependency-installation",
        )
        until(lambda: answers(self.port), 120, "the SuperLink does not come up")

    def start_node(self, k, client=None):
        """Start node k, which says that it is client k, or another."""
        keys = self.folder / "keys"
        trust = [
            "--root-certificates",
            f"{keys}/ca.crt",
            "--auth-supernode-private-key",
            f"{keys}/node-{k}",
        ]
        config = (
            f"partition-id={k if client is None else client} num-partitions={self.nodes} "
            f'folder="{self.folder}/site-{k}" {self.more.get(k, "")}'
        )
        self.start(
            f"node-{k}",
            "flower-supernode",
            *(trust if self.secure else ["--insecure"]),
            "--superlink",
            f"127.0.0.1:{self.port}",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.ports[k]),
            "--node-config",
            config,
        )

    def run(self, name, app, out):
        """Submit the app; return the path of its log."""
        self.start(name, "flwr", "run", str(app), "here", "--stream", "-c", f'out="{out}"')
        return self.folder / f"{name}.log"

    def wait_for(self, log, text, seconds):
        """Wait until a log has this text; fail when its process ends without."""
        process = self.running[log.stem]
        until(lambda: text in log.read_text() or process.poll() is not None, seconds, self.logs)
        assert text in log.read_text(), self.logs()

    def wait_past(self, log, marker, text, seconds):
        """Wait until a log has this text after the last place in which it has the marker."""
        until(lambda: text in log.read_text().rpartition(marker)[2], seconds, self.logs)

    def wait_for_end(self, name, seconds):
        """Wait until a process has ended by itself."""
        until(lambda: self.running[name].poll() is not None, seconds, self.logs)

    def logs(self):
        return "\n".join(
            f"== {log.name}\n{log.read_text()[-2500:]}" for log in sorted(self.folder.glob("*.log"))
        )

    # ------------------------------------------------------------------------------------- faults

    def signal(self, name, number):
        """Send a signal to a process and to all that it started."""
        os.killpg(self.running[name].pid, number)

    def kill_server(self):
        """The process of the ServerApp, and it alone."""
        return self.kill_under("superlink", "flwr-serverapp")

    def kill_under(self, name, word):
        """Kill the first descendant of a process whose command holds this word."""
        for process in psutil.Process(self.running[name].pid).children(recursive=True):
            with_it = (
                " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
            )
            if word in with_it:
                process.kill()
                return True
        return False

    # ------------------------------------------------------------------------------------- stop

    def stop(self):
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    continue
            end = time.monotonic() + (0 if number == signal.SIGCONT else 15)
            while (
                any(process.poll() is None for process in self.running.values())
                and time.monotonic() < end
            ):
                time.sleep(0.2)
