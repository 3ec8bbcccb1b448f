"""The papers' account of time beside the virtual one: local steps and the values of uploads, worked
by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import nn

import motley
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.tasks import from_clients, own_task
from motley.timing.timeline import transfer_s
from motley.world.interfaces import Device, Network

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


@dataclass(frozen=True)
class Steps(Device):
    """A local step of clients 0, 1 and 2."""

    def step_s(self, key: Any, ids: Any, round: int, examples: Any, steps: Any) -> Any:
        return np.array([0.5, 1.0, 2.0])[ids]


@dataclass(frozen=True)
class Links(Network):
    """Megabits a second upwards, and ten times as many downwards."""

    def uplink_mbps(self, key: Any, ids: Any, round: int) -> Any:
        return np.array([0.001, 0.002, 0.004])[ids]

    def downlink_mbps(self, key: Any, ids: Any, round: int) -> Any:
        return 10 * self.uplink_mbps(key, ids, round)


def test_a_replacement_counts_from_the_upload_that_made_room_for_it() -> None:
    """Two steps each and 43 weights, 1376 bits: 1 + 1.376 = 2.376, 2 + .688 = 2.688 and 4 + .344 =
    4.344 s. By the clock clients 1 and 0 come first: 2.688. Client 1 went out again when it had
    come, at 2.688: with client 2 of before, 5.376. Client 2 went out again at 4.344: 8.688."""
    data = [(np.ones((8, 4), np.float32), np.arange(8) % 3)] * 3

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    rows = Rows()
    keys = {
        "cohort": 3,
        "stop": {"rounds": 4},
        "local": {"steps": 2, "batch_size": 4},
        "device": Steps(),
        "network": Links(),
        "synchrony": {"name": "buffered", "buffer": 2},
    }
    loop = motley.build(keys, task=own_task(from_clients(data, test=data), model))
    loop.write_to(rows)
    while not loop.done:
        loop.step()
    assert [list(row["client"]) for row in rows.tables["clients"]] == [
        [0, 1],
        [1, 2],
        [0, 2],
        [0, 1],
    ]
    seconds = [row["paper_s"] for row in rows.tables["rounds"]]
    assert seconds == pytest.approx([2.688, 5.376, 8.688, 8.688], rel=1e-12)
