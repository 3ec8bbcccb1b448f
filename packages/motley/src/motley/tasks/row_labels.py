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
from motley.tasks.column_spelling import (
    NumberStyle,
    TextColumn,
    is_text,
    refuse_doubt,
    refuse_spelling,
)
from motley.tasks.origin import Origin, number_of_row, row_of
from motley.tasks.raw_table import (
    decoded,
    refuse_infinite,
    renamed,
    text_column,
    trimmed,
    without_gaps,
)
from motley.tasks.spellings import shape_of, visible
from motley.tasks.table_options import TableOptions

__all__ = [
    "RowColumn",
    "label_texts",
    "read_row_column",
    "refuse_two_codes",
    "refuse_variants",
    "renamed_labels",
]

Role = Literal["label", "client", "target"]
"""A class, whose a row is, or a number to predict."""

_MOST = 6
"""Spellings that a message lists, at most."""
_SHORT = {
    frozenset(("y", "yes")),
    frozenset(("n", "no")),
    frozenset(("t", "true")),
    frozenset(("f", "false")),
    frozenset(("j", "ja")),
    frozenset(("n", "nein")),
    frozenset(("m", "male")),
    frozenset(("f", "female")),
    frozenset(("w", "weiblich")),
    frozenset(("m", "männlich")),
    frozenset(("pos", "positive")),
    frozenset(("neg", "negative")),
}
"""Words and their usual short forms."""
_TRUTH = {"true", "false"}
_CODES = (
    ("0", "1"),
    ("1", "2"),
    ("-1", "1"),
    ("false", "true"),
    ("f", "t"),
    ("no", "yes"),
    ("n", "y"),
    ("nein", "ja"),
    ("neg", "pos"),
    ("negative", "positive"),
)
"""Codes of no and of yes."""


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
        return _named(column, gone, role, options, where=where)
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
    return _named(column, gone, role, options, where=where)


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
    truth = {word.lower() for pair in _SHORT for word in pair}
    if not (
        some_numbers
        and some_words
        and {float(word) for word in some_numbers if word} <= {0.0, 1.0}
        and all(word.lower() in truth for word in some_words)
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
    for code in _CODES[3:]:
        for word in sorted(words):
            if word.lower() in code:
                same = [
                    candidate
                    for candidate in words
                    if candidate.lower() == code[int(float(number))]
                ]
                return same[0] if same else code[int(float(number))]
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
    codes = [frozenset(code) for code in _CODES]
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
    place = {word: at for code in _CODES for at, word in enumerate(code)}
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
    code_words = {word for code in _CODES[3:] for word in code}
    if numbers and texts and {word.casefold() for word in texts} <= code_words:
        refuse_two_codes([("some rows", numbers), ("others", texts)], where)


def _named(
    column: TextColumn, gone: Bools, role: Role, options: TableOptions, where: str | Origin
) -> RowColumn:
    """Return a column of words under their names.

    Raises
    ------
    DataError: as of :func:`_joined`.
    """
    spelled = _spellings(column, options) if role == "client" and options.fold else {}
    names, remarks = _joined(
        column, there=~column.absent, role=role, options=options, where=where, shown=spelled
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
) -> tuple[list[str], tuple[str, ...]]:
    """Return the name of each distinct text, and what was joined; ``shown``: the
    spelling of some names in messages.

    Raises
    ------
    DataError: texts that differ in blanks, capitals or a usual short form alone, and nothing says
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
    short = _short_forms(list(groups)) if role == "label" else []
    if padded or spelled or short:
        same = [*itertools.chain(*padded, *spelled, *short)]
        kinds = (bool(padded), bool(spelled), short)
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


def _blanks(word: str) -> tuple[int, ...]:
    """Return where a text has blanks."""
    return tuple(at for at, letter in enumerate(word) if letter.isspace())


def _short_forms(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of a word and its usual short form."""
    distinct = set(words)
    pairs = (sorted(pair, key=len) for pair in sorted(_SHORT, key=sorted) if pair <= distinct)
    return [(short, long) for short, long in pairs]


def _variants(
    name: str,
    role: Role,
    where: str | Origin,
    spelled: Iterable[str],
    blanks: bool,
    capitals: bool,
    short: Sequence[tuple[str, str]],
) -> str:
    """Return the message that texts may mean the same."""
    lines = ["trim = true"] * blanks + ["fold = true"] * capitals
    if short:
        pairs = ", ".join(f'"{form}" = "{word}"' for form, word in short)
        lines.append(f"rename = {{ {pairs} }}")
    same = sorted(spelled)
    listed = ", ".join(map(repr, same[:_MOST]))
    more = f" and {len(same) - _MOST} more" if len(same) > _MOST else ""
    hidden = any(visible(word) != word for word in same)
    blank = "blanks or invisible characters" if hidden else "blanks"
    kinds = [blank] * blanks + ["capitals"] * capitals + ["a short form"] * bool(short)
    return shortened(
        f"{where}: {role}s in column {name!r} differ in {' and '.join(kinds)} alone: "
        f"{listed}{more}; "
        f"write {' and '.join(lines)}, which joins them, or give each a name of its own",
        1000,
    )
