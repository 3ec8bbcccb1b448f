"""A client that misses a deadline, on real processes: it is late once, its upload is counted when
it comes, and it is asked again. While the server waits for it a second node says that it is client
1."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest

import motley
from tests.motley_flower.faults.apps import app
from tests.motley_flower.faults.faulty import SLOW_S
from tests.motley_flower.loopback import Loopback
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.faults

ROUNDS = 8
DEADLINE_S = 120.0
LIMIT_S = 1500


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The results of one deployment, the server's log, and that of the node too many."""
    folder = tmp_path_factory.mktemp("deadline")
    there = Loopback(folder / "there", 3)
    keys = {"stop": {"rounds": ROUNDS}, "synchrony": {"name": "deadline", "seconds": DEADLINE_S}}
    made = app(folder / "app", {2: {2: "slow"}}, {"work_s": 400}, **keys)
    with ExitStack() as stack:
        stack.enter_context(ended_like_interrupted())
        stack.callback(there.stop)
        there.up()
        log = there.run("run", made, folder / "out")
        there.wait_for(log, "step 1.", LIMIT_S)
        there.start_node(3, client=1)
        there.wait_for(log, "the end", LIMIT_S)
    assert not nothing_left(there.folder)
    return motley.load(folder / "out"), log.read_text(), (there.folder / "node-3.log").read_text()


def test_a_client_that_misses_a_deadline_is_late_once_and_asked_again(run):
    done, _, _ = run
    assert done.column("rounds", "round").tolist() == list(range(1, ROUNDS + 1))
    rows = done.tables["clients"].to_pylist()
    outcomes = {(row["round"], row["client"]): row["outcome"] for row in rows}
    assert [outcomes[2, client] for client in range(3)] == ["accepted", "accepted", "late"]
    assert outcomes[ROUNDS, 2] == "accepted"
    assert all(outcome == "accepted" for key, outcome in outcomes.items() if key != (2, 2))
    incidents = {row["event"]: row for row in done.tables["incidents"].to_pylist()}
    assert {event: row["client"] for event, row in incidents.items()} == {
        "waits": 1,  # the second node that says it is this client
        "answered late": 2,
    }
    assert SLOW_S <= float(incidents["answered late"]["reason"].split()[4]) < 400
    taken = done.column("rounds", "time_s") - done.column("rounds", "start_s")
    assert DEADLINE_S <= taken[1] < DEADLINE_S + 10


def test_a_second_node_of_a_connected_client_waits_and_gets_no_order(run):
    _, log, second = run
    assert re.search(
        r"node (\d+) \(SHA256:\S+\) claims client 1, which node (?!\1)\d+ \(SHA256:\S+\), still "
        r"connected, is; it waits",
        log,
    )
    assert "Receiving: query.motley_enrol" in second
    assert "Receiving: train" not in second
