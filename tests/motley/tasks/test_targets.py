"""The kinds of targets: how arrays are read, what label counts mean, what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError, DataError, ModelError
from motley.core.keys import Key
from motley.tasks import from_arrays, from_clients, own_task
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.task import Dataset

X = np.zeros((6, 2), np.float32)
CLIENT = np.repeat([0, 1], 3)
Y = np.array([[0, 1, 2], [2, 2, -100], [0, 0, 0], [1, -100, -100], [1, 1, 1], [2, 1, 0]])


def test_arrays_of_each_kind() -> None:
    assert from_arrays(X, Y[:, 0], CLIENT).targets == "classes"
    assert from_arrays(X, Y, CLIENT).targets == "positions"
    assert from_arrays(X, Y == 0, CLIENT, multilabel=True).targets == "multilabel"
    assert from_arrays(X, Y, CLIENT, regression=True).targets == "numbers"
    assert from_arrays(X, Y[:, 0] == 0, CLIENT, multilabel=True).y.shape == (6, 1)


def test_label_counts_by_hand() -> None:
    # One sample per client is set aside for testing; the other two train.
    data = from_arrays(X, Y, CLIENT, test_fraction=0.1)
    for k, rows in enumerate(data.train):
        counted = [int((Y[rows] == c).sum()) for c in range(3)]
        assert data.histogram()[k].tolist() == counted == data.histogram(clean=True)[k].tolist()
    assert data.positions(np.array([0, 1, 3])).tolist() == [3, 2, 1]  # type: ignore[union-attr]
    several = from_arrays(X, Y == 0, CLIENT, multilabel=True, test_fraction=0.1)
    for k, rows in enumerate(several.train):
        assert several.histogram()[k].tolist() == (Y[rows] == 0).sum(0).tolist()
    assert several.positions(np.arange(3)) is None


@pytest.mark.parametrize(
    ("y", "given", "message"),
    [
        (np.where(Y < 0, Y, Y - 1), {}, "labels out of range, from -1 to 1; expected 0 .. C - 1"),
        (
            np.where(Y == 1, 2, Y),
            {"multilabel": True},
            "labels of samples with several are 0 or 1 each",
        ),
        (
            Y[:5, 0],
            {},
            r"labels of shape \[5\] for 6 samples; expected one class per sample, or \[n, "
            r"T\] classes",
        ),
        (
            np.where(Y == 0, -100, np.where(Y == 2, -100, Y)),
            {},
            r"client 0, row 2 of its samples: no position has a target \(so in 2 samples\)",
        ),
    ],
)
def test_bad_targets_are_refused(y: np.ndarray, given: dict[str, bool], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(X, y, CLIENT, **given)


def test_clients_with_other_lengths_are_told_to_pad() -> None:
    with pytest.raises(
        DataError,
        match=r"client 1 has labels of shape \[3, 2\], client 0 of \[3, 3\]; fill .* with -100",
    ):
        from_clients([(X[:3], Y[:3]), (X[3:], Y[3:, :2])])


def test_outputs_that_do_not_fit_positions() -> None:
    with pytest.raises(
        ModelError,
        match=r"the Linear gives \[2, 3\] for a batch of 2; expected \[2, 3, 3\] \(a class per pos",
    ):
        own_task(from_arrays(X, Y, CLIENT), lambda: nn.Linear(2, 3))


def test_losses_that_are_chosen() -> None:
    task = own_task(from_arrays(X, Y == 0, CLIENT, multilabel=True), lambda: nn.Linear(2, 3))
    assert (task.loss, task.metric) == ("bce", "accuracy")
    model = nn.Sequential(nn.Linear(2, 9), nn.Unflatten(1, (3, 3)))
    task = own_task(from_arrays(X, Y, CLIENT), lambda: nn.Sequential(*model))
    assert (task.loss, task.metric) == ("cross_entropy", "accuracy")


def test_label_noise_needs_one_class_per_sample() -> None:
    dataset = Dataset(torch.from_numpy(X), torch.from_numpy(Y), 3, np.zeros(6, bool), CLIENT)
    given = partition_input(dataset, Split(), Key(0))
    parts = from_arrays(X, Y, CLIENT).train
    with pytest.raises(
        ConfigError,
        match=r"label_noise: label noise needs one class per sample; the targets .* class per "
        r"position",
    ):
        federate(
            dataset,
            given,
            parts,
            Split(),
            Key(0),
            label_noise=lambda labels, owner: (labels, np.zeros(2)),
        )
