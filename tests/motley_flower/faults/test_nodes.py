"""SuperNodes with keys that are killed, paused and started again, on real processes, over TLS."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack

import pytest

import motley
from tests.motley_flower.faults.apps import app
from tests.motley_flower.loopback import Loopback, until
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.faults

ROUNDS = 20
LIMIT_S = 600
"""Of each step of a test; Flower misses a heartbeat after 60 s."""
ALL = "accepted 3 of 3"


def lost(there, log, k):
    """Wait until client k is lost."""
    before = log.read_text().count(f"client {k} is lost")
    until(lambda: log.read_text().count(f"client {k} is lost") > before, LIMIT_S, there.logs)


def back(there, log, k):
    """Wait until all clients are accepted after client k was lost."""
    there.wait_past(log, f"client {k} is lost", ALL, LIMIT_S)


def start_again(there, k):
    """Start a node with its key until Flower takes it: it refuses while it believes that the former
    process lives."""

    log = there.folder / f"node-{k}.log"
    name = f"node-{k}"

    def stays():
        before = log.read_text().count("SuperNode ID")
        there.start_node(k)
        until(
            lambda: (
                there.running[name].poll() is not None
                or log.read_text().count("SuperNode ID") > before
            ),
            120,
            there.logs,
        )
        return there.running[name].poll() is None

    until(stays, LIMIT_S, there.logs)


def killed(there, log):
    there.signal("node-1", signal.SIGKILL)
    lost(there, log, 1)
    start_again(there, 1)
    back(there, log, 1)


def paused(there, log):
    there.signal("node-0", signal.SIGSTOP)
    lost(there, log, 0)
    there.signal("node-0", signal.SIGCONT)
    back(there, log, 0)


def restarted(there, log):
    """In the middle of its work, and at once."""
    asked = (there.folder / "node-2.log").read_text().count("Receiving: train")
    until(
        lambda: (there.folder / "node-2.log").read_text().count("Receiving: train") > asked,
        LIMIT_S,
        there.logs,
    )
    there.signal("node-2", signal.SIGTERM)
    there.running["node-2"].wait(60)
    start_again(there, 2)
    back(there, log, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The server's log and the results of one deployment."""
    folder = tmp_path_factory.mktemp("nodes")
    there = Loopback(folder / "there", 3, secure=True)
    made = app(folder / "app", stop={"rounds": ROUNDS})
    with ExitStack() as stack:
        stack.enter_context(ended_like_interrupted())
        stack.callback(there.stop)
        there.up()
        log = there.run("run", made, folder / "out")
        there.wait_for(log, ALL, LIMIT_S)
        for fault in (killed, paused, restarted):
            fault(there, log)
        there.wait_for(log, "the end", 2 * LIMIT_S)
    assert not nothing_left(there.folder)
    return log.read_text(), motley.load(folder / "out")


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (1, "its node is gone: Flower hears no heartbeat"),
        (0, "its node is gone: Flower hears no heartbeat"),
        (2, "its node (is gone: Flower hears no heartbeat|was started again)"),
    ],
    ids=["killed", "paused", "started again"],
)
def test_its_client_loses_one_round_the_log_says_why_and_it_is_back(run, client, said):
    log, done = run
    rows = [row for row in done.tables["clients"].to_pylist() if row["client"] == client]
    (lost,) = [row for row in rows if row["outcome"] != "accepted"]
    assert lost["outcome"] == "dropped"
    assert re.search(
        rf"client {client} is lost \(dispatch {lost['dispatch']} of round {lost['round']}\): "
        rf"{said}\n",
        log,
    )
    assert any(row["round"] > lost["round"] for row in rows)
    incidents = done.tables["incidents"].to_pylist()
    (reason,) = [
        row["reason"] for row in incidents if (row["client"], row["event"]) == (client, "lost")
    ]
    assert re.fullmatch(said, reason)


def test_nothing_else_is_lost(run):
    _, done = run
    assert done.finished
    assert done.column("rounds", "round").tolist() == list(range(1, ROUNDS + 1))
    assert (done.column("rounds", "accepted") >= 2).all()
    assert done.column("rounds", "dropped").sum() == 3
    rows = done.tables["clients"].to_pylist()
    assert sorted(row["client"] for row in rows if row["outcome"] != "accepted") == [0, 1, 2]
