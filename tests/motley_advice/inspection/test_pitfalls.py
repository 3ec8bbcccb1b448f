"""Every pitfall of an experiment: one that commits it, and one that does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley_advice.heterogeneity.findings import Finding, Inspection, OutlyingClient
from motley_advice.inspection.pitfalls import PITFALLS, Examined, of_data, pitfalls

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 40,
    "cohort": 4,
    "stop": {"rounds": 30},
    "local": {"epochs": 1, "batch_size": 16},
}
BATCH_NORM = {
    "task": {
        "name": "image",
        "data": "digits",
        "model": {"name": "mlp", "hidden": [16], "norm": "batch"},
    }
}
GLOBAL = {"split": {"test": "global"}}
HIDDEN = {"evaluate": {"per_client": False}}
NOVA = {"algorithm": "fednova", "local": {"steps": 5}}
NOISE = {"label_noise": {"name": "symmetric", "rate": 0.4}}

PRIVATE = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"},
    "local": {"steps": 2},
    "weights": "uniform",
    "privacy": {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 8.0},
}

# pitfall, keys and measured numbers that commit it, what differs where it is not committed, the key
# that the sentence names
CASES = [
    ("copied_samples", {}, {"copied": 0.2}, {}, {"copied": 0.005}, "keep one of each"),
    (
        "averaged_batch_norm",
        {**BATCH_NORM},
        {"feature_shift": 0.6},
        {"algorithm": "fedbn"},
        {},
        "algorithm",
    ),
    (
        "averaged_batch_norm",
        {**BATCH_NORM},
        {"feature_shift": 0.6},
        {},
        {"feature_shift": 0.0},
        "recalibrate",
    ),
    ("averaged_batch_norm", {}, {"feature_shift": 0.6}, None, {}, "task.model"),
    (
        "fair_to_wrong_labels",
        {**NOISE, "algorithm": "qfedavg"},
        {},
        {"label_noise": "none"},
        {},
        "aggregator",
    ),
    (
        "fair_to_wrong_labels",
        {"algorithm": "qfedavg"},
        {"label_noise": 0.3},
        {"algorithm": "fedavg"},
        {},
        "fedavg",
    ),
    (
        "chosen_for_wrong_labels",
        {**NOISE, "selector": "oort"},
        {},
        {"selector": "uniform"},
        {},
        "selector",
    ),
    (
        "chosen_for_wrong_labels",
        {**NOISE, "selector": "power_of_choice"},
        {},
        {"label_noise": "none"},
        {},
        "robust_loss",
    ),
    ("outlying_clients", {}, {"outlying": 1.0}, {}, {"outlying": 0.0}, "task.scale"),
    (
        "hidden_clients",
        GLOBAL,
        {"label_divergence": 0.5},
        {"split": {"test": "client"}},
        {},
        "split.test",
    ),
    ("hidden_clients", HIDDEN, {"label_divergence": 0.5}, {"evaluate": {}}, {}, "per_client"),
    (
        "hidden_clients",
        GLOBAL,
        {"label_divergence": 0.5},
        {},
        {"label_divergence": 0.0},
        "split.test",
    ),
    (
        "stopped_by_test",
        {"stop": {"target": {"accuracy": 0.9}, "rounds": 9}},
        {},
        {"stop": {"rounds": 9}},
        {},
        "stop.rounds",
    ),
    (
        "absence_moves_labels",
        {},
        {"availability_bias": 0.2},
        {},
        {"availability_bias": 0.01},
        "availability",
    ),
    ("old_client_state", {"algorithm": "scaffold", "cohort": 2}, {}, {"cohort": 10}, {}, "cohort"),
    (
        "old_client_state",
        {"algorithm": "scaffold", "cohort": 2},
        {},
        {"algorithm": "fedavg"},
        {},
        "cohort",
    ),
    (
        "old_client_state",
        {"algorithm": "scaffold", "cohort": 2},
        {},
        {"algorithm": "ditto"},
        {},
        "cohort",
    ),
    (
        "many_epochs",
        {"local": {"epochs": 10}},
        {"label_divergence": 0.5},
        {"local": {"epochs": 1}},
        {},
        "local.epochs",
    ),
    (
        "many_epochs",
        {"local": {"epochs": 10}},
        {"label_divergence": 0.5},
        {},
        {"label_divergence": 0.05},
        "local.epochs",
    ),
    (
        "pulled_is_not_personal",
        {"algorithm": "fedprox"},
        {"concept_shift": 0.5},
        {"algorithm": "ditto"},
        {},
        "pull towards it",
    ),
    ("pulled_is_not_personal", {}, {"concept_shift": 0.5}, {}, {"concept_shift": 0.0}, "algorithm"),
    ("nothing_to_normalise", NOVA, {}, {"algorithm": "fedavg"}, {}, "local.epochs"),
    (
        "nothing_to_normalise",
        NOVA,
        {},
        {"local": {"epochs": 2, "batch_size": 4}},
        {},
        "local.epochs",
    ),
    ("looked_at_in_clear", PRIVATE, {}, {"privacy": "off"}, {}, "[privacy]"),
    ("idle_rounds", {}, {"waiting": 0.7}, {}, {"waiting": 0.2}, "synchrony"),
    (
        "idle_rounds",
        {},
        {"waiting": 0.7},
        {"synchrony": {"name": "buffered", "buffer": 3}},
        {},
        "synchrony",
    ),
]


def said(keys: dict[str, Any], values: dict[str, float]) -> dict[str, str]:
    """The sentence of each pitfall that an experiment with these measured numbers commits."""
    experiment = Experiment(**{**KEYS, "partition": {"name": "dirichlet", "alpha": 0.5}, **keys})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ready = prepare(experiment)
    measured = [Finding(name, value) for name, value in values.items() if name != "outlying"]
    odd = OutlyingClient(
        3,
        "units",
        ("age",),
        "age 10 times the others'",
        'repair the unit, or set task.scale = "client"',
        "north",
    )
    found = Inspection.of(measured, 40, outlying=(odd,) if values.get("outlying") else ())
    one = Examined(experiment, ready, found)
    sentences = {look.__name__: look(one) for look in PITFALLS}
    assert pitfalls(one) == [sentence for sentence in sentences.values() if sentence is not None]
    return {name: sentence for name, sentence in sentences.items() if sentence is not None}


@pytest.mark.parametrize(("name", "keys", "values", "better", "measured", "key"), CASES)
def test_a_pitfall_is_told_where_it_is_committed_and_not_else(
    name: str,
    keys: dict[str, Any],
    values: dict[str, float],
    better: dict[str, Any] | None,
    measured: dict[str, float],
    key: str,
) -> None:
    if better is not None:
        committed = said(keys, values)
        assert key in committed[name]
        assert "; " in committed[name]
        assert not committed[name].endswith(".")
    assert name not in said({**keys, **(better or {})}, {**values, **measured})


def test_outlying_clients_in_words() -> None:
    copies = OutlyingClient(3, "copied data", (), "9 of 9 samples repeat others there", "keep one")
    labels = OutlyingClient(4, "random labels", (), "denied", "check its labels")
    assert of_data(Inspection.of([], 9, outlying=(copies,))) == [
        "client 3 holds copies; keep one (see the list of outlying clients)"
    ]
    assert of_data(Inspection.of([], 9, outlying=(copies, labels))) == [
        "client 3, client 4 differ from all others (copied data, random labels), by a fault or for "
        "a reason; look there first, and if it is a fault, do what the list of outlying clients "
        "says of each"
    ]
    assert of_data(Inspection.of([Finding("copied", 0.3)], 9))[0].startswith("30% of the samples")


def test_known_domains_and_clusters_count_without_a_measurement() -> None:
    domains = {"feature_shift": {"name": "domains", "names": ["plain", "inverted"]}}
    assert "hidden_clients" in said(
        {**domains, "split": {"test": "client"}, "evaluate": {"per_client": False}}, {}
    )


def test_every_pitfall_of_the_list_is_tried() -> None:
    tried = {case[0] for case in CASES}
    assert {look.__name__ for look in PITFALLS} == tried
    assert np.all([look.__doc__ for look in PITFALLS])
