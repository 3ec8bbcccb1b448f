"""The file ``comparison.json`` of a comparison's folder: the order of its runs and the reference
that was asked for, so that a later report has the same.

Folders of runs stand in it relative to the folder of the comparison, ``method/run``.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motley.core.errors import DataError
from motley.core.files import disk_error, no_file, replacing
from motley.results.record import read_json

FILE = "comparison.json"


class ComparisonRecord(NamedTuple):
    """Folders of runs relative to that of their comparison: of all ``runs`` in the grid's order,
    and of the runs of the method ``against`` which the others are compared, chosen or the usual one
    of the folder's first comparison; none before there were two methods."""

    runs: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


def read_comparison(folder: Path) -> ComparisonRecord:
    """Return what a folder's ``comparison.json`` says; an empty record where there is no such file.

    Raises
    ------
    DataError: the file is not what ``motley compare`` writes.
    """
    path = folder / FILE
    if no_file(path) == "does not exist":
        return ComparisonRecord()
    return _checked(read_json(path), path)


def _above(folder: Path) -> ComparisonRecord:
    """Return the record of the comparison that runs below would be of. The folder is the user's own
    where they are of none: a file there that has not both of a record's fields is passed over, and
    one that may be a damaged record with a warning, for finished runs end no command with it."""
    path = folder / FILE
    try:
        record = {} if no_file(path) == "does not exist" else read_json(path)
        if not isinstance(record, dict) or not record.keys() >= set(ComparisonRecord._fields):
            return ComparisonRecord()
        return _checked(record, path)
    except DataError as error:
        reason = str(error).partition(";")[0]
        warnings.warn(
            f"{reason}; it is passed over: runs stand in the order of their folders",
            stacklevel=2,
        )
        return ComparisonRecord()


def _checked(record: Any, path: Path) -> ComparisonRecord:
    fields: list[Any] = (
        [record.get(name) for name in ComparisonRecord._fields] if isinstance(record, dict) else []
    )
    if not fields or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in fields
    ):
        raise DataError(
            f"{path} is not what motley compare writes; remove it, and runs stand in the order of "
            "their folders"
        )
    return ComparisonRecord(*(tuple(names) for names in fields))


def record_comparison(folder: Path, runs: Sequence[Path], against: Sequence[Path]) -> None:
    """Write ``comparison.json`` into a folder that is made if need be: these runs first, then those
    that an earlier comparison in the folder had; its reference stays where ``against`` is empty.

    Raises
    ------
    DataError: the file that is there is another's. StoreError: it cannot be written.
    """
    before = read_comparison(folder)
    names = [_within(folder, run) for run in runs]
    order = tuple(dict.fromkeys([*names, *before.runs]))
    chosen = tuple(_within(folder, run) for run in against) or before.against
    if before == (order, chosen):
        return
    text = json.dumps({"runs": order, "against": chosen}, indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / FILE) as file:
            file.write(text.encode())
    except OSError as error:
        raise disk_error(error, folder / FILE) from None


def in_grid_order(folders: Iterable[Path]) -> list[Path]:
    """Return folders of runs with those of each comparison in its grid's order, at the places that
    they have among the others; without a record as they come."""
    ordered = list(folders)
    places: dict[Path, list[int]] = {}
    for place, run in enumerate(ordered):
        places.setdefault(_comparison_of(run), []).append(place)
    for folder, own in places.items():
        order = {name: number for number, name in enumerate(_above(folder).runs)}
        runs = [ordered[place] for place in own]
        runs.sort(key=lambda run: order.get(_within(folder, run), len(order)))
        for place, run in zip(own, runs, strict=True):
            ordered[place] = run
    return ordered


def reference_runs(folders: Iterable[Path]) -> list[Path]:
    """Return those of the folders of runs whose comparison has them as its reference; without any,
    those in the folder of the reference's method, as seeds that were added are."""
    runs = list(folders)
    against = {
        folder: _above(folder).against
        for folder in dict.fromkeys(_comparison_of(run) for run in runs)
    }
    methods = {folder: {_method_of(name) for name in names} for folder, names in against.items()}
    places = [(run, _comparison_of(run)) for run in runs]
    named = [run for run, folder in places if _within(folder, run) in against[folder]]
    return named or [
        run for run, folder in places if _method_of(_within(folder, run)) in methods[folder]
    ]


def _comparison_of(run: Path) -> Path:
    """Return the folder of the comparison that a run would be of: ``folder/method/run``."""
    return run.absolute().parent.parent


def _method_of(name: str) -> str:
    """Return the folder of the method of a run, ``method/run``."""
    return name.partition("/")[0]


def _within(folder: Path, run: Path) -> str:
    return run.absolute().relative_to(folder.absolute()).as_posix()
