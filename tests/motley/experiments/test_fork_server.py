"""Forked workers: they work, are told apart from those that died, and end with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from threading import Timer
from typing import NamedTuple

import psutil
import pytest

from motley.experiments.fork_server import ForkedProcess
from motley.experiments.parallel import prepare_workers, start_at_once, workers_forked
from tests.places import PYTHONPATH

ROOT = Path(__file__).parents[3]
SLEEP = "all sleep from here on"
PROGRAM = f"""
import os
from unittest import mock

from motley.experiments import fork_server
from motley.experiments.parallel import (
    prepare_workers,
    run_jobs,
    start_at_once,
    workers_forked,
)
from tests.motley.experiments.acts import act

waits, opens = os.pipe()
reads, writes = os.pipe()


def environment(threads):
    os.read(waits, 1)
    return {{}}


def run_worker(descriptor, parent, total, threads):
    os.write(descriptor, str(parent).encode())


def adopted():
    with mock.patch.object(fork_server, "worker_environment", environment):
        server = fork_server.ForkServer(run_worker)
        server.start(writes, 1, 1)
        server.close()
        os.write(opens, b"1")
        print("its server's:", int(os.read(reads, 20)) == server._process)


def ends(*ways):
    with workers_forked(safe=True):
        prepare_workers()
        calls = [{{"number": i, "way": way}} for i, way in enumerate(ways)]
        for number, error in sorted(run_jobs(2, act, calls)):
            print(number, type(error).__name__, error)
        print(start_at_once())
    print(start_at_once())


adopted()
print("not twice")
ends("fine", "dies", "raises", "counts")
print("{SLEEP}", flush=True)
ends("sleeps", "sleeps")
"""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": PYTHONPATH,
    "OMP_NUM_THREADS": "2",
    "PYTHONUNBUFFERED": "",  # what waits in a buffer may be written twice
}


class Owner(NamedTuple):
    """A process whose forked workers sleep, and the lines that it printed until then."""

    process: subprocess.Popen[str]
    printed: list[str]


@pytest.fixture(scope="module")
def owner() -> Iterator[Owner]:
    """One for all tests, for a new interpreter that imports torch costs seconds."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        give_up = Timer(300, process.kill)
        give_up.start()
        try:
            assert process.stdout is not None
            printed = list(takewhile(SLEEP.__ne__, map(str.rstrip, process.stdout)))
            give_up.cancel()
            yield Owner(process, printed)
        finally:
            give_up.cancel()
            process.kill()


def test_forked_workers_end_as_fresh_ones_and_compute_on_their_share_of_the_cores(
    owner: Owner,
) -> None:
    assert sorted(owner.printed[1:]) == sorted(
        [
            "not twice",
            "1 {1} 1",
            "0 NoneType None",
            "1 UserError its worker process ended by SIGKILL in the middle of the run; if memory "
            "ran out, run fewer at a time (jobs)",
            "2 ZeroDivisionError number 2",
            "3 NoneType None",
            "True",
            "False",
        ]
    )


def test_a_process_that_has_computed_forks_no_workers() -> None:
    with workers_forked(safe=False):
        prepare_workers()
        assert not start_at_once()


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def test_forked_workers_end_with_their_owner(owner: Owner) -> None:
    process = psutil.Process(owner.process.pid)
    while len(descendants := process.children(recursive=True)) < 3:
        time.sleep(0.01)
    os.kill(owner.process.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 60
    while any(map(_runs, descendants)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_worker_whose_server_went_first_knows_whose_it_was(owner: Owner) -> None:
    """Else it took the process that adopted it for its parent, and outlived the command."""
    assert owner.printed[0] == "its server's: True"


def test_workers_of_a_server_that_is_gone_are_gone() -> None:
    class Gone:
        def code(self, process: int) -> int | None:
            raise BrokenPipeError

    worker = ForkedProcess(Gone(), 1)  # type: ignore[arg-type]
    assert worker.wait() == 1
    worker.kill()  # which sends nothing
