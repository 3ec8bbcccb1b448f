"""Samples that go to no client."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.tasks.base import Pool
from motley.tasks.federate import Split, divisible
from motley.tasks.reserve import reserve


def pool(count=100, test=0, groups=None):
    """``count`` samples of two classes, the last ``test`` of them the set's own test half."""
    y = torch.arange(count) % 2
    return Pool(torch.arange(count).float()[:, None], y, 2, np.arange(count) >= count - test, groups)


def rows_of(data):
    return divisible(data, Split(), Key(0))


def test_a_share_is_kept_back_class_by_class_and_the_rest_is_divided():
    data = pool()
    left, kept = reserve(data, rows_of(data), 0.2, Key(1))
    assert len(kept) == 20
    assert np.bincount(data.y[torch.from_numpy(kept)]).tolist() == [10, 10]
    assert sorted([*left.divide, *kept]) == list(range(100))
    assert left.labels.tolist() == data.y[torch.from_numpy(left.divide)].tolist()


def test_the_test_half_is_never_touched():
    """Half of the 60 training samples, also where a client's test part may come from both halves."""
    data = pool(test=40)
    left, kept = reserve(data, rows_of(data), 0.5, Key(1))
    assert len(kept) == 30
    assert kept.max() < 60
    assert set(range(60, 100)) <= set(left.divide.tolist())


def test_every_natural_client_gives_its_share_and_keeps_something():
    """Clients of 70, 29 and 1 samples give ceil(7), ceil(2.9) and none: nobody is emptied."""
    groups = np.repeat([0, 1, 2], [70, 29, 1])
    data = pool(groups=groups)
    left, kept = reserve(data, rows_of(data), 0.1, Key(1))
    assert np.bincount(groups[kept], minlength=3).tolist() == [7, 3, 0]
    assert np.bincount(left.groups).tolist() == [63, 26, 1]


def test_the_key_decides_and_nothing_else():
    data = pool()
    one, two, other = (reserve(data, rows_of(data), 0.2, Key(k))[1] for k in (1, 1, 2))
    assert one.tolist() == two.tolist() != other.tolist()


def test_nothing_to_keep_back_is_refused():
    data = pool(count=1)
    with pytest.raises(ConfigError, match=r"a share of 0\.5 of 1 samples leaves nothing to keep back"):
        reserve(data, rows_of(data), 0.5, Key(1))
