"""CA2FL: remembered updates worked by hand, synchronously and in a buffer."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.ca2fl import CA2FL
from motley.algorithms.fedavg import plain_fedavg
from motley.algorithms.parts import Part, ServerContext, Upload, aggregate
from motley.core import codec
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.tasks.task import ModelState
from tests.motley.algorithms.test_fedau import in_turn
from tests.motley.algorithms.test_fedawe import path_of
from tests.motley.theory.test_algorithms import run, simulate


@pytest.mark.parametrize("name", ["ca2fl", "fedvarp"])
def test_one_client_a_round(name):
    """.05 + .29 = .34; .195 + .056 - .1 = .151. Under one learning rate FedVARP does the same."""
    found = path_of(in_turn([(0,), (1,), (0,)], algorithm=name))
    assert found == pytest.approx([0.1, 0.44, 0.591], rel=1e-12)


def test_under_a_falling_rate_an_old_update_keeps_its_own():
    """Rates .1, .05: client 0 moves by .1, h = .05; client 1 by .05 * 2.9: v = .05 + .145, x =
    .295. FedVARP's memory of client 0 would count at the rate .05."""
    local = {
        "batch_size": 1,
        "optimizer": {"name": "sgd", "lr": 0.1},
        "lr_schedule": {"name": "exponential", "decay": 0.5},
    }
    found = path_of(in_turn([(0,), (1,)], algorithm="ca2fl", local=local))
    assert found == pytest.approx([0.1, 0.295], rel=1e-12)


def test_a_client_that_arrives_twice_in_a_buffer_is_set_against_itself():
    """K = 3; a buffer of client 1 with 2, then with 5: d = 2 + 3 = 5, v = 5 / 2, h = 5 / 3. Then
    client 0 with 1, client 1 with 4: d = 1 - 1 = 0, v = h, h = (1 + 4) / 3."""
    server = CA2FL().change(plain_fedavg()).server
    state = server.init(ModelState(*(torch.zeros(k).double() for k in (1, 0, 0))), 3)
    found = []
    for arrived in ([(1, 2.0), (1, 5.0)], [(0, 1.0), (1, 4.0)]):
        uploads = [
            Upload({"delta": Part(torch.tensor([delta]).double(), "mean")}, 1.0, client=client)
            for client, delta in arrived
        ]
        context = ServerContext(Layout(()), 3, 2)
        state = server.update(state, aggregate(Gather(), uploads, "weight"), context)
        found.append((state.model.x.item(), state.extra["mean"].item()))
    assert found == [
        pytest.approx((2.5, 5 / 3), rel=1e-12),
        pytest.approx((2.5 + 5 / 3, 5 / 3), rel=1e-12),
    ]


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_with_everybody_in_each_round_it_is_averaging(weights):
    keys = {"taus": (2, 7), "rounds": 4, "lr": 0.1, "weights": weights}
    assert run(algorithm="ca2fl", **keys) == pytest.approx(run(**keys), rel=1e-12)


BUFFERED = {
    "minima": range(6),
    "taus": (1, 1, 1, 9, 9, 9),
    "lr": 0.05,
    "cohort": 3,
    "rounds": 200,
    "device": {"name": "uniform", "low": 0.5, "high": 1.5},
    "synchrony": {"name": "buffered", "buffer": 1, "staleness": "constant"},
}


def test_in_a_buffer_it_rests_where_all_updates_cancel():
    """Client k moves x by (1 - .95^tau_k) (m_k - x): the weighted mean of the minima."""
    pull = [1 - 0.95**tau for tau in BUFFERED["taus"]]
    wanted = sum(p * m for p, m in zip(pull, BUFFERED["minima"], strict=True)) / sum(pull)
    method = {"name": "ca2fl", "server_lr": 0.5}
    assert run(algorithm=method, **BUFFERED) == pytest.approx(wanted, abs=0.005)


def test_a_run_goes_on_from_a_checkpoint():
    keys = {**BUFFERED, "algorithm": "ca2fl", "rounds": 8}
    whole, other = simulate(**keys), simulate(**keys)
    for _ in range(3):
        whole.step()
    other.restore(codec.decode(codec.encode(whole.save())))
    assert path_of(whole) == path_of(other)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"aggregator": "median"}, "needs every single upload, and the aggregator Median"),
        ({"weights": "score"}, 'got weights = "score", use "uniform" or "examples"'),
        ({"algorithm": {"name": "ca2fl", "server_lr": 0}}, "got lr = 0.0; expected a positive"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "ca2fl", **keys})
