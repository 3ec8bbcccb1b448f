"""What needs one class per sample is refused, with its key, for tasks whose samples have several or none."""

from typing import Any

import numpy as np
import pytest
from torch import nn

from motley.core.errors import ConfigError
from motley.core.keys import Key, Streams
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.data import _federation
from motley.tasks import from_arrays, own_task
from motley.tasks.base import Dataset, Task
from motley.tasks.federate import Split, partition_input

RNG = np.random.default_rng(0)
X, CLIENT = RNG.normal(size=(40, 3, 2)), np.arange(40) % 4
KEYS: dict[str, Any] = {"task": "own", "cohort": 2, "stop": {"rounds": 1}}


def positions() -> Task:
    return own_task(from_arrays(X, RNG.integers(0, 4, (40, 3)), CLIENT), lambda: nn.Linear(2, 4))


def multilabel() -> Task:
    data = from_arrays(X, RNG.integers(0, 2, (40, 4)), CLIENT, multilabel=True, validation=0.2)
    return own_task(data, lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4)))


@pytest.mark.parametrize("make", [positions, multilabel])
def test_runs_to_the_end_with_accuracy(make: Any) -> None:
    loop = build(KEYS, task=make())
    while not loop.done:
        loop.step()
    assert 0 <= loop.state.score <= 1


@pytest.mark.parametrize(
    ("make", "keys", "message"),
    [
        (multilabel, {"loss": "cross_entropy"}, r"loss: got 'cross_entropy', but .* are several labels per sample; use 'bce'"),
        (positions, {"loss": "bce"}, r"loss: got 'bce', but .* are a class per position; use 'cross_entropy'"),
        (positions, {"algorithm": "moon"}, "algorithm: 'moon' compares one feature vector per sample, and the targets"),
        (multilabel, {"drift": "window"}, "drift: a drift needs one class per sample; the samples of this task have any number"),
        (positions, {"engine": "batched"}, r"engine: 'batched' cannot run this experiment: .*the targets are a class per position"),
        (multilabel, {"selector": "flash"}, "selector: 'flash' needs the noise-robust loss of classes; the samples"),
    ],
)  # fmt: skip
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
        ConfigError, match="partition: 'dirichlet' divides samples by their class, and the targets of this task are"
    ):
        _federation(experiment, Streams(0), dataset, partition_input(dataset, Split(), Key(0)), 2)
