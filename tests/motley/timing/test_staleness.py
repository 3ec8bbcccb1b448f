"""Staleness counts updates of the model, not the time nor the steps in which nothing was folded
(docs/methods/timing-and-world.md#fedbuff)."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.timing.buffered import Buffered
from motley.timing.overlapping import discount
from motley.timing.synchrony import ServerView
from motley.timing.timeline import plan
from tests.rows import Rows


def simulation(**keys):
    base = {
        "task": {"name": "quadratic", "dim": 2},
        "partition": "by_writer",
        "population": 3,
        "cohort": 3,
        "stop": {"rounds": 9},
        "local": {"batch_size": 1},
        "weights": "uniform",
        "engine": "sequential",
        "dtype": "float64",
        "device": {"name": "constant", "seconds": 1.0},
    }
    rows = Rows()
    return build(Experiment(**{**base, **keys}), writer=rows), rows


def test_idle_rounds_do_not_make_a_waiting_update_old(tmp_path):
    """A buffer of two of three clients, day and night by a trace: client 0 is online in [0, 0.5] s,
    delivers at 1 s and waits; from then on nobody is there until 300 s, rounds of 60 idle seconds
    pass, then client 1 comes. Both are folded as fresh: the model never moved. Counted in steps
    client 0 would be four or more old."""
    (tmp_path / "who.csv").write_text(
        "trace,active_s,inactive_s,finish_s\n0,0,0.5,1000\n1,300,310,1000\n2,900,901,1000\n"
    )
    run, rows = simulation(
        synchrony={"name": "buffered", "buffer": 2},
        availability={"name": "trace", "file": str(tmp_path / "who.csv")},
    )
    while run.state.model_updates == 0:
        run.step()
    assert run.state.version > 4
    (landed,) = rows.tables["clients"]
    assert sorted(np.asarray(landed["client"]).tolist()) == [0, 1]
    assert np.asarray(landed["staleness"]).tolist() == [0, 0]


@pytest.mark.parametrize(
    "mode", [{"name": "buffered", "buffer": 1}, {"name": "asynchronous"}], ids=str
)
def test_a_step_without_an_update_makes_nobody_older(mode):
    """Every second update or so is not finite: a step in which nothing was folded counts as a step,
    and in nobody's staleness."""
    run, rows = simulation(
        synchrony=mode,
        failures={"name": "non_finite", "rate": 0.5},
        stop={"rounds": 40},
        device={"name": "uniform", "low": 0.5, "high": 3.0},
    )
    while not run.done:
        run.step()
    sent = {}
    moved = 0
    begun = {}
    for landed, row in zip(rows.tables["clients"], rows.tables["rounds"], strict=True):
        for dispatch, version, stale in zip(
            landed["dispatch"], landed["version"], landed["staleness"], strict=True
        ):
            begun[int(dispatch)] = sent.setdefault(int(version), 0) if version else 0
            assert stale == moved - begun[int(dispatch)]
        moved += row["accepted"] > 0
        sent[row["round"]] = moved
    assert run.state.model_updates == moved
    assert 5 < moved < 35


def test_a_view_counts_what_it_is_told():
    lines = plan([0, 1], [0, 1], [0, 2], 1, 0.0, 1.0, 0, np.inf, 0, np.inf)
    assert ServerView(5.0, 2, 4, True, lines).staleness.tolist() == [4, 2]
    told = ServerView(5.0, 2, 4, True, lines, 0.0, np.array([1, 0]))
    step = Buffered(2).decide(told)
    assert step.scale.tolist() == discount("polynomial", np.array([1, 0]), 0.5, 4.0).tolist()


@pytest.mark.parametrize(
    "aggregator", ["median", {"name": "trimmed_mean", "trim": 0.4}], ids=["median", "trimmed_mean"]
)
@pytest.mark.parametrize("mode", ["asynchronous", {"name": "buffered", "buffer": 1}], ids=str)
def test_an_aggregator_that_compares_needs_more_than_one_upload(aggregator, mode):
    message = (
        r"synchrony: \w+ compares the uploads of a step, and is the plain mean of one; this "
        r"server takes 1, use synchronous"
    )
    with pytest.raises(ConfigError, match=message):
        simulation(aggregator=aggregator, synchrony=mode)
    simulation(aggregator=aggregator, synchrony={"name": "buffered", "buffer": 3})
    simulation(aggregator={"name": "norm_bound", "c": 1.0}, synchrony=mode)
