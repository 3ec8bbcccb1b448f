"""Batches known before training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.keys import Key
from motley.core.work import LocalWork
from motley.engines.batches import BatchPlan, BatchSchedule

KEY = Key(4).fold("batches", 7, 3)
WORK = LocalWork(batch_size=4, epochs=3)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_every_epoch_is_a_permutation(examples, batch, epochs, drop):
    work = LocalWork(batch, epochs=epochs, drop_single=drop)
    steps = int(work.total(examples))
    plan = BatchPlan.draw(KEY, examples, work, steps)
    assert len(plan) == steps
    dropped = drop and examples > batch and examples % batch == 1
    for epoch in plan.order.reshape(epochs, -1):
        assert len(set(epoch.tolist())) == len(epoch) == examples - dropped
        assert set(epoch.tolist()) <= set(range(examples))
    assert (plan.sizes[:-1] <= batch).all()
    assert not (dropped and (plan.sizes == 1).any() and batch > 1)


@given(st.integers(1, 30), st.integers(0, 20))
def test_cutting_a_job_short_changes_nothing_before_the_cut(examples, steps):
    whole = BatchPlan.draw(KEY, examples, LocalWork(4, steps=20), 20)
    part = BatchPlan.draw(KEY, examples, LocalWork(4, steps=20), steps)
    assert len(part) == steps
    for step in range(steps):
        assert part[step].tolist() == whole[step].tolist()


def test_last_short_batch_is_kept():
    assert BatchPlan.draw(KEY, 10, WORK, 9).sizes.tolist() == [4, 4, 2] * 3


def test_a_last_batch_of_one_is_dropped_on_request():
    work = LocalWork(batch_size=4, epochs=2, drop_single=True)
    assert BatchPlan.draw(KEY, 9, work, 4).sizes.tolist() == [4, 4, 4, 4]
    assert BatchPlan.draw(KEY, 1, work, 2).sizes.tolist() == [1, 1]


def test_another_key_gives_other_batches():
    orders = [BatchPlan.draw(key, 30, WORK, 8).order.tolist() for key in (KEY, KEY, KEY.fold(1))]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(("examples", "steps"), [(0, 0), (0, 5), (5, 0)])
def test_nothing_to_do_is_an_empty_plan(examples, steps):
    plan = BatchPlan.draw(KEY, examples, WORK, steps)
    assert len(plan) == len(plan.order) == 0


def test_a_tape_holds_every_batch_of_everybody():
    sizes = [10, 9, 3, 0]
    starts = np.array([100, 200, 300, 400])
    plans = [BatchPlan.draw(KEY.fold(i), n, WORK, int(WORK.total(n))) for i, n in enumerate(sizes)]
    tape = BatchSchedule.of(plans, starts)
    assert tape.active.tolist() == [3, 3, 3, 2, 2, 2, 2, 2, 2]
    for step in range(len(tape)):
        at = slice(tape.offsets[step], tape.offsets[step + 1])
        for i in range(tape.active[step]):
            mine = (tape.owner[at] == i) & (tape.weight[at] > 0)
            assert tape.places[at][mine].tolist() == (plans[i][step] + starts[i]).tolist()
            assert tape.weight[at][mine].sum() == pytest.approx(1.0)
            padding = (tape.owner[at] == i) & (tape.weight[at] == 0)
            # its own sample, nobody else's
            assert set(tape.places[at][padding].tolist()) <= {plans[i].order[0] + starts[i]}
