"""Evaluation where a sample has a class per position: every position counts once."""

import numpy as np
import pytest
import torch

from motley.core.ragged import Ragged
from motley.rounds.evaluation import evaluate
from motley.tasks.base import Federation


class Fixed:
    """An engine whose losses and hits are given."""

    def __init__(self, loss, hit):
        self.loss, self.hit = np.array(loss), np.array(hit)

    def evaluate(self, model, rows, labels=None):
        return self.loss[rows], self.hit[rows]


def test_positions_weigh_the_mean_by_hand():
    # Samples 0 and 1 (client 0) have 3 and 1 positions, sample 2 (client 1) has 2; samples 3 and 4 are the common test set, 2 and 1.
    y = torch.tensor([[0, 1, 1], [0, -100, -100], [1, 0, -100], [0, 0, -100], [1, -100, -100]])
    parts = Ragged(np.array([0, 2, 3]), np.arange(3))
    data = Federation(torch.zeros(5, 1), y, parts, y[:3], Ragged(np.zeros(3, np.int64), np.zeros(0, np.int64)), parts,
                      np.array([3, 4]), 2)  # fmt: skip
    engine = Fixed([1.0, 5.0, 2.0, 3.0, 6.0], [2 / 3, 0.0, 1 / 2, 1.0, 0.0])
    found = evaluate(engine, None, data, True)
    assert found["scope"] == ["global", "mean", "client", "client"]
    # global: (2 * 3 + 1 * 6) / 3 = 4 and 2/3; client 0: (3 * 1 + 1 * 5) / 4 = 2 and 2/4; client 1: 2 and 1/2; mean of clients: 2, 1/2.
    assert found["loss"].tolist() == pytest.approx([4.0, 2.0, 2.0, 2.0])
    assert found["accuracy"].tolist() == pytest.approx([2 / 3, 1 / 2, 1 / 2, 1 / 2])
    assert found["examples"].tolist() == [2, 3, 2, 1]
