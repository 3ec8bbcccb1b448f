"""Single clients that differ from all others: which, in what, and what to do about it; and the
columns in which the others differ among themselves.

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
from motley_advice.heterogeneity.class_faults import SharedRows, absent_classes, shared_rows
from motley_advice.heterogeneity.client_data import ClientData, quantile_bins
from motley_advice.heterogeneity.column_faults import (
    MANY,
    ColumnFaults,
    Rows,
    column_faults,
    spread_ratio,
)
from motley_advice.heterogeneity.column_shifts import ColumnShift, column_shifts
from motley_advice.heterogeneity.features import cheap_features
from motley_advice.heterogeneity.findings import DifferingColumn, OutlyingClient
from motley_advice.heterogeneity.label_faults import LabelFault, guessed_classes, label_faults

_CLIENTS = 4
"""Clients below which none is an outlying one by its columns or labels."""
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
_BOTH_SIGNS = 0.1
"""Share of values above and below 0 from which a column's sizes are told in place of its values."""
_BINS = 10
"""Quantile bins of a regression's target that stand for classes here. In wide ones a client of
larger targets has larger targets within a bin, too, and so other values of columns that tell them.
"""
_ROUNDED = 1e-6
_INPUTS = "the inputs"
_REMEDIES = {
    "units": 'repair the unit, or set task.scale = "client"',
    "offset": 'look how it is measured there, or set task.scale = "client"',
    "constant column": "repair the column, or leave it out with task.drop",
}
_PREPARED = "look how samples are prepared there"
"""What to do about columns, and about pictures and other samples, which have none."""
_TIMES = 4
"""Times that odd clients and the columns in which the others differ are looked for in turn."""
_NAMED = 5
"""Other clients that a client's copies are told of, at most."""
_TOLD = 3
"""Columns of a kind of fault that are told with their numbers, at most; of others the name."""


class _SeenRows(NamedTuple):
    """The values of some rows and how they are told: names ``[D]``, ``x * scale + shift`` in the
    units of the raw table, what fills gaps there (NaN: nothing), the names of classes (empty for
    targets that are numbers), and whether samples are rows of columns."""

    rows: Rows
    names: tuple[str, ...]
    shift: Floats
    scale: Floats
    fill: Floats
    classes: tuple[str, ...]
    tabular: bool

    @property
    def clients(self) -> int:
        """Number of clients with rows."""
        return len(np.unique(self.rows.owner))

    def without(self, clients: list[int]) -> _SeenRows:
        """Return the rows of all other clients."""
        rows = self.rows
        remaining = ~np.isin(rows.owner, clients)
        return self._replace(
            rows=rows._replace(
                owner=rows.owner[remaining], y=rows.y[remaining], x=rows.x[remaining]
            )
        )

    def without_columns(self, columns: list[int]) -> _SeenRows:
        """Return the rows without some columns."""
        remaining = np.delete(np.arange(len(self.names)), columns)
        return self._replace(
            rows=self.rows._replace(x=self.rows.x[:, remaining]),
            names=tuple(self.names[j] for j in remaining.tolist()),
            shift=self.shift[remaining],
            scale=self.scale[remaining],
            fill=self.fill[remaining],
        )

    def raw(self, column: int, x: Floats) -> Floats:
        """Return values of a column in the units of the raw table; what single precision leaves of
        0 is 0."""
        shift, scale = float(self.shift[column]), float(self.scale[column])
        raw = x * scale + shift
        return np.where(np.abs(raw) < _ROUNDED * max(abs(shift), abs(x * scale).max()), 0.0, raw)


def outlying_clients(
    data: ClientData, hashes: NDArray[np.uint64], certain: Bools, key: Key
) -> tuple[list[OutlyingClient], list[DifferingColumn]]:
    """Return the outlying clients, by number, and the columns in which the others differ.

    Parameters
    ----------
    hashes: of each sample's bytes, aligned with ``data.rows.values``.
    certain: which samples are copies for certain ``[n]``.
    key: of the rows drawn.
    """
    outlying = _copies(data, hashes, certain)
    outlying += _absent(data) if data.targets == "classes" else []
    seen = _columns(data, key)
    shifts = list[DifferingColumn]()
    if seen is not None:
        named = _columns_and_labels(data, seen, key)
        odd = [client.client for client in named]
        shifts = _shifts(data, seen.without(odd), key)
        outlying += named
    return sorted(outlying, key=lambda client: (client.client, client.kind)), shifts


def _widely(outlying: list[OutlyingClient], clients: int) -> bool:
    """Return whether so many clients are told that none is outlying."""
    return len({client.client for client in outlying}) > max(2, clients / 4)


def _absent(data: ClientData) -> list[OutlyingClient]:
    """Return clients with an absent class; none where many have."""
    absent = [
        OutlyingClient(
            client=absence.client,
            kind="absent class",
            columns=(),
            said=f"no sample of class {data.class_name(absence.label)!r}; elsewhere "
            f"{absence.share_elsewhere:.0%} are of it",
            remedy="ask whether its rows were left out there",
        )
        for absence in absent_classes(data.histogram(slice(None)))
    ]
    return [] if _widely(absent, len(data)) else absent


def _copies(data: ClientData, hashes: NDArray[np.uint64], certain: Bools) -> list[OutlyingClient]:
    """Return clients with copies; of samples that may be equal by chance none where many have."""
    counts = data.histogram(slice(None))
    outlying = []
    for which in (certain, ~certain):
        at = np.flatnonzero(which)
        pairs = shared_rows(
            hashes=hashes[at],
            owner=data.rows.owner[at],
            y=data.labels[at],
            counts=counts,
            certain=which is certain,
        )
        copies = _of_copies(data, hashes, pairs)
        outlying += copies if which is certain or not _widely(copies, len(data)) else []
    return outlying


def _of_copies(
    data: ClientData, hashes: NDArray[np.uint64], pairs: list[SharedRows]
) -> list[OutlyingClient]:
    """Return the clients of pairs that share samples, each once for others' samples and once for
    its own."""
    partners: dict[int, set[int]] = {}
    for pair in pairs:
        partners.setdefault(pair.first, set()).add(pair.second)
        partners.setdefault(pair.second, set()).add(pair.first)
    copied = []
    for client, those in sorted(partners.items()):
        mine = hashes[_positions(data, client)]
        other_clients = sorted(those - {client})
        if other_clients:
            theirs = np.concatenate(
                [hashes[_positions(data, partner)] for partner in other_clients]
            )
            copied.append(
                (
                    client,
                    int(np.isin(mine, theirs).sum()),
                    f"also lie at {_named(data, other_clients)}",
                )
            )
        if client in those:
            copied.append((client, len(mine) - len(np.unique(mine)), "repeat others there"))
    return [
        OutlyingClient(
            client=client,
            kind="copied data",
            columns=(),
            said=f"{number} of {data.rows.sizes[client]} samples {where}",
            remedy="keep one of each: a copy counts twice, and is no test",
        )
        for client, number, where in copied
    ]


def _positions(data: ClientData, client: int) -> slice:
    """Return the positions of a client's rows."""
    return slice(*data.rows.offsets[client : client + 2].tolist())


def _named(data: ClientData, clients: list[int]) -> str:
    """Return the names of clients, of many the first ones and how many more there are."""
    names = [data.name(client) for client in clients[:_NAMED]]
    more = len(clients) - _NAMED
    return ", ".join(names) + (f" and {more} more client{'s' * (more > 1)}" if more > 0 else "")


# ------------------------------------------------------------------------------- columns and labels


def _columns(data: ClientData, key: Key) -> _SeenRows | None:
    """Return some rows of all clients with their columns; None where samples are no numbers, or
    clients are few."""
    held = np.flatnonzero(data.rows.sizes)
    chosen = np.sort(held[key.fold("outlying clients").numpy().permutation(len(held))[:CLIENTS]])
    first = data.read(data.rows.values[:1])
    width = int(np.prod(first.shape[1:]))
    plain = width <= (_TABLE if first.ndim == 2 else _FLAT)
    if len(chosen) < 2 or (first.dtype.kind == "i" and first.ndim == 2):
        return None
    at = _drawn(data, chosen, min(ROWS, NUMBERS // min(width, _TABLE)), key)
    raw = data.read(data.rows.values[at])
    if plain:
        x = raw.reshape(len(raw), -1).astype(np.float64)
    else:
        x = cheap_features(raw, key).astype(np.float64)
    y, classes = data.labels[at], data.classes
    if len(data.target):
        y, classes = quantile_bins(data.target[at], _BINS), _BINS
    rows = Rows(owner=data.rows.owner[at], y=y, x=x, clients=len(data), classes=classes)
    by_name = plain and len(data.columns.names) == x.shape[1]
    if by_name:
        names = data.columns.names
    else:
        names = tuple(f"column {j}" if plain else _INPUTS for j in range(x.shape[1]))
    if by_name:
        shift, scale, fill = (data.columns.shift, data.columns.scale, data.columns.fill)
    else:
        shift, scale = (np.zeros(x.shape[1]), np.ones(x.shape[1]))
        fill = np.full(x.shape[1], np.nan)
    shown = tuple(map(data.class_name, range(data.classes))) if data.targets == "classes" else ()
    return _SeenRows(
        rows=rows,
        names=names,
        shift=shift,
        scale=scale,
        fill=fill,
        classes=shown,
        tabular=first.ndim == 2,
    )


def _drawn(data: ClientData, clients: Ids, budget: int, key: Key) -> Ints:
    """Return positions of rows: of each client as many as it has, but no more than so that all are
    about ``budget``."""
    sizes = np.sort(data.rows.sizes[clients])
    # what each of the larger may give
    shares = (budget - np.concatenate([[0], np.cumsum(sizes)[:-1]])) / np.arange(len(sizes), 0, -1)
    fits = np.flatnonzero(sizes > shares)
    each = max(int(shares[fits[0]]), 10) if len(fits) else int(sizes[-1])
    drawn = []
    for k in clients.tolist():
        first = int(data.rows.offsets[k])
        size = int(data.rows.sizes[k])
        if size > each:
            chosen = key.fold("outlying rows", k).numpy().choice(size, each, replace=False)
        else:
            chosen = np.arange(size)
        drawn.append(first + np.sort(chosen))
    return np.concatenate(drawn)


def _columns_and_labels(data: ClientData, seen: _SeenRows, key: Key) -> list[OutlyingClient]:
    """Return clients with outlying columns or labels.

    Where so many are that none is, columns in which several of the others differ among themselves
    are left out, and all are judged again by the other columns.
    """
    if seen.clients < _CLIENTS:
        return []
    outlying = _odd_clients(data, seen, key)
    odd = list[int]()
    for _ in range(0 if outlying is not None else _TIMES):
        remaining = seen.without(odd).rows
        shifts = column_shifts(remaining, guessed_classes(remaining), key)
        common = [shift.column for shift in shifts if shift.several]
        if not 0 < len(common) < len(seen.names):
            break
        outlying = _odd_clients(data, seen.without_columns(common), key)
        odd_clients = sorted({client.client for client in outlying or []})
        if odd_clients == odd:
            break
        odd = odd_clients
    outlying = outlying or []
    if outlying and seen.clients < MANY:
        remaining = seen.without([client.client for client in outlying]).rows
        shifts = column_shifts(remaining, guessed_classes(remaining), key)
        outlying = [client for client in outlying if _beyond_others(seen, client, shifts, key)]
    return outlying + _constant(seen, column_faults(seen.rows, key).constant)


def _beyond_others(
    seen: _SeenRows, client: OutlyingClient, shifts: list[ColumnShift], key: Key
) -> bool:
    """Return whether a client is farther out than others that differ among themselves: in one of
    its columns the others do not, or it lies, or spreads, farther outside their range than that is
    wide."""
    shifted = {seen.names[shift.column] for shift in shifts}
    return not client.columns or any(
        name not in shifted or _outside(seen, client.client, seen.names.index(name), key)
        for name in client.columns
    )


def _outside(seen: _SeenRows, client: int, column: int, key: Key) -> bool:
    """Return whether a client's median or spread in a column is farther outside the range of all
    others than this is wide."""
    clients = [client, *(k for k in np.unique(seen.rows.owner).tolist() if k != client)]
    measured = (
        [_like_median(seen, column, k) for k in clients],
        [np.log(max(spread_ratio(seen.rows, k, column, key), _ROUNDED)) for k in clients],
    )
    return any(
        max(min(elsewhere) - own, own - max(elsewhere)) > max(elsewhere) - min(elsewhere)
        for own, *elsewhere in measured
    )


def _odd_clients(data: ClientData, seen: _SeenRows, key: Key) -> list[OutlyingClient] | None:
    """Return clients with outlying columns or labels, None where so many are that none is; those
    who are found are taken out before the others are judged again."""
    rows = seen.rows
    outlying = list[OutlyingClient]()
    near = set[int]()
    clients = seen.clients
    while not _widely(outlying, clients):
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
            faults = columns
            if k in labels:
                outlying += _of_labels(data, labels[k])
                faults = _whatever_labels(rows, columns, labels[k], key)
            outlying += _of_columns(seen._replace(rows=rows), k, faults, key)
        rows = seen._replace(rows=rows).without(worst.tolist()).rows
    if _widely(outlying, clients):
        return None
    return [client for client in outlying if client.client not in near]


def _shifts(data: ClientData, seen: _SeenRows, key: Key) -> list[DifferingColumn]:
    """Return the columns in which clients differ, the largest difference first; none where they
    have no names."""
    rows = seen.rows
    if _INPUTS in seen.names or not len(rows.y):
        return []
    return [
        DifferingColumn(seen.names[shift.column], _of_shift(data, seen, shift, key), shift.size)
        for shift in column_shifts(rows, guessed_classes(rows), key)
    ]


def _of_shift(data: ClientData, seen: _SeenRows, shift: ColumnShift, key: Key) -> str:
    """Return how clients differ in a column."""
    parts = []
    if shift.place:
        names = [data.name(k) for k in shift.place]
        parts.append(_of_place(seen, shift.column, shift.place, names))
    if shift.spread:
        names = [data.name(k) for k in shift.spread]
        ratios = [spread_ratio(seen.rows, k, shift.column, key) for k in shift.spread]
        if not np.isnan(ratios).any():
            least, most = map(_short, ratios)
            parts.append(
                f"spreads {least} times as far as elsewhere at {names[0]}, {most} times at "
                f"{names[1]}"
            )
        elif not parts:  # mostly one value, whose differences are 0
            parts.append(f"has fewest other values at {names[0]}, most at {names[1]}")
    return f"{seen.names[shift.column]}: {'; '.join(parts)}"


def _of_place(seen: _SeenRows, column: int, ends: tuple[int, int], names: list[str]) -> str:
    """Return how far apart the values of two clients lie in a column; of a column of two values,
    how often each client has the larger one."""
    values = seen.raw(column, seen.rows.x[:, column])
    top = values.max()
    if len(np.unique(values)) == 2:
        low, high = (f"{_like_share(seen, values == top, k):.0%}" for k in ends)
        return (
            f"{_short(top)} in {low} of the samples at {names[0]}, in {high} at {names[1]}, at "
            "equal classes"
        )
    low, high = (_short(_like_median(seen, column, k)) for k in ends)
    return f"median from {low} at {names[0]} to {high} at {names[1]}, at equal classes"


def _like_share(seen: _SeenRows, which: Bools, client: int) -> float:
    """Return the share of a client's rows that would be among some ``[n]`` if its classes were as
    frequent as those of all clients: the share of all, and how far its own classes' lie from it."""
    own = seen.rows.owner == client
    of_class = [seen.rows.y == c for c in np.unique(seen.rows.y[own]).tolist()]
    apart = [float(which[own & rows].mean() - which[rows].mean()) for rows in of_class]
    share = which.mean() + np.average(apart, weights=[rows.sum() for rows in of_class])
    return float(np.clip(share, 0.0, 1.0))


def _like_median(seen: _SeenRows, column: int, client: int) -> float:
    """Return the median of a client's column if it had the classes of all clients: the median of
    all, and how far its values lie from those of their class."""
    values = seen.raw(column, seen.rows.x[:, column])
    own = seen.rows.owner == client
    apart = [
        values[own & (seen.rows.y == c)] - np.median(values[seen.rows.y == c])
        for c in np.unique(seen.rows.y[own]).tolist()
    ]
    return float(np.median(values) + np.median(np.concatenate(apart)))


def _labels(data: ClientData, rows: Rows, columns: ColumnFaults, key: Key) -> dict[int, LabelFault]:
    """Return the clients with swapped or random labels; none where targets are numbers."""
    if data.targets != "classes":
        return {}
    return {fault.client: fault for fault in label_faults(rows, columns, key)}


def _whatever_labels(
    rows: Rows, columns: ColumnFaults, fault: LabelFault, key: Key
) -> ColumnFaults:
    """Return the outlying columns that are so whatever a client's labels are, since wrong labels
    make columns outlying within classes: with its classes renamed where that mends them, else
    within the classes that the columns without a fault guess."""
    if fault.mended and fault.swap is not None:
        own = rows.owner == fault.client
        return column_faults(rows._replace(y=np.where(own, fault.swap[rows.y], rows.y)), key)
    sound = np.ones(rows.x.shape[1], bool)
    for _ in range(2):
        guessed = guessed_classes(rows._replace(x=rows.x[:, sound]))
        within_guessed = column_faults(rows._replace(y=guessed), key)
        sound = ~within_guessed.any[fault.client]
        if not sound.any():
            break
    far = within_guessed.farther[:, None]
    return columns._replace(
        place=columns.place & within_guessed.place & far,
        spread=columns.spread & within_guessed.spread & far,
    )


def _of_labels(data: ClientData, fault: LabelFault) -> list[OutlyingClient]:
    """Return a client with swapped or random labels."""
    denied = (
        f"a classifier of all clients denies {fault.denied:.0%} of its labels and "
        f"{fault.expected:.0%} of like ones elsewhere"
    )
    if fault.swap is None:
        remedy = "check its labels, or leave it out"
        return [
            OutlyingClient(
                client=fault.client, kind="random labels", columns=(), said=denied, remedy=remedy
            )
        ]
    names = [
        f"{data.class_name(a)} is {data.class_name(b)}"
        for a, b in enumerate(fault.swap.tolist())
        if a != b
    ]
    called = ", ".join(names)
    if fault.mended:
        sentence = f"{denied}; they agree if what it calls {called}"
        return [
            OutlyingClient(
                client=fault.client,
                kind="swapped labels",
                columns=(),
                said=sentence,
                remedy="rename these classes there",
            )
        ]
    sentence = f"{denied}; if what it calls {called}, it still denies {fault.left:.0%}"
    remedy = "look which of its rows have swapped labels: renaming classes would spoil the others"
    return [
        OutlyingClient(
            client=fault.client, kind="swapped labels", columns=(), said=sentence, remedy=remedy
        )
    ]


def _of_columns(
    seen: _SeenRows, client: int, columns: ColumnFaults, key: Key
) -> list[OutlyingClient]:
    """Return a client with columns in other units or with an offset, once for each kind."""
    kinds: dict[str, dict[str, str]] = {}
    for j in np.flatnonzero((columns.place | columns.spread)[client]).tolist():
        kind, sentence = _column(seen, client, j, spread=bool(columns.spread[client, j]), key=key)
        if kind:
            kinds.setdefault(kind, {})[seen.names[j]] = sentence
    return [
        OutlyingClient(
            client=client,
            kind=kind,  # type: ignore[arg-type]
            columns=tuple(those),
            said=_all_of(those),
            remedy=_REMEDIES[kind] if seen.tabular else _PREPARED,
        )
        for kind, those in kinds.items()
    ]


def _all_of(columns: Mapping[str, str]) -> str:
    """Return what is told of columns by name, of many the names alone."""
    names = list(columns)
    more = ["the same of " + ", ".join(names[_TOLD:])] if len(names) > _TOLD else []
    return "; ".join([*(columns[name] for name in names[:_TOLD]), *more])


def _column(seen: _SeenRows, client: int, j: int, spread: bool, key: Key) -> tuple[str, str]:
    """Return the kind of an outlying column, ``"units"`` or ``"offset"``, and what is told of it;
    empty: nothing is.

    Where its spread is not outlying, units are other if a factor makes the client's values more
    like the others' than a shift does.
    """
    name = seen.names[j]
    if name == _INPUTS:
        if spread:
            return ("units", "the inputs spread otherwise")
        return ("offset", "the inputs lie elsewhere")
    values = seen.raw(j, seen.rows.x[:, j])
    own = seen.rows.owner == client
    elsewhere = {
        int(c): np.sort(values[~own & (seen.rows.y == c)]) for c in np.unique(seen.rows.y[~own])
    }
    comparable = own & np.isin(seen.rows.y, list(elsewhere))
    mine = values[comparable]
    label = seen.rows.y[comparable]
    like = np.array([np.median(elsewhere[c]) for c in label.tolist()])
    # sizes, not values: those of a column around 0 have a median that says nothing of their unit
    size = np.array([np.median(np.abs(elsewhere[c])) for c in label.tolist()])
    times = float(np.median(np.abs(mine) / size)) if size.all() else np.nan
    moved = mine - np.median(mine - like)
    if (
        times > 0
        and max(times, 1 / times) >= _FACTOR
        and _misfit(mine / times, label, elsewhere) < _misfit(moved, label, elsewhere)
    ):
        both_signs = min((values[~own] > 0).mean(), (values[~own] < 0).mean()) > _BOTH_SIGNS
        sizes = np.abs(values) if both_signs else values
        called = "median size" if both_signs else "median"
        here, there, medians = _medians(
            seen, values=sizes, own=own, apart=np.nan, times=times, called=called
        )
        factor = here / there if here * there > 0 else times
        return "units", f"{name} {_short(factor)} times the others' ({medians})"
    _, _, medians = _medians(seen, values, own, float(np.median(mine - like)))
    if spread:
        ratio = spread_ratio(seen.rows, client, j, key)
        return "units", f"{name} spreads {_short(ratio)} times as far as the others' ({medians})"
    # a column of mostly one value, more or less often
    if float(np.median(mine)) == float(np.median(like)):
        return "", ""
    return "offset", f"{name} lies elsewhere and spreads as the others' ({medians})"


def _medians(
    seen: _SeenRows,
    values: Floats,
    own: Bools,
    apart: float,
    times: float = np.nan,
    called: str = "median",
) -> tuple[float, float, str]:
    """Return the medians of the client's and of the others' values, and how they are told: of the
    class that the client has most of where its mix of classes moves its median.

    Parameters
    ----------
    values, own: of a column, and which are the client's ``[n]``.
    apart, times: difference and ratio of the client's values to the median of others' of the same
    class; NaN: of no interest.
    called: what the medians are of.
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
    return here, there, f"{called}{of} {_short(here)} against {_short(there)}"


def _misfit(values: Floats, label: Ints, elsewhere: Mapping[int, Floats]) -> float:
    """Return how far the ranks of values among others' of the same class are from even: the largest
    distance of their law to it."""
    rank = np.empty(len(values))
    for c in np.unique(label).tolist():
        at = label == c
        there = elsewhere[c]
        both = [np.searchsorted(there, values[at], side=side) for side in ("left", "right")]
        rank[at] = (both[0] + both[1]) / (2 * len(there))
    return float(np.abs(np.sort(rank) - (np.arange(len(rank)) + 0.5) / len(rank)).max())


def _constant(seen: _SeenRows, constant: Bools) -> list[OutlyingClient]:
    """Return clients that have one value alone in a column; none where many have."""
    outlying = []
    for k in np.flatnonzero(constant.any(axis=1)).tolist():
        first = seen.rows.x[seen.rows.owner == k][:1]
        those = {
            seen.names[j]: _always(seen, j, float(seen.raw(j, first[:, j])[0]))
            for j in np.flatnonzero(constant[k]).tolist()
        }
        outlying.append(
            OutlyingClient(
                client=k,
                kind="constant column",
                columns=tuple(those),
                said=_all_of(those),
                remedy=_REMEDIES["constant column"] if seen.tabular else _PREPARED,
            )
        )
    return [] if _widely(outlying, seen.clients) else outlying


def _always(seen: _SeenRows, column: int, value: float) -> str:
    """Return that a client has one value alone in a column, or a gap in each row."""
    if seen.names[column] == _INPUTS:
        return "some of the inputs are always the same"
    fill = float(seen.fill[column])
    if abs(value - fill) <= _ROUNDED * max(abs(seen.shift[column]), abs(seen.scale[column])):
        return f"{seen.names[column]} has no value, or always {_short(value)}, which fills gaps"
    return f"{seen.names[column]} is always {_short(value)}"


def _short(value: float) -> str:
    """Return a number with three digits."""
    return f"{float(f'{value:.3g}'):,.10g}"
