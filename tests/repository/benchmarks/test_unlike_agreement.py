"""Clients of four architectures beside a plain loop of torch."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_digits

from benchmarks.unlike_agreement import differences, divided


@pytest.mark.parametrize("method", ["lg_fedavg", "fedproto"])
def test_both_learn_the_same(method):
    """Six clients, two rounds of five batches of ten, float64."""
    data = load_digits()
    x = (data.images[:, None] / 16 - 0.5).astype("float32")
    clients = divided(x, data.target.astype("int64"), 6)
    far, moved = differences(method, clients, 8, 10, rounds=2, steps=5)
    assert far < 1e-13
    assert moved > 1e-2
