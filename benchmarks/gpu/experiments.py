"""Small experiments that together use every algorithm, loss, optimizer and kind of probe: for tests
of devices, and ``make gpu``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from typing_extensions import override

from motley.experiments.config import Experiment
from motley.tasks.models import Model
from motley.testing.algorithms import Adapted

__all__ = ["ALGORITHMS", "BASE", "HELD", "ON_DEVICE", "OTHERS", "UNLIKE", "Keys", "experiments"]

Keys = dict[str, Any]
ON_DEVICE = ("sequential", "batched", "vmap")
"""The engines that compute on a device. ``debug`` looks at every step, hence waits; ``processes``
and ``ray`` run these in workers."""

BASE: Keys = {
    "task": {
        "name": "synthetic",
        "dim": 5,
        "classes": 3,
        "examples": 20,
        "sizes": "equal",
        "own_test": True,
        "model": {"name": "mlp", "hidden": [6]},
    },
    "population": 5,
    "cohort": 3,
    "stop": {"rounds": 2},
    "dtype": "float64",
    "evaluate": {"every": 2},
    "local": {"epochs": 1, "batch_size": 6, "optimizer": {"name": "sgd", "lr": 0.1}},
}
NORMED: Keys = {
    "name": "synthetic",
    "dim": 5,
    "classes": 3,
    "examples": 20,
    "sizes": "equal",
    "model": {"name": "mlp", "hidden": [6], "norm": "batch"},
}
DIGITS: Keys = {"name": "image", "data": "digits", "model": "digits_mlp"}
HELD: Keys = {
    "task": DIGITS,
    "partition": "iid",
    "population": 20,
    "split": {"test": "global", "server": 0.1},
    "public": 0.1,
}
LEVELS: Keys = {"capacity": {"name": "levels", "levels": [1.0, 0.5]}}
OWN: Keys = {"split": {"test": "client"}}
NEW: Keys = {
    "split": {"test": "client", "holdout_clients": 0.4},
    "evaluate": {"every": 2, "adapt_epochs": [0, 1]},
}


@dataclass(frozen=True)
class Adapters(Model):
    """A frozen linear layer with an adapter of rank 4."""

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Adapted(shape[0], outputs)


ADAPTED: Keys = {"task": {**BASE["task"], "model": Adapters()}}

ALGORITHMS: dict[str, list[Keys]] = {
    "apfl": [{"adaptive": True}, NEW],
    "ca2fl": [{"weights": "uniform"}],
    "ditto": [OWN],
    "fedadagrad": [{}],
    "fedadam": [{}],
    "fedala": [OWN],
    "fedadamw": [{}],
    "fedas": [OWN, NEW],
    "fedau": [{"weights": "uniform"}],
    "fedawe": [{"weights": "uniform"}],
    "fedavg": [{}],
    "fedavgm": [{}],
    "fedbabu": [{"tune_epochs": 1, "own_norms": True, "task": NORMED}, {"tune_epochs": 1, **OWN}],
    "fedbio": [{"steps": 2, **HELD}],
    "fedbn": [{"task": NORMED}],
    "feddf": [{"steps": 4, "every": 2, "batch_size": 16, **HELD}],
    "feddyn": [{"weights": "uniform"}],
    "fedex_lora": [ADAPTED, {**ADAPTED, **LEVELS}],
    "fedexp": [{}],
    "fedgh": [OWN],
    "fedlc": [{}],
    "fedlesam": [{}],
    "fedmd": [{"batch_size": 16, **HELD}],
    "fedmoswa": [{}],
    "fedmuon": [{}, {"form": "code"}],
    "fednova": [{"mu": 0.1}],
    "fedpac": [OWN, NEW],
    "pfedfda": [OWN, NEW],
    "fedper": [OWN, NEW],
    "fedproto": [OWN],
    "fedprox": [{"mu": 0.1}, {"adaptive": True}],
    "fedrep": [{"head_epochs": 2}],
    "fedrod": [OWN, NEW],
    "fedrolex": [LEVELS],
    "fedsa_lora": [{**ADAPTED, **OWN}],
    "fedsam": [{}],
    "fedswa": [{}],
    "fedvarp": [{"weights": "uniform"}],
    "fedyogi": [{}],
    "ffa_lora": [ADAPTED],
    "fedkd": [OWN],
    "fiarse": [LEVELS, {"scope": "layer", **LEVELS, **NEW}],
    "fml": [OWN],
    "fine_tuned": [{"method": "fedprox", "steps": 2, **OWN}],
    "fjord": [LEVELS, {"distil": True, **LEVELS}],
    "flash_robust": [{}],
    "flexlora": [ADAPTED, {**ADAPTED, **LEVELS}],
    "flora": [ADAPTED, {**ADAPTED, **LEVELS, **NEW}],
    "heterofl": [LEVELS, {**LEVELS, **NEW}],
    "hetlora": [{"gamma": 0.5, "lam": 0.5, **ADAPTED}, {**ADAPTED, **LEVELS}],
    "ifca": [{"k": 3, **OWN}, {"shared_base": True, **OWN}],
    "lg_fedavg": [OWN],
    "local_only": [OWN],
    "lora_fedavg": [{"measure_bias": True, **ADAPTED}, {**ADAPTED, **LEVELS}],
    "mifa": [{"weights": "uniform"}],
    "moon": [{}],
    "moon_fednova": [{}],
    "per_fedavg": [OWN],
    "pfedme": [{"inner_steps": 2, "lam": 1.0, **OWN}],
    "qfedavg": [{"weights": "uniform"}],
    "rhfl": [{"batch_size": 16, "weights": "uniform", **HELD}],
    "scaffold": [{"weights": "uniform"}, {"option": "I", "weights": "uniform"}],
}
"""Algorithm -> its options and other keys of the experiment, for every experiment that is run."""

OTHERS: dict[str, Keys] = {
    "momentum": {
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "local": {
            "epochs": 2,
            "batch_size": 6,
            "clip": {"norm": 0.5},
            "optimizer": {
                "name": "sgd",
                "lr": 0.1,
                "momentum": 0.9,
                "nesterov": True,
                "weight_decay": 0.01,
            },
        },
    },
    "adam": {
        "algorithm": "feddyn",
        "weights": "uniform",
        "local": {
            "steps": 3,
            "batch_size": 6,
            "clip": {"norm": 0.5, "of": "gradient"},
            "optimizer": {"name": "adam", "weight_decay": 0.1},
        },
    },
    "adamw": {"local": {"steps": 3, "batch_size": 6, "optimizer": {"name": "adamw", "lr": 0.01}}},
    "huber": {
        "task": "tabular_regression",
        "partition": "iid",
        "split": {"test": "global"},
        "loss": "huber",
    },
    "half_squared_error": {"task": {"name": "quadratic", "dim": 3, "examples": [4] * 5}},
    "symmetric": {"loss": "symmetric", "label_noise": {"name": "label_flip", "share": 0.3}},
    "gradients": {"selector": "delta", "weights": "selector"},
    "sketches": {"selector": {"name": "hetero_select", "direction": "sketch"}, "weights": "score"},
    "validation": {
        "selector": {"name": "flash", "drop": "val_loss"},
        "algorithm": "flash_robust",
        "split": {"test": "client", "validation": 0.2},
    },
    "norms": {"selector": "feel", "weights": "selector"},
    "diagnostics": {"evaluate": {"every": 2, "diagnostics": True}},
    "curvature": {
        "compressor": {"name": "topk", "criterion": "curvature"},
        "budget": "cosine",
        "feedback": "adaptive",
    },
    "recalibrated": {
        "task": {**DIGITS, "model": {"name": "digits_mlp", "norm": "batch"}},
        "partition": "iid",
        "population": 40,
        "split": {"test": "global"},
        "recalibrate": {"batches": 2},
    },
    "drift": {
        "task": DIGITS,
        "partition": "iid",
        "population": 40,
        "drift": {"name": "swap", "start": 1.0, "share": 1.0},
    },
    "median": {
        "aggregator": "median",
        "weights": "uniform",
        "failures": {"name": "corrupted", "share": 0.3},
    },
    "dropout": {"task": {**DIGITS, "dropout": 0.5}, "partition": "iid", "population": 40},
    "bfloat16": {"dtype": "float32", "precision": "bfloat16", "algorithm": "fedprox"},
    "bfloat16 with momentum": {
        "dtype": "float32",
        "precision": "bfloat16",
        "algorithm": "moon",
        "local": {
            "steps": 3,
            "batch_size": 6,
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        },
    },
    "bfloat16 pictures": {
        "task": {**DIGITS, "model": "simple_cnn"},
        "partition": "iid",
        "population": 60,
        "split": {"test": "client"},
        "dtype": "float32",
        "precision": "bfloat16",
    },
    "pictures": {
        "task": {**DIGITS, "model": "simple_cnn", "augment": "crop_flip"},
        "partition": "iid",
        "population": 60,
        "split": {"test": "client"},
    },
}

UNLIKE = frozenset({"dropout", "bfloat16", "bfloat16 with momentum", "bfloat16 pictures"})
"""Experiments whose numbers another device has otherwise: masks that it draws, products that it
rounds."""


def experiments() -> Iterator[tuple[str, Keys]]:
    """Yield names and keys of all of them, without an engine."""
    for name, found in ALGORITHMS.items():
        for i, row in enumerate(found):
            own = {key for key in row if key == "method" or key not in Experiment.model_fields}
            algorithm = {"name": name, **{key: row[key] for key in own}}
            others = {key: value for key, value in row.items() if key not in own}
            yield f"{name} {i + 1}" if i else name, {**BASE, **others, "algorithm": algorithm}
    for name, keys in OTHERS.items():
        yield name, {**BASE, **keys}
