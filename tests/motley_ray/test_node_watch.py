"""A run or sweep ends with a sentence when Ray's process of its own node stands still."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from motley_ray import actors, node_watch
from motley_ray.node_watch import NodeWatch
from tests.motley_ray.ray_nodes import RayNodes

HERE = importlib.util.find_spec("ray") is not None
EXPERIMENT = """\
population = 12
cohort = 4
stop = { rounds = 5000 }
task = { name = "image", data = "digits", model = "digits_mlp" }
[engine]
threads = THREADS
"""
# fewer seconds than Ray itself takes to give the node up, which is about 60
PROGRAM = """\
import sys
from motley_ray import actors
actors.GIVEN_UP_S = 12.0
from motley.cli import call
sys.exit(call(sys.argv[1:]))
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, server: socket.socket) -> Iterator[list[str]]:
    """What the watch of the server says; it looks often."""
    monkeypatch.setattr(node_watch, "PAUSE_S", 0.01)
    monkeypatch.setattr(node_watch, "_LOOK_S", 0.2)
    monkeypatch.setattr(actors, "GIVEN_UP_S", 1.0)
    said: list[str] = []
    watch = NodeWatch(server.getsockname()[:2], said.append)
    yield said
    watch.end()
    for one in watching():
        one.join()


def test_silence_after_answers_is_told_once(server: socket.socket, told: list[str]) -> None:
    for _ in range(2):
        asked, _ = server.accept()
        assert asked.recv(64).startswith(b"PRI * HTTP/2.0")
        time.sleep(0.3)  # a slow answer is one
        asked.sendall(b"\0")
        asked.close()
    wait_for(told)
    (sentence,) = told
    host, port = server.getsockname()
    assert f"node ({host}:{port}) has not answered for 1 s" in sentence
    assert "ray status" in sentence
    assert "motley run with --resume" in sentence


def test_a_process_that_is_gone_is_watched_and_not_told(
    server: socket.socket, told: list[str]
) -> None:
    """Its connections are refused, which is an answer."""
    asked, _ = server.accept()
    asked.sendall(b"\0")
    server.close()
    asked.close()
    time.sleep(0.3)  # dozens of questions
    assert watching()
    assert not told


def test_a_process_that_never_answered_is_not_watched(
    server: socket.socket, told: list[str]
) -> None:
    """As behind a firewall."""
    asked, _ = server.accept()
    (thread,) = watching()
    thread.join(timeout=20)
    asked.close()
    assert not watching()
    assert not told


def watching() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "motley-ray-watch"]


def wait_for(told: list[str]) -> None:
    limit = time.monotonic() + 20
    while not told and time.monotonic() < limit:
        time.sleep(0.02)


@pytest.mark.ray
@pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs")
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_command_ends_when_the_process_of_its_own_node_is_stopped(
    tmp_path: Path, command: str
) -> None:
    """Nothing wakes the stopped process before the command has ended."""
    file = tmp_path / "exp.toml"
    file.write_text(EXPERIMENT.replace("THREADS", "2" if command == "run" else "1"))
    out = tmp_path / "out"
    with RayNodes() as cluster:
        cluster.add_node()
        more = (
            ["--set", "engine.name=ray", "--set", f"engine.address={cluster.address}"]
            if command == "run"
            else ["--seeds", "0,1,2", "--on-ray", cluster.address]
        )
        words = [command, str(file), "--out", str(out), *more]
        with (tmp_path / "said").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        try:
            limit = time.monotonic() + 120
            while not list(out.rglob("rounds.arrows")) and time.monotonic() < limit:
                time.sleep(0.1)
            time.sleep(6.0)
            cluster.head.raylet().suspend()
            code = process.wait(timeout=100)
        finally:
            process.kill()
            process.wait()
    text = (tmp_path / "said").read_text()
    assert code == 2, text
    assert "has not answered for 12 s, and nothing goes on without it" in text
    assert "Traceback" not in text
