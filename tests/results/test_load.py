"""Runs are read back from any folder; what is no run says so in one sentence."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motley.core.errors import DataError, StoreError
from motley.results.load import citations, load, load_all
from motley.results.schema import TABLES
from motley.results.writer import Writer, remove_streams
from tests.results.fake import run as fake_run


def make(directory, seed=0, finished=True):
    with Writer(directory) as writer:
        writer.add("evaluations", {"round": [1, 2], "scope": "global", "client": -1, "accuracy": [0.5, np.nan]})
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
    old = pq.read_table(tmp_path / "evaluations.parquet").drop_columns(["accuracy", "version"])
    pq.write_table(old, tmp_path / "evaluations.parquet")
    evaluations = load(tmp_path).tables["evaluations"]
    assert evaluations.schema.equals(TABLES["evaluations"])
    assert evaluations["accuracy"].to_pylist() == [None, None]


def test_no_such_folder_and_no_run(tmp_path):
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere"):
        load_all(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"is not a run: it has no run.json$"):
        load(tmp_path)
    with pytest.raises(StoreError, match=r"there are no runs in .*: no folder below it has a run.json"):
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
    with pytest.raises(DataError, match=r"run.json holds '@misc\{a\}' under 'citations', not a key and its bibtex"):
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
    assert repr(fake_run(seed=3, rounds=rounds)) == "<Run 'by hand': seed 3, 3 rounds, finished, in by-hand>"
