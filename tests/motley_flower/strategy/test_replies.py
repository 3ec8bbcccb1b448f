"""Checks of replies: a client that sends what cannot be used is rejected for the round, and affects
no other client."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.selectors import build
from motley_flower.checked_numbers import NodeError, number_of, numbers_of, whole_number
from motley_flower.messages import flower
from motley_flower.strategy.replies import array_of
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import (
    D,
    fedavg,
    model,
    nodes,
    observed_reports,
    outcomes,
    reply,
    run,
    sgd,
    weights,
)
from tests.motley_flower.fake_grid import FakeGrid

SEEN = []


class Trap:
    """Unpickling it is noticed."""

    def __reduce__(self):
        return SEEN.append, (1,)


def npy(descr, shape, data=b""):
    head = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def raw(data, dtype="float32", shape=(D,), stype="numpy.ndarray"):
    return flower().Array(dtype, shape, stype, data)


def pickled():
    out = io.BytesIO()
    np.save(out, np.array([Trap()] * D, dtype=object), allow_pickle=True)
    return out.getvalue()


def metrics(**changes):
    told = {
        "num-examples": 10,
        "loss": 1.0,
        "loss_rms": 1.0,
        "arrival_loss": 1.0,
        "learning_rates": 0.5,
        **changes,
    }
    return flower().MetricRecord({name: value for name, value in told.items() if value is not None})


def fine():
    return model(w=np.ones(D, np.float32))


GARBAGE = {
    "not a number": lambda: {
        "arrays": model(w=np.array([1, np.nan, 3], np.float32)),
        "metrics": metrics(),
    },
    "a square that overflows": lambda: {
        "arrays": model(w=np.array([1, 3e38, 3], np.float32)),
        "metrics": metrics(),
    },
    "infinite": lambda: {
        "arrays": model(w=np.array([1, np.inf, 3], np.float32)),
        "metrics": metrics(),
    },
    "shape": lambda: {"arrays": model(w=np.ones(D + 1, np.float32)), "metrics": metrics()},
    "axes": lambda: {"arrays": model(w=np.ones((1, D), np.float32)), "metrics": metrics()},
    "integers": lambda: {"arrays": model(w=np.ones(D, np.int64)), "metrics": metrics()},
    "complex": lambda: {"arrays": model(w=np.ones(D, np.complex64)), "metrics": metrics()},
    "texts": lambda: {"arrays": model(w=np.array(["a"] * D)), "metrics": metrics()},
    "wider": lambda: {"arrays": model(w=np.ones(D, np.float64)), "metrics": metrics()},
    "names": lambda: {"arrays": model(v=np.ones(D, np.float32)), "metrics": metrics()},
    "more names": lambda: {
        "arrays": model(w=np.ones(D, np.float32), v=np.ones(D, np.float32)),
        "metrics": metrics(),
    },
    "no arrays": lambda: {"metrics": metrics()},
    "empty arrays": lambda: {"arrays": flower().ArrayRecord(), "metrics": metrics()},
    "no metrics": lambda: {"arrays": fine()},
    "two metrics": lambda: {"arrays": fine(), "metrics": metrics(), "more": metrics()},
    "nothing": dict,
    "no weight": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": None})},
    "weight of nobody": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": 0})},
    "negative weight": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": -5})},
    "more than was enrolled": lambda: {
        "arrays": fine(),
        "metrics": metrics(**{"num-examples": 14}),
    },
    "a weight above all": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": 1e308})},
    "weights": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": [1, 2]})},
    "infinite weight": lambda: {
        "arrays": fine(),
        "metrics": metrics(**{"num-examples": float("inf")}),
    },
    "loss is nan": lambda: {"arrays": fine(), "metrics": metrics(loss=float("nan"))},
    "losses": lambda: {"arrays": fine(), "metrics": metrics(loss=[1.0, 2.0])},
    "no bytes": lambda: {"arrays": model(w=raw(b"")), "metrics": metrics()},
    "cut off": lambda: {"arrays": model(w=raw(npy("<f4", (D,), b"\0" * 5))), "metrics": metrics()},
    "too long": lambda: {
        "arrays": model(w=raw(npy("<f4", (D,), b"\0" * 4 * D + b"!"))),
        "metrics": metrics(),
    },
    "a promise": lambda: {"arrays": model(w=raw(npy("<f4", (2**40,)))), "metrics": metrics()},
    "a kept promise": lambda: {
        "arrays": model(w=raw(npy("<f4", (2**40,)), shape=(2**40,))),
        "metrics": metrics(),
    },
    "huge": lambda: {"arrays": model(w=raw(npy("<f4", (D,), bytes(10_000)))), "metrics": metrics()},
    "not numpy": lambda: {"arrays": model(w=raw(b"{}", stype="json")), "metrics": metrics()},
    "a pickle": lambda: {"arrays": model(w=raw(pickled(), dtype="object")), "metrics": metrics()},
    "a hidden pickle": lambda: {"arrays": model(w=raw(pickled())), "metrics": metrics()},
}


def sends(make):
    def app(message, context):
        return (
            sgd(message, context)
            if message.metadata.message_type != "train"
            else reply(message, **make())
        )

    return app


@pytest.mark.parametrize("what", sorted(GARBAGE))
def test_a_bad_reply_is_rejected_and_does_not_change_the_model(what):
    clean = FakeGrid(nodes(0, 1, 2))
    _, expected = run(clean, {"name": "hetero_select_v1", "probe": "last_report"}, m=3, rounds=3)
    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=sends(GARBAGE[what])))
    selector = build({"name": "hetero_select_v1", "probe": "last_report"}, seed=0)
    observed = observed_reports(selector)
    coordinator, result = run(on, selector, m=4, rounds=3)
    for t in (1, 2, 3):
        assert outcomes(coordinator, t) == {
            0: "accepted",
            1: "accepted",
            2: "accepted",
            3: "rejected",
        }
    assert weights(result).tobytes() == weights(expected).tobytes()
    rejected = [r for _, reports in observed for r in reports if r.outcome == Outcome.REJECTED]
    assert [r.id for r in rejected] == [3] * 3
    assert not any(r.signals for r in rejected)
    assert all(row.reason for row in coordinator.rows if row.client == 3)
    assert not SEEN


@pytest.mark.parametrize("what", sorted(GARBAGE))
def test_a_round_of_one_bad_reply_leaves_the_model(what):
    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=sends(GARBAGE[what])))
    alone = {"w": None}

    def keep(t, arrays):
        alone[t] = arrays["w"].numpy().tobytes()

    wrapped = with_selector(fedavg(), build("uniform", seed=3), 1, clock=on.clock)
    wrapped.start(on, model(), num_rounds=12, timeout=50, evaluate_fn=keep)
    hit = [row.round for row in wrapped.motley.rows if row.client == 3]
    assert hit
    outcome = {row.outcome for row in wrapped.motley.rows if row.client == 3}
    lone = {"wider", "loss is nan"}  # nothing in the round to differ from
    assert outcome == {"rejected"} or what in lone
    if outcome == {"rejected"}:
        assert all(alone[t] == alone[t - 1] for t in hit if t > 1)
    assert all(
        np.isfinite(np.frombuffer(w, np.float32)).all()
        for t, w in alone.items()
        if t != "w" and len(w) == 4 * D
    )


def test_bad_answers_to_probes_and_enrolment_are_left_out():
    def app(message, context):
        kind = message.metadata.message_type
        if kind == "query.motley_probe":
            return reply(message, probed=flower().MetricRecord({"loss": [float("nan")]}))
        if kind == "query.motley_enrol" and context.node_config["partition-id"] == 4:
            return reply(message, told=flower().MetricRecord({"partition-id": 4.5}))
        return sgd(message, context)

    on = FakeGrid(nodes(0, 1, 2) | nodes(3, 4, app=app))
    selector = build("power_of_choice", seed=0)
    observed = observed_reports(selector)
    coordinator, _ = run(on, selector, m=2, rounds=4)
    assert {row.client for row in coordinator.rows} <= {0, 1, 2, 3}
    assert all(
        np.isfinite(r.signals["loss"])
        for _, reports in observed
        for r in reports
        if r.outcome == Outcome.PROBED
    )


def test_an_app_whose_replies_never_fit_is_an_error_in_the_first_round():
    for what, said in (
        ("no weight", "num-examples"),
        ("shape", "expected float32"),
        ("no metrics", "MetricRecord"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(FakeGrid(nodes(0, 1, 2, app=sends(GARBAGE[what]))), m=2)


def test_clients_that_all_diverge_do_not_end_the_run():
    coordinator, result = run(FakeGrid(nodes(0, 1, 2, app=sends(GARBAGE["not a number"]))), m=2)
    assert {row.outcome for row in coordinator.rows} == {"rejected"}
    assert not result.arrays


def test_uploads_of_any_form_may_change_shape_but_must_be_finite():
    def grows(message, context):
        n = message.content["config"]["server-round"] + 1
        return reply(message, arrays=model(w=np.ones(n, np.float32)), metrics=metrics())

    def app(message, context):
        return (
            sgd(message, context)
            if message.metadata.message_type != "train"
            else grows(message, context)
        )

    on = FakeGrid(nodes(0, 1, 2, app=app) | nodes(3, app=sends(GARBAGE["not a number"])))
    coordinator, result = run(on, m=4, uploads="any")
    assert outcomes(coordinator, 3) == {0: "accepted", 1: "accepted", 2: "accepted", 3: "rejected"}
    assert weights(result).tolist() == [1, 1, 1, 1]


def test_fortran_order_and_empty_arrays_are_read():
    words = flower()
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(
        array_of(words.Array(matrix), "w", (2, 3), "float32", 100), matrix
    )
    assert array_of(
        words.Array(np.zeros((0, 3), np.float32)), "w", (0, 3), "float32", 100
    ).shape == (0, 3)
    assert array_of(words.Array(np.array(3.0)), "w", (), "float64", 100) == 3
    with pytest.raises(NodeError):
        numbers_of([True], "x")


def enrols(**told):
    """Client 3 with another answer at enrolment; None leaves a number out."""

    def app(message, context):
        if message.metadata.message_type != "query.motley_enrol":
            return sgd(message, context)
        numbers = {"partition-id": context.node_config["partition-id"], "num-examples": 13, **told}
        return reply(
            message,
            told=flower().MetricRecord(
                {name: value for name, value in numbers.items() if value is not None}
            ),
        )

    return app


def test_clients_that_enrol_no_number_of_examples_need_a_bound():
    def on(*silent):
        return FakeGrid(nodes(0, 1, 2, 3) | nodes(*silent, app=enrols(**{"num-examples": None})))

    with pytest.raises(
        ConfigError, match=r"nothing bounds 'num-examples' of client 1.*max_examples=10_000"
    ):
        run(on(1, 2, 3), m=4, rounds=1)
    coordinator, _ = run(on(3), m=4, rounds=1)  # at most ten times the others' median
    assert outcomes(coordinator, 1) == dict.fromkeys(range(4), "accepted")
    on = lambda: FakeGrid(nodes(0, 1, 2) | nodes(3, app=enrols(**{"num-examples": None})))  # noqa: E731
    coordinator, _ = run(on(), m=4, rounds=1, max_examples=13)
    assert outcomes(coordinator, 1) == dict.fromkeys(range(4), "accepted")
    coordinator, _ = run(on(), m=4, rounds=1, max_examples=12.5)
    assert outcomes(coordinator, 1) == {0: "accepted", 1: "accepted", 2: "accepted", 3: "rejected"}


def test_a_strategy_with_a_weight_of_its_own_needs_a_bound():
    def told(weight):
        return {"arrays": fine(), "metrics": metrics(share=weight)}

    def on(weight):
        return FakeGrid(
            nodes(0, 1, app=sends(lambda: told(0.5))) | nodes(2, app=sends(lambda: told(weight)))
        )

    with pytest.raises(ConfigError, match="nothing bounds 'share' of client 0"):
        run(on(0.5), m=3, rounds=1, strategy=fedavg(weighted_by_key="share"))
    coordinator, _ = run(
        on(1e308), m=3, rounds=1, strategy=fedavg(weighted_by_key="share"), max_examples=1
    )
    assert outcomes(coordinator, 1) == {0: "accepted", 1: "accepted", 2: "rejected"}


def test_two_clients_that_claim_all_examples_there_are_do_not_own_the_model():
    """Before, the weights 1e308 + 1e308 were infinite, and the mean became zeros."""
    clean = FakeGrid(nodes(0, 1, 2))
    _, expected = run(clean, m=3, rounds=2)
    liars = nodes(
        3, 4, app=sends(lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": 1e308})})
    )
    _, result = run(FakeGrid(nodes(0, 1, 2) | liars), m=5, rounds=2)
    assert weights(result).tobytes() == weights(expected).tobytes()


def test_a_claim_above_the_bound_does_not_enrol(caplog):
    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=enrols(**{"num-examples": 2**52})))
    coordinator, _ = run(on, m=4, rounds=1, max_examples=20, wait_s=1)
    assert sorted(coordinator.registry.enrolled) == [0, 1, 2]
    assert "expected at most max_examples = 20" in caplog.text


def test_an_app_whose_every_reply_claims_more_is_told_so():
    def app(message, context):
        return enrols(**{"num-examples": 5})(message, context)

    with pytest.raises(ConfigError, match="more than the client said at enrolment"):
        run(FakeGrid(nodes(0, 1, 2, app=app)), m=3, rounds=2)


@pytest.mark.parametrize(
    "value", [10**400, -(10**5000), 2**1024], ids=["large", "no text", "power"]
)
def test_whole_numbers_beyond_all_floats_are_refused_in_a_sentence(value):
    for check in (number_of, whole_number):
        with pytest.raises(NodeError, match="'n' is inf; expected one finite number"):
            check(value, "n")


@pytest.mark.parametrize("shape", [(-1, -3), (3, -1)])
def test_an_array_of_negative_length_is_refused(shape):
    with pytest.raises(NodeError, match="holds 12 bytes for -1 numbers"):
        array_of(raw(npy("<f4", shape, bytes(12)), shape=shape), "w", None, None, 1e9)


def with_index_and_mask(message, context):
    """The client app with a model that has an index and a mask, of which each reply has the very
    dtypes that PyTorch's modules keep: int64 and bool."""
    answer = sgd(message, context)
    if message.metadata.message_type == "train":
        arrays = {"w": answer.content["arrays"]["w"].numpy()}
        answer.content["arrays"] = model(**arrays, **INDEX_AND_MASK)
    return answer


INDEX_AND_MASK = {"index": np.array([[2, 0], [1, 3]]), "mask": np.array([True, False])}


@pytest.mark.parametrize("rule", ["uniform", "hetero_select", "clustered_sampling"])
def test_an_index_and_a_mask_of_which_a_mean_makes_floats_are_sent_as_they_are(rule):
    """Before, every reply from round 2 on was rejected: int64 in place of float64."""
    runs = {}
    for name, app, extra in (
        ("plain", sgd, {}),
        ("with buffers", with_index_and_mask, INDEX_AND_MASK),
    ):
        on = FakeGrid(nodes(0, 1, 2, app=app))
        selector = build(rule, seed=0, horizon=50)
        observed = observed_reports(selector)
        wrapped = with_selector(fedavg(), selector, 2, clock=on.clock)
        first = model(w=np.zeros(D, np.float32), **extra)
        result = wrapped.start(on, first, num_rounds=4, timeout=200)
        assert {row.outcome for row in wrapped.motley.rows} == {"accepted"}
        signals = [
            repr({key: np.asarray(value).tolist() for key, value in report.signals.items()})
            for _, reports in observed
            for report in reports
            if report.outcome != Outcome.ENROLLED
        ]
        runs[name] = result.arrays["w"].numpy().tobytes(), signals
    assert result.arrays["index"].numpy().dtype.kind == "f"
    assert runs["plain"] == runs["with buffers"]


def test_a_model_of_floats_takes_no_integers_in_place_of_a_buffer_s():
    def quantized(message, context):
        answer = with_index_and_mask(message, context)
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 2:
            answer.content["arrays"] = model(w=np.ones(D, np.int64), **INDEX_AND_MASK)
        return answer

    on = FakeGrid(nodes(0, 1, 2, app=quantized))
    wrapped = with_selector(fedavg(), build("uniform", seed=0), 3, clock=on.clock)
    wrapped.start(on, model(w=np.zeros(D, np.float32), **INDEX_AND_MASK), num_rounds=2, timeout=200)
    for t in (1, 2):
        assert outcomes(wrapped.motley, t) == {0: "accepted", 1: "accepted", 2: "rejected"}


@pytest.mark.filterwarnings("error")
def test_an_infinite_half_is_refused_and_a_finite_one_is_read_without_a_warning():
    """1.8e+19, the bound, is infinite as a number of 16 bits."""
    words = flower()
    halves = np.array([1, 60000, -3], np.float16)
    assert array_of(words.Array(halves), "w", (3,), "float32", 100).tolist() == halves.tolist()
    halves[1] = np.inf
    with pytest.raises(NodeError, match="holds a number that is not finite"):
        array_of(words.Array(halves), "w", (3,), "float16", 100)
