"""What needs one class per sample is refused, with its key, for tasks whose samples have several or
none."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.core.keys import Key, Streams
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import with_own
from motley.experiments.run_data import _federation
from motley.tasks import from_arrays, own_task
from motley.tasks.federate import Split, partition_input
from motley.tasks.task import Dataset, Task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3, 2))
CLIENT = np.arange(40) % 4
KEYS: dict[str, Any] = {"task": "own", "cohort": 2, "stop": {"rounds": 1}}


def positions() -> Task:
    return own_task(from_arrays(X, RNG.integers(0, 4, (40, 3)), CLIENT), lambda: nn.Linear(2, 4))


def multilabel() -> Task:
    data = from_arrays(X, RNG.integers(0, 2, (40, 4)), CLIENT, multilabel=True, validation=0.2)
    return own_task(data, lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4)))


def binary(loss: Any = None, outputs: int = 1) -> Task:
    return own_task(
        from_arrays(X, np.arange(40) // 4 % 2, CLIENT),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, outputs)),
        loss=loss,
    )


@pytest.mark.parametrize("make", [positions, multilabel, binary])
def test_runs_to_the_end_with_accuracy(make: Any) -> None:
    loop = build(KEYS, task=make())
    while not loop.done:
        loop.step()
    assert 0 <= loop.state.scores.headline <= 1


@pytest.mark.parametrize(
    ("make", "keys", "message"),
    [
        (
            multilabel,
            {"loss": "cross_entropy"},
            r"loss: got 'cross_entropy', but .* are several labels per sample; use 'bce'",
        ),
        (
            positions,
            {"loss": "bce"},
            r"loss: got 'bce', but .* are a class per position; use 'cross_entropy'",
        ),
        (
            positions,
            {"algorithm": "moon"},
            "algorithm: 'moon' compares one feature vector per sample, and the targets",
        ),
        (
            multilabel,
            {"drift": "window"},
            "drift: a drift needs one class per sample; the samples of this task have any number",
        ),
        (
            binary,
            {"loss": "cross_entropy"},
            "loss: got 'cross_entropy', which cannot take .*; one output for two classes is for "
            "loss",
        ),
        (
            lambda: binary("cross_entropy"),
            {},
            "task: got 'cross_entropy', which cannot take .*; one output for two classes is for",
        ),
        (
            lambda: binary({"name": "cross_entropy", "class_weights": [1.0]}, 2),
            {},
            "task: got .* class_weights has 1 numbers",
        ),
        (
            positions,
            {"engine": "batched"},
            r"engine: 'batched' cannot run this experiment: .*the targets are a class per position",
        ),
        (
            multilabel,
            {"selector": "flash"},
            "selector: 'flash' needs the noise-robust loss of classes; the samples",
        ),
        (
            binary,
            {"selector": {"name": "flash", "drop": "val_loss"}},
            "selector: 'flash' needs the noise-robust loss of classes, and the model has 1 outputs "
            "for 2 classes; give it one for each",
        ),
    ],
)
def test_what_needs_a_class_is_refused(make: Any, keys: dict[str, Any], message: str) -> None:
    task = make()
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, **keys}, task=task)


def test_a_partition_by_classes_is_refused() -> None:
    data = positions().federation
    dataset = Dataset(data.x, data.y, data.classes, np.zeros(40, bool))
    experiment = Experiment(
        task="quadratic",
        population=2,
        partition="dirichlet",
        cohort=1,
        stop={"rounds": 1},  # type: ignore[arg-type]
    )
    with pytest.raises(
        ConfigError,
        match="partition: 'dirichlet' divides samples by their class, and the targets of this task "
        "are",
    ):
        _federation(experiment, Streams(0), dataset, partition_input(dataset, Split(), Key(0)), 2)


def test_one_logit_is_two_logits_of_which_the_first_is_zero() -> None:
    """bce on one output z and cross-entropy on (0, z) are one loss; a run of both has the same
    losses and accuracies."""

    class Padded(nn.Linear):
        def forward(self, x: Any) -> Any:
            z = super().forward(x.flatten(1))
            return torch.cat([torch.zeros_like(z), z], 1)

    class Single(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x.flatten(1))

    data = from_arrays(X, np.arange(40) // 4 % 2, CLIENT)
    found = []
    for kind, loss in ((Single, "bce"), (Padded, "cross_entropy")):
        loop = build(
            {**KEYS, "dtype": "float64"}, task=own_task(data, partial(kind, 6, 1), loss=loss)
        )
        loop.step()
        found.append((loop.state.server.model.x, loop.state.scores.headline))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_a_loss_of_ones_own_is_trained_evaluated_and_part_of_the_run_id() -> None:
    """A function that computes cross-entropy trains as the catalogue's does, in every engine;
    another function is another run."""

    def mean(outputs: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(outputs, targets)

    def each(outputs: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    data = from_arrays(X, np.arange(40) // 4 % 3, CLIENT)
    reference = None
    for loss in ("cross_entropy", mean, each):
        task = own_task(data, lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), loss=loss)  # type: ignore[arg-type]
        for engine in ("sequential", "threads", "batched", "vmap"):
            keys = {
                **KEYS,
                "dtype": "float64",
                "engine": engine,
                "selector": "power_of_choice",
                "local": {"batch_size": 3},
            }
            loop = build(keys, task=task)
            summary = loop.step()
            got = torch.cat(
                [
                    loop.state.server.model.x,
                    torch.tensor([summary.train_loss, loop.state.scores.headline]),
                ]
            )
            reference = got if reference is None else reference
            torch.testing.assert_close(got, reference)
    tasks = [
        own_task(data, lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), loss=loss)
        for loss in (mean, each)
    ]
    assert len({with_own(KEYS, task).run_id() for task in tasks}) == 2
