"""The network and the data of the clients and the server. Torch and scikit-learn are imported
inside functions: Flower starts a process for every message, and the answer to a query about labels
should not wait for them."""

from __future__ import annotations

from typing import Any

import numpy as np

CLASSES = 10
TEST = 360  # digits that no client trains on


def network() -> Any:
    """Return the untrained network, the same each time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES)
    )


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return all 1797 digits, shuffled: pixels from 0 to 1 ``[n, 64]``, labels ``[n]``."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.data[order] / 16).astype(np.float32), data.target[order]


def test_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the server's test samples."""
    x, y = digits()
    return x[:TEST], y[:TEST]


def client_digits(client: int, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Return one client's samples: a share of each class (Dirichlet 0.5), so that clients differ in
    labels and size."""
    x, y = digits()
    x = x[TEST:]
    y = y[TEST:]
    shares = np.random.default_rng(1).dirichlet(np.full(clients, 0.5), CLASSES).cumsum(axis=1)
    place = np.random.default_rng(2).random(len(y))
    owner = np.minimum((place[:, None] > shares[y]).sum(axis=1), clients - 1)
    return x[owner == client], y[owner == client]
