"""Load runs: finished runs from Parquet, running or killed ones from their streams.

A run is a folder with ``run.json``. Its tables are Arrow tables and go anywhere in one line (those
of many runs at once with :func:`motley.results.labels.frame`)::

    run = load("runs/who-to-ask/3f9a")
    run.tables["evaluations"].to_pandas()                           # pandas
    polars.from_arrow(run.tables["evaluations"])                    # Polars
    evaluations = run.tables["evaluations"]
    duckdb.sql("select round, accuracy from evaluations")           # DuckDB, by name
    duckdb.sql("from 'runs/**/evaluations.parquet'")                # every finished run at once
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.client_names import name_of
from motley.core.errors import ConfigError, DataError, StoreError, suggest
from motley.core.files import irregular, is_folder, no_file, private_files, user_path
from motley.results.comparison_file import in_grid_order
from motley.results.journal import read_journal
from motley.results.marks import Mark, checksum_of, disagreement, unpack_marks
from motley.results.record import read_record
from motley.results.schema import TABLES
from motley.results.stream import read_stream, read_unmarked, stream_blocks

LARGE = 2_000_000
"""A table of evaluations with more rows is read when it is asked for; what reports need of it is
read block by block."""
_FEW = 100_000
"""Rows up to which threads cost more than they save."""
BLOCK = 65_536
"""Rows of a Parquet file that are read at a time."""
_BY_CLIENT = ("client", "shared_client", "prototype_client", "validation_client")
"""Scopes of evaluations with a row per client."""


@dataclass(frozen=True, repr=False)
class Run:
    """One run as it is stored on disk.

    Parameters
    ----------
    directory: folder of the run.
    meta: ``run.json``: name, run_id, seed, config, numerics, versions, citations, finished, task,
    parameters, command; of a cluster its ``nodes``; ``standstill`` of one that nothing moved any
    more.
    tables: every table of `motley.results.schema.TABLES`, empty when nothing was written.
    """

    directory: Path
    meta: Mapping[str, Any]
    tables: Mapping[str, pa.Table]

    def __repr__(self) -> str:
        rounds = self.tables["rounds"].num_rows
        state = "finished" if self.finished else "not finished"
        state = state if self.standstill is None else self.standstill
        return (
            f"<{type(self).__name__} {self.name!r}: seed {self.seed}, {rounds} rounds, "
            f"{state}, in {self.directory}>"
        )

    @property
    def name(self) -> str:
        """The experiment's name, or the folder's."""
        return str(self.meta.get("name") or self.directory.name)

    @property
    def seed(self) -> int:
        """The run's seed (0 where none is recorded)."""
        return int(self.meta.get("seed", 0))

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved experiment."""
        config: Mapping[str, Any] = self.meta.get("config", {})
        return config

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.meta.get("finished", False))

    @property
    def standstill(self) -> str | None:
        """The sentence that says why the run ended without having reached a limit of ``stop``; None
        where it reached one."""
        sentence = self.meta.get("standstill")
        return None if sentence is None else str(sentence)

    @property
    def control(self) -> str:
        """What a control is, in words: a run of the reference with another method's setting, which
        is no method of its own; "" for every other run."""
        return str(self.meta.get("control") or "")

    @property
    def deployed(self) -> bool:
        """Whether its clients were real: its seconds are then those of the wall clock, not virtual
        ones."""
        task = self.meta.get("task") or {}
        return "deployment" in (task.get("notes") or {})

    @property
    def client_names(self) -> Mapping[int, str]:
        """The names that the clients came with, by id: those of their data, or of a deployment's
        file of clients; empty without."""
        return {int(client): str(name) for client, name in (self.meta.get("clients") or {}).items()}

    def client_name(self, client: int) -> str:
        """Return a client in words: its name where it has one, else its number."""
        named = (self.meta.get("clients") or {}).get(str(client))
        return name_of(client, {} if named is None else {client: str(named)})

    def newest(self, table: str) -> pa.Table:
        """Return ``evaluations`` or ``metrics`` without the rows per client of evaluations before
        the last that has some, where the table is large; else the whole table."""
        tables = self.tables
        return tables.newest(table) if isinstance(tables, LargeTables) else tables[table]

    def column(self, table: str, name: str) -> NDArray[Any]:
        """A column as NumPy [rows]; nulls become NaN in numbers and None in strings.

        Raises
        ------
        ConfigError: there is no such table, or it has no such column.
        """
        if table not in TABLES:
            raise ConfigError(
                f"there is no table {table!r}{suggest(table, TABLES)}; there are: "
                f"{', '.join(TABLES)}"
            )
        columns = TABLES[table].names
        if name not in columns:
            tables = [
                name_of_table for name_of_table, schema in TABLES.items() if name in schema.names
            ]
            if tables:
                hint = f" ({' and '.join(tables)} {'has' if len(tables) == 1 else 'have'} it)"
            else:
                hint = suggest(name, columns)
            raise ConfigError(
                f"{table} has no column {name!r}{hint}; its columns: {', '.join(columns)}"
            )
        return np.asarray(self.tables[table][name].to_numpy())


class LargeTables(Mapping[str, pa.Table]):
    """The tables of a run with very many rows: those are read when they are asked for.

    Parameters
    ----------
    directory: of the run.
    marks: what counts of its files, by table.
    small: the tables that are in memory.
    """

    def __init__(
        self, directory: Path, marks: Mapping[str, Mark], small: Mapping[str, pa.Table]
    ) -> None:
        self.directory = directory
        self.marks = marks
        self._read = dict(small)
        self._newest: dict[str, pa.Table] = {}

    @override
    def __getitem__(self, table: str) -> pa.Table:
        if table not in self._read and table in TABLES:
            self._read[table] = read_table(self.directory, table, self.marks)
        return self._read[table]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    @override
    def __len__(self) -> int:
        return len(TABLES)

    def newest(self, table: str) -> pa.Table:
        """Return a table as :meth:`Run.newest` does; at no time are the clients' rows of more than
        two evaluations in memory."""
        if table in self._read:
            return self._read[table]
        if table not in self._newest:
            blocks = read_blocks(self.directory, table, self.marks)
            self._newest[table] = pa.Table.from_batches(_newest_rows(blocks), TABLES[table])
        return self._newest[table]


def _newest_rows(blocks: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows that stand for all clients, and the rows per client of the last round that
    has some."""
    common: list[pa.RecordBatch] = []
    clients: list[pa.RecordBatch] = []
    last = -1
    for block in blocks:
        by_client = pc.is_in(block["scope"], pa.array(_BY_CLIENT))
        common.append(block.filter(pc.invert(by_client)))
        rows = block.filter(by_client)
        if rows.num_rows and (newest := pc.max(rows["round"]).as_py()) > last:
            clients = []
            last = newest
        clients.append(rows.filter(pc.equal(rows["round"], last)))
    return [block for block in (*common, *clients) if block.num_rows]


def read_table(directory: Path, table: str, marks: Mapping[str, Mark] | None = None) -> pa.Table:
    """Return one table of a run in the columns of today's schema; absent means empty.

    Parameters
    ----------
    marks: what counts of the files, by table; those of the journal by default. A run of an earlier
    version has neither: of its files a stream takes precedence over Parquet.

    Raises
    ------
    DataError: the file is damaged, shorter than what was written, or not such a table.
    """
    marks = read_journal(directory) if marks is None else marks
    path = _path(directory, table, marks)
    return (
        TABLES[table].empty_table() if path is None else _conform(_stored(path, table, marks), path)
    )


def _path(directory: Path, table: str, marks: Mapping[str, Mark] | None) -> Path | None:
    """Return the file that holds a table; None where nothing was written."""
    if marks is not None:
        return directory / marks[table].file if table in marks else None
    paths = (directory / f"{table}.arrows", directory / f"{table}.parquet")
    return next((path for path in paths if path.exists()), None)


def _stored(path: Path, table: str, marks: Mapping[str, Mark] | None) -> pa.Table:
    """Return the rows of a table in the columns of its file."""
    streamed = path.suffix == ".arrows"
    mark = None if marks is None else marks[table]
    if not streamed:
        return _read_parquet(path, mark)
    if mark is None:
        return read_unmarked(path, TABLES[table])
    return read_stream(path.parent, mark, TABLES[table])


def read_blocks(directory: Path, table: str, marks: Mapping[str, Mark]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one table of a run in the columns of today's schema, block by block; the
    file is checked before the first.

    Raises
    ------
    DataError: the file is damaged, shorter than what was written, or not such a table.
    """
    path = _path(directory, table, marks)
    if path is None:
        return
    streamed = path.name == f"{table}.arrows"
    for block in (
        stream_blocks(directory, marks[table]) if streamed else _parquet_blocks(path, marks[table])
    ):
        yield from _conform(pa.Table.from_batches([block]), path).to_batches()


def load(directory: str | Path) -> Run:
    """Return the run in ``directory``; it may still be running, or have been killed while writing.

    Raises
    ------
    StoreError: there is no run there. DataError: its files are damaged.
    """
    directory = user_path(directory)
    if not is_folder(directory):
        raise StoreError(
            f"there is no folder {directory}; give the folder of a run (it holds run.json)"
        )
    record = directory / "run.json"
    if no_file(record) == "does not exist":
        if next(directory.glob("*/**/run.json"), None):
            below = "; there are runs below it, name one of them"
        else:
            below = ""
        raise StoreError(f"{directory} is not a run: it has no run.json{below}")
    strange = irregular(directory)
    if strange is not None:
        raise DataError(f"{strange} is no file, and no run writes such a thing; remove it")
    meta = read_record(record)
    try:
        return Run(directory, meta, _tables(directory, meta))
    except DataError:
        again = read_record(record)  # the run may have come to its end in between
        if again.get("finished") == meta.get("finished"):
            raise
        return Run(directory, again, _tables(directory, again))


def _tables(directory: Path, meta: Mapping[str, Any]) -> Mapping[str, pa.Table]:
    """Return every table; of a finished run, what its record says was written."""
    finished = meta.get("finished") and "tables" in meta
    marks = unpack_marks(meta["tables"]) if finished else read_journal(directory)
    large = [name for name in TABLES if marks and name in marks and marks[name].rows > LARGE]
    small = {name: read_table(directory, name, marks) for name in TABLES if name not in large}
    if marks is None or not large:
        return small
    reason = disagreement(directory, {name: marks[name] for name in large})
    if reason is not None:
        raise DataError(f"{reason}; restore the file, or make the run again")
    return LargeTables(directory, marks, small)


def load_all(directory: str | Path) -> list[Run]:
    """Return every run in and below ``directory``, by path; those of a comparison in its grid's
    order.

    Raises
    ------
    StoreError: there is none. DataError: the files of one are damaged.
    """
    directory = user_path(directory)
    if not is_folder(directory):
        raise StoreError(f"there is no folder {directory}; give a folder with runs in it")
    records = sorted(directory.rglob("run.json"))
    if not records:
        raise StoreError(f"there are no runs in {directory}: no folder below it has a run.json")
    return [load(folder) for folder in in_grid_order(path.parent for path in records)]


def citations(runs: Iterable[Run]) -> list[str]:
    """Return the BibTeX of the papers that the runs used, each once, in order of their keys."""
    papers = {
        paper["key"]: paper["bibtex"] for run in runs for paper in run.meta.get("citations", [])
    }
    return [papers[key] for key in sorted(papers)]


def _read_parquet(path: Path, mark: Mark | None = None) -> pa.Table:
    import pyarrow.parquet as pq  # 40 ms, and living runs do without

    reason = None if mark is None else disagreement(path.parent, {"": mark})
    if reason is not None:
        raise DataError(f"{reason}; restore the file, or make the run again")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            rows = file.read(use_threads=file.metadata.num_rows > _FEW)
        rows.validate(full=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); the run must be made again") from error
    return rows


def _parquet_blocks(path: Path, mark: Mark) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    checksum_of(path.parent, mark)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for block in file.iter_batches(BLOCK):
                block.validate(full=True)
                yield block
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({error}); the run must be made again") from error


def _conform(rows: pa.Table, path: Path) -> pa.Table:
    """The columns of today's schema, in its order; those a run lacks are null.

    Raises
    ------
    DataError: it is no table of a run, or of one whose rounds were selections, as they once were.
    """
    schema = TABLES[path.stem]
    if path.stem == "rounds" and "version" in rows.column_names:
        raise DataError(f"{path} is of another version of Motley; the run must be made again")
    try:
        if rows.schema.equals(schema):
            return rows
        columns = [
            rows[f.name] if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
            for f in schema
        ]
        return pa.table(
            [pa.chunked_array([c]) if isinstance(c, pa.Array) else c for c in columns],
            names=schema.names,
        ).cast(schema)
    except (pa.ArrowException, KeyError, ValueError) as error:
        # also a name twice, and names that are no text
        raise DataError(f"{path} is not a table of a run ({error})") from error


@contextmanager
def as_private_as(runs: Sequence[Run]) -> Iterator[None]:
    """Within the block, files are for this process's user alone where the record of one of the runs
    is, as a deployment's is."""
    with private_files() if any(map(_private, runs)) else nullcontext():
        yield


def _private(run: Run) -> bool:
    try:
        return not (run.directory / "run.json").stat().st_mode & 0o077
    except OSError:  # a run that lies in no folder
        return False
