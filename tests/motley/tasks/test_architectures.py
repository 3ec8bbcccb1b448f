"""Which client holds which model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.tasks.architectures import Architectures, UnlikeNetwork, dealt
from motley.tasks.flat import (
    ArchitectureState,
    FlatNetwork,
    ModelState,
    architecture_of,
    of_architecture,
)


def state(*x: float, number: int = 0) -> ModelState:
    """A model with these weights."""
    weights = torch.tensor(x).double()
    none = torch.zeros(0)
    return of_architecture(ModelState(weights, none.double(), none.long()), number)


def test_equal_shares_deal_in_turn():
    assert dealt([1, 1, 1], 7).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_counts_follow_the_shares_at_every_client():
    """Of the shares .5, .3, .2: after k clients each count is within 1 of its share of k."""
    numbers = dealt([5, 3, 2], 100)
    counts = np.stack([np.cumsum(numbers == i) for i in range(3)])
    wanted = np.outer([0.5, 0.3, 0.2], np.arange(1, 101))
    assert np.abs(counts - wanted).max() < 1
    assert counts[:, -1].tolist() == [50, 30, 20]


def test_a_newcomer_does_not_change_what_others_hold():
    assert dealt([2, 1], 5).tolist() == dealt([2, 1], 8)[:5].tolist()


def test_one_model_is_none_to_choose_from():
    with pytest.raises(ConfigError, match=r"got 1 model; expected at least two"):
        Architectures.of(["a"], [lambda: nn.Linear(1, 1)])


def test_a_number_that_no_model_has():
    two = Architectures.of(["a", "b"], [lambda: nn.Linear(1, 1), lambda: nn.Linear(1, 2)])
    with pytest.raises(ConfigError, match=r"got 2 as the number of a client's model; .* 0 to 1"):
        Architectures(two.names, two.factories, two.layouts, np.array([0, 2]))


def test_a_state_keeps_its_architecture():
    moved = state(1.0, number=2).to("cpu")
    assert isinstance(moved, ArchitectureState)
    assert architecture_of(moved) == 2
    assert architecture_of(state(1.0)) == 0


def test_a_network_of_the_states_own():
    """Two networks of two weights each: (2 u, 3 u), and 2 u + 3, with the gradient of the sum of
    outputs at u = 5: (5, 5), and (5, 1)."""
    factories = lambda: nn.Linear(1, 2, bias=False), lambda: nn.Linear(1, 1)
    network = UnlikeNetwork(tuple(FlatNetwork(f, torch.float64) for f in factories))
    u = torch.tensor([[5.0]]).double()
    assert network.outputs(state(2.0, 3.0), u).tolist() == [[10.0, 15.0]]
    assert network.outputs(state(2.0, 3.0, number=1), u).tolist() == [[13.0]]
    slopes = [
        network.loss_gradient(state(2.0, 3.0, number=number), u, torch.sum) for number in (0, 1)
    ]
    assert [slope.gradient.tolist() for slope in slopes] == [[5.0, 5.0], [5.0, 1.0]]
    assert [architecture_of(slope.state) for slope in slopes] == [0, 1]
