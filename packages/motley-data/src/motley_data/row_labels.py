"""The columns of labels and of clients: what they hold, over all files together, and which rows
have none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools
from motley.core.errors import DataError
from motley.core.untrusted import shortened
from motley.tasks.origin import Origin, number_of_row, row_of
from motley_data.column_spelling import (
    NumberStyle,
    TextColumn,
    is_text,
    refuse_doubt,
    refuse_spelling,
)
from motley_data.raw_table import (
    decoded,
    refuse_infinite,
    renamed,
    text_column,
    trimmed,
    without_gaps,
)
from motley_data.spellings import shape_of, visible
from motley_data.table_options import TableOptions
from motley_data.word_codes import (
    CODE_WORDS,
    NUMBER_CODES,
    WORD_CODES,
    rename_line,
    same_words,
    short_forms,
)

Role = Literal["label", "client", "target"]
"""A class, whose a row is, or a number to predict."""

_MOST = 6
"""Spellings that a message lists, at most."""
_TRUTH = {"true", "false"}


class RowColumn(NamedTuple):
    """The values of a column of labels or clients, ``[n]``, which of them are gaps, and what was
    done to them; ``spelled``: the most frequent spelling of each client that ``fold`` put in small
    letters."""

    values: NDArray[Any]
    gone: Bools
    remarks: tuple[str, ...] = ()
    spelled: Mapping[str, str] = MappingProxyType({})


def read_row_column(
    column: Any,
    name: str,
    role: Role,
    options: TableOptions,
    where: str | Origin,
    *,
    typed: bool = True,
    several: bool = False,
    style: NumberStyle | None = None,
) -> RowColumn:
    """Return an Arrow column of labels, clients or numbers to predict.

    Parameters
    ----------
    typed: whether a column of texts is one because its source says so; else it may hold numbers.
    several: whether it is joined from several files, whose codes :func:`refuse_two_codes` compares.
    style: of the column's table.

    Raises
    ------
    DataError: words that differ in blanks or capitals alone, numbers in another spelling, 0 and 1
    beside words for no and yes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    column = decoded(column, name, where)
    if types.is_temporal(column.type) and role == "client":
        column = column.cast(pa.string())
    integer = types.is_integer(column.type) or types.is_boolean(column.type)
    if role == "label" and integer and options.rename:
        column = column.cast(pa.string())
        typed = False
    if is_text(column.type):
        text = text_column(column.cast(pa.string()), name, options)
        style = style or NumberStyle()
        if role == "target":
            return _target(text, options, where, style)
        return _from_text(text, role, options, where, typed=typed, several=several)
    gone = np.asarray(column.is_null(nan_is_null=True))
    if types.is_floating(column.type) or types.is_decimal(column.type):
        floats = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)
        return RowColumn(column.to_numpy(), np.isnan(without_gaps(floats, options)))
    if types.is_integer(column.type) or types.is_boolean(column.type):
        truth = types.is_boolean(column.type)
        floats = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)
        gone = np.isnan(without_gaps(floats, options, truth))
        filled = column.fill_null(False if truth else 0)
        return RowColumn(filled.to_numpy(), gone)
    return RowColumn(column.to_numpy(), gone)


def _target(
    column: TextColumn, options: TableOptions, where: str | Origin, style: NumberStyle
) -> RowColumn:
    """Return a column of text as numbers to predict."""
    column.forget(np.isin(column.numbers, options.absent_numbers))
    gone = np.append(column.absent, True)[column.codes]
    _refuse_words(column, ~column.absent, where)
    refuse_spelling(column=column, kind="numbers", options=options, where=where, style=style)
    refuse_doubt(column, options, where, style)
    numbers = np.append(column.numbers, np.nan)[column.codes]
    refuse_infinite(numbers, column.name, where)
    return RowColumn(numbers, gone)


def _from_text(
    column: TextColumn,
    role: Role,
    options: TableOptions,
    where: str | Origin,
    *,
    typed: bool,
    several: bool,
) -> RowColumn:
    """Return a column of text: whole numbers, numbers, true and false, or words."""
    column.forget(np.isin(column.numbers, options.absent_numbers))
    gone = np.append(column.absent, True)[column.codes]
    there = ~column.absent
    readable = ~np.isnan(column.numbers)
    if typed:
        if role == "label" and not several:
            _refuse_truths(column, there, role, where)
        return _named(column, gone, role, options, where=where, several=several)
    if (readable | column.absent).all() and not _written_as_words(column, there, role):
        return RowColumn(_numbers(column, there)[column.codes], gone)
    words = [word for word, here in zip(column.distinct, there, strict=True) if here]
    if {word.lower() for word in words} <= _TRUTH:
        truth = np.array([word.lower() == "true" for word in column.distinct] + [False])
        return RowColumn(truth[column.codes], gone)
    if role == "label":
        _refuse_numbers_in_words(column, there & ~readable, where)
    if not several:
        _refuse_truths(column, there, role, where)
    return _named(column, gone, role, options, where=where, several=several)


def _written_as_words(column: TextColumn, there: Bools, role: Role) -> bool:
    """Return whether the numbers of clients are codes: postcodes with a leading 0, versions as 1.1
    and 1.10, numbers that no int64 holds. Two texts then name two clients."""
    if role != "client":
        return False
    words = {word for word, here in zip(column.distinct, there, strict=True) if here}
    if any(re.fullmatch(r"[+-]?0\d+", word) for word in words):
        return True
    if not all(re.fullmatch(r"[+-]?\d+(\.0*)?", word) for word in words):
        return len(np.unique(column.numbers[there])) < len(words)
    # a float64 holds whole numbers up to 2^53
    most = 2**53 if any("." in word for word in words) else 2**63
    return any(abs(int(word.partition(".")[0])) >= most for word in words)


def _numbers(column: TextColumn, there: Bools) -> NDArray[Any]:
    """Return the numbers of the distinct texts, and one for a missing text, as whole numbers where
    all are written so."""
    integer = all(
        word.lstrip("+-").isdigit()
        for word, here in zip(column.distinct, there, strict=True)
        if here
    )
    if not integer or (np.abs(column.numbers[there]) >= 2**53).any():
        if integer:
            exact = [
                int(word) if here else 0 for word, here in zip(column.distinct, there, strict=True)
            ]
            if max(map(abs, exact)) < 2**63:
                return np.array([*exact, 0], np.int64)
        return np.append(column.numbers, np.nan)
    return np.append(np.where(there, column.numbers, 0), 0).astype(np.int64)


def _refuse_words(column: TextColumn, there: Bools, where: str | Origin) -> None:
    """Refuse words where numbers are to be predicted."""
    shapes = [shape_of(word)[0] != "" for word in column.distinct]
    words = there & np.isnan(column.numbers) & ~np.array(shapes, bool)
    if words.any() and 2 * words.sum() >= there.sum():
        row, word = column.first(words)
        raise DataError(
            f"{where}: the labels are words (row {number_of_row(where, row)} is {word!r}), and a "
            'regression predicts numbers; for classes write task.name = "tabular", in Python '
            "regression=False"
        )


def _refuse_numbers_in_words(column: TextColumn, odd: Bools, where: str | Origin) -> None:
    """Refuse labels that are numbers in another spelling."""
    for word, strange in zip(column.distinct, odd, strict=True):
        if strange and shape_of(word)[0].startswith(("decimal", "thousands", "comma")):
            row = column.first(np.array([text == word for text in column.distinct]))[0]
            raise DataError(
                f'{row_of(where, row)}: got the label "{word}"; for classes write whole numbers or '
                'words, and to predict numbers task.name = "tabular_regression", in Python '
                'regression=True, with decimal = ","'
            )


def _refuse_truths(column: TextColumn, there: Bools, role: Role, where: str | Origin) -> None:
    """Refuse 0 and 1 of some rows where all others have words for no and yes."""
    numeral = ~np.isnan(column.numbers)
    some_numbers = [w for w, n, t in zip(column.distinct, numeral, there, strict=True) if n and t]
    some_words = [w for w, n, t in zip(column.distinct, numeral, there, strict=True) if t and not n]
    if not (
        some_numbers
        and some_words
        and {float(word) for word in some_numbers if word} <= {0.0, 1.0}
        and all(word.lower() in CODE_WORDS for word in some_words)
    ):
        return
    pairs = ", ".join(
        f'"{numeral}" = "{_called(numeral, some_words)}"' for numeral in sorted(some_numbers)
    )
    raise DataError(
        f"{where}: the {role} in column {column.name!r} is {', '.join(sorted(some_numbers))} in "
        f"some rows and {', '.join(sorted(some_words)[:_MOST])} in others; write which are the "
        f"same, e.g. rename = {{ {pairs} }}"
    )


def _called(number: str, words: Sequence[str]) -> str:
    """Return what 0 or 1 is among words for no and yes: the one of them, or the other of its
    code."""
    folded = {word.lower(): word for word in words}
    code = max(WORD_CODES, key=lambda pair: sum(word in folded for word in pair))
    if any(word in folded for word in code):
        name = code[int(float(number))]
        return folded.get(name, name)
    return sorted(words)[min(int(float(number)), len(words) - 1)]


def label_texts(y: NDArray[Any]) -> frozenset[str]:
    """Return the distinct labels as texts, whole numbers without decimals; empty for labels of
    several dimensions."""
    if y.ndim != 1:
        return frozenset()
    distinct = {*map(str, y.tolist())} if y.dtype.kind in "OU" else np.unique(y).tolist()
    return frozenset(
        f"{value:.15g}" if isinstance(value, float) else str(value) for value in distinct
    )


def refuse_two_codes(
    parts: Sequence[tuple[str, frozenset[str]]], where: str | Origin, classes: int | None = None
) -> None:
    """Refuse labels that are numbers in one part and words in another, or no and yes in two codes,
    such as 0 and 1 in one part and 1 and 2 in another.

    Parameters
    ----------
    parts: name and distinct labels of each.
    classes: how many were named; where no more are there, nothing is refused.

    Raises
    ------
    DataError: lists the labels of both parts, and the line that joins them.
    """
    every = frozenset().union(*(texts for _, texts in parts))
    if classes is not None and len(every) <= classes:
        return
    kinds = [{_is_number(text) for text in texts} for _, texts in parts]
    numbers = next((part for part, kind in zip(parts, kinds, strict=True) if kind == {True}), None)
    words = next((part for part, kind in zip(parts, kinds, strict=True) if kind == {False}), None)
    pair = (numbers, words) if numbers and words else _two_codes(parts)
    if pair is None:
        return
    (first, old), (second, new) = pair
    order = [_in_order(old), _in_order(new)]
    same = [(a, b) for a, b in zip(*order, strict=False) if a != b]
    line = "bring one of them to the other's"
    if not any(a in new for a, _ in same):  # else 1 is no in one part and yes in the other
        pairs = ", ".join(f'"{a}" = "{b}"' for a, b in same[:_MOST])
        line = f"write which are the same, e.g. rename = {{ {pairs} }}"
    stated = str(len(every)) if all(map(_is_number, every)) else "[...], the list of their names,"
    line += f", or write classes = {stated} if they are {len(every)} classes"
    listed = [", ".join(texts[:_MOST]) + ", ..." * (len(texts) > _MOST) for texts in order]
    raise DataError(
        f"{where}: the labels are {listed[0]} in {first} and {listed[1]} in {second}; {line}"
    )


def _two_codes(
    parts: Sequence[tuple[str, frozenset[str]]],
) -> tuple[tuple[str, frozenset[str]], tuple[str, frozenset[str]]] | None:
    """Return two parts whose labels are no and yes in different codes; the one with a number below
    0 comes first. None where there are none, or a part has other labels."""
    folded = [frozenset(text.casefold() for text in texts) for _, texts in parts]
    codes = [frozenset(code) for code in (*NUMBER_CODES, *WORD_CODES)]
    if not all(any(texts <= code for code in codes) for texts in folded):
        return None
    complete = {texts: part for texts, part in zip(folded, parts, strict=True) if texts in codes}
    if len(complete) < 2:
        return None
    first, second = sorted(complete, key=lambda texts: "-1" not in texts)[:2]
    return complete[first], complete[second]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _in_order(texts: frozenset[str]) -> list[str]:
    """Return labels with no before yes, else in their order."""
    place = {word: at for code in (*NUMBER_CODES, *WORD_CODES) for at, word in enumerate(code)}
    if len(texts) == 2 and all(text.casefold() in place for text in texts) and "1" not in texts:
        return sorted(texts, key=lambda text: place[text.casefold()])
    return sorted(texts, key=lambda text: (float(text) if _is_number(text) else np.inf, text))


def renamed_labels(y: NDArray[Any], options: TableOptions) -> NDArray[Any]:
    """Return an array of labels under the names that the options give them, as those of a table;
    numbers where no name is given to one of them stay so."""
    if y.ndim != 1 or not (options.rename or options.trim or options.fold):
        return y
    texts = label_texts(y)
    if y.dtype.kind not in "OU" and not texts & set(options.rename):
        return y
    names = {text: renamed(text, options) for text in texts}
    each = [
        names[f"{value:.15g}" if isinstance(value, float) else str(value)] for value in y.tolist()
    ]
    if y.dtype.kind in "iuf" and all(name.lstrip("-").isdigit() for name in names.values()):
        return np.array(each, np.int64)
    return np.array(each, object)


# ---------------------------------------------------------------------------------------- variants


def refuse_variants(words: Sequence[str], where: str | Origin) -> None:
    """Refuse labels of an array, each given once, that differ in blanks or capitals alone, or are
    both 0 and 1 and words for no and yes.

    Raises
    ------
    DataError: names them, and the line that joins them.
    """
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(trimmed(word).casefold(), []).append(word)
    same = [word for group in groups.values() if len(group) > 1 for word in group]
    if same:
        blanks = len({trimmed(word) for word in same}) < len(same)
        capitals = any(len({trimmed(w) for w in group}) > 1 for group in groups.values())
        lines = ["trim = true"] * blanks + ["fold = true"] * capitals
        kinds = " and ".join(["blanks"] * blanks + ["capitals"] * capitals)
        raise DataError(
            f"{where}: labels differ in {kinds} alone: "
            f"{', '.join(map(repr, sorted(same)[:_MOST]))}; write {' and '.join(lines)}, which "
            "joins them, or give each a name of its own"
        )
    numbers = frozenset(word for word in words if word in ("0", "1"))
    texts = frozenset(words) - numbers
    if numbers and texts and {word.casefold() for word in texts} <= CODE_WORDS:
        refuse_two_codes([("some rows", numbers), ("others", texts)], where)


def refuse_same_words(labels: frozenset[str], where: str | Origin) -> None:
    """Refuse labels of several files that are no and yes in two codes, whoever holds which."""
    pairs = same_words(sorted(labels))
    if pairs:
        raise DataError(
            f"{where}: the labels are {', '.join(sorted(labels)[:_MOST])}, some of which may mean "
            f"the same; write {rename_line(pairs)}, or give each a name of its own"
        )


def refuse_codes_of_clients(
    labels: NDArray[Any], clients: NDArray[Any], where: str | Origin
) -> None:
    """Refuse the labels 0 and 1 (or 1 and 2, -1 and 1) of some clients beside two words of the
    others.

    Raises
    ------
    DataError: names a client of each kind, and the line that joins them.
    """
    distinct = frozenset(labels.tolist()) if labels.dtype.kind == "O" else frozenset()
    numbers = frozenset(filter(_is_number, distinct))
    words = distinct - numbers
    if tuple(sorted(numbers)) not in NUMBER_CODES or len(words) != 2:
        return
    in_words = np.isin(labels, list(words))
    of_words = np.unique(clients[in_words].astype(str))
    of_numbers = np.unique(clients[~in_words].astype(str))
    if not np.isin(of_words, of_numbers).any():
        old, new = _in_order(numbers), _in_order(words)
        raise DataError(
            f"{where}: the labels are {', '.join(old)} of client {of_numbers[0]} and "
            f"{', '.join(new)} of client {of_words[0]}; write which are the same, e.g. "
            f"{rename_line(dict(zip(old, new, strict=True)))}, or give each a name of its own"
        )


def _named(
    column: TextColumn,
    gone: Bools,
    role: Role,
    options: TableOptions,
    where: str | Origin,
    several: bool,
) -> RowColumn:
    """Return a column of words under their names.

    Raises
    ------
    DataError: as of :func:`_joined`.
    """
    spelled = _spellings(column, options) if role == "client" and options.fold else {}
    there = ~column.absent
    if role == "client":
        _refuse_zeros(column, there, where)
        pairs = {}
    else:
        words = [word for word, here in zip(column.distinct, there, strict=True) if here]
        pairs = short_forms(words) if several else same_words(words)
    names, remarks = _joined(
        column, there=there, role=role, options=options, where=where, shown=spelled, pairs=pairs
    )
    return RowColumn(np.array([*names, ""], object)[column.codes], gone, remarks, spelled)


def _spellings(column: TextColumn, options: TableOptions) -> dict[str, str]:
    """Return the most frequent spelling of each name in small letters, of equally frequent ones the
    first; none of a name that ``rename`` gives."""
    unfolded = replace(options, fold=False, rename={})
    rows = np.bincount(column.codes[column.codes >= 0], minlength=len(column.written))
    counts: dict[str, dict[str, int]] = {}
    for name, text, count in zip(column.distinct, column.written, rows.tolist(), strict=True):
        word = renamed(text, unfolded)
        if word.casefold() == name:
            of_name = counts.setdefault(name, {})
            of_name[word] = of_name.get(word, 0) + count
    return {name: max(words, key=lambda word: words[word]) for name, words in counts.items()}


def _joined(
    column: TextColumn,
    there: Bools,
    role: Role,
    options: TableOptions,
    where: str | Origin,
    shown: Mapping[str, str],
    pairs: Mapping[str, str],
) -> tuple[list[str], tuple[str, ...]]:
    """Return the name of each distinct text, and what was joined.

    Parameters
    ----------
    shown: the spelling of some names in messages.
    pairs: words that may mean the same as another one, and that one.

    Raises
    ------
    DataError: texts that differ in blanks or capitals alone, or may mean the same, and nothing says
    whether they are the same.
    """
    here = [at for at, is_there in enumerate(there.tolist()) if is_there]
    names = column.distinct
    groups: dict[str, list[int]] = {}
    for at in here:
        groups.setdefault(trimmed(names[at]).casefold(), []).append(at)
    if options.trim:
        padded = []
    else:
        padded = [
            {column.written[at] for at in group}
            for group in groups.values()
            if len({column.written[at] == trimmed(column.written[at]) for at in group}) > 1
            or len({_blanks(column.written[at]) for at in group}) > 1
        ]
    spelled = [
        {column.written[at] for at in group}
        for group in groups.values()
        if len({trimmed(names[at]) for at in group}) > 1
    ]
    if padded or spelled or pairs:
        same = [*itertools.chain(*padded, *spelled, *pairs.items())]
        kinds = (bool(padded), bool(spelled), pairs)
        raise DataError(_variants(column.name, role, where, dict.fromkeys(same), *kinds))
    joined: dict[str, list[str]] = {}
    for at in here:
        joined.setdefault(names[at], []).append(column.written[at])
    remarks = [
        f"{role} {shown.get(name, name)!r} is also written "
        + ", ".join(repr(form) for form in sorted(forms) if form != shown.get(name, name))
        for name, forms in joined.items()
        if len(forms) > 1
    ]
    return names, tuple(remarks[:_MOST])


def _refuse_zeros(column: TextColumn, there: Bools, where: str | Origin) -> None:
    """Refuse clients that are the same number with and without zeros before it."""
    seen: dict[int, str] = {}
    pairs: dict[str, str] = {}
    for word, here in zip(column.distinct, there, strict=True):
        if here and re.fullmatch(r"\d{1,18}", word):
            first = seen.setdefault(int(word), word)
            if first != word:
                longer, shorter = sorted((first, word), key=len, reverse=True)
                pairs[longer] = shorter
    if pairs:
        listed = " and ".join(map(repr, next(iter(pairs.items()))))
        raise DataError(
            f"{where}: clients in column {column.name!r} differ in zeros before them alone: "
            f"{listed}; write {shortened(rename_line(pairs), 300)}, which joins them, or give each "
            "a name of its own"
        )


def _blanks(word: str) -> tuple[int, ...]:
    """Return where a text has blanks."""
    return tuple(at for at, letter in enumerate(word) if letter.isspace())


def _variants(
    name: str,
    role: Role,
    where: str | Origin,
    spelled: Iterable[str],
    blanks: bool,
    capitals: bool,
    pairs: Mapping[str, str],
) -> str:
    """Return the message that texts may mean the same."""
    lines = ["trim = true"] * blanks + ["fold = true"] * capitals
    if pairs:
        lines.append(rename_line(pairs, folded=capitals))
    same = sorted(spelled)
    listed = ", ".join(map(repr, same[:_MOST]))
    more = f" and {len(same) - _MOST} more" if len(same) > _MOST else ""
    hidden = any(visible(word) != word for word in same)
    blank = "blanks or invisible characters" if hidden else "blanks"
    kinds = [blank] * blanks + ["capitals"] * capitals
    kinds += ["a short form"] * bool(pairs)
    alone = f"differ in {' and '.join(kinds)} alone"
    how = alone if not pairs or short_forms(same) == pairs else "may mean the same"
    return shortened(
        f"{where}: {role}s in column {name!r} {how}: "
        f"{listed}{more}; "
        f"write {' and '.join(lines)}, which joins them, or give each a name of its own",
        1000,
    )
