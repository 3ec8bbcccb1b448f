"""The writer survives kills, full disks and resumption; the reader never chokes."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from motley.core.errors import ContractError, StoreError
from motley.results.load import read_table
from motley.results.schema import TABLES
from motley.results.stream import Stream
from motley.results.writer import Writer


def write_rounds(directory: Path, rounds: range, resume_at: int | None = None) -> Writer:
    writer = Writer(directory, resume_at)
    writer.add("federation", {"client": np.arange(3), "num_train": 5, "labels": np.arange(6).reshape(3, 2)})
    for r in rounds:
        writer.add("rounds", {"round": r, "time_s": 1.5 * r, "notes": "{}"})
        writer.add("clients", {"round": r, "client": np.array([0, 2]), "outcome": ["accepted", "late"], "loss": [0.5, np.nan]})
        writer.flush()
    return writer


def tables(directory: Path) -> dict[str, pa.Table]:
    return {name: read_table(directory, name) for name in TABLES}


def equal(a: Path, b: Path) -> bool:
    return all(x.equals(y) for x, y in zip(tables(a).values(), tables(b).values(), strict=True))


def stamps(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}


def test_what_is_added_is_read_back(tmp_path):
    write_rounds(tmp_path, range(1, 3)).close()
    rounds = read_table(tmp_path, "rounds")
    assert rounds.schema.equals(TABLES["rounds"])
    assert rounds["round"].to_pylist() == [1, 2]
    assert rounds["time_s"].to_pylist() == [1.5, 3.0]
    assert rounds["notes"].to_pylist() == ["{}", "{}"]
    assert rounds["version"].to_pylist() == [None, None]  # not given
    clients = read_table(tmp_path, "clients")
    assert clients["round"].to_pylist() == [1, 1, 2, 2]  # the scalar is repeated
    assert clients["loss"].to_pylist() == [0.5, None] * 2  # NaN is null
    assert read_table(tmp_path, "federation")["labels"].to_pylist() == [[0, 1], [2, 3], [4, 5]]
    assert read_table(tmp_path, "timings").num_rows == 0


def test_a_flush_is_one_batch_and_arrays_are_copied(tmp_path):
    writer = Writer(tmp_path)
    losses = np.array([1.0, 2.0])
    for client in (0, 5):
        writer.add("clients", {"round": 1, "client": [client, client + 1], "loss": losses})
    losses[:] = 9.0
    writer.flush()
    with pa.ipc.open_stream(tmp_path / "clients.arrows") as stream:
        batches = list(stream)
    assert [batch.num_rows for batch in batches] == [4]
    assert batches[0]["loss"].to_pylist() == [1.0, 2.0, 1.0, 2.0]


def test_whole_numbers_may_come_as_floats_with_gaps(tmp_path):
    writer = Writer(tmp_path)
    writer.add("clients", {"round": 1, "staleness": np.array([2.0, np.nan])})
    writer.flush()
    assert read_table(tmp_path, "clients")["staleness"].to_pylist() == [2, None]


def test_no_rows_write_nothing(tmp_path):
    writer = Writer(tmp_path)
    writer.add("clients", {"round": 1, "client": np.empty(0, int)})
    writer.flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("round", {"round": 1}, "no table 'round' .did you mean 'rounds'"),
        ("rounds", {"rond": 1}, "no column 'rond' .did you mean 'round'"),
        ("clients", {"client": [1, 2], "loss": [1.0]}, "unequal lengths: {'client': 2, 'loss': 1}"),
        ("clients", {"outcome": [2, 3]}, "clients.outcome holds string"),
        ("clients", {"client": [1.5]}, "clients.client holds int64"),
        ("clients", {"client": "three"}, "clients.client holds int64"),
        ("federation", {"labels": [3]}, "federation.labels holds list"),
    ],
)
def test_wrong_rows_are_a_broken_contract(tmp_path, table, columns, message):
    with pytest.raises(ContractError, match=message):
        Writer(tmp_path).add(table, columns)


def test_a_file_torn_anywhere_is_read_up_to_the_tear_and_appended_to(tmp_path):
    """Every length of a three-batch stream: whole batches are read, and a writer that resumes goes on right after them."""
    whole = tmp_path / "whole"
    write_rounds(whole, range(1, 4)).close()
    data = (whole / "rounds.arrows").read_bytes()
    torn = tmp_path / "torn"
    torn.mkdir()
    seen = set()
    for length in range(0, len(data), 37):
        (torn / "rounds.arrows").write_bytes(data[:length])
        rounds = read_table(torn, "rounds")["round"].to_pylist()
        assert rounds == list(range(1, 1 + len(rounds)))
        seen.add(len(rounds))
        writer = Writer(torn, resume_at=3)
        writer.add("rounds", {"round": 99})
        writer.flush()
        writer.close()
        assert read_table(torn, "rounds")["round"].to_pylist() == [*rounds, 99]
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_cut_and_go_on_gives_the_same_tables(tmp_path, kept):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    write_rounds(whole, range(1, 5)).finish()
    write_rounds(resumed, range(1, 5)).close()
    write_rounds(resumed, range(kept + 1, 5), resume_at=kept).finish()
    assert equal(whole, resumed)
    assert sorted(p.name for p in resumed.iterdir()) == sorted(f"{name}.parquet" for name in TABLES)


@pytest.mark.parametrize("left", [[], ["rounds"], ["rounds", "clients"], list(TABLES)])
def test_a_kill_while_compacting_is_mended(tmp_path, left):
    """Any mixture of streams and Parquet files, also with half-written temporary files, reads and resumes the same."""
    whole, killed, streams = tmp_path / "whole", tmp_path / "killed", tmp_path / "streams"
    write_rounds(whole, range(1, 5)).finish()
    write_rounds(killed, range(1, 5)).finish()
    write_rounds(streams, range(1, 5)).close()
    for name in left:
        if (streams / f"{name}.arrows").exists():
            (streams / f"{name}.arrows").rename(killed / f"{name}.arrows")
    (killed / "clients.parquet.new").write_bytes(b"PAR1")
    (killed / "rounds.arrows.new").write_bytes(b"")
    assert equal(whole, killed)
    write_rounds(killed, range(3, 5), resume_at=2).finish()
    assert equal(whole, killed)


def test_a_finished_run_is_not_touched(tmp_path):
    write_rounds(tmp_path, range(1, 4)).finish()
    before = stamps(tmp_path)
    with write_rounds(tmp_path, range(4, 4), resume_at=3) as writer:
        writer.flush()
        writer.finish()
    assert stamps(tmp_path) == before


def test_a_new_run_does_not_overwrite_an_old_one(tmp_path):
    write_rounds(tmp_path, range(1, 2)).close()
    with pytest.raises(StoreError, match="already holds the tables of a run; go on with --resume"):
        Writer(tmp_path)


def test_a_full_disk_is_one_sentence_and_leaves_whole_batches(tmp_path, monkeypatch):
    writer = write_rounds(tmp_path, range(1, 3))
    pwrite = os.pwrite
    room = iter([300])

    def full(file, data, at):  # takes 300 bytes, then no more
        n = next(room, 0)
        if not n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(file, data[:n], at)

    writer.add("rounds", {"round": 3})
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match=r"cannot write .*rounds.arrows: No space left on device; make room"):
            writer.flush()
    writer.close()
    with pa.ipc.open_stream(tmp_path / "rounds.arrows") as stream:  # not even a torn tail
        assert [batch["round"].to_pylist() for batch in stream] == [[1], [2]]


def test_a_full_disk_while_compacting_keeps_the_streams(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    def full(table, file):
        file.write(b"PAR1")
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    writer = write_rounds(tmp_path, range(1, 3))
    before = {name: read_table(tmp_path, name) for name in TABLES}
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(StoreError, match="No space left on device"):
            writer.finish()
    assert all(read_table(tmp_path, name).equals(before[name]) for name in TABLES)
    assert not list(tmp_path.glob("*.new"))
    writer.finish()
    assert all(read_table(tmp_path, name).equals(before[name]) for name in TABLES)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*file/run"):
        Writer(tmp_path / "file" / "run")


ENDLESS = """
import sys; from pathlib import Path
sys.path.insert(0, {tests!r})
from test_writer import write_rounds
write_rounds(Path({directory!r}), range(1, 10**9))
"""


def test_killed_at_a_random_moment(tmp_path):
    """SIGKILL while it writes as fast as it can, then resume two rounds earlier: the tables of an undisturbed run."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    program = ENDLESS.format(tests=str(Path(__file__).parent), directory=str(killed))
    process = subprocess.Popen([sys.executable, "-c", program])
    while not (killed / "clients.arrows").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    last = read_table(killed, "rounds")["round"].to_pylist()[-1]
    kept = max(last - 2, 0)
    write_rounds(killed, range(kept + 1, last + 1), resume_at=kept).finish()
    write_rounds(whole, range(1, last + 1)).finish()
    assert equal(whole, killed)


def test_a_table_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rounds.arrows").symlink_to(precious)
    with pytest.raises(StoreError, match=r"rounds\.arrows: Too many levels of symbolic links"):
        Stream(tmp_path / "run" / "rounds.arrows", TABLES["rounds"])
    assert precious.read_text() == "mine"
