"""Client apps that go wrong, on a grid in this process: what the server says of them, and that
nothing else changes."""

from __future__ import annotations

import re

import pytest

import motley
from motley.experiments.config import Experiment
from motley_flower.deployed.protocol import PROTOCOL
from tests.motley_flower.client_runtimes import answers, columns, deploy, same_model
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.faults.apps import KEYS
from tests.motley_flower.faults.faulty import FaultyNode

SAID = {
    "raises": ("dropped", "its client app raised RuntimeError; the node's own log says more"),
    "another_round": (
        "rejected",
        r"got the answer to another request \(client 2, round 3, dispatch \d\); expected client 2, "
        r"round 2, dispatch \d",
    ),
    "another_id": (
        "rejected",
        r"got the answer to another request \(client 0, round 2, dispatch \d\); expected client 2, "
        r"round 2, dispatch \d",
    ),
    "again": (
        "rejected",
        r"got the answer to another request \(client 2, round 1, dispatch \d\); expected client 2, "
        r"round 2, dispatch \d",
    ),
    "another_version": (
        "dropped",
        f"its client app raised CodecError: the server speaks protocol {PROTOCOL}, and this "
        rf"Motley {motley.__version__} speaks protocol {PROTOCOL + 1}; .*",
    ),
}


def federation(folder, plan):
    """Three clients, each with a folder of its own, that follow a plan."""
    setup = Experiment(**KEYS)
    nodes = {}
    node = FaultyNode(setup, plan)
    for client in range(3):
        site = folder / f"site-{client}"
        site.mkdir(parents=True, exist_ok=True)
        nodes[100 + client] = FakeNode(
            lambda m, c: answers(node, m, c), {"partition-id": client, "folder": str(site)}
        )
    return setup, FakeGrid(nodes)


@pytest.mark.parametrize("fault", sorted(SAID))
def test_an_app_that_goes_wrong_costs_its_client_one_round(fault, tmp_path):
    """The model is the one of clients 0 and 1 alone in round 2, whatever the fault: SCAFFOLD's
    states included."""
    outcome, said = SAID[fault]
    setup, grid = federation(tmp_path, {2: {2: fault}})
    done = deploy(grid, setup, tmp_path / "real")
    clients = columns(done, "clients")
    incidents = done.tables["incidents"].to_pylist()
    mine = clients["outcome"][clients["client"] == 2].tolist()
    assert mine == ["accepted", outcome, *["accepted"] * 4]
    assert (clients["outcome"][clients["client"] != 2] == "accepted").all()
    (incident,) = incidents
    assert (incident["client"], incident["round"]) == (2, 2)
    assert re.fullmatch(said, incident["reason"])
    setup, grid = federation(tmp_path / "other", {2: {2: "raises"}})
    assert same_model(done, deploy(grid, setup, tmp_path / "without"))
