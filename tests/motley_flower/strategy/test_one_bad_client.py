"""One client, or one node, decides nothing for the others: not at enrolment, not by its silence,
its replies or its numbers."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import motley_flower
from motley.core.errors import ConfigError
from motley.selectors import build
from motley_flower.client_list import ClientList
from motley_flower.majority import Majority
from motley_flower.messages import flower
from tests.motley_flower.apps import (
    D,
    fedavg,
    grid,
    model,
    nodes,
    observed_reports,
    outcomes,
    reply,
    run,
    sgd,
    target,
    weights,
)
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.keys import client_file, public_key
from tests.motley_flower.strategy.test_replies import fine, metrics

BAD = 3
"""A node id below all honest ones, which is looked at first."""
ALONE_S = 122.5
"""Seconds after which a round that waits for more clients, 120 s, has gone on with those that are
there."""


def answering(kind, make):
    """A client app that answers one kind of message with what ``make(message, context)``
    returns."""

    def app(message, context):
        return (
            make(message, context)
            if message.metadata.message_type == kind
            else sgd(message, context)
        )

    return app


def enrolling(**told):
    def make(message, context):
        words = flower()
        known = {
            "partition-id": context.node_config["partition-id"],
            "num-examples": 10,
            "label_histogram": [5] * 10,
            **told,
        }
        return reply(
            message,
            told=words.MetricRecord(
                {name: value for name, value in known.items() if value is not None}
            ),
        )

    return answering("query.motley_enrol", make)


def nameless(message, context):
    """Declares what it reports, as ``with_reports`` does, and names no client."""
    words = flower()
    declared = words.ConfigRecord({"probed": "", "reported": ""})
    return reply(message, told=words.MetricRecord({"num-examples": 20}), motley=declared)


def raising(message, context):
    raise RuntimeError("no samples")


def first_bad(app, others=4, later=5.0):
    """A bad node that is there alone, and honest ones that come after some seconds."""
    on = FakeGrid({BAD: FakeNode(app, {"partition-id": 90})})
    on.events.append((later, lambda: on.nodes.update(nodes(*range(others)))))
    return on


def incidents(coordinator):
    return [(one.client, one.event) for one in coordinator.registry.places.happened]


# ------------------------------------------------------------------------------------- at the start


@pytest.mark.parametrize(
    "app",
    [
        enrolling(label_histogram=None),
        enrolling(**{"partition-id": None}),
        enrolling(**{"partition-id": -7}),
        answering("query.motley_enrol", raising),
        answering("query.motley_enrol", lambda message, context: reply(message)),
    ],
    ids=["lacks a signal", "no id", "nonsense", "raises", "empty"],
)
@pytest.mark.parametrize("later", [5.0, ALONE_S])
def test_an_enrolment_that_cannot_be_used_does_not_end_the_run(app, later):
    """Alone first, and, the second time, longer than a round waits for clients."""
    coordinator, _ = run(first_bad(app, later=later), "hetero_select_v1", m=3, rounds=8)
    assert outcomes(coordinator, 8).keys() <= {0, 1, 2, 3}
    assert list(outcomes(coordinator, 8).values()) == ["accepted"] * 3
    assert (-1, "refused") in incidents(coordinator)


def test_where_most_answer_so_the_app_is_blamed():
    app = answering("query.motley_enrol", raising)
    with pytest.raises(
        ConfigError, match=r"all 2 nodes answered 'query\.motley_enrol' with an error"
    ):
        run(FakeGrid(nodes(0, 1, app=app)), m=2)


@pytest.mark.parametrize("later", [0.0, 5.0, ALONE_S])
def test_one_node_that_names_no_client_does_not_number_the_others(later):
    """It is client 0 at first where it is alone for long; then most nodes name their clients, and
    it is none."""
    on = first_bad(answering("query.motley_enrol", nameless), later=later)
    on.sleep(0.0)
    selector = build("uniform", seed=0)
    seen = observed_reports(selector)
    coordinator, _ = run(on, selector, m=3, rounds=8)
    assert coordinator.registry.node_of == {k: 1000 + 7 * k for k in range(4)}
    assert coordinator.registry.numbers == {}
    assert list(outcomes(coordinator, 8).values()) == ["accepted"] * 3
    assert (-1, "refused") in incidents(coordinator)
    told = {report.id: report.num_examples for t, reports in seen if t == 0 for report in reports}
    assert told == {k: 10.0 + k for k in range(4)}


def test_one_node_that_names_a_client_does_not_shut_out_those_that_name_none():
    on = FakeGrid({BAD: FakeNode(sgd, {"partition-id": 0})})
    more = {
        1000 + 7 * k: FakeNode(answering("query.motley_enrol", nameless), {"partition-id": k})
        for k in range(4)
    }
    on.events.append((5.0, lambda: on.nodes.update(more)))
    coordinator, _ = run(on, m=3, rounds=3)
    assert coordinator.registry.node_of == {k: 1000 + 7 * k for k in range(4)}
    assert list(outcomes(coordinator, 3).values()) == ["accepted"] * 3


@pytest.mark.parametrize("later", [0.0, 5.0, ALONE_S])
def test_one_histogram_of_other_classes_does_not_decide_how_many_there_are(later):
    on = first_bad(enrolling(label_histogram=[1, 2, 3]), later=later)
    on.sleep(0.0)
    coordinator, _ = run(on, "hetero_select_v1", m=3, rounds=8)
    assert sorted(coordinator.registry.enrolled) == [0, 1, 2, 3]
    assert list(outcomes(coordinator, 8).values()) == ["accepted"] * 3
    assert (-1, "refused") in incidents(coordinator)


def test_a_selector_that_knows_the_classes_refuses_one_client_and_goes_on(caplog):
    selector = build("hetero_select_v1", seed=0)
    run(grid(3), selector, m=2, rounds=1)
    on = FakeGrid(nodes(0, 1, 2) | nodes(7, app=enrolling(label_histogram=[1, 2, 3])))
    coordinator, _ = run(on, selector, m=3, rounds=2, classes=None)
    assert sorted(coordinator.registry.enrolled) == [0, 1, 2]
    assert list(outcomes(coordinator, 2).values()) == ["accepted"] * 3


def test_of_two_clients_the_configuration_says_how_many_classes_there_are(caplog):
    def on():
        return FakeGrid(
            nodes(0) | {BAD: FakeNode(enrolling(label_histogram=[1, 2, 3]), {"partition-id": 90})}
        )

    coordinator, _ = run(on(), "hetero_select_v1", m=2, rounds=2, wait_s=5)
    assert coordinator.registry.enrolled == {}
    assert "expected others to say so, too, or with_selector(..., classes=10)" in caplog.text
    coordinator, _ = run(on(), "hetero_select_v1", m=2, rounds=2, wait_s=5, classes=10)
    assert outcomes(coordinator, 2) == {0: "accepted"}
    with pytest.raises(ConfigError, match="got 0; expected a whole number of at least 1"):
        run(on(), classes=0)


def test_a_majority_is_more_than_half_of_those_there_and_of_those_awaited():
    votes = Majority[int]()
    assert votes.decide([], 1) is None
    assert votes.decide([3, 3], 10) is None
    assert votes.decide([3, 10], 2) is None
    assert votes.decide([3, 10, 10], 3) == 10
    assert Majority[int]().decide([3], 1) == 3
    assert Majority(10).decide([3] * 9, 2) == 10


@pytest.mark.parametrize("kind", ["train", "query.motley_probe"])
def test_one_client_alone_whose_app_fits_nothing_does_not_end_the_run(kind):
    on = first_bad(answering(kind, lambda message, context: reply(message)), later=ALONE_S)
    coordinator, _ = run(on, {"name": "power_of_choice", "d": 3}, m=2, rounds=8)
    assert "accepted" in outcomes(coordinator, 8).values()
    assert all(row.outcome == "accepted" for row in coordinator.rows if row.client != 90)


# ------------------------------------------------------------------------------------- silence


def test_a_new_silent_node_before_each_round_holds_no_round_up():
    """121 s a round before: each was waited for until its limit."""
    on = grid(4)
    began = []

    class Attacked(type(fedavg())):
        def configure_train(self, server_round, *args):
            began.append(on.now_s)
            on.nodes[5000 + server_round] = FakeNode(
                lambda message, context: None, {"partition-id": 50 + server_round}
            )
            return super().configure_train(server_round, *args)

    on.nodes[5000] = FakeNode(sgd, {"partition-id": 9}, delay_s=9.0)
    coordinator, _ = run(on, m=3, rounds=12, strategy=Attacked(fraction_evaluate=0.0))
    assert began[1] <= 123  # the first look waits for those that are there, and all of their limit
    took = np.diff(began)[1:]
    assert took.max() < 9.5  # an honest client's, in the rounds in which it is chosen
    assert took.min() < 1.5
    assert 9 in coordinator.registry.enrolled
    assert {row.outcome for row in coordinator.rows} == {"accepted"}


def test_a_node_that_comes_while_a_round_goes_on_is_asked_in_it_and_chosen_in_the_next():
    on = FakeGrid(nodes(0, 1, 2, delay_s=60.0))
    on.events.append((70.0, lambda: on.nodes.update(nodes(3, delay_s=20.0))))
    coordinator, _ = run(on, m=4, rounds=3, wait_s=1)
    assert [len(outcomes(coordinator, t)) for t in (1, 2, 3)] == [3, 4, 4]


# --------------------------------------------------------------------------------- forms of replies


def trains(**records):
    return answering(
        "train",
        lambda message, context: reply(message, **{name: make() for name, make in records.items()}),
    )


def more_keys(message, context):
    said = sgd(message, context)
    if message.metadata.message_type in ("train", "evaluate"):
        next(iter(said.content.metric_records.values()))["extra"] = 1.0
    return said


@pytest.mark.parametrize(
    "app",
    [
        more_keys,
        trains(arrays=fine, again=fine, metrics=metrics),
        trains(again=fine, arrays=fine, metrics=metrics),
        trains(arrays=fine, other=metrics),
        trains(weights=fine, metrics=metrics),
    ],
    ids=[
        "a metric more",
        "a record more",
        "a record before",
        "another metric key",
        "another array key",
    ],
)
@pytest.mark.parametrize("bad", [0, 1])
def test_of_two_clients_neither_form_shuts_the_other_out(app, bad):
    """What only one of two sends is left out, whichever of them is first; before, client 1 was
    rejected in every round."""
    on = FakeGrid(nodes(0, 1) | nodes(bad, app=app))
    coordinator, result = run(on, m=2, rounds=3, strategy=fedavg(fraction_evaluate=1.0))
    assert {row.outcome for row in coordinator.rows} == {"accepted"}
    assert weights(result).any()
    assert set(result.evaluate_metrics_clientapp[3]) <= {"eval_loss", "num-examples"}


def test_what_most_clients_send_must_be_there_and_is_all_that_the_strategy_gets():
    got = []

    class Looks(type(fedavg())):
        def aggregate_train(self, server_round, replies):
            got.append([sorted(one.content["metrics"]) for one in replies])
            return super().aggregate_train(server_round, replies)

    def fewer(message, context):
        said = sgd(message, context)
        if message.metadata.message_type == "train":
            del said.content["metrics"]["loss_rms"]
        return said

    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=more_keys) | nodes(4, app=fewer))
    coordinator, _ = run(on, m=5, rounds=1, strategy=Looks(fraction_evaluate=0.0))
    assert outcomes(coordinator, 1) == {
        0: "accepted",
        1: "accepted",
        2: "accepted",
        3: "accepted",
        4: "rejected",
    }
    assert coordinator.rows[-1].reason.endswith("they lack loss_rms")
    assert got == [[["arrival_loss", "learning_rates", "loss", "loss_rms", "num-examples"]] * 4]


def test_a_form_of_one_client_alone_is_not_the_run_s_for_ever():
    on = first_bad(trains(arrays=fine, again=fine, metrics=metrics), others=2, later=ALONE_S)
    coordinator, _ = run(on, m=2, rounds=9)
    assert {row.outcome for row in coordinator.rows if row.client != 90} == {"accepted"}
    assert any(row.client != 90 for row in coordinator.rows)


# ------------------------------------------------------------------------------- numbers of samples


def claims(samples, evaluated=None, arrays=None):
    """Says so many samples at enrolment and in every reply."""

    def app(message, context):
        kind = message.metadata.message_type
        if kind == "query.motley_enrol":
            return enrolling(**{"num-examples": samples})(message, context)
        if kind == "train":
            return reply(
                message,
                arrays=arrays or model(w=np.full(D, 900, np.float32)),
                metrics=metrics(**{"num-examples": samples}),
            )
        if kind == "evaluate":
            return reply(
                message,
                metrics=flower().MetricRecord(
                    {"num-examples": evaluated or samples, "eval_loss": 0.0}
                ),
            )
        return sgd(message, context)

    return app


def by_hand(weight):
    """One step from 0: honest clients 0 to 3 half way to their targets with 10 + k samples, and 900
    with this weight."""
    total = sum((10 + k) * target(k) / 2 for k in range(4)) + weight * np.full(D, 900.0)
    return total / (46 + weight)


def test_a_claim_of_all_samples_there_are_counts_as_ten_times_the_median(caplog):
    """2^53 samples, and the model was the attacker's. The median of 10, 11, 12, 13 and 2^53 is
    12."""
    selector = build("oort", seed=0)
    seen = observed_reports(selector)
    on = FakeGrid(nodes(0, 1, 2, 3) | nodes(4, app=claims(2**53)))
    coordinator, result = run(on, selector, m=5, rounds=1)
    assert set(outcomes(coordinator, 1).values()) == {"accepted"}
    np.testing.assert_allclose(weights(result), by_hand(120), rtol=1e-5)
    assert {report.id: report.num_examples for report in seen[0][1]}[4] == 120
    assert coordinator.state.rows[-1].client == 4
    assert incidents(coordinator) == [(4, "capped")]
    assert "says that it has 9.0072e+15 samples; more than ten times the median" in caplog.text


def test_the_file_of_clients_bounds_a_number_and_the_caller_s_goes_after_it(tmp_path):
    path = client_file(tmp_path / "clients.toml", [f"site_{k}" for k in range(5)])
    text = path.read_text()
    path.write_text(text + "examples = 30\n")
    on = FakeGrid(nodes(0, 1, 2, 3) | nodes(4, app=claims(2**53)))
    for k in range(5):
        on.nodes[1000 + 7 * k].public_key = public_key(k)
    _, result = run(on, m=5, rounds=1, clients=path)
    np.testing.assert_allclose(weights(result), by_hand(30), rtol=1e-5)
    assert ClientList(path).examples == {4: 30.0}
    path.write_text(text + "examples = -1\n")
    with pytest.raises(
        ConfigError, match="site_4 with examples = -1; expected a whole number from 1"
    ):
        ClientList(path)


def test_the_selector_is_told_when_a_number_counts_otherwise():
    """Alone, a client counts as it says; once others are there, as ten times their median."""
    on = FakeGrid(nodes(4, app=claims(2**53)))
    on.events.append((ALONE_S, lambda: on.nodes.update(nodes(0, 1, 2, 3))))
    selector = build("oort", seed=0)
    seen = observed_reports(selector)
    run(on, selector, m=3, rounds=8)
    told = [{report.id: report.num_examples for report in reports} for t, reports in seen if t == 0]
    assert told == [{4: 2.0**53}, {0: 10.0, 1: 11.0, 2: 12.0, 3: 13.0, 4: 120.0}]


@pytest.mark.parametrize("evaluated", [1e30, 110.0])
def test_an_evaluation_weighs_no_more_than_the_client_enrolled_with(evaluated):
    """1e30 samples of loss 0 gave a pooled loss of 0. What is above ten times the median is
    refused, what is above its own cut."""
    strategy = fedavg(fraction_evaluate=1.0)
    on = FakeGrid(nodes(0, 1, 2, 3) | nodes(4, app=claims(14, evaluated, model())))
    coordinator, result = run(on, m=5, rounds=1, strategy=strategy)
    w = weights(result)
    losses = {k: float(((w - target(k)) ** 2).sum() / 2) for k in range(4)}
    total = sum((10 + k) * losses[k] for k in range(4))
    expected = total / 46 if evaluated == 1e30 else total / (46 + 14)
    assert result.evaluate_metrics_clientapp[1]["eval_loss"] == pytest.approx(expected, rel=1e-6)
    event = "rejected" if evaluated == 1e30 else "capped"
    assert incidents(coordinator) == [(4, event)]


# ---------------------------------------------------------------------- what clients say in the log

NASTY = "\x1b[2Jloss\n[INFO] all is well\u202e"


PLACES = (
    "array",
    "kind",
    "metric",
    "harmless metric",
    "record",
    "enrolment",
    "claim",
    "evaluation",
    "exception",
    "probe",
)


def named(name):
    """Clients whose words are put where a name or a reason may stand."""
    words = flower()
    return {
        "array": trains(arrays=lambda: model(**{name: np.ones(D, np.float32)}), metrics=metrics),
        "kind": trains(
            arrays=lambda: model(w=words.Array(name, (D,), "numpy.ndarray", b"")), metrics=metrics
        ),
        "metric": trains(arrays=fine, metrics=lambda: metrics(**{name: float("nan")})),
        "harmless metric": trains(arrays=fine, metrics=lambda: metrics(**{name: 1.0})),
        "record": trains(arrays=fine, metrics=metrics, **{name: fine}),
        "enrolment": enrolling(**{name: 1.0}),
        "claim": enrolling(**{"partition-id": None, name: 3}),
        "evaluation": answering(
            "evaluate",
            lambda m, c: reply(m, metrics=words.MetricRecord({name: 1.0, "num-examples": 1})),
        ),
        "exception": answering("train", lambda m, c: (_ for _ in ()).throw(RuntimeError(name))),
        "probe": answering(
            "query.motley_probe", lambda m, c: reply(m, probed=words.MetricRecord({name: 1.0}))
        ),
    }


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", [NASTY, "k" * 5_000_000], ids=["escapes", "5 MB"])
def test_what_a_client_says_is_cut_and_printable_in_log_table_and_terminal(
    where, name, caplog, capsys
):
    caplog.set_level(logging.DEBUG)
    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=named(name)[where]))
    strategy = fedavg(fraction_evaluate=1.0)
    coordinator, _ = run(
        on,
        {"name": "power_of_choice", "d": 4},
        m=3,
        rounds=2,
        strategy=strategy,
        wait_s=1,
        max_examples=50,
    )
    said = [record.getMessage() for record in caplog.records] + capsys.readouterr().err.splitlines()
    said += [motley_flower.participation(coordinator)] + [
        one.reason for one in coordinator.registry.places.happened
    ]
    assert all(len(line) < 1500 for line in said)
    assert not any("\x1b" in line or "\u202e" in line for line in said)
    assert not any(
        line.startswith("[INFO] all is well") for text in said for line in text.splitlines()
    )
    if where != "harmless metric":
        assert any(row.outcome != "accepted" for row in coordinator.rows) or incidents(coordinator)


def test_a_probe_far_beyond_the_others_is_left_out(caplog):
    def measuring(message, context):
        asked = message.content["motley"]["signals"]
        return reply(message, probed=flower().MetricRecord(dict.fromkeys(asked, 1e18)))

    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=answering("query.motley_probe", measuring)))
    coordinator, _ = run(on, selector="power_of_choice", m=2, rounds=2)
    assert all(row.client != 3 for row in coordinator.rows)
    assert "cannot be measured: its 'loss' of 1e+18 is more than 1000 times" in caplog.text
