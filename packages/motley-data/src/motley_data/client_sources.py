"""What is given for clients, one after the other, as parts of a data set: arrays, tables, data sets
and loaders, with the samples on which they test."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.client_names import client_in_words
from motley.core.errors import DataError
from motley.tasks.preparation import FieldsPreparation
from motley.tasks.task import Dataset
from motley_data.client_parts import Part, array_of, input_pair, is_table
from motley_data.loaders import SampleReader, is_loader, is_sample_list, is_samples, splits_of
from motley_data.row_labels import Role, renamed_labels
from motley_data.row_splits import RowSplit, times_of
from motley_data.table_options import TableOptions
from motley_data.table_readers import take_column


class ClientSources:
    """The samples of clients, training parts first.

    Parameters
    ----------
    clients: a list, a generator, or a mapping by name.
    test: ``client``, ``global``, what each client tests on, or a single data set for the common
    model.
    reader: of data sets and loaders.
    divided: how each client's rows are divided; None: as ``test`` says.
    """

    def __init__(
        self, clients: Any, test: Any, reader: SampleReader, divided: RowSplit | None
    ) -> None:
        _check_splits(clients)
        self.names = tuple(map(str, clients)) if isinstance(clients, Mapping) else ()
        self.times: list[NDArray[Any]] = []
        """The time or the group of each row, client after client, where rows are divided by it."""
        self._clients = clients
        self._test = _by_name(test, clients)
        self._common = is_samples(test)
        self._reader = reader
        self._divided = divided
        if divided is not None and not isinstance(divided.by, str):
            self.times = _in_order(divided.by, self.names)
            self._divided = None
        self._splits = divided is None
        self._carried: list[Any] = []
        self._asked = [0, 0]

    @property
    def where(self) -> Any:
        """Where samples are tested, as of a :class:`~motley.tasks.federate.Split`."""
        where = self._test if isinstance(self._test, str) else "client"
        return "global" if self._common else where

    def words(self, part: int) -> str:
        """Return a part in words, by its number."""
        late = part >= self._asked[0]
        if late and self._common:
            return "the common test set"
        who = client_in_words(part - self._asked[0] * late, self.names)
        return f"the test part of {who}" if late else who

    def parts(self) -> Iterator[Part]:
        """Yield samples, targets and name of each part, those for testing after all others.

        Raises
        ------
        DataError: samples that are not understood, or not one test part per client.
        """
        mapping = isinstance(self._clients, Mapping)
        yield from self._of(self._clients.values() if mapping else self._clients, 0)
        yield from self._tests()
        count, tests = self._asked
        if tests and tests != (1 if self._common else count):
            raise _other_number(tests, count)

    def _of(self, parts: Iterable[Any], kind: int) -> Iterator[Part]:
        for number, part in enumerate(parts):
            self._asked[kind] = number + 1
            who = self.words(number + self._asked[0] * kind)
            train, held = splits_of(part, who) if kind == 0 else (part, None)
            self._carried += [] if held is None else [held]
            _check_samples(train, who, self._reader.label)
            if is_samples(train) or is_sample_list(train):
                x, y = self._reader.read(train, who, number, kind)
            else:
                x, y, _ = input_pair(train, who)
            y = self._reader.by_name(train, y, who)
            if self._divided is not None:
                x, times = times_of(x, self._divided, len(y), who)
                self.times.append(times)
            yield x, y, who

    def _tests(self) -> Iterator[Part]:
        if self._carried:
            count = self._asked[0]
            alone = self._splits and isinstance(self._test, str)
            if len(self._carried) < count or not alone:
                also = "" if alone else ", and test is given, too"
                raise DataError(
                    f"{len(self._carried)} of {count} clients have a split test{also}; give one "
                    "for each client, or train alone"
                )
            yield from self._of(self._carried, 1)
        elif self._common:
            yield from self._of([self._test], 1)
        elif not isinstance(self._test, str):
            _check_test(self._test, self._clients)
            yield from self._of(self._test, 1)

    def divide(self, dataset: Dataset) -> Dataset:
        """Return the data set of all parts with its clients and their test rows."""
        number = np.zeros(0, np.int64) if dataset.groups is None else dataset.groups
        count = self._asked[0]
        fields = self._reader.fields
        return dataclasses.replace(
            dataset,
            test=number >= count,  # of the part: the training parts come first
            groups=number % count,
            client_names=self.names,
            preparation=FieldsPreparation(fields) if fields else dataset.preparation,
        )


def _check_samples(data: Any, who: str, label: Any) -> None:
    """Refuse a table with its labels in a column, and halves that do not say which one tests."""
    if _is_frame(data):
        column = "label" if label is None else label
        raise DataError(
            f"{who} is a {type(data).__name__}; expected the inputs and the labels, in pandas "
            f'(frame.drop(columns="{column}"), frame["{column}"]); of a single table with a column '
            f'of clients: from_arrays(frame, "{column}", "client")'
        )
    if isinstance(data, tuple | list) and any(map(is_loader, data)):
        raise DataError(
            f"{who} is a {type(data).__name__} of {', '.join(type(p).__name__ for p in data)}; say "
            'which is which: {"train": ..., "test": ...}'
        )


def _is_frame(data: Any) -> bool:
    """Return whether an object is a table: a DataFrame, an Arrow table."""
    marks = ("columns", "column_names", "__arrow_c_stream__")
    named = any(hasattr(data, mark) for mark in marks)
    return named and not isinstance(data, Mapping) and not is_loader(data)


def _check_splits(clients: Any) -> None:
    """Refuse a single data set as clients, or its splits."""
    if is_loader(clients) or _is_frame(clients):
        raise DataError(
            f"got a single {type(clients).__name__}, and expected a list with the samples of each "
            "client, e.g. from_clients([first, second]); to divide it by a column of clients: "
            'from_arrays(frame, "label", "client"), or by a partitioner: from_flower(partitioner)'
        )
    if isinstance(clients, Mapping) and "train" in clients and is_samples(clients["train"]):
        raise DataError(
            f"got the splits {', '.join(map(str, clients))} of one data set, and expected a data "
            "set for each client; divide it, e.g. from_flower(partitioner), or by a column: "
            'from_arrays(dataset["train"].to_pandas(), "label", "client")'
        )


def _check_test(test: Any, clients: Any) -> None:
    """Refuse test parts that are no list or generator, or of another number than the clients where
    both are known."""
    if not isinstance(test, Iterable):
        if isinstance(test, float):
            raise DataError(f"got {test} as test; a share of the samples is test_fraction={test}")
        raise DataError(
            f'got {type(test).__name__} as test; expected "client", "global", or a list with a '
            "pair (x, y) per client"
        )
    if isinstance(test, Sized) and isinstance(clients, Sized) and len(test) != len(clients):
        raise _other_number(len(test), len(clients))


def _by_name(test: Any, clients: Any) -> Any:
    """Return test parts in the order of the clients, where both are given by name.

    Raises
    ------
    DataError: a client without a test part, or one of the two by name only.
    """
    named = [isinstance(value, Mapping) for value in (test, clients)]
    if isinstance(test, str) or is_samples(test) or not any(named):
        return test
    if not all(named):
        raise DataError(
            "got clients by name and test parts without, or the other way; give both as mappings, "
            "or both as lists"
        )
    for name in (*clients, *test):
        if name not in clients or name not in test:
            raise DataError(
                f"got {name!r} among the {'clients' if name in clients else 'test parts'} only; "
                "expected it in both"
            )
    return [test[name] for name in clients]


def _other_number(tests: int, clients: int) -> DataError:
    return DataError(
        f"got {tests} test parts and {clients} clients; expected a pair (x, y) per client, in the "
        "same order, or one data set for the common model: test=TensorDataset(x, y), of torch"
    )


def _in_order(by: Any, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the times or groups of the clients' rows, in the order of the clients."""
    if isinstance(by, Mapping):
        missing = [name for name in names if name not in by]
        if missing or not names:
            raise DataError(
                f"test: by names {', '.join(map(str, by))}; expected an array for each client"
                f"{', also for ' + missing[0] if missing else ', in their order'}"
            )
        return [array_of(by[name]) for name in names]
    return [array_of(values) for values in by]


def without_column(
    inputs: Any, column: ArrayLike | str, options: TableOptions, role: Role
) -> tuple[Any, NDArray[Any]]:
    """Return the inputs without a column that is given by its name, and its values."""
    if not isinstance(column, str):
        values = array_of(column)
        return inputs, renamed_labels(values, options) if role == "label" else values
    if not is_table(inputs):
        raise DataError(
            f"got {column!r} as the name of a column, and x is an array; give an array, or x as a "
            "DataFrame"
        )
    return take_column(
        table=inputs, name=column, role=role, where="the table given", options=options
    )
