"""A server that knows of its clients' speed what it measured: by hand, in a simulation, resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motley
from motley.core.records import Cohort
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.measured_speeds import MeasuredSpeeds, steps_in_time
from motley.timing.deadline import Deadline
from motley.timing.timeline import Timelines

from .test_loop import Rows


def lines(**columns: list[Any]) -> Timelines:
    n = len(columns["client"])
    whole = {"dispatch": list(range(n)), "version": [0] * n, "start_s": [0.0] * n, **columns}
    return Timelines(**{name: np.array(column) for name, column in whole.items()})


def test_what_was_measured_last_counts_by_hand() -> None:
    """Before: no time, or as guessed. Client 0: one second down, 4 s for two steps, half a second
    up. Client 1 broke off; client 2 was never asked: both count as client 0."""
    speeds = MeasuredSpeeds.none(3)
    ended = lines(
        client=[0, 1],
        steps=[2, 2],
        downloaded_s=[1.0, 1.0],
        computed_s=[5.0, 9.0],
        arrives_s=[5.5, 9.5],
        dropped=[False, True],
    )
    none = speeds.estimates(np.array([1]), np.array([3]), 1_000_000)
    assert [value.tolist() for value in none.values()] == [[0.0], [0.0], [0.0], [np.inf]]
    ones = speeds.estimates(np.array([1]), np.array([3]), 1_000_000, 1.0)
    assert {name: value.tolist() for name, value in ones.items()} == {
        "compute_estimate_s": [3.0],
        "download_estimate_s": [1.0],
        "upload_estimate_s": [1.0],
        "uplink_mbps": [1.0],
    }
    whole = np.full(2, 1_000_000)
    assert speeds.learn(ended, whole, 1_000_000).tolist() == [True, False]
    found = speeds.estimates(np.array([0, 1, 2]), np.array([1, 2, 3]), 1_000_000)
    assert {name: value.tolist() for name, value in found.items()} == {
        "compute_estimate_s": [2.0, 4.0, 6.0],
        "download_estimate_s": [1.0] * 3,
        "upload_estimate_s": [0.5] * 3,
        "uplink_mbps": [2.0] * 3,
    }
    again = lines(
        client=[1],
        steps=[1],
        downloaded_s=[3.0],
        computed_s=[7.0],
        arrives_s=[8.5],
        dropped=[False],
    )
    speeds.learn(again, whole[:1], 1_000_000)
    found = speeds.estimates(np.array([0, 1, 2]), np.ones(3), 1_000_000)
    assert found["compute_estimate_s"].tolist() == [2.0, 4.0, 3.0]
    assert found["download_estimate_s"].tolist() == [1.0, 3.0, 2.0]
    assert found["upload_estimate_s"].tolist() == [0.5, 1.5, 1.0]


def test_a_compressed_upload_tells_of_a_whole_one_by_hand() -> None:
    """A quarter of the bits in half a second: two seconds for all, at 0.5 megabits a second. What
    is longer than a whole upload, by its header, counts as it is."""
    speeds = MeasuredSpeeds.none(3)
    ended = lines(
        client=[0, 1, 2],
        steps=[1, 1, 1],
        downloaded_s=[1.0] * 3,
        computed_s=[2.0] * 3,
        arrives_s=[2.5] * 3,
        dropped=[False] * 3,
    )
    speeds.learn(ended, np.array([250_000, 1_000_000, 2_000_000]), 1_000_000)
    found = speeds.estimates(np.arange(3), np.ones(3), 1_000_000)
    assert found["upload_estimate_s"].tolist() == [2.0, 0.5, 0.5]
    assert found["uplink_mbps"].tolist() == [0.5, 2.0, 2.0]


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Any]:
    """Three clients of 1, 1 and 10 s a step, two steps, and a deadline of 9 s."""
    device = tmp_path / "device.csv"
    device.write_text("step_s\n1\n1\n10\n")
    return {
        "population": 3,
        "cohort": 3,
        "stop": {"rounds": 3},
        "task": {"name": "quadratic", "examples": [32, 32, 32]},
        "local": {"steps": 2},
        "device": {"name": "trace", "file": str(device)},
        "selector": {"name": "fedcs", "deadline": 9.0},
        "engine": {"name": "sequential", "threads": 1},
        "evaluate": {"every": 3},
    }


def tables(keys: dict[str, Any]) -> list[Any]:
    """The table of clients of each round."""
    rows = Rows()
    loop = build(Experiment(**keys), writer=rows)  # type: ignore[arg-type]
    while not loop.done:
        loop.step()
    return list(rows.tables["clients"])


def cohorts(keys: dict[str, Any]) -> list[list[int]]:
    return [sorted(table["client"]) for table in tables(keys)]


def steps_asked(keys: dict[str, Any], speeds: str) -> list[list[int]]:
    """Of each round, the local steps of clients 0, 1 and 2."""
    return [
        np.asarray(table["local_steps"])[np.argsort(table["client"])].tolist()
        for table in tables({**keys, "probe": {"speeds": speeds}})
    ]


def test_fedcs_tries_the_slow_client_once(keys: dict[str, Any]) -> None:
    """Before round 1 nobody takes any time that counts, and all fit, however short the deadline is.
    Measured, the slow client's 20 s do not fit; known, they never did."""
    for deadline in (9.0, 2.1):
        keys = {**keys, "selector": {"name": "fedcs", "deadline": deadline}}
        assert cohorts(keys) == [[0, 1]] * 3
        assert cohorts({**keys, "probe": {"speeds": "measured"}}) == [[0, 1, 2], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    "compress", [{}, {"compressor": "topk", "budget": {"name": "constant", "average": 0.25}}]
)
def test_a_compressed_round_is_measured_as_the_links_are(
    keys: dict[str, Any], compress: dict[str, Any]
) -> None:
    """What is measured in round 1 is what a server is told that knows the links."""
    links = {"name": "uniform", "up_mbps": [0.001, 0.01], "down_mbps": [0.01, 0.1]}
    keys |= {"network": links, "selector": "uniform", **compress}
    found = []
    for speeds in ("measured", "known"):
        told = Experiment(**{**keys, "probe": {"speeds": speeds}})
        loop = build(told, writer=Rows())  # type: ignore[arg-type]
        loop.step()
        wanted = dict.fromkeys(("upload_estimate_s", "uplink_mbps", "download_estimate_s"))
        download = loop.algorithm.local.download(loop.state.server)
        found.append(loop.backend.probe(loop.state.moment, np.arange(3), wanted, download)[1])
    for name in wanted:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-9)


def test_partial_work_follows_what_was_measured(keys: dict[str, Any]) -> None:
    """Two steps of 10 s do not fit into 15 s, one does; a server that measures asks for both once,
    and learns of it although the upload comes too late."""
    keys |= {
        "selector": "uniform",
        "synchrony": {"name": "deadline", "seconds": 15.0, "late": "partial"},
    }
    assert steps_asked(keys, "known") == [[2, 2, 1]] * 3
    assert steps_asked(keys, "measured") == [[2, 2, 2], [2, 2, 1], [2, 2, 1]]


def test_partial_work_leaves_time_for_what_is_sent_and_no_more(keys: dict[str, Any]) -> None:
    """A whole upload takes 8 s, one of a tenth of the values 1.2 s: of the other 6.8 s six are
    worked."""
    keys |= {
        "selector": "uniform",
        "task": {"name": "quadratic", "dim": 1000, "examples": [32, 32, 32]},
        "local": {"steps": 10},
        "device": {"name": "constant", "seconds": 1.0},
        "network": {"name": "uniform", "up_mbps": [0.004, 0.004], "down_mbps": [1.0, 1.0]},
        "synchrony": {"name": "deadline", "seconds": 8.0, "late": "partial"},
        "compressor": "topk",
        "budget": {"name": "constant", "average": 0.1},
    }
    assert steps_asked(keys, "known") == [[6] * 3] * 3
    assert steps_asked(keys, "measured") == [[10] * 3, [6] * 3, [6] * 3]


def test_steps_in_time_by_hand() -> None:
    """10 s, of which 4 s are transfers: 6 steps of a second, and 8 where a third of the 3 s of the
    upload is sent; of 20 s none, but one is asked for; all of no time, and of whom nothing is
    known."""
    seconds = np.array([[1.0, 1.0, 3.0], [20.0, 1.0, 3.0], [0.0, 1.0, 3.0], [np.nan] * 3])
    planned = np.array([9, 9, 9, 9])
    partial = Deadline(seconds=10.0, late="partial")
    assert steps_in_time(partial, planned, seconds).tolist() == [6, 1, 9, 9]
    assert steps_in_time(partial, planned, seconds, 1 / 3).tolist() == [8, 1, 9, 9]
    assert steps_in_time(Deadline(seconds=10.0), planned, seconds).tolist() == [9] * 4


def test_a_resumed_run_remembers_what_was_measured(keys: dict[str, Any], tmp_path: Path) -> None:
    keys |= {"probe": {"speeds": "measured"}}
    whole = motley.run(Experiment(**keys), out=tmp_path / "whole", progress=False)
    seen = []

    def stop(summary: Any) -> None:
        seen.append(summary)
        if len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        motley.run(Experiment(**keys), out=tmp_path / "cut", progress=False, on_round=stop)
    resumed = motley.run(Experiment(**keys), out=tmp_path / "cut", progress=False, resume=True)
    assert resumed.tables["clients"].equals(whole.tables["clients"])
    assert [row["client"] for row in whole.tables["clients"].to_pylist()] == [0, 1, 2, 0, 1, 0, 1]


def test_a_run_whose_speeds_are_known_keeps_its_id(keys: dict[str, Any]) -> None:
    plain = Experiment(**keys)
    assert Experiment(**{**keys, "probe": {"speeds": "known"}}).run_id() == plain.run_id()
    assert Experiment(**{**keys, "probe": {"speeds": "measured"}}).run_id() != plain.run_id()
    assert plain.resolved()["probe"]["speeds"] == "known"


def test_an_allocator_is_told_what_a_deployment_tells(keys: dict[str, Any]) -> None:
    """Nobody has delivered: no time; after round 1 two steps of 1, 1 and 10 s. Links: never."""
    keys |= {"probe": {"speeds": "measured"}, "selector": "uniform"}
    loop = build(Experiment(**keys), writer=Rows())  # type: ignore[arg-type]
    everybody = Cohort(np.arange(3), np.ones(3))
    for seconds in ([0.0, 0.0, 0.0], [2.0, 2.0, 20.0]):
        found = loop.backend._workload(loop.state.moment, everybody)
        assert found["compute_s"].tolist() == seconds
        assert found["uplink_mbps"].tolist() == [np.inf] * 3
        loop.step()


def test_other_words_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(motley.ConfigError, match=r"probe\.speeds: got 'last'.*measured"):
        Experiment(**{**keys, "probe": {"speeds": "last"}})
