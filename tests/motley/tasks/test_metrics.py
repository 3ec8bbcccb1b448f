"""Metrics: values worked out by hand, where they are undefined, and what is refused."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError, ModelError
from motley.engines.scores import measured
from motley.tasks import from_arrays, own_task
from motley.tasks.metrics import Metric, as_metric, chosen, known
from motley.tasks.task import Targets

RNG = np.random.default_rng(0)


def value(name: str, outputs: Any, targets: Any, kind: Targets = "classes") -> float:
    """Return a metric of outputs, through what the engines measure of them."""
    out = torch.tensor(outputs, dtype=torch.float64)
    wanted = torch.tensor(targets)
    metric = as_metric(name)
    weight = (wanted != -100).sum(1).numpy() if kind == "positions" else None
    return metric.value(measured(metric.needs, out, wanted, kind).numpy(), wanted.numpy(), weight)


# Four samples of classes 0, 0, 1, 2; the largest output is at 0, 1, 1, 1.
OUTPUTS = [[3.0, 2.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, -1.0], [0.0, 2.0, 1.0]]
CLASSES = [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("balanced_accuracy", (1 / 2 + 1 + 0) / 3),  # recall of the three classes
        ("macro_f1", (2 / 3 + 1 / 2 + 0) / 3),  # 2 TP / (true + predicted): 2/3, 2/4, 0/1
        ("top2", 4 / 4),
        ("top1", 2 / 4),
    ],
)
def test_figures_of_classes(name: str, expected: float) -> None:
    assert value(name, OUTPUTS, CLASSES) == pytest.approx(expected)


def test_perplexity_by_hand() -> None:
    # Probabilities of the targets 1/2 and 1/8: the mean of -log is 2 log 2, the perplexity 4.
    outputs = np.log([[1 / 2, 1 / 2], [7 / 8, 1 / 8]])
    assert value("perplexity", outputs, [0, 1]) == pytest.approx(4.0)
    # Positions: 1/2, 1/2 and 1/8 are three positions of two samples; the mean of -log is 5/3 log 2.
    several = np.log([[[1 / 2, 1 / 2], [1 / 2, 1 / 2]], [[7 / 8, 1 / 8], [1 / 2, 1 / 2]]])
    assert value("perplexity", several, [[0, 1], [1, -100]], "positions") == pytest.approx(
        2 ** (5 / 3)
    )


def test_positions_are_samples_of_their_own() -> None:
    outputs = np.array([OUTPUTS[:2], OUTPUTS[2:]])
    for name in ("balanced_accuracy", "macro_f1", "top2", "perplexity"):
        assert value(name, outputs, [CLASSES[:2], CLASSES[2:]], "positions") == pytest.approx(
            value(name, OUTPUTS, CLASSES)
        )
    assert value("top1", outputs, [[0, -100], [1, 2]], "positions") == pytest.approx(2 / 3)


def test_auroc_by_hand() -> None:
    # Scores 1 2 | 0 3 of negatives | positives, one logit: 3 beats both, 0 none: 2 of 4. A tie
    # counts a half: 1 1 | 1 -> 1/2.
    assert value("auroc", [[1.0], [2.0], [0.0], [3.0]], [0, 0, 1, 1]) == pytest.approx(2 / 4)
    assert value("auroc", [[1.0], [1.0], [1.0]], [0, 0, 1]) == pytest.approx(1 / 2)
    # Labels: the first as above, the second has no positive and is left out.
    labels = [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert value(
        "auroc", [[1.0, 9], [2.0, 9], [0.0, 9], [3.0, 9]], labels, "multilabel"
    ) == pytest.approx(2 / 4)


@pytest.mark.parametrize("scale", [1.0, 40.0, 1000.0])
def test_auroc_of_confident_outputs_ranks_their_log_odds(scale: float) -> None:
    """Their softmax rounds to 1 and ties: of two classes by the difference of the logits, of more
    by the logit minus the logsumexp of the others."""
    from sklearn.metrics import roc_auc_score

    y = np.arange(200) % 2
    gap = (scale * (RNG.normal(size=200) + y + 2)).astype(np.float32)
    expected = roc_auc_score(y, gap)
    assert value("auroc", np.stack([-gap / 2, gap / 2], 1), y) == pytest.approx(expected)
    assert value("auroc", gap[:, None], y) == pytest.approx(expected)
    y = np.arange(60) % 3
    outputs = scale * (RNG.normal(size=(60, 3)) + np.eye(3)[y])
    odds = [
        outputs[:, c] - np.logaddexp.reduce(np.delete(outputs, c, axis=1), axis=1) for c in range(3)
    ]
    expected = np.mean([roc_auc_score(y == c, odds[c]) for c in range(3)])
    assert value("auroc", outputs, y) == pytest.approx(expected)


def test_auroc_of_classes_that_a_model_rules_out_by_hand() -> None:
    """A logit of -inf is a probability of 0, the lowest rank; +inf is no probability."""
    ruled_out = [[0.0, -math.inf, -math.inf], [0.0, 1.0, -math.inf], [0.0, 2.0, -math.inf]]
    # class 0: odds inf, -1, -2, positive the first: 1; class 1: -inf, 1, 2, positive the others: 1
    assert value("auroc", ruled_out, [0, 1, 1]) == 1.0
    assert math.isnan(value("auroc", [[0.0, math.inf, 0.0], [0.0, 1.0, 0.0]], [0, 1]))
    assert math.isnan(value("auroc", [[0.0, math.inf], [0.0, 1.0]], [0, 1]))


def test_auroc_and_balanced_accuracy_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    outputs = RNG.normal(size=(60, 4)).round(1)
    y = RNG.integers(0, 4, 60)
    p = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    assert value("auroc", outputs, y) == pytest.approx(roc_auc_score(y, p, multi_class="ovr"))
    assert value("balanced_accuracy", outputs, y) == pytest.approx(
        balanced_accuracy_score(y, outputs.argmax(1))
    )


def test_figures_of_classes_are_those_of_scikit_learn_to_the_bit() -> None:
    """Classes that never occur, or are never predicted, among them."""
    from sklearn.metrics import f1_score, recall_score

    for samples, classes in ((1, 2), (2, 3), (7, 4), (60, 10), (60, 200)):
        for _ in range(5):
            y, said = RNG.integers(0, classes, (2, samples))
            metric, recall = as_metric("macro_f1"), as_metric("balanced_accuracy")
            assert metric.value(said, y) == f1_score(y, said, average="macro")
            present = {"labels": np.unique(y), "average": "macro"}
            assert recall.value(said, y) == recall_score(y, said, **present)
            labels, told = RNG.integers(0, 2, (2, samples, classes))
            assert metric.value(told, labels.astype(float)) == f1_score(
                labels, told, average="macro", zero_division=np.nan
            )


def test_f1_of_labels_by_hand() -> None:
    # Predicted (output above 0): 1 1, 0 1, 1 0. F1 of the first label 2 * 1 / (2 + 1), of the
    # second 2 * 1 / (2 + 1).
    outputs = [[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]]
    targets = [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert value("macro_f1", outputs, targets, "multilabel") == pytest.approx(2 / 3)
    assert value("macro_f1", [[1.0], [1.0]], [[1.0], [0.0]], "multilabel") == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    # residuals 1, 0, 2; targets 1, 2, 3
    [("mae", (1 + 0 + 2) / 3), ("rmse", math.sqrt(5 / 3)), ("r2", 1 - 5 / 2)],
)
def test_figures_of_numbers(name: str, expected: float) -> None:
    assert value(name, [[2.0], [2.0], [1.0]], [[1.0], [2.0], [3.0]], "numbers") == pytest.approx(
        expected
    )


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "kind"),
    [
        ("auroc", [[1.0, 2.0], [0.0, 1.0]], [1, 1], "classes"),
        ("auroc", [[math.nan, 2.0], [0.0, 1.0]], [0, 1], "classes"),
        ("r2", [[1.0]], [[1.0]], "numbers"),
        ("r2", [[1.0], [2.0]], [[1.0], [1.0]], "numbers"),
        ("mae", [[math.nan]], [[1.0]], "numbers"),
        ("macro_f1", [[-1.0, -1.0]], [[0.0, 0.0]], "multilabel"),
    ],
)
def test_undefined_is_nan_without_a_warning(
    name: str, outputs: Any, targets: Any, kind: Targets
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(value(name, outputs, targets, kind))


# ------------------------------------------------------------------------------------- of one's own


class Accumulates:
    """Counts samples as objects of torchmetrics do: update, compute, reset."""

    higher_is_better = False

    def __init__(self) -> None:
        self.total = 1000

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.total += len(outputs)

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.total)

    def reset(self) -> None:
        self.total = 0


def share_of_ones(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (targets == 1).float().mean()


def test_functions_and_objects_are_metrics() -> None:
    from sklearn.metrics import roc_auc_score

    own = as_metric(share_of_ones)
    object_ = as_metric(Accumulates())
    outputs = np.zeros((4, 2))
    y = np.array([0, 1, 1, 1])
    assert (own.name, own.higher_is_better, own.value(outputs, y)) == ("share_of_ones", True, 0.75)
    assert (
        object_.name,
        object_.higher_is_better,
        object_.value(outputs, y),
        object_.value(outputs, y),
    ) == (
        "accumulates",
        False,
        4,
        4,
    )
    assert as_metric(lambda outputs, targets: 1.0).name == "metric"
    assert math.isnan(
        Metric("auc", lambda outputs, targets: roc_auc_score(targets, outputs[:, 1])).value(
            outputs[:2], y[1:3]
        )
    )


def test_functions_that_fail_are_named() -> None:
    outputs = np.zeros((4, 2))
    y = np.array([0, 1, 1, 1])
    with pytest.raises(
        ModelError,
        match=r"the metric 'broken' cannot take outputs \[4, 2\] and targets \[4\]: division by "
        r"zero",
    ):
        Metric("broken", lambda outputs, targets: 1 / 0).value(outputs, y)
    with pytest.raises(ModelError, match="the metric 'several' gives Tensor; expected one number"):
        Metric("several", lambda outputs, targets: outputs).value(outputs, y)
    with pytest.raises(ModelError, match="got the metric 3; expected a name, or a function"):
        as_metric(3)


# ------------------------------------------------------------------------------------- names


def test_names_for_every_kind_of_targets() -> None:
    assert known("classes") == [
        "accuracy",
        "auroc",
        "balanced_accuracy",
        "loss",
        "macro_f1",
        "perplexity",
        "top5",
    ]
    assert known("positions") == [
        "accuracy",
        "balanced_accuracy",
        "loss",
        "macro_f1",
        "perplexity",
        "top5",
    ]
    assert known("multilabel") == ["accuracy", "auroc", "loss", "macro_f1"]
    assert known("numbers") == ["loss", "mae", "r2", "rmse"]


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        (
            ["macro_f2"],
            "classes",
            r"metrics: got 'macro_f2' \(did you mean 'macro_f1'\?\); expected some of: accuracy, "
            r"auroc, ",
        ),
        (
            ["mae"],
            "classes",
            "got 'mae', which is of numbers, and the targets of this task are classes; use some "
            "of: accuracy,",
        ),
        (
            ["accuracy"],
            "numbers",
            "which is of classes or a class per position or several labels per sample, and the "
            "targets",
        ),
        (
            ["top3"],
            "classes",
            "got 'top3', and there are 3 classes; every sample would be right, take a smaller "
            "number",
        ),
        (["top0"], "classes", "got 'top0'"),
        (
            ["auroc", "auroc"],
            "classes",
            "got two metrics called 'auroc'; give one a name of its own",
        ),
        ([Metric("loss", share_of_ones)], "classes", "got two metrics called 'loss'"),
    ],
)
def test_names_that_are_refused(names: list[Any], kind: Targets, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen(names, kind, 3)


def test_a_task_names_its_metrics() -> None:
    data = from_arrays(RNG.normal(size=(12, 2)), np.arange(12) % 3, np.arange(12) % 3)
    task = own_task(
        data, lambda: torch.nn.Linear(2, 3), metric=["macro_f1", "accuracy", share_of_ones]
    )
    assert task.metric == "macro_f1"
    assert [metric.name for metric in task.metrics] == ["macro_f1", "share_of_ones"]
    assert own_task(data, lambda: torch.nn.Linear(2, 3), metric="loss").metric == "loss"
    with pytest.raises(ConfigError, match="metric: got 'r2', which is of numbers"):
        own_task(data, lambda: torch.nn.Linear(2, 3), metric="r2")


def test_a_function_that_is_undefined_everywhere_says_why() -> None:
    """scikit-learn's accuracy of logits raises a ValueError, as its AUROC of one class does."""
    from sklearn.metrics import accuracy_score

    metric = as_metric(accuracy_score)
    outputs, targets = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([1, 0])
    with pytest.warns(UserWarning, match=r"the metric 'accuracy_score' is undefined on all sampl"):
        assert math.isnan(metric.value(outputs, targets, of_all=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(metric.value(outputs, targets))  # of one client
