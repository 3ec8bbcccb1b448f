"""Runs are read back from any folder; what is no run says so in one sentence."""

import json
import os
from dataclasses import astuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from motley.core.errors import DataError, StoreError
from motley.experiments.store import RunFolder
from motley.results import load as load_module
from motley.results import measures
from motley.results.load import citations, load, load_all
from motley.results.marks import pack_marks
from motley.results.schema import TABLES
from motley.results.writer import Writer, remove_streams
from tests.motley.results.fake import run as fake_run


def make(directory, seed=0, finished=True):
    with Writer(directory) as writer:
        writer.add(
            "evaluations",
            {"round": [1, 2], "scope": "global", "client": -1, "accuracy": [0.5, np.nan]},
        )
        if finished:
            writer.finish()
        else:
            writer.flush()
    if finished:
        remove_streams(directory)
    meta = {"name": "a run", "seed": seed, "config": {"cohort": 2}, "finished": finished}
    (directory / "run.json").write_text(json.dumps(meta))
    return directory


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_finished_or_not(tmp_path, finished):
    run = load(str(make(tmp_path, 3, finished)))
    assert (run.name, run.seed, run.finished, run.config) == ("a run", 3, finished, {"cohort": 2})
    assert {name: table.schema for name, table in run.tables.items()} == TABLES
    np.testing.assert_equal(run.column("evaluations", "accuracy"), [0.5, np.nan])
    assert run.column("evaluations", "scope").tolist() == ["global", "global"]


def test_all_runs_below_a_folder_by_path(tmp_path):
    for path, seed in (("b/x", 2), ("a", 1), ("b/c/d", 3)):
        make(tmp_path / path, seed)
    assert [run.seed for run in load_all(tmp_path)] == [1, 3, 2]
    assert [run.seed for run in load_all(tmp_path / "a")] == [1]


def test_columns_younger_than_a_run_are_null(tmp_path):
    make(tmp_path)
    old = pq.read_table(tmp_path / "evaluations.parquet").drop_columns(["accuracy", "selections"])
    pq.write_table(old, tmp_path / "evaluations.parquet")
    evaluations = load(tmp_path).tables["evaluations"]
    assert evaluations.schema.equals(TABLES["evaluations"])
    assert evaluations["accuracy"].to_pylist() == [None, None]


def test_a_run_whose_rounds_were_selections_is_refused(tmp_path):
    make(tmp_path)
    pq.write_table(pa.table({"round": [2, 5], "version": [1, 2]}), tmp_path / "rounds.parquet")
    with pytest.raises(DataError, match=r"rounds.parquet is of another version of Motley; the run"):
        load(tmp_path)


def test_no_such_folder_and_no_run(tmp_path):
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere"):
        load_all(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"is not a run: it has no run.json$"):
        load(tmp_path)
    with pytest.raises(
        StoreError, match=r"there are no runs in .*: no folder below it has a run.json"
    ):
        load_all(tmp_path)
    make(tmp_path / "a" / "b")
    with pytest.raises(StoreError, match="there are runs below it, name one of them"):
        load(tmp_path)


def test_damaged_files_are_named(tmp_path):
    make(tmp_path)
    (tmp_path / "rounds.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"rounds.parquet is damaged"):
        load(tmp_path)
    pq.write_table(pa.table({"round": ["one"]}), tmp_path / "rounds.parquet")
    with pytest.raises(DataError, match=r"rounds.parquet is not a table of a run"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"name": ')
    with pytest.raises(DataError, match=r"run.json cannot be read as JSON"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"citations": ["@misc{a}"]}')
    with pytest.raises(
        DataError,
        match=r"run.json holds '@misc\{a\}' under 'citations.0'; the run's record is damaged",
    ):
        load(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(DataError, match=r"run.json holds list"):
        load(tmp_path)


def test_each_paper_is_cited_once_in_order_of_keys(tmp_path):
    runs = [load(make(tmp_path / name)) for name in "ab"]
    for run, keys in zip(runs, (("zhao", "cho"), ("cho", "li")), strict=True):
        run.meta["citations"] = [{"key": key, "bibtex": f"@misc{{{key}}}"} for key in keys]
    assert citations(runs) == ["@misc{cho}", "@misc{li}", "@misc{zhao}"]
    assert citations([]) == []


def test_a_run_is_shown_in_one_line():
    rounds = pa.table({"round": [1, 2, 3]})
    assert (
        repr(fake_run(seed=3, rounds=rounds))
        == "<Run 'by hand': seed 3, 3 rounds, finished, in by-hand>"
    )


# -------------------------------------------------------------------- very many rows of evaluations


def evaluated(directory, finished, rounds=(0, 5, 10), clients=40):
    """A run whose clients were evaluated three times: client k's accuracy is k / 100 + round / 100;
    its mean is written, too."""
    with Writer(directory) as writer:
        for r in rounds:
            each = np.arange(clients) / 100 + r / 100
            writer.add(
                "evaluations",
                {"round": r, "time_s": r, "scope": "mean", "client": -1, "accuracy": each.mean()},
            )
            writer.add(
                "evaluations",
                {"round": r, "scope": "client", "client": np.arange(clients), "accuracy": each},
            )
            writer.flush()
        # after the end
        writer.add(
            "evaluations",
            {"round": 11, "time_s": 11, "scope": "mean", "client": -1, "accuracy": 0.25},
        )
        writer.flush()
        writer.add("federation", {"client": np.arange(clients), "num_train": 1})
        marks = writer.finish() if finished else writer.sync()
    if finished:
        remove_streams(directory)
    about = {
        "finished": finished,
        "config": {"split": {"test": "client"}},
        "tables": pack_marks(marks),
    }
    (directory / "run.json").write_text(json.dumps(about if finished else {**about, "tables": {}}))
    return directory


@pytest.mark.parametrize("finished", [True, False])
def test_what_reports_need_of_large_tables_is_read_block_by_block(tmp_path, monkeypatch, finished):
    whole = load(evaluated(tmp_path, finished))
    assert isinstance(whole.tables, dict)
    monkeypatch.setattr(load_module, "LARGE", 100)  # 124 rows are more
    monkeypatch.setattr(load_module, "BLOCK", 7)
    large = load(tmp_path)
    newest = large.newest("evaluations")
    # four rows of means, and 40 clients at the last evaluation that has clients, that of round 10
    assert newest.num_rows == 4 + 40
    assert newest.filter(pc.equal(newest["scope"], "client"))["round"].unique().to_pylist() == [10]
    assert "evaluations" not in large.tables._read  # nobody asked for all of it
    np.testing.assert_allclose(measures.client_metric(large), np.arange(40) / 100 + 0.1)
    np.testing.assert_array_equal(measures.client_metric(large), measures.client_metric(whole))
    np.testing.assert_array_equal(measures.curve(large).y, measures.curve(whole).y)
    np.testing.assert_array_equal(
        astuple(measures.ends_of(large)), astuple(measures.ends_of(whole))
    )
    assert large.tables["evaluations"].equals(whole.tables["evaluations"])
    assert list(large.tables) == list(TABLES)
    assert large.newest("federation").num_rows == 40
    with pytest.raises(KeyError):
        large.tables["nothing"]


def test_a_large_table_is_checked_when_its_run_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(load_module, "LARGE", 100)
    path = evaluated(tmp_path, True) / "evaluations.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"evaluations.parquet is damaged .*restore the file"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"evaluations.parquet cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name", ["run.json", "rounds.arrows", "checkpoints/checkpoint-00000001.mtly"]
)
@pytest.mark.parametrize("pipe", [True, False])
def test_a_named_pipe_or_a_device_is_refused_at_once(name, pipe, tmp_path):
    """Nobody writes into the pipe, and the device never ends: reading either would take for
    ever."""
    make(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if pipe else path.symlink_to("/dev/zero")
    with pytest.raises(
        (DataError, StoreError),
        match=f"{path.name} is no file" if name != "run.json" else "run.json",
    ):
        load(tmp_path)
    with pytest.raises(StoreError, match=f"{path.name} is no file"):
        RunFolder(tmp_path).read()
