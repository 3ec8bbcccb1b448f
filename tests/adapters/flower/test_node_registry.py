"""Who is behind a node: ids that stay, what is told once, nodes that go and come back, nonsense."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motley.adapters.flower.checks import NodeError
from motley.adapters.flower.messages import Outbox, exchange, flower
from motley.adapters.flower.node_registry import ENROL, NodeRegistry, read_enrolment
from motley.core.errors import ConfigError
from motley.core.records import Outcome
from tests.adapters.flower.fake_grid import FakeGrid, FakeNode, echo


def sites(*clients, **options):
    return {
        1000 + 7 * client: FakeNode(echo, {"partition-id": client, "examples": 10 * client}, **options) for client in clients
    }


def register(grid, **options):
    return NodeRegistry(clock=grid.clock, **options)


def test_clients_are_named_by_their_own_number_whatever_the_node_is_called():
    grid = FakeGrid(sites(2, 0, 1))
    known = register(grid)
    reports = known.refresh(grid)
    assert known.clients.tolist() == [0, 1, 2]
    assert known.node_of == {0: 1000, 1: 1007, 2: 1014}
    assert [(r.id, r.outcome, r.num_examples) for r in reports] == [(k, Outcome.ENROLLED, 10.0 * k) for k in range(3)]


def test_one_question_to_each_node_and_none_to_those_known():
    grid = FakeGrid(sites(0, 1))
    known = register(grid)
    known.refresh(grid)
    assert known.refresh(grid) == []
    assert [m.metadata.message_type for m in grid.sent] == [ENROL, ENROL]
    grid.nodes |= sites(5)
    assert [report.id for report in known.refresh(grid)] == [5]
    assert len(grid.sent) == 3
    assert known.bits_down > 0
    assert known.bits_up > 0


def test_a_lost_node_goes_and_returns_under_a_new_id_without_enrolling_again():
    grid = FakeGrid(sites(0, 1))
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


def test_who_claims_another_connected_client_waits():
    grid = FakeGrid(sites(0, 1))
    known = register(grid)
    known.refresh(grid)
    grid.nodes[3] = FakeNode(echo, {"partition-id": 1})
    known.refresh(grid)
    assert known.node_of[1] == 1007
    assert known.client_at(3) is None
    grid.kill(1007)
    grid.sleep(46)
    known.refresh(grid)
    assert known.node_of[1] == 3  # a restarted site takes its own place


def test_a_silent_node_costs_one_limit_and_then_seldom():
    grid = FakeGrid(sites(0, 1) | {5: FakeNode(lambda message, context: None, {"partition-id": 9})})
    known = register(grid, limit_s=20)
    for _ in range(40):
        known.refresh(grid)
    assert known.clients.tolist() == [0, 1]
    asked = sum(m.metadata.dst_node_id == 5 for m in grid.sent)
    assert asked == 6  # looks 1, 3, 6, 11, 20, 37: waiting doubles up to sixteen
    assert 100 < grid.now_s < 160


def test_an_app_that_does_not_know_the_question_is_told_what_to_add():
    def deaf(message, context):
        raise ValueError("No query function registered with name 'motley_enrol'")

    grid = FakeGrid({5: FakeNode(deaf), 6: FakeNode(deaf)})
    with pytest.raises(ConfigError, match=r'@app.query\("motley_enrol"\)'):
        register(grid).refresh(grid)


@pytest.mark.parametrize(
    "told",
    [{}, {"partition-id": -1}, {"partition-id": 1.5}, {"partition-id": math.nan}, {"partition-id": 2.0**60},
     {"partition-id": [1]}, {"partition-id": 1, "num-examples": -3}, {"partition-id": 1, "num-examples": math.inf}],
)  # fmt: skip
def test_nonsense_about_oneself_is_not_believed(told):
    with pytest.raises(NodeError):
        read_enrolment(told, "partition-id", ())


@pytest.mark.parametrize("counts", [3, [], [1, -1], [0.5], [math.nan], [1] * 100_001])
def test_histograms_are_lists_of_counts(counts):
    told = {"partition-id": 1, "label_histogram": counts}
    with pytest.raises(NodeError):
        read_enrolment(told, "partition-id", {"label_histogram"})


def test_what_the_selector_wants_is_told_or_named():
    told = read_enrolment(
        {"site": 4, "num-examples": 7, "label_histogram": [3, 4]}, "site", {"num_examples", "label_histogram"}
    )
    assert (told.client, told.num_examples, told.signals["num_examples"]) == (4, 7.0, 7.0)
    assert told.signals["label_histogram"].tolist() == [3, 4]
    with pytest.raises(NodeError, match="label_histogram"):
        read_enrolment({"site": 4, "num-examples": 7}, "site", {"label_histogram"})


def test_a_histogram_of_other_classes_than_the_others_is_refused():
    def told(counts):
        def app(message, context):
            words = flower()
            said = {"partition-id": context.node_config["partition-id"], "label_histogram": counts}
            return words.Message(words.RecordDict({"told": words.MetricRecord(said)}), reply_to=message)

        return app

    grid = FakeGrid({1: FakeNode(told([1, 2]), {"partition-id": 0}), 2: FakeNode(told([1, 2, 3]), {"partition-id": 1})})
    known = register(grid, wanted={"label_histogram"})
    (report,) = known.refresh(grid)
    assert known.clients.tolist() == [0]
    np.testing.assert_array_equal(report.signals["label_histogram"], [1, 2])


def message(node, kind="query.x"):
    words = flower()
    return words.Message(words.RecordDict({"c": words.ConfigRecord({"n": node})}), node, kind)


def test_answers_come_in_the_order_of_the_questions_and_a_lost_node_is_named():
    grid = FakeGrid(sites(0, 1, 2))
    grid.nodes[1007].delay_s = 5.0
    grid.events.append((0.5, lambda: grid.kill(1014)))
    answers = exchange(grid, [message(n) for n in (1014, 1007, 1000, 4)], limit_s=100, clock=grid.clock)
    assert [answer.node for answer in answers] == [1014, 1007, 1000, 4]
    assert [bool(answer.error) for answer in answers] == [True, False, False, True]
    assert answers[0].reply.metadata.src_node_id == 1  # which names nobody
    assert answers[1].arrived_s == pytest.approx(5.0, abs=0.3)
    assert answers[2].arrived_s == pytest.approx(1.0, abs=0.3)
    assert 45 < grid.now_s < 47


def test_no_answer_is_waited_for_longer_than_the_limit():
    grid = FakeGrid(sites(0) | {5: FakeNode(lambda message, context: None)})
    answers = exchange(grid, [message(1000), message(5)], limit_s=10, clock=grid.clock)
    assert answers[0].reply is not None
    assert answers[1].reply is None
    assert "10 s" in answers[1].error
    assert 10 <= grid.now_s < 11


def test_a_reply_that_cannot_be_read_costs_its_sender_alone():
    grid = FakeGrid(sites(0, 1))
    grid.nodes[1000].unreadable = True
    answers = exchange(grid, [message(1000), message(1007)], limit_s=10, clock=grid.clock)
    assert answers[0].unreadable
    assert answers[1].reply is not None


def test_a_broken_connection_of_the_server_is_no_reply():
    grid = FakeGrid(sites(0))
    outbox = Outbox(grid, grid.clock)
    outbox.send([message(1000)])
    grid.pull_messages = lambda ids: (_ for _ in ()).throw(ConnectionError("refused"))
    with pytest.raises(ConnectionError):
        outbox.collect()


def test_who_answers_twice_or_unasked_is_not_heard():
    grid = FakeGrid(sites(0))
    outbox = Outbox(grid, grid.clock)
    (answer,) = outbox.send([message(1000)])
    grid.sleep(2)
    (reply,) = grid.pull_messages(["message-0"])
    grid.pull_messages = lambda ids: [reply, reply]
    assert outbox.collect() == [answer]
    assert outbox.collect() == []
