"""Folders with files of clients: which file is whose, and whether its rows train or test.

Read are, in a folder,

- a file, or a sub-folder of files, for each client: ``a.csv``, ``b/1.csv``;
- the same below ``train`` and ``test`` (or ``val``), as PFLlib writes it: ``train/0.npz``;
- two files for each client: ``a_train.csv`` and ``a_test.csv`` (``train_a.csv``, ``aTrain.csv``),
  or ``a/train.csv`` and ``a/test.csv``.

``training``, ``testing`` and ``validation`` are read as ``train``, ``test`` and ``val``.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from motley.core.errors import DataError
from motley.core.untrusted import shortened
from motley.tasks.table_kinds import is_table_file

_WORDS = "train(?:ing)?|test(?:ing)?|val(?:id|idation)?"
_HALVES = (
    re.compile(f"(?:(?P<base>.+)[_.-])?(?P<half>{_WORDS})", re.IGNORECASE),
    re.compile(f"(?P<half>{_WORDS})[_.-](?P<base>.+)", re.IGNORECASE),
    re.compile(f"(?P<base>.+)(?P<half>(?=[TV])(?i:{_WORDS}))(?<![A-Z])"),  # aTest, no contest
)

_NO_ENTRY = "__HIVE_DEFAULT_PARTITION__"
_PART = re.compile(r"part-\d+.*\.parquet", re.IGNORECASE)


class ClientFile(NamedTuple):
    """A file, the client whose rows it holds, and whether they test."""

    client: str
    path: Path
    test: bool


def client_files(root: Path) -> list[ClientFile]:
    """Return every file of a client, each client's one after the other, those that train first.

    Files that are none of a client's are named in a warning; hidden ones (``._a.csv``) are not.

    Raises
    ------
    DataError: no folder, no files of clients in it, two clients of the same name, or halves of
    nobody in particular.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder")
    halves = _half_folders(root)
    if "train" in halves:
        files = [file for path, half in _of_halves(halves) for file in _below(path, half)]
    else:
        files = _side_by_side(root)
    if not files:
        below = next((path for path in _files(root) if is_client_file(path)), None)
        deeper = ""
        sought = [path for path, _ in _of_halves(halves)] if "train" in halves else [root]
        if below is not None and not any(map(below.is_relative_to, sought)):
            names = " and ".join(path.name for path in sought)
            deeper = f"; {below.relative_to(root)} lies outside of {names}; move it there"
        elif below is not None:
            deeper = f"; {below.relative_to(root)} lies more than one folder below"
            if below.suffix.lower() == ".parquet":
                deeper += f", and {_joined(root)}"
        raise DataError(
            f"{root} has no files of clients; expected one .npz, .parquet, .csv or .tsv file (or "
            f"sub-folder) per client{deeper}"
        )
    _refuse_rows_of_nobody(root, files)
    _warn_of_parts(root, files)
    read = {file.path for file in files}
    warn_of_unread(root, [path for path in _files(root) if path not in read])
    place = {name: k for k, name in enumerate(dict.fromkeys(file.client for file in files))}
    return sorted(files, key=lambda file: (place[file.client], file.test))


def _refuse_rows_of_nobody(root: Path, files: Sequence[ClientFile]) -> None:
    """Refuse the folder into which a partitioned table puts rows without an entry."""
    for name in dict.fromkeys(file.client for file in files):
        column, _, value = name.partition("=")
        if value == _NO_ENTRY:
            raise DataError(
                f"{root} has the folder {name}: rows without an entry of {column!r}, which are no "
                "client's; move it elsewhere to leave them out, or give it the name of a client"
            )


def _warn_of_parts(root: Path, files: Sequence[ClientFile]) -> None:
    """Warn of files that are called as programs call the parts of one table."""
    if len(files) > 1 and all(
        file.path.parent == root and _PART.fullmatch(file.path.name) for file in files
    ):
        warnings.warn(
            f"{root}: each of the {len(files)} files is a client, and they are called like the "
            f"parts of one table ({files[0].path.name}, ...); {_joined(root)}",
            stacklevel=3,
        )


def _joined(root: Path) -> str:
    """Return in words how the parts of a table in a folder become one file."""
    return (
        "a table in parts becomes one by "
        f"pyarrow.parquet.write_table(pyarrow.parquet.read_table({str(root)!r}), 'one.parquet')"
    )


def is_client_file(path: Path) -> bool:
    """Return whether a file, by its name, may be a client's."""
    return is_table_file(path) or (path.suffix.lower() == ".npz" and not hidden(path))


def hidden(path: Path) -> bool:
    """Return whether a file is one that systems leave beside those of users (``._a.csv``,
    ``.DS_Store``)."""
    return path.name.startswith(".") or path.name == "__MACOSX"


def warn_of_unread(root: Path, unread: Sequence[Path]) -> None:
    """Name in a warning the files of a folder that are not read."""
    if unread:
        names = shortened(", ".join(str(path.relative_to(root)) for path in unread), 200)
        count = f"{len(unread)} file" + "s" * (len(unread) > 1)
        warnings.warn(f"{root}: {count} not read: {names}", stacklevel=3)


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not hidden(path))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in and below a folder that are not hidden."""
    for path in _entries(folder):
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def stem(path: Path) -> str:
    """Return a file's name without what says its kind: ``a`` of ``a.csv.gz``."""
    return path.with_suffix("").stem if path.suffix.lower() == ".gz" else path.stem


def _split(name: str) -> tuple[str, str]:
    """Return the name of a client and which half a file holds, by the name of the file; ``""`` for
    no half."""
    match = next(filter(None, (pattern.fullmatch(name) for pattern in _HALVES)), None)
    if match is None:
        return name, ""
    half = next(half for half in ("train", "test", "val") if match["half"].lower().startswith(half))
    return match["base"] or "", half


def _half_folders(folder: Path) -> dict[str, Path]:
    """Return the folders of halves in a folder, by their half."""
    split = [(_split(path.name), path) for path in _entries(folder) if path.is_dir()]
    return {half: path for (base, half), path in split if half and not base}


def _of_halves(halves: Mapping[str, Path]) -> list[tuple[Path, str]]:
    """Return the folders of the training and the test half, which may be called ``val``."""
    test = "test" if "test" in halves else "val"
    return [(halves[half], half) for half in ("train", test) if half in halves]


def _below(folder: Path, half: str) -> list[ClientFile]:
    """Return the files of one half: one file, or one sub-folder of files, for each client;
    ``train/a_train.csv`` is of client a."""
    entries = _entries(folder)
    named = [(stem(path), [path]) for path in entries if is_client_file(path)]
    single = [
        (base if part == half else name, paths)
        for name, paths in named
        for base, part in [_split(name)]
    ]
    nested = [(path.name, _inside(path)) for path in entries if path.is_dir()]
    clients = [(name, paths) for name, paths in (*single, *nested) if paths]
    _check_names(folder, [name for name, _ in clients])
    return [ClientFile(name, path, half != "train") for name, paths in clients for path in paths]


def _inside(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if is_client_file(path)]


def _side_by_side(root: Path) -> list[ClientFile]:
    """Return the files of clients that lie in the folder itself, and those in folders of their
    own."""
    files = _inside(root)
    pooled = next((path for path in files if not _split(stem(path))[0]), None)
    if pooled is not None:
        raise DataError(
            f"{root} has the file {pooled.name}, and nothing says whose its rows are; give each "
            "client a file in the folders train and test, or name the column of clients in one "
            'table: task = { name = "tabular", data = "all.csv", client = "hospital" }'
        )
    _check_names(root, [stem(path) for path in files])
    _refuse_test_folders(root, bool(files))
    single = _paired({stem(path): path for path in files})
    nested = [_of_client(path) for path in _entries(root) if path.is_dir()]
    names = [*dict.fromkeys(file.client for file in single)]
    names += [nested_files[0].client for nested_files in nested if nested_files]
    _check_names(root, names)
    return [*single, *(file for nested_files in nested for file in nested_files)]


def _refuse_test_folders(root: Path, files: bool) -> None:
    """Refuse folders that hold a test half by their name, and would be clients of their own.

    ``files``: whether files of clients lie beside them.
    """
    folders = [path for path in _entries(root) if path.is_dir() and _inside(path)]
    named = {_split(path.name): path for path in folders}
    for (base, half), path in named.items():
        trains = (base, "train") in named or (base, "") in named
        beside = not base and (files or len(folders) > 1)
        if half in ("test", "val") and (trains or beside):
            raise DataError(
                f"{root} has the folder {path.name}, a test half by its name, and no folder train; "
                "put all clients into the folders train and test, or give each client a folder "
                "with train and test, or another name"
            )


def _check_names(folder: Path, names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(
            f"{folder} has two clients of the name {twice[0]!r}; give each client one file, or one "
            "folder of files"
        )


def _paired(files: Mapping[str, Path]) -> list[ClientFile]:
    """Return the files of clients by their names: ``a_test`` is the test half of ``a_train``, or of
    ``a``; without one of these it is a client of this name."""
    halves: dict[str, dict[str, Path]] = {}
    for name, path in files.items():
        base, half = _split(name)
        halves.setdefault(base, {})[half] = path
    client_files = []
    paired = any("test" in parts and len(parts) > 1 for parts in halves.values())
    for base, parts in halves.items():
        trains = {half: path for half, path in parts.items() if half in ("", "train")}
        tests = {half: path for half, path in parts.items() if half in ("test", "val")}
        if len(trains) > 1 and tests:
            raise DataError(
                f"{', '.join(path.name for path in parts.values())}: the training rows of {base} "
                "are in two files; expected one beside its test half"
            )
        if tests and (trains or paired):
            test = "test" if "test" in tests else "val"
            client_files += [ClientFile(base, path, False) for path in trains.values()]
            client_files += [ClientFile(base, tests[test], True)]
        else:
            client_files += [ClientFile(stem(path), path, False) for path in parts.values()]
    return client_files


def _of_client(folder: Path) -> list[ClientFile]:
    """Return the files in a client's own folder: a training and a test half, or files of rows that
    are not divided yet."""
    files = [(path, _split(stem(path))[1]) for path in _inside(folder)]
    inner = _half_folders(folder)
    if not files and "train" in inner:
        files = [(path, half) for part, half in _of_halves(inner) for path in _inside(part)]
    halves = {half for _, half in files}
    if "train" not in halves and len(halves) < 2:
        return [ClientFile(folder.name, path, False) for path, _ in files]
    if "" in halves:
        undivided = next(path for path, half in files if not half)
        raise DataError(
            f"{folder} has files of a {'training' if 'train' in halves else 'test'} half and "
            f"{undivided.name}, which is of neither half; "
            "name it train or test, or move it"
        )
    test = "test" if "test" in halves else "val"
    return [
        ClientFile(folder.name, path, half == test)
        for path, half in files
        if half in ("train", test)
    ]
