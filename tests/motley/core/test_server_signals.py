"""Signals that the server computes from an update, worked by hand; NumPy arrays and torch
tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from motley.core.keys import Streams
from motley.core.records import CONTRIBUTION, SIGNALS
from motley.core.server_signals import (
    LAST_UPDATE,
    UPDATE_SIGNALS,
    next_consensus,
    update_signals,
)
from motley.core.sketch import SKETCHES
from motley.rounds.diagnostics import Diagnostics

UPDATE = [3.0, 4.0, 0.0]


def signals(make, norm, wanted=UPDATE_SIGNALS, rates=0.5, consensus=None):
    before = None if consensus is None else make(consensus)
    return update_signals(
        wanted, make(UPDATE), rates, lambda: make([7.0]), slice(1, 3), before, Streams(0), norm
    )


def torch_array(values):
    return torch.tensor(values, dtype=torch.float64)


LIBRARIES = pytest.mark.parametrize(
    ("make", "norm"), [(np.array, np.linalg.norm), (torch_array, torch.Tensor.norm)]
)


@LIBRARIES
def test_signals_by_hand(make, norm):
    found = signals(make, norm, consensus=[0.0, 2.0, 0.0])
    assert list(found) == sorted(UPDATE_SIGNALS)
    assert found["update_norm"] == 5.0
    assert found["cosine"] == 0.8  # <(3, 4, 0), (0, 2, 0)> / (5 * 2)
    assert found["gradient"].tolist() == [-6.0, -8.0, 0.0]
    assert found["last_layer"].tolist() == [7.0]
    assert found["output_bias"].tolist() == [4.0, 0.0]
    assert {name: len(found[name]) for name in SKETCHES} == dict(SKETCHES)
    assert np.linalg.norm(found["sketch"]) > 0


@LIBRARIES
def test_without_learning_rates_the_gradient_is_not_a_number(make, norm):
    for rates in (0.0, math.nan):
        found = signals(make, norm, {"gradient", "gradient_sketch"}, rates)
        assert np.isnan(found["gradient"]).all()
        assert np.isnan(found["gradient_sketch"]).any()


@LIBRARIES
def test_without_a_consensus_or_with_one_of_zero_the_cosine_is_not_a_number(make, norm):
    assert math.isnan(signals(make, norm, {"cosine"})["cosine"])
    assert math.isnan(signals(make, norm, {"cosine"}, consensus=[0.0, 0.0, 0.0])["cosine"])


@LIBRARIES
def test_the_consensus_keeps_nine_tenths(make, norm):
    first = next_consensus(None, make([1.0, 0.0]))
    assert first.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(next_consensus(first, make([0.0, 1.0])), [0.9, 0.1])


def test_masks_hide_what_is_made_of_one_update_or_gradient():
    """The server's own signals of an upload, those of a client's gradient, and nothing else; the
    diagnostics of a round compare single updates, too."""
    gradients = {"grad_norm", "max_grad_norm", "gradient", "gradient_sketch"}
    hidden = {name for name, signal in SIGNALS.items() if signal.single}
    assert hidden == UPDATE_SIGNALS | {LAST_UPDATE, CONTRIBUTION} | gradients
    assert Diagnostics.single_updates is not None
