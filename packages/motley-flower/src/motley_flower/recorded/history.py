"""What a strategy's loop was given in each round, in a file to which rounds are only appended, so
that a round costs the same however many were before it.

The file is an Arrow stream; a checkpoint holds its mark, and a run that goes on cuts it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from motley.core import codec
from motley.results.marks import Mark
from motley.results.stream import Stream, read_stream

FILE = "history.arrows"
_SCHEMA = pa.schema([("kind", pa.string()), ("round", pa.int64()), ("value", pa.binary())])


class HistoryEntry(NamedTuple):
    """One value of a round.

    Parameters
    ----------
    kind: metrics of the training, of the clients' and of the server's evaluation, or an exchange
    beside training.
    value: plain values, see :func:`~motley_flower.recorded.plain_values.pack`.
    """

    kind: Literal["training", "clients", "server", "exchange"]
    round: int
    value: Any


class History:
    """The history of one run.

    Parameters
    ----------
    folder: of the run.
    mark: what counts of the file, which the first new entry cuts there; None: nothing does.
    """

    def __init__(self, folder: Path, mark: Mark | None) -> None:
        self._folder = folder
        self._mark = mark
        self._stream: Stream | None = None
        self._new: list[HistoryEntry] = []

    def entries(self) -> list[HistoryEntry]:
        """Return the entries on the disk, oldest first.

        Raises
        ------
        DataError: the file does not agree with the mark.
        """
        if self._mark is None:
            return []
        table = read_stream(self._folder, self._mark, _SCHEMA)
        return [
            HistoryEntry(row["kind"], row["round"], codec.decode(row["value"]))
            for row in table.to_pylist()
        ]

    def add(self, entry: HistoryEntry) -> None:
        """Collect an entry, which :meth:`sync` writes."""
        self._new.append(entry)

    def sync(self) -> dict[str, Mark]:
        """Make all entries durable; return the file's mark by its name, nothing where there is no
        entry.

        Raises
        ------
        StoreError: the disk is full or failed.
        """
        if self._new:
            if self._stream is None:
                self._stream = Stream(self._folder / FILE, _SCHEMA, self._mark)
            columns = zip(
                *((*entry[:2], codec.encode(entry.value)) for entry in self._new), strict=True
            )
            self._stream.append(pa.record_batch([*map(pa.array, columns)], schema=_SCHEMA))
            self._stream.sync()
            self._mark = self._stream.mark
            self._new = []
        return {} if self._mark is None else {"history": self._mark}

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
