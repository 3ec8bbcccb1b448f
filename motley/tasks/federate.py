"""From a pool of samples to a federation: which rows are divided, and each client's train, validation and test part.

The builder's three steps::

    rows = divisible(pool, split, streams.key("split"))            # what the partition may give away
    parts = partition.split(streams.key("partition"), pool.y[rows.divide] ..., population, groups of those rows)
    federation = federate(pool, rows, parts.rows, split, streams.key("split"), noise)

Everything is vectorised over clients: 10,000 of them cost what their samples cost to sort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Gt, Lt
from numpy.typing import NDArray

from motley.core.arrays import Ints
from motley.core.bounds import Share
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.base import Federation, Pool

__all__ = ["Concept", "Divisible", "Look", "Noise", "Split", "divisible", "federate", "stratified"]

Noise = Callable[[Ints, Ints], tuple[Ints, NDArray[np.float64]]]
"""Clean labels ``[n]`` and their owners ``[n]`` to noisy labels ``[n]`` and the share meant to be wrong per client ``[K]``."""

Concept = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""Labels ``[n]`` and their owners ``[n]`` to what these clients call them ``[n]`` and the cluster of each client ``[K]``."""

Look = Callable[[NDArray[np.float32], Ints, Ints], tuple[NDArray[np.float32], Ints]]
"""Features ``[n, ...]``, owners and row numbers ``[n]`` to features as these clients see them and the domain of each ``[K]``."""


@dataclass(frozen=True)
class Split:
    """Which samples train, validate and test."""

    test: Literal["client", "global"] = "client"
    """``client``: halves are merged, each client tests on ``test_fraction`` of its own; ``global``: the data's test half (a
    stratified share of ``test_fraction``, where the data has none)."""
    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2
    """Share of each client's samples that tests (``test = "client"``)."""
    validation: Share = 0.0
    """Share of each client's training samples that is set aside."""
    server: Share = 0.0
    """Share of the samples to divide that the server keeps, with clean labels, to validate with (``feddf``, ``fedbio``)."""

    def __post_init__(self) -> None:
        if self.test not in ("client", "global"):
            raise ConfigError(
                f"test: got {self.test!r}{suggest(str(self.test), ('client', 'global'))}; expected client or global"
            )
        shares = {"validation": self.validation, "server": self.server}
        for name, value in {"test_fraction": self.test_fraction, **shares}.items():
            if not isinstance(value, int | float):
                raise ConfigError(f"{name}: got {value!r}; expected a number")
        if not 0.0 < self.test_fraction < 1.0:
            raise ConfigError(f"test_fraction: got {self.test_fraction}; expected a share above 0 and below 1")
        for name, value in shares.items():
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"{name}: got {value}; expected a share of at least 0 and below 1")


@dataclass(frozen=True)
class Divisible:
    """What a partition may give away.

    Parameters
    ----------
    divide: rows of the pool, ascending; a partition speaks of positions in this list.
    held: rows of the common test set, or None. notes: how it came about, in words.
    labels: int64 ``[len(divide)]`` classes (zeros in regression). groups: natural client of each of these rows, or None.
    """

    divide: Ints
    held: Ints | None
    labels: Ints
    groups: Ints | None
    notes: Mapping[str, str] = field(default_factory=dict)


def divisible(pool: Pool, split: Split, key: Key) -> Divisible:
    """The rows to divide among clients, with their labels and groups, and the common test rows.

    Raises
    ------
    DataError: nothing would be left to divide.
    """
    rows = np.arange(len(pool.y), dtype=np.int64)
    held, note = None, "train and test halves merged, each client keeps a test part"
    if split.test == "global" and pool.test.any():
        held, rows, note = rows[pool.test], rows[~pool.test], "the data set's own test half, common to all"
    elif split.test == "global":
        taken = stratified(rows, np.zeros_like(rows), _strata(pool, rows), split.test_fraction, key.fold("global"))
        held, rows, note = rows[taken], rows[~taken], f"a stratified share of {split.test_fraction:g}, common to all"
    if not len(rows):
        raise DataError("the data has no training rows to divide among clients")
    groups = None if pool.groups is None else pool.groups[rows]
    return Divisible(rows, held, _strata(pool, rows), groups, {"test": note})


def _strata(pool: Pool, rows: Ints) -> Ints:
    """Class of each row; zeros in regression."""
    if pool.classes is None:
        return np.zeros(len(rows), np.int64)
    return pool.y[torch.from_numpy(rows)].cpu().numpy().astype(np.int64)


def stratified(rows: Ints, owner: Ints, labels: Ints, share: float, key: Key) -> NDArray[np.bool_]:
    """Which rows each owner sets aside: ``[n]`` flags, ``ceil(share * n_k)`` of them per owner but never all.

    Systematic sampling of each owner's rows sorted by class (random within a class, random start): every class gives its share
    rounded down or up. Whether a row is taken depends on its owner's rows alone.
    """
    taken = np.zeros(len(rows), bool)
    if share <= 0.0 or not len(rows):
        return taken
    order = np.lexsort((key.uniform(rows)[:, 0], labels, owner))
    _, first, inverse, count = np.unique(owner[order], return_index=True, return_inverse=True, return_counts=True)
    wanted = np.minimum(np.ceil(share * count - 1e-6).astype(np.int64), count - 1)
    start = np.floor(key.fold("start").uniform(owner[order][first])[:, 0] * count).astype(np.int64)
    at = np.arange(len(rows)) - first[inverse]
    n, t, r = count[inverse], wanted[inverse], start[inverse]
    taken[order] = ((at + 1) * t + r) // n > (at * t + r) // n
    return taken


def federate(
    pool: Pool,
    rows: Divisible,
    parts: Ragged,
    split: Split,
    key: Key,
    noise: Noise | None = None,
    notes: Mapping[str, str] | None = None,
    concept: Concept | None = None,
    look: Look | None = None,
    overlap: bool = False,
) -> Federation:
    """The federation of a partition.

    Parameters
    ----------
    rows: from :func:`divisible`. parts: positions in ``rows.divide`` of each client.
    split, key: shares, and the stream (purpose ``split``). noise: changes training and validation labels, never test labels.

    Where the data set has a test half per natural client (FEMNIST's writers) and the partition kept natural clients whole, the
    set's own test rows are each client's test part and ``test_fraction`` is not used.

    Raises
    ------
    DataError: a client without a training sample, or a row given to two clients.
    """
    values, owner = rows.divide[parts.values], parts.owner
    _check_parts(values, parts, overlap)
    if overlap and split.test == "client":
        raise ConfigError(
            "with this partition clients share samples, so that one would test on what another trains on; set split.test = 'global'",
            "split.test",
        )
    labels = rows.labels[parts.values]
    cluster, domain = np.zeros((2, len(parts)), np.int64)
    if concept is not None:
        if pool.classes is None:
            raise ConfigError("a concept shift needs classes; this task is a regression", "concept_shift")
        labels, cluster = concept(labels, owner)
    said = {**pool.notes, **rows.notes, **(notes or {})}
    test = np.zeros(len(values), bool)
    if split.test == "client" and _has_own_test(pool, values, owner, len(parts)):
        test = pool.test[values]
        said["test"] = "each client keeps the test rows the data set gives it"
    elif split.test == "client":
        test = stratified(values, owner, labels, split.test_fraction, key.fold("test"))
    rest = np.flatnonzero(~test)
    validation = np.zeros(len(values), bool)
    validation[rest] = stratified(values[rest], owner[rest], labels[rest], split.validation, key.fold("validation"))
    train = ~test & ~validation
    x, y, held, place = pool.x, pool.y, rows.held, values
    if overlap:
        x, y, held, place = _copies(x, y, held, values)
    at = torch.from_numpy(place)
    if concept is not None:
        y = y.index_copy(0, at, torch.from_numpy(labels))
    if look is not None:
        if not x.is_floating_point():
            x = x.to(torch.float32)
        shown, domain = look(x[at].to(torch.float32).numpy(), owner, values)
        x = x.index_copy(0, at, torch.from_numpy(shown).to(x.dtype))
    noisy, share = _noisy(pool, y[at], owner, labels, ~test, noise, len(parts))
    return Federation(
        x=x,
        y=y,
        train=_take(place, owner, train, len(parts)),
        labels=noisy[torch.from_numpy(np.flatnonzero(train))],
        validation=_take(place, owner, validation, len(parts)),
        test=_take(place, owner, test, len(parts)),
        global_test=held,
        classes=pool.classes,
        names=pool.names,
        noise=share,
        notes=said,
        validation_labels=None if noise is None else noisy[torch.from_numpy(np.flatnonzero(validation))],
        domain=domain,
        cluster=cluster,
    )


def _copies(
    x: torch.Tensor, y: torch.Tensor, held: Ints | None, values: Ints
) -> tuple[torch.Tensor, torch.Tensor, Ints | None, Ints]:
    """A copy of each given row, then the common test rows; where those are, and where the given ones."""
    rows = torch.from_numpy(values if held is None else np.concatenate([values, held]))
    place = np.arange(len(rows))
    return x[rows], y[rows], None if held is None else place[len(values) :], place[: len(values)]


def _check_parts(values: Ints, parts: Ragged, overlap: bool) -> None:
    if not overlap and len(np.unique(values)) != len(values):
        raise DataError("a partition gave the same row to two clients")
    empty = np.flatnonzero(parts.sizes == 0)
    if len(empty):
        raise DataError(
            f"{len(empty)} clients got no samples (client {empty[0]} first); use fewer clients or a milder partition"
        )


def _has_own_test(pool: Pool, values: Ints, owner: Ints, population: int) -> bool:
    """Whether natural clients stayed whole and every client has rows in both halves of the data set."""
    if pool.groups is None or not pool.test.any():
        return False
    pairs = np.unique(np.stack([pool.groups[values], owner]), axis=1)
    whole = len(np.unique(pairs[0])) == pairs.shape[1]
    halves = [np.bincount(owner[part], minlength=population) for part in (pool.test[values], ~pool.test[values])]
    return whole and all(bool((half > 0).all()) for half in halves)


def _noisy(
    pool: Pool, targets: torch.Tensor, owner: Ints, labels: Ints, seen: NDArray[np.bool_], noise: Noise | None, population: int
) -> tuple[torch.Tensor, NDArray[np.float64]]:
    """Targets of all rows as the clients have them, and the share meant to be wrong per client."""
    if noise is None:
        return targets, np.zeros(population)
    if pool.classes is None:
        raise ConfigError("label noise needs classes; this task is a regression", "label_noise")
    out = labels.copy()
    out[seen], share = noise(labels[seen], owner[seen])
    return torch.from_numpy(out), share


def _take(values: Ints, owner: Ints, chosen: NDArray[np.bool_], population: int) -> Ragged:
    sizes = np.bincount(owner[chosen], minlength=population)
    return Ragged(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), values[chosen])
