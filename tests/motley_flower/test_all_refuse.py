"""All clients fail alike: the run ends in a sentence with the reason instead of asking them for
ever."""

from __future__ import annotations

import pytest

from motley.core.errors import ConfigError
from tests.motley_flower.apps import nodes, outcomes, run, sgd
from tests.motley_flower.client_runtimes import deploy, experiment, federation
from tests.motley_flower.fake_grid import FakeGrid


def raises(message, context):
    """A strategy's client that cannot train."""
    if message.metadata.message_type == "train":
        raise RuntimeError(f"client {context.node_config['partition-id']} has no samples")
    return sgd(message, context)


def test_under_a_strategy_when_the_apps_of_all_connected_clients_raise():
    """Three clients, two a round: each has failed once after round 2 at the latest, or, left out by
    chance, a little later."""
    with pytest.raises(
        ConfigError,
        match=r"no client's reply can be used: its client app raised RuntimeError; the node's own "
        r"log says more",
    ):
        run(FakeGrid(nodes(0, 1, 2, app=raises)), rounds=30)


def test_one_client_that_works_keeps_the_run_going():
    coordinator, _ = run(FakeGrid(nodes(0, 1, app=raises) | nodes(2)), m=3, rounds=4)
    assert outcomes(coordinator, 4) == {0: "dropped", 1: "dropped", 2: "accepted"}


def broken(grid, kind):
    """The grid, whose clients' apps raise at messages of a kind."""
    for node in grid.nodes.values():

        def app(message, context, good=node.app):
            if message.metadata.message_type == kind:
                raise RuntimeError("no samples")
            return good(message, context)

        node.app = app
    return grid


def test_under_the_loop_when_they_raise_at_work(tmp_path):
    setup = experiment(population=3, cohort=2)
    with pytest.raises(
        ConfigError,
        match=r"the apps of 3 clients fail alike, client \d: its client app raised RuntimeError; "
        r"the node's own log says more",
    ):
        deploy(broken(federation(setup, tmp_path), "train.motley"), setup, tmp_path / "real")
    assert "fail alike" in (tmp_path / "real" / "stopped.txt").read_text()


def test_under_the_loop_when_they_raise_at_the_first_question(tmp_path):
    setup = experiment(population=3, cohort=2)
    grid = broken(federation(setup, tmp_path), "query.motley")
    with pytest.raises(
        ConfigError,
        match=r"all 3 clients refuse \(client \d answered: its client app raised RuntimeError",
    ):
        deploy(grid, setup, tmp_path / "real")
    assert grid.now_s < 20  # of 30 s that it would wait for clients that may still come


def test_under_the_loop_when_no_node_says_which_client_it_is(tmp_path):
    setup = experiment(population=3, cohort=2)
    grid = broken(federation(setup, tmp_path), "query.motley_enrol")
    with pytest.raises(
        ConfigError,
        match=r"no client came within 30 s \(all 3 nodes answered .*the first error: its client "
        r"app raised RuntimeError; the",
    ):
        deploy(grid, setup, tmp_path / "real")
