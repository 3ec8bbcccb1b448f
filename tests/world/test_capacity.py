"""Capacity: laws and purity of the models, and what a client of less width costs in a run, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import motley
from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.world import CAPACITY
from motley.world.capacity import CapacityBySpeed, CapacityLevels, ConstantCapacity
from tests.rows import Rows

KEY = Streams(0).key("device").fold("capacity")
MANY = np.arange(20_000)
SPEED = np.full(len(MANY), 0.3)


def test_every_client_of_a_constant_capacity_holds_the_same():
    assert set(ConstantCapacity(0.5).widths(KEY, MANY, 1, SPEED)) == {0.5}


def test_levels_are_drawn_in_proportion_once_or_in_every_round():
    drawn = CapacityLevels((1.0, 0.5, 0.25), weights=(1.0, 3.0, 0.0)).widths(KEY, MANY, 1, SPEED)
    share = np.mean(drawn == 1.0)
    assert set(drawn) == {1.0, 0.5}
    assert abs(share - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(MANY))
    fixed, moving = CapacityLevels(), CapacityLevels(per="round")
    assert np.array_equal(fixed.widths(KEY, MANY, 1, SPEED), fixed.widths(KEY, MANY, 9, SPEED))
    assert not np.array_equal(moving.widths(KEY, MANY, 1, SPEED), moving.widths(KEY, MANY, 9, SPEED))
    some = np.array([7, 3])
    assert np.array_equal(moving.widths(KEY, some, 9, SPEED[:2]), moving.widths(KEY, MANY, 9, SPEED)[some])


def test_a_slow_client_holds_as_much_as_it_can_compute_in_time():
    """A step of the width r takes r^2 of the whole one: with a limit of 0.3 s, 1.2 s allow 1/2 and 2 s allow 1/4."""
    speeds = np.array([0.3, 0.8, 1.2, 2.0, 9.0])
    found = CapacityBySpeed(0.3, (1.0, 0.5, 0.25)).widths(KEY, np.arange(5), 1, speeds)
    assert found.tolist() == [1.0, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "constant", "width": 0}, r"capacity: width: got 0|got width = 0"),
        ({"name": "levels", "levels": [0.5, 1.0]}, r"got levels = \[0.5, 1.0\]; expected falling shares"),
        (
            {"name": "levels", "levels": [1.0], "weights": [1.0, 2.0]},
            "expected a number of at least 0 for each of the 1 levels",
        ),
        ({"name": "by_speed", "step_s": -1.0}, r"got step_s = -1.0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        CAPACITY.build(options)


# ------------------------------------------------------------------------------------- in a run

KEYS = {
    "task": {"name": "image", "model": {"name": "mlp", "hidden": [20, 10]}}, "population": 8, "cohort": 4, "stop": {"rounds": 3},
    "partition": {"name": "label_count", "labels": 4}, "algorithm": "heterofl", "engine": "sequential",
    "local": {"steps": 2}, "device": {"name": "constant", "seconds": 1.0},
    "network": {"name": "constant", "up_mbps": 1.0, "down_mbps": 1.0},
    "capacity": {"name": "levels", "levels": [1.0, 0.5]}, "seed": 3,
}  # fmt: skip
WHOLE = 64 * 20 + 20 + 20 * 10 + 10 + 10 * 10 + 10
HALF = 64 * 10 + 10 + 10 * 5 + 5 + 5 * 10 + 10
SIZES = {1.0: WHOLE, 0.5: HALF}


def flat(tables, name):
    """Return the rows of a table whose columns were written together."""
    out = []
    for block in tables[name]:
        columns = {key: np.atleast_1d(np.asarray(value, object)) for key, value in block.items()}
        longest = max(map(len, columns.values()))
        out += [{key: value[min(i, len(value) - 1)] for key, value in columns.items()} for i in range(longest)]
    return out


def started(**changes):
    rows = Rows()
    return build(Experiment(**{**KEYS, **changes}), writer=rows), rows.tables


def test_the_slice_is_billed_exactly_and_takes_its_share_of_the_operations():
    loop, tables = started()
    planner = loop.backend.planner
    widths = planner.widths(np.arange(8), 1)
    assert set(widths) == {1.0, 0.5}
    while not loop.done:
        loop.step()
    for row in flat(tables, "clients"):
        width = widths[row["client"]]
        assert row["bits_down"] == 32 * SIZES[width]
        # the message's header is as long as the whole model's
        assert row["bits_up"] - 32 * SIZES[width] == loop.channel.upload_bits - 32 * WHOLE
    paper = sum(32 * SIZES[widths[row["client"]]] for row in flat(tables, "clients"))
    assert tables["rounds"][-1]["total_up_paper_bits"] == paper
    # a multiplication and an addition for each weight
    share = (64 * 10 + 10 * 5 + 5 * 10) / (64 * 20 + 20 * 10 + 10 * 10)
    step_s = planner.step_s(np.arange(8), 1)
    assert step_s.tolist() == [1.0 if width == 1.0 else pytest.approx(share, rel=1e-12) for width in widths]


def test_clients_are_examined_at_their_own_width_and_with_the_whole_model():
    loop, tables = started(stop={"rounds": 1})
    loop.step()
    scopes = {row["scope"] for row in flat(tables, "evaluations")}
    assert {"mean", "client", "shared_mean", "shared_client"} <= scopes
    alone, shared = (
        {row["client"]: row["loss"] for row in flat(tables, "evaluations") if row["scope"] == scope and row["version"] == 1}
        for scope in ("client", "shared_client")
    )
    for client, width in enumerate(loop.backend.planner.widths(np.arange(8), 1)):
        assert (alone[client] == shared[client]) == (width == 1.0)


def test_without_capacity_heterofl_is_fedavg_with_uniform_weights_bit_for_bit():
    def model(algorithm):
        keys = {key: value for key, value in KEYS.items() if key != "capacity"}
        loop = build(Experiment(**{**keys, "algorithm": algorithm, "weights": "uniform"}))
        while not loop.done:
            loop.step()
        return loop.state.server.model.x

    whole = model("fedavg")
    for name in ("heterofl", "fedrolex"):
        assert model({"name": name, "mask": False}).equal(whole)


@pytest.mark.parametrize("algorithm", ["heterofl", "fedrolex"])
def test_threads_do_what_sequential_does(algorithm):
    models = []
    for engine in ("sequential", "threads"):
        loop, _ = started(algorithm=algorithm, engine={"name": engine, "threads": 1}, dtype="float64")
        while not loop.done:
            loop.step()
        models.append(loop.state.server.model.x)
    assert (models[0] - models[1]).abs().max() < 1e-10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "fedavg"}, "capacity: under 'fedavg' clients train the whole model; .* algorithm = \"heterofl\""),
        (
            {"task": {"name": "image", "model": {"name": "mlp", "norm": "batch"}}},
            "capacity: the model has BatchNorm statistics",
        ),
        ({"selector": "power_of_choice"}, "selector: 'power_of_choice' has clients measure 'loss' of the received model"),
        ({"compressor": {"name": "topk"}}, "compressor: .* a compressor works on updates of the whole model"),
        ({"aggregator": {"name": "median"}}, "Median works on whole updates"),
        ({"server": {"name": "adam"}}, "would move coordinates that nobody trained"),
        ({"weights": "horvitz_thompson"}, "divides by the weights of the clients that hold a coordinate"),
        ({"algorithm": "fedrolex", "synchrony": {"name": "buffered"}}, "synchrony: the slices of Rolling belong to a round"),
        ({"engine": "batched"}, "clients under SlicedTraining train slices of the model"),
        ({"evaluate": {"diagnostics": True}}, "evaluate.diagnostics: diagnostics compare the gradients"),
    ],
)
def test_what_does_not_go_with_slices_says_why(changes, message):
    with pytest.raises(ConfigError, match=message):
        started(**changes)


def test_a_key_that_is_left_out_is_not_in_the_run_id():
    plain = Experiment(**{key: value for key, value in KEYS.items() if key != "capacity"})
    assert plain.resolved()["capacity"] is None
    assert Experiment(**KEYS).run_id() != plain.run_id()


@pytest.mark.parametrize("algorithm", ["heterofl", "fedrolex"])
def test_a_killed_run_goes_on_to_the_same_bits(algorithm, tmp_path):
    keys = {**KEYS, "algorithm": algorithm, "capacity": {"name": "levels", "levels": [1.0, 0.5], "per": "round"}}
    whole = motley.run(keys, out=tmp_path / "whole")
    step = RoundLoop.step

    def killed(loop):
        done = step(loop)
        if done.round == 2:
            raise RuntimeError("killed")
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundLoop, "step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            motley.run({**keys, "checkpoint": {"every_rounds": 1}}, out=tmp_path / "killed")
    again = motley.run({**keys, "checkpoint": {"every_rounds": 1}}, out=tmp_path / "killed", resume=True)
    for name in ("clients", "evaluations"):
        assert again.tables[name].equals(whole.tables[name])
    assert (again.directory / "model.safetensors").read_bytes() == (whole.directory / "model.safetensors").read_bytes()
