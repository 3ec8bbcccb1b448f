"""Timelines are columns that are cut and joined together."""

import numpy as np

from motley.timing.planner import plan
from motley.timing.timeline import Timelines


def lines(ids):
    return plan(ids, ids, 3, 2, 1.0, 0.5, 0, np.inf, 1e6, 2.0)


def test_rows_are_taken_by_mask_slice_and_index():
    three = lines([4, 7, 9])
    assert three[np.array([True, False, True])].client.tolist() == [4, 9]
    assert three[1:].client.tolist() == [7, 9]
    assert three[[2, 0]].arrives_s.tolist() == [2.5, 2.5]


def test_joining():
    both = Timelines.concat(lines([4]), lines([7, 9]))
    assert (len(both), both.client.tolist(), both.dropped.dtype) == (3, [4, 7, 9], np.dtype(bool))
    alone = Timelines.concat(Timelines.empty(), lines([4]))
    assert alone.client.dtype == np.int64
    assert len(Timelines.empty()) == 0
