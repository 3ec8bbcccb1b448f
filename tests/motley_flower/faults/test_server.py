"""Faults of the server's side, on real processes. After each the app is submitted again with the
same folder, and goes on after the last finished round; in the end the run is the simulation's, bit
for bit."""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack

import pytest
from safetensors.torch import load_file

import motley
from tests.motley_flower.faults.apps import KEYS, app
from tests.motley_flower.faults.faulty import full
from tests.motley_flower.faults.small_disk import small_disk
from tests.motley_flower.loopback import Loopback, until
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.faults

ROUNDS = 10
LIMIT_S = 600
"""Of each step of a test."""
CHANGES = {"cohort": 2, "stop": {"rounds": ROUNDS}}

SAID = {
    "disk": r"cannot write .*: No space left on device; make room or choose another folder; what "
    r"is finished is kept",
    "app killed": "",  # nobody is left to say it
    "link hangs": r"the SuperLink did not answer within 60 s; start it again with the --database "
    r"of before, and then this app",
    "link killed": r"the SuperLink did not answer within 60 s; start it again|its process was told "
    r"to end: somebody",
}
"""What stands in ``stopped.txt``, or in the log where the disk is full; of a SuperLink that was
killed Flower tells the app after a time of its own, which may be longer than the limit."""


class Submissions:
    """The app, submitted again and again into one folder.

    Attributes
    ----------
    logs: of every submission, by name. said: what it left in the folder on why it stopped. tables:
    its ``rounds`` and ``clients``.
    """

    def __init__(self, there, made, out):
        self.there = there
        self.made = made
        self.out = out
        self.stopped = out / "stopped.txt"
        self.logs = {}
        self.said = {}
        self.tables = {}

    def begin(self, name, step):
        """Submit the app, and wait until it has made this step."""
        log = self.there.run(name, self.made, self.out)
        self.there.wait_for(log, f"step {step}.", LIMIT_S)

    def ended(self, name):
        """Wait until the submission is over, and keep what it left."""
        self.there.wait_for_end(name, LIMIT_S)
        self.logs[name] = (self.there.folder / f"{name}.log").read_text()
        self.said[name] = self.stopped.read_text() if self.stopped.exists() else ""
        found = motley.load(self.out)
        self.tables[name] = {
            table: found.tables[table].to_pylist() for table in ("rounds", "clients")
        }


def all_faults(it, small):
    """Let one fault after another happen to the server."""
    there = it.there
    if small:
        it.begin("disk", 1)
        with full(it.out.parent):
            it.ended("disk")
    it.begin("app killed", 3)
    assert there.kill_server()
    it.ended("app killed")
    it.begin("link hangs", 5)
    os.kill(there.running["superlink"].pid, signal.SIGSTOP)
    until(it.stopped.exists, LIMIT_S, there.logs)
    os.kill(there.running["superlink"].pid, signal.SIGCONT)
    it.ended("link hangs")
    it.begin("link killed", 7)
    os.kill(there.running["superlink"].pid, signal.SIGKILL)
    until(it.stopped.exists, LIMIT_S, there.logs)
    it.ended("link killed")
    there.running["superlink"].wait(30)
    there.start_link()
    it.begin("last", ROUNDS)
    it.ended("last")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The submissions, and the results."""
    folder = tmp_path_factory.mktemp("server")
    there = Loopback(folder / "there", 3, database=True)
    with ExitStack() as stack:
        small = stack.enter_context(small_disk(folder / "disk", "80m"))
        it = Submissions(there, app(folder / "app", **CHANGES), folder / "disk" / "out")
        stack.enter_context(ended_like_interrupted())
        stack.callback(there.stop)
        there.up()
        all_faults(it, small)
        done = motley.load(it.out)
        simulated = motley.run({**KEYS, **CHANGES}, out=folder / "simulated")
        models = [load_file(one.directory / "model.safetensors") for one in (done, simulated)]
        tables = [
            {name: one.tables[name].to_pylist() for name in ("rounds", "clients")}
            for one in (done, simulated)
        ]
    assert not nothing_left(there.folder)
    return it, tables, models


@pytest.mark.parametrize("fault", SAID)
def test_the_submission_ends_and_what_was_finished_stays(run, fault):
    it, (done, _), _ = run
    if fault not in it.tables:
        pytest.skip("a small disk takes a mount, which needs root")
    said = it.logs[fault] if fault == "disk" else it.said[fault]
    assert re.search(SAID[fault], said), it.logs[fault]
    assert ("submitted again with out" in said) == bool(SAID[fault])
    before = it.tables[fault]
    assert before["rounds"]
    for table, rows in before.items():
        assert done[table][: len(rows)] == rows, table


def test_in_the_end_it_is_the_simulation_bit_for_bit(run):
    it, (done, simulated), (model, same) = run
    assert "the end" in it.logs["last"]
    assert not it.said["last"]
    assert [row["round"] for row in done["rounds"]] == list(range(1, ROUNDS + 1))
    assert {row["outcome"] for row in done["clients"]} == {"accepted"}
    for column in ("client", "dispatch", "loss", "update_norm"):
        assert [row[column] for row in done["clients"]] == [
            row[column] for row in simulated["clients"]
        ], column
    assert all((model[name] == same[name]).all() for name in same)
