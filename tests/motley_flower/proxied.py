"""A real deployment as an operator has it: ``motley deployment init``, the SuperLink and nginx by
``server/start``, SuperNodes by the kits' ``start``, and an outsider who has nothing but ``ca.crt``.
Every process leads a group that is stopped with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.motley_flower.loopback import free_ports, until
from tests.places import PYTHONPATH

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")


class Proxied:
    """The parties of one deployment in a folder; ``names``: the clients."""

    def __init__(self, folder, names):
        self.folder = folder
        self.there = folder / "there"
        self.port, self.link_port, *self.ports = free_ports(2 + len(names) + 3)
        self.names = list(names)
        self.running = {}
        self.environment = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "nobody"),
        }
        made = self.motley(
            "init",
            self.there,
            "--server",
            f"127.0.0.1:{self.port}",
            "--clients",
            ",".join(names),
            "--superlink-port",
            self.link_port,
        )
        assert made.returncode == 0, made.stdout

    def motley(self, *words):
        return self._done(["motley", "deployment", *map(str, words)], {})

    def flwr(self, home, *words):
        """Flower's own command, with the connections of a folder's config.toml."""
        return self._done(["flwr", *map(str, words)], {"FLWR_HOME": str(home)})

    def _done(self, command, more):
        command[0] = shutil.which(command[0], path=self.environment["PATH"])
        return subprocess.run(
            command,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            cwd=self.folder,
            check=False,
        )

    @property
    def operator(self):
        """The folder of the operator's own connection, to the SuperLink on 127.0.0.1."""
        return self.there / "server" / "flwr"

    def outsider(self, name, port):
        """A folder from which Flower's command reaches the deployment at a port, with its ca.crt
        and nothing else."""
        home = self.folder / name
        home.mkdir()
        shutil.copy(self.there / "clients" / self.names[0] / "ca.crt", home)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "there"\n[superlink.there]\naddress = "127.0.0.1:{port}"\n'
            f'root-certificates = "{home}/ca.crt"\n'
        )
        return home

    # ------------------------------------------------------------------------------------ processes

    def start(self, name, *command, **more):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                list(map(str, command)),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment, **more},
                cwd=self.folder,
                start_new_session=True,
            )
        return self.folder / f"{name}.log"

    def up(self):
        log = self.start("server", self.there / "server" / "start")
        until(lambda: "registered:" in log.read_text(), 120, self.logs)
        until(lambda: self.motley("check", self.there).stdout.startswith("shut"), 60, self.logs)

    def start_client(self, name):
        """By the kit's command."""
        self.start(
            name,
            self.there / "clients" / name / "start",
            PORT=str(self.ports[self.names.index(name)]),
        )

    def start_node(self, name, key, claims, port):
        """A SuperNode with a key that claims to be a client."""
        config = f'partition-id={claims} folder="{self.folder}/{name}"'
        return self.start(
            name,
            "flower-supernode",
            "--superlink",
            f"127.0.0.1:{self.port}",
            "--root-certificates",
            self.there / "server" / "ca.crt",
            "--auth-supernode-private-key",
            key,
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--node-config",
            config,
            FLWR_HOME=str(self.folder / f"home-{name}"),
        )

    def submit(self, name, app, out):
        return self.start(
            name,
            "flwr",
            "run",
            app,
            "here",
            "--stream",
            "-c",
            f'out="{out}"',
            FLWR_HOME=str(self.operator),
        )

    def wait_for(self, log, text, seconds):
        until(
            lambda: text in log.read_text() or self.running[log.stem].poll() is not None,
            seconds,
            self.logs,
        )
        assert text in log.read_text(), self.logs()

    def kill(self, name):
        os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running[name].wait(30)

    def logs(self):
        return "\n".join(
            f"== {log.name}\n{log.read_text()[-2500:]}" for log in sorted(self.folder.glob("*.log"))
        )

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    continue
            end = time.monotonic() + 20
            while (
                any(process.poll() is None for process in self.running.values())
                and time.monotonic() < end
            ):
                time.sleep(0.2)


def new_key(path):
    """A pair of ssh-keygen, as a client makes it; return the path of the private key."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", path], check=True
    )
    return path
