"""The client app's answers, read by the server."""

from __future__ import annotations

import re

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley_flower.checked_numbers import NodeError
from motley_flower.node_config import client_of_node
from motley_flower.node_registry import read_enrolment
from motley_flower.strategy.query_answers import enrolled, measured, wanted
from motley_flower.strategy.reporting import with_reports
from tests.motley_flower.apps import outcomes, run, sgd
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.strategy.test_reporting import client_app

LABELS = np.repeat([0, 2, 1], [7, 3, 8])


def app(message, context):
    kind = message.metadata.message_type
    if kind == "query.motley_enrol":
        return enrolled(message, context, len(LABELS), LABELS, 3, {"uplink_mbps": 2.0})
    if kind == "query.motley_probe":
        return measured(
            message,
            {name: [0.5] * 256 if name == "gradient_sketch" else 0.5 for name in wanted(message)},
        )
    return sgd(message, context)


@pytest.mark.parametrize("name", ["hetero_select_v1", "delta", "pyramidfl", "oort"])
def test_the_server_reads_the_answers(name):
    on = FakeGrid({50 + k: FakeNode(app, {"partition-id": k}) for k in range(3)})
    coordinator, _ = run(on, name, m=2)
    assert set(outcomes(coordinator, 3).values()) == {"accepted"}
    assert coordinator.registry.enrolled[0].num_examples == 18
    if name == "hetero_select_v1":
        assert coordinator.registry.enrolled[0].signals["label_histogram"].tolist() == [7, 8, 3]


def test_labels_are_sent_only_where_the_selector_wants_them():
    on = FakeGrid({5: FakeNode(app, {"partition-id": 0})})
    coordinator, _ = run(on, "uniform", m=1, wait_s=5)
    assert coordinator.registry.enrolled[0].signals == {}


def test_another_key_of_the_client_id_and_a_missing_one():
    on = FakeGrid({5: FakeNode(app, {"partition-id": 8, "site": 3})})
    coordinator, _ = run(on, "uniform", m=1, wait_s=5, key="site")
    assert outcomes(coordinator, 1) == {3: "accepted"}
    on.nodes[6] = FakeNode(app, {"partition-id": 9})
    with pytest.raises(ConfigError, match=r'--node-config "ward=<whole number>"'):
        run(on, "uniform", m=1, key="ward")


def test_a_label_of_no_class_is_an_error():
    def wrong(message, context):
        return enrolled(message, context, 3, [0, 5], 3)

    on = FakeGrid({5 + k: FakeNode(wrong, {"partition-id": 8 + k}) for k in range(2)})
    with pytest.raises(ConfigError, match="its client app raised ConfigError; the node's own log"):
        run(on, "fedcbs", m=1)


@pytest.mark.parametrize("value", [2**53, 2**63, -1, 3.0, "3", True, None])
def test_a_configuration_without_a_whole_number_for_the_client_is_refused_at_the_client(value):
    """Not cut, not rounded, and not left to what sends it: metrics hold 64 bits."""
    config = {"partition-id": value}
    context = type("Context", (), {"node_config": config})
    content = {"motley": {"key": "partition-id", "wanted": ""}}
    asked = type("Asked", (), {"message_type": "query.motley_enrol"})
    message = type("Message", (), {"content": content, "metadata": asked})
    said = re.escape(f"got partition-id = {value!r}; start the node with --node-config")
    with pytest.raises(ConfigError, match=said):
        enrolled(message, context, 3)
    with pytest.raises(Exception, match=said + ".* from 0 to 9007199254740991$"):
        with_reports(client_app())(message, context)


def test_the_largest_client_id_is_the_last_that_a_float_holds_alone():
    assert float(2**53) == float(2**53 + 1)
    assert client_of_node({"site": 2**53 - 1}, "site") == 2**53 - 1
    assert read_enrolment({"site": 2**53 - 1}, "site", ()).client == 2**53 - 1
    for client in (2**53, 2**53 + 1):
        with pytest.raises(NodeError, match="'site' is 9007199254740992; expected a whole number"):
            read_enrolment({"site": client}, "site", ())
