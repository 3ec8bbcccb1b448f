"""Experiments of algorithms, losses, servers, aggregators and local work; see
:mod:`same_results.experiments`."""

from __future__ import annotations

from same_results.cases import (
    BUFFER,
    DIGITS,
    EXPERIMENTS,
    LOSSY,
    NORMED,
    PARABOLAS,
    SGD,
    STEPS,
    SYNTHETIC,
    Case,
    Keys,
    add,
)

# ----------------------------------------------------------------------- algorithms and their parts

_OWN = {"test": "client"}
_ALGORITHMS: dict[str, tuple[Keys, Keys]] = {
    "fedadagrad": ({"name": "fedadagrad"}, {}),
    "fedadam": ({"name": "fedadam", "server_lr": 0.02}, {}),
    "fedyogi": ({"name": "fedyogi"}, {}),
    "fedavg": ({"name": "fedavg", "server_lr": 0.7}, {"failures": LOSSY}),
    "fedavgm": ({"name": "fedavgm", "momentum": 0.5}, {}),
    "fedbio": ({"name": "fedbio", "steps": 2}, {"split": {"test": "global", "server": 0.1}}),
    "fedbio that resets": (
        {"name": "fedbio", "steps": 2, "rescale": False, "reset": True},
        {
            "split": {"test": "global", "server": 0.1},
            "label_noise": {"name": "symmetric", "rate": 0.5, "share": 0.5},
        },
    ),
    "fedbn": ({"name": "fedbn"}, {"task": NORMED}),
    "fedbn, own tests": (
        {"name": "fedbn"},
        {"task": NORMED, "split": {"test": "client"}, "feature_shift": "domains"},
    ),
    "feddf": (
        {"name": "feddf", "steps": 6, "every": 2, "patience": 4, "batch_size": 16},
        {"split": {"test": "global", "server": 0.1}, "public": 0.1},
    ),
    "feddf with statistics": (
        {
            "name": "feddf",
            "steps": 4,
            "every": 2,
            "patience": 2,
            "batch_size": 16,
            "freeze_statistics": True,
            "keep_average": True,
            "temperature": 2.0,
        },
        {"task": NORMED, "split": {"test": "global", "server": 0.2}},
    ),
    "feddyn": ({"name": "feddyn", "alpha": 0.1}, {"weights": "uniform", "failures": LOSSY}),
    "fedexp": ({"name": "fedexp", "eps": 0.01}, {"failures": LOSSY}),
    "fednova": ({"name": "fednova"}, {"local": {"epochs": 2, "batch_size": 16, "optimizer": SGD}}),
    "fednova with everything": (
        {"name": "fednova", "mu": 0.1, "server_lr": 0.8, "server_momentum": 0.5},
        {"local": {"epochs": 1, "batch_size": 16, "optimizer": {**SGD, "momentum": 0.9}}},
    ),
    "fedprox": ({"name": "fedprox", "mu": 0.1}, {}),
    "fedprox, adaptive": (
        {"name": "fedprox", "mu": 0.1, "adaptive": True, "step": 0.05, "patience": 1},
        {},
    ),
    "flash_robust": ({"name": "flash_robust"}, {"label_noise": {"name": "pair_flip", "rate": 0.4}}),
    "heterofl": (
        {"name": "heterofl"},
        {"capacity": {"name": "levels", "levels": [1.0, 0.5, 0.25], "per": "round"}},
    ),
    "heterofl, half": (
        {"name": "heterofl", "mask": False},
        {"capacity": {"name": "constant", "width": 0.5}},
    ),
    "heterofl, by memory": (
        {"name": "heterofl"},
        {
            "capacity": {
                "name": "by_memory",
                "low": 0.01,
                "high": 0.2,
                "too_little": "least",
                "levels": [1.0, 0.5],
            }
        },
    ),
    "heterofl, by deadline": (
        {"name": "heterofl"},
        {
            "capacity": {
                "name": "by_deadline",
                "seconds": 1.0,
                "levels": [1.0, 0.5, 0.25],
                "within": {"name": "levels", "levels": [1.0, 0.5]},
            }
        },
    ),
    "heterofl, by score": (
        {"name": "heterofl"},
        {
            "selector": "hetero_select",
            "capacity": {
                "name": "by_score",
                "levels": [1.0, 0.5],
                "within": {"name": "by_speed", "step_s": 0.2, "levels": [1.0, 0.5]},
            },
        },
    ),
    "fedrolex": (
        {"name": "fedrolex"},
        {"capacity": {"name": "by_speed", "step_s": 0.2, "levels": [1.0, 0.5, 0.25]}},
    ),
    "fiarse": (
        {"name": "fiarse"},
        {"capacity": {"name": "levels", "levels": [1.0, 0.5, 0.25], "per": "round"}},
    ),
    "moon": ({"name": "moon"}, {}),
    "moon_fednova": ({"name": "moon_fednova"}, {}),
    "qfedavg": ({"name": "qfedavg", "q": 2.0}, {"weights": "uniform"}),
    "rhfl": (
        {"name": "rhfl", "lr": 0.01, "batch_size": 32},
        {"public": 0.1, "weights": "uniform", "label_noise": {"name": "symmetric", "rate": 0.4}},
    ),
    "rhfl, distilled": (
        {
            "name": "rhfl",
            "mode": "kd",
            "align": False,
            "adam": "kept",
            "exchange": "batch",
            "batch_size": 32,
        },
        {"public": 0.1, "weights": "uniform"},
    ),
    "fedlc": (
        {"name": "fedlc", "tau": 0.5},
        {"partition": {"name": "dirichlet", "alpha": 0.1}, "failures": LOSSY},
    ),
    "fedsam": ({"name": "fedsam", "rho": 0.1}, {"task": NORMED}),
    "fedlesam": ({"name": "fedlesam", "rho": 0.1}, {"failures": LOSSY}),
    "mifa": ({"name": "mifa", "server_lr": 0.8}, {"weights": "uniform", "failures": LOSSY}),
    "fedvarp": (
        {"name": "fedvarp"},
        {"weights": "uniform", "local": {**STEPS, "lr_schedule": {"name": "cosine", "end": 0.1}}},
    ),
    "fedau": ({"name": "fedau", "cutoff": 3}, {"weights": "uniform", "failures": LOSSY}),
    "fedawe": ({"name": "fedawe"}, {"task": NORMED, "weights": "uniform", "failures": LOSSY}),
    "ca2fl": (
        {"name": "ca2fl"},
        {"weights": "uniform", "stop": {"rounds": 8}, "synchrony": BUFFER},
    ),
    "fedadamw": ({"name": "fedadamw"}, {"local": STEPS, "failures": LOSSY}),
    "fedmuon": ({"name": "fedmuon"}, {"local": STEPS, "failures": LOSSY}),
    "fedswa": ({"name": "fedswa"}, {"failures": LOSSY}),
    "fedmoswa": ({"name": "fedmoswa", "gamma": 0.4}, {"failures": LOSSY}),
    "rhfl, distilled by rounds": (
        {"name": "rhfl", "mode": "kd", "batch_size": 32},
        {"public": {"data": "{files}/more.npz", "examples": 40}, "weights": "uniform"},
    ),
    "scaffold": ({"name": "scaffold"}, {"weights": "uniform", "failures": LOSSY}),
    "scaffold I": ({"name": "scaffold", "option": "I", "server_lr": 0.8}, {"weights": "uniform"}),
    "fedrolex, no mask": (
        {"name": "fedrolex", "mask": False},
        {"capacity": {"name": "levels", "per": "client"}},
    ),
    "fjord": ({"name": "fjord"}, {"capacity": {"name": "constant", "width": 0.6}}),
    "fjord, distilled": (
        {"name": "fjord", "distil": True},
        {"capacity": {"name": "levels", "levels": [1.0, 0.6, 0.2]}},
    ),
    "fedbabu with norms": (
        {"name": "fedbabu", "tune_epochs": 1, "own_norms": True},
        {"task": NORMED, "split": _OWN, "feature_shift": "domains"},
    ),
    "fine_tuned": ({"name": "fine_tuned", "method": "fedprox", "steps": 2}, {"split": _OWN}),
    "ifca": ({"name": "ifca", "k": 3}, {"split": _OWN}),
    "ifca, gradients": (
        {"name": "ifca", "average": "gradients"},
        {"split": _OWN, "failures": LOSSY},
    ),
}
for _name, (_algorithm, _more) in _ALGORITHMS.items():
    add(f"algorithm {_name}", DIGITS, **{"algorithm": _algorithm, **_more})
_PERSONAL: list[Keys] = [
    {"name": "local_only"},
    {"name": "fedper"},
    {"name": "fedrep", "head_epochs": 2},
    {"name": "lg_fedavg"},
    {"name": "fedbabu"},
    {"name": "ditto"},
    {"name": "apfl", "adaptive": True},
    {"name": "pfedme"},
    {"name": "fedala"},
    {"name": "per_fedavg"},
    {"name": "fedproto"},
    {"name": "fedproto", "prototype_weights": "uniform"},
    {"name": "pfedme", "theta": "restarted"},
    {"name": "apfl"},
    {"name": "ifca", "shared_base": True},
    {"name": "fedrod", "gamma": 0.8},
    {"name": "fedpac"},
    {"name": "fedas"},
    {"name": "pfedfda"},
]
for _number, _algorithm in enumerate(_PERSONAL):
    add(f"personal {_number} {_algorithm['name']}", DIGITS, algorithm=_algorithm, split=_OWN)
for _name in ("fedper", "fedrep", "lg_fedavg"):
    add(
        f"algorithm {_name}, own norms",
        DIGITS,
        algorithm={"name": _name, "own_norms": True},
        task=NORMED,
        split=_OWN,
    )
_NEW: Keys = {
    "split": {**_OWN, "holdout_clients": 0.2},
    "evaluate": {"every": 2, "adapt_epochs": [0, 1]},
}
for _name in ("fedper", "apfl", "ifca", "heterofl", "fedrod"):
    _more = {**_NEW, "capacity": "levels"} if _name == "heterofl" else _NEW
    add(f"new clients, {_name}", DIGITS, algorithm=_name, **_more)
EXPERIMENTS["algorithm rhfl, distilled by rounds"].keys["task"] = {
    "name": "image",
    "data": "{files}/digits.npz",
    "model": "digits_mlp",
}

for _name in ("scaffold", "feddyn", "fedprox", "fednova", "qfedavg"):
    add(
        f"algorithm {_name} of parabolas",
        PARABOLAS,
        algorithm=_name,
        weights="uniform",
        stop={"rounds": 8},
    )
add(
    "algorithm scaffold in a buffer",
    DIGITS,
    algorithm="scaffold",
    weights="uniform",
    stop={"rounds": 8},
    synchrony={**BUFFER, "buffer": 2},
)
add(
    "algorithm feddyn in a buffer",
    SYNTHETIC,
    algorithm="feddyn",
    weights="uniform",
    stop={"rounds": 8},
    synchrony={**BUFFER, "buffer": 2, "max_staleness": 2},
)

for _name in ("cross_entropy", "flash_robust", "symmetric"):
    add(
        f"loss {_name}",
        DIGITS,
        loss={"name": _name},
        algorithm="fedprox",
        label_noise={"name": "label_flip", "share": 0.3},
    )
add(
    "loss huber",
    SYNTHETIC,
    task="tabular_regression",
    partition="iid",
    split={"test": "global"},
    loss="huber",
)
add("loss bce", SYNTHETIC, Case(own="halves"), population=None, task={"name": "own"}, loss="bce")
add("loss half_squared_error", PARABOLAS, loss={"name": "half_squared_error"}, algorithm="fedprox")

_CORRUPTED = {"name": "corrupted", "share": 0.2}
_AGGREGATORS: list[Keys] = [
    {"name": "krum"},
    {"name": "mean"},
    {"name": "median"},
    {"name": "multi_krum"},
    {"name": "multi_krum", "f": 1, "k": 2},
    {"name": "norm_bound", "c": 0.5},
    {"name": "trimmed_mean", "trim": 0.2},
]
for _number, _aggregator in enumerate(_AGGREGATORS):
    add(
        f"aggregator {_number} {_aggregator['name']}",
        DIGITS,
        aggregator=_aggregator,
        weights="uniform",
        cohort=6,
        failures=_CORRUPTED if _number % 2 else {**_CORRUPTED, "kind": "scaling", "scale": 5.0},
    )
for _name in ("adagrad", "adam", "average", "momentum", "yogi"):
    add(f"server {_name}", SYNTHETIC, server={"name": _name, "lr": 0.3})

add(
    "local adam",
    DIGITS,
    local={
        "epochs": 1,
        "batch_size": 32,
        "optimizer": {"name": "adam", "lr": 0.01, "weight_decay": 0.01},
        "lr_schedule": {"name": "exponential", "decay": 0.8},
    },
)
add(
    "local adamw",
    DIGITS,
    local={
        "epochs": 1,
        "batch_size": 16,
        "optimizer": {"name": "adamw", "lr": 0.01},
        "lr_schedule": {"name": "cosine", "end": 0.1},
    },
)
add(
    "local sgd",
    DIGITS,
    local={
        "epochs": 2,
        "batch_size": 32,
        "max_steps": 5,
        "clip": {"norm": 0.5, "of": "gradient"},
        "optimizer": {**SGD, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
        "lr_schedule": {"name": "linear", "end": 0.2},
    },
    algorithm="fedprox",
)
add(
    "local clipped",
    DIGITS,
    local={**STEPS, "clip": {"norm": 0.3, "of": "corrected"}, "lr_schedule": {"name": "constant"}},
    algorithm="fedprox",
)
for _partial in ("keep", "drop"):
    add(
        f"stragglers {_partial}",
        DIGITS,
        local={
            "epochs": 3,
            "batch_size": 32,
            "optimizer": SGD,
            "stragglers": {"share": 0.5, "partial": _partial},
        },
        algorithm="fednova",
        weights="examples",
    )
add(
    "local milestones",
    DIGITS,
    local={**STEPS, "lr_schedule": {"name": "milestones", "rounds": [2, 4], "decay": 0.3}},
)


# --------------------------------------------------------------------------- low-rank adapters

_OF_ADAPTERS = ("fedsa_lora", "ffa_lora", "flexlora", "hetlora", "lora_fedavg")
for _name in (*_OF_ADAPTERS, "fedex_lora", "flora"):
    add(
        f"adapters {_name}",
        SYNTHETIC,
        Case(own="adapters" if _name in _OF_ADAPTERS else "merged"),
        task={"name": "own"},
        population=None,
        algorithm=_name,
    )
