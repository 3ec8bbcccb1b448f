"""FedExP: steps worked by hand, and which model is examined."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.fedexp import Extrapolation, MeanAndSquare
from motley.algorithms.parts import Part, ServerContext, Upload, aggregate
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.tasks.task import ModelState
from tests.motley.theory.test_algorithms import simulate


def steps(*rounds, eps=1e-12, weights=None):
    """Return the server states after rounds, each of the clients' updates as lists."""
    server = Extrapolation(eps)
    state = server.init(
        ModelState(torch.zeros(len(rounds[0][0])), torch.zeros(0), torch.zeros(0)), 4
    )
    states = []
    for updates in rounds:
        uploads = [
            Upload({"delta": Part(torch.tensor(update), "mean")}, w)
            for update, w in zip(updates, weights or [1.0] * len(updates), strict=True)
        ]
        total = aggregate(MeanAndSquare(), uploads, "weight")
        state = server.update(state, total, ServerContext(Layout(()), 4, len(updates)))
        states.append(state)
    return states


@pytest.mark.parametrize(
    ("updates", "eta"),
    [
        ([[3.0], [1.0]], 1.0),  # 5 / 8 is less than 1
        ([[3.0], [-1.0]], 2.5),  # 5 / 2
        ([[3.0, 0.0], [0.0, -1.0]], 1.0),  # 5 / (2 * 2.5)
        (torch.eye(4).tolist(), 2.0),  # 1 / (2 * 4 / 16)
    ],
)
def test_how_far_the_server_steps(updates, eta) -> None:
    (state,) = steps(updates)
    assert float(state.extra["eta"]) == pytest.approx(eta, rel=1e-9)
    mean = torch.tensor(updates).mean(0)
    assert state.model.x.tolist() == pytest.approx((eta * mean).tolist(), rel=1e-6)


def test_the_weights_are_those_of_the_round() -> None:
    """Weights .75 and .25 on 2 and -2: d = 1, mean square 4, eta = 4 / 2; eps = 1 halves it."""
    assert float(steps([[2.0], [-2.0]], weights=[0.75, 0.25])[0].extra["eta"]) == pytest.approx(2)
    (near,) = steps([[2.0], [-2.0]], weights=[0.75, 0.25], eps=1.0)
    assert float(near.extra["eta"]) == 1.0


def test_updates_that_cancel_do_not_step_without_bound() -> None:
    (state,) = steps([[1.0], [-1.0]], eps=0.1)
    assert (float(state.extra["eta"]), state.model.x.item()) == (pytest.approx(5.0), 0.0)


def test_the_mean_of_the_last_two_models_is_examined() -> None:
    """x = 2, then 6 with updates 3, 1 and 5, 3; after one round there is one model."""
    first, second = steps([[3.0], [1.0]], [[5.0], [3.0]])
    server = Extrapolation()
    assert [server.examined(s).model.x.item() for s in (first, second)] == [2.0, 4.0]
    assert second.model.x.item() == 6.0


def test_a_run_examines_and_saves_the_mean_and_trains_on_from_the_last() -> None:
    """Minima 30 and -10 and one step of rate .1: from 0 updates 3 and -1, eta 2.5 and x = 2.5.
    From there 2.75 and -1.25: d .75, mean square 4.5625, eta 4.0556 and x = 5.5417."""
    loop = simulate(
        minima=(30.0, -10.0),
        taus=(1, 1),
        lr=0.1,
        start=0.0,
        rounds=2,
        algorithm={"name": "fedexp", "eps": 1e-12},
    )
    loop.step()
    assert loop.newcomer_model().x.item() == pytest.approx(2.5)
    loop.step()
    eta = 4.5625 / (2 * 0.5625)
    server = loop.state.server
    assert loop.algorithm.server.notes(server)["server_lr"] == pytest.approx(eta)
    assert server.model.x.item() == pytest.approx(2.5 + 0.75 * eta)
    examined = 2.5 + 0.375 * eta
    assert loop.newcomer_model().x.item() == pytest.approx(examined)
    # the loss of the last evaluation is that of the mean
    loss = ((examined - 30) ** 2 + (examined + 10) ** 2) / 4
    assert loop.state.scores.newest["loss"] == pytest.approx(loss)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"server": "adam"}, "FedExP is its server's step, which the server rule ServerAdam"),
        ({"weights": "horvitz_thompson"}, 'weights must sum to 1.*Use "examples" or "uniform"'),
        ({"algorithm": {"name": "fedexp", "eps": 0}}, "got eps = 0.0; expected a positive number"),
        ({"aggregator": "median"}, "lengths of the single updates, which the aggregator Median"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "fedexp", **keys})


def test_a_stale_update_counts_with_the_length_that_it_is_scaled_to() -> None:
    """Two equal updates of 1, one of them scaled by a half: d = .75, mean square .625."""
    uploads = [
        Upload({"delta": Part(torch.tensor([value]), "mean")}, 1.0, scale)
        for value, scale in ((1.0, 1.0), (0.5, 0.5))
    ]
    total = aggregate(MeanAndSquare(), uploads, "weight")
    assert [total["delta"].item(), total["square"].item()] == [0.75, 0.625]
