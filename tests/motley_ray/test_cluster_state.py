"""How a run's workers are sized by the nodes of a cluster, and what it says of nodes: on nodes that
a test makes up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from motley.core.errors import ConfigError
from motley_ray import cluster_state
from motley_ray.cluster_state import ClusterNode, ClusterState, divided, in_words


def nodes(*cores, gpus=0):
    return {str(i): ClusterNode(str(i), f"10.0.0.{i + 1}", n, gpus, 1) for i, n in enumerate(cores)}


@pytest.mark.parametrize(
    ("cores", "threads", "workers", "worker_cores", "gpus", "found"),
    [
        ((1, 1), None, None, None, 0, (2, 1)),
        ((1, 1), None, 1, None, 0, (1, 1)),  # not one of two cores, which fits nowhere
        ((4, 4), None, 3, None, 0, (3, 2)),  # of three cores only two fit
        ((4, 4), None, 2, None, 0, (2, 4)),
        ((4, 4), 4, 2, None, 0, (2, 2)),
        ((4, 4), 3, None, None, 0, (3, 1)),
        ((6, 3), None, None, 2, 0, (4, 2)),
        # both say how the work is divided: one worker does the work of eight
        ((1,), None, 8, 1, 0, (8, 1)),
        ((8,), None, None, None, 0.5, (4, 2)),
    ],
)
def test_workers_have_their_cores_on_one_node(cores, threads, workers, worker_cores, gpus, found):
    there = nodes(*cores, gpus=2 if gpus else 0).values()
    assert divided(there, threads, workers, worker_cores, gpus) == found


@pytest.mark.parametrize(
    ("cores", "asked", "gpus", "said"),
    [
        (
            (1, 1),
            (3, None),
            0,
            r"engine\.workers: got 3, and this run may use 2 cores \(10\.0\.0\.1 has 1 core, "
            r"10\.0\.0\.2 has 1 core\); "
            "expected at most 2 workers of 1 core",
        ),
        (
            (1, 1),
            (None, 2),
            0,
            r"engine\.worker_cores: a worker of 2 cores fits on no node of the cluster "
            r"\(10\.0\.0\.1 has 1 core, ",
        ),
        ((2,), (1, 4), 0, "a worker of 4 cores fits on no node"),
        ((2,), (None, None), 1.0, "a worker of 1 core and 1 GPU fits on no node"),
    ],
)
def test_what_fits_nowhere_is_a_sentence(cores, asked, gpus, said):
    with pytest.raises(ConfigError, match=said):
        divided(nodes(*cores).values(), None, *asked, gpus)


@pytest.fixture
def cluster(monkeypatch):
    """A cluster whose nodes the test changes."""
    made = SimpleNamespace(nodes=nodes(1, 1), differ={}, available_resources=lambda: {"CPU": 0.0})
    made.usable = lambda wait_s=0.0: [node for node in made.nodes if node not in made.differ]
    made.left_out = lambda: {
        made.nodes[node].ip: why for node, why in made.differ.items() if node in made.nodes
    }
    monkeypatch.setattr(cluster_state, "alive_nodes", lambda: made.nodes)
    monkeypatch.setattr(cluster_state, "ray_package", lambda: made)
    return made


def test_nodes_that_come_and_go_are_noted_once(cluster):
    state = ClusterState(cluster, 1, 0, None)
    cluster.nodes = nodes(1, 1, 4)
    state.look()
    state.look()
    cluster.nodes = {"0": cluster.nodes["0"], "2": cluster.nodes["2"]}
    state.look()
    assert [event[1:] for event in state.take_events()] == [
        ("connected", "the node 10.0.0.3 has joined the cluster (4 cores)"),
        ("disconnected", "the node 10.0.0.2 is gone from the cluster"),
    ]
    assert state.take_events() == []


def test_a_node_that_joins_and_differs_is_noted_once_and_not_used(cluster):
    state = ClusterState(cluster, 1, 0, None)
    cluster.nodes = nodes(1, 1, 4)
    cluster.differ = {"2": "Motley 0.0.9 in place of 0.1.0"}
    state.look()
    state.look()
    said = (
        "the node 10.0.0.3 has joined the cluster and is not used: Motley 0.0.9 in place of 0.1.0"
    )
    assert [event[1:] for event in state.take_events()] == [("refused", said)]
    assert set(state.nodes) == {"0", "1"}


def test_waiting_is_said_and_ends_with_a_sentence(cluster):
    state = ClusterState(cluster, 1, 0, 5.0)
    state.on_wait(0.0)
    assert state.condition(2) == "0 of 2 workers on 0 nodes"
    state.on_wait(2.0)
    assert "waits for a worker: the cluster has 0 of 2 cores free" in state.condition(2)
    with pytest.raises(
        ConfigError,
        match=r"engine\.wait_s: got 5: no worker of 1 core was ready .* engine\.wait_s = 30",
    ):
        state.on_wait(6.0)
    first, _ = cluster.nodes.values()
    state.arrived(0, first, replaces=False)
    assert state.condition(2) == "1 of 2 workers on 1 node"


def test_the_slowest_node_is_named_where_one_stands_out(cluster):
    state = ClusterState(cluster, 1, 0, None)
    for number, node in enumerate(cluster.nodes.values()):
        state.arrived(number, node, replaces=number == 1)
        state.spent(node, seconds=1.0 + number, steps=10)
    assert (
        state.condition(2) == "2 workers on 2 nodes, slowest node 10.0.0.2 (2.0 times the fastest)"
    )
    assert [event.event for event in state.take_events()] == ["connected"]
    assert in_words(nodes(2, gpus=1).values()) == "10.0.0.1 has 2 cores and 1 GPU"
