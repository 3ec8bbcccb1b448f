"""What of a usable reply a strategy does not get is said: by whom, what, and why."""

from __future__ import annotations

import pytest

from motley_flower.messages import flower
from tests.motley_flower.apps import fedavg, nodes, outcomes, reply, run, sgd
from tests.motley_flower.fake_grid import FakeGrid
from tests.motley_flower.strategy.test_replies import enrols


def adds(kind, **numbers):
    """A client app that adds numbers to the metrics of its replies of this kind."""

    def app(message, context):
        answer = sgd(message, context)
        if message.metadata.message_type == kind:
            (metrics,) = answer.content.metric_records.values()
            for name, value in numbers.items():
                metrics[name] = value
        return answer

    return app


def left_out(caplog):
    """The lines of the log about what a strategy does not get."""
    return [record.message for record in caplog.records if "does not get" in record.message]


@pytest.mark.parametrize(("kind", "named"), [("train", "reply"), ("evaluate", "evaluation")])
def test_a_metric_of_one_client_alone_is_left_out_with_one_line_for_all_rounds(caplog, kind, named):
    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=adds(kind, f1=0.5, recall=0.25)))
    coordinator, result = run(
        on, m=4, rounds=3, strategy=fedavg(fraction_evaluate=1.0, min_available_nodes=4)
    )
    assert outcomes(coordinator, 3) == dict.fromkeys(range(4), "accepted")
    metrics = {
        "train": result.train_metrics_clientapp,
        "evaluate": result.evaluate_metrics_clientapp,
    }
    assert not {"f1", "recall"} & set(metrics[kind][3])
    (line,) = left_out(caplog)
    assert f"its {named} holds 'f1', 'recall', which no more than half" in line
    incidents = [(client, event) for client, event, _ in coordinator.registry.places.take()]
    assert incidents == [(3, "left out")]


def test_what_all_clients_send_is_no_line(caplog):
    on = FakeGrid(nodes(0, 1, 2, app=adds("train", f1=0.5)))
    coordinator, result = run(on, m=3, rounds=2)
    assert result.train_metrics_clientapp[2]["f1"] == 0.5
    assert not left_out(caplog)
    assert not coordinator.registry.places.take()


def test_an_evaluation_on_more_samples_than_were_enrolled_is_cut_with_a_line(caplog):
    """Clients 0, 1 and 2 have 10, 11 and 12 samples; client 2's test samples are 100, of which 12
    count: (10 a + 11 b + 12 c) / 33, not (10 a + 11 b + 100 c) / 121."""
    on = FakeGrid(nodes(0, 1) | nodes(2, app=adds("evaluate", **{"num-examples": 100})))
    coordinator, result = run(
        on, m=3, rounds=1, strategy=fedavg(fraction_evaluate=1.0, min_available_nodes=3)
    )
    losses = {k: metrics["eval_loss"] for k, metrics in coordinator.evaluations.items()}
    mean = (10 * losses[0] + 11 * losses[1] + 12 * losses[2]) / 33
    assert result.evaluate_metrics_clientapp[1]["eval_loss"] == pytest.approx(mean)
    assert "its evaluation says 100 for 'num-examples'; more than 12" in caplog.text


def test_a_reply_of_a_client_that_enrolled_without_a_number_is_cut_with_a_line(caplog):
    """Ten times the median of 10, 11 and 12 is 110."""

    def silent(message, context):
        answer = enrols(**{"num-examples": None})(message, context)
        if message.metadata.message_type == "train":
            told = {**answer.content["metrics"], "num-examples": 500}
            arrays = answer.content["arrays"]
            return reply(message, arrays=arrays, metrics=flower().MetricRecord(told))
        return answer

    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=silent))
    coordinator, _ = run(on, m=4, rounds=1)
    assert outcomes(coordinator, 1)[3] == "accepted"
    assert "its reply says 500 for 'num-examples'; more than 110" in caplog.text
