"""The experiment file: what it accepts, what it makes of it, and the sentence for everything it
refuses."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from motley.algorithms import FedProx, Krum
from motley.core.components import imports
from motley.core.errors import ConfigError
from motley.experiments import document
from motley.experiments.config import Experiment, load
from motley.selectors import CATALOGUE
from motley.selectors.uniform import Uniform
from motley.tasks.synthetic import Synthetic

PLAIN = {"population": 10, "cohort": 2, "stop": {"rounds": 3}, "task": {"name": "quadratic"}}

DESIGN = """
name       = "who-to-ask on mnist"
seed       = 0
pin        = { partition = 7 }
population = 100
cohort     = 10
stop       = { rounds = 200, virtual_hours = 10, uplink_gb = 1.5, target = { accuracy = 0.9 } }
task       = { name = "image", data = "mnist", model = "mlp" }
split      = { test = "client", test_fraction = 0.2, validation = 0.0 }
partition  = { name = "dirichlet", alpha = 0.1 }
label_noise = { name = "beta", mean = 0.15 }
local      = { epochs = 10, batch_size = 100, optimizer = { name = "sgd", lr = 0.01 } }
algorithm  = { name = "fedprox", mu = 0.1 }
weights    = "examples"
selector   = { name = "hetero_select_v1", form = "additive" }
probe      = { batches = 8 }
device     = { name = "uniform", low = 0.1, high = 0.5 }
network    = { name = "uniform", up_mbps = [1, 5] }
availability = { name = "always" }
failures   = { name = "none" }
synchrony  = { name = "synchronous" }
compressor = { name = "identity" }
allocator  = { name = "uniform" }
engine     = "auto"
dtype      = "float32"
evaluate   = { every = 10, per_client = true }
checkpoint = { every_rounds = 10, every_s = 30 }

[grid]
"selector.name" = ["uniform", "power_of_choice", "hetero_select_v1"]
seed            = [0, 1, 2]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "exp.toml"
    path.write_text(text)
    return path


def refused(message: str, **changes: object) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        Experiment(**{**PLAIN, **changes})


# --------------------------------------------------------------------------------- what is accepted


def test_the_file_of_the_design_is_an_experiment(tmp_path: Path) -> None:
    experiment = load(write(tmp_path, DESIGN))
    assert experiment.name == "who-to-ask on mnist"
    assert experiment.part("partition").alpha == 0.1
    assert experiment.part("selector").form == "additive"
    assert experiment.part("local.optimizer").lr == 0.01
    assert experiment.grid[0]["seed"] == [0, 1, 2]
    assert (experiment.local.work().epochs, experiment.local.work().batch_size) == (10, 100)


def test_a_bare_name_is_a_component() -> None:
    assert Experiment(**{**PLAIN, "task": "quadratic", "engine": "sequential"}).task == {
        "name": "quadratic"
    }


def test_defaults_are_the_plain_federation() -> None:
    experiment = Experiment(**PLAIN)
    names = {
        key: experiment.resolved()[key]["name"]
        for key in ("selector", "algorithm", "synchrony", "network", "failures")
    }
    assert names == {
        "selector": "uniform",
        "algorithm": "fedavg",
        "synchrony": "synchronous",
        "network": "none",
        "failures": "none",
    }
    assert experiment.engine.name == "auto"
    assert experiment.local.work().epochs == 1


def test_population_may_be_left_out_where_the_data_has_its_own_clients() -> None:
    natural = {key: value for key, value in PLAIN.items() if key != "population"}
    writers = {**natural, "task": {"name": "image", "data": "femnist"}, "partition": "by_writer"}
    assert Experiment(**writers).cohort_size(7) == 2
    # made for as many as are asked for
    refused("population: this key is missing", population=None, partition="by_writer")
    refused("population: this key is missing", population=None)


@pytest.mark.parametrize(("share", "m"), [(0.1, 10), (0.125, 12), (0.001, 1), (1.0, 100)])
def test_participation_is_rounded_to_whole_clients(share: float, m: int) -> None:
    keys = {key: value for key, value in PLAIN.items() if key != "cohort"}
    assert Experiment(**keys, participation=share).cohort_size(100) == m


def test_an_experiment_is_never_changed() -> None:
    experiment = Experiment(**PLAIN)
    with pytest.raises(Exception, match="frozen"):
        experiment.seed = 3  # type: ignore[misc]


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cohorts": 2},
            "cohorts: there is no such key (did you mean 'cohort'?); known keys: name, seed",
        ),
        ({"population": 0}, "population: got 0; expected at least 1"),
        ({"population": 10.5}, "population: got 10.5; expected a whole number"),
        ({"population": True}, "population: got True; expected a whole number"),
        ({"population": 10**20}, "population: got 100000000000000000000; expected at most 1e+09"),
        ({"pin": 3}, "pin: got 3; expected a table"),
        ({"grid": 3}, "grid: got 3; expected a table"),
        (
            {"local": {"optimizer": {"lr": -1}}},
            "local.optimizer: got lr = -1.0; expected a positive number",
        ),
        (
            {"local": {"optimizer": {"moment": 0.9}}},
            "local.optimizer.moment: 'sgd' has no such option (did you mean 'momentum'?)",
        ),
        ({"cohort": 11}, "cohort: got 11, more than the population of 10; expected at most 10"),
        ({"cohort": 0}, "cohort: got 0; expected at least 1"),
        ({"cohort": "two"}, "cohort: got 'two'; expected a whole number"),
        ({"cohort": None}, "cohort: got neither cohort nor participation"),
        ({"participation": 0.2}, "participation: got both cohort and participation"),
        ({"cohort": None, "participation": 0.0}, "participation: got 0.0; expected above 0"),
        ({"cohort": None, "participation": 1.5}, "participation: got 1.5; expected at most 1"),
        ({"seed": "lucky"}, "seed: got 'lucky'; expected a whole number"),
        ({"seed": 2**200}, f"seed: got {2**200}; expected a whole number of at most 64 bits"),
        (
            {"pin": {"partition": -(2**63) - 1}},
            f"pin.partition: got {-(2**63) - 1}; expected a whole number of at most 64 bits",
        ),
        ({"name": 3}, "name: got 3; expected a string"),
        (
            {"pin": {"partitoin": 1}},
            "pin.partitoin: there is no such purpose (did you mean 'partition'?)",
        ),
        ({"pin": {"partition": "x"}}, "pin.partition: got 'x'; expected a whole number"),
        (
            {"stop": {}},
            "stop: a run needs an end; give at least one of: rounds, virtual_hours, uplink_gb, "
            "target, patience",
        ),
        (
            {"stop": {"rounds": 5, "metric": "loss"}},
            "stop.metric: got 'loss' and no patience, whose metric it is; write stop = { patience",
        ),
        ({"stop": {"metric": "loss"}}, "stop.metric: got 'loss' and no patience"),
        ({"stop": {"patience": 0}}, "stop.patience: got 0; expected at least 1"),
        (
            {"stop": {"patience": 3, "metric": "acuracy"}},
            "stop.metric: got 'acuracy' (did you mean 'accuracy'?)",
        ),
        ({"stop": 5}, "stop: got 5; expected a table"),
        ({"stop": {"round": 5}}, "stop.round: there is no such key (did you mean 'rounds'?)"),
        (
            {"evaluate": {"diagnostics": "batch"}},
            "evaluate.diagnostics: got 'batch' (did you mean 'batches'?); expected one of: false, "
            "true, batches",
        ),
        ({"stop": {"rounds": 0}}, "stop.rounds: got 0; expected at least 1"),
        (
            {"stop": {"virtual_hours": float("inf")}},
            "stop.virtual_hours: got inf; expected a finite number",
        ),
        (
            {"stop": {"target": {"accuracy": 90}}},
            "stop.target.accuracy: got 90; expected at most 1",
        ),
        (
            {"stop": {"target": {"acuracy": 0.9}}},
            "stop.target.acuracy: got 'acuracy' (did you mean 'accuracy'?)",
        ),
        ({"stop": {"target": {}}}, "stop.target: say what is good enough"),
        (
            {"method": "fedprx"},
            "method: got 'fedprx' (did you mean 'fedprox'?); expected one of: adasample, fedavg",
        ),
        ({"task": "imge"}, "task.name: got 'imge' (did you mean 'image'?)"),
        (
            {"task": {"name": "image", "model": "mpl"}},
            "task.model.name: got 'mpl' (did you mean 'mlp'?)",
        ),
        ({"task": {"nam": "image"}}, "task: got no name; expected { name = "),
        (
            {"stop": {"rounds": 4, "target": 0.7}},
            "stop.target: got 0.7; expected a figure by metric, e.g. { accuracy = 0.7 }",
        ),
        ({"task": 3}, "task: got 3; expected a name, or a table { name = "),
        (
            {"split": {"test": "globl"}},
            "split.test: got 'globl' (did you mean 'global'?); expected one of: client, global",
        ),
        ({"split": {"test_fraction": 1.0}}, "split.test_fraction: got 1.0; expected below 1"),
        ({"partition": {"name": "dirichlet", "alpha": 0}}, "partition: got alpha = 0"),
        (
            {"partition": {"name": "dirichlet", "alhpa": 1}},
            "partition.alhpa: 'dirichlet' has no such option (did you mean 'alpha'?)",
        ),
        (
            {"partition": {"name": "dirichlet", "alpha": "x"}},
            "partition.alpha: got 'x'; expected a number",
        ),
        ({"compressor": "topkk"}, "compressor.name: got 'topkk' (did you mean 'topk'?)"),
        ({"local": {"epochs": 1, "steps": 5}}, "local: give either epochs or steps, not both"),
        ({"local": {"epochs": 0}}, "local.epochs: got 0; expected at least 1"),
        (
            {"local": {"batchsize": 0}},
            "local.batchsize: there is no such key (did you mean 'batch_size'?)",
        ),
        (
            {"local": {"optimizer": {"name": "sdg"}}},
            "local.optimizer.name: got 'sdg' (did you mean 'sgd'?)",
        ),
        (
            {"local": {"optimizer": {"name": "sgd", "lr": "x"}}},
            "local.optimizer.lr: got 'x'; expected a number",
        ),
        ({"local": {"optimizer": {"name": "sgd", "lr": -1}}}, "local.optimizer: got lr = -1"),
        (
            {"local": {"optimizer": {"name": "sgd", "clip": {"norm": 1}}}},
            "local.optimizer.clip: clipping has a key of its own",
        ),
        ({"local": {"clip": {"norm": 0}}}, "local.clip.norm: got 0; expected above 0"),
        ({"local": {"clip": {}}}, "local.clip.norm: this key is missing and has no default"),
        ({"algorithm": {"name": "fedprox", "mu": -1}}, "algorithm: got mu = -1"),
        (
            {"weights": "exmaples"},
            "weights: got 'exmaples' (did you mean 'examples'?); expected one of: examples, "
            "uniform, hor",
        ),
        ({"selector": "unifrom"}, "selector.name: got 'unifrom' (did you mean 'uniform'?)"),
        (
            {"partition": {"name": "iid", "alpha": 0.1}},
            "partition.alpha: 'iid' has no such option; its options: sizes; 'dirichlet', ",
        ),
        (
            {"device": {"name": "constant", "sigma": 1}},
            "device.sigma: 'constant' has no such option; its options: seconds; 'log_normal' has "
            "it",
        ),
        ({"selector": {"name": "uniform", "d": 20}}, "selector.d: 'uniform' has no such option"),
        (
            {"algorithm": {"name": "fedavg", "weights": "uniform"}},
            "algorithm.weights: 'fedavg' has no such option; its options: server_lr; did you mean "
            "the key weights?",
        ),
        (
            {"partition": {"name": "dirichlet", "clients": 20}},
            "partition.clients: 'dirichlet' has no such option; its options: alpha, law, mask, "
            "min_size; did you mean the key population?",
        ),
        (
            {"task": {"name": "image", "test_fraction": 0.3}},
            "task.test_fraction: 'image' has no such option; its options: data, model, scale, "
            "augment, dropout, heads, classes; did you mean the key split.test_fraction?",
        ),
        ({"selector": ["uniform"]}, "selector: got ['uniform']; expected a name, or a table"),
        (
            {"probe": {"batches": 0}},
            "probe.batches: got 0; expected a whole number of at least 1, or 'all'",
        ),
        ({"probe": {"batches": "al"}}, "probe.batches: got 'al'"),
        (
            {"public": {"examples": 5}},
            "public: say where the samples come from: either a share or data",
        ),
        ({"recalibrate": {"batches": 0}}, "recalibrate.batches: got 0"),
        ({"weights": "ht"}, "weights: got 'ht'; expected one of: examples, uniform"),
        ({"engine": "sequentail"}, "engine: got 'sequentail' (did you mean 'sequential'?)"),
        ({"engine": {"name": "auto", "threads": 0}}, "engine.threads: got 0; expected at least 1"),
        (
            {"dtype": "float16"},
            "dtype: got 'float16' (did you mean 'float64'?); expected one of: float32, float64",
        ),
        (
            {"precision": "bf16"},
            "precision: got 'bf16' (did you mean 'bfloat16'?); expected one of: float32, bfloat16",
        ),
        (
            {"precision": "bfloat16", "dtype": "float64"},
            "precision: got 'bfloat16' with dtype = 'float64'; expected weights of float32: leave "
            "dtype out",
        ),
        (
            {"evaluate": {"per_client": "yes"}},
            "evaluate.per_client: got 'yes'; expected true or false",
        ),
        ({"checkpoint": {"every_s": 0}}, "checkpoint.every_s: got 0; expected above 0"),
        ({"grid": {"seed": 3}}, "grid.seed: got 3; expected a list"),
        (
            {"stop": {"virtual_hours": 1}, "local": {"lr_schedule": "linear"}},
            "stop.rounds: a linear schedule needs the number of rounds",
        ),
        (
            {
                "stop": {"virtual_hours": 1},
                "selector": {"name": "power_of_choice", "variant": "adapow_d"},
            },
            "stop.rounds: selector 'power_of_choice' anneals towards the last round",
        ),
    ],
)
def test_every_fault_is_one_sentence_with_its_key(changes: dict[str, object], message: str) -> None:
    refused(message, **changes)


@pytest.mark.parametrize(
    ("changes", "key", "number"),
    [
        ({"local": {"optimizer": {"name": "sgd", "lr": 10**39}}}, "local.optimizer.lr", "1e+39"),
        ({"local": {"clip": {"norm": 1e39}}}, "local.clip.norm", "1e+39"),
        ({"server": {"name": "adam", "lr": 10**39}}, "server.lr", "1e+39"),
        (
            {"algorithm": {"name": "fine_tuned", "method": {"name": "fedprox", "mu": 1e39}}},
            "algorithm.method.mu",
            "1e+39",
        ),
        (
            {"loss": {"name": "cross_entropy", "class_weights": [1.0, 10**39]}},
            "loss.class_weights",
            "1e+39",
        ),
        ({"algorithm": FedProx(mu=1e39)}, "algorithm.mu", "1e+39"),
        ({"aggregator": {"name": "krum", "f": 10**39}}, "aggregator.f", "1e+39"),
        ({"aggregator": Krum(f=10**400)}, "aggregator.f", "a number above 1e307"),
    ],
)
def test_a_number_that_float32_does_not_hold_is_refused(
    changes: dict[str, object], key: str, number: str
) -> None:
    sentence = f"{key}: got {number}; expected at most 3.4e+38, the largest number of float32"
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        Experiment(**{**PLAIN, **changes})


def test_numbers_that_float64_holds_are_taken_there() -> None:
    keys = {**PLAIN, "local": {"optimizer": {"name": "sgd", "lr": 10**39}, "clip": {"norm": 1e39}}}
    assert Experiment(**keys, dtype="float64").local.clip is not None


class DataFrame:
    """A column of a pandas frame is an attribute of it."""

    client = np.arange(2)
    columns = ("client",)
    shape = (2, 1)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (DataFrame(), r"DataFrame \[2, 1\]"),
        (np.zeros((60_000, 784)), r"ndarray \[60000, 784\]"),
        (torch.zeros(4, 2), r"Tensor \[4, 2\]"),
        (TensorDataset(torch.zeros(4, 2)), "TensorDataset"),
        (nn.Linear(2, 2), "Linear"),
    ],
)
def test_samples_and_models_in_memory_are_told_their_place(value: object, named: str) -> None:
    line = r"motley\.run\(keys, task=own_task\(federation, model\)\)"
    for key, task in (("task", value), (r"task\.data", {"name": "tabular", "data": value})):
        with pytest.raises(ConfigError, match=f"^{key}: got {named}; this key is a name.*{line}"):
            Experiment(**{**PLAIN, "task": task})


def test_a_source_of_samples_may_have_columns() -> None:
    @dataclass(frozen=True)
    class Columns(Synthetic):
        columns: tuple[str, ...] = ("age",)

    assert Experiment(**{**PLAIN, "task": Columns()}).part("task") == Columns()


@dataclass(frozen=True)
class FromFile(Uniform):
    """A selector of one's own that reads a file."""

    file: Path = Path("none.csv")


def test_an_option_that_is_a_path_takes_one_and_is_recorded_as_text() -> None:
    name = f"{FromFile.__module__}:FromFile"
    with imports(True):
        given = Experiment(**PLAIN, selector={"name": name, "file": Path("mine.csv")})
        again = Experiment(**given.resolved())
    del CATALOGUE.targets[name], CATALOGUE._classes[name]
    assert given.part("selector").file == again.part("selector").file == Path("mine.csv")
    assert given.resolved()["selector"]["file"] == "mine.csv"
    assert again.run_id() == given.run_id()


def test_numpys_texts_name_tasks_and_data() -> None:
    given = Experiment(**{**PLAIN, "task": np.array(["quadratic"])[0]})
    assert given.run_id() == Experiment(**PLAIN).run_id()
    image = {"name": "image", "data": np.array(["digits"])[0]}
    assert Experiment(**{**PLAIN, "task": image}).task["data"] == "digits"


def test_a_long_value_is_not_written_out() -> None:
    with pytest.raises(ConfigError, match=r"^task\.data: got \[.*; expected a string$") as caught:
        Experiment(**{**PLAIN, "task": {"name": "tabular", "data": [*range(10**5)]}})
    assert len(str(caught.value)) < 300


def test_several_faults_are_counted() -> None:
    with pytest.raises(
        ConfigError, match=r"^seed: got 'x'; expected a whole number \(and 1 more\)$"
    ):
        Experiment(**{**PLAIN, "cohort": 0, "seed": "x"})


def test_required_keys_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^task: this key is missing and has no default"):
        Experiment(population=4, cohort=2, stop={"rounds": 1})  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = ", r"exp\.toml, line 1: not valid TOML: invalid value"),
        ("seed = 1\nseed = 2", r"exp\.toml, line 2: not valid TOML: cannot overwrite a value"),
        ("[stop\nrounds = 1", r"exp\.toml, line 1, column 6: not valid TOML: expected"),
    ],
)
def test_broken_toml_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, text))


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    write(tmp_path, DESIGN)
    with pytest.raises(
        ConfigError, match=r"there is no file '.*exp\.tml' \(did you mean 'exp\.toml'\?\)"
    ):
        load(tmp_path / "exp.tml")
    with pytest.raises(ConfigError, match="is a folder; expected an experiment file"):
        load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file in UTF-8"):
        load(tmp_path / "binary.toml")


# ----------------------------------------------------------------------------- presets and settings


def test_a_preset_lies_under_the_users_keys() -> None:
    bare = Experiment(**PLAIN, method="hetero_select_v1")
    assert (bare.weights, bare.part("algorithm").mu, bare.local.epochs) == ("uniform", 0.1, 5)
    mine = Experiment(
        **PLAIN,
        method="hetero_select_v1",
        algorithm={"mu": 0.5},
        selector="uniform",
        local={"steps": 7},
    )
    assert mine.part("algorithm").mu == 0.5
    assert mine.selector == {"name": "uniform"}
    assert (mine.local.epochs, mine.local.steps) == (None, 7)
    assert mine.part("local.optimizer").lr == 0.01


@pytest.mark.parametrize("name", document.presets())
def test_every_preset_makes_an_experiment(name: str) -> None:
    assert Experiment(**PLAIN, method=name).method == name


HETERO_SELECT: dict[str, Any] = {
    # S = V' + 0.3 D + 0.2 F' + 0.2 St', V' on 8 mini-batches; tau from 1
    "selector.name": "hetero_select",
    "selector.direction": "exact",
    "selector.lr": "shared",
    "selector.as_published": "text",
    "selector.tau0": 1.0,
    "selector.probe_batches": 8,
    "selector.w_value": 1.0,
    "selector.w_direction": 0.3,
    "selector.w_fairness": 0.2,
    "selector.w_staleness": 0.2,
    # M <- 0.5 M + mean, w <- w + M, the mean weighted by score
    "server.name": "momentum",
    "server.momentum": 0.5,
    "server.lr": 1.0,
    "weights": "score",
    # Q = 3 layers, 0.2 of the uniform law
    "compressor.name": "topk",
    "compressor.criterion": "curvature",
    "compressor.layers": 3,
    "compressor.uniform": 0.2,
    "compressor.share": "density",
    "compressor.rescale": False,
    "compressor.probe": "layers",
    "compressor.guard": "add",
    "compressor.rounding": "ceil",
    # b from 0.85 to 0.97; theta_t around 0.20, amplitude 0.4, floor 0.08; theta_k at least 0.005
    "feedback.name": "adaptive",
    "feedback.low": 0.85,
    "feedback.high": 0.97,
    "budget.name": "cosine",
    "budget.average": 0.2,
    "budget.amplitude": 0.4,
    "budget.floor": 0.08,
    "budget.warm_up": 1,
    "budget.as_published": "text",
    "allocator.name": "by_score",
    "allocator.least": 0.005,
    "allocator.as_published": "text",
    # 50 steps of FedProx, mu 0.1, clipped at 2.0, lr 0.05 (1 - 0.5 t / T)
    "algorithm.name": "fedprox",
    "algorithm.mu": 0.1,
    "local.steps": 50,
    "local.epochs": None,
    "local.batch_size": 32,
    "local.clip.norm": 2.0,
    "local.optimizer.name": "sgd",
    "local.optimizer.lr": 0.05,
    "local.optimizer.momentum": 0.0,
    "local.lr_schedule.name": "linear",
    "local.lr_schedule.end": 0.5,
}
PRESETS: dict[str, dict[str, Any]] = {
    "hetero_select_v1": {
        # gamma 0.7 and eta 0.3 are the explorative strategy's; a 0.5 is a reading
        "selector.name": "hetero_select_v1",
        "selector.form": "additive",
        "selector.strategy": "explorative",
        "selector.gamma": None,
        "selector.eta": None,
        "selector.tau0": 2.0,
        "selector.a": 0.5,
        "selector.probe": "all",
        "selector.w_value": 1.0,
        "selector.w_diversity": 1.0,
        "selector.w_momentum": 1.0,
        "selector.w_fairness": 1.0,
        "selector.w_staleness": 1.0,
        "selector.w_norm": 1.0,
        "algorithm.name": "fedprox",
        "algorithm.mu": 0.1,
        "weights": "uniform",
        "server": None,
        "local.epochs": 5,
        "local.steps": None,
        "local.batch_size": 32,
        "local.clip": None,
        "local.optimizer.name": "sgd",
        "local.optimizer.lr": 0.01,
        "local.optimizer.momentum": 0.0,
        "local.lr_schedule.name": "constant",
    },
    "hetero_select": HETERO_SELECT,
    "hetero_select_published": {
        **HETERO_SELECT,
        "selector.lr": "score_adaptive",
        "local.optimizer.momentum": 0.9,
        "compressor.guard": "clamp",
        "compressor.rounding": "floor",
        "compressor.probe": "model",
        "selector.as_published": "code",
        "allocator.as_published": "code",
        "budget.as_published": "code",
    },
}
"""The numbers of HeteRo-Select, both versions and the second one's released code."""


@pytest.mark.parametrize("name", PRESETS)
def test_presets_of_hetero_select_have_its_numbers(name: str) -> None:
    resolved = Experiment(**PLAIN, method=name).resolved()
    assert {path: at(resolved, path) for path in PRESETS[name]} == PRESETS[name]


def at(record: dict[str, Any], path: str) -> Any:
    head, _, rest = path.partition(".")
    return at(record[head], rest) if rest else record[head]


def test_settings_are_toml_or_plain_text(tmp_path: Path) -> None:
    path = write(tmp_path, DESIGN)
    experiment = load(
        path,
        [
            "seed=3",
            "local.optimizer.lr=0.05",
            "name=other",
            "network.up_mbps=[2, 3]",
            'dtype="float64"',
        ],
    )
    assert (experiment.seed, experiment.name, experiment.dtype) == (3, "other", "float64")
    assert experiment.part("local.optimizer").lr == 0.05
    assert experiment.network["up_mbps"] == [2, 3]


def test_another_component_drops_the_options_of_the_old_one(tmp_path: Path) -> None:
    path = write(tmp_path, DESIGN)
    assert load(path, ["partition.name=iid"]).partition == {"name": "iid"}
    assert load(path, ["partition.name=dirichlet"]).partition == {"name": "dirichlet", "alpha": 0.1}
    assert load(path, ["selector.d=20", "selector.name=power_of_choice"]).selector == {
        "name": "power_of_choice",
        "d": 20,
    }
    assert load(path, ["engine.name=threads", "engine.threads=2"]).engine.threads == 2


def test_of_two_keys_that_exclude_each_other_the_setting_wins(tmp_path: Path) -> None:
    path = write(tmp_path, DESIGN)
    assert load(path, ["participation=0.5"]).cohort_size(100) == 50
    assert load(path, ["local.steps=4"]).local.work().steps == 4


@pytest.mark.parametrize("setting", ["seed", "=3", "seed=", "a..b=1", ""])
def test_settings_that_are_none(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set: got .*; expected key=value"):
        load(write(tmp_path, DESIGN), [setting])


def test_a_setting_through_something_without_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^seed\.x: seed is 0, which has no keys of its own"):
        load(write(tmp_path, DESIGN), ["seed.x=1"])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "rounds", "lr", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(key=st.sampled_from(sorted(Experiment.model_fields)), value=values)
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_there_is_an_experiment_or_a_sentence(key: str, value: object) -> None:
    with contextlib.suppress(ConfigError):
        Experiment(**{**PLAIN, key: value})


# ----------------------------------------------------------------------------------------- identity


def test_the_resolved_experiment_is_json_and_the_same_run(tmp_path: Path) -> None:
    experiment = load(write(tmp_path, DESIGN))
    again = Experiment(**json.loads(json.dumps(experiment.resolved())))
    assert again.resolved() == experiment.resolved()
    assert again.run_id() == experiment.run_id()
    assert experiment.resolved()["selector"]["eps"] == 1e-8


@pytest.mark.parametrize("name", document.presets())
def test_a_resolved_preset_is_the_same_run(name: str) -> None:
    experiment = Experiment(**PLAIN, method=name, local={"steps": 7})
    again = Experiment(**experiment.resolved())
    assert again.resolved() == experiment.resolved()


def test_the_run_id_depends_on_what_changes_results_only() -> None:
    same = Experiment(**PLAIN).run_id()
    for changes in (
        {"name": "other"},
        {"engine": "sequential"},
        {"checkpoint": {"every_rounds": 3, "keep": False}},
        {"stop": {"rounds": 99}},
        {"log": {"tensorboard": True}},
        {"grid": {"seed": [1]}},
        {"method": "fedavg", "weights": None},
        {"selector": {"name": "uniform", "variant": "uniform_wor"}},
        {"device": {"name": "constant", "seconds": 0.3}},
    ):
        assert Experiment(**{**PLAIN, **changes}).run_id() == same, changes
    for changes in (
        {"seed": 1},
        {"cohort": 3},
        {"pin": {"init": 1}},
        {"evaluate": {"every": 1}},
        {"dtype": "float64"},
    ):
        assert Experiment(**{**PLAIN, **changes}).run_id() != same, changes


def test_options_without_a_name_are_the_default_components() -> None:
    assert Experiment(**PLAIN, budget={"average": 0.2}).budget == {
        "name": "constant",
        "average": 0.2,
    }
    changed = Experiment(
        **document.override(
            PLAIN, ["budget.average=0.2", "device.seconds=1.5", "selector.variant=weighted_wr"]
        )
    )
    assert (changed.part("budget").average, changed.part("device").seconds) == (0.2, 1.5)
    assert (
        Experiment(**PLAIN, method="flexcom", budget={"average": 0.3}).part("budget").average == 0.3
    )
    with pytest.raises(
        ConfigError,
        match=r"^budget.averag: 'constant' has no such option \(did you mean 'average'\?\)",
    ):
        Experiment(**PLAIN, budget={"averag": 0.2})
    # an option of another than the default
    with pytest.raises(
        ConfigError, match=r"^partition: got no name; expected { name = .*dirichlet"
    ):
        Experiment(**{**PLAIN, "partition": {"alpha": 0.5}})
    # the algorithm's own, whichever that is
    with pytest.raises(ConfigError, match=r"^server: got no name; expected"):
        Experiment(**PLAIN, server={"momentum": 0.5})


def test_fedbuff_has_published_defaults() -> None:
    """Another value of either is another run."""
    plain = Experiment(**PLAIN, synchrony="buffered")
    resolved = plain.resolved()
    assert (resolved["synchrony"]["refill"], resolved["weights"]) == ("at once", "uniform")
    idle = plain.replace({"synchrony.refill": "idle"})
    weighted = plain.replace({"weights": "examples"})
    assert len({one.run_id() for one in (plain, idle, weighted)}) == 3
    assert (
        Experiment(**PLAIN, synchrony="buffered", algorithm="fjord").resolved()["weights"]
        == "examples"
    )


@pytest.mark.parametrize(
    ("table", "record", "changed"),
    [
        ("split", {}, {"halves": "training"}),
        ("partition", {"name": "iid"}, {"sizes": (20,) * 10}),
        ("selector", {"name": "power_of_choice"}, {"sampling": "uniform"}),
        ("selector", {"name": "active_fl", "refresh": "all"}, {"drawn": 2}),
        ("selector", {"name": "active_fl"}, {"floor": 1e-8}),
        ("selector", {"name": "fedcvr_bolt"}, {"covariance": "ones"}),
        ("selector", {"name": "fedcvr_bolt"}, {"step": "shifted"}),
        ("selector", {"name": "fedcvr_bolt"}, {"clustering": "scikit_learn"}),
        ("selector", {"name": "fedcvr_bolt"}, {"among": 2000}),
        ("selector", {"name": "delta"}, {"form": "leaf"}),
        ("selector", {"name": "fedstas"}, {"spread": "variance"}),
        ("selector", {"name": "fedstas"}, {"standardise": True}),
        ("selector", {"name": "oort"}, {"split": "oort"}),
        ("selector", {"name": "pyramidfl"}, {"split": "oort"}),
        ("algorithm", {"name": "heterofl", "mask": False}, {"absent_rows": "left_out"}),
        ("algorithm", {"name": "fedrolex", "mask": False}, {"absent_rows": "left_out"}),
    ],
)
def test_another_value_of_an_option_is_another_run(
    table: str, record: dict[str, Any], changed: dict[str, Any]
) -> None:
    """One that is written out as it is by default is the same run."""
    plain = Experiment(**PLAIN, **{table: record})
    said = {name: plain.resolved()[table][name] for name in changed}
    assert plain.run_id() == Experiment(**PLAIN, **{table: {**record, **said}}).run_id()
    assert plain.run_id() != Experiment(**PLAIN, **{table: {**record, **changed}}).run_id()


def test_what_is_left_out_is_written_out() -> None:
    """FedDyn averages uniformly as published; power of choice probes all of a client's data, Delta
    two batches of it if told so."""
    plain = Experiment(**PLAIN)
    assert plain.weights is None
    assert plain.resolved()["weights"] == "examples"
    assert Experiment(**PLAIN, weights="examples").run_id() == plain.run_id()
    assert Experiment(**PLAIN, weights="uniform").run_id() != plain.run_id()
    assert Experiment(**PLAIN, algorithm="feddyn").resolved()["weights"] == "uniform"
    assert (
        Experiment(**PLAIN, algorithm="feddyn", weights="examples").resolved()["weights"]
        == "examples"
    )

    assert plain.resolved()["probe"] == {
        "batches": None,
        "speeds": "known",
    }  # a uniform draw measures nothing
    # asks for times alone
    assert Experiment(**PLAIN, selector="fedcs").resolved()["probe"] == {
        "batches": None,
        "speeds": "known",
    }
    probing = Experiment(**PLAIN, selector="power_of_choice")
    assert probing.resolved()["probe"]["batches"] == "all"
    assert (
        Experiment(**PLAIN, selector="power_of_choice", probe={"batches": "all"}).run_id()
        == probing.run_id()
    )
    assert Experiment(**PLAIN, selector={"name": "delta", "probe_batches": 2}).resolved()[
        "probe"
    ] == {"batches": 2, "speeds": "known"}


def test_whole_and_broken_numbers_are_the_same_value() -> None:
    one = Experiment(**PLAIN, partition={"name": "dirichlet", "alpha": 1})
    assert (
        one.run_id() == Experiment(**PLAIN, partition={"name": "dirichlet", "alpha": 1.0}).run_id()
    )


def test_replace_works_on_what_was_given() -> None:
    experiment = Experiment(**PLAIN, method="fedprox")
    assert experiment.replace({"method": "hetero_select_v1"}).selector["name"] == "hetero_select_v1"
    with pytest.raises(ConfigError, match=r"^cohort: got 50"):
        experiment.replace({"cohort": 50})


def test_papers_are_those_of_what_is_used() -> None:
    papers = Experiment(**PLAIN, algorithm="fedprox", selector="power_of_choice").papers()
    assert [paper.key for paper in papers] == ["li2020fedprox", "cho2022towards"]


def test_the_schema_tells_editors_what_a_component_is() -> None:
    schema = Experiment.model_json_schema()
    assert schema["properties"]["selector"]["anyOf"][0] == {"type": "string"}
    assert schema["properties"]["seed"]["description"]
    assert schema["additionalProperties"] is False


def test_tasks_with_clients_of_their_own_keep_them():
    """Another partition would mix what was made different; it has to be asked for."""
    keys = {"population": 4, "cohort": 2, "stop": {"rounds": 1}}
    for task in ("synthetic", "quadratic", {"name": "clustered_regression"}):
        assert Experiment(task=task, **keys).partition["name"] == "by_writer"
        assert Experiment(task=task, partition="iid", **keys).partition["name"] == "iid"
    assert Experiment(task="image", **keys).partition["name"] == "iid"


def test_the_precision_makes_another_run() -> None:
    plain = Experiment(**PLAIN)
    assert plain.run_id() == plain.replace({"precision": "float32"}).run_id()
    assert plain.run_id() != plain.replace({"precision": "bfloat16"}).run_id()
