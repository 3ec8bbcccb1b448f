"""What a finished run held is freed as soon as the run is dropped, without waiting for Python's
collector of cycles.

The collector seldom looks at old objects, and a federation is few objects and many bytes: one cycle
through it kept the data of every run of a list in memory.
"""

import gc
import importlib
import io
import weakref

import pytest
from rich.console import Console

import motley
from motley.experiments import sweep
from motley.experiments.config import Experiment
from motley.experiments.progress import ProgressBars, ProgressLog
from motley.tasks.task import Federation

DIGITS = {
    "population": 6,
    "cohort": 2,
    "stop": {"rounds": 2},
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "local": {"steps": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
}


@pytest.fixture
def federations(monkeypatch):
    """Return weak references to the federations that are made from now on; the collector of cycles
    is off."""
    # torch imports it for vmap, and keeps the frames of that import
    importlib.import_module("torch._dynamo")
    made = []
    begin = Federation.__init__

    def noted(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Federation, "__init__", noted)
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"engine": {"name": "batched"}},
        {"engine": {"name": "vmap"}},
        {"engine": {"name": "threads", "threads": 2}},
        {"algorithm": "scaffold"},
        {"algorithm": "fedrep"},
        {"algorithm": "ifca"},
        {"algorithm": "heterofl", "capacity": {"name": "levels", "levels": [1.0, 0.5]}},
        {"selector": "hetero_select_v1"},
        {"selector": "fedcvr_bolt"},
        {"synchrony": {"name": "buffered", "buffer": 2}},
    ],
    ids=lambda keys: (
        "-".join(str(v.get("name") if isinstance(v, dict) else v) for v in keys.values()) or "plain"
    ),
)
def test_the_data_of_a_run_are_freed_with_it(tmp_path, federations, keys):
    motley.run(Experiment(**DIGITS, **keys), out=tmp_path / "run", progress=False)
    assert federations
    assert [one() for one in federations if one() is not None] == []


@pytest.mark.parametrize("shown", [ProgressBars, ProgressLog])
def test_a_display_of_many_runs_keeps_none_of_their_data(tmp_path, federations, monkeypatch, shown):
    monkeypatch.setattr(
        sweep,
        "display",
        lambda experiments, labels: shown(experiments, labels, Console(file=io.StringIO())),
    )
    alive = []
    points = [sweep.Point(f"run {seed}", Experiment(**DIGITS, seed=seed)) for seed in range(2)]

    def note(run):
        alive.append([one() for one in federations if one() is not None])

    sweep.run_points(points, [tmp_path / str(seed) for seed in range(2)], None, True, on_end=note)
    assert federations
    assert alive == [[], []]
