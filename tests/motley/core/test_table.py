"""ClientTable: a value that grows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.table import ClientTable

BLANK = ClientTable({"loss": np.nan, "count": 0.0, "labels": np.nan})


def test_unseen_clients_have_the_default():
    table = BLANK.put([5, 2], {"loss": [0.5, 0.2]})
    assert table.ids.tolist() == [2, 5]
    np.testing.assert_array_equal(
        table.get("loss", [5, 4, 2, 99, -1]), [0.5, np.nan, 0.2, np.nan, np.nan]
    )
    assert table.get("count", [5, 7]).tolist() == [0, 0]
    assert len(BLANK) == 0
    assert BLANK.get("count", []).shape == (0,)


def test_writing_returns_another_table():
    old = BLANK.put([1, 2], {"loss": [1.0, 2.0]})
    new = old.put([2, 3], {"loss": [9.0, 3.0]}).add("count", [3], 2)
    assert old.get("loss", [1, 2]).tolist() == [1, 2]
    assert len(old) == 2
    assert new.get("loss", [1, 2, 3]).tolist() == [1, 9, 3]
    assert new.get("count", [1, 3]).tolist() == [0, 2]


def test_what_is_read_cannot_be_written_to():
    dense = BLANK.put([0, 1], {"loss": [1.0, 2.0]})
    sparse = BLANK.put([4, 9], {"loss": [1.0, 2.0]})
    for got in (
        dense.get("loss", [0, 1]),
        dense.get("loss", [1]),
        sparse.get("loss", [4, 9]),
        sparse.get("loss", [5]),
        BLANK.get("loss", [0]),
    ):
        with pytest.raises(ValueError, match="read-only"):
            got[0] = 7.0


def test_nan_keeps_the_old_number_unless_told():
    table = BLANK.put([1, 2], {"loss": [1.0, 2.0]})
    assert table.put([1, 2], {"loss": [np.nan, 5.0]}).get("loss", [1, 2]).tolist() == [1, 5]
    np.testing.assert_array_equal(
        table.put([1], {"loss": [np.nan]}, keep_nan=True).get("loss", [1, 2]), [np.nan, 2]
    )


def test_columns_of_rows():
    table = BLANK.put([3, 8], {"labels": [[1, 2], [3, 4]]})
    np.testing.assert_array_equal(table.get("labels", [8, 5]), [[3, 4], [np.nan, np.nan]])
    wider = table.put([5, 8], {"labels": [[5, 6], [np.nan, 9]], "count": 1.0})
    np.testing.assert_array_equal(wider.get("labels", [3, 5, 8]), [[1, 2], [5, 6], [3, 9]])
    assert wider.get("count", [3, 5, 8]).tolist() == [0, 1, 1]
    # one number per client goes into the whole row
    blank = wider.put([3, 5], {"labels": [np.nan, 7.0]})
    np.testing.assert_array_equal(blank.get("labels", [3, 5]), [[1, 2], [7, 7]])
    with pytest.raises(ValueError, match="broadcast"):
        table.put([3], {"labels": [[1, 2, 3]]})


def test_nothing_written():
    table = BLANK.put([], {"loss": []}).add("count", [])
    assert len(table) == 0
    assert np.isnan(table.get("loss", [1])).all()
    assert table.put([4], {"loss": [1.0]}).get("loss", [4]).tolist() == [1.0]


def test_columns_are_declared():
    with pytest.raises(KeyError, match="weight"):
        BLANK.get("weight", [1])
    with pytest.raises(KeyError, match="weight"):
        BLANK.put([1], {"weight": [1.0]})


@pytest.mark.parametrize(
    "ids", [np.arange(6), np.array([1, 4, 6, 9, 11, 30])], ids=["dense", "sparse"]
)
def test_dense_and_sparse_ids_read_the_same(ids):
    table = BLANK.put(ids, {"loss": np.arange(6.0)})
    assert table.get("loss", ids).tolist() == list(range(6))
    assert table.get("loss", ids[::-1]).tolist() == list(range(6))[::-1]
    assert table.get("loss", ids[[2, 5]]).tolist() == [2, 5]
    np.testing.assert_array_equal(table.get("loss", [ids[5], 100, -3]), [5, np.nan, np.nan])
    assert table.grow(ids[:3]) is table


WRITES = st.lists(
    st.dictionaries(
        st.integers(-3, 12), st.one_of(st.floats(-9, 9), st.just(float("nan"))), max_size=6
    ),
    max_size=6,
)


@given(WRITES, st.booleans())
def test_a_table_is_a_dictionary(writes, keep):
    table = BLANK
    plain = {}
    for write in writes:
        table = table.put(list(write), {"loss": list(write.values())}, keep_nan=keep)
        plain.update({k: v for k, v in write.items() if keep or v == v or k not in plain})
    ids = list(range(-4, 14))
    np.testing.assert_array_equal(table.get("loss", ids), [plain.get(k, np.nan) for k in ids])
    assert table.ids.tolist() == sorted({k for write in writes for k in write})


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True),
    st.lists(st.integers(-3, 90), min_size=1, max_size=60),
)
def test_rows_are_looked_up_where_gaps_are_few(known, asked):
    """Sixty ids among ten to forty: rows are looked up; of the same ids times 10^6 they are
    searched."""
    values = np.arange(len(known), dtype=float)
    near = ClientTable({"v": -1.0}).put(known, {"v": values})
    far = ClientTable({"v": -1.0}).put(1_000_000 * np.array(known), {"v": values})
    expected = dict(zip(known, values.tolist(), strict=True))
    for table, scale in ((near, 1), (far, 1_000_000)):
        assert table.get("v", scale * np.array(asked)).tolist() == [
            expected.get(one, -1.0) for one in asked
        ]


@given(
    st.lists(st.integers(0, 30), unique=True),
    st.lists(st.integers(0, 30)),
    st.sampled_from([1, 1_000_000, -1_000_000]),
)
def test_a_table_grows_to_the_ids_of_both(known, new, scale):
    """Ids with few gaps are marked; those far apart, and negative ones, are sorted."""
    old = scale * np.array(known, np.int64)
    added = scale * np.array(new, np.int64)
    table = ClientTable({"v": 0.0}).grow(old).grow(added)
    assert table.ids.dtype == np.int64
    assert table.ids.tolist() == sorted({*old.tolist(), *added.tolist()})
