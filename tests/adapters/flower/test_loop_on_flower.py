"""Motley's own loop on a real Flower deployment over loopback: SuperLink, three SuperNodes, every message a process of its own.

``make test-flower``; needs the extra ``motley-fl[flower]``. SCAFFOLD with top-k and error feedback, the server killed in the middle
and begun again: the numbers must be the simulator's, bit for bit, so every site remembered what it had to. It takes two to four
minutes, nearly all of it Flower's own starting of processes and waiting. Everything that is started is stopped.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from safetensors.torch import load_file

import motley
from tests.adapters.flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.flower

KEYS = {
    "name": "loopback", "population": 3, "cohort": 2, "stop": {"rounds": 3},
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"}, "split": {"test": "global"},
    "partition": {"name": "dirichlet", "alpha": 0.5}, "local": {"steps": 5, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "algorithm": "scaffold", "compressor": "topk", "feedback": "fixed", "budget": {"name": "constant", "average": 0.1},
    "evaluate": {"every": 1}, "engine": {"name": "sequential", "threads": 1}, "dtype": "float64",
}  # fmt: skip

PROJECT = """
[project]
name = "loopback"
version = "1.0.0"
description = "Motley's own loop"
license = "Apache-2.0"
dependencies = ["motley-fl[flower]"]

[tool.flwr.app]
publisher = "motley"

[tool.flwr.app.components]
serverapp = "loopback.server:app"
clientapp = "loopback.client:app"

[tool.flwr.app.config]
out = ""
"""

SERVER = """
import logging
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from loopback import KEYS
from motley.adapters.flower.deployed.server_app import Limits, run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    limits = Limits(start_s=180, work_s=240, query_s=120, poll_s=0.5)
    run(grid, KEYS, out=context.run_config["out"], limits=limits, told=lambda done: print("step", done.step, flush=True))
    print("the end", flush=True)
"""

CLIENT = """
from flwr.clientapp import ClientApp

from loopback import KEYS
from motley.adapters.flower.deployed.client_app import serve

app = ClientApp()
serve(app, KEYS)
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


class Loopback:
    """A SuperLink and SuperNodes in a folder; each leads a group of processes that is stopped with it."""

    def __init__(self, folder, nodes):
        self.folder, self.running = folder, {}
        self.port, *self.ports = free_ports(1 + nodes)
        (folder / "home").mkdir(parents=True)
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        root = str(Path(motley.__file__).resolve().parents[1])
        self.environment = {
            **os.environ, "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1", "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1", "PYTHONPATH": root,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=self.environment, cwd=self.folder, start_new_session=True
            )

    def up(self, nodes):
        link = f"127.0.0.1:{self.port}"
        self.start(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port),
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        until(lambda: answers(self.port), 120, "the SuperLink does not come up")
        for k in range(nodes):
            config = f'partition-id={k} num-partitions={nodes} folder="{self.folder}/site-{k}"'
            self.start(
                f"node-{k}", "flower-supernode", "--insecure", "--superlink", link, "--host", "127.0.0.1",
                "--port", str(self.ports[k]), "--node-config", config,
            )  # fmt: skip

    def logs(self):
        return "\n".join(f"== {log.name}\n{log.read_text()[-2500:]}" for log in sorted(self.folder.glob("*.log")))

    def run(self, name, app, out):
        self.start(name, "flwr", "run", str(app), "here", "--stream", "-c", f'out="{out}"')
        return self.folder / f"{name}.log"

    def kill_server(self):
        """The process of the ServerApp, and it alone."""
        import psutil

        for process in psutil.Process(self.running["superlink"].pid).children(recursive=True):
            with_it = " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
            if "flwr-serverapp" in with_it:
                process.kill()
                return True
        return False

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    continue
            end = time.monotonic() + 15
            while any(process.poll() is None for process in self.running.values()) and time.monotonic() < end:
                time.sleep(0.2)


def until(what, seconds, otherwise):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            pytest.fail(otherwise() if callable(otherwise) else otherwise)
        time.sleep(0.2)


def in_two_runs(there, app, out):
    """The first one's server is killed after a step."""
    there.up(3)
    first = there.run("first", app, out)
    until(lambda: "step 1" in first.read_text(), 600, there.logs)
    assert there.kill_server(), there.logs()
    until(lambda: there.running["first"].poll() is not None, 120, there.logs)
    second = there.run("second", app, out)
    until(lambda: "the end" in second.read_text() or there.running["second"].poll() is not None, 600, there.logs)
    assert "the end" in second.read_text(), there.logs()
    assert "step 1\n" not in second.read_text()


def test_killed_and_begun_again_it_is_the_simulation_bit_for_bit(tmp_path):
    pytest.importorskip("flwr")
    app = tmp_path / "app"
    (app / "loopback").mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT)
    for name, text in {"__init__": f"KEYS = {KEYS!r}\n", "server": SERVER, "client": CLIENT}.items():
        (app / "loopback" / f"{name}.py").write_text(text)
    out, there = tmp_path / "out", Loopback(tmp_path / "there", 3)

    try:
        with ended_like_interrupted():
            in_two_runs(there, app, out)
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    done = motley.load(out)
    assert done.finished
    assert done.column("rounds", "version").tolist() == [1, 2, 3]
    assert set(done.column("clients", "outcome")) == {"accepted"}
    simulated = motley.run(KEYS, out=tmp_path / "simulated")
    for column in ("client", "dispatch", "loss", "update_norm"):
        assert done.tables["clients"][column].equals(simulated.tables["clients"][column]), column
    real, made = (load_file(run.directory / "model.safetensors") for run in (done, simulated))
    assert all((real[name] == made[name]).all() for name in made)
    kept = sorted(path.name for path in there.folder.glob("site-*/*/*.safetensors"))
    assert kept == [f"client-{k}.safetensors" for k in sorted(set(done.column("clients", "client").tolist()))]
