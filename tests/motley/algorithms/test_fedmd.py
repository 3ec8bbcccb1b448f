"""FedMD's consensus and digest, by hand on two architectures."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.fedmd import DigestedModel, FedMD
from motley.algorithms.parts import ExtraExchange
from motley.core.errors import ConfigError
from motley.tasks.task import ModelState
from tests.motley.algorithms.server_contexts import ones, state
from tests.motley.algorithms.unlike import context, kept, without_parts


def digested(method, states, holders, **given):
    """The clients' models after one server step."""
    clients = without_parts(sorted(states))
    _, after = method.update_with_clients(state(), clients, states, context(holders, **given))
    return {client: after[client]["x"].tolist() for client in after}


def test_two_architectures_move_towards_their_mean_scores():
    """Scores (2, 0) of the first, (0, 1) of the second: the mean is (1, 1/2). Adam's first step of
    .1 has the sign of the gradient, -1 for each score above the mean: w (1.9, .1); the second's
    slopes (.1, -.1) and biases (.1, .9)."""
    after = digested(FedMD(lr=0.1), {0: kept(2, 0), 1: kept(0, 0, 0, 1)}, [0, 1])
    assert after[0] == pytest.approx([1.9, 0.1], abs=1e-7)
    assert after[1] == pytest.approx([0.1, -0.1, 0.1, 0.9], abs=1e-7)


def test_the_mean_is_of_scores_and_not_of_probabilities():
    """Scores (6, 0) and (0, 2): the mean (3, 1) lies above the second client's first score and
    below its second; the mean of their softmaxes, (.558, .442) against (.119, .881), too, but of
    the first client's second score 0 the mean of scores says up."""
    after = digested(FedMD(lr=0.1), {0: kept(6, 0), 1: kept(0, 0, 0, 2)}, [0, 1])
    assert after[0] == pytest.approx([5.9, 0.1], abs=1e-7)


def test_several_epochs_are_several_steps():
    """Adam's second step with the same gradient is .1 as well."""
    after = digested(FedMD(lr=0.1, epochs=2), {0: kept(2, 0), 1: kept(0, 0, 0, 1)}, [0, 1])
    assert after[0] == pytest.approx([1.8, 0.2], abs=1e-6)


def test_a_client_alone_digests_nothing():
    assert digested(FedMD(), {0: kept(2, 0)}, [0]) == {0: [2.0, 0.0]}


def test_scores_that_are_not_finite_do_not_count():
    """The mean of the others is (1, 1/2) as before; who sent them is left out, and keeps the
    model of before the round."""
    states = {0: kept(2, 0), 1: kept(0, 0, 0, 1), 2: kept(float("nan"), 0)}
    after = digested(FedMD(lr=0.1), states, [0, 1, 0])
    assert sorted(after) == [0, 1]
    assert after[0] == pytest.approx([1.9, 0.1], abs=1e-7)


def test_samples_bound_what_is_exchanged():
    """Of 3 public samples 2 take part, in batches of 1 and two epochs: 2 x 10 scores each way, and
    2 forward passes and 4 training steps, which count 3 each."""
    exchange = FedMD(samples=2, batch_size=1, epochs=2).extra_exchange(3, 10)
    assert exchange == ExtraExchange(up=20, down=20, batches=14.0)
    calls = []
    given = context([0, 1], public=ones(3))
    outputs = given.network.outputs
    object.__setattr__(
        given.network, "outputs", lambda *args: calls.append(len(args[1])) or outputs(*args)
    )
    states = {0: kept(2, 0), 1: kept(0, 0, 0, 1)}
    FedMD(samples=2).update_with_clients(state(), without_parts([0, 1]), states, given)
    assert calls == [2, 2]


def test_a_client_is_examined_with_its_model_before_digest():
    rule = DigestedModel()
    none = torch.zeros(0)
    trained = rule.initial_state(ModelState(torch.ones(2), none, none.long()))
    now = {**trained, "x": torch.full((2,), 5.0)}
    assert rule.start({}, now).x.tolist() == [5.0, 5.0]
    assert rule.examined({}, now).x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, r"got samples = 0; expected at least 1"),
        ({"epochs": 0}, r"got epochs = 0; expected at least 1"),
        ({"batch_size": 0}, r"got batch_size = 0; expected at least 1"),
        ({"lr": 0.0}, r"got lr = 0.0; expected a positive number"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ConfigError, match=message):
        FedMD(**options)
