"""Capabilities: what a component of the world says of itself is what its methods do, wrapped or
not."""

from dataclasses import dataclass

import numpy as np
import pytest

from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.world import DRIFT
from motley.world.interfaces import Dishonest, Drift, Failures, Partition
from tests.rows import Rows

CAPABILITIES = [
    (Partition, "fixed_population", "fixes_population"),
    (Drift, "window", "moves_window"),
    (Drift, "tables", "renames_classes"),
    (Failures, "upload_factor", "corrupts_updates"),
    (Dishonest, "claims", "lies"),
    (Dishonest, "goal", "hears_others"),
]


@pytest.mark.parametrize(("base", "method", "capability"), CAPABILITIES)
def test_what_a_component_can_do_is_read_from_what_it_overrides(base, method, capability):
    split = {"split": lambda self: None}  # the one method that a partition must have
    assert getattr(type("Plain", (base,), split)(), capability) is False
    able = type("Able", (base,), {**split, method: lambda self: None})
    assert getattr(able(), capability) is True
    assert getattr(type("Heir", (able,), {})(), capability) is True


@dataclass(frozen=True)
class Wrapped(Drift):
    """A drift that asks another for everything, its capabilities too."""

    inner: str = "none"

    @property
    def _drift(self):
        return DRIFT.build({"name": "swap", "start": 2.0} if self.inner == "swap" else self.inner)

    @property
    def moves_window(self):
        return self._drift.moves_window

    @property
    def renames_classes(self):
        return self._drift.renames_classes

    def order(self, *args):
        return self._drift.order(*args)

    def window(self, *args):
        return self._drift.window(*args)

    def tables(self, *args):
        return self._drift.tables(*args)


def losses(drift):
    simulation = build(
        Experiment(
            task={"name": "synthetic", "dim": 5, "classes": 4, "sizes": "equal", "examples": 40},
            partition="by_writer",
            population=6,
            cohort=3,
            stop={"rounds": 4},
            local={"steps": 2, "batch_size": 8},
            engine="sequential",
            drift=drift,
        ),
        writer=(rows := Rows()),
    )
    while not simulation.done:
        simulation.step()
    return [row["loss"] for row in rows.tables["clients"]]


def test_a_delegating_wrapper_drifts_as_the_wrapped_drift_does(monkeypatch):
    monkeypatch.setitem(DRIFT.targets, "wrapped", f"{__name__}:Wrapped")
    found = {}
    for inner, drift in (
        ("none", "none"),
        ("window", "window"),
        ("swap", {"name": "swap", "start": 2.0}),
    ):
        found[inner] = losses(drift)
        assert np.array_equal(found[inner], losses({"name": "wrapped", "inner": inner}))
    assert not np.array_equal(found["none"], found["window"])
    assert not np.array_equal(found["none"], found["swap"])
