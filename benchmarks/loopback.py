"""What a deployment puts on the wire beside what the ledger counts: one SuperLink and two
SuperNodes on this machine.

    python benchmarks/loopback.py [--rounds 4] [--folder DIR]

Needs Flower (``pip install ./packages/motley ./packages/motley-data ./packages/motley-flower``).
For each of three models a deployment is run to its end. Every SuperNode reaches the SuperLink
through a proxy of this script that counts the bytes of both directions, which is what would leave a
client's machine (without the headers of TCP and IP). Where the kernel allows it (Linux,
``unshare``), all of it runs in a network of its own, whose loopback interface counts everything
that Flower's processes tell each other.
Writes ``benchmarks/measured/loopback.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "measured" / "loopback.json"
ALONE = "MOTLEY_LOOPBACK_ALONE"
"""Set in the process that has a loopback interface of its own."""
NODES = 2
IDLE_S = 45.0
"""How long the connected, idle nodes are listened to."""
HIDDEN = ((32,), (1024,), (1024, 1024))
"""Widths of the models: 10 kB, 0.3 MB and 4.5 MB of parameters."""

PROJECT = """
[project]
name = "counted"
version = "1.0.0"
description = "A deployment whose bytes are counted"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "motley"

[tool.flwr.app.components]
serverapp = "counted.server:app"
clientapp = "counted.client:app"

[tool.flwr.app.config]
out = ""
"""
SERVER = """
import time
from pathlib import Path

from flwr.serverapp import ServerApp

from counted import KEYS
from motley_flower import Limits, run

app = ServerApp()


@app.main()
def main(grid, context):
    out = Path(context.run_config["out"])

    def told(done):
        with out.with_suffix(".steps").open("a") as file:
            file.write(f"{done.round} {time.time()}\\n")

    run(grid, KEYS, out=out, limits=Limits(start_s=300, work_s=600, query_s=300), told=told)
"""
CLIENT = """
from flwr.clientapp import ClientApp

from counted import KEYS
from motley_flower import serve

app = ClientApp()
serve(app, KEYS)
"""


def keys(hidden: Sequence[int], rounds: int) -> dict[str, Any]:
    """Return the experiment: both clients train the model in every round."""
    return {
        "name": "counted",
        "population": NODES,
        "cohort": NODES,
        "stop": {"rounds": rounds},
        "split": {"test": "global"},
        "task": {
            "name": "image",
            "data": "digits",
            "model": {"name": "digits_mlp", "hidden": list(hidden)},
        },
        "local": {"steps": 2, "batch_size": 16},
        "engine": {"name": "sequential", "threads": 1},
    }


# ------------------------------------------------------------------------------------- counting


class Proxy:
    """Passes TCP connections on to a port of this machine, and counts the bytes.

    Parameters
    ----------
    to: the port. Its own is ``port``. ``up``, ``down``: bytes towards that port, and from it.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self.up = 0
        self.down = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self.server.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                for source, sink, name in ((near, far, "up"), (far, near, "down")):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=self._pump, args=(source, sink, name), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        """Copy bytes until either side ends; only this thread writes a connection's count of a
        direction."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with _COUNTING:
                    setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


_COUNTING = threading.Lock()


class Counts:
    """Samples what the proxies, and the loopback interface, have counted, five times a second."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self.proxies = proxies
        self.over = threading.Event()
        self.rows = [(time.time(), *self._now())]
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()

    def _now(self) -> tuple[int, int, int]:
        return sum(p.down for p in self.proxies), sum(p.up for p in self.proxies), loopback_bytes()

    def _sample(self) -> None:
        while not self.over.wait(0.2):
            self.rows.append((time.time(), *self._now()))

    def between(self, begin: float, end: float) -> list[int]:
        """Return (down, up, loopback) between two moments."""
        first, last = (
            max((row for row in self.rows if row[0] <= at), default=self.rows[0])
            for at in (begin, end)
        )
        return [int(b - a) for a, b in zip(first[1:], last[1:], strict=True)]


def loopback_bytes() -> int:
    """Return the bytes received by the loopback interface since it is up; 0 where nothing says
    so."""
    path = Path("/proc/net/dev")
    lines = path.read_text().splitlines() if path.exists() else []
    return next(
        (int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:")), 0
    )


# ----------------------------------------------------------------------------------- real processes


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens at."""
    with ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in range(n)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


def until(what: Callable[[], object], seconds: float, otherwise: str) -> None:
    """Wait until something holds.

    Raises
    ------
    SystemExit: it never did.
    """
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise SystemExit(otherwise)
        time.sleep(0.2)


def answers(port: int) -> bool:
    """Return whether somebody listens at a port."""
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(folder: Path, poll_s: float = 0.1) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Yield a function that starts a process with a log; all of them, and their children, are
    stopped at the end. ``poll_s``: seconds between two looks of Flower's for new work."""
    environment = {
        **os.environ,
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(poll_s),
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sorted(ROOT.glob("packages/*/src"))])),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("ab") as log:
            options: dict[str, Any] = {"env": environment, "cwd": folder, "start_new_session": True}
            running.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
            )
        return running[-1]

    try:
        yield start
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            end = time.monotonic() + 15
            while any(process.poll() is None for process in running) and time.monotonic() < end:
                time.sleep(0.2)


def write_app(folder: Path, experiment: dict[str, Any], port: int) -> None:
    """Write Flower's configuration and the app."""
    (folder / "app" / "counted").mkdir(parents=True)
    (folder / "home").mkdir()
    link = (
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = '
        f'"127.0.0.1:{port}"\ninsecure = true\n'
    )
    (folder / "home" / "config.toml").write_text(link)
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    for name, text in {
        "__init__": f"KEYS = {experiment!r}\n",
        "server": SERVER,
        "client": CLIENT,
    }.items():
        (folder / "app" / "counted" / f"{name}.py").write_text(text)


def deployed(folder: Path, experiment: dict[str, Any]) -> tuple[Counts, float, float]:
    """Run a deployment to its end; return what was counted, and the moments between which the nodes
    were idle."""
    link, *ports = free_ports(1 + NODES)
    write_app(folder, experiment, link)
    proxies = [Proxy(link) for _ in range(NODES)]
    counts = Counts(proxies)
    out = folder / "run"
    with started(folder) as start:
        options = ("--insecure", "--host", "127.0.0.1")
        start(
            "superlink",
            "flower-superlink",
            *options,
            "--port",
            str(link),
            "--disable-runtime-dependency-installation",
        )
        until(lambda: answers(link), 120, "the SuperLink does not come up")
        for k, (port, proxy) in enumerate(zip(ports, proxies, strict=True)):
            config = f'partition-id={k} folder="{folder}/site-{k}"'
            there = (
                "--superlink",
                f"127.0.0.1:{proxy.port}",
                "--port",
                str(port),
                "--node-config",
                config,
            )
            start(f"node-{k}", "flower-supernode", *options, *there)
        until(lambda: all(proxy.down for proxy in proxies), 120, "the SuperNodes do not connect")
        time.sleep(10)
        begin = time.time()
        time.sleep(IDLE_S)
        end = time.time()
        app = start(
            "run", "flwr", "run", str(folder / "app"), "here", "--stream", "-c", f'out="{out}"'
        )
        until(lambda: app.poll() is not None, 1200, "the run does not end")
        time.sleep(1)
    counts.over.set()
    if not (out / "rounds.parquet").exists():
        raise SystemExit((folder / "run.log").read_text()[-3000:])
    return counts, begin, end


# ------------------------------------------------------------------------------------- figures


def measured(folder: Path, hidden: Sequence[int], rounds: int) -> dict[str, Any]:
    """Return the bytes of each round but the first, whose start is not marked: of the ledger, at
    the proxies, on the loopback."""
    import motley

    counts, begin, end = deployed(folder, keys(hidden, rounds))
    done = motley.load(folder / "run")
    idle = [count / (end - begin) for count in counts.between(begin, end)]
    steps = [line.split() for line in (folder / "run.steps").read_text().splitlines()]
    table = done.tables["rounds"].to_pylist()
    assert [int(number) for number, _ in steps] == [row["round"] for row in table]
    rows = []
    for before, after, row in zip(steps, steps[1:], table[1:], strict=False):
        down, up, interface = counts.between(float(before[1]), float(after[1]))
        took = round(float(after[1]) - float(before[1]), 1)
        ledger = {"ledger_down": int(row["down_bits"]) // 8, "ledger_up": int(row["up_bits"]) // 8}
        counted = {"counted_down": down, "counted_up": up, "loopback": interface - down - up}
        rows.append({"round": row["round"], "seconds": took, **ledger, **counted})
    model = (folder / "run" / "model.safetensors").stat().st_size
    names = ("down", "up", "loopback")
    rates = dict(
        zip(
            names,
            (round(value, 1) for value in (idle[0], idle[1], idle[2] - idle[0] - idle[1])),
            strict=True,
        )
    )
    return {
        "parameters": done.meta["parameters"],
        "model_file": model,
        "idle_bytes_per_s": rates,
        "rounds": rows,
    }


def begin_alone() -> None:
    """Begin this process anew with a loopback interface of its own, where that is possible and not
    done already."""
    tools = [shutil.which(name) for name in ("unshare", "ip")]
    if ALONE in os.environ or not all(tools):
        return
    if (
        subprocess.run(["unshare", "-rn", "ip", "link", "set", "lo", "up"], check=False).returncode
        == 0
    ):
        os.environ[ALONE] = "yes"
        command = (
            "unshare",
            "-rn",
            "sh",
            "-c",
            'ip link set lo up && exec "$@"',
            "sh",
            sys.executable,
            *sys.argv,
        )
        os.execvp(command[0], command)


def main() -> None:
    """Measure all models and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=4, help="of each deployment; the first is not counted"
    )
    parser.add_argument("--folder", type=Path, help="for logs and results, kept")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    begin_alone()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="motley-loopback."))
    models = []
    for hidden in HIDDEN:
        models.append(measured(folder / "-".join(map(str, hidden)), hidden, options.rounds))
        sys.stdout.write(json.dumps(models[-1]) + "\n")
        sys.stdout.flush()
    about = {
        "flwr": metadata.version("flwr"),
        "python": platform.python_version(),
        "nodes": NODES,
        "own_loopback": ALONE in os.environ,
    }
    options.out.write_text(
        json.dumps({**about, "models": models}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
