"""Figures for trackers: those of each round, told as it ends, are those in the tables."""

import numpy as np
import pytest

import motley
from motley.experiments.trackers.tracked_figures import final_figures, recorded, round_figures

KEYS = {
    "task": {"name": "quadratic", "minima": [1.0]},
    "population": 1,
    "cohort": 1,
    "stop": {"rounds": 4},
    "local": {"steps": 1, "optimizer": {"lr": 0.5}},
    "evaluate": {"every": 2},
    "dtype": "float64",
}


def test_figures_of_a_run_are_those_that_were_told(tmp_path):
    """f(w) = (w - 1)^2 / 2 and one step of rate 1/2: a quarter of the loss stays every round."""
    told = []
    run = motley.run(KEYS, out=tmp_path, progress=False, on_round=told.append)
    found = dict(recorded(run))
    assert list(found) == [1, 2, 3, 4]
    for summary in told:
        figures = dict(found[summary.round])
        assert ("loss" in figures) == (summary.round % 2 == 0)
        figures.pop("loss", None)
        assert figures == pytest.approx(round_figures(summary, {"loss": np.nan}))
    assert found[4]["loss"] / found[2]["loss"] == pytest.approx(1 / 16)
    assert found[4]["traffic_bytes"] == told[-1].total_bits / 8
    ends = final_figures(run)
    assert ends["loss_final"] == ends["loss_peak"] == found[4]["loss"]
    assert ends["loss_worst_tenth"] == pytest.approx(found[4]["loss"])
