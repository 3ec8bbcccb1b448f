"""What server and clients share: the network, and who has which digits. Torch and scikit-learn are imported where they are needed:
in a deployment every message is a new process, and a question about labels should not wait for them."""

from __future__ import annotations

from typing import Any

import numpy as np

CLASSES = 10
TEST = 360  # digits that nobody trains on


def network() -> Any:
    """An untrained network; the same each time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All 1797 digits, shuffled: pixels from 0 to 1, labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.data[order] / 16).astype(np.float32), data.target[order]


def test_digits() -> tuple[np.ndarray, np.ndarray]:
    """What the server tests on."""
    x, y = digits()
    return x[:TEST], y[:TEST]


def site_digits(site: int, sites: int) -> tuple[np.ndarray, np.ndarray]:
    """What one of so many sites has: of each class a share of its own (Dirichlet 0.5), so sites differ in labels and size."""
    x, y = digits()
    x, y = x[TEST:], y[TEST:]
    shares = np.random.default_rng(1).dirichlet(np.full(sites, 0.5), CLASSES).cumsum(axis=1)
    place = np.random.default_rng(2).random(len(y))
    owner = np.minimum((place[:, None] > shares[y]).sum(axis=1), sites - 1)
    return x[owner == site], y[owner == site]
