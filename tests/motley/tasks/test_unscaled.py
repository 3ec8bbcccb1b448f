"""A warning where a model of one's own receives numbers that are not scaled, with the line that
mends it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as f

import motley
from motley.core.errors import ModelError
from motley.tasks import from_arrays, own_task
from motley.tasks.unscaled import large_targets

PIXELS = np.tile(np.array([[0, 255], [255, 0]], np.uint8), (20, 2))
"""Root mean square 255 / sqrt 2 = 180."""


def task(x: Any, model: Any = lambda: nn.Linear(4, 2), **options: Any) -> Any:
    return own_task(from_arrays(x, np.arange(40) % 2, np.arange(40) // 10), model, **options)


class Scaling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x / 255)
        return made


def test_pixels_are_to_be_divided_by_255() -> None:
    said = (
        r"receives numbers up to 255 \(root mean square 180\).*own_task\(..., transform=lambda "
        r"x, key: x / 255\)$"
    )
    with pytest.warns(UserWarning, match=said):
        task(PIXELS)


def test_large_numbers_are_to_be_standardized() -> None:
    """1000 and 1200: mean 1100; 40 samples of 4, as many of each: deviation 100 (times sqrt(160 /
    159))."""
    x = np.where(PIXELS > 0, 1200.0, 1000.0).astype(np.float32)
    said = (
        r"up to 1.2e\+03 .*transform=lambda x, key: \(x - 1.1e\+03\) / 100\); columns of a "
        r"table: table=\{.scale.: .federated.\}"
    )
    with pytest.warns(UserWarning, match=said):
        task(x)


@pytest.mark.parametrize(
    ("x", "model", "options"),
    [
        (PIXELS, lambda: nn.Linear(4, 2), {"transform": lambda x, key: x / 255}),
        (PIXELS, Scaling, {}),
        (PIXELS, lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), {}),
        (PIXELS / np.float32(255), lambda: nn.Linear(4, 2), {}),
        (np.full((40, 4), 9.9, np.float32), lambda: nn.Linear(4, 2), {}),
        (
            PIXELS.astype(np.int64),
            lambda: nn.Sequential(nn.Embedding(256, 3), nn.Flatten(), nn.Linear(12, 2)),
            {},
        ),
    ],
    ids=["transform", "in the model", "normalised", "in [0, 1]", "small", "words"],
)
def test_scaled_inputs_pass_without_a_word(x: Any, model: Any, options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = task(x, model, **options)
    assert torch.is_tensor(made.federation.x)


@pytest.mark.parametrize(
    "loss",
    [
        None,
        nn.CrossEntropyLoss(),
        {"name": "cross_entropy", "label_smoothing": 0.1},
        f.cross_entropy,
        lambda outputs, targets: f.cross_entropy(outputs, targets, reduction="none"),
    ],
)
def test_probabilities_are_no_logits(loss: Any) -> None:
    numbers = PIXELS / 255
    with pytest.warns(
        UserWarning,
        match="gives probabilities .* and cross_entropy takes logits.*leave the Softmax at its end "
        "out",
    ):
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1)), loss=loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 2), nn.LogSoftmax(-1)), loss=loss)


@pytest.mark.parametrize("loss", [nn.NLLLoss(), f.nll_loss, lambda o, y: -o[range(len(y)), y]])
@pytest.mark.parametrize("end", [nn.Softmax(-1), nn.Identity()])
def test_scores_and_probabilities_are_no_logarithms(loss: Any, end: nn.Module) -> None:
    numbers = PIXELS / 255
    with pytest.warns(UserWarning, match=r"takes logarithms of prob.*end in nn.LogSoftmax\(-1\)"):
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 2), end), loss=loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 2), nn.LogSoftmax(-1)), loss=loss)


def test_the_loss_of_a_sigmoid_may_be_a_function() -> None:
    numbers = PIXELS / 255

    def of_logits(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return f.binary_cross_entropy_with_logits(outputs[:, 0], targets.to(outputs.dtype))

    def of_probabilities(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return f.binary_cross_entropy(outputs[:, 0], targets.to(outputs.dtype))

    with pytest.warns(UserWarning, match=r"of a sigmoid\), and bce takes logits"):
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), loss=of_logits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), loss=of_probabilities)
        task(numbers, lambda: nn.Linear(4, 1), loss=of_logits)


@pytest.mark.parametrize("end", [nn.Sigmoid(), nn.Sequential(nn.Sigmoid(), nn.Unflatten(1, (1,)))])
def test_a_sigmoid_is_no_logit(end: nn.Module) -> None:
    numbers = PIXELS / 255
    with pytest.warns(
        UserWarning, match=r"of a sigmoid\), and bce takes logits.*leave the Sigmoid"
    ):
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 1), end))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task(numbers, lambda: nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 1)))


def test_one_hot_labels_are_told_apart() -> None:
    with pytest.raises(
        ModelError, match=r"need multilabel=True; of one-hot labels give y.argmax\(1\)\)$"
    ):
        own_task(
            from_arrays(PIXELS / 255, np.eye(2)[np.arange(40) % 2], np.arange(40) // 10),
            lambda: nn.Linear(4, 2),
        )


def test_large_targets_are_told(tmp_path: Path) -> None:
    """House prices of 200,000: the guard refused each step, and the line named no reason."""
    assert large_targets([290.0, -290.0]) == ""
    assert large_targets([]) == ""
    rows = [f"{k % 2},{k % 7 - 3},{200_000 + 1000 * (k % 5)}.5" for k in range(40)]
    (tmp_path / "houses.csv").write_text("\n".join(["town,rooms,label", *rows]) + "\n")
    task = {"name": "tabular_regression", "data": str(tmp_path / "houses.csv"), "client": "town"}
    keys: dict[str, Any] = {
        "task": {**task, "scale": "none"},
        "partition": "by_writer",
        "cohort": 2,
        "stop": {"rounds": 1},
    }
    with pytest.warns(UserWarning, match=r"mean square of 2\.02e\+05, .* divided by 100,000$"):
        motley.build(keys)
    private = {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "max_rounds": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        motley.build({**keys, "privacy": private, "weights": "uniform"})
