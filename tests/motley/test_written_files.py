"""Whatever Motley writes, readers of others read: TOML by ``tomllib``, JSON by a parser that takes
nothing else, tables by pyarrow and, where it is installed, pandas."""

from __future__ import annotations

import csv
import html.parser
import importlib.util
import io
import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import motley
from motley.cli import call
from motley.core import codec
from motley.experiments.config import Experiment
from motley.results.schema import TABLES

ENDLESS: dict[str, Any] = {
    "name": "endless",
    "task": {"name": "tabular", "data": "iris"},
    "population": 5,
    "cohort": 2,
    "stop": {"rounds": 2},
    "split": {"validation": 0.25},
    "device": "uniform",
    "network": "uniform",
    "evaluate": {"every": 1},
    # no deadline, which is infinite
    "synchrony": {"name": "deadline", "over_select": 1.3},
}


def strict(text: str) -> Any:
    """Return what a parser reads that takes only what RFC 8259 allows."""

    def refused(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refused)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run and of a report."""
    out = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("motley.experiments.store.source_commit", lambda: None)
        motley.run(ENDLESS, out=out / "run")
        motley.report(motley.load_all(out / "run"), out / "page" / "report.html")
    return out


class _Axes(html.parser.HTMLParser):
    """Collects the JSON that a page's script reads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name == "data-axes"]


def _page(data: bytes) -> Any:
    axes = _Axes()
    axes.feed(data.decode())
    return [strict(text) for text in axes.found]


def _csv(data: bytes) -> None:
    rows = list(csv.reader(io.StringIO(data.decode())))
    assert len({len(row) for row in rows}) == 1
    if importlib.util.find_spec("pandas") is not None:
        import pandas

        assert len(pandas.read_csv(io.BytesIO(data))) == len(rows) - 1


def _parquet(data: bytes) -> None:
    rows = pq.read_table(io.BytesIO(data))
    if importlib.util.find_spec("pandas") is not None:
        import pandas

        assert len(pandas.read_parquet(io.BytesIO(data), engine="pyarrow")) == rows.num_rows


READERS: dict[str, Callable[[bytes], Any]] = {
    ".toml": lambda data: tomllib.loads(data.decode()),
    ".json": lambda data: strict(data.decode()),
    ".log": lambda data: [strict(line) for line in data.decode().splitlines()],
    ".csv": _csv,
    ".parquet": _parquet,
    ".html": _page,
    ".svg": lambda data: ElementTree.fromstring(data.decode()),
    ".mtly": codec.decode,
}


def suffixes_read(folder: Path) -> set[str]:
    """Read every file in and below a folder; return the suffixes that there are."""
    read = set()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".safetensors":
            assert load_file(path)
        else:
            READERS[path.suffix](path.read_bytes())
        read.add(path.suffix)
    return read


def test_every_file_is_read_by_a_reader_of_others(folder: Path) -> None:
    assert suffixes_read(folder) >= {".json", ".parquet", ".html", ".safetensors"}


def test_the_record_of_a_run_gives_the_infinite_deadline_back(folder: Path) -> None:
    record = strict((folder / "run" / "run.json").read_text())
    assert record["config"]["synchrony"]["seconds"] is None
    assert record["not_finite"] == {"/config/synchrony/seconds": "Infinity"}
    run = motley.load(folder / "run")
    assert run.config["synchrony"]["seconds"] == math.inf
    assert run.meta["run_id"] == record["run_id"] == Experiment(**ENDLESS).run_id()
    # nothing is run again, and a longer run goes on
    assert motley.run(ENDLESS, out=folder / "run").meta == run.meta
    longer = motley.run({**ENDLESS, "stop": {"rounds": 3}}, out=folder / "run", resume=True)
    assert longer.column("rounds", "round").tolist() == [1, 2, 3]


def test_every_table_of_a_run_is_there_with_its_columns(folder: Path) -> None:
    for table, schema in TABLES.items():
        assert pq.read_schema(folder / "run" / f"{table}.parquet").names == schema.names


@pytest.mark.parametrize("kind", ["selectors", "synchrony", "algorithms", "device", "network"])
def test_lists_of_components_are_strict_json(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", kind, "--json"]) == 0
    rows = strict(capsys.readouterr().out)
    assert all(row["name"] for row in rows)
    assert call(["list", kind]) == 0
    assert ("default inf\n" in capsys.readouterr().out) == (kind == "synchrony")
    endless = [row["not_finite"] for row in rows if "not_finite" in row]
    assert endless == ([{"/options/0/default": "Infinity"}] if kind == "synchrony" else [])
