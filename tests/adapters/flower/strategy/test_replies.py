"""Checks of replies: a client that sends what cannot be used is rejected for the round, and affects no other client."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from motley.adapters.flower.checks import NodeError, numbers_of
from motley.adapters.flower.messages import flower
from motley.adapters.flower.strategy.replies import array_of
from motley.adapters.flower.strategy.wrapper import with_selector
from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.selectors import build
from tests.adapters.flower.apps import (
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
)  # fmt: skip
from tests.adapters.flower.fake_grid import FakeGrid

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
    told = {"num-examples": 10, "loss": 1.0, "loss_rms": 1.0, "arrival_loss": 1.0, "learning_rates": 0.5, **changes}
    return flower().MetricRecord({name: value for name, value in told.items() if value is not None})


def fine():
    return model(w=np.ones(D, np.float32))


GARBAGE = {
    "not a number": lambda: {"arrays": model(w=np.array([1, np.nan, 3], np.float32)), "metrics": metrics()},
    "infinite": lambda: {"arrays": model(w=np.array([1, np.inf, 3], np.float32)), "metrics": metrics()},
    "shape": lambda: {"arrays": model(w=np.ones(D + 1, np.float32)), "metrics": metrics()},
    "axes": lambda: {"arrays": model(w=np.ones((1, D), np.float32)), "metrics": metrics()},
    "integers": lambda: {"arrays": model(w=np.ones(D, np.int64)), "metrics": metrics()},
    "complex": lambda: {"arrays": model(w=np.ones(D, np.complex64)), "metrics": metrics()},
    "texts": lambda: {"arrays": model(w=np.array(["a"] * D)), "metrics": metrics()},
    "wider": lambda: {"arrays": model(w=np.ones(D, np.float64)), "metrics": metrics()},
    "names": lambda: {"arrays": model(v=np.ones(D, np.float32)), "metrics": metrics()},
    "more names": lambda: {"arrays": model(w=np.ones(D, np.float32), v=np.ones(D, np.float32)), "metrics": metrics()},
    "no arrays": lambda: {"metrics": metrics()},
    "empty arrays": lambda: {"arrays": flower().ArrayRecord(), "metrics": metrics()},
    "two records": lambda: {"arrays": fine(), "again": fine(), "metrics": metrics()},
    "no metrics": lambda: {"arrays": fine()},
    "two metrics": lambda: {"arrays": fine(), "metrics": metrics(), "more": metrics()},
    "nothing": dict,
    "no weight": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": None})},
    "weight of nobody": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": 0})},
    "negative weight": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": -5})},
    "weights": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": [1, 2]})},
    "infinite weight": lambda: {"arrays": fine(), "metrics": metrics(**{"num-examples": float("inf")})},
    "loss is nan": lambda: {"arrays": fine(), "metrics": metrics(loss=float("nan"))},
    "losses": lambda: {"arrays": fine(), "metrics": metrics(loss=[1.0, 2.0])},
    "a metric more": lambda: {"arrays": fine(), "metrics": metrics(extra=1.0)},
    "no bytes": lambda: {"arrays": model(w=raw(b"")), "metrics": metrics()},
    "cut off": lambda: {"arrays": model(w=raw(npy("<f4", (D,), b"\0" * 5))), "metrics": metrics()},
    "too long": lambda: {"arrays": model(w=raw(npy("<f4", (D,), b"\0" * 4 * D + b"!"))), "metrics": metrics()},
    "a promise": lambda: {"arrays": model(w=raw(npy("<f4", (2**40,)))), "metrics": metrics()},
    "a kept promise": lambda: {"arrays": model(w=raw(npy("<f4", (2**40,)), shape=(2**40,))), "metrics": metrics()},
    "huge": lambda: {"arrays": model(w=raw(npy("<f4", (D,), bytes(10_000)))), "metrics": metrics()},
    "not numpy": lambda: {"arrays": model(w=raw(b"{}", stype="json")), "metrics": metrics()},
    "a pickle": lambda: {"arrays": model(w=raw(pickled(), dtype="object")), "metrics": metrics()},
    "a hidden pickle": lambda: {"arrays": model(w=raw(pickled())), "metrics": metrics()},
}  # fmt: skip


def sends(make):
    def app(message, context):
        return sgd(message, context) if message.metadata.message_type != "train" else reply(message, **make())

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
        assert outcomes(coordinator, t) == {0: "accepted", 1: "accepted", 2: "accepted", 3: "rejected"}
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
    lone = {"wider", "two records", "a metric more", "loss is nan"}  # nothing in the round to differ from
    assert outcome == {"rejected"} or what in lone
    if outcome == {"rejected"}:
        assert all(alone[t] == alone[t - 1] for t in hit if t > 1)
    assert all(np.isfinite(np.frombuffer(w, np.float32)).all() for t, w in alone.items() if t != "w" and len(w) == 4 * D)


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
    assert all(np.isfinite(r.signals["loss"]) for _, reports in observed for r in reports if r.outcome == Outcome.PROBED)


def test_an_app_whose_replies_never_fit_is_an_error_in_the_first_round():
    for what, said in (("no weight", "num-examples"), ("shape", "expected float32"), ("no metrics", "MetricRecord")):
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
        return sgd(message, context) if message.metadata.message_type != "train" else grows(message, context)

    on = FakeGrid(nodes(0, 1, 2, app=app) | nodes(3, app=sends(GARBAGE["not a number"])))
    coordinator, result = run(on, m=4, uploads="any")
    assert outcomes(coordinator, 3) == {0: "accepted", 1: "accepted", 2: "accepted", 3: "rejected"}
    assert weights(result).tolist() == [1, 1, 1, 1]


def test_fortran_order_and_empty_arrays_are_read():
    words = flower()
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(array_of(words.Array(matrix), "w", (2, 3), "float32", 100), matrix)
    assert array_of(words.Array(np.zeros((0, 3), np.float32)), "w", (0, 3), "float32", 100).shape == (0, 3)
    assert array_of(words.Array(np.array(3.0)), "w", (), "float64", 100) == 3
    with pytest.raises(NodeError):
        numbers_of([True], "x")
