"""The papers' account of time beside the virtual one: local steps and the values of uploads, worked
by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.timing.timeline import transfer_s

from .test_loop import Rows


def ran(**keys: Any) -> tuple[RoundLoop, dict[str, list[Any]]]:
    base: dict[str, Any] = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 6,
        "cohort": 3,
        "stop": {"rounds": 3},
        "local": {"steps": 4, "batch_size": 16},
        "device": {"name": "uniform", "low": 0.1, "high": 0.5},
        "network": {"name": "uniform", "up_mbps": [1, 5]},
        "evaluate": {"every": 1, "per_client": False},
        "engine": {"name": "sequential", "threads": 1},
    }
    rows = Rows()
    loop = build(Experiment(**{**base, **keys}), writer=rows)  # type: ignore[arg-type]
    while not loop.done:
        loop.step()
    return loop, rows.tables


def test_a_round_takes_the_slowest_of_steps_and_values() -> None:
    """A top-k of a tenth with curvature, after a probe: by hand from the table of clients, a round
    is the largest of 4 steps * step_s + 32 bits * values / link, whatever the probe, the
    curvature's two steps and the places of values took."""
    loop, tables = ran(
        selector="power_of_choice",
        compressor={"name": "topk", "criterion": "curvature"},
        budget={"name": "constant", "average": 0.1},
        stop={"rounds": 3},
    )
    size = loop.setting.task.layout.size
    total = 0.0
    step_s = loop.backend.planner.local_step_s(np.arange(6), 1)  # type: ignore[attr-defined]
    values = int(np.ceil(0.1 * size - 1e-6))
    for rounds, clients in zip(tables["rounds"], tables["clients"], strict=True):
        each = [
            4 * step_s[k] + 32 * values / (1e6 * mbps)
            for k, mbps in zip(clients["client"], clients["up_mbps"], strict=True)
        ]
        total += max(each)
        assert rounds["paper_s"] == pytest.approx(total, rel=1e-12)
        assert rounds["paper_s"] < rounds["time_s"]
    assert loop.state.clients.paper_s == pytest.approx(total, rel=1e-12)


def test_both_accounts_agree_where_nothing_else_takes_time() -> None:
    """Uniform choice, whole updates in a message of nothing but values (heads left out), links down
    without end: the same seconds."""
    loop, tables = ran(
        selector="uniform", network={"name": "uniform", "up_mbps": [1, 5]}, stop={"rounds": 2}
    )
    heads = tables["clients"][0]["bits_up"][0] - 32 * loop.setting.task.layout.size
    slack = float(transfer_s(heads, 1.0))
    for row in tables["rounds"]:
        assert 0 <= row["time_s"] - row["paper_s"] <= 2 * slack + 1e-9
    assert [row["paper_s"] for row in tables["evaluations"]] == [
        0.0,
        *(row["paper_s"] for row in tables["rounds"]),
    ]


def test_a_buffered_server_counts_from_the_moment_of_each_dispatch() -> None:
    """Two accepted uploads a step, three clients under way: the account grows, and stays below the
    clock."""
    _, tables = ran(
        selector="uniform",
        weights="uniform",
        synchrony={"name": "buffered", "buffer": 2},
        stop={"rounds": 6},
    )
    seconds = np.array([row["paper_s"] for row in tables["rounds"]])
    assert (np.diff(seconds) >= 0).all()
    assert seconds[-1] > 0
    assert (seconds <= np.array([row["time_s"] for row in tables["rounds"]]) + 1e-9).all()
