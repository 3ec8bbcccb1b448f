"""Capacity: laws and purity of the models, and what a client of less width costs in a run, by
hand."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.core.keys import Key, Streams
from motley.core.records import Cohort
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.selectors import CATALOGUE as SELECTORS
from motley.world import CAPACITY
from motley.world.capacity import (
    CapacityByScore,
    CapacityBySpeed,
    CapacityLevels,
    ConstantCapacity,
)
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
    fixed = CapacityLevels()
    moving = CapacityLevels(per="round")
    assert np.array_equal(fixed.widths(KEY, MANY, 1, SPEED), fixed.widths(KEY, MANY, 9, SPEED))
    assert not np.array_equal(
        moving.widths(KEY, MANY, 1, SPEED), moving.widths(KEY, MANY, 9, SPEED)
    )
    some = np.array([7, 3])
    assert np.array_equal(
        moving.widths(KEY, some, 9, SPEED[:2]), moving.widths(KEY, MANY, 9, SPEED)[some]
    )


def test_a_slow_client_holds_as_much_as_it_can_compute_in_time():
    """A step of the width r takes r^2 of the whole one: with a limit of 0.3 s, 1.2 s allow 1/2 and
    2 s allow 1/4."""
    speeds = np.array([0.3, 0.8, 1.2, 2.0, 9.0])
    found = CapacityBySpeed(0.3, (1.0, 0.5, 0.25)).widths(KEY, np.arange(5), 1, speeds)
    assert found.tolist() == [1.0, 0.5, 0.5, 0.25, 0.25]


def test_the_chosen_are_given_levels_by_their_scores():
    """Of four clients and three levels the places 0, 3/4, 6/4, 9/4: two of the widest. Equal scores
    fall by client id. One client, and the first of fewer clients than levels, are given the
    widest."""
    ids, scores = np.array([4, 7, 1, 9]), np.array([0.2, 0.9, 0.2, 0.5])
    by_score = CapacityByScore((1.0, 0.5, 0.25))
    assert by_score.chosen(ids, scores).tolist() == [0.25, 1.0, 0.5, 1.0]
    assert by_score.chosen(ids[:1], scores[:1]).tolist() == [1.0]
    assert by_score.chosen(ids[:2], scores[:2]).tolist() == [0.5, 1.0]
    assert by_score.chosen(ids[:0], scores[:0]).tolist() == []
    many = by_score.chosen(MANY, np.arange(len(MANY))[::-1] / 7)
    assert [int((many == level).sum()) for level in (1.0, 0.5, 0.25)] == [6667, 6667, 6666]
    assert sorted(many, reverse=True) == many.tolist()


def test_before_the_choice_a_client_holds_what_it_can():
    """Of the levels, the least is 1/4; by speed alone client 0 holds all, client 1 the half."""
    within = {"name": "by_speed", "step_s": 0.3, "levels": [1.0, 0.5]}
    by_score = CAPACITY.build({"name": "by_score", "levels": [0.25], "within": within})
    speeds = np.array([0.3, 0.8])
    held = [one.widths(KEY, np.arange(2), 1, speeds) for one in by_score.chain]
    assert np.min(held, axis=0).tolist() == [1.0, 0.5]
    assert set(CapacityByScore().widths(KEY, MANY, 1, SPEED)) == {1.0}


def test_batch_sizes_of_clients():
    """By speed a step on b of 32 samples takes b / 32 of the whole one: with a limit of 0.3 s, 0.6
    s allow 16 and 1.2 s or more 8."""
    speeds = np.array([0.3, 0.6, 1.2, 9.0])
    assert CapacityBySpeed(0.3, batch_sizes=(32, 16, 8)).held_batch_sizes(
        KEY, np.arange(4), speeds, 32
    ).tolist() == [
        32,
        16,
        8,
        8,
    ]
    assert CapacityBySpeed(0.3, batch_sizes=(64, 8)).held_batch_sizes(
        KEY, np.arange(4), speeds, 32
    ).tolist() == [32, 8, 8, 8]
    assert set(ConstantCapacity(batch_size=8).held_batch_sizes(KEY, MANY, SPEED, 32)) == {8}
    drawn = CapacityLevels(weights=(1.0, 3.0), batch_sizes=(32, 8)).held_batch_sizes(
        KEY, MANY, SPEED, 32
    )
    assert abs(np.mean(drawn == 32) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(MANY))
    assert set(CapacityLevels(batch_sizes=(32, 8)).widths(KEY, MANY, 1, SPEED)) == {1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"name": "constant", "batch_size": 0},
            "got batch_size = 0; expected a whole number of at least 1",
        ),
        (
            {"name": "constant", "width": 0.5, "batch_size": 8},
            "got width = 0.5 and batch_size = 8; expected one of them",
        ),
        (
            {"name": "levels", "batch_sizes": [8, 32]},
            r"got batch_sizes = \[8, 32\]; expected falling whole numbers",
        ),
        (
            {"name": "by_speed", "levels": [1.0, 0.5], "batch_sizes": [8]},
            r"levels = \[1.0, 0.5\] and batch_sizes = \[8\]; expected one",
        ),
        (
            {"name": "levels", "batch_sizes": [32, 8], "per": "round"},
            "a client's memory is the same in every round",
        ),
        (
            {"name": "levels", "batch_sizes": [32, 8], "weights": [1.0]},
            "expected a number of at least 0 for each of the 2 levels",
        ),
        ({"name": "constant", "width": 0}, r"capacity: width: got 0|got width = 0"),
        (
            {"name": "levels", "levels": [0.5, 1.0]},
            r"got levels = \[0.5, 1.0\]; expected falling shares",
        ),
        (
            {"name": "levels", "levels": [1.0], "weights": [1.0, 2.0]},
            "expected a number of at least 0 for each of the 1 levels",
        ),
        ({"name": "by_speed", "step_s": -1.0}, r"got step_s = -1.0"),
        ({"name": "by_deadline", "seconds": 0.0}, r"got seconds = 0.0"),
        (
            {"name": "by_deadline", "levels": [0.5, 1.0]},
            r"got levels = \[0.5, 1.0\]; expected falling shares",
        ),
        (
            {"name": "by_score", "levels": [0.5, 1.0]},
            r"got levels = \[0.5, 1.0\]; expected falling shares",
        ),
        (
            {"name": "by_deadline", "within": {"name": "by_speed", "batch_sizes": [8]}},
            "expected a capacity that says which share each client can hold",
        ),
        ({"name": "by_deadline", "within": "by_score"}, "got within = 'by_score'; expected"),
        (
            {"name": "by_score", "within": "by_score"},
            "got within = 'by_score'; expected a capacity that says which share each client can",
        ),
        (
            {"name": "by_score", "within": {"name": "by_speed", "batch_sizes": [8]}},
            "got within = {'name': 'by_speed', 'batch_sizes': .*; expected a capacity that says",
        ),
        (
            {"name": "by_score", "within": "by_sped"},
            r"capacity.within.name|got 'by_sped' \(did you mean 'by_speed'\?\)",
        ),
        ({"name": "by_memory", "low": 0.0}, r"got megabytes = \[0.0, 1024.0\]; expected 0 < low"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        CAPACITY.build(options)


def test_by_memory_a_client_holds_the_most_that_fits():
    """Of 10 MB; the levels take 20, 10 and 2 MB, or 12, 11 and 10.1 MB."""
    ids = np.arange(3)
    exact = CAPACITY.build({"name": "by_memory", "low": 10, "high": 10, "levels": [1, 0.5, 0.25]})
    costs = np.array([20e6, 10e6, 2e6])
    assert exact.widths(Key(0), ids, 1, np.ones(3), costs).tolist() == [0.5] * 3
    costs = np.array([12e6, 11e6, 10.1e6])
    message = (
        r"client 0 has 10 MB \(so 3 of 3 clients have too little\), and training takes 10.1 MB "
        r'even with the share 0.25; list less, give low = 10.1, or write too_little = "least"'
    )
    with pytest.raises(ConfigError, match=message):
        exact.widths(Key(0), ids, 1, np.ones(3), costs)
    least = dataclasses.replace(exact, too_little="least")
    assert least.widths(Key(0), ids, 1, np.ones(3), costs).tolist() == [0.25] * 3
    spread = dataclasses.replace(exact, low=1.0, high=19.0)
    drawn = spread.widths(Key(0), np.arange(900), 1, np.ones(900), np.array([13e6, 7e6, 1e6]))
    # a third each, with a deviation of sqrt(2/9 / 900)
    assert [np.mean(drawn == w) for w in (1, 0.5, 0.25)] == pytest.approx([1 / 3] * 3, abs=0.05)


# ------------------------------------------------------------------------------------- in a run

KEYS = {
    "task": {"name": "image", "model": {"name": "mlp", "hidden": [20, 10]}},
    "population": 8,
    "cohort": 4,
    "stop": {"rounds": 3},
    "partition": {"name": "label_count", "labels": 4},
    "algorithm": "heterofl",
    "engine": "sequential",
    "local": {"steps": 2},
    "device": {"name": "constant", "seconds": 1.0},
    "network": {"name": "constant", "up_mbps": 1.0, "down_mbps": 1.0},
    "capacity": {"name": "levels", "levels": [1.0, 0.5]},
    "seed": 3,
}
NORMED = {"name": "image", "model": {"name": "mlp", "hidden": [20, 10], "norm": "batch"}}
HALVES = {"name": "fjord", "widths": [1.0, 0.5]}
WHOLE = 64 * 20 + 20 + 20 * 10 + 10 + 10 * 10 + 10
HALF = 64 * 10 + 10 + 10 * 5 + 5 + 5 * 10 + 10
SIZES = {1.0: WHOLE, 0.5: HALF}


def flat(tables, name):
    """Return the rows of a table whose columns were written together."""
    out = []
    for block in tables[name]:
        columns = {key: np.atleast_1d(np.asarray(value, object)) for key, value in block.items()}
        longest = max(map(len, columns.values()))
        out += [
            {key: value[min(i, len(value) - 1)] for key, value in columns.items()}
            for i in range(longest)
        ]
    return out


def started(**changes):
    rows = Rows()
    return build(Experiment(**{**KEYS, **changes}), writer=rows), rows.tables


def test_the_slice_is_billed_exactly_and_takes_its_share_of_the_operations():
    loop, tables = started()
    planner = loop.backend.planner
    widths = planner.holding.widths(np.arange(8), 1)
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
    assert step_s.tolist() == [
        1.0 if width == 1.0 else pytest.approx(share, rel=1e-12) for width in widths
    ]


SCORED = {
    "selector": "hetero_select",
    "capacity": {
        "name": "by_score",
        "levels": [1.0, 0.5],
        "within": {"name": "levels", "levels": [1.0, 0.5], "weights": [3.0, 1.0]},
    },
}


def test_single_weights_are_billed_with_their_positions_on_the_way_down():
    """A quarter of 1,620 weights are 405: their positions are a bitmap of 203 bytes, shorter than
    405 of 11 bits; they do not travel up. A deadline counts both."""
    loop, tables = started(algorithm="fiarse")
    planner = loop.backend.planner
    widths = planner.holding.widths(np.arange(8), 1)
    assert (WHOLE, WHOLE // 4, -(-WHOLE // 8), 405 * 11 / 8 > 203) == (1620, 405, 203, True)
    while not loop.done:
        loop.step()
    down = {1.0: 32 * WHOLE, 0.5: 32 * 405 + 8 * 203}
    up = {1.0: 32 * WHOLE, 0.5: 32 * 405}
    for row in flat(tables, "clients"):
        width = widths[row["client"]]
        assert row["bits_down"] == down[width]
        assert row["bits_up"] - up[width] == loop.channel.upload_bits - 32 * WHOLE
    assert planner.step_s(np.arange(8), 1).tolist() == [
        1.0 if width == 1.0 else 0.25 for width in widths
    ]
    # a step in a quarter of a second, and the links' megabit a second
    seconds = planner.holding.round_s(np.arange(1), 1, (0.5,))
    steps = loop.setting.work.total(loop.federation.seen[:1])
    assert seconds[0, 0] == pytest.approx(0.25 * steps[0] + (down[0.5] + up[0.5]) / 1e6)


def watched_widths(loop):
    """Return a list to which each round appends the widths that clients train, by client."""
    seen = []
    train = loop.engine.train

    def watched(jobs, *rest):
        jobs = list(jobs)
        seen.append({job.client: job.width for job in jobs})
        yield from train(jobs, *rest)

    loop.engine.train = watched
    return seen


@pytest.mark.parametrize("algorithm", ["heterofl", "fedrolex", HALVES])
def test_the_chosen_train_and_are_billed_for_the_width_of_their_score(algorithm):
    """The two best of four train all that they can hold, the others the half; a step of each takes
    its share of the operations."""
    loop, tables = started(**SCORED, algorithm=algorithm)
    can = loop.examining.widths(loop.state)
    assert set(can) == {1.0, 0.5}
    planned = loop.backend.holding.chosen(Cohort(np.arange(4)))  # a plan knows no scores
    assert planned.widths(np.arange(4), 1).tolist() == can[:4].tolist()
    seen = watched_widths(loop)
    while not loop.done:
        loop.step()
    assert (loop.examining.widths(loop.state) == can).all()
    share = (64 * 10 + 10 * 5 + 5 * 10) / (64 * 20 + 20 * 10 + 10 * 10)
    step_s = {1.0: (1 + share) / 2 if algorithm is HALVES else 1.0, 0.5: share}
    rows = flat(tables, "clients")
    for number, widths in enumerate(seen, 1):
        of = {row["client"]: row for row in rows if row["round"] == number}
        best = sorted(of, key=lambda k: (-of[k]["score"], k))
        for place, k in enumerate(best):
            assert widths[k] == min(can[k], 1.0 if place < 2 else 0.5)
            assert of[k]["bits_down"] in (0, 32 * SIZES[widths[k]])  # 0: a probe sent it
            head = loop.channel.upload_bits - 32 * WHOLE
            assert of[k]["bits_up"] == 32 * SIZES[widths[k]] + head
            assert of[k]["compute_s"] == pytest.approx(
                of[k]["local_steps"] * step_s[widths[k]], rel=1e-9
            )
    assert {widths[k] < can[k] for widths in seen for k in widths} == {True, False}


def test_a_selector_that_gives_scores_is_named():
    """As is said of those that give none."""
    giving = [
        name
        for name in SELECTORS.names()
        if all(option.default is not ... for option in SELECTORS.options(name))
        and "scores" in SELECTORS.build(name).provides()
    ]
    assert giving == ["hetero_select", "hetero_select_v1"]


def test_clients_are_examined_at_their_own_width_and_with_the_whole_model():
    loop, tables = started(stop={"rounds": 1})
    loop.step()
    scopes = {row["scope"] for row in flat(tables, "evaluations")}
    assert {"mean", "client", "shared_mean", "shared_client"} <= scopes
    alone, shared = (
        {
            row["client"]: row["loss"]
            for row in flat(tables, "evaluations")
            if row["scope"] == scope and row["round"] == 1
        }
        for scope in ("client", "shared_client")
    )
    for client, width in enumerate(loop.backend.planner.holding.widths(np.arange(8), 1)):
        # the two examinations stack other models together, and on some processors a product's last
        # bits depend on the stack
        assert (alone[client] == pytest.approx(shared[client], rel=1e-6)) == (width == 1.0)


def test_each_listed_width_is_examined_for_everybody():
    """On the clients' own samples: a client of half the width is examined as in ``client``; all of
    them by the slice in the mean."""
    loop, tables = started(
        stop={"rounds": 1}, task=NORMED, algorithm={"name": "fjord", "widths": [1.0, 0.5, 0.25]}
    )
    loop.step()
    rows = [row for row in flat(tables, "evaluations") if row["round"] == 1]
    found = {row["scope"]: row for row in rows if row["client"] == -1}
    assert {"mean", "shared_mean", "width_0.5_mean", "width_0.25_mean"} == set(found)
    models = loop.examining.models(loop.state, loop.state.server)
    federation = loop.federation
    for width in (0.5, 0.25):
        each = [
            loop.engine.evaluate(models.at(width), test)["hit"].mean()
            for test in federation.test
            if len(test)
        ]
        assert found[f"width_{width:g}_mean"]["accuracy"] == pytest.approx(np.mean(each), rel=1e-12)
    alone = {row["client"]: row["loss"] for row in rows if row["scope"] == "client"}
    for client, width in enumerate(loop.backend.planner.holding.widths(np.arange(8), 1)):
        losses = loop.engine.evaluate(models.at(width), federation.test[client])["loss"]
        assert alone[client] == pytest.approx(losses.mean(), rel=1e-12)


def test_a_width_has_a_row_on_the_common_test_set():
    loop, tables = started(stop={"rounds": 1}, split={"test": "global"})
    loop.step()
    rows = [
        row
        for row in flat(tables, "evaluations")
        if row["round"] == 1 and row["scope"].startswith("width")
    ]
    hits = loop.engine.evaluate(
        loop.examining.models(loop.state, loop.state.server).at(0.5), loop.federation.global_test
    )["hit"]
    assert [(row["scope"], row["accuracy"]) for row in rows] == [
        ("width_0.5", pytest.approx(hits.mean(), rel=1e-12))
    ]


@pytest.mark.parametrize(
    ("task", "static"), [(NORMED, True), (NORMED, False), (KEYS["task"], False)]
)
def test_statistics_travel_for_each_listed_width_and_none_where_they_are_static(task, static):
    """20 and 10 units have 60 numbers and 2 counters at width 1, 10 and 5 have 30: FjORD sends both
    sets, or that of 1/2 alone."""
    loop, tables = started(
        task=task, algorithm="heterofl" if static else HALVES, stop={"rounds": 1}
    )
    widths = loop.backend.planner.holding.widths(np.arange(8), 1)
    normed = task == NORMED
    sets = {1.0: (90, 4), 0.5: (30, 2)}
    loop.step()
    for row in flat(tables, "clients"):
        width = widths[row["client"]]
        size = SIZES[width] + normed * {1.0: 60, 0.5: 30}[width]  # scale and offset of BatchNorm
        floats, whole = sets[width] if normed and not static else (0, 0)
        assert row["bits_down"] == 32 * (size + floats) + 64 * whole
        assert row["bits_up"] - row["bits_down"] < 8 * 200  # heads of the parts
        assert row["bits_up"] > row["bits_down"]


def test_a_step_of_drawn_widths_takes_their_mean_share():
    loop, _ = started(algorithm=HALVES)
    planner = loop.backend.planner
    everybody = np.arange(8)
    widths = planner.holding.widths(everybody, 1)
    half = (64 * 10 + 10 * 5 + 5 * 10) / (64 * 20 + 20 * 10 + 10 * 10)
    work = planner.full_work_s(everybody, 1) / planner.full_steps
    assert work.tolist() == [
        pytest.approx((1 + half) / 2 if width == 1.0 else half, rel=1e-12) for width in widths
    ]
    taught = started(algorithm={**HALVES, "distil": True})[0].backend.planner
    work = taught.full_work_s(everybody, 1) / taught.full_steps
    # with the width 1/2 drawn, two passes: the teacher's beside it
    assert work.tolist() == [
        pytest.approx((1 + half + 1) / 2 if width == 1.0 else half, rel=1e-12) for width in widths
    ]


def test_a_client_has_the_widest_listed_width_that_it_holds():
    loop, _ = started(algorithm={"name": "fjord", "widths": [1.0, 0.6, 0.2]})
    held = started()[0].backend.planner.holding.widths(np.arange(8), 1)
    assert loop.backend.planner.holding.widths(np.arange(8), 1).tolist() == [
        1.0 if width == 1.0 else 0.2 for width in held
    ]


SIGNALS = {
    "loss": None,
    "grad_norm": None,
    "gradient": None,
    "gradient_sketch": 1,
    "robust_loss": None,
}


@pytest.mark.parametrize(
    ("algorithm", "task"),
    [
        ("heterofl", KEYS["task"]),
        ("fedrolex", KEYS["task"]),
        (HALVES, NORMED),
        ("fiarse", KEYS["task"]),
    ],
)
def test_clients_measure_the_slice_that_they_received(algorithm, task):
    """The whole model that is 0 outside of a slice has its losses, and the gradient of its
    entries."""
    loop, _ = started(algorithm=algorithm, task=task, dtype="float64")
    for _ in range(2):
        loop.step()
    state = loop.state
    ids = np.array([1, 4, 6])
    key = Key(7)
    slices = loop.backend._slices(state.moment, ids)
    models = loop.examining.models(state, state.server)
    download = loop.algorithm.local.download(state.server)
    found = loop.engine.measure(ids, download, {}, SIGNALS, key, None, slices)
    assert set(slices.widths) == {1.0, 0.5}
    for i, (client, width) in enumerate(zip(ids, slices.widths, strict=True)):
        model = models.at(width)
        if algorithm == "fiarse":
            kept = loop.algorithm.local.held(download["x"], width).nonzero()[:, 0].numpy()
        else:
            kept = loop.setting.task.layout.kept_positions(width, slices.offset)
        # those of the width 1 are measured with
        sets = model.buffers.repeat(2) if algorithm is HALVES else model.buffers
        sent = {"x": model.x, "buffers": sets, "counters": download["counters"]}
        wanted = loop.engine.measure(np.array([client]), sent, {}, SIGNALS, key)
        outside = np.setdiff1d(np.arange(len(model.x)), kept)
        assert not found["gradient"][i, outside].any()
        np.testing.assert_allclose(
            found["gradient"][i, kept], wanted["gradient"][0, kept], rtol=1e-9, atol=1e-14
        )
        assert found["grad_norm"][i] == pytest.approx(
            np.linalg.norm(found["gradient"][i]), rel=1e-12
        )
        for name in ("loss", "robust_loss"):
            assert found[name][i] == pytest.approx(wanted[name][0], rel=1e-9)


@pytest.mark.parametrize(
    "selector", ["power_of_choice", {"name": "divfl", "vectors": "gradient"}, "oort"]
)
def test_selectors_measure_slices_at_the_cost_of_their_width(selector):
    loop, tables = started(selector=selector, stop={"rounds": 1})
    widths = loop.backend.planner.holding.widths(np.arange(8), 1)
    loop.step()
    (row,) = tables["rounds"]
    if row["probed"]:
        assert set(widths[loop.state.under_way.candidates]) == {1.0, 0.5}
        down = sum(32 * SIZES[width] for width in widths[loop.state.under_way.candidates])
        assert row["probe_down_bits"] == down
        gradient = not isinstance(selector, str)
        assert row["probe_up_bits"] == (down if gradient else 32 * row["probed"])


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


@pytest.mark.parametrize("algorithm", ["heterofl", "fedrolex", HALVES, "fiarse"])
def test_threads_do_what_sequential_does(algorithm):
    models = []
    for engine in ("sequential", "threads"):
        loop, _ = started(
            algorithm=algorithm, engine={"name": engine, "threads": 1}, dtype="float64", task=NORMED
        )
        while not loop.done:
            loop.step()
        models.append(loop.state.server.model.x)
    assert (models[0] - models[1]).abs().max() < 1e-10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithm": "fedavg"},
            "capacity: under 'fedavg' clients train the whole model; .* algorithm = \"heterofl\"",
        ),
        (
            {"task": NORMED, "selector": "power_of_choice"},
            "selector: 'power_of_choice' has clients measure 'loss' .* no BatchNorm statistics "
            "under 'heterofl'; use a model without",
        ),
        (
            {"task": NORMED, "recalibrate": {"batches": 3}},
            "recalibrate: under 'heterofl' .* write cumulative = true",
        ),
        (
            {"task": NORMED, "algorithm": HALVES, "recalibrate": {"batches": 3}},
            "each listed width has statistics of its own",
        ),
        (
            {"algorithm": {"name": "fjord", "widths": [1.0, 0.8]}},
            r"capacity: got clients that hold 0.5 .* the narrowest that 'fjord' lists is 0.8; "
            r".*widths = \[1.0, 0.8, 0.5\]",
        ),
        (
            {"algorithm": "fiarse", "capacity": {"name": "by_memory", "low": 1.0, "high": 2.0}},
            "capacity: under 'fiarse' clients train single weights .* capacity = \"by_speed\"",
        ),
        (
            {"algorithm": {"name": "fine_tuned", "method": "heterofl", "epochs": 1}},
            "algorithm: clients fine-tune whole models, and here they hold slices",
        ),
        (
            {"compressor": {"name": "topk"}},
            "compressor: .* a compressor works on updates of the whole model",
        ),
        ({"aggregator": {"name": "median"}}, "Median works on whole updates"),
        ({"server": {"name": "adam"}}, "would move coordinates that nobody trained"),
        (
            {"weights": "horvitz_thompson"},
            "divides by the weights of the clients that hold a coordinate",
        ),
        (
            {"algorithm": "fedrolex", "synchrony": {"name": "buffered"}},
            "synchrony: the slices of Rolling belong to a round",
        ),
        ({"engine": "batched"}, "clients under SlicedTraining train slices of the model"),
        (
            {"engine": "processes", "algorithm": HALVES},
            "clients under OrderedDropout train slices of the model",
        ),
        (
            {"capacity": "by_score"},
            "capacity: 'by_score' orders the chosen clients by the selector's scores, and "
            '\'uniform\' gives none; use "hetero_select" or "hetero_select_v1"',
        ),
        (
            {**SCORED, "synchrony": {"name": "buffered"}},
            "synchrony: 'by_score' compares the clients that are chosen for a round, .* use sync",
        ),
        (
            {
                "selector": "hetero_select",
                "algorithm": HALVES,
                "capacity": {"name": "by_score", "within": {"name": "constant", "width": 0.25}},
            },
            "got clients that hold 0.0625 of the width",
        ),
        (
            {"evaluate": {"diagnostics": True}},
            "evaluate.diagnostics: diagnostics compare the gradients",
        ),
    ],
)
def test_what_does_not_go_with_slices_says_why(changes, message):
    with pytest.raises(ConfigError, match=message):
        started(**changes)


def test_a_key_that_is_left_out_is_not_in_the_run_id():
    plain = Experiment(**{key: value for key, value in KEYS.items() if key != "capacity"})
    assert plain.resolved()["capacity"] is None
    assert Experiment(**KEYS).run_id() != plain.run_id()


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("heterofl", {}),
        ("fedrolex", {}),
        ({**HALVES, "distil": True}, {}),
        ("fiarse", {}),
        ("heterofl", {**SCORED, "task": KEYS["task"]}),
    ],
)
def test_a_killed_run_goes_on_to_the_same_bits(algorithm, more, tmp_path):
    keys = {
        **KEYS,
        "algorithm": algorithm,
        "task": NORMED,
        "capacity": {"name": "levels", "levels": [1.0, 0.5], "per": "round"},
        **more,
    }
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
    again = motley.run(
        {**keys, "checkpoint": {"every_rounds": 1}}, out=tmp_path / "killed", resume=True
    )
    for name in ("clients", "evaluations"):
        assert again.tables[name].equals(whole.tables[name])
    assert (again.directory / "model.safetensors").read_bytes() == (
        whole.directory / "model.safetensors"
    ).read_bytes()


# ----------------------------------------------------------------------------- batch sizes in a run

BATCHES = {
    **{key: value for key, value in KEYS.items() if key not in ("algorithm", "capacity", "local")},
    "partition": "iid",
    "cohort": 8,
    "local": {"epochs": 1, "batch_size": 32},
}


def ended(**keys: object) -> tuple[RoundLoop, Rows]:
    rows = Rows()
    loop = build({**BATCHES, **keys}, writer=rows)
    while not loop.done:
        loop.step()
    return loop, rows


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "fednova", {"name": "fedrep", "head_epochs": 1}, {"name": "scaffold"}]
)
def test_a_batch_size_that_all_can_hold_is_the_run_s_own(algorithm):
    """Held batches of 8 are what ``local.batch_size = 8`` gives, bit for bit, and what holds more
    than a batch changes nothing."""
    keys = {"algorithm": algorithm, "cohort": 5, "stop": {"rounds": 2}}
    small, _ = ended(**keys, local={"epochs": 1, "batch_size": 8})
    held, _ = ended(**keys, capacity={"name": "constant", "batch_size": 8})
    assert torch.equal(held.state.server.model.x, small.state.server.model.x)
    whole, _ = ended(**keys)
    assert not torch.equal(whole.state.server.model.x, small.state.server.model.x)
    roomy, _ = ended(**keys, capacity={"name": "levels", "batch_sizes": [100, 50]})
    assert torch.equal(roomy.state.server.model.x, whole.state.server.model.x)
    assert roomy.state.clients.now_s == whole.state.clients.now_s


@pytest.mark.parametrize(
    ("algorithm", "beside"), [("fedavg", 0.0), ({"name": "ifca", "k": 2}, 2 / 3)]
)
def test_smaller_batches_are_more_and_shorter_steps(algorithm, beside):
    """A step on 32 samples takes 1 s: a client of n samples takes ceil(n / 32) steps of 1 s or
    ceil(n / 8) of 1/4 s. What it does beside its steps takes as long as ever: IFCA's losses of two
    models a third of ceil(n / 32) steps each."""
    loop, rows = ended(
        capacity={"name": "levels", "batch_sizes": [32, 8]}, algorithm=algorithm, stop={"rounds": 1}
    )
    held = loop.setting.work.client_batch_sizes
    n = loop.federation.seen
    assert set(held.tolist()) == {8, 32}
    (federation,), (clients,) = rows.tables["federation"], rows.tables["clients"]
    assert federation["batch_size"].tolist() == held.tolist()
    assert federation["step_s"].tolist() == (held / 32).tolist()
    ids = np.asarray(clients["client"])
    steps = -(-n[ids] // held[ids])
    assert np.asarray(clients["local_steps"]).tolist() == steps.tolist()
    np.testing.assert_allclose(
        clients["compute_s"], steps * held[ids] / 32 + beside * -(-n[ids] // 32), rtol=1e-12
    )


@functools.cache
def trained_on_unequal_batches(engine):
    keys = {
        "capacity": {"name": "levels", "batch_sizes": [32, 12, 5]},
        "dtype": "float64",
        "stop": {"rounds": 2},
    }
    return ended(**keys, engine=engine)[0].state.server.model.x


@pytest.mark.parametrize("engine", ["batched", "vmap", "threads"])
def test_engines_agree_on_batches_of_unequal_size(engine):
    reference = trained_on_unequal_batches(BATCHES["engine"])
    torch.testing.assert_close(
        trained_on_unequal_batches(engine), reference, rtol=1e-10, atol=1e-12
    )


def test_by_memory_widths_and_batches_are_those_whose_training_fits():
    """The limit lies between what two levels take; who holds none is refused when the run is
    made."""
    setting = build(Experiment(**KEYS)).setting
    whole, half = (setting.memory(width).total / 1e6 for width in (1.0, 0.5))
    assert half < whole
    middle = {"name": "by_memory", "low": (whole + half) / 2, "high": (whole + half) / 2}
    loop, _ = started(capacity={**middle, "levels": [1.0, 0.5]})
    assert loop.examining.widths(loop.state).tolist() == [0.5] * 8
    with pytest.raises(ConfigError, match=r"and training takes .* even with the share 1"):
        started(capacity={**middle, "levels": [1.0]})
    plain = {"algorithm": "fedavg", "local": {"epochs": 1, "batch_size": 32}}
    setting = build(Experiment(**{**KEYS, **plain, "capacity": None})).setting
    few, many = (setting.memory(batch_size=size).total / 1e6 for size in (8, 16))
    limit = {"name": "by_memory", "low": (few + many) / 2, "high": (few + many) / 2}
    loop, _ = started(**plain, capacity={**limit, "batch_sizes": [32, 16, 8]})
    assert loop.setting.work.client_batch_sizes.tolist() == [8] * 8
