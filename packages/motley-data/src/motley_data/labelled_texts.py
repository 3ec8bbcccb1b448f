"""Texts with a class each, or with a class for each of their words, by client: tables and JSON
lines, as tokens of one length.

A file has a row for each text: a column ``text`` and its ``label``, or lists ``tokens``, its words,
and ``labels``, of one length (Parquet, Feather, JSON lines). -100, and null among words, is no
label. Of pairs of texts a second column has the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.arrays import Bools, Ints
from motley.core.errors import DataError
from motley.core.files import is_file, is_folder, user_path, where_paths_start
from motley.tasks.origin import Origin
from motley.tasks.targets import IGNORED
from motley_data.client_folders import client_files
from motley_data.column_spelling import is_text
from motley_data.formats.sample_checks import grouped
from motley_data.public_data.places import places
from motley_data.raw_table import joined
from motley_data.table_files import read_arrow
from motley_data.table_options import GAPS
from motley_data.table_readers import by_value, check_names, read_targets

_BREAK = 10
"""The byte between the texts of a pair, a line break."""


class LabelledTexts(NamedTuple):
    """Texts, client after client.

    Parameters
    ----------
    texts: ``[n]``; lists of words where each word has a class, pairs where a second column has
    texts.
    labels: int64 ``[n]``, or of all words in a row; :data:`IGNORED` where there is none.
    classes: their number.
    names: of the classes; empty: they are numbers.
    groups: ``[n]``, the client of each text; None: they have none.
    clients: names of the clients.
    test: bool ``[n]``.
    origin: of the rows, for messages.
    """

    texts: list[Any]
    labels: Tensor
    classes: int
    names: tuple[str, ...]
    groups: Ints | None
    clients: tuple[str, ...]
    test: Bools
    origin: Origin


class TokenRows(NamedTuple):
    """Tokens ``[n, T]``, of which text of its pair each is (``[n, T]``, 0 or 1; None where texts
    are no pairs), where each label belongs (places in the flat array of tokens, -1 where it was cut
    off; None where a text has one), and how many texts were cut."""

    tokens: NDArray[np.int64]
    types: NDArray[np.int64] | None
    places: NDArray[np.int64] | None
    cut: int
    longest: int


def read_labelled(
    data: str, text: str, label: str, client: str, words: bool, folder: Path | None, pair: str = ""
) -> LabelledTexts:
    """Return the texts of a file, or of a folder with a file, or a sub-folder of files, for each
    client (:mod:`motley_data.client_folders`).

    Parameters
    ----------
    text, label: names of columns.
    pair: of the column of second texts; empty: there is none.
    client: of the column with the client of each row of a file; empty: there is none.
    words: whether each word has a label.
    folder: searched first.

    Raises
    ------
    DataError: no such file, no such column, a text or label that is missing, labels that may be the
    same.
    """
    path = _path(data, folder)
    files = client_files(path) if path.is_dir() else []
    if files and client:
        raise DataError(
            f"task.client: got {client!r}, and each file of {path} is a client's; leave it out"
        )
    paths = [file.path for file in files] or [path]
    wanted = [name for name in (text, pair, label, client) if name]
    tables = [read_arrow(file_path) for file_path in paths]
    for table, file_path in zip(tables, paths, strict=True):
        check_names(table, wanted, str(file_path))
    sizes = [len(table) for table in tables]
    all_rows = joined([table.select(wanted) for table in tables])
    if not sum(sizes):
        raise DataError(f"{path} has no rows; expected texts with labels")
    groups: Ints | None = None
    names: tuple[str, ...] = ()
    if files:
        names = tuple(dict.fromkeys(file.client for file in files))
        groups = np.repeat([names.index(file.client) for file in files], sizes)
    elif client:
        ids = _cells(all_rows.column(client), client, Origin(str(path)))
        groups, names = grouped(ids, str(path), len(all_rows), client)
    origin = Origin.of_clients(str(path), groups, names, parts="its texts" if files else "")
    texts = _texts(all_rows.column(text), text, words, origin)
    if pair:
        seconds = _texts(all_rows.column(pair), pair, words, origin)
        texts = list(zip(texts, seconds, strict=True))
    labels, classes, class_names = _labels(
        all_rows.column(label), name=label, texts=texts, words=words, origin=origin
    )
    test = np.repeat([file.test for file in files] or [False], sizes)
    return LabelledTexts(
        texts=texts,
        labels=labels,
        classes=classes,
        names=class_names,
        groups=groups,
        clients=names,
        test=test,
        origin=origin,
    )


def _path(data: str, folder: Path | None) -> Path:
    for place in (Path(), *places(folder)):
        path = place / user_path(data)
        if data and (is_folder(path) or is_file(path)):
            return path
    raise DataError(
        f"task.data: got {data!r}; expected the path of a table or a .jsonl file of texts with "
        f"labels, or of a folder with one for each client, that exists{where_paths_start(data)}"
    )


def _texts(column: Any, name: str, words: bool, origin: Origin) -> list[Any]:
    """Return a column of texts, or of lists of words; all have at least one letter or word.

    Raises
    ------
    DataError: another kind of column, an empty text.
    """
    import pyarrow as pa

    kind = column.type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    fits = (listed and is_text(kind.value_type)) if words else is_text(kind)
    if not fits:
        wanted = "lists of words, in .jsonl or .parquet" if words else "texts"
        line = ' (head = "token" reads lists of words)' if listed else ""
        raise DataError(f"{origin}: column {name!r} is {kind}; expected {wanted}{line}")
    texts: list[Any] = column.to_pylist()
    for row, text in enumerate(texts):
        pieces = text if words else [text]
        if not pieces or not all(piece and piece.strip() for piece in pieces):
            unit = "a word" if words and pieces else "the text"
            raise DataError(f"{origin.row(row)}: {unit} is empty; fill or drop such rows")
    return texts


def _labels(
    column: Any, name: str, texts: list[Any], words: bool, origin: Origin
) -> tuple[Tensor, int, tuple[str, ...]]:
    """Return the classes of all texts, or of all their words in a row, their number and names.

    Raises
    ------
    DataError: a label that is missing, or not as many as words.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if words:
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise DataError(
                f"{origin}: column {name!r} is {column.type}; expected lists with a label for each "
                "word"
            )
        counts = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
        for row, (count, text) in enumerate(zip(counts, texts, strict=True)):
            if count != len(text):
                raise DataError(
                    f"{origin.row(row)}: {count} labels for {len(text)} words; expected as many, "
                    f"{IGNORED} where a word has none"
                )
        column = pc.list_flatten(column)
    where = Origin(f"the labels of the words of {origin}") if words else origin
    values = _cells(column, name, where, gaps=words, labels=True)
    labelled = np.array([value is not None and value != IGNORED for value in values], bool)
    if not (labelled.any() if words else labelled.all()):
        place = where.row(int((~labelled).argmax()))
        raise DataError(f"{place}: there is no label in column {name!r}; fill or drop such rows")
    targets = by_value(_compact(values[labelled]), np.zeros(int(labelled.sum()), bool), str(where))
    numbers, classes, names = read_targets(
        y=targets, classes=True, several=False, where=where, n=len(targets)
    )
    labels = torch.full((len(labelled),), IGNORED)
    labels[torch.from_numpy(labelled)] = numbers
    return labels, int(classes or 0), names


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as int64, words as they are."""
    return values.astype(np.int64) if isinstance(values[0], int) else values


def _cells(
    column: Any, name: str, where: Origin, *, gaps: bool = False, labels: bool = False
) -> NDArray[Any]:
    """Return a column of words or whole numbers as objects ``[n]``, None for a gap.

    Raises
    ------
    DataError: other types, a gap where there may be none, words that differ in blanks or capitals
    alone, numbers and words as labels.
    """
    import pyarrow as pa

    kind = column.type
    if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{where}: column {name!r} is {kind}; expected words or whole numbers")
    cells = column.to_pylist()
    if is_text(kind):
        absent = {""} if gaps else set(GAPS)
        cells = [None if cell is None or cell.strip() in absent else cell for cell in cells]
        distinct = sorted({cell for cell in cells if cell is not None})
        if distinct and all(cell.isdecimal() for cell in distinct):
            cells = [None if cell is None else int(cell) for cell in cells]
        else:
            _refuse_variants(distinct, name, where)
            numbers = [cell for cell in distinct if cell.isdecimal()]
            if numbers and labels:
                word = next(cell for cell in distinct if not cell.isdecimal())
                raise DataError(
                    f"{where}: column {name!r} has numbers ({numbers[0]}) and words ({word!r}); "
                    "write all labels as one of them"
                )
    elif pa.types.is_boolean(kind):
        cells = [None if cell is None else int(cell) for cell in cells]
    if not gaps and None in cells:
        raise DataError(
            f"{where.row(cells.index(None))}: column {name!r} is empty (in {cells.count(None)} of "
            f"{len(cells)} rows); fill or drop such rows"
        )
    objects = np.empty(len(cells), object)
    objects[:] = cells
    return objects


def _refuse_variants(distinct: Sequence[str], name: str, where: Origin) -> None:
    """Refuse words that may be the same."""
    seen: dict[str, str] = {}
    for word in distinct:
        earlier = seen.setdefault(word.strip().casefold(), word)
        if earlier != word:
            raise DataError(
                f"{where}: column {name!r} has {earlier!r} and {word!r}, which differ in blanks or "
                "capitals alone; write one of them in all rows"
            )


def token_rows(
    texts: list[Any], tokenizer: Any, window: int, words: bool, padding: int, origin: Origin
) -> TokenRows:
    """Return texts as rows of ``window`` tokens with a tokenizer's special ones; what is longer is
    cut, what is shorter ends with padding.

    Parameters
    ----------
    texts: texts, lists of words, or pairs of texts; of a pair that is too long the end of the
    longer text is cut.
    tokenizer: of ``transformers``; None: the bytes of UTF-8 are the tokens, with a blank between
    words, a line break between the texts of a pair.
    words: whether texts are lists of words, of each of which the first token is found.

    Raises
    ------
    DataError: a text or a word without a token, one that begins or ends with the padding's.
    """
    rows = np.full((len(texts), window), padding, np.int64)
    types = np.zeros_like(rows)
    places: list[int] = []
    lengths = np.zeros(len(texts), np.int64)
    for row, text in enumerate(texts):
        firsts: list[int] = []
        if isinstance(text, tuple):
            tokens, of_second, lengths[row] = _pair(tokenizer, text, window)
            types[row, : len(tokens)] = of_second
        elif tokenizer is None:
            tokens, firsts = _bytes(text, words)
            lengths[row] = len(tokens)
            tokens = tokens[:window]
        else:
            tokens, firsts, lengths[row] = _tokens(tokenizer, text, window, words)
        if not tokens or -1 in firsts:
            unit = f"the word {text[firsts.index(-1)]!r}" if -1 in firsts else "the text"
            raise DataError(f"{origin.row(row)}: {unit} has no token; change or drop it")
        if padding in (tokens[0], tokens[-1]):
            raise DataError(
                f"{origin.row(row)}: the text begins or ends with the token {padding}, which is "
                "the padding; name another pad_token in the tokenizer, and pad_token_id in the "
                "model's configuration"
            )
        rows[row, : len(tokens)] = tokens
        places += [row * window + first if first < window else -1 for first in firsts]
    cut = int((lengths > window).sum())
    flat = np.array(places, np.int64) if words else None
    of_pairs = types if texts and isinstance(texts[0], tuple) else None
    return TokenRows(rows, of_pairs, flat, cut=cut, longest=int(lengths.max(initial=0)))


def _pair(tokenizer: Any, texts: tuple[str, str], window: int) -> tuple[list[int], list[int], int]:
    """Return at most ``window`` tokens of two texts, which of them each belongs to, and how many
    tokens there are uncut."""
    if tokenizer is None:
        first, second = (list(text.encode()) for text in texts)
        length = len(first) + 1 + len(second)
        while len(first) + 1 + len(second) > window:
            (first if len(first) > len(second) else second).pop()
        return [*first, _BREAK, *second], [0] * (len(first) + 1) + [1] * len(second), length
    options = {"return_token_type_ids": True, "verbose": False}
    full = tokenizer(*texts, **options)
    length = len(full["input_ids"])
    encoded = (
        tokenizer(*texts, truncation=True, max_length=window, **options)
        if length > window
        else full
    )
    return list(encoded["input_ids"]), list(encoded["token_type_ids"]), length


def _bytes(text: Any, words: bool) -> tuple[list[int], list[int]]:
    """Return the bytes of a text, and the place of the first one of each word."""
    if not words:
        return list(text.encode()), []
    pieces = [word.encode() for word in text]
    sizes = [len(piece) + 1 for piece in pieces]
    return list(b" ".join(pieces)), np.cumsum([0, *sizes[:-1]]).tolist()


def _tokens(
    tokenizer: Any, text: Any, window: int, words: bool
) -> tuple[list[int], list[int], int]:
    """Return at most ``window`` tokens, the place of the first one of each word (``window`` where
    it is cut off, -1 where it has none), and how many tokens there are uncut."""
    options = {"is_split_into_words": words, "verbose": False}
    full = tokenizer(text, **options)
    length = len(full["input_ids"])
    encoded = (
        tokenizer(text, truncation=True, max_length=window, **options) if length > window else full
    )
    firsts = []
    if words:
        uncut, cut = (
            {number: place for place, number in reversed([*enumerate(encoding.word_ids())])}
            for encoding in (full, encoded)
        )
        firsts = [cut.get(number, window if number in uncut else -1) for number in range(len(text))]
    return list(encoded["input_ids"]), firsts, length
