"""The journal of a run: records of one length, whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from motley.core.errors import ContractError
from motley.results.journal import FILE, RECORD, Journal, read_journal
from motley.results.marks import Mark
from motley.results.schema import TABLES


def marks(size: int) -> dict[str, Mark]:
    return {table: Mark(f"{table}.parquet", size, size, 32 * "f") for table in TABLES}


def test_the_largest_marks_of_all_tables_fit_into_a_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path, marks(0))
    journal.append(marks(2**63))
    journal.close()
    assert (tmp_path / FILE).stat().st_size == 2 * RECORD
    assert read_journal(tmp_path) == marks(2**63)


def test_marks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, marks(1))
    with pytest.raises(
        ContractError, match=r"the marks of 10 tables take 1\d{3} bytes of a journal; expected at"
    ):
        journal.append(marks(10**30))
    journal.append(marks(2))
    journal.close()
    assert read_journal(tmp_path) == marks(2)


def test_a_disk_that_fills_up_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``write`` takes what there is room for, and only the next call is an error."""
    real = os.pwrite
    room = 1500

    def full(handle: int, data: memoryview, at: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(handle, data[:room], at)
        room -= done
        return done

    journal = Journal(tmp_path, marks(1))
    monkeypatch.setattr(os, "pwrite", full)
    journal.append(marks(2))
    with pytest.raises(OSError, match="No space left"):
        journal.append(marks(3))
    assert (tmp_path / FILE).stat().st_size == 2 * RECORD
    room = 10**6
    journal.append(marks(4))
    journal.close()
    assert read_journal(tmp_path) == marks(4)
