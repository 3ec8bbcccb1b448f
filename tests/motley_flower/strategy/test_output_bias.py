"""Where the bias of the output layer is in a model of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from motley_flower.strategy.reply_signals import last_layer, model_vector, output_bias

HEAD = {"head.weight": np.ones((3, 2)), "head.bias": np.array([7.0, 8.0, 9.0])}
BASE = {"base.weight": np.ones((2, 4)), "norm.running_mean": np.zeros(2), "steps": np.array(1)}


@pytest.mark.parametrize("more", [{}, {"temperature": np.ones(1)}])
def test_the_bias_is_found_in_the_vector(more) -> None:
    """Statistics and counters are no part of the vector."""
    arrays = {**BASE, **HEAD, **more}
    found = output_bias(arrays)
    assert model_vector(arrays)[found].tolist() == [7.0, 8.0, 9.0]
    assert last_layer(arrays)[-3:].tolist() == [7.0, 8.0, 9.0]


@pytest.mark.parametrize("arrays", [{}, BASE, {"head.weight": np.ones((3, 2)), "x": np.ones(2)}])
def test_a_model_without_one_has_none(arrays) -> None:
    assert output_bias(arrays) is None
