"""The registry of nodes and clients: stable ids, enrolment once, nodes that disconnect and return,
answers that cannot be used."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley_flower.checked_numbers import NodeError
from motley_flower.messages import flower
from motley_flower.node_registry import ENROL, NodeRegistry, read_enrolment
from tests.motley_flower.fake_grid import FakeGrid, FakeNode, echo, echo_nodes


def register(grid, **options):
    return NodeRegistry(clock=grid.clock, **options)


def test_clients_have_their_own_ids_whatever_the_nodes_ids():
    grid = FakeGrid(echo_nodes(2, 0, 1))
    known = register(grid)
    reports = known.refresh(grid)
    assert known.clients.tolist() == [0, 1, 2]
    assert known.node_of == {0: 1000, 1: 1007, 2: 1014}
    assert [(r.id, r.outcome, r.num_examples) for r in reports] == [
        (k, Outcome.ENROLLED, 10.0 * k) for k in range(3)
    ]


def test_each_node_is_asked_once():
    grid = FakeGrid(echo_nodes(0, 1))
    known = register(grid)
    known.refresh(grid)
    assert known.refresh(grid) == []
    assert [m.metadata.message_type for m in grid.sent] == [ENROL, ENROL]
    grid.nodes |= echo_nodes(5)
    assert [report.id for report in known.refresh(grid)] == [5]
    assert len(grid.sent) == 3
    assert known.bits_down > 0
    assert known.bits_up > 0


def test_a_client_that_returns_under_a_new_node_id_does_not_enrol_again():
    grid = FakeGrid(echo_nodes(0, 1))
    known = register(grid)
    known.refresh(grid)
    grid.kill(1000)
    known.refresh(grid)
    assert known.clients.tolist() == [0, 1]  # not yet missed
    grid.sleep(46)
    known.refresh(grid)
    assert known.clients.tolist() == [1]
    assert known.client_at(1000) is None
    grid.revive(1000, new_id=4)
    assert known.refresh(grid) == []  # enrolled once
    assert known.node_of == {0: 4, 1: 1007}


def test_a_node_that_claims_a_connected_client_waits_until_its_node_is_gone():
    grid = FakeGrid(echo_nodes(0, 1))
    known = register(grid)
    known.refresh(grid)
    grid.nodes[3] = FakeNode(echo, {"partition-id": 1})
    known.refresh(grid)
    assert known.node_of[1] == 1007
    assert known.client_at(3) is None
    grid.kill(1007)
    grid.sleep(46)
    known.refresh(grid)
    assert known.node_of[1] == 3  # a restarted client takes its own place


def test_a_node_that_was_started_again_is_asked_anew_and_may_be_another_client():
    """Under its key a node keeps its id, whatever its configuration says now."""
    grid = FakeGrid(echo_nodes(0, 1))
    known = register(grid)
    known.refresh(grid)
    assert known.restarted == frozenset()
    grid.sleep(5.0)
    grid.restart(1007, {"partition-id": 4})
    known.refresh(grid)
    assert known.restarted == {1007}
    assert known.node_of == {0: 1000, 4: 1007}
    known.refresh(grid)
    assert known.restarted == frozenset()


def test_a_silent_node_is_asked_less_and_less_often():
    grid = FakeGrid(
        echo_nodes(0, 1) | {5: FakeNode(lambda message, context: None, {"partition-id": 9})}
    )
    known = register(grid, limit_s=20)
    for _ in range(40):
        known.refresh(grid)
    assert known.clients.tolist() == [0, 1]
    asked = sum(m.metadata.dst_node_id == 5 for m in grid.sent)
    assert asked == 6  # looks 1, 3, 6, 11, 20, 37: waiting doubles up to sixteen
    assert 100 < grid.now_s < 160


def test_nodes_that_are_only_slow_are_asked_again_and_no_app_is_blamed():
    """As when Ray starts its workers: the first query expires at all nodes; an expired message is
    an error reply of Flower's."""
    grid = FakeGrid(echo_nodes(0, 1, delay_s=500.0))
    known = register(grid, limit_s=20)
    assert known.refresh(grid) == []
    for node in grid.nodes.values():
        node.delay_s = 1.0
    assert known.refresh(grid) == []  # left alone once
    assert [report.id for report in known.refresh(grid)] == [0, 1]


def test_a_client_app_without_the_query_is_an_error_that_says_what_to_add():
    def deaf(message, context):
        raise ValueError("No query function registered with name 'motley_enrol'")

    grid = FakeGrid({5: FakeNode(deaf), 6: FakeNode(deaf)})
    with pytest.raises(ConfigError, match=r'@app.query\("motley_enrol"\)'):
        register(grid).refresh(grid)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"partition-id": -1},
        {"partition-id": 1.5},
        {"partition-id": math.nan},
        {"partition-id": 2.0**60},
        {"partition-id": [1]},
        {"partition-id": 1, "num-examples": -3},
        {"partition-id": 1, "num-examples": math.inf},
    ],
)
def test_an_enrolment_of_impossible_numbers_is_refused(told):
    with pytest.raises(NodeError):
        read_enrolment(told, "partition-id", ())


@pytest.mark.parametrize("counts", [3, [], [1, -1], [0.5], [math.nan], [1] * 100_001])
def test_histograms_are_lists_of_counts(counts):
    told = {"partition-id": 1, "label_histogram": counts}
    with pytest.raises(NodeError):
        read_enrolment(told, "partition-id", {"label_histogram"})


def test_signals_that_the_selector_wants_are_read_or_named_in_the_error():
    enrolment = read_enrolment(
        {"site": 4, "num-examples": 7, "label_histogram": [3, 4]},
        "site",
        {"num_examples", "label_histogram"},
    )
    assert (enrolment.client, enrolment.num_examples, enrolment.signals["num_examples"]) == (
        4,
        7.0,
        7.0,
    )
    assert enrolment.signals["label_histogram"].tolist() == [3, 4]
    with pytest.raises(NodeError, match="label_histogram"):
        read_enrolment({"site": 4, "num-examples": 7}, "site", {"label_histogram"})


def test_a_histogram_of_other_classes_than_the_others_is_refused():
    def told(counts):
        def app(message, context):
            words = flower()
            said = {"partition-id": context.node_config["partition-id"], "label_histogram": counts}
            return words.Message(
                words.RecordDict({"told": words.MetricRecord(said)}), reply_to=message
            )

        return app

    counts = ([1, 2, 3], [1, 2], [3, 4])
    grid = FakeGrid({1 + k: FakeNode(told(counts[k]), {"partition-id": k}) for k in range(3)})
    known = register(grid, wanted={"label_histogram"})
    reports = known.refresh(grid)
    assert known.clients.tolist() == [1, 2]
    np.testing.assert_array_equal(
        [report.signals["label_histogram"] for report in reports], [[1, 2], [3, 4]]
    )


def test_a_registry_that_does_not_wait_takes_answers_in_later():
    grid = FakeGrid(echo_nodes(0, 1))
    grid.nodes[1007].delay_s = 3.0
    known = register(grid, wait=False)
    assert known.refresh(grid) == []
    assert grid.now_s == 0
    grid.sleep(1)
    assert [report.id for report in known.refresh(grid)] == [0]
    grid.sleep(2)
    assert [report.id for report in known.refresh(grid)] == [1]
    assert len(grid.sent) == 2  # a node is not asked again while its answer may come


def test_a_registry_that_does_not_wait_gives_a_question_up_and_asks_again():
    grid = FakeGrid(echo_nodes(0) | {5: FakeNode(lambda message, context: None)})
    known = register(grid, wait=False, limit_s=20)
    for _ in range(30):
        known.refresh(grid)
        grid.sleep(1)
    assert known.clients.tolist() == [0]
    assert [message.metadata.dst_node_id for message in grid.sent] == [5, 1000, 5]


def test_a_registry_that_does_not_wait_logs_an_app_without_the_query(caplog):
    def deaf(message, context):
        raise ValueError("No query function registered with name 'motley_enrol'")

    grid = FakeGrid({5: FakeNode(deaf)})
    known = register(grid, wait=False)
    known.refresh(grid)
    grid.sleep(1)
    assert known.refresh(grid) == []
    assert '@app.query("motley_enrol")' in caplog.text
