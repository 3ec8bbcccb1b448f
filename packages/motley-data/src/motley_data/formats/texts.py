"""Readers of texts by client: Shakespeare's roles (the pack), LEAF's 80-character windows (JSON,
CSV), folders of ``.txt`` files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motley.core.errors import DataError
from motley.core.files import check_file
from motley_data.formats.leaf import user_data
from motley_data.formats.npz import arrays


@dataclass(frozen=True)
class TextClients:
    """A text in two halves per natural client, all clients in the source's order.

    Parameters
    ----------
    names: of the clients (roles).
    train, test: the text of each client's halves, one string per client; a half may be empty.
    note: remark for readers of the results: where the text is from and how it was divided.
    """

    names: tuple[str, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    note: str


def read_pack(path: Path) -> TextClients:
    """Return the roles of ``shakespeare.npz``; the first four fifths of each role's lines are for
    training.

    Raises
    ------
    DataError: not that file.
    """
    data = arrays(path)
    missing = sorted({"text", "offset", "split", "play", "role_names", "play_names"} - set(data))
    if missing:
        raise DataError(f"{path} has no {', '.join(missing)}; expected the pack shakespeare.npz")
    text = data["text"].tobytes().decode("ascii")
    offset = data["offset"].tolist()
    split = data["split"].tolist()
    plays = [str(data["play_names"][play]) for play in data["play"]]
    names = tuple(
        f"{role} ({play})" for role, play in zip(data["role_names"].tolist(), plays, strict=True)
    )
    train = tuple(text[start:cut] for start, cut in zip(offset[:-1], split, strict=True))
    test = tuple(text[cut:stop] for cut, stop in zip(split, offset[1:], strict=True))
    note = (
        f"Shakespeare, the {len(names)} roles of the pack (another edition and count than "
        "LEAF's 1,129)"
    )
    return TextClients(names, train, test, note)


def read_texts(folder: Path) -> TextClients:
    """Return the texts below a folder: ``.txt`` files (UTF-8), one or one sub-folder of them for
    each client, else LEAF's JSON.

    Sub-folders ``train`` and ``test`` are halves, with the same clients in both; without them, the
    last fifth of each client's characters is for testing. The files of a client follow each other
    by name.

    Raises
    ------
    DataError: neither was found, or a file is not UTF-8.
    """
    inner = {path.name: path for path in folder.iterdir() if path.is_dir()}
    if {"train", "test"} <= set(inner):
        halves = [_files_of_clients(inner[half]) for half in ("train", "test")]
    else:
        halves = []
    if halves and halves[0]:
        (train, test), cut = halves, "with halves of their own"
    else:
        texts = _files_of_clients(folder)
        if not texts and any(folder.rglob("*.json")):
            return read_leaf(folder)
        if not texts:
            raise DataError(
                f"{folder} holds no .txt files and no LEAF JSON; expected one .txt file (or "
                "sub-folder) per client"
            )
        train, test = (
            {name: text[part(len(text))] for name, text in texts.items()}
            for part in (_first, _last)
        )
        cut = "the last fifth of each client's characters for testing"
    note = f"texts of {folder.name}, {len(train)} clients, {cut}"
    return TextClients(
        tuple(train), tuple(train.values()), tuple(test.get(name, "") for name in train), note
    )


def _first(characters: int) -> slice:
    return slice(characters * 4 // 5)


def _last(characters: int) -> slice:
    return slice(characters * 4 // 5, None)


def _files_of_clients(folder: Path) -> dict[str, str]:
    """Return the text of each client: a file, or the files of a sub-folder joined."""
    paths = {path.stem: [path] for path in sorted(folder.glob("*.txt"))}
    paths |= {
        inner.name: sorted(inner.glob("*.txt"))
        for inner in sorted(folder.iterdir())
        if inner.is_dir()
    }
    try:
        return {
            name: "".join(check_file(path).read_text(encoding="utf-8-sig") for path in files)
            for name, files in paths.items()
            if files
        }
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{folder} has a text that cannot be read ({error}); expected UTF-8"
        ) from None


def read_leaf(folder: Path) -> TextClients:
    """Return the users of LEAF's text JSON: ``train/*.json`` and ``test/*.json``, or
    ``all_data_*.json`` alone.

    LEAF stores windows of 80 characters, each with the character after it; windows that follow each
    other are joined to the text they were cut from. Without halves, the last fifth of each user's
    characters is for testing.

    Raises
    ------
    DataError: no such files, not LEAF's JSON, or no text in it.
    """
    halves = {half: _texts(sorted((folder / half).glob("*.json"))) for half in ("train", "test")}
    if halves["train"]:
        train = halves["train"]
        test = halves["test"]
    else:
        texts = _texts(sorted([*folder.glob("*.json"), *folder.glob("all_data/*.json")]))
        if not texts:
            raise DataError(
                f"{folder} holds no LEAF JSON; expected all_data_*.json, or train/*.json and "
                "test/*.json"
            )
        return _divided(texts, f"LEAF JSON of {folder.name}")
    note = f"LEAF JSON of {folder.name}, {len(train)} users, with LEAF's halves"
    return TextClients(
        tuple(train), tuple(train.values()), tuple(test.get(name, "") for name in train), note
    )


def read_csv(folder: Path) -> TextClients:
    """Return the users of ``shakespeare.csv`` below a folder: columns ``character_id``, ``x`` (80
    characters), ``y`` (the next one).

    Raises
    ------
    DataError: no such file, other columns, or no text.
    """
    import pyarrow as pa
    from pyarrow import csv

    path = next(iter(sorted(folder.rglob("shakespeare.csv"))), folder / "shakespeare.csv")
    columns = ("character_id", "x", "y")
    options = csv.ConvertOptions(
        column_types={name: pa.string() for name in columns}, include_columns=columns
    )
    try:
        table = csv.read_csv(
            check_file(path),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read ({error}); expected the columns {', '.join(columns)}"
        ) from None
    rows: dict[str, dict[str, list[str]]] = {}
    for batch in table.to_batches():
        for user, window, after in zip(
            *(batch.column(name).to_pylist() for name in columns), strict=True
        ):
            samples = rows.setdefault(str(user), {"x": [], "y": []})
            samples["x"].append(window)
            samples["y"].append(after)
    return _divided(
        {user: _joined(samples, path, user) for user, samples in rows.items()}, path.name
    )


def _divided(texts: Mapping[str, str], where: str) -> TextClients:
    """Return the users' texts with the last fifth of each for testing."""
    train, test = (
        tuple(text[part(len(text))] for text in texts.values()) for part in (_first, _last)
    )
    note = f"{where}, {len(texts)} users, the last fifth of each user's characters for testing"
    return TextClients(tuple(texts), train, test, note)


def _texts(paths: Sequence[Path]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in paths:
        for user, samples in user_data(path).items():
            texts[str(user)] = _joined(samples, path, str(user))
    return texts


def _joined(samples: Any, path: Path, user: str) -> str:
    """Return the text that a user's windows were cut from; a gap between windows becomes a line
    end."""
    windows, following = (
        samples.get(key) if isinstance(samples, dict) else None for key in ("x", "y")
    )
    if (
        not isinstance(windows, list)
        or not isinstance(following, list)
        or len(windows) != len(following)
    ):
        raise DataError(f"{path}: user {user!r} has no lists x and y of one length")
    if not all(isinstance(piece, str) for piece in itertools.chain(windows, following)):
        raise DataError(
            f"{path}: the samples of user {user!r} are not text; expected windows of characters "
            "and the next one"
        )
    pieces: list[str] = []
    before = None
    for window, after in zip(windows, following, strict=True):
        if before is not None and window == before[-len(window) :]:
            pieces.append(after)
        else:
            pieces += ["\n"] * bool(pieces) + [window, after]
        before = window + after
    return "".join(pieces)
