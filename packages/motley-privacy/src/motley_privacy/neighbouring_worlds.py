"""The same experiment with other data of one client: what an attack on its privacy compares.

A table or a set of images is written to files, one for each world, with one client's rows last, and
read from them as any file is, so that all that is made of the samples (scales, classes, categories,
the model's shape) is made of the data of that world. Data that a task makes itself are changed in
the federation. Everybody else has the same samples in both worlds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.arrays import Ints
from motley.core.errors import ConfigError, DataError
from motley.core.files import user_path
from motley.core.keys import Key, Streams
from motley.core.ragged import Ragged
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks.held_out import held_out_ids
from motley.tasks.image import Image
from motley.tasks.task import IGNORED, Federation, Task
from motley_data.datasets import DATASETS
from motley_data.raw_table import arrow_table, raw_table
from motley_data.table_options import TableOptions
from motley_data.table_readers import BUILTIN
from motley_data.tabular import Tabular

Change = Literal[
    "absent",
    "other",
    "far",
    "own_class",
    "non_finite",
    "larger",
    "smaller",
    "first",
    "middle",
    "renamed",
]
CHANGES: Mapping[Change, str] = {
    "absent": "it has no data, and sends zeros and the middles of its signals",
    "other": "it has other samples, half as many, with other labels",
    "far": "its samples are larger by far",
    "own_class": "it has a class and words that nobody else has",
    "non_finite": "its samples are not finite, and so neither are its updates",
    "larger": "it has twice as many samples",
    "smaller": "it has a quarter of its samples",
    "first": "it has twice as many samples, which come before all others' in the file",
    "middle": "it has half as many samples, which come amid the others' in the file",
    "renamed": "it has half as many samples, under a name that comes before all others' in both "
    "worlds",
}
"""Ways in which one client's data may differ, in words."""

_FAR = 1e3
_FEW = 8
"""Samples below which a client gets more of them, not fewer."""
_FEWEST = 4
"""Samples that a client keeps at least."""
_SIZES: frozenset[Change] = frozenset({"larger", "smaller"})
"""Changes of the number of samples alone."""
_WORD = "a word of one client alone"


Place = Literal["first", "middle", "last"]
"""Where the rows of the client that differs stand in a file."""


@dataclass(frozen=True)
class Neighbours:
    """Two worlds and more that differ in one client's data.

    Parameters
    ----------
    client: its id.
    first: the task of the first world.
    changed: change -> the task of another world.
    renamed: two worlds in both of which the client has another name; None where there is no file of
    names.
    """

    client: int
    first: Task
    changed: Mapping[Change, Task]
    renamed: Neighbours | None = None


Found = tuple[Task, dict[Change, Task], Neighbours]
_AS_IT_IS = "as it is"
_RENAMED = "as it is, renamed"


def neighbours(
    experiment: Experiment,
    folder: Path,
    data: Path | None = None,
    client: int | None = None,
) -> Neighbours:
    """Return an experiment's task, and the same with other data of one client.

    Parameters
    ----------
    folder: for the files of the worlds.
    data: folder searched first for data packs.
    client: its id; None: the last one that takes part.

    Raises
    ------
    ConfigError: there is no such client.
    """
    task = task_of(experiment, data=data)
    federation = task.federation
    key = Streams(experiment.seed, experiment.pin).key("split")
    new = held_out_ids(key, len(federation), experiment.split.holdout_clients)
    taking_part = np.setdiff1d(np.arange(len(federation)), new)
    chosen = int(taking_part[-1]) if client is None else client
    if chosen not in taking_part:
        message = f"got {chosen}; expected a client that takes part, from 0 to {taking_part[-1]}"
        raise ConfigError(f"{message}; leave it out for the last one", "--canary")
    source = experiment.part("task")
    worlds = _Worlds(experiment, folder, federation, chosen)
    renamed = None
    if isinstance(source, Tabular):
        first, changed, renamed = worlds.of_table(source)
    elif isinstance(source, Image) and experiment.own_task is None and not _shared(federation):
        first, changed, renamed = worlds.of_images(source, data)
    else:
        first = task
        fixed = _fixed_sizes(experiment) or _place_counts(experiment, federation)
        rows = _resized(federation.train[chosen], fixed)
        changed = {
            "other": _changed(task, chosen, rows["other"]),
            "far": _changed(task, chosen, federation.train[chosen], far=True),
            **{name: _with_rows(task, chosen, rows[name]) for name in _SIZES & rows.keys()},
        }
    if first.federation.x.is_floating_point():
        changed["non_finite"] = _spoiled(first, chosen)
    return Neighbours(chosen, first, {"absent": first, **changed}, renamed)


def _fixed_sizes(experiment: Experiment) -> bool:
    """Return whether the client must keep its number of samples, because that is public."""
    return getattr(experiment.privacy, "sizes", "private") == "public"


def _resized(rows: Ints, fixed: bool) -> dict[Change, Ints]:
    """Return a client's rows of the worlds in which it has another number of them, those whose
    number must stay as they are; a client of few rows has no fewer."""
    changes: tuple[Change, ...] = ("other", "first", "middle", "renamed")
    if fixed:
        return dict.fromkeys(changes, rows)
    twice = np.repeat(rows, 2)
    half = rows[: len(rows) // 2] if len(rows) >= _FEW else twice
    resized = {**dict.fromkeys(changes, half), "first": twice, "larger": twice}
    if len(rows) >= _FEW:
        resized["smaller"] = rows[: max(len(rows) // 4, _FEWEST)]
    return resized


def _place_counts(experiment: Experiment, federation: Federation) -> bool:
    """Return whether what is drawn for other clients' samples follows their place among all, which
    the number of one client's moves: where clients were dealt their samples out of a pool."""
    drawn = any(getattr(experiment, key)["name"] != "none" for key in ("label_noise", "drift"))
    return drawn and not federation.own_rows


def _shared(federation: Federation) -> bool:
    """Return whether clients share samples, of which each has a copy."""
    rows = np.concatenate([part.values for part in _parts(federation)])
    return len(np.unique(rows)) < len(rows) or int(rows.max()) >= len(federation.y)


def _parts(federation: Federation) -> tuple[Ragged, Ragged, Ragged]:
    return federation.train, federation.validation, federation.test


def _found(tasks: dict[Any, Task]) -> Found:
    """Return the tasks of all files: of the first world, of the others, and of the two under
    another name."""
    first = tasks.pop(_AS_IT_IS)
    renamed = Neighbours(0, tasks.pop(_RENAMED), {"renamed": tasks.pop("renamed")})
    return first, tasks, renamed


class _Worlds:
    """Writes the samples of the worlds to files, and reads tasks from them.

    Parameters
    ----------
    experiment: of the task.
    folder: for the files.
    federation: as the experiment divides the samples.
    client: in whose samples the worlds differ.
    """

    def __init__(
        self, experiment: Experiment, folder: Path, federation: Federation, client: int
    ) -> None:
        self.experiment = experiment
        self.folder = folder
        self.client = client
        rows = np.concatenate([part.values for part in _parts(federation)])
        owner = np.concatenate([part.owner for part in _parts(federation)])
        order = np.lexsort((rows, owner, owner == client))
        tested = federation.global_test
        self.test = np.zeros(0, np.int64) if tested is None else tested
        self.rows = rows[order]
        self.owner = owner[order]
        mine = self.owner == client
        self.others = self.rows[~mine]
        self.mine = self.rows[mine]
        self.resized = _resized(self.mine, _fixed_sizes(experiment))

    def _clients(self, mine: int, test: int, first: bool = False) -> Ints:
        """Return the client of each row of a file: first those of the common test set, which count
        as client 0's, last those of the client that differs; ``first``: under a name that comes
        before all others'."""
        owners = self.owner[self.owner != self.client]
        own = self.client
        if first:
            owners = owners + (owners < own)
            own = 0
        return np.concatenate([np.zeros(test, np.int64), owners, np.full(mine, own)])

    def _order(self, change: str, rows: int, mine: int) -> Ints:
        """Return the order of a file's rows, of which the client's own are the last but where a
        change puts them elsewhere."""
        at = {"first": 0, "middle": (rows - mine) // 2}.get(change, rows - mine)
        remaining = np.arange(rows - mine)
        return np.concatenate([remaining[:at], np.arange(rows - mine, rows), remaining[at:]])

    def _read(self, options: Mapping[str, Any], classes: Any) -> Task:
        """Return the task of one world's file; ``classes``: their number, or their names,
        where these are public; else None.

        Raises
        ------
        DataError: samples that a client may not have, e.g. of a class that is not on a public list.
        """
        source = self.experiment.part("task")
        task_options = {
            name: value for name, value in self.experiment.task.items() if name != "client_groups"
        }
        if classes is not None and hasattr(source, "classes"):
            task_options["classes"] = classes
        changes: dict[str, Any] = {
            "task": {**task_options, **options},
            "partition": {"name": "by_writer"},
        }
        if isinstance(source, Tabular):
            changes["split.test"] = "client"  # no file of a table marks a common test set
        return task_of(self.experiment.replace(changes))

    def _place(self, change: str, name: str) -> Path:
        """Return the path of one world's file, which has the same name in all worlds."""
        path = self.folder / change / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    # ------------------------------------------------------------------------------------- images

    def of_images(self, source: Image, data: Path | None) -> Found:
        """Return the first task, the others, and those under another name."""
        raw = source._read(data)
        x = raw.x.numpy()
        y = raw.y.numpy()
        count = raw.classes or 2
        names = np.array(raw.names or [str(label) for label in range(count)])
        white = 255 if x.dtype == np.uint8 else 1.0
        key = Key(self.experiment.seed).fold("neighbours").numpy()
        replaced = self.resized["other"]
        noise = (white * key.random((len(replaced), *x.shape[1:]))).astype(x.dtype)
        public = source.data == "digits" or source.data in DATASETS
        worlds: dict[Change | str, Any] = {
            _AS_IT_IS: (self.mine, x[self.mine], y[self.mine]),
            **{name: (rows, x[rows], y[rows]) for name, rows in self.resized.items()},
            "other": (replaced, noise, (y[replaced] + 1) % count),
            _RENAMED: (self.mine, x[self.mine], y[self.mine]),
            "far": (self.mine, np.full_like(x[self.mine], white), y[self.mine]),
        }
        if not public:
            worlds["own_class"] = (self.mine, x[self.mine], np.full_like(y[self.mine], count))
        tasks: dict[Any, Task] = {}
        for change, (rows, mine, labels) in worlds.items():
            unchanged = np.concatenate([self.test, self.others])
            path = self._place(change, "samples.npz")
            order = self._order(change, len(unchanged) + len(rows), len(rows))
            renamed = change in (_RENAMED, "renamed")
            arrays: dict[str, Any] = {
                "x": np.concatenate([x[unchanged], mine])[order],
                "y": np.concatenate([y[unchanged], labels])[order],
                "client": self._clients(len(rows), len(self.test), renamed)[order],
                "test": (np.arange(len(order)) < len(self.test))[order],
                **({"classes": names} if public else {}),
            }
            np.savez(path, **arrays)
            with suppress(DataError) if change == "own_class" else nullcontext():
                tasks[change] = self._read({"data": str(path)}, names.tolist() if public else None)
        return _found(tasks)

    # ------------------------------------------------------------------------------------- tables

    def of_table(self, source: Tabular) -> Found:
        """Return the first task, the others, and those under another name."""
        table, label = _arrow(source)
        worlds: dict[Change | str, Any] = {
            _AS_IT_IS: table.take(self.mine),
            _RENAMED: table.take(self.mine),
            **{name: table.take(rows) for name, rows in self.resized.items()},
            "other": self._other(table.take(self.resized["other"]), label),
            "far": self._other(table.take(self.mine), label, times=_FAR),
        }
        public = source.data in BUILTIN
        if source.has_classes and not public:
            worlds["own_class"] = self._own_class(table.take(self.mine), label)
        import pyarrow as pa
        from pyarrow import parquet

        tasks: dict[Any, Task] = {}
        classes = (
            len(set(table.column(label).to_pylist())) if public and source.has_classes else None
        )
        for change, mine in worlds.items():
            unchanged = table.take(self.others)
            combined = pa.concat_tables([unchanged, mine], promote_options="permissive")
            renamed = change in (_RENAMED, "renamed")
            names = self._clients(mine.num_rows, test=0, first=renamed)
            combined = _put(combined, "client", pa.array(names))
            combined = combined.take(self._order(change, combined.num_rows, mine.num_rows))
            path = self._place(change, "samples.parquet")
            parquet.write_table(combined, path)
            own = {"data": str(path), "label": label, "client": "client"}
            with suppress(DataError) if change == "own_class" else nullcontext():
                tasks[change] = self._read(own, classes)
        return _found(tasks)

    def _other(self, mine: Any, label: str, times: float = 0.0) -> Any:
        """Return a client's rows with other numbers and labels: ``times`` as large, or, at 0, in
        the opposite order and turned round."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name in mine.column_names:
            column = mine.column(name)
            turned = pa.chunked_array([column.take(np.arange(len(column))[::-1].copy())])
            if name != label and _is_number(column):
                wide = pc.cast(column, pa.float64())
                turned = pc.multiply(wide, times) if times else pc.negate(wide)
            elif name == label:
                turned = column if times else self._next(column)
            mine = _put(mine, name, turned)
        return mine

    def _next(self, column: Any) -> Any:
        """Return a client's labels with each replaced by the next that it has; numbers turned
        round."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table: Any = self.experiment.part("task")
        if _is_number(column) and not table.has_classes:
            return pc.negate(column)
        labels = column.unique().to_pylist()
        following = dict(zip(labels, [*labels[1:], labels[0]], strict=True))
        return pa.chunked_array(
            [pa.array([following[label] for label in column.to_pylist()], column.type)]
        )

    def _own_class(self, mine: Any, label: str) -> Any:
        """Return a client's rows with a label, and words, that nobody else has."""
        import pyarrow as pa

        for name in mine.column_names:
            column = mine.column(name)
            if name == label and _is_number(column):
                mine = _put(mine, name, pa.array([self._unused] * len(column), column.type))
            elif pa.types.is_string(column.type):
                mine = _put(mine, name, pa.array([_WORD] * len(column)))
        return mine

    @property
    def _unused(self) -> int:
        """A class that no row has."""
        classes = task_of(self.experiment).federation.classes
        return int(classes or 0)


def _arrow(source: Tabular) -> tuple[Any, str]:
    """Return a table's rows without its clients, and the name of its label."""
    from motley_data.table_readers import builtin_table, read_columns

    if source.data in BUILTIN:
        x, y, names = builtin_table(source.data, source.has_classes)
        return _put(arrow_table(x, names), "label", _array(y)), "label"
    path = user_path(source.data)
    if path.suffix == ".npz":
        x, y, _ = read_columns(path)
        return _put(arrow_table(x), "label", _array(y)), "label"
    options = source.options
    inputs, y, _ = read_columns(
        path=path,
        label=source.label,
        client=source.client,
        options=options,
        classes=source.has_classes,
    )
    label = _array(y.astype(str) if y.dtype.kind == "b" else y)
    return _put(_plain(inputs, options, str(path)), source.label, label), source.label


def _plain(table: Any, options: TableOptions, where: str) -> Any:
    """Return a table whose columns of text are numbers where they are read so, and strings."""
    import pyarrow as pa

    columns = {column.name: column for column in raw_table(table, options, where).columns}
    for name in table.column_names:
        kind = table.column(name).type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if text and name in columns and columns[name].words is None:
            numbers = pa.array(columns[name].values, from_pandas=True)
            table = _put(table, name, numbers)
        elif text or pa.types.is_dictionary(kind):
            table = _put(table, name, table.column(name).cast(pa.string()))
    return table


def _array(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(values.tolist())


def _put(table: Any, name: str, column: Any) -> Any:
    """Return an Arrow table with a column in place of the one of its name, or at its end."""
    at = table.schema.get_field_index(name)
    return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)


def _is_number(column: Any) -> bool:
    import pyarrow as pa

    kind = column.type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


# ------------------------------------------------------------------------------------- federations


def _changed(task: Task, client: int, mine: Ints, far: bool = False) -> Task:
    """Return a task with other samples of one client, with other labels, or ``far`` ones; ``mine``:
    those of its rows that it trains on."""
    data = task.federation
    rows = torch.from_numpy(np.concatenate([part[client] for part in _parts(data)]))
    x = data.x.clone()
    y = data.y.clone()
    if x.is_floating_point():
        x[rows] = _FAR * x[rows] if far else -x[rows].flip(0)
    else:
        x[rows] = x[rows].flip(0)
    if not far:
        y[rows] = _turned(y[rows], data.classes)
    changed = dataclasses.replace(task, federation=dataclasses.replace(data, x=x, y=y))
    return _with_rows(changed, client, mine)


def _with_rows(task: Task, client: int, mine: Ints) -> Task:
    """Return a task in which one client trains on these of its rows, with clean labels."""
    data = task.federation
    first, end = data.train.offsets[client : client + 2].tolist()
    labels = data.y[torch.from_numpy(mine)].to(data.labels.dtype)
    parts = [part if k != client else mine for k, part in enumerate(data.train)]
    joined = torch.cat([data.labels[:first], labels, data.labels[end:]])
    changed = dataclasses.replace(data, train=Ragged.of(parts), labels=joined)
    return dataclasses.replace(task, federation=changed)


def _turned(y: Tensor, classes: int | None) -> Tensor:
    """Return other targets."""
    if classes is None:
        return -3.0 * y - 1.0
    if y.is_floating_point():
        return 1.0 - y
    return torch.where(y == IGNORED, y, (y + 1) % classes)


def _spoiled(task: Task, client: int) -> Task:
    """Return a task in which one client's samples are not finite."""
    data = task.federation
    rows = torch.from_numpy(np.concatenate([part[client] for part in _parts(data)]))
    spoiled = data.x.clone()
    spoiled[rows] = torch.nan
    return dataclasses.replace(task, federation=dataclasses.replace(data, x=spoiled))
