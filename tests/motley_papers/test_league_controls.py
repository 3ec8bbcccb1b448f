"""The league's controls are those that ``motley compare --controls`` would add."""

from __future__ import annotations

from motley.experiments.config import Experiment
from motley.experiments.controls import BuildCheck, controls_of
from motley.experiments.sweep_point import Point
from motley_papers.recipe import Recipe, read

PLACE = "labels-strong"
WITH = ("uniform FedAvg", "feddyn", "HeteRo-Select v2, whole")
"""The control, and the methods whose settings the exhibit gives it."""


def _experiments(league: Recipe, exhibit: str) -> dict[str, Experiment]:
    """Return entrant -> what is run in the environment, on digits."""
    chosen = league.named(exhibit)
    return {
        cell.at["entrant"]: league.experiment(cell, "smoke", 10)
        for cell in chosen.cells("smoke")
        if cell.at["environment"] == PLACE
    }


def test_they_are_those_of_a_comparison() -> None:
    """Equal weights, as FedDyn has them; and HeteRo-Select's settings, its selection among them.
    The league leaves that to the method, with the scores to weigh and to allocate by."""
    league = read("league")
    shared = _experiments(league, "shared")
    no = BuildCheck(None)
    found = controls_of(
        [Point(name, shared[name]) for name in WITH], lambda name, experiment: no.of(experiment)
    )
    ids = {name: experiment.run_id() for name, experiment in found.experiments}
    told = {name: one.run_id() for name, one in _experiments(league, "controls").items()}
    assert ids["fedavg with equal weights"] == told["FedAvg, equal weights"]
    (whole,) = [one for name, one in found.experiments if ", server step momentum and " in name]
    plain = shared["uniform FedAvg"].resolved()
    left = ("selector", "probe", "weights", "compressor", "feedback", "allocator", "budget")
    kept = whole.replace({key: plain[key] for key in left})
    assert kept.run_id() == told["FedAvg, HeteRo-Select's settings"]
    assert len(found.refused) == 2
