"""The history of a run: appended, cut at a mark, and refused where it was changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motley.core.errors import DataError
from motley.results.marks import Mark
from motley_flower.recorded.history import FILE, History, HistoryEntry


def entry(round_number: int, value: object = 0.5) -> HistoryEntry:
    return HistoryEntry("training", round_number, ("MetricRecord", {"loss": value}))


def written(folder: Path, mark: Mark | None, *entries: HistoryEntry) -> Mark:
    history = History(folder, mark)
    for one in entries:
        history.add(one)
    marks = history.sync()
    history.close()
    return marks["history"]


def test_what_was_appended_is_read_to_the_bit(tmp_path: Path) -> None:
    values = [float("nan"), -0.0, 2**53 + 1, [1, 2], [0.1, float("-inf")], np.float64(0.1)]
    mark = written(tmp_path, None, *(entry(t, value) for t, value in enumerate(values)))
    mark = written(tmp_path, mark, HistoryEntry("exchange", 9, (9, "probe", 3, 2, 0.5, 8.0, 8.0)))
    *metrics, last = History(tmp_path, mark).entries()
    assert [one.round for one in metrics] == [*range(6)]
    assert [repr(one.value[1]["loss"]) for one in metrics] == [
        "nan",
        "-0.0",
        "9007199254740993",
        "[1, 2]",
        "[0.1, -inf]",
        "0.1",
    ]
    assert last == HistoryEntry("exchange", 9, (9, "probe", 3, 2, 0.5, 8.0, 8.0))


def test_what_comes_after_a_mark_does_not_count_and_goes_with_the_next_entry(
    tmp_path: Path,
) -> None:
    mark = written(tmp_path, None, entry(1))
    written(tmp_path, mark, entry(2), entry(3))
    assert [one.round for one in History(tmp_path, mark).entries()] == [1]
    mark = written(tmp_path, mark, entry(4))
    assert [one.round for one in History(tmp_path, mark).entries()] == [1, 4]
    assert (tmp_path / FILE).stat().st_size == mark.bytes
    mark = written(tmp_path, None, entry(5))
    assert [one.round for one in History(tmp_path, mark).entries()] == [5]


def test_without_an_entry_there_is_no_file(tmp_path: Path) -> None:
    history = History(tmp_path, None)
    assert history.sync() == {}
    assert history.entries() == []
    assert not (tmp_path / FILE).exists()


def test_a_history_that_was_changed_is_refused(tmp_path: Path) -> None:
    mark = written(tmp_path, None, entry(1))
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-20] ^= 1
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(DataError, match=r"history.arrows is damaged .the digest of its 1 rows"):
        History(tmp_path, mark).entries()
