"""The writer survives kills, full disks and resumption; the reader never chokes."""

import dataclasses
import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motley.core.errors import ContractError, DataError, StoreError, UserError
from motley.results import marks as marks_module
from motley.results import writer as writer_module
from motley.results.journal import read_journal
from motley.results.load import read_table
from motley.results.marks import Mark, checked, disagreement, mark_of, pack_marks
from motley.results.schema import TABLES
from motley.results.stream import Stream
from motley.results.writer import Writer, remove_streams, to_batch

Marks = dict[str, Mark]


def write_rounds(
    directory: Path, rounds: range, marks: Marks | None = None, at: dict[int, Marks] | None = None
) -> Writer:
    """Write some rows per round; ``at`` takes the marks after every round."""
    writer = Writer(directory, marks)
    if not marks:
        writer.add(
            "federation",
            {"client": np.arange(3), "num_train": 5, "labels": np.arange(6).reshape(3, 2)},
        )
    for r in rounds:
        writer.add("rounds", {"round": r, "time_s": 1.5 * r, "notes": "{}"})
        writer.add(
            "clients",
            {
                "round": r,
                "client": np.array([0, 2]),
                "outcome": ["accepted", "late"],
                "loss": [0.5, np.nan],
            },
        )
        writer.flush()
        if at is not None:
            at[r] = writer.sync()
    return writer


def finish(writer: Writer) -> Marks:
    """What a run does at its end; between the two its record says that it is finished."""
    marks = writer.finish()
    remove_streams(writer.directory)
    return marks


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
    assert rounds["selections"].to_pylist() == [None, None]  # not given
    clients = read_table(tmp_path, "clients")
    assert clients["round"].to_pylist() == [1, 1, 2, 2]  # the scalar is repeated
    assert clients["loss"].to_pylist() == [0.5, None] * 2  # NaN is null
    assert read_table(tmp_path, "federation")["labels"].to_pylist() == [[0, 1], [2, 3], [4, 5]]
    assert read_table(tmp_path, "timings").num_rows == 0


def test_a_table_is_compacted_in_row_groups_of_equal_size(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "ROW_GROUP", 4)
    writer = write_rounds(tmp_path, range(1, 6))  # two rows of clients in each of five rounds
    rows = read_table(tmp_path, "clients")
    finish(writer)
    with pq.ParquetFile(tmp_path / "clients.parquet") as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert groups == [4, 4, 2]
    assert read_table(tmp_path, "clients").equals(rows)
    assert pq.read_table(tmp_path / "timings.parquet").num_rows == 0


def test_batches_of_many_rows_are_compressed_and_read_back(tmp_path):
    """A stream holds both kinds; what is dropped, torn or compacted of it is as without."""
    rows = 2**14
    columns = {"client": np.arange(rows), "num_train": 3, "labels": np.ones((rows, 4), np.int64)}
    writer = Writer(tmp_path / "many")
    writer.add("federation", columns)
    writer.add("clients", {"round": 1, "client": np.arange(rows), "loss": np.arange(rows) / 3})
    writer.flush()
    writer.add("clients", {"round": 2, "client": [4, 5]})
    writer.flush()
    size = (tmp_path / "many" / "federation.arrows").stat().st_size
    assert size < 0.3 * sum(column.nbytes for column in to_batch("federation", columns).columns)
    assert read_table(tmp_path / "many", "federation")["client"].to_pylist() == [*range(rows)]
    with pa.ipc.open_stream(tmp_path / "many" / "clients.arrows") as stream:
        assert [batch.num_rows for batch in stream] == [rows, 2]
    writer.forget("clients", 2)
    before = tables(tmp_path / "many")
    assert before["clients"]["loss"].to_pylist() == (np.arange(rows) / 3).tolist()
    finish(writer)
    assert tables(tmp_path / "many") == before


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


@pytest.mark.parametrize(
    "columns",
    [
        {"round": 3, "time_s": 0.5, "accepted": None, "notes": "{}"},
        {"round": np.int64(3), "time_s": np.float64(np.nan), "notes": None},
        {"round": [1, 2], "time_s": np.array([np.nan, 2.0]), "accepted": np.array([1, 2])},
        {"round": [1.0, 2.0], "time_s": np.array([1, 2]), "total_bits": 2**53},
        {"round": [1, None], "time_s": np.array([1, 2], np.float32), "notes": ["a", None]},
    ],
)
def test_few_rows_are_what_their_columns_are(columns, monkeypatch):
    few = to_batch("rounds", columns)
    monkeypatch.setattr(writer_module, "FEW_ROWS", 0)
    assert few.equals(to_batch("rounds", columns))
    assert few.schema == TABLES["rounds"]


def test_no_rows_write_nothing(tmp_path):
    writer = Writer(tmp_path)
    writer.add("clients", {"round": 1, "client": np.empty(0, int)})
    writer.flush()
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_rows_is_a_whole_file(tmp_path):
    """What is kept of one from run to run is what a writer of Parquet makes of no rows."""
    marks = Writer(tmp_path).finish()
    for name, schema in TABLES.items():
        again = tmp_path / "again.parquet"
        with pq.ParquetWriter(
            again, schema, write_page_checksum=True, **writer_module._encodings(name)
        ) as file:
            file.write_table(schema.empty_table())
        assert (tmp_path / f"{name}.parquet").read_bytes() == again.read_bytes()
        assert marks[name].rows == 0
        assert read_table(tmp_path, name, marks).equals(schema.empty_table())


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


def test_a_stream_torn_anywhere_is_refused_and_its_tail_does_not_count(tmp_path):
    """Every length of a stream: shorter than its mark it is refused; what comes after its mark is
    neither read nor kept."""
    at: dict[int, Marks] = {}
    write_rounds(tmp_path, range(1, 3), at=at).close()
    path = tmp_path / "rounds.arrows"
    journal = (tmp_path / "tables.journal").read_bytes()
    write_rounds(tmp_path, range(3, 4), at[2]).close()
    data = path.read_bytes()
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        (tmp_path / "tables.journal").write_bytes(journal)  # a kill between a batch and its record
        if length < at[2]["rounds"].bytes:
            for fails in (lambda: read_table(tmp_path, "rounds"), lambda: Writer(tmp_path, at[2])):
                with pytest.raises(
                    UserError,
                    match=rf"rounds.arrows has {length:,} bytes, and .* bytes with 2 rows were "
                    rf"written",
                ):
                    fails()
            continue
        assert read_table(tmp_path, "rounds")["round"].to_pylist() == [1, 2]
        writer = Writer(tmp_path, at[2])
        writer.add("rounds", {"round": 99})
        writer.flush()
        writer.close()
        assert read_table(tmp_path, "rounds")["round"].to_pylist() == [1, 2, 99]


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_cut_and_go_on_gives_the_same_tables(tmp_path, kept):
    whole = tmp_path / "whole"
    resumed = tmp_path / "resumed"
    finish(write_rounds(whole, range(1, 5)))
    at: dict[int, Marks] = {0: {}}
    write_rounds(resumed, range(1, 5), at=at).close()
    finish(write_rounds(resumed, range(kept + 1, 5), at[kept]))
    assert equal(whole, resumed)
    assert sorted(p.name for p in resumed.iterdir()) == sorted(f"{name}.parquet" for name in TABLES)


@pytest.mark.parametrize("left", [[], ["rounds"], ["rounds", "clients"], list(TABLES)])
def test_a_kill_while_compacting_is_mended(tmp_path, left):
    """Any number of Parquet files beside the streams, also with half-written temporary files, reads
    and resumes the same."""
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    finish(write_rounds(whole, range(1, 5)))
    at: dict[int, Marks] = {}
    write_rounds(killed, range(1, 5), at=at).finish()
    for name in set(TABLES) - set(left):
        (killed / f"{name}.parquet").unlink()
    (killed / "clients.parquet.new").write_bytes(b"PAR1")
    assert equal(whole, killed)
    finish(write_rounds(killed, range(3, 5), at[2]))
    assert equal(whole, killed)


def test_a_finished_run_goes_on_from_its_parquet_files(tmp_path):
    whole = tmp_path / "whole"
    longer = tmp_path / "longer"
    finish(write_rounds(whole, range(1, 7)))
    marks = finish(write_rounds(longer, range(1, 4)))
    at: dict[int, Marks] = {}
    writer = write_rounds(longer, range(4, 6), marks, at)
    assert (longer / "rounds.parquet").exists()  # its checkpoint still counts these
    writer.close()
    finish(write_rounds(longer, range(5, 7), at[4]))
    assert equal(whole, longer)


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_goes_on_from_the_marks_of_earlier_versions(tmp_path, finished):
    """Their digests are blake2b hashes."""
    whole = tmp_path / "whole"
    older = tmp_path / "older"
    finish(write_rounds(whole, range(1, 6)))
    at: dict[int, Marks] = {}
    writer = write_rounds(older, range(1, 4), at=at)
    marks = finish(writer) if finished else at[3]
    writer.close()
    earlier = {
        table: dataclasses.replace(
            mark,
            digest=hashlib.blake2b(
                (older / mark.file).read_bytes()[: mark.bytes], digest_size=8
            ).hexdigest(),
        )
        for table, mark in marks.items()
    }
    assert disagreement(older, earlier) is None
    finish(write_rounds(older, range(4, 6), earlier))
    assert equal(whole, older)
    damaged = {"rounds": dataclasses.replace(mark_of(older / "rounds.parquet", 5), digest="0" * 16)}
    assert "is damaged" in str(disagreement(older, damaged))


def test_one_round_of_a_table_is_forgotten(tmp_path):
    """Up to the first row that goes the stream stays as it is, so the marks of earlier rounds still
    agree with it."""
    at: dict[int, Marks] = {}
    writer = write_rounds(tmp_path, range(1, 4), at=at)
    writer.add("rounds", {"round": [4, 3]})
    writer.flush()
    writer.forget("rounds", 3)
    writer.forget("evaluations", 3)  # nothing was written there
    assert read_table(tmp_path, "rounds")["round"].to_pylist() == [1, 2, 4]
    marks = writer.sync()
    assert marks["rounds"].rows == 3
    writer.close()
    Writer(tmp_path, marks).close()
    assert disagreement(tmp_path, at[2]) is None
    assert (
        disagreement(tmp_path, at[3])
        == f"{tmp_path}/rounds.arrows is damaged (the digest of its 3 rows differs)"
    )


@pytest.mark.parametrize("harm", ["delete", "empty", "shorten", "another", "flip"])
def test_tables_that_do_not_agree_with_their_marks_are_refused(tmp_path, harm):
    at: dict[int, Marks] = {}
    write_rounds(tmp_path / "a", range(1, 4), at=at).close()
    path = tmp_path / "a" / "clients.arrows"
    data = (tmp_path / "a" / "clients.arrows").read_bytes()
    other = Writer(tmp_path / "b")
    other.add("clients", {"round": [7] * 40, "client": 3})
    other.flush()
    if harm == "delete":
        path.unlink()
    else:
        flipped = bytearray(data)
        flipped[at[3]["clients"].bytes // 2] ^= 4
        harmed = {
            "empty": b"",
            "shorten": data[:-1],
            "another": (tmp_path / "b" / path.name).read_bytes(),
            "flip": flipped,
        }
        path.write_bytes(harmed[harm])
    with pytest.raises(
        DataError, match=r"clients\.arrows (cannot be read|has .* bytes, and|is damaged)"
    ):
        read_table(tmp_path / "a", "clients")
    before = stamps(tmp_path / "a")
    with pytest.raises(
        StoreError,
        match=r"clients\.arrows .*; restore the file, or remove the folder and begin again",
    ):
        Writer(tmp_path / "a", at[3])
    assert stamps(tmp_path / "a") == before


def test_rows_that_come_after_a_mark_may_be_damaged(tmp_path):
    at: dict[int, Marks] = {}
    write_rounds(tmp_path / "a", range(1, 4), at=at).close()
    path = tmp_path / "a" / "rounds.arrows"
    path.write_bytes(path.read_bytes()[: at[2]["rounds"].bytes] + bytes(500))
    finish(write_rounds(tmp_path / "a", range(3, 5), at[2]))
    finish(write_rounds(tmp_path / "whole", range(1, 5)))
    assert equal(tmp_path / "a", tmp_path / "whole")


def test_streams_of_earlier_versions_are_read_up_to_their_last_whole_batch(tmp_path):
    write_rounds(tmp_path, range(1, 4)).close()
    (tmp_path / "tables.journal").unlink()
    path = tmp_path / "rounds.arrows"
    assert read_table(tmp_path, "rounds")["round"].to_pylist() == [1, 2, 3]
    path.write_bytes(path.read_bytes()[:-9])
    assert read_table(tmp_path, "rounds")["round"].to_pylist() == [1, 2]


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
        with pytest.raises(
            StoreError, match=r"cannot write .*rounds.arrows: No space left on device; make room"
        ):
            writer.flush()
    writer.close()
    with pa.ipc.open_stream(tmp_path / "rounds.arrows") as stream:  # not even a torn tail
        assert [batch["round"].to_pylist() for batch in stream] == [[1], [2]]


def test_a_full_disk_while_compacting_keeps_the_streams(tmp_path, monkeypatch):
    def full(writer, table, row_group_size):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    writer = write_rounds(tmp_path, range(1, 3))
    before = {name: read_table(tmp_path, name) for name in TABLES}
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", full)
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
    """SIGKILL while it writes as fast as it can, then resume after its last record: the tables of
    an undisturbed run."""
    killed = tmp_path / "killed"
    whole = tmp_path / "whole"
    program = ENDLESS.format(tests=str(Path(__file__).parent), directory=str(killed))
    process = subprocess.Popen([sys.executable, "-c", program])
    while not (killed / "clients.arrows").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    marks = read_journal(killed)
    last = read_table(killed, "rounds")["round"].to_pylist()[-1]
    assert marks is not None
    assert marks["rounds"].rows == last
    finish(write_rounds(killed, range(last + 1, last + 3), marks))
    finish(write_rounds(whole, range(1, last + 3)))
    assert equal(whole, killed)


def test_a_table_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rounds.arrows").symlink_to(precious)
    with pytest.raises(StoreError, match=r"rounds\.arrows: Too many levels of symbolic links"):
        Stream(tmp_path / "run" / "rounds.arrows", TABLES["rounds"])
    assert precious.read_text() == "mine"


def test_a_file_that_stays_as_it_is_is_hashed_once(tmp_path, monkeypatch):
    file = tmp_path / "models.bin"
    file.write_bytes(b"12345")
    record = {"files": pack_marks({file.name: mark_of(file, 0)})}
    hashed = []
    whole = marks_module.checksum_of
    monkeypatch.setattr(marks_module, "checksum_of", lambda *args: hashed.append(1) or whole(*args))
    assert [checked(tmp_path, record, file.name) for _ in range(3)] == [file] * 3
    assert len(hashed) == 1
    file.write_bytes(b"12345+")
    with pytest.raises(DataError, match=r"models.bin is longer than what was written; restore"):
        checked(tmp_path, record, file.name)
    file.write_bytes(b"54321")
    with pytest.raises(DataError, match=r"models.bin is damaged .*; restore the file"):
        checked(tmp_path, record, file.name)
    file.unlink()
    with pytest.raises(DataError, match=r"models.bin cannot be read \(No such file or directory\)"):
        checked(tmp_path, record, file.name)


def test_more_values_of_lists_than_one_array_can_hold(tmp_path, monkeypatch):
    """Offsets of lists are 32-bit: 7 clients with 3 classes each go in parts of 3 clients where 10
    values are the most; none of them wraps around."""
    monkeypatch.setattr(writer_module, "MOST_VALUES", 10)
    labels = np.arange(21).reshape(7, 3)
    with pytest.raises(ContractError, match="21 values; an array of lists has 10"):
        to_batch("federation", {"labels": labels})
    with Writer(tmp_path) as written:
        written.add("federation", {"client": np.arange(7), "labels": labels, "held_out": 0})
        written.add("federation", {"client": [7], "labels": [None], "held_out": 1})
        written.flush()
        assert stream_rows(tmp_path / "federation.arrows") == [3, 3, 1, 1]
        written.finish()
    rows = read_table(tmp_path, "federation")
    assert rows["client"].to_pylist() == [*range(8)]
    assert rows["labels"].to_pylist() == [*labels.tolist(), None]
    assert rows["held_out"].to_pylist() == 7 * [0] + [1]


def stream_rows(path):
    with pa.ipc.open_stream(path) as stream:
        return [batch.num_rows for batch in stream]
