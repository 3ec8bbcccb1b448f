"""The experiments that are run in both versions of the code, in the spelling of the newer one.

All are small: together they use every component, each of its words, and what lies around them
(engines, memories, checkpoints, data of one's own). :mod:`same_results.coverage` tells what is
missing. A text ``{files}`` stands for the folder that :mod:`same_results.files` fills.
"""

from __future__ import annotations

from same_results import methods as methods
from same_results.cases import (
    BUFFER,
    DIGITS,
    EXPERIMENTS,
    FIFTH,
    LOSSY,
    NORMED,
    PARABOLAS,
    SGD,
    SYNTHETIC,
    VALIDATED,
    Case,
    Keys,
    add,
)

__all__ = ["EXPERIMENTS", "Case", "Keys"]


# ------------------------------------------------------------------------------------- selectors

_SELECTORS: dict[str, list[Keys]] = {
    "active_fl": [
        {},
        {"cold_start": "unseen_low", "ties": "lowest_id"},
        {"alpha1": 0.0, "alpha3": 0.0, "refresh": "all", "drawn": 6, "floor": 1e-8},
    ],
    "adasample": [
        {},
        {"pilots": True, "pilot_rounds": 2, "refresh": 2},
        {"c0": 0.1, "refresh": 2, "c0_divisor": 2.0},
    ],
    "clustered_sampling": [{}, {"by": "sizes"}, {"vectors": "gradient"}],
    "delta": [{}, {"b": 0.3, "vector": "gradient", "probe_batches": 1}],
    "divfl": [
        {},
        {
            "variant": "ideal",
            "vectors": "gradient",
            "greedy": "stochastic",
            "coefficients": "clusters",
            "ties": "lowest_id",
        },
        {"start": "random"},
    ],
    "fedcbs": [{}, {"beta": 2.0, "exploration": 0.0}],
    "fedcg": [
        {},
        {
            "slack": "traffic",
            "time_aware": True,
            "start": "unknown",
            "vectors": "gradient",
            "ties": "lowest_id",
        },
    ],
    "fedcor": [
        {
            "warmup": 2,
            "interval": 2,
            "history": 3,
            "first_iterations": 20,
            "iterations": 5,
            "dimension": 3,
        },
        {
            "warmup": 1,
            "interval": 2,
            "history": 0,
            "first_iterations": 10,
            "iterations": 5,
            "measured": "val_loss",
        },
    ],
    "fedcs": [
        {"deadline": 3.0},
        {"deadline": 4.0, "selection": 0.5, "aggregation": 0.5, "share": 0.5, "fill": True},
    ],
    "fedcvr_bolt": [
        {"warm_up": 1},
        {
            "similarity": "gaussian",
            "rho": "cosine",
            "literal_means": True,
            "recluster_every": 2,
            "warm_up": 0,
            "coordinates": 50,
            "whole": 100,
        },
        {
            "similarity": "cosine",
            "rho": "regression",
            "exact_up_to": 4,
            "landmarks": 5,
            "warm_up": 2,
        },
        {
            "clustering": "scikit_learn",
            "rho": "cosine",
            "literal_means": True,
            "covariance": "ones",
            "step": "constant",
            "whole": 0,
            "coordinates": 50,
            "among": 60,
            "warm_up": 1,
        },
        {"covariance": "ones", "step": "shifted", "warm_up": 1},
    ],
    "fedstas": [
        {"strata": 3},
        {"strata": 3, "probe": "last_report"},
        {"strata": 2, "every": 2, "probe_batches": 1},
    ],
    "feel": [
        {},
        {"norm_source": "stale", "scaled": False, "cap": 2.0},
        {"probe_batches": 1, "rho": 0.2},
    ],
    "flash": [
        {},
        {
            "tau": "seconds",
            "probe": "last_report",
            "drop": "duration",
            "first_round": "cohort",
            "ties": "lowest_id",
            "schedule": "constant",
        },
        {"tau": "round", "drop": "reward", "schedule": "analysis"},
        {"drop": "robust_loss", "probe_batches": 1},
        {"drop": "val_loss"},
    ],
    "greedyfed": [
        {"permutations": 3},
        {"average": "exponential", "values": "exact", "ties": "lowest_id"},
        {"until": "each", "truncation": 0.01},
    ],
    "hetero_select": [
        {},
        {"direction": "sketch", "lr": "score_adaptive", "as_published": "code", "probe_batches": 2},
    ],
    "hetero_select_v1": [
        {},
        {"form": "multiplicative", "strategy": "exploitative", "probe": "last_report"},
        {"w_value": 2.0, "w_norm": 0.0, "gamma": 0.3, "eta": 0.2, "probe_batches": 1},
    ],
    "hics_fl": [{"temperature": 0.01}, {"temperature": 0.01, "groups": 3, "distance": 1.0}],
    "linucb": [
        {},
        {
            "tau": "seconds",
            "probe": "last_report",
            "drop": "duration",
            "first_round": "cohort",
            "ties": "lowest_id",
            "schedule": "algorithm",
            "disjoint": True,
        },
        {"tau": "round", "drop": "reward", "schedule": "analysis"},
        {"drop": "robust_loss", "probe_batches": 1},
        {"drop": "val_loss"},
    ],
    "neural_bandit": [
        {"hidden": 6},
        {
            "hidden": 6,
            "tau": "seconds",
            "probe": "last_report",
            "drop": "duration",
            "first_round": "all",
            "ties": "lowest_id",
            "buffer": 10,
            "seed": 3,
        },
        {"hidden": 4, "tau": "round", "drop": "reward"},
        {"hidden": 4, "drop": "robust_loss", "probe_batches": 1},
        {"hidden": 4, "drop": "val_loss"},
    ],
    "oort": [
        {"window": 2},
        {
            "pacer": "paper",
            "window": 2,
            "norm_pool": "code",
            "form": "raw",
            "explore": "speed",
            "late": "mean",
            "blacklist": 2,
            "widen": 1,
            "batch_size": 4,
            "ties": "lowest_id",
            "exploration": 0.5,
        },
    ],
    "power_of_choice": [
        {"d": 6},
        {"variant": "cpow_d", "d": 6, "ties": "lowest_id"},
        {"variant": "rpow_d", "d": 6},
        {"variant": "adapow_d"},
        {"d": 6, "sampling": "uniform"},
    ],
    "pyramidfl": [
        {"window": 2},
        {
            "pacer": "paper",
            "window": 2,
            "norm_pool": "code",
            "form": "raw",
            "explore": "speed",
            "late": "mean",
            "blacklist": 2,
            "widen": 1,
            "ties": "lowest_id",
            "beta": 0.5,
            "drop_low": 0.2,
            "drop_high": 0.4,
        },
    ],
    "restless_bandit": [
        {},
        {
            "variant": "filter",
            "tau": "seconds",
            "first_round": "all",
            "ties": "lowest_id",
            "sigma": 0.5,
        },
        {"tau": "round", "lam": 0.3, "explore": 0.5},
    ],
    "tifl": [
        {"tiers": 3, "interval": 2, "retier": 3},
        {"tiers": 2, "interval": 1, "retier": 2, "credits": 2},
    ],
    "ucb1": [
        {},
        {"tau": "seconds", "first_round": "cohort", "ties": "lowest_id"},
        {"tau": "round"},
    ],
    "uniform": [{}, {"variant": "weighted_wr"}, {"variant": "weighted_wor"}, {"unbiased": True}],
}
_COMPRESSED = {"compressor": "topk", "allocator": {"name": "from_selector", "least": 0.01}}
_ALSO: dict[str, Keys] = {
    "adasample": {"weights": "selector"},
    "adasample 2": {"weights": "selector", "failures": LOSSY},
    "clustered_sampling": {"weights": "selector"},
    "clustered_sampling 3": {"weights": "uniform", "failures": LOSSY},
    "delta": {"weights": "selector"},
    "divfl 2": {"weights": "selector_ratio"},
    "fedcg": _COMPRESSED,
    "fedcg 2": {**_COMPRESSED, "feedback": "fixed"},
    "fedcvr_bolt": {"weights": "selector_ratio", "stop": {"rounds": 7}},
    "fedcvr_bolt 2": {"weights": "selector_ratio", "stop": {"rounds": 7}},
    "fedcvr_bolt 3": {"weights": "selector_ratio", "stop": {"rounds": 7}, "population": 12},
    "fedcvr_bolt 4": {"weights": "selector_ratio", "stop": {"rounds": 7}},
    "fedcvr_bolt 5": {"weights": "selector_ratio", "stop": {"rounds": 7}},
    "fedstas": {"weights": "selector"},
    "feel": {"weights": "selector"},
    "feel 2": {"weights": "selector_ratio"},
    "flash": {"algorithm": "flash_robust"},
    "greedyfed": {"split": {**VALIDATED, "server": 0.1}},
    "greedyfed 2": {"split": {**VALIDATED, "server": 0.1}, "failures": LOSSY},
    "greedyfed 3": {"split": {**VALIDATED, "server": 0.1}, "weights": "uniform"},
    "hetero_select": {"weights": "score"},
    "hetero_select 2": {"weights": "score"},
    "hetero_select_v1 2": {"weights": "score"},
    "oort 2": {
        "failures": LOSSY,
        "synchrony": {"name": "deadline", "seconds": 1.2, "over_select": 1.5},
    },
    "pyramidfl": {"compressor": "topk", "allocator": "from_selector", "stop": {"rounds": 7}},
    "pyramidfl 2": {
        "local": {"epochs": 2, "batch_size": 16, "optimizer": SGD},
        "stop": {"rounds": 7},
    },
    "uniform": {"weights": "horvitz_thompson"},
    "uniform 2": {"weights": "uniform"},
    "uniform 4": {"weights": "selector"},
}
for _name, _variants in _SELECTORS.items():
    for _number, _options in enumerate(_variants, 1):
        _called = _name if _number == 1 else f"{_name} {_number}"
        _keys: Keys = {
            "selector": {"name": _name, **_options},
            "split": VALIDATED,
            "stop": {"rounds": 6},
            "seed": _number,
        }
        add(f"selector {_called}", DIGITS, **{**_keys, **_ALSO.get(_called, {})})

for _name in ("power_of_choice", "oort", "hetero_select_v1", "fedcs", "tifl", "flash"):
    add(
        f"selector {_name} in a buffer",
        DIGITS,
        selector=_name,
        synchrony={**BUFFER, "buffer": 2},
        weights="uniform",
        stop={"rounds": 8},
        failures=LOSSY,
        availability={"name": "bernoulli", "p": 0.7},
        split=VALIDATED,
    )
add(
    "selector fedcor of parabolas",
    PARABOLAS,
    selector={
        "name": "fedcor",
        "warmup": 1,
        "interval": 1,
        "first_iterations": 10,
        "iterations": 5,
    },
    algorithm="scaffold",
    weights="uniform",
)
add(
    "selector power_of_choice, all batches",
    SYNTHETIC,
    selector={"name": "power_of_choice", "d": 5},
    probe={"batches": "all"},
)
add(
    "selector power_of_choice, one batch",
    SYNTHETIC,
    selector={"name": "power_of_choice", "d": 5},
    probe={"batches": 1},
)


# ------------------------------------------------------------------------------------- presets

for _name in (
    "adasample",
    "fedavg",
    "fedcg",
    "fedcvr_bolt",
    "fedcvr_bolt_published",
    "fedprox",
    "flash",
    "flexcom",
    "hetero_select",
    "hetero_select_published",
    "hetero_select_v1",
    "optrate",
):
    add(f"method {_name}", DIGITS, method=_name, split=VALIDATED)
    if _name != "fedavg":  # its own local work, cut short
        del EXPERIMENTS[f"method {_name}"].keys["local"]
        EXPERIMENTS[f"method {_name}"].keys["local"] = {"max_steps": 4}


# --------------------------------------------------------------------------------- tasks and models

add(
    "task quadratic",
    PARABOLAS,
    task={
        "name": "quadratic",
        "dim": 2,
        "curvatures": [1.0, 3.0],
        "minima": [-1.0, 2.0, 0.5, 1.0],
        "examples": [1, 5],
    },
    population=2,
    cohort=2,
    dtype="float32",
)
add("task quadratic, drawn", PARABOLAS, task={"name": "quadratic", "dim": 4, "spread": 2.0})
add(
    "task synthetic",
    SYNTHETIC,
    task={"name": "synthetic", "alpha": 0.5, "beta": 0.5, "dim": 6, "classes": 3},
)
add(
    "task synthetic, alike",
    SYNTHETIC,
    task={
        "name": "synthetic",
        "iid": True,
        "sizes": "equal",
        "examples": 30,
        "dim": 6,
        "own_test": False,
        "model": {"name": "mlp", "hidden": [8]},
    },
)
add(
    "task clustered_regression",
    SYNTHETIC,
    task={"name": "clustered_regression", "clusters": 3, "examples": 20},
    local={"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.005}},
)
add(
    "task clustered_regression with intercept",
    SYNTHETIC,
    task={"name": "clustered_regression", "clusters": 2, "intercept": True, "examples": 20},
    local={"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.005}},
    selector="ucb1",
)
_TABLE: Keys = {**SYNTHETIC, "partition": "iid", "split": {"test": "global"}}
add("task tabular", _TABLE, task={"name": "tabular", "data": "breast_cancer"})
add(
    "task tabular, unscaled",
    _TABLE,
    task={
        "name": "tabular",
        "data": "wine",
        "scale": "none",
        "dropout": 0.2,
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
    },
    stop={"rounds": 4},
    local={"steps": 4, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 1e-4}},
)
add(
    "task tabular with clients",
    {**SYNTHETIC, "partition": "by_writer", "population": None},
    task={
        "name": "tabular",
        "data": "{files}/table.csv",
        "label": "kind",
        "client": "owner",
        "model": {"name": "linear", "bias": False},
    },
)
for _task in ("tabular", "tabular_regression"):
    for _scale, _impute, _missing in (
        ("federated", "mean", "category"),
        ("client", "median", "most_frequent"),
    ):
        add(
            f"task {_task}, scale {_scale}",
            {**_TABLE, "split": {"test": "client" if _scale == "client" else "global"}},
            task={"name": _task, "scale": _scale, "impute": _impute, "missing": _missing},
        )
_SPELLED: Keys = {
    "data": "{files}/spelled.csv",
    "sep": ";",
    "client": "owner",
    "decimal": ",",
    "thousands": ".",
    "units": ["kg"],
    "trim": True,
    "fold": True,
    "drop_rows": True,
}
for _dates in ("day first", "month first"):
    _spelled = {**_SPELLED, "dates": _dates, "scale": "federated"}
    add(
        f"task tabular, {_dates}",
        {**SYNTHETIC, "partition": "by_writer", "population": None},
        task={"name": "tabular", **_spelled, "label": "kind", "rename": {"perhaps": "no"}},
    )
    add(
        f"task tabular_regression, {_dates}",
        {**SYNTHETIC, "partition": "by_writer", "population": None},
        task={"name": "tabular_regression", **_spelled, "label": "mass"},
        local={"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 1e-9}},
    )
_FIXED = {"when": [19_500.0, 90.0], "mass": [1_500.0, 250.0], "job": ["clerk", "nurse"]}
add(
    "task tabular, scale fixed",
    {**SYNTHETIC, "partition": "by_writer", "population": None},
    task={
        "name": "tabular",
        **_SPELLED,
        "dates": "day first",
        "label": "kind",
        "scale": "fixed",
        "fixed": _FIXED,
    },
)
_TEXTS: Keys = {"name": "text", "data": "{files}/texts", "window": 6}
for _model in (
    {"name": "leaf_lstm", "hidden": 6},
    {"name": "transformer", "width": 8, "layers": 1, "heads": 2},
):
    for _targets in ("every", "last"):
        add(
            f"task text, {_model['name']}, {_targets}",
            SYNTHETIC,
            population=None,
            task={**_TEXTS, "model": {**_model, "targets": _targets}, "targets": _targets},
        )
add("task tabular_regression", _TABLE, task="tabular_regression")
add(
    "task tabular_regression, unscaled",
    _TABLE,
    task={"name": "tabular_regression", "scale": "none", "model": {"name": "mlp", "hidden": [6]}},
    local={"steps": 4, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.01}},
    stop={"rounds": 4},
)
add("task own", SYNTHETIC, Case(own="classes"), task={"name": "own"}, population=None)
add(
    "task own, numbers",
    SYNTHETIC,
    Case(own="numbers"),
    task={"name": "own"},
    population=None,
    local={"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.01}},
    selector="delta",
)
add(
    "task own, global test",
    SYNTHETIC,
    Case(own="global"),
    task={"name": "own"},
    population=None,
    algorithm="fedbn",
)

_PICTURES: Keys = {
    **DIGITS,
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 2},
    "partition": "iid",
    "split": {"test": "global"},
    "local": {"steps": 2, "batch_size": 8, "optimizer": SGD},
    "evaluate": {"every": 1, "per_client": False},
}
for _name in (
    "logistic_regression",
    "linear",
    "mlp",
    "cnn",
    "simple_cnn",
    "leaf_cnn",
    "alexnet",
    "resnet9",
    "resnet18",
):
    add(
        f"model {_name}",
        _PICTURES,
        task={"name": "image", "data": "{files}/pictures.npz", "model": _name},
        stop={"rounds": 1 if _name in ("alexnet", "resnet9", "resnet18") else 2},
    )
add(
    "model cnn with dropout and crops",
    _PICTURES,
    task={
        "name": "image",
        "data": "{files}/pictures.npz",
        "model": "cnn",
        "dropout": 0.3,
        "augment": "crop_flip",
        "scale": "unit",
    },
)
add(
    "model resnet9, recalibrated",
    _PICTURES,
    task={"name": "image", "data": "{files}/pictures.npz", "model": "resnet9"},
    recalibrate={"batches": 3, "clients": 2},
)
add(
    "model digits_mlp, recalibrated",
    DIGITS,
    task=NORMED,
    recalibrate={"batches": 4, "clients": 2},
    failures=LOSSY,
)
add(
    "model digits_mlp with norms and dropout",
    DIGITS,
    task={
        "name": "image",
        "data": "digits",
        "dropout": 0.2,
        "scale": "unit",
        "model": {"name": "digits_mlp", "norm": "batch", "hidden": [16, 16]},
    },
)
add(
    "pictures of writers",
    {**_PICTURES, "population": None},
    task={"name": "image", "data": "{files}/written.npz", "model": {"name": "mlp", "hidden": [12]}},
    partition="by_writer",
    split={"test": "client", "test_fraction": 0.3},
)
add(
    "pictures of LEAF",
    {**_PICTURES, "population": None},
    task={"name": "image", "data": "{files}/leaf", "model": "linear"},
    partition="by_writer",
)


# ----------------------------------------------------------- data: partitions, noise, shifts, drift

_PARTITIONS: list[Keys] = [
    {"name": "dirichlet", "alpha": 0.3, "law": "per_client"},
    {"name": "dirichlet", "alpha": 0.3, "mask": True},
    {"name": "iid"},
    {"name": "label_count", "labels": 3},
    {"name": "missing_classes", "missing": 4},
    {"name": "missing_classes", "missing": 4, "variant": "code"},
    {"name": "psi", "psi": 0.5},
    {"name": "psi", "variant": "clean"},
    {"name": "quantity"},
    {"name": "quantity", "law": "log_normal", "sigma": 0.5},
    {"name": "quantity", "law": "dirichlet", "beta": 1.0, "alpha": 0.5},
    {"name": "shards", "shards": 2},
    {"name": "skewed_share", "share": 0.5},
    {"name": "flower_niid_bench"},
    {"name": "flwr_dirichlet"},
    {"name": "flwr_pathological"},
    {"name": "heterofl_shards"},
    {"name": "ji_shards"},
    {"name": "niid_bench"},
]
for _number, _partition in enumerate(_PARTITIONS):
    add(
        f"partition {_number} {_partition['name']}",
        DIGITS,
        partition=_partition,
        seed=_number,
        split={"test": "global" if _partition.get("variant") == "code" else "client"},
    )

_NOISES: list[Keys] = [
    {"name": "beta", "mean": 0.2},
    {"name": "beta", "mean": 0.2, "mode": "bernoulli", "share": 0.6},
    {"name": "label_flip"},
    {"name": "none"},
    {"name": "pair_flip", "rate": 0.3, "mode": "bernoulli", "share": 0.5},
    {"name": "symmetric", "rate": 0.4, "inclusive": True},
    {"name": "symmetric", "rate": 0.4, "mode": "bernoulli"},
]
for _number, _noise in enumerate(_NOISES):
    add(
        f"label noise {_number} {_noise['name']}",
        DIGITS,
        label_noise=_noise,
        seed=_number,
        selector="power_of_choice",
    )

_SHIFTS: list[Keys] = [
    {
        "feature_shift": {
            "name": "domains",
            "names": ["plain", "inverted", "dim", "blurred", "rotated", "noisy"],
        }
    },
    {"feature_shift": {"name": "noise", "sigma": 0.3}},
    {
        "feature_shift": {"name": "none"},
        "concept_shift": {"name": "none"},
        "drift": {"name": "none"},
    },
    {"feature_shift": {"name": "transform", "contrast": [0.5, 1.5]}},
    {"concept_shift": {"name": "swap", "clusters": 3, "share": 0.6}},
    {"drift": {"name": "swap", "start": 2.0, "width": 2.0}},
    {"drift": {"name": "swap", "start": 2.0, "share": 1.0, "clock": "seconds"}},
    {"drift": {"name": "window", "share": 0.4, "period": 3.0, "common": True}},
    {"drift": {"name": "window", "share": 0.4, "period": 4.0, "clock": "seconds"}},
    {"feature_shift": {"name": "niid_bench", "sigma": 0.3}},
]
for _number, _shift in enumerate(_SHIFTS):
    add(
        f"shift {_number} {' '.join(_shift)}",
        DIGITS,
        split={"test": "client"},
        selector="power_of_choice",
        seed=_number,
        **_shift,
    )
add(
    "drift in a buffer",
    DIGITS,
    drift={"name": "window", "share": 0.4, "period": 2.0, "clock": "seconds"},
    stop={"rounds": 8},
    synchrony={**BUFFER, "buffer": 2},
    weights="uniform",
)
add(
    "drift of asynchronous clients",
    DIGITS,
    drift={"name": "swap", "start": 3.0, "width": 4.0},
    stop={"rounds": 12},
    synchrony="asynchronous",
    weights="uniform",
)
add(
    "validation and server's samples",
    DIGITS,
    split={"test": "client", "test_fraction": 0.3, "validation": 0.3, "server": 0.1},
    label_noise={"name": "symmetric", "rate": 0.3},
    pin={"partition": 7, "init": 3},
)


# ---------------------------------------------------------------- speeds, links, presence, failures

_WORLDS: list[Keys] = [
    {"device": {"name": "constant", "seconds": 0.2}, "network": {"name": "none"}},
    {"device": {"name": "log_normal"}, "network": {"name": "log_normal", "down_mbps": 10.0}},
    {
        "device": {"name": "log_normal", "per": "round"},
        "network": {"name": "log_normal", "per": "client"},
    },
    {
        "device": {"name": "shifted_exponential", "a_t": 0.01, "lambda_t": 0.02},
        "network": {"name": "constant", "up_mbps": 2.0},
    },
    {
        "device": {"name": "shifted_exponential", "a_t": 0.01, "per": "client"},
        "network": {"name": "constant", "up_mbps": 2.0, "down_mbps": 8.0},
    },
    {
        "device": {"name": "trace", "file": "{files}/speeds.csv"},
        "network": {"name": "trace", "file": "{files}/links.csv"},
    },
    {
        "device": {"name": "trace", "file": "{files}/speeds.csv", "assign": "random"},
        "network": {"name": "trace", "file": "{files}/links.csv", "assign": "random"},
    },
    {
        "device": {"name": "uniform", "per": "round"},
        "network": {"name": "uniform", "per": "client"},
    },
    {"network": {"name": "inverted"}},
    {
        "network": {"name": "inverted", "law": "rank", "batches": None},
        "synchrony": {**BUFFER, "buffer": 2},
    },
    {
        "network": {"name": "inverted", "batches": 1},
        "selector": "hetero_select",
        "weights": "score",
        "algorithm": "fedprox",
    },
    {"availability": {"name": "always"}, "failures": {"name": "none"}},
    {
        "availability": {"name": "bernoulli", "p": 0.6, "low": 0.2},
        "failures": {"name": "crash", "rate": 0.2, "share": 0.8},
    },
    {
        "availability": {"name": "bernoulli", "p": 0.5, "slot_s": 1.0},
        "failures": {"name": "drop_out", "rate": 0.3, "at": 0.5},
    },
    {
        "availability": {"name": "markov", "p": 0.4, "q": 0.4},
        "failures": {"name": "drop_out", "rate": 0.5, "low": 0.1},
    },
    {
        "availability": {
            "name": "markov",
            "p": 0.4,
            "q": 0.4,
            "slot_s": 1.0,
            "amplitude": 0.5,
            "day_s": 20.0,
        },
        "failures": {"name": "non_finite", "rate": 0.3},
    },
    {
        "availability": {"name": "day_night", "share": 0.4, "day_s": 10.0},
        "failures": {"name": "corrupted", "share": 0.3},
    },
    {
        "availability": {"name": "trace", "file": "{files}/presence.csv"},
        "failures": {"name": "corrupted", "kind": "scaling", "scale": 3.0},
    },
    {
        "availability": {"name": "trace", "file": "{files}/presence.csv", "assign": "random"},
        "synchrony": {"name": "synchronous", "idle_s": 5.0},
    },
]
_WORLDS.append(
    {
        "device": {"name": "recorded", "file": "{files}/laws.csv", "values": 12},
        "network": {"name": "recorded", "file": "{files}/laws-of-links.csv", "values": 12},
        "availability": {"name": "recorded", "file": "{files}/stays.csv", "slot_s": 1.0},
        "failures": {"name": "recorded", "file": "{files}/lost.csv"},
    }
)
_WORLDS.append(
    {
        "device": {"name": "measured", "table": "pcs_2022", "shares": {"laptop": 1.0}},
        "network": {"name": "measured", "country": {"DE": 0.5, "IN": 0.5}, "per": "round"},
        "availability": {"name": "measured", "spread": 1.0},
    }
)
for _number, _world in enumerate(_WORLDS):
    add(
        f"world {_number}",
        DIGITS,
        **{"stop": {"rounds": 6}, "seed": _number, "weights": "uniform", **_world},
    )


for _name in ("coalition", "constant", "copy_best", "scaled"):
    add(
        f"dishonest {_name}",
        DIGITS,
        dishonest={"name": _name, "share": 0.3},
        selector="oort",
        defence="on",
    )


# ------------------------------------------------------------------------------------- synchrony

_SLOW = {"name": "log_normal", "median": 0.3, "sigma": 1.0}
_MODES: list[Keys] = [
    {"synchrony": {"name": "synchronous"}},
    {"synchrony": {"name": "deadline", "seconds": 1.0}},
    {"synchrony": {"name": "deadline", "seconds": 1.0, "late": "partial", "over_select": 1.5}},
    {"synchrony": {"name": "deadline", "over_select": 2.0, "min_uploads": 2, "idle_s": 3.0}},
    {
        "synchrony": {"name": "deadline", "seconds": 0.4, "min_uploads": 2},
        "weights": "horvitz_thompson",
    },
    {
        "synchrony": {"name": "deadline", "over_select": 1.5},
        "weights": "horvitz_thompson",
        "failures": LOSSY,
    },
    {"synchrony": {**BUFFER, "buffer": 2}},
    {"synchrony": {**BUFFER, "buffer": 2, "staleness": "constant", "max_staleness": 1}},
    {
        "synchrony": {**BUFFER, "buffer": 3, "staleness": "hinge", "a": 2.0, "b": 1.0},
        "failures": LOSSY,
    },
    {"synchrony": {**BUFFER, "buffer": 1}, "algorithm": "fedprox", "server": "momentum"},
    {"synchrony": {"name": "asynchronous"}},
    {
        "synchrony": {
            "name": "asynchronous",
            "staleness": "constant",
            "alpha": 0.4,
            "max_staleness": 2,
        }
    },
    {
        "synchrony": {"name": "asynchronous", "staleness": "hinge", "a": 1.0, "b": 1.0},
        "failures": {"name": "non_finite", "rate": 0.2},
        "availability": {"name": "bernoulli", "p": 0.6, "slot_s": 1.0},
    },
    {
        "synchrony": {**BUFFER, "buffer": 2, "idle_s": 2.0},
        "availability": {"name": "day_night", "day_s": 8.0},
    },
    {"synchrony": {**BUFFER, "buffer": 2}, "cohort": 6, "failures": {"name": "crash", "rate": 0.1}},
    {"synchrony": {**BUFFER, "buffer": 5}, "cohort": 7, "dtype": "float64", "weights": "examples"},
    {"synchrony": {**BUFFER, "buffer": 4}, "cohort": 7, "algorithm": "scaffold", "failures": LOSSY},
    {
        "synchrony": {**BUFFER, "buffer": 4},
        "cohort": 7,
        "aggregator": "trimmed_mean",
        "selector": "oort",
    },
    {"synchrony": {"name": "fedcompass", "min_steps": 2, "max_steps": 12}},
    {
        "synchrony": {
            "name": "fedcompass",
            "min_steps": 2,
            "max_steps": 12,
            "latest": 1.1,
            "momentum": 0.5,
            "form": "models",
        },
        "failures": LOSSY,
    },
]
for _number, _mode in enumerate(_MODES):
    _base = DIGITS if _number % 2 else SYNTHETIC
    _keys = {
        "weights": "uniform",
        "stop": {"rounds": 10},
        "device": _SLOW,
        "cohort": 4,
        "seed": _number,
        **_mode,
    }
    add(f"synchrony {_number} {_mode['synchrony']['name']}", _base, **_keys)


# ------------------------------------------------------------------------------------- what is sent

_SENT: list[Keys] = [
    {"compressor": {"name": "identity"}, "feedback": {"name": "none"}},
    {"compressor": {"name": "fedpaq", "levels": 3}},
    {"compressor": {"name": "qsgd", "levels": 7, "bucket": 64}},
    {"compressor": {"name": "qsgd", "norm": "max"}, "feedback": {"name": "fixed", "decay": 0.9}},
    {"compressor": {"name": "randomk"}, "budget": FIFTH},
    {
        "compressor": {"name": "randomk", "unbiased": False},
        "budget": FIFTH,
        "feedback": {"name": "fixed"},
    },
    {"compressor": {"name": "signs"}, "feedback": {"name": "fixed"}},
    {"compressor": {"name": "signs", "scale": "unit"}},
    {
        "compressor": {"name": "tensor_drop"},
        "budget": {"name": "constant", "average": 0.6, "warm_up": 1},
    },
    {
        "compressor": {"name": "tensor_drop", "rescale": True},
        "budget": {"name": "constant", "average": 0.6},
    },
    {"compressor": {"name": "terngrad"}},
    {
        "compressor": {"name": "terngrad", "clip": None, "per": "vector"},
        "feedback": {"name": "fixed"},
    },
    {"compressor": {"name": "topk"}, "budget": FIFTH, "feedback": {"name": "adaptive"}},
    {
        "compressor": {"name": "topk", "criterion": "curvature"},
        "budget": {"name": "cosine"},
        "feedback": {"name": "adaptive"},
    },
    {
        "compressor": {
            "name": "topk",
            "criterion": "curvature",
            "share": "count",
            "guard": "clamp",
            "rounding": "floor",
            "layers": 1,
        },
        "budget": {"name": "cosine", "as_published": "code"},
    },
    {
        "compressor": {"name": "topk", "per_tensor": True},
        "quantizer": {"name": "qsgd", "levels": 15},
        "budget": FIFTH,
        "feedback": {"name": "fixed"},
    },
    {
        "compressor": {"name": "topk", "rescale": True, "rounding": "floor"},
        "quantizer": {"name": "terngrad"},
        "budget": FIFTH,
    },
    {
        "compressor": {"name": "topk"},
        "quantizer": {"name": "signs"},
        "budget": FIFTH,
        "feedback": {"name": "ef21"},
        "weights": "uniform",
    },
    {
        "compressor": {"name": "topk"},
        "budget": FIFTH,
        "feedback": {"name": "ef21"},
        "weights": "uniform",
        "failures": LOSSY,
    },
    {
        "compressor": {"name": "randomk", "unbiased": False},
        "quantizer": {"name": "fedpaq"},
        "budget": FIFTH,
    },
    {
        "compressor": {"name": "tensor_drop"},
        "quantizer": {"name": "qsgd"},
        "budget": {"name": "constant", "average": 0.5},
    },
    {"compressor": "topk", "budget": FIFTH, "allocator": {"name": "fedcg_lp"}},
    {
        "compressor": "topk",
        "budget": FIFTH,
        "allocator": {"name": "fedcg_lp", "weights": "examples", "slack": "traffic"},
    },
    {
        "compressor": "topk",
        "budget": FIFTH,
        "allocator": {"name": "fedcg_lp", "weights": "last_update"},
    },
    {"compressor": "topk", "budget": FIFTH, "allocator": {"name": "flexcom"}, "feedback": "fixed"},
    {
        "compressor": "topk",
        "budget": FIFTH,
        "allocator": {"name": "flexcom", "meet": "error", "error": "last_update"},
    },
    {"compressor": "topk", "budget": FIFTH, "allocator": {"name": "optrate", "gain": 0.3}},
    {
        "compressor": "topk",
        "budget": FIFTH,
        "allocator": {"name": "uniform"},
        "synchrony": {**BUFFER, "buffer": 2},
        "feedback": "fixed",
        "weights": "uniform",
        "stop": {"rounds": 9},
    },
    {
        "compressor": "topk",
        "budget": FIFTH,
        "algorithm": "scaffold",
        "weights": "uniform",
        "feedback": "fixed",
    },
    {
        "compressor": "topk",
        "budget": FIFTH,
        "algorithm": "feddyn",
        "weights": "uniform",
        "feedback": "adaptive",
    },
    {
        "compressor": "topk",
        "budget": FIFTH,
        "algorithm": "moon",
        "feedback": "adaptive",
        "failures": LOSSY,
    },
    {"compressor": "topk", "budget": FIFTH, "selector": "divfl", "feedback": "fixed"},
    {
        "compressor": "topk",
        "budget": FIFTH,
        "selector": "adasample",
        "weights": "selector",
        "quantizer": "qsgd",
    },
    {
        "compressor": "qsgd",
        "synchrony": "asynchronous",
        "weights": "uniform",
        "stop": {"rounds": 9},
    },
]
for _number, _sent in enumerate(_SENT):
    add(f"sent {_number}", DIGITS, **{"seed": _number, **_sent})
_SCORED: list[Keys] = [
    {"allocator": {"name": "by_score"}, "selector": "hetero_select", "weights": "score"},
    {
        "allocator": {"name": "by_score", "as_published": "code", "cap": "upload_only"},
        "selector": "hetero_select",
        "weights": "score",
        "feedback": "adaptive",
    },
    {
        "allocator": {"name": "by_score", "cap": "none", "time_budget_s": 2.0},
        "selector": "hetero_select_v1",
    },
    {
        "allocator": {"name": "by_score", "least": 0.05},
        "selector": {"name": "hetero_select", "lr": "score_adaptive"},
        "budget": {"name": "cosine", "average": 0.3, "floor": 0.1, "warm_up": 2},
        "quantizer": "qsgd",
    },
]
for _number, _sent in enumerate(_SCORED):
    add(
        f"sent by score {_number}",
        DIGITS,
        **{"compressor": "topk", "budget": FIFTH, "network": {"name": "inverted"}, **_sent},
    )
add(
    "sent by two layers",
    _PICTURES,
    task={"name": "image", "data": "{files}/pictures.npz", "model": "cnn"},
    algorithm="fedprox",
    budget=FIFTH,
    feedback="adaptive",
    compressor={"name": "topk", "criterion": "curvature", "layers": 2},
)
add(
    "sent with statistics",
    DIGITS,
    task=NORMED,
    compressor="topk",
    budget=FIFTH,
    feedback="fixed",
    failures={"name": "non_finite", "rate": 0.2},
)


# ------------------------------------------------------------- engines, memories, checkpoints, ends

_ENGINES: dict[str, Keys] = {
    "auto": {"name": "auto", "threads": 2},
    "cohort": {"name": "batched", "threads": 1},
    "cohort on two": {"name": "batched", "threads": 2},
    "debug": {"name": "debug"},
    "processes": {"name": "processes", "workers": 2, "threads": 2},
    "sequential": {"name": "sequential", "threads": 1},
    "threads": {"name": "threads", "threads": 2},
    "vmap": {"name": "vmap", "threads": 1},
}
for _name, _engine in _ENGINES.items():
    _two = Case(threads=_engine.get("threads", 1))
    add(
        f"engine {_name}",
        DIGITS,
        _two,
        engine=_engine,
        selector="hetero_select_v1",
        algorithm="scaffold",
        weights="uniform",
        failures={"name": "non_finite", "rate": 0.1},
        device=_SLOW,
    )
    add(
        f"engine {_name}, fedprox",
        DIGITS,
        _two,
        engine=_engine,
        selector="divfl",
        algorithm="fedprox",
        dtype="float64",
        local={
            "epochs": 1,
            "batch_size": 16,
            "optimizer": {**SGD, "momentum": 0.5},
            "clip": {"norm": 1.0},
        },
    )
    add(
        f"engine {_name}, bfloat16",
        DIGITS,
        _two,
        engine=_engine,
        selector="power_of_choice",
        algorithm="fedprox",
        precision="bfloat16",
        synchrony={"name": "deadline", "seconds": 5.0},
    )
add(
    "engine auto of pictures, bfloat16",
    _PICTURES,
    engine={"name": "auto", "threads": 1},
    precision="bfloat16",
    task={"name": "image", "data": "digits", "model": "simple_cnn"},
)
add(
    "engine auto of pictures",
    _PICTURES,
    engine={"name": "auto", "threads": 1},
    task={"name": "image", "data": "digits", "model": "simple_cnn"},
)
add(
    "engine processes with norms",
    DIGITS,
    Case(threads=2),
    task=NORMED,
    engine={"name": "processes", "workers": 2, "threads": 2},
    algorithm="fedbn",
    split={"test": "client"},
)
add(
    "engine cohort, sent by curvature",
    DIGITS,
    engine={"name": "batched", "threads": 1},
    compressor={"name": "topk", "criterion": "curvature"},
    budget=FIFTH,
    feedback="adaptive",
    synchrony={**BUFFER, "buffer": 2},
    weights="uniform",
    stop={"rounds": 8},
)

add(
    "memory on disk",
    DIGITS,
    algorithm="scaffold",
    weights="uniform",
    client_state="disk",
    checkpoint={"every_rounds": 1},
)
add(
    "memory on disk, error feedback",
    DIGITS,
    client_state="disk",
    compressor="topk",
    budget=FIFTH,
    feedback="fixed",
)
_SOON = {"every_rounds": 2}
add("resumed", DIGITS, Case(stop_after=3), checkpoint=_SOON, selector="oort")
add(
    "resumed, scaffold on disk",
    DIGITS,
    Case(stop_after=3),
    checkpoint=_SOON,
    algorithm="scaffold",
    weights="uniform",
    client_state="disk",
    stop={"rounds": 6},
)
add(
    "resumed, buffer",
    DIGITS,
    Case(stop_after=5),
    checkpoint=_SOON,
    synchrony={**BUFFER, "buffer": 2},
    weights="uniform",
    stop={"rounds": 9},
    selector="hetero_select_v1",
    device=_SLOW,
)
add(
    "resumed, ef21",
    DIGITS,
    Case(stop_after=3),
    checkpoint=_SOON,
    compressor="topk",
    budget=FIFTH,
    feedback="ef21",
    weights="uniform",
    stop={"rounds": 6},
)
add(
    "resumed, optrate",
    DIGITS,
    Case(stop_after=3),
    checkpoint=_SOON,
    compressor="topk",
    budget=FIFTH,
    allocator="optrate",
    feedback="adaptive",
    algorithm="fedadam",
    selector="neural_bandit",
    stop={"rounds": 6},
    split=VALIDATED,
)
add(
    "resumed, fedcor",
    DIGITS,
    Case(stop_after=3),
    checkpoint=_SOON,
    stop={"rounds": 6},
    selector={
        "name": "fedcor",
        "warmup": 2,
        "interval": 2,
        "first_iterations": 10,
        "iterations": 5,
    },
)

add("diagnosed", DIGITS, evaluate={"every": 2, "diagnostics": True})
add(
    "diagnosed, weighted",
    DIGITS,
    evaluate={"every": 2, "diagnostics": True},
    selector="adasample",
    weights="selector",
    compressor="topk",
    budget=FIFTH,
    feedback="fixed",
    drift={"name": "window", "share": 0.5, "period": 3.0},
)
add(
    "diagnosed, buffer",
    SYNTHETIC,
    evaluate={"every": 3, "diagnostics": True, "per_client": False},
    algorithm="scaffold",
    weights="uniform",
    synchrony={**BUFFER, "buffer": 2},
    stop={"rounds": 8},
)
add(
    "diagnosed, parabolas",
    PARABOLAS,
    evaluate={"every": 1, "diagnostics": True},
    algorithm="fednova",
)
add("ends by time", DIGITS, stop={"virtual_hours": 0.002})
add(
    "ends by traffic",
    DIGITS,
    stop={"uplink_gb": 0.0002},
    synchrony={"name": "deadline", "seconds": 2.0, "over_select": 1.5},
)
add(
    "ends by accuracy",
    DIGITS,
    stop={"rounds": 30, "target": {"accuracy": 0.5}},
    evaluate={"every": 1},
)
add("ends by loss", PARABOLAS, stop={"rounds": 40, "target": {"loss": 1.0}}, evaluate={"every": 1})
add(
    "a share takes part",
    {key: value for key, value in DIGITS.items() if key != "cohort"},
    participation=0.3,
)
add(
    "compared",
    DIGITS,
    stop={"rounds": 3},
    grid={
        "selector.name": ["uniform", "oort"],
        "algorithm.name": ["fedavg", "scaffold"],
        "weights": ["uniform"],
        "seed": [0, 1],
    },
)
add(
    "compared in two grids",
    SYNTHETIC,
    stop={"rounds": 3},
    grid=[
        {"synchrony": ["synchronous", {**BUFFER, "buffer": 2}], "weights": ["uniform"]},
        {"local.epochs": [1, 2]},
    ],
)
add(
    "more clients",
    {**SYNTHETIC, "population": 200, "cohort": 20},
    selector={"name": "oort"},
    engine={"name": "batched", "threads": 1},
    evaluate={"every": 5, "per_client": False},
    availability={"name": "markov"},
)


_MANY: Keys = {
    **SYNTHETIC,
    "population": 300,
    "cohort": 12,
    "engine": {"name": "batched", "threads": 1},
    "stop": {"rounds": 5},
    "task": {"name": "synthetic", "dim": 4, "classes": 3, "examples": 12},
    "evaluate": {"every": 5, "per_client": False},
    "split": VALIDATED,
}
_CROWD: dict[str, Keys] = {
    "active_fl": {},
    "adasample": {
        "selector": {"name": "adasample", "pilots": True, "pilot_rounds": 3},
        "weights": "selector",
        "stop": {"rounds": 12},
    },
    "delta": {"weights": "selector"},
    "divfl": {},
    "fedcbs": {},
    "fedcg": {"compressor": "topk", "allocator": "from_selector"},
    "fedcs": {"selector": {"name": "fedcs", "deadline": 9.0}},
    "fedcvr_bolt": {
        "selector": {
            "name": "fedcvr_bolt",
            "warm_up": 1,
            "exact_up_to": 50,
            "landmarks": 40,
            "coordinates": 10,
            "whole": 12,
            "memory_mb": 0.05,
        },
        "weights": "selector_ratio",
        "stop": {"rounds": 14},
    },
    "fedstas": {"weights": "selector"},
    "feel": {"weights": "selector"},
    "hetero_select": {},
    "hetero_select_v1": {},
    "linucb": {},
    "power_of_choice": {},
    "pyramidfl": {},
    "restless_bandit": {},
    "tifl": {},
    "ucb1": {},
    "uniform": {
        "selector": {"name": "uniform", "variant": "weighted_wor", "unbiased": True},
        "weights": "selector",
    },
}
for _name, _more in _CROWD.items():
    add(f"many clients, {_name}", _MANY, **{"selector": _name, **_more})
add(
    "very many clients, fedcs",
    PARABOLAS,
    population=2500,
    cohort=6,
    task={"name": "quadratic"},
    stop={"rounds": 2},
    selector={"name": "fedcs", "deadline": 6.0},
    local={"epochs": 1},
    evaluate={"every": 2, "per_client": False},
)
add(
    "many clients, coalitions in a buffer",
    _MANY,
    selector={"name": "fedcvr_bolt", "warm_up": 0},
    weights="selector_ratio",
    synchrony={**BUFFER, "buffer": 5},
    stop={"rounds": 8},
    device=_SLOW,
)
add(
    "few samples, dirichlet", DIGITS, partition={"name": "dirichlet", "alpha": 0.05, "min_size": 40}
)
add("few samples, quantity", DIGITS, partition={"name": "quantity", "beta": 0.05, "min_size": 40})
add(
    "long update, topk",
    _PICTURES,
    task={"name": "image", "data": "{files}/pictures.npz", "model": "mlp"},
    compressor="topk",
    budget=FIFTH,
    feedback="adaptive",
    engine={"name": "batched", "threads": 1},
)
for _name, _batching in (("cohort", "batched"), ("vmap", "vmap")):
    _keys = {
        **DIGITS,
        "engine": {"name": _batching, "threads": 1},
        "stop": {"rounds": 3},
        "split": VALIDATED,
    }
    add(
        f"engine {_name}, crops",
        _keys,
        task={"name": "image", "data": "digits", "model": "digits_mlp", "augment": "crop_flip"},
    )
    for _algorithm, _selector in (
        ("feddyn", "pyramidfl"),
        ("fednova", "oort"),
        ("qfedavg", "adasample"),
        ("fedprox", "fedcvr_bolt"),
        ("fedavg", "flash"),
        ("flash_robust", "active_fl"),
        ("fedadam", "hetero_select"),
        ("fedavgm", "feel"),
    ):
        add(
            f"engine {_name}, {_algorithm} and {_selector}",
            _keys,
            algorithm=_algorithm,
            selector=_selector,
            weights="examples" if _algorithm == "fednova" else "uniform",
            drift={"name": "window", "share": 0.5, "period": 3.0},
        )

add(
    "pack mnist",
    {**_PICTURES, "population": 20, "cohort": 3},
    Case(pack="mnist.npz"),
    split={"test": "global"},
    task={"name": "image", "data": "mnist", "model": {"name": "mlp", "hidden": [16]}},
    evaluate={"every": 5},
)
add(
    "pack femnist",
    {**_PICTURES, "population": None, "cohort": 3},
    Case(pack="femnist.npz"),
    partition="by_writer",
    split={"test": "client"},
    task={"name": "image", "data": "femnist", "model": "linear"},
    evaluate={"every": 5, "per_client": False},
)

for _case in EXPERIMENTS.values():  # a key without a value is one that is left out
    for _key in [key for key, value in _case.keys.items() if value is None]:
        del _case.keys[_key]
