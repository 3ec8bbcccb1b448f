"""Evaluation where a sample has a class per position: every position counts once."""

import numpy as np
import pytest
import torch

from motley.core.ragged import Ragged
from motley.rounds.evaluation import evaluate
from motley.tasks.metrics import as_metric
from motley.tasks.task import Federation


class Fixed:
    """An engine whose losses and hits are given."""

    def __init__(self, loss, hit):
        self.loss = np.array(loss)
        self.hit = np.array(hit)

    def evaluate(self, model, rows, labels=None, want=frozenset({"hit"}), sizes=None):
        return {"loss": self.loss[rows], "hit": self.hit[rows]}


def test_positions_weigh_the_mean_by_hand():
    # Samples 0 and 1 (client 0) have 3 and 1 positions, sample 2 (client 1) has 2; samples 3 and 4
    # are the common test set, 2 and 1.
    y = torch.tensor([[0, 1, 1], [0, -100, -100], [1, 0, -100], [0, 0, -100], [1, -100, -100]])
    parts = Ragged(np.array([0, 2, 3]), np.arange(3))
    data = Federation(
        torch.zeros(5, 1),
        y,
        parts,
        y[:3],
        Ragged(np.zeros(3, np.int64), np.zeros(0, np.int64)),
        parts,
        np.array([3, 4]),
        2,
    )
    engine = Fixed([1.0, 5.0, 2.0, 3.0, 6.0], [2 / 3, 0.0, 1 / 2, 1.0, 0.0])
    found = evaluate(engine, None, data, True).rows
    assert found["scope"] == ["global", "mean", "client", "client"]
    # global: (2 * 3 + 1 * 6) / 3 = 4 and 2/3; client 0: (3 * 1 + 1 * 5) / 4 = 2 and 2/4; client 1:
    # 2 and 1/2; mean of clients: 2, 1/2.
    assert found["loss"].tolist() == pytest.approx([4.0, 2.0, 2.0, 2.0])
    assert found["accuracy"].tolist() == pytest.approx([2 / 3, 1 / 2, 1 / 2, 1 / 2])
    assert found["examples"].tolist() == [2, 3, 2, 1]


def _clients(y, sizes, classes):
    rows = Ragged(np.concatenate([[0], np.cumsum(sizes)]), np.arange(sum(sizes)))
    return Federation(
        torch.zeros(len(y), 1),
        torch.tensor(y),
        rows,
        torch.tensor(y),
        Ragged(np.zeros(len(sizes) + 1, np.int64), np.zeros(0, np.int64)),
        rows,
        None,
        classes,
    )


class Says:
    """An engine that predicts given classes, with given scores of the second of two classes."""

    def __init__(self, predicted, scores):
        self.found = {
            "predicted": np.array(predicted),
            "outputs": np.array([[-s, s] for s in scores]),
        }

    def evaluate(self, model, rows, labels=None, want=frozenset({"hit"}), sizes=None):
        n = np.zeros(len(rows))
        return {
            "loss": n,
            "hit": n,
            **{name: self.found[name][rows] for name in want if name in self.found},
        }


def test_metrics_pooled_and_per_client_by_hand():
    # Client 0 has classes 0 0 1 1 and scores 1 2 3 0: of the 4 pairs of a positive and a negative 2
    # are in order, AUROC 1/2. Client 1 has class 1 twice: undefined. Client 2 has no test sample.
    # Together: positives score 3 0 5 4, negatives 1 2: in order are 3, 5, 4 against both, so 6 of
    # 8.
    data = _clients([0, 0, 1, 1, 1, 1], (4, 2, 0), 2)
    found = evaluate(
        Says([0, 1, 1, 0, 1, 1], [1, 2, 3, 0, 5, 4]),
        None,
        data,
        True,
        metrics=[as_metric("auroc"), as_metric("macro_f1")],
    )
    rows = {
        (scope, metric, client): (value, missing)
        for scope, metric, client, value, missing in zip(
            *(found.metrics[name] for name in ("scope", "metric", "client", "value", "undefined")),
            strict=True,
        )
    }
    assert rows[("pooled", "auroc", -1)] == (pytest.approx(6 / 8), 0)
    assert rows[("mean", "auroc", -1)] == (pytest.approx(1 / 2), 1)
    assert rows[("client", "auroc", 0)] == (pytest.approx(1 / 2), 0)
    value, missing = rows[("client", "auroc", 1)]
    assert np.isnan(value)
    assert missing == 1
    assert ("client", "auroc", 2) not in rows
    # F1 of client 0: each class 1 of 2 right, 2 predicted, 1/2 and 1/2; of client 1: 1.
    # Together class 0: 2 * 1 / (2 + 2), class 1: 2 * 3 / (4 + 4).
    assert rows[("client", "macro_f1", 0)][0] == pytest.approx(1 / 2)
    assert rows[("mean", "macro_f1", -1)] == (pytest.approx((1 / 2 + 1) / 2), 0)
    assert rows[("pooled", "macro_f1", -1)][0] == pytest.approx((1 / 2 + 3 / 4) / 2)
    assert found.scores["auroc"] == rows[("mean", "auroc", -1)][0]
    assert list(found.metrics["examples"][:2]) == [6, 6]


def test_no_client_has_the_metric():
    data = _clients([1, 1], (1, 1), 2)
    found = evaluate(Says([1, 1], [0, 1]), None, data, False, metrics=[as_metric("auroc")])
    assert found.metrics["scope"] == ["pooled", "mean"]
    assert np.isnan(found.metrics["value"]).all()
    assert found.metrics["undefined"].tolist() == [1, 2]
