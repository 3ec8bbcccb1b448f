"""The numbers of the measurement of unlike models, from runs by hand and as stored."""

from __future__ import annotations

import json

import pytest

from benchmarks.unlike_models import METHODS, MODELS, OUT, SEEDS, experiment, summary


def test_a_row_has_the_mean_and_the_worst_client() -> None:
    """Accuracies .8, .5, .8 and .9: the mean is 75 %, the worst 50 %; 8e6 and 24e6 bits are 2 MB in
    the mean."""
    runs = [
        {"method": "fedmd", "seed": 1, "accuracy": [1.0] * 4, "bits": 24e6},
        {"method": "fedmd", "seed": 0, "accuracy": [0.8, 0.5, 0.8, 0.9], "bits": 8e6},
    ]
    (row,) = summary(runs)
    assert row["seeds"] == [0, 1]
    assert row["mean"] == pytest.approx([75.0, 100.0])
    assert row["worst"] == pytest.approx([50.0, 100.0])
    assert row["megabytes"] == 2.0


def test_methods_differ_in_the_algorithm_alone() -> None:
    """Those with unlike models; ``fedavg`` has the smallest one for all."""
    runs = {name: experiment(name, 3) for name in METHODS}
    base = runs["local_only"]
    for name, keys in runs.items():
        changed = {key for key in {*base, *keys} if base.get(key) != keys.get(key)}
        unlike = {"name", "algorithm"}
        assert changed <= (unlike | {"task", "models"} if name == "fedavg" else unlike)
    assert runs["fedavg"]["task"]["model"] == MODELS[-1]


def test_what_is_stored_has_all_seeds() -> None:
    stored = json.loads(OUT.read_text(encoding="utf-8"))["methods"]
    assert {row["method"] for row in stored} == set(METHODS)
    assert all(row["seeds"] == list(SEEDS) for row in stored)
