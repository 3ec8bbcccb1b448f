"""Real processes: a SuperLink and three SuperNodes on this machine, the example as a user runs it.
``make test-flower``."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.motley_flower.conftest import HERE
from tests.motley_flower.started import ended_like_interrupted, listening, nothing_left, started_by
from tests.motley_flower.test_example import in_process

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(
        not HERE, reason="Flower is not installed; make test-flower builds its environment"
    ),
]

RUN = Path(__file__).resolve().parents[2] / "examples" / "flower" / "run"
LIMIT_S = 1500  # of one run; a busy machine takes several times what an idle one does
ROUNDS = 5


class Deployment:
    """The script, under way."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.begun = time.monotonic()
        self.port = free_ports(4)
        self.more = []
        env = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        }
        self.output = (folder / "output.txt").open("w")
        command = [
            RUN,
            "--folder",
            folder,
            "--port",
            str(self.port),
            "--rounds",
            str(ROUNDS),
            *options,
        ]
        self.script = subprocess.Popen(
            command, stdout=self.output, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )

    @property
    def log(self):
        return (self.folder / "output.txt").read_text()

    def wait_for(self, pattern):
        """The match, once the output has it."""
        while not (found := re.search(pattern, self.log)):
            assert self.script.poll() is None, f"ended before {pattern!r}: {self.log[-2000:]}"
            assert time.monotonic() < self.begun + LIMIT_S, (
                f"no {pattern!r} in time: {self.log[-2000:]}"
            )
            time.sleep(0.2)
        return found

    def finish(self):
        code = self.script.wait(self.begun + LIMIT_S - time.monotonic())
        self.output.close()
        print(f"{self.folder.name}: {time.monotonic() - self.begun:.0f} s")
        assert code == 0, self.log[-3000:]

    def table(self):
        """(round, client) -> outcome."""
        lines = (self.folder / "results" / "participation.txt").read_text().splitlines()[1:]
        return {
            (int(line.split()[0]), int(line.split()[1])): line.split()[2]
            for line in lines
            if line.split()[1] != "-"
        }

    def model(self):
        return (self.folder / "results" / "model.txt").read_text()

    def pid(self, name):
        return [
            int(pid)
            for who, pid in map(str.split, (self.folder / "pids").read_text().splitlines())
            if who == name
        ][-1]


def free_ports(n):
    """The first of so many neighbouring ports that nobody uses."""
    for first in range(18100, 30000, 10):
        sockets = []
        try:
            for port in range(first, first + n):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
        except OSError:
            continue
        else:
            return first
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


@pytest.fixture
def deploy(tmp_path):
    going = []

    def begin(name, *options):
        folder = tmp_path / name
        folder.mkdir()
        going.append(Deployment(folder, *options))
        return going[-1]

    with ended_like_interrupted():
        yield begin
    for one in going:
        if one.script.poll() is None:
            os.killpg(one.script.pid, signal.SIGKILL)
            one.script.wait(60)
        for process in started_by(one.folder):
            process.kill()
        for process in one.more:
            process.wait(30)
        one.output.close()


def test_undisturbed_twice_once_behind_certificates_bit_for_bit(deploy, tmp_path):
    plain = deploy("plain")
    plain.finish()
    assert set(plain.table().values()) == {"accepted"}
    assert len(plain.table()) == 2 * ROUNDS
    assert not nothing_left(plain.folder)

    safe = deploy("safe", "--certificates")
    safe.wait_for(r"\[ROUND 1/")
    unregistered(safe)
    safe.finish()
    assert (
        "No SuperNode found with the given public key"
        in (safe.folder / "logs" / "superlink.log").read_text()
    )
    assert not nothing_left(safe.folder)
    assert safe.table() == plain.table()
    assert safe.model() == plain.model()
    in_process(tmp_path / "without a network")
    assert (tmp_path / "without a network" / "model.txt").read_text() == plain.model()
    secrets = [
        safe.folder / "keys" / name
        for name in ("ca.key", "server.key", "node-0", "node-1", "node-2")
    ]
    assert all(key.stat().st_mode & 0o077 == 0 for key in secrets)


def unregistered(safe):
    """A SuperNode whose key nobody registered."""
    keys = safe.folder / "keys"
    log = safe.folder / "logs" / "stranger.log"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", keys / "stranger"],
        check=True,
    )
    node(
        safe,
        9,
        ["--root-certificates", keys / "ca.crt", "--auth-supernode-private-key", keys / "stranger"],
        log,
    )


def node(deployment, k, security, log):
    """A SuperNode beside those of the script, which stops it with the others."""
    command = [
        Path(sys.executable).parent / "flower-supernode",
        *security,
        "--superlink",
        f"127.0.0.1:{deployment.port}",
    ]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(free_ports(1)),
        "--node-config",
        f"partition-id={k} num-partitions=3",
    ]
    env = os.environ | {
        "FLWR_HOME": str(deployment.folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "NO_PROXY": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with log.open("a") as out:
        deployment.more.append(
            subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        )
    with (deployment.folder / "pids").open("a") as pids:
        pids.write(f"node-{k} {deployment.more[-1].pid}\n")


def test_a_client_that_is_killed_and_comes_back(deploy):
    it = deploy("killed")
    asked = it.wait_for(r"round 2: asks \[(\d), (\d)\] of 3")
    victim = int(asked.group(2))
    os.killpg(it.pid(f"node-{victim}"), signal.SIGKILL)
    it.wait_for(r"\[ROUND 4/")
    node(it, victim, ["--insecure"], it.folder / "logs" / "back.log")
    it.finish()
    table = it.table()
    assert table[2, victim] == "dropped"
    assert [outcome for key, outcome in table.items() if key != (2, victim)] == ["accepted"] * (
        2 * ROUNDS - 1
    )
    assert (3, victim) not in table
    assert re.search(r"round 3: asks .* of 2", it.log)
    assert re.search(rf"round {ROUNDS}: asks .* of 3", it.log)
    assert not nothing_left(it.folder)
    assert (it.folder / "results" / "run" / "selector.bin").stat().st_size > 100


def test_a_signal_stops_everything(deploy):
    it = deploy("stopped")
    it.wait_for(r"\[ROUND 1/")
    assert len(started_by(it.folder)) >= 8
    assert listening(it.folder) == {"127.0.0.1"}
    it.script.send_signal(signal.SIGTERM)
    assert it.script.wait(60) == 130
    assert not nothing_left(it.folder)
