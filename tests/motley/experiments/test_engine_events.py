"""What happens to an engine's machines is told: in the table of incidents, in the progress line,
and to a run that goes on later."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console

from motley.core import extensions
from motley.core.errors import ConfigError
from motley.engines.engine import EngineEvent
from motley.engines.local import LocalEngine
from motley.experiments.config import Experiment
from motley.experiments.progress import ProgressLog
from motley.experiments.run import _divided_as, run
from motley.experiments.sweep import compare
from motley.rounds.run_config import RoundSummary

KEYS = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 2},
    "engine": {"threads": 1},
}


def test_events_of_the_engine_are_incidents_of_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = [[], [EngineEvent("2026-01-02T03:04:05Z", "lost", "the node 10.0.0.2 is gone")]]
    # an engine of its own kind that tells of its machines, with workers or without
    monkeypatch.setattr(LocalEngine, "take_events", lambda engine: waiting.pop(0), raising=False)
    done = run(KEYS, out=tmp_path / "run")
    (row,) = done.tables["incidents"].to_pylist()
    assert (row["round"], row["at"], row["client"], row["event"]) == (
        2,
        "2026-01-02T03:04:05Z",
        -1,
        "lost",
    )
    assert (row["dispatch"], row["reason"]) == (None, "the node 10.0.0.2 is gone")
    assert row["time_s"] == done.column("rounds", "time_s")[-1]


def test_the_condition_of_the_engine_is_in_the_progress_line() -> None:
    shown = ProgressLog([Experiment(**KEYS)], ["a"], Console(file=None)).run(0)
    shown.begin("accuracy", lambda: "train", lambda: "1 of 2 workers on 1 node")
    assert shown.sentence() == "train, 1 of 2 workers on 1 node"
    shown.round(RoundSummary(1, 1.0, 3, 0.5, 0.8, 1, (), 1.0))
    assert shown.sentence() == "round 1 of 2, accuracy 0.800, 1 of 2 workers on 1 node"
    assert shown.figures() == "accuracy 0.800, train, 1 of 2 workers on 1 node"


def test_a_run_on_a_cluster_goes_on_with_the_workers_of_its_beginning() -> None:
    """Three workers of one core: also where the cluster has one core now."""
    before = {"numerics": {"workers": "3 x 1"}}
    for asked in ({}, {"workers": 3}, {"worker_cores": 1}):
        held = _divided_as(
            before, Experiment(**{**KEYS, "engine": {"name": "ray", **asked}})
        ).engine
        assert (held.workers, held.worker_cores) == (3, 1)
    other = Experiment(**{**KEYS, "engine": {"name": "ray", "workers": 2}})
    assert _divided_as(before, other) is other
    processes = Experiment(**{**KEYS, "engine": {"name": "processes"}})
    assert _divided_as(before, processes) is processes
    assert _divided_as({}, other) is other


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            {"name": "processes", "worker_cores": 2},
            "engine.worker_cores: got 2, and 'processes' has no worker_cores; name one of: ray",
        ),
        ({"name": "batched", "wait_s": 5.0}, "engine.wait_s: got 5.0, and 'batched' has no wait_s"),
        ({"name": "ray", "gpu_share": 1.5}, "engine.gpu_share: got 1.5"),
    ],
)
def test_options_of_the_cluster_belong_to_its_engine(
    tmp_path: Path, engine: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        run({**KEYS, "engine": engine}, out=tmp_path / "run")


def test_without_the_distribution_of_clusters_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(()))
    said = "'ray' comes with motley-ray, which is not installed; in a checkout of Motley: pip "
    with pytest.raises(ConfigError, match=f"^engine: {said}install ./packages/motley-ray$"):
        run({**KEYS, "engine": "ray"}, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=f"^on_ray: {said}install ./packages/motley-ray$"):
        compare(KEYS, out=tmp_path, on_ray="auto")


def test_run_ids_do_not_know_how_a_cluster_is_used() -> None:
    asked = {"name": "ray", "workers": 2, "worker_cores": 1, "gpu_share": 0.5, "wait_s": 5.0}
    assert Experiment(**{**KEYS, "engine": asked}).run_id() == Experiment(**KEYS).run_id()
