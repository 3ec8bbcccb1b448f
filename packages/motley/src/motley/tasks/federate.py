"""From a data set to a federation: which rows are divided among clients, and each client's train,
validation and test rows.

The builder's three steps::

    rows = partition_input(dataset, split, streams.key("split"))   # what the partition may divide
    parts = partition.split(streams.key("partition"), rows.labels, population, rows.groups)
    federation = federate(dataset, rows, parts.rows, split, streams.key("split"), label_noise)

Everything is vectorized over clients: 10,000 of them cost what their samples cost to sort.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Lt
from numpy.typing import NDArray
from torch import Tensor

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.bounds import Share
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.core.side_by_side import never_falls, side_by_side
from motley.tasks.held_out import held_out_ids
from motley.tasks.origin import Origin
from motley.tasks.preparation import StatisticsTraffic
from motley.tasks.task import NO_CLASSES, Dataset, Federation

ChangeLabels = Callable[..., tuple[Ints, NDArray[np.generic]]]
"""Function of labels ``[n]`` and their owners ``[n]``: new labels ``[n]`` and one number per client
``[K]``; label noise is a function of :func:`client_rows` ``[n]``, too, None for a pool.

The numbers are shares of wrong labels for label noise, clusters for a concept shift."""

ChangeFeatures = Callable[[NDArray[np.float32], Ids, Ints], tuple[NDArray[np.float32], Ints]]
"""Function of features ``[n, ...]``, owners and row numbers ``[n]``: new features and the domain of
each client ``[K]``."""


@dataclass(frozen=True)
class Split:
    """Which samples train, validate and test."""

    test: Literal["client", "global"] = "client"
    """``client``: both halves of the data are merged, and each client tests on ``test_fraction`` of
    its samples; ``global``: one common test set, the data's test half (or a stratified share of
    ``test_fraction`` if it has none)."""
    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2
    """Share of each client's samples that are test samples (``test = "client"``)."""
    validation: Share = 0.0
    """Share of each client's training samples that is set aside and evaluated; the best round by it
    is kept (``best.safetensors``)."""
    server: Share = 0.0
    """Share of the samples to divide that the server keeps, with clean labels, to validate with
    (``feddf``, ``fedbio``)."""
    holdout_clients: Share = 0.0
    """Share of the clients that no round asks; they are examined at the end, as new clients
    (``evaluate.adapt_epochs``)."""
    halves: Literal["both", "training"] = "both"
    """``training``: of a data set with a test half, only the training half is divided among clients
    that test on a share of their own (``test = "client"``); the test half is not used."""

    def __post_init__(self) -> None:
        if not isinstance(self.test, str) or self.test not in ("client", "global"):
            raise ConfigError(
                f"test: got {self.test!r}{suggest(str(self.test), ('client', 'global'))}; expected "
                "client or global"
            )
        if self.halves not in ("both", "training"):
            raise ConfigError(
                f"halves: got {self.halves!r}{suggest(str(self.halves), ('both', 'training'))}; "
                "expected both or training"
            )
        if self.halves == "training" and self.test == "global":
            raise ConfigError(
                "halves: got 'training' with test = 'global', which never divides the test half; "
                "leave halves out"
            )
        shares = {
            "validation": self.validation,
            "server": self.server,
            "holdout_clients": self.holdout_clients,
        }
        for name, value in {"test_fraction": self.test_fraction, **shares}.items():
            if not isinstance(value, int | float):
                raise ConfigError(f"{name}: got {value!r}; expected a number")
        if not 0.0 < self.test_fraction < 1.0:
            raise ConfigError(
                f"test_fraction: got {self.test_fraction}; expected a share above 0 and below 1"
            )
        for name, value in shares.items():
            if not 0.0 <= value < 1.0:
                raise ConfigError(
                    f"{name}: got {value}; expected a share of at least 0 and below 1"
                )


@dataclass(frozen=True)
class PartitionInput:
    """The rows that a partition may divide.

    Parameters
    ----------
    rows: rows of the data set, ascending; a partition returns positions in this list.
    global_test: rows of the common test set, or None.
    notes: how it was made, for readers of the results.
    labels: int64 ``[len(rows)]`` classes (zeros where a sample has no class of its own).
    groups: natural client of each of these rows, or None.
    measured: as of a :class:`~motley.tasks.task.Dataset`.
    own_rows: the natural clients will be the clients, so that no client's rows may change what is
    drawn for another's; else the rows are one pool.
    """

    rows: Ints
    global_test: Ints | None
    labels: Ints
    groups: Ids | None
    notes: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    own_rows: bool = False

    def numbers(self, rows: Ints, owner: Ids) -> Ints:
        """Return the number of each row that its draws follow, ``[n]``: :func:`client_rows`, or of
        a pool the row's own."""
        return client_rows(owner) if self.own_rows else rows


def client_rows(owner: Ids) -> Ints:
    """Return a number of each row ``[n]`` that tells its client and its position among that
    client's rows, and nothing of the other clients.

    >>> client_rows(np.array([1, 0, 1])).tolist() == [1 << 32, 0, (1 << 32) + 1]
    True
    """
    blocks = _blocks(owner)
    if len(blocks) <= 1:
        return _client_rows(owner)
    numbers = np.empty(len(owner), np.int64)
    parts = side_by_side(lambda block: _client_rows(owner[block]), blocks)
    for block, part in zip(blocks, parts, strict=True):
        numbers[block] = part
    return numbers


def _client_rows(owner: Ids) -> Ints:
    """Return what :func:`client_rows` does, of all rows at once."""
    if (owner[1:] >= owner[:-1]).all():
        first = _first_of_each(owner)
        sizes = np.diff(first, append=len(owner))
        return np.arange(len(owner)) - np.repeat(first, sizes) + (owner << 32)
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner)
    position = np.empty(len(owner), np.int64)
    position[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return position + (owner << 32)


def _first_of_each(owner: Ids) -> Ints:
    """Return the position of the first row of each owner; ``owner``: ``[n]``, each one's together,
    n at least 1."""
    return np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))


def partition_input(
    dataset: Dataset, split: Split, key: Key, shared: bool = False, own_rows: bool = False
) -> PartitionInput:
    """Return the rows to divide among clients, with their labels and groups, and the common test
    rows.

    ``shared``: labels of all rows take no memory of their own, for a caller that hands them to
    nobody who may write. ``own_rows``: as of :class:`PartitionInput`; a common test set is then a
    share of each client's rows.

    Raises
    ------
    DataError: there are no rows to divide.
    """
    _check_divided(dataset, split)
    rows = np.arange(len(dataset.y), dtype=np.int64)
    global_test = None
    own_rows = own_rows and dataset.groups is not None and not dataset.generated
    halves = "train and test halves merged, " if dataset.test.any() else ""
    note = f"{halves}each client keeps a test part"
    if split.test == "global" and dataset.test.any():
        global_test = rows[dataset.test]
        rows = rows[~dataset.test]
        note = "the data set's own test half, common to all"
    elif split.halves == "training" and dataset.test.any():
        rows = rows[~dataset.test]
        note = "of the training half alone, each client keeps a test part"
    elif split.test == "global":
        owner = dataset.groups if own_rows and dataset.groups is not None else np.zeros_like(rows)
        taken = stratified(
            numbers=None if own_rows else rows,
            owner=owner,
            labels=_classes(dataset, rows),
            share=split.test_fraction,
            key=key.fold("global"),
        )
        global_test = rows[taken]
        rows = rows[~taken]
        whose = " of each client" if own_rows else ""
        note = f"a stratified share of {split.test_fraction:g}{whose}, common to all"
    if not len(rows):
        raise DataError("the data has no training rows to divide among clients")
    groups = dataset.groups
    if groups is not None and len(rows) < len(groups):
        groups = groups[rows]
    measured = dict(dataset.measured)
    # by the classes of all
    if global_test is not None and not dataset.test.any() and groups is not None:
        measured["a common test set is drawn"] = ("split.test", 'split = { test = "client" }')
    labels = _classes(dataset, rows, shared)
    return PartitionInput(
        rows=rows,
        global_test=global_test,
        labels=labels,
        groups=groups,
        notes={"test": note},
        measured=measured,
        own_rows=own_rows,
    )


def _check_divided(dataset: Dataset, split: Split) -> None:
    """Refuse a division by time or group beside another one, and beside rows that are drawn one by
    one."""
    if dataset.divided is None:
        return
    if dataset.test.any():
        raise DataError(
            "the data has test rows of its own, and test says which of each client's rows test; "
            "leave it out"
        )
    if split.test == "global" or split.validation:
        key, refused = (
            ("test", "'global'") if split.test == "global" else ("validation", split.validation)
        )
        raise ConfigError(
            f"got {refused}, and each client's rows are divided by {dataset.divided.kind}, which "
            "rows drawn one by one would undo; leave it out",
            f"split.{key}",
        )


def hold_out(
    dataset: Dataset, source: PartitionInput, share: float, key: Key
) -> tuple[PartitionInput, Ints]:
    """Return what remains to divide, and the rows that no client gets: samples of the server, or
    public ones.

    They are ``share`` of the rows to divide, class by class, and of each natural client if there
    are any. The data set's own test half is not used.

    Raises
    ------
    ConfigError: the share is so small that no row would be held out.
    """
    owner = np.zeros_like(source.rows) if source.groups is None else source.groups
    free = np.flatnonzero(~dataset.test[source.rows])
    taken = np.zeros(len(source.rows), bool)
    numbers = source.numbers(source.rows, owner)
    taken[free] = stratified(
        numbers=numbers[free], owner=owner[free], labels=source.labels[free], share=share, key=key
    )
    if not taken.any():
        raise ConfigError(
            f"a share of {share:g} of {len(source.rows)} samples leaves nothing to keep back; give "
            "a larger one"
        )
    groups = None if source.groups is None else source.groups[~taken]
    remaining = dataclasses.replace(
        source, rows=source.rows[~taken], labels=source.labels[~taken], groups=groups
    )
    return remaining, source.rows[taken]


def _classes(dataset: Dataset, rows: Ints, shared: bool = False) -> Ints:
    """Return the class of each row of ``rows``, ascending; zeros where a sample has no class of its
    own (numbers, positions, several labels). ``shared``: those of all rows are the data set's own
    memory."""
    if dataset.targets != "classes":
        return np.zeros(len(rows), np.int64)
    labels = dataset.y.cpu().numpy()
    whole = shared and len(rows) == len(labels)
    return (labels if whole else labels[rows]).astype(np.int64, copy=False)


def _in_full(rows: Ints) -> bool:
    """Return whether rows ``[n]``, each at least 0, are 0 .. n - 1 in this order."""
    if len(rows) and (rows[0] != 0 or rows[-1] != len(rows) - 1):
        return False
    return bool((rows[1:] > rows[:-1]).all())


def stratified(
    numbers: Ints | None, owner: Ints, labels: Ints, share: float, key: Key
) -> NDArray[np.bool_]:
    """Return which rows each owner sets aside, ``[n]``: ``ceil(share * n_k)`` of them per owner,
    but never all.

    Systematic sampling of each owner's rows sorted by class (random within a class, random start):
    every class contributes its share, rounded down or up. Whether a row is set aside depends on its
    owner's labels and ``numbers`` alone, which no other row may have; None: :func:`client_rows`,
    which of millions of rows are not kept.
    """
    taken = np.zeros(len(owner), bool)
    if share > 0.0:
        blocks = _blocks(owner)
        masks = side_by_side(
            lambda block: _taken(
                _client_rows(owner[block]) if numbers is None else numbers[block],
                owner=owner[block],
                labels=labels[block],
                share=share,
                key=key,
            ),
            blocks,
        )
        for block, part in zip(blocks, masks, strict=True):
            taken[block] = part
    return taken


def _blocks(owner: Ids, size: int = 2**18) -> list[slice]:
    """Return slices of about so many rows that keep each owner's together; one of all rows where
    these are not in its order."""
    if len(owner) <= size or not never_falls(owner):
        return [slice(None)] * bool(len(owner))
    ends = np.unique(np.searchsorted(owner, owner[size::size]))
    return [slice(*pair) for pair in itertools.pairwise([0, *ends[ends > 0].tolist(), len(owner)])]


def _taken(numbers: Ints, owner: Ids, labels: Ints, share: float, key: Key) -> Bools:
    """Return which rows each owner sets aside, as :func:`stratified` does."""
    taken = np.zeros(len(numbers), bool)
    order = _order(key.uniform(numbers)[:, 0], labels, owner)
    whose = owner[order]
    first = _first_of_each(whose)
    count = np.diff(first, append=len(numbers))
    wanted = np.minimum(np.ceil(share * count - 1e-6).astype(np.int64), count - 1)
    start = np.floor(key.fold("start").uniform(whose[first])[:, 0] * count).astype(np.int64)
    # place i of n is set aside where ((i + 1) * wanted + start) // n is one more than at i
    n, t, r, at = (np.repeat(each, wanted) for each in (count, wanted, start, first))
    number = np.arange(1, len(at) + 1) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    taken[order[at + (number * n - r + t - 1) // t - 1]] = True
    return taken


def _order(drawn: Floats, labels: Ints, owner: Ids) -> Ints:
    """Return the order by owner, then label, then number drawn in (0, 1), which has 52 bits; by one
    number a row if they fit."""
    least = int(labels.min())
    classes = int(labels.max()) - least + 1
    lowest = int(owner.min())
    groups = (int(owner.max()) - lowest + 1) * classes
    spare = min(63 - groups.bit_length(), 52)
    if spare >= _DRAWN_BITS:
        merged = np.subtract(owner, lowest, dtype=np.int64)
        merged *= classes
        merged += labels
        merged -= least
        merged <<= spare
        merged |= (drawn * 2.0**52).astype(np.int64) >> (52 - spare)
        # owners with few rows each lie nearly in order, which merging makes use of
        order = np.argsort(merged, kind="stable" if len(owner) < _FEW * groups else None)
        merged = merged[order]
        if (merged[1:] > merged[:-1]).all():
            return order
    return np.lexsort((drawn, labels, owner))


_FEW = 32
"""Rows of an owner and label below which merging sorts faster than other methods."""
_DRAWN_BITS = 24
"""Bits of the numbers drawn below which two rows of an owner and label would often have the
same."""


def federate(
    dataset: Dataset,
    source: PartitionInput,
    parts: Ragged,
    split: Split,
    key: Key,
    label_noise: ChangeLabels | None = None,
    notes: Mapping[str, str] | None = None,
    concept_shift: ChangeLabels | None = None,
    feature_shift: ChangeFeatures | None = None,
    overlap: bool = False,
    owner: Ids | None = None,
) -> Federation:
    """Return the federation that a partition makes of a data set.

    Parameters
    ----------
    source: from :func:`partition_input`.
    parts: positions in ``source.rows`` of each client's rows.
    split: shares of the parts.
    key: random stream of purpose ``split``.
    label_noise: changes training and validation labels, never test labels.
    overlap: clients may share rows; each gets copies of its own.
    owner: the client of each row of ``parts``, where the caller has it.

    If the data set has a test half per natural client (FEMNIST's writers) and the partition kept
    natural clients whole, the set's own test rows are each client's test part and ``test_fraction``
    is not used.

    Raises
    ------
    DataError: a client without a training sample, or a row given to two clients.
    """
    population = len(parts)
    rows = source.rows
    labels = source.labels
    whole = _in_full(parts.values)
    if not (whole and len(parts.values) == len(rows)):
        labels = labels[parts.values]
        rows = rows[parts.values]
    whole = whole if rows is parts.values else _in_full(rows)
    owner = parts.owner if owner is None else owner
    _check_parts(rows, whole, parts, split=split, overlap=overlap)
    cluster = np.zeros(population, np.int64)
    domain = np.zeros(population, np.int64)
    if concept_shift is not None:
        _check_classes(dataset, "a concept shift", "concept_shift")
        labels, cluster = concept_shift(labels, owner)  # type: ignore[assignment]  # clusters are whole numbers
    roles = _roles(
        dataset=dataset,
        source=source,
        split=split,
        rows=rows,
        owner=owner,
        labels=labels,
        key=key,
        population=population,
    )
    names = _client_names(dataset, rows, owner, population)
    dataset, traffic = _prepared(
        dataset=dataset,
        source=source,
        parts=parts,
        train=roles.train,
        overlap=overlap,
        split=split,
        key=key,
        names=names,
    )
    samples = _Samples(dataset.x, dataset.y, source.global_test, rows).apart(overlap)
    x = samples.x
    y = samples.y
    if concept_shift is not None:
        at = torch.from_numpy(samples.position)
        y = y.index_copy(0, at, torch.from_numpy(labels))
    if feature_shift is not None:
        at = torch.from_numpy(samples.position)
        numbers = source.numbers(rows, owner)
        x, domain = _with_features(
            x=x, at=at, owner=owner, numbers=numbers, feature_shift=feature_shift
        )
    noise = np.zeros(population)
    train, validation, test = (_take(samples.position, whole, parts, role) for role in roles[:3])
    if label_noise is None:
        train_labels = y[torch.from_numpy(train.values)]
        validation_labels = None
    else:
        _check_classes(dataset, "label noise", "label_noise")
        keyed = source.numbers(rows, owner) if source.own_rows else None
        targets, noise = _noisy(
            labels, owner, chosen=~roles.test, label_noise=label_noise, numbers=keyed
        )
        train_labels = targets[torch.from_numpy(np.flatnonzero(roles.train))]
        validation_labels = targets[torch.from_numpy(np.flatnonzero(roles.validation))]
    return Federation(
        x=x,
        y=y,
        train=train,
        labels=train_labels,
        validation=validation,
        test=test,
        global_test=samples.global_test,
        classes=dataset.classes,
        names=dataset.names,
        noise=noise,
        client_names=names,
        notes={
            **dataset.notes,
            **source.notes,
            **(notes or {}),
            **roles.notes,
            **_traffic_note(traffic),
        },
        validation_labels=validation_labels,
        domain=domain,
        cluster=cluster,
        preparation=dataset.preparation,
        statistics=traffic,
        measured=source.measured,
        shares=roles.shares,
        own_rows=source.own_rows,
        target_shape=dataset.target_shape,
        reading=dataset.reading,
    )


def _client_names(dataset: Dataset, rows: Ints, owner: Ids, population: int) -> tuple[str, ...]:
    """Return the name of each client; none where the partition did not keep the natural clients
    whole."""
    if dataset.groups is None or not dataset.client_names:
        return ()
    natural = dataset.groups[rows]
    whose = np.zeros(population, np.int64)
    whose[owner] = natural
    if (whose[owner] != natural).any() or len(np.unique(whose)) < population:
        return ()
    return tuple(dataset.client_names[number] for number in whose.tolist())


def _shares(
    dataset: Dataset, split: Split, rows: Ints, owner: Ids, population: int
) -> dict[str, float]:
    """Return the shares that samples were divided by; none for the test where the data brought
    samples for it."""
    if split.test == "global":
        brought = bool(dataset.test.any())
    else:
        brought = _has_own_test(dataset, rows, owner, population) or dataset.divided is not None
    return {
        "validation": split.validation,
        **({} if brought else {"test_fraction": split.test_fraction}),
    }


class _Roles(NamedTuple):
    """Which of the divided rows train, validate and test, ``[n]`` each, and by which shares they
    were divided."""

    train: Bools
    validation: Bools
    test: Bools
    notes: Mapping[str, str]
    shares: Mapping[str, float]


def _roles(
    dataset: Dataset,
    source: PartitionInput,
    split: Split,
    rows: Ints,
    owner: Ids,
    labels: Ints,
    key: Key,
    population: int,
) -> _Roles:
    test = np.zeros(len(rows), bool)
    notes = {}
    if split.test == "client" and _has_own_test(dataset, rows, owner, population):
        test = dataset.test[rows]
        notes = {"test": "each client keeps the test rows the data set gives it"}
    elif dataset.divided is not None:
        origin = Origin.of_clients("the data", dataset.groups, dataset.client_names, "its samples")
        test = dataset.divided.test(rows, owner, key.fold("test"), origin)
        notes = {"test": dataset.divided.in_words}
    elif split.test == "client":
        test = stratified(
            numbers=None if source.own_rows else source.numbers(rows, owner),
            owner=owner,
            labels=labels,
            share=split.test_fraction,
            key=key.fold("test"),
        )
    validation = np.zeros(len(rows), bool)
    if split.validation > 0.0:
        training = np.flatnonzero(~test)
        validation[training] = stratified(
            numbers=source.numbers(rows, owner)[training],
            owner=owner[training],
            labels=labels[training],
            share=split.validation,
            key=key.fold("validation"),
        )
    train = test | validation
    np.logical_not(train, out=train)
    return _Roles(
        train=train,
        validation=validation,
        test=test,
        notes=notes,
        shares=_shares(dataset, split, rows, owner, population=population),
    )


def _prepared(
    dataset: Dataset,
    source: PartitionInput,
    parts: Ragged,
    train: Bools,
    overlap: bool,
    split: Split,
    key: Key,
    names: Sequence[str],
) -> tuple[Dataset, StatisticsTraffic | None]:
    """Return the data set with model inputs as ``x``, and what measuring the training rows of its
    table costs; rows of clients that are held out move no common scale."""
    if dataset.table is None:
        return dataset, None
    rows = source.rows[parts.values]
    owner = parts.owner
    whose = None
    if dataset.table.by_client:
        if source.global_test is not None or overlap or len(rows) != len(dataset.y):
            raise ConfigError(
                'got "client", and some rows belong to no client or to several (a common test set, '
                "samples of the server or public ones, a partition with shared samples); write "
                'scale = "federated"',
                "task.scale",
            )
        whose = np.empty(len(dataset.y), np.int64)
        whose[rows] = owner
    else:
        train = train & ~np.isin(owner, held_out_ids(key, len(parts), split.holdout_clients))
    fitted = dataset.table.fit(
        rows=rows, owner=owner, train=train, population=len(parts), names=names, whose=whose
    )
    ready = dataclasses.replace(dataset, x=fitted.x, preparation=fitted.preparation)
    return ready, fitted.traffic


class _Samples(NamedTuple):
    """Samples, the rows of the common test set, and the position of each divided row among the
    samples."""

    x: Tensor
    y: Tensor
    global_test: Ints | None
    position: Ints

    def apart(self, overlap: bool) -> _Samples:
        """Return one copy per divided row, followed by the common test rows, where clients share
        rows; else the samples themselves."""
        if not overlap:
            return self
        held = self.global_test
        rows = torch.from_numpy(
            self.position if held is None else np.concatenate([self.position, held])
        )
        place = np.arange(len(rows))
        n = len(self.position)
        return _Samples(self.x[rows], self.y[rows], None if held is None else place[n:], place[:n])


def _check_parts(rows: Ints, whole: bool, parts: Ragged, split: Split, overlap: bool) -> None:
    if not (overlap or whole):
        assigned = np.zeros(int(rows.max(initial=-1)) + 1, bool)
        assigned[rows] = True
        if np.count_nonzero(assigned) < len(rows):
            raise DataError("a partition gave the same row to two clients")
    empty = np.flatnonzero(parts.offsets[1:] == parts.offsets[:-1])
    if len(empty):
        raise DataError(
            f"{len(empty)} clients got no samples (client {empty[0]} first); use fewer clients or "
            "a milder partition"
        )
    if overlap and split.test == "client":
        raise ConfigError(
            "with this partition clients share samples, so that one would test on what another "
            "trains on; set split.test = 'global'",
            "split.test",
        )


def _check_classes(dataset: Dataset, purpose: str, key: str) -> None:
    if dataset.targets != "classes":
        raise ConfigError(
            f"{purpose} needs one class per sample; {NO_CLASSES[dataset.targets]}", key
        )


def _has_own_test(dataset: Dataset, rows: Ints, owner: Ids, population: int) -> bool:
    """Return whether natural clients stayed whole and every client has rows in both halves of the
    data set."""
    if dataset.groups is None or not dataset.test.any():
        return False
    natural = np.unique(dataset.groups[rows], return_inverse=True)[1]
    holder = np.zeros(len(rows), np.int64)
    holder[natural] = owner
    undivided = bool((holder[natural] == owner).all())
    halves = [
        np.bincount(owner[part], minlength=population)
        for part in (dataset.test[rows], ~dataset.test[rows])
    ]
    return undivided and all(bool((half > 0).all()) for half in halves)


def _with_features(
    x: Tensor, at: Tensor, owner: Ids, numbers: Ints, feature_shift: ChangeFeatures
) -> tuple[Tensor, Ints]:
    """Return all features with those at ``at`` shifted, and the domain of each client."""
    if x.dtype == torch.int64:
        raise ConfigError(
            "a feature shift changes numbers, and the samples of this task are characters or "
            "categories",
            "feature_shift",
        )
    x = x if x.is_floating_point() else x.to(torch.float32)
    changed, domain = feature_shift(x[at].to(torch.float32).numpy(), owner, numbers)
    return x.index_copy(0, at, torch.from_numpy(changed).to(x.dtype)), domain


def _noisy(
    labels: Ints, owner: Ids, chosen: Bools, label_noise: ChangeLabels, numbers: Ints | None
) -> tuple[Tensor, Floats]:
    """Return all labels, noisy where ``chosen``, and the intended share of wrong ones per
    client."""
    out = labels.copy()
    keyed = () if numbers is None else (numbers[chosen],)
    out[chosen], share = label_noise(labels[chosen], owner[chosen], *keyed)
    return torch.from_numpy(out), np.asarray(share, np.float64)


def _traffic_note(traffic: StatisticsTraffic | None) -> Mapping[str, str]:
    """Return what readers of the results are told of the exchange of statistics."""
    if traffic is None or not traffic.up_bits.any():
        return {}
    count = int(np.count_nonzero(traffic.up_bits))
    up = int(traffic.up_bits.sum())
    down = traffic.down_bits * count
    return {
        "statistics": f"{count} clients sent statistics of their training rows once: {up:,} bits "
        f"up, {down:,} bits down"
    }


def _take(rows: Ints, whole: bool, parts: Ragged, chosen: Bools) -> Ragged:
    """Return each client's chosen rows; ``rows``, ``chosen``: of each value of ``parts``;
    ``whole``: rows are 0 .. n - 1."""
    firsts = np.arange(0, len(chosen), _COUNTED)
    before = np.zeros(len(firsts) + 1, np.int64)
    np.cumsum([np.count_nonzero(chosen[at : at + _COUNTED]) for at in firsts], out=before[1:])
    places = np.empty(before[-1], np.int64)
    offsets = np.zeros(len(parts) + 1, np.int64)
    ends = np.searchsorted(parts.offsets, firsts + _COUNTED, side="right")

    def fill(block: int) -> None:
        at = firsts[block]
        mine = chosen[at : at + _COUNTED]
        places[before[block] : before[block + 1]] = np.flatnonzero(mine) + at
        clients = slice(ends[block - 1] if block else 1, ends[block])
        offsets[clients] = np.cumsum(mine)[parts.offsets[clients] - at - 1] + before[block]

    if len(places):  # else the zeros, which no one wrote, take no memory
        list(side_by_side(fill, range(len(firsts))))
    return Ragged(offsets, places if whole else rows[places])


_COUNTED = 2**16
"""Rows that are counted at a time."""
