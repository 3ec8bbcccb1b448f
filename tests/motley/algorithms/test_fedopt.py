"""Bias corrections of the server's Adam; first steps stand in tests/motley/theory."""

from __future__ import annotations

import math

import pytest
import torch

from motley.algorithms.fedopt import FedYogi, ServerAdam
from motley.core.errors import ConfigError
from tests.motley.algorithms.server_contexts import context, model


def test_a_corrected_server_steps_as_torch_does() -> None:
    """Five rounds with updates that change sign."""
    server = ServerAdam(lr=0.05, tau=1e-8, bias_correction="adam")
    state = server.init(model(0.0, 0.0, 0.0), population=1)
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    reference = torch.optim.Adam([weight], lr=0.05, betas=(0.9, 0.99), eps=1e-8)
    for number in range(5):
        delta = torch.tensor([1.0, -0.5, 0.1], dtype=torch.float64) * math.cos(number)
        state = server.update(state, {"delta": delta}, context(3))
        weight.grad = -delta
        reference.step()
    torch.testing.assert_close(state.model.x, weight.detach(), rtol=1e-12, atol=0)


def test_flowers_correction_takes_an_exponent_one_higher() -> None:
    """The second step: m = .9 * .1 + .1 * .2 = .11, v = .99 * .01 + .01 * .04 = .0103, and the
    rate's factor sqrt(1 - .99^3) / (1 - .9^3)."""
    server = ServerAdam(lr=0.1, bias_correction="flower")
    first = server.update(
        server.init(model(0.0), population=1), {"delta": torch.ones(1).double()}, context(1)
    )
    second = server.update(first, {"delta": torch.tensor([0.2], dtype=torch.float64)}, context(1))
    factor = math.sqrt(1 - 0.99**3) / (1 - 0.9**3)
    step = 0.1 * factor * 0.11 / (math.sqrt(0.0103) + 0.001)
    assert (second.model.x - first.model.x).item() == pytest.approx(step, rel=1e-12)


def test_a_given_first_v_stays() -> None:
    """v = .99 * 1 + .01 * .01 = .9901, which the correction of v from 0 still divides by .01."""
    server = ServerAdam(lr=0.1, first_v=1.0, bias_correction="adam")
    state = server.init(model(0.0), population=1)
    after = server.update(state, {"delta": torch.tensor([0.1], dtype=torch.float64)}, context(1))
    step = 0.1 * 0.1 / (math.sqrt(0.9901 / 0.01) + 0.001)
    assert after.model.x.item() == pytest.approx(step, rel=1e-12)


def test_a_bias_correction_is_one_of_two() -> None:
    with pytest.raises(
        ConfigError, match="got bias_correction = True; expected 'adam' or 'flower'"
    ):
        FedYogi(bias_correction=True)
