"""Client apps that go wrong, on real processes: one fault a round, all of client 2, which is asked
again after each of them."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest

import motley
from motley_flower.deployed.protocol import PROTOCOL
from tests.motley_flower.faults.apps import app
from tests.motley_flower.faults.small_disk import small_disk
from tests.motley_flower.loopback import Loopback
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.faults

PLAN = {
    2: "raises",
    3: "another_round",
    4: "another_id",
    5: "again",
    6: "disk_full",
    7: "another_version",
    8: "dies",
    10: "late",
}
"""Round -> fault."""
ROUNDS = 14
LIMIT_S = 1800
"""Of the whole run."""

SAID = {
    "raises": ("dropped", "its client app raised RuntimeError; the node's own log says more"),
    "another_round": (
        "rejected",
        r"got the answer to another request \(client 2, round 4, dispatch \d+\); expected client "
        r"2, round 3, dispatch \d+",
    ),
    "another_id": (
        "rejected",
        r"got the answer to another request \(client 0, round 4, dispatch \d+\); expected client "
        r"2, round 4, dispatch \d+",
    ),
    "again": (
        "rejected",
        r"got the answer to another request \(client 2, round 1, dispatch \d+\); expected client "
        r"2, round 5, dispatch \d+",
    ),
    "disk_full": (
        "dropped",
        r"its client app raised StoreError: at \w+.py, line \d+, in \w+",
    ),
    "another_version": (
        "dropped",
        f"its client app raised CodecError: the server speaks protocol {PROTOCOL}, and this "
        rf"Motley {motley.__version__} speaks protocol {PROTOCOL + 1}; .*",
    ),
    "dies": ("dropped", "the process of its client app was killed, perhaps for want of memory"),
    "late": ("dropped", "no answer within 160 s"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The plan as far as it is possible here, the server's log and the results of one
    deployment."""
    folder = tmp_path_factory.mktemp("apps")
    there = Loopback(folder / "there", 3)
    with ExitStack() as stack:
        small = stack.enter_context(small_disk(there.folder / "site-2", "256k"))
        plan = {t: fault for t, fault in PLAN.items() if small or fault != "disk_full"}
        made = app(folder / "app", {2: plan}, {"work_s": 160}, stop={"rounds": ROUNDS})
        stack.enter_context(ended_like_interrupted())
        stack.callback(there.stop)
        there.up()
        log = there.run("run", made, folder / "out")
        there.wait_for(log, "the end", LIMIT_S)
    assert not nothing_left(there.folder)
    assert f"client runs {motley.__file__}" in (there.folder / "node-0.log").read_text()
    return plan, log.read_text(), motley.load(folder / "out")


@pytest.mark.parametrize("fault", SAID)
def test_it_costs_its_client_this_round_and_the_log_says_why(run, fault):
    plan, log, done = run
    rounds = [t for t, name in plan.items() if name == fault]
    if not rounds:
        pytest.skip("a small disk takes a mount, which needs root")
    outcome, said = SAID[fault]
    found = [
        row
        for row in done.tables["clients"].to_pylist()
        if (row["round"], row["client"]) == (rounds[0], 2)
    ]
    assert [row["outcome"] for row in found] == [outcome]
    reasons = [
        row["reason"] for row in done.tables["incidents"].to_pylist() if row["round"] == rounds[0]
    ]
    assert len(reasons) == 1
    assert re.fullmatch(said, reasons[0]), reasons[0]
    assert reasons[0] in log


def test_nothing_else_is_lost_and_the_client_is_asked_again_every_time(run):
    plan, _, done = run
    assert done.finished
    assert done.column("rounds", "round").tolist() == list(range(1, ROUNDS + 1))
    rows = done.tables["clients"].to_pylist()
    assert {row["outcome"] for row in rows if row["client"] != 2} == {"accepted"}
    mine = {row["round"]: row["outcome"] for row in rows if row["client"] == 2}
    assert {t for t, outcome in mine.items() if outcome != "accepted"} == set(plan)
    assert max(mine) == ROUNDS  # also after it was late
    assert set(range(1, 11)) <= mine.keys()  # for that it is left alone for 15 s, for nothing else


def test_the_model_is_the_one_without_the_faulty_uploads(run, tmp_path):
    """Up to the late answer, after which it depends on time when client 2 is asked again: the same
    uploads in this process."""
    from tests.motley_flower.client_runtimes import deploy
    from tests.motley_flower.faults.test_in_process import federation

    plan, _, done = run
    before = {t: "raises" for t in plan if t < 10}
    setup, grid = federation(tmp_path, {2: before})
    same = deploy(grid, setup.replace({"stop.rounds": 9}), tmp_path / "same")
    for column in ("accepted", "train_loss", "update_norm", "weight_sum"):
        assert (
            done.column("rounds", column)[:9].tolist() == same.column("rounds", column).tolist()
        ), column
