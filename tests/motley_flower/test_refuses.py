"""What only a simulation does is refused before a deployment begins."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley.tasks import from_clients, own_task
from motley.tasks.batch_orders import Carried
from motley_flower.deployed.server_app import refuses


def test_statistics_of_a_table_are_not_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "age,who,label\n"
        + "\n".join(f"{'' if i == 3 else i},{'ab'[i % 2]},{i // 2 % 2}" for i in range(20))
    )
    task = {"name": "tabular", "data": str(path), "client": "who"}
    experiment = Experiment(task=task, cohort=1, stop={"rounds": 1}, partition="by_writer")
    reason = refuses(experiment, prepare(experiment))
    assert reason is not None
    assert reason.startswith(
        "clients exchange statistics of their rows only in a simulation; prepare the columns first"
    )


def test_a_client_does_not_know_the_mean_of_all_sizes() -> None:
    keys: dict[str, Any] = {
        "task": "quadratic",
        "population": 3,
        "cohort": 3,
        "partition": "by_writer",
        "stop": {"rounds": 1},
        "algorithm": {"name": "feddyn", "alphas": "by_samples"},
    }
    experiment = Experiment(**keys)
    said = 'which knows them; leave alphas out, or write weights = "examples"'
    assert said in str(refuses(experiment, prepare(experiment)))
    common = experiment.replace({"algorithm.alphas": "common"})
    assert refuses(common, prepare(common)) is None


def test_an_order_of_batches_is_not_followed() -> None:
    x = np.ones((4, 1), np.float32)
    federation = from_clients([(x, np.array([0, 1, 0, 1]))], test_fraction=0.5)
    task = own_task(federation, lambda: nn.Linear(1, 2), batches=Carried((2,), 1))
    experiment = Experiment(task=task, cohort=1, stop={"rounds": 1})
    reason = refuses(experiment, prepare(experiment))
    assert reason is not None
    assert reason.startswith("an order of batches is followed only in a simulation")


def test_a_client_is_not_asked_again_before_it_can_know_whether_its_upload_was_accepted() -> None:
    keys: dict[str, Any] = {
        "task": "quadratic",
        "population": 3,
        "cohort": 3,
        "partition": "by_writer",
        "stop": {"rounds": 1},
    }
    experiment = Experiment(**keys, synchrony={"name": "buffered", "buffer": 2})
    said = (
        "is asked again before a server step takes that; write synchrony = { name = "
        '"buffered", refill = "idle" }'
    )
    assert said in str(refuses(experiment, prepare(experiment)))
    again = experiment.replace({"synchrony.refill": "idle"})
    assert refuses(again, prepare(again)) is None
    groups = Experiment(**keys, synchrony="fedcompass")
    assert said in str(refuses(groups, prepare(groups)))


def test_models_of_different_architectures_are_only_dealt_in_a_simulation() -> None:
    keys: dict[str, Any] = {
        "task": {"name": "image", "data": "digits"},
        "models": ["linear", {"name": "mlp", "hidden": [4]}],
        "algorithm": "local_only",
        "split": {"test": "client"},
        "population": 3,
        "cohort": 3,
        "stop": {"rounds": 1},
    }
    experiment = Experiment(**keys)
    assert "only a simulation deals several; leave models out" in str(
        refuses(experiment, prepare(experiment))
    )


def test_lengths_that_follow_from_values_and_single_weights_are_only_in_a_simulation() -> None:
    keys: dict[str, Any] = {
        "task": {"name": "image", "data": "digits"},
        "algorithm": "fedkd",
        "population": 3,
        "cohort": 3,
        "stop": {"rounds": 1},
    }
    experiment = Experiment(**keys)
    said = "that of these uploads depends on their values; use another algorithm, e.g. fml"
    assert said in str(refuses(experiment, prepare(experiment)))
    masked = experiment.replace({"algorithm": "fiarse"})
    assert "real ones can hold fewer ranks" in str(refuses(masked, prepare(masked)))
