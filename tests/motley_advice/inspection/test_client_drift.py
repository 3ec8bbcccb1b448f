"""Drift from gradients against closed forms on quadratic losses, and alike updates over rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley_advice.heterogeneity.findings import Finding
from motley_advice.inspection import client_drift
from motley_advice.inspection.client_drift import _findings, drift_after, drift_at_start, of_all
from motley_advice.inspection.planned import synchronous_loop

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 12,
    "cohort": 4,
    "stop": {"rounds": 3},
    "local": {"steps": 2, "batch_size": 16},
}


def named(found: list[Finding]) -> dict[str, Finding]:
    return {one.name: one for one in found}


def test_gradients_worked_by_hand() -> None:
    found = named(_findings(iter([np.array([[3.0, 0.0], [0.0, 4.0]])]), 2, 2, 2, ""))
    # the mean is (1.5, 2): G^2 = 6.25; both lie (1.5, -2) from it: B^2 = 6.25
    assert found["B2"].value == pytest.approx(6.25)
    assert found["drift"].value == pytest.approx(0.5)
    assert found["gradient_diversity"].value == pytest.approx(2.0)  # (9 + 16) / 2 over 6.25
    assert found["gradient_cosine"].value == pytest.approx(0.0)
    assert found["drift"].how == "exact"
    assert found["drift"].federated_bytes == 4 * 5  # the model down; gradient and squared norm up


def test_those_drawn_are_corrected_for_being_few() -> None:
    draw = np.random.Generator(np.random.Philox(3))
    gradients = draw.normal(size=(400, 5)) + 0.3
    mean = gradients.mean(0)
    b = float(np.square(gradients - mean).sum(1).mean())
    g = float(mean @ mean)
    shares = []
    inside = 0
    for _ in range(60):
        some = gradients[draw.permutation(400)[:40]]
        found = named(_findings(iter([some[:7], some[7:]]), 40, 400, 5, ""))
        shares.append(found["drift"].value)
        inside += found["drift"].low <= b / (b + g) <= found["drift"].high
    # unbiased in B^2 and G^2: the mean of 60 draws lies within 4 standard errors of the whole
    assert np.mean(shares) == pytest.approx(b / (b + g), abs=4 * np.std(shares) / 60**0.5 + 0.004)
    assert inside >= 50  # of 60 intervals of 95 %: fewer than 50 has a probability below 1e-3
    assert of_all(1.0, 2.0, 7, 7) == (1.0, 2.0)


def test_groups_of_clients_give_an_interval_where_gradients_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_drift, "HELD", 1)  # five groups
    draw = np.random.Generator(np.random.Philox(5))
    gradients = draw.normal(size=(60, 30)) + 0.2
    one = named(_findings(iter(np.split(gradients, 6)), 60, 1000, 30, ""))
    monkeypatch.undo()
    each = named(_findings(iter([gradients]), 60, 1000, 30, ""))
    assert one["drift"].value == pytest.approx(each["drift"].value)
    assert one["gradient_cosine"].value == pytest.approx(each["gradient_cosine"].value)
    # both widths estimate the same deviation; that of five groups has 4 degrees of freedom: within
    # a factor of 3 with probability 0.98
    widths = [found["drift"].high - found["drift"].low for found in (one, each)]
    assert 1 / 3 < widths[0] / widths[1] < 3


def test_drift_rises_with_label_skew() -> None:
    values = []
    for alpha in (0.05, 0.5, 100.0):
        keys = {**KEYS, "partition": {"name": "dirichlet", "alpha": alpha, "min_size": 5}}
        values.append(
            named(drift_at_start(synchronous_loop(prepare(Experiment(**keys)))))["drift"].value
        )
    assert values == sorted(values, reverse=True)


def test_updates_of_like_clients_are_alike() -> None:
    alike, apart = (
        named(
            drift_after(
                prepare(Experiment(**{**KEYS, "partition": partition})), 2, lambda step: None
            )
        )
        for partition in ("iid", {"name": "dirichlet", "alpha": 0.05, "min_size": 5})
    )
    assert alike["update_cosine"].value > apart["update_cosine"].value
    assert {"drift_after", "B2_after", "gradient_diversity_after", "gradient_cosine_after"} <= set(
        alike
    )


def test_where_each_has_a_model_of_its_own_nothing_is_measured() -> None:
    experiment = Experiment(**{**KEYS, "partition": "iid", "algorithm": "fedper"})
    assert drift_at_start(synchronous_loop(prepare(experiment))) == []
