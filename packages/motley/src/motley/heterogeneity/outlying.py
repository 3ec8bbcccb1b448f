"""Single clients that differ from all others: which, in what, and what to do about it.

Columns and labels are judged again without the most outlying clients until no other is outlying, so
that one client's faults are not told of its neighbours. Where more than a quarter of the clients
(and more than two) would be told, clients differ widely and none is outlying. Those whose columns
lie hardly farther out than the others' count for that, and are not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.keys import Key
from motley.heterogeneity.class_faults import absent_classes, shared_rows
from motley.heterogeneity.client_data import ClientData
from motley.heterogeneity.column_faults import ColumnFaults, Rows, column_faults, spread_ratio
from motley.heterogeneity.features import cheap_features
from motley.heterogeneity.findings import OutlyingClient
from motley.heterogeneity.label_faults import LabelFault, label_faults

__all__ = ["outlying_clients"]

CLIENTS = 2000
ROWS = 20_000
NUMBERS = 2_000_000
"""Clients, rows and numbers of their columns that are looked at, at most."""
_TABLE = 512
_FLAT = 128
"""Columns of a table, and numbers of another sample, that are looked at one by one; of longer
samples cheap features are."""
_FACTOR = 1.5
"""Factor below which other units are not told from an offset."""
_MIXED = 0.25
"""Share of a difference by which a client's mix of classes may change it; beyond, one class is
told."""
_ROUNDED = 1e-6
_INPUTS = "the inputs"


class _SeenRows(NamedTuple):
    """The values of some rows and how they are told: names ``[D]``, ``x * scale + shift`` in the
    units of the raw table, and the names of classes; empty for targets that are numbers."""

    rows: Rows
    names: tuple[str, ...]
    shift: Floats
    scale: Floats
    classes: tuple[str, ...]

    def raw(self, column: int, x: Floats) -> Floats:
        """Return values of a column in the units of the raw table; what single precision leaves of
        0 is 0."""
        shift, scale = float(self.shift[column]), float(self.scale[column])
        raw = x * scale + shift
        return np.where(np.abs(raw) < _ROUNDED * max(abs(shift), abs(x * scale).max()), 0.0, raw)


def outlying_clients(
    data: ClientData, hashes: NDArray[np.uint64], key: Key
) -> list[OutlyingClient]:
    """Return the outlying clients, by number.

    Parameters
    ----------
    hashes: of each sample's bytes, aligned with ``data.rows.values``. key: of the rows drawn.
    """
    found = _classes_and_copies(data, hashes) if data.targets == "classes" else []
    seen = _columns(data, key)
    if seen is not None:
        found += _columns_and_labels(data, seen, key)
    return sorted(found, key=lambda one: (one.client, one.kind))


def _widely(told: list[OutlyingClient], clients: int) -> bool:
    """Return whether so many clients are told that none is outlying."""
    return len({one.client for one in told}) > max(2, clients / 4)


def _classes_and_copies(data: ClientData, hashes: NDArray[np.uint64]) -> list[OutlyingClient]:
    """Return clients with an absent class or with copies."""
    counts = data.histogram(slice(None))
    absent = [
        OutlyingClient(
            one.client,
            "absent class",
            "",
            f"no sample of class {data.class_name(one.label)!r}; elsewhere {one.others:.0%} are of "
            "it",
            "ask whether its rows were left out there",
        )
        for one in absent_classes(counts)
    ]
    copies = []
    for pair in shared_rows(hashes, data.rows.owner, data.labels, counts):
        for client, other in {(pair.one, pair.other), (pair.other, pair.one)}:
            where = "are repeated there" if client == other else f"also lie at {data.name(other)}"
            said = f"{pair.number} of {data.rows.sizes[client]} samples {where}"
            copies.append(
                OutlyingClient(
                    client,
                    "copied data",
                    "",
                    said,
                    "keep one of each: a copy counts twice, and is no test",
                )
            )
    return [one for kind in (absent, copies) if not _widely(kind, len(data)) for one in kind]


# ------------------------------------------------------------------------------- columns and labels


def _columns(data: ClientData, key: Key) -> _SeenRows | None:
    """Return some rows of all clients with their columns; None where samples are no numbers, or
    clients are few."""
    held = np.flatnonzero(data.rows.sizes)
    chosen = np.sort(held[key.fold("outlying clients").numpy().permutation(len(held))[:CLIENTS]])
    first = data.read(data.rows.values[:1])
    width = int(np.prod(first.shape[1:]))
    plain = width <= (_TABLE if first.ndim == 2 else _FLAT)
    if len(chosen) < 4 or (first.dtype.kind == "i" and first.ndim == 2):
        return None
    at = _drawn(data, chosen, min(ROWS, NUMBERS // min(width, _TABLE)), key)
    raw = data.read(data.rows.values[at])
    x = (
        raw.reshape(len(raw), -1).astype(np.float64)
        if plain
        else cheap_features(raw, key).astype(np.float64)
    )
    rows = Rows(data.rows.owner[at], data.labels[at], x, len(data), data.classes)
    known = plain and len(data.columns.names) == x.shape[1]
    names = (
        data.columns.names
        if known
        else tuple(f"column {j}" if plain else _INPUTS for j in range(x.shape[1]))
    )
    shift, scale = (
        (data.columns.shift, data.columns.scale)
        if known
        else (np.zeros(x.shape[1]), np.ones(x.shape[1]))
    )
    classes = tuple(map(data.class_name, range(data.classes))) if data.targets == "classes" else ()
    return _SeenRows(rows, names, shift, scale, classes)


def _drawn(data: ClientData, clients: Ids, budget: int, key: Key) -> Ints:
    """Return positions of rows: of each client as many as it has, but no more than so that all are
    about ``budget``."""
    sizes = np.sort(data.rows.sizes[clients])
    # what each of the larger may give
    rest = (budget - np.concatenate([[0], np.cumsum(sizes)[:-1]])) / np.arange(len(sizes), 0, -1)
    fits = np.flatnonzero(sizes > rest)
    each = max(int(rest[fits[0]]), 10) if len(fits) else int(sizes[-1])
    drawn = []
    for k in clients.tolist():
        first = int(data.rows.offsets[k])
        size = int(data.rows.sizes[k])
        chosen = (
            key.fold("outlying rows", k).numpy().choice(size, each, replace=False)
            if size > each
            else np.arange(size)
        )
        drawn.append(first + np.sort(chosen))
    return np.concatenate(drawn)


def _columns_and_labels(data: ClientData, seen: _SeenRows, key: Key) -> list[OutlyingClient]:
    """Return clients with outlying columns or labels; those who are found are taken out before the
    others are judged again."""
    rows = seen.rows
    told = list[OutlyingClient]()
    near = set[int]()
    clients = len(np.unique(rows.owner))
    constant = column_faults(rows, key).constant
    while not _widely(told, clients):
        columns = column_faults(rows, key)
        labels = _labels(data, rows, columns, key)
        size = columns.size.copy()
        for fault in labels.values():
            size[fault.client] = max(size[fault.client], fault.size)
        worst = np.argsort(-size)[: max(1, clients // 20)]
        worst = worst[size[worst] > 0]
        if not len(worst):
            break
        for k in worst.tolist():
            if k not in labels and not columns.farther[k]:
                near.add(k)
            told += (
                _of_labels(data, labels[k])
                if k in labels
                else _of_columns(seen._replace(rows=rows), k, columns, key)
            )
        kept = ~np.isin(rows.owner, worst)
        rows = rows._replace(owner=rows.owner[kept], y=rows.y[kept], x=rows.x[kept])
    told = [] if _widely(told, clients) else [one for one in told if one.client not in near]
    return told + _constant(seen, constant)


def _labels(data: ClientData, rows: Rows, columns: ColumnFaults, key: Key) -> dict[int, LabelFault]:
    """Return the clients with swapped or random labels; none where targets are numbers."""
    if data.targets != "classes":
        return {}
    return {one.client: one for one in label_faults(rows, columns, key)}


def _of_labels(data: ClientData, fault: LabelFault) -> list[OutlyingClient]:
    """Return a client with swapped or random labels."""
    denied = (
        f"a classifier of all clients denies {fault.denied:.0%} of its labels and "
        f"{fault.expected:.0%} of like ones elsewhere"
    )
    if fault.swap is None:
        remedy = "check its labels, or leave it out"
        return [OutlyingClient(fault.client, "random labels", "", denied, remedy)]
    names = [
        f"{data.class_name(a)} is {data.class_name(b)}"
        for a, b in enumerate(fault.swap.tolist())
        if a != b
    ]
    said = f"{denied}; they agree if what it calls {', '.join(names[:4])}"
    return [OutlyingClient(fault.client, "swapped labels", "", said, "rename its classes")]


def _of_columns(
    seen: _SeenRows, client: int, columns: ColumnFaults, key: Key
) -> list[OutlyingClient]:
    """Return a client with columns in other units or with an offset: the first of each kind, and
    how many more."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for j in np.flatnonzero((columns.place | columns.spread)[client]).tolist():
        kind, said = _column(seen, client, j, bool(columns.spread[client, j]), key)
        if kind:
            kinds.setdefault(kind, []).append((seen.names[j], said))
    remedies = {
        "units": 'repair the unit, or set task.scale = "client"',
        "offset": 'look how it is measured there, or set task.scale = "client"',
    }
    told = []
    for kind, those in kinds.items():
        more = len(those) - 1
        said = those[0][1] + (_and_more(more) if those[0][0] != _INPUTS else "")
        told.append(OutlyingClient(client, kind, those[0][0], said, remedies[kind]))  # type: ignore[arg-type]
    return told


def _column(seen: _SeenRows, client: int, j: int, spread: bool, key: Key) -> tuple[str, str]:
    """Return the kind of an outlying column, ``"units"`` or ``"offset"``, and what is told of it;
    empty: nothing is.

    Where its spread is not outlying, units are other if a factor makes the client's values more
    like the others' than a shift does.
    """
    name = seen.names[j]
    if name == _INPUTS:
        return (
            ("units", "the inputs spread otherwise")
            if spread
            else ("offset", "the inputs lie elsewhere")
        )
    values = seen.raw(j, seen.rows.x[:, j])
    own = seen.rows.owner == client
    others = {
        int(c): np.sort(values[~own & (seen.rows.y == c)]) for c in np.unique(seen.rows.y[~own])
    }
    known = own & np.isin(seen.rows.y, list(others))
    mine = values[known]
    label = seen.rows.y[known]
    like = np.array([np.median(others[c]) for c in label.tolist()])
    times = float(np.median(mine / like)) if like.all() else np.nan
    moved = mine - np.median(mine - like)
    here, there, medians = _medians(seen, values, own, float(np.median(mine - like)), times)
    if (
        times > 0
        and max(times, 1 / times) >= _FACTOR
        and _misfit(mine / times, label, others) < _misfit(moved, label, others)
    ):
        told = f" {_short(here / there)} times the others'" if here * there > 0 else " multiplied"
        return "units", f"{name}{told} ({medians})"
    if spread:
        ratio = spread_ratio(seen.rows, client, j, key)
        return "units", f"{name} spreads {_short(ratio)} times as far as the others' ({medians})"
    # a column of mostly one value, more or less often
    if float(np.median(mine)) == float(np.median(like)):
        return "", ""
    return "offset", f"{name} lies elsewhere and spreads as the others' ({medians})"


def _medians(
    seen: _SeenRows, values: Floats, own: Bools, apart: float, times: float
) -> tuple[float, float, str]:
    """Return the medians of the client's and of the others' values, and how they are told: of the
    class that the client has most of where its mix of classes moves its median.

    Parameters
    ----------
    values, own: of a column, and which are the client's ``[n]``. apart, times: difference and ratio
    of the client's values to the median of others' of the same class.
    """
    here, there = (float(np.median(values[part])) for part in (own, ~own))
    of = ""
    mixed = abs(here - there - apart) > _MIXED * abs(apart)
    if times > 0 and here * there > 0:
        mixed |= abs(np.log(here / there / times)) > _MIXED
    if seen.classes and mixed:
        counts = np.bincount(seen.rows.y[own], minlength=len(seen.classes))
        counts[np.bincount(seen.rows.y[~own], minlength=len(counts)) == 0] = 0
        most = int(counts.argmax())
        here, there = (
            float(np.median(values[part & (seen.rows.y == most)])) for part in (own, ~own)
        )
        of = f" of class {seen.classes[most]!r}"
    return here, there, f"median{of} {_short(here)} against {_short(there)}"


def _misfit(values: Floats, label: Ints, others: Mapping[int, Floats]) -> float:
    """Return how far the ranks of values among others' of the same class are from even: the largest
    distance of their law to it."""
    rank = np.empty(len(values))
    for c in np.unique(label).tolist():
        at = label == c
        there = others[c]
        both = [np.searchsorted(there, values[at], side=side) for side in ("left", "right")]
        rank[at] = (both[0] + both[1]) / (2 * len(there))
    return float(np.abs(np.sort(rank) - (np.arange(len(rank)) + 0.5) / len(rank)).max())


def _constant(seen: _SeenRows, constant: Bools) -> list[OutlyingClient]:
    """Return clients that have one value alone in a column; none where many have."""
    told = []
    for k in np.flatnonzero(constant.any(axis=1)).tolist():
        j, *more = np.flatnonzero(constant[k]).tolist()
        value = float(seen.raw(j, seen.rows.x[seen.rows.owner == k, j][:1])[0])
        said = f"{seen.names[j]} is always {_short(value)}" + _and_more(len(more))
        told.append(
            OutlyingClient(
                k,
                "constant column",
                seen.names[j],
                said,
                "repair the column, or leave it out with task.drop",
            )
        )
    return [] if _widely(told, len(np.unique(seen.rows.owner))) else told


def _and_more(columns: int) -> str:
    """Return how many more columns there are in brackets; empty for none."""
    return f" (and {columns} more column{'' if columns == 1 else 's'})" if columns else ""


def _short(value: float) -> str:
    """Return a number with three digits."""
    return f"{float(f'{value:.3g}'):,.10g}"
