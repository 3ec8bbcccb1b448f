"""FedEx-LoRA: means and residuals by hand, exactness, what travels."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.fedex_lora import FedExLoRA, MeansAndResidual
from motley.algorithms.flexlora import FlexLoRA
from motley.algorithms.flora import RANKS
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.lora_fedavg import LoRAFedAvg
from motley.core.adapters import adapters_of, merged_of
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.testing.algorithms import Play
from tests.motley.algorithms.test_ranks import NOTHING, ONE, OTHER, factors, keys, stepped


def test_means_and_residual_of_two_clients():
    """Means (.75, .25) of both factors; diag(.75, .25) less their product."""
    state = stepped(MeansAndResidual, 1, NOTHING, ONE, OTHER)
    a, b = factors(state, 1)
    assert a.tolist() == [[0.75, 0.25]]
    assert b.tolist() == [[0.75], [0.25]]
    assert state.model.buffers.tolist() == [0.1875, -0.1875, -0.1875, 0.1875]
    assert state.extra[RANKS].tolist() == [[2]]


class OneRank(MeansAndResidual):
    """A residual cut to one rank."""

    def __init__(self, layout):
        super().__init__(layout=layout, residual_ranks=1)


def test_a_residual_cut_to_one_rank_has_the_largest_singular_value():
    """Three clients of equal weight, products diag(3, 0) e.g.: A = (1, 0), B = (3, 0); A = (0, 1),
    B = (0, 3); nothing. Means A = (1, 1) / 3, B = (1, 1), product 1 / 3 everywhere: residual ((2,
    -1), (-1, 2)) / 3 of singular values 1 and 1 / 3: cut, ((1, -1), (-1, 1)) / 2."""
    clients = [
        (1.0, [[1.0, 0.0]], [[3.0], [0.0]]),
        (1.0, [[0.0, 1.0]], [[0.0], [3.0]]),
        (1.0, [[0.0, 0.0]], [[0.0], [0.0]]),
    ]
    whole = stepped(MeansAndResidual, 1, NOTHING, *clients).model.buffers
    torch.testing.assert_close(whole, torch.tensor([2.0, -1.0, -1.0, 2.0]) / 3)
    state = stepped(OneRank, 1, NOTHING, *clients)
    torch.testing.assert_close(state.model.buffers, torch.tensor([1.0, -1.0, -1.0, 1.0]) / 2)
    assert state.extra[RANKS].tolist() == [[1]]


def test_the_model_after_a_round_is_that_of_the_mean_of_products():
    """Also where clients hold a quarter of the ranks, and after what earlier rounds merged: every
    layer's product has moved by the weighted mean of the clients' products."""
    play = Play(FedExLoRA(), "examples", SGD(lr=0.1))
    pairs = adapters_of(play.setting.task.layout)
    places = merged_of(play.setting.task.layout)
    for number, cohort in enumerate([(2, 0, 5), (1, 2, 7)]):
        before = play.server
        done = play.round(number, cohort)
        after = play.server
        weights = torch.tensor([float((7, 1, 13, 12, 4, 11, 5, 9)[t.client]) for t in done])
        for (a, b), place in zip(pairs, places, strict=True):
            wanted = before.model.buffers[place.slice].view(place.shape).clone()
            for weight, trained in zip(weights / weights.sum(), done, strict=True):
                part = trained.parts["delta"]
                held = torch.ones_like(part.value) if part.held is None else part.held.double()
                x = (before.model.x + part.value) * held
                wanted += weight * x[b.slice].view(b.shape) @ x[a.slice].view(a.shape)
            x = after.model.x
            found = x[b.slice].view(b.shape) @ x[a.slice].view(a.shape)
            found = found + after.model.buffers[place.slice].view(place.shape)
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


def test_one_client_leaves_nothing_over():
    ends = []
    for method in (FedExLoRA(), LoRAFedAvg()):
        play = Play(method, "examples", SGD(lr=0.1)).run([(3,), (3,)])
        ends.append(play.server.model.x)
    torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-15)


def test_a_client_is_sent_the_means_and_what_it_missed():
    """80 numbers of factors. One client a round leaves a residual of 4 ranks, 44 + 36 numbers, of
    which the products' 30 + 20 are less: from a client's first missed round on, 50 more. Cut to one
    rank it has 11 + 9 numbers a round."""
    for options, sent in (({}, {0: 80, 1: 130, 2: 130}), ({"residual_ranks": 1}, {1: 100, 2: 120})):
        loop = build(keys({"name": "fedex_lora", **options}, 2, cohort=1, stop={"rounds": 6}))
        last = dict.fromkeys(range(2), 0)
        seen = set()
        for number in range(6):
            before = loop.state.ledger.total("model", "down")
            loop.step()
            kept = loop.state.clients.client_states
            (asked,) = (k for k in kept if int(kept[k]["merged"]) == number)
            missed = number - last[asked]
            last[asked] = number
            seen.add(missed)
            if missed in sent:
                assert loop.state.ledger.total("model", "down") - before == 32 * sent[missed]
        assert seen >= {0, 1, 2}


def test_a_run_goes_on_with_what_was_merged():
    loops = [build(keys("fedex_lora", stop={"rounds": 4})) for _ in range(2)]
    for _ in range(2):
        loops[0].step()
    loops[1].restore(loops[0].save())
    for loop in loops:
        while not loop.done:
            loop.step()
    one, other = (loop.state for loop in loops)
    assert torch.equal(one.server.model.x, other.server.model.x)
    assert torch.equal(one.server.model.buffers, other.server.model.buffers)
    assert one.ledger.total_bits == other.ledger.total_bits


def test_flexlora_of_all_ranks_and_this_make_the_same_model():
    """With one client a round that never changes, and with one rank of two clients cut: what
    FlexLoRA cannot hold in its ranks, the residual holds."""
    models = [Play(method, "examples", SGD(lr=0.1)) for method in (FlexLoRA(), FedExLoRA())]
    outputs = []
    for play in models:
        play.round(0, (3,))
        network = play.context(1, [3]).network
        outputs.append(network.outputs(play.server.model, play.setting.task.federation.x[:9]))
    torch.testing.assert_close(*outputs)


def test_refused():
    with pytest.raises(ConfigError, match="got residual_ranks = 0; expected at least 1, or leave"):
        FedExLoRA(residual_ranks=0)
    with pytest.raises(ConfigError, match="Median works on whole updates"):
        build(keys("fedex_lora", aggregator="median"))
