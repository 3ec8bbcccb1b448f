"""The partitions of NIID-Bench and of Flower's baseline ``niid_bench``, client by client.

Li, Diao, Chen, He: *Federated Learning on Non-IID Data Silos: An Experimental Study*, ICDE 2022
(arXiv:2102.02079); Xtra-Computing/NIID-Bench ``61b901a``, adap/flower ``fdef7af``,
``baselines/niid_bench``.

The random numbers are theirs, from a seed of the partition's own, so the same seed gives the same
clients whatever the run's seed is. K clients, C classes, n samples.

    dirichlet    class by class: its rows are shuffled, q ~ Dir(alpha 1_K), q_k = 0 for clients that
                 hold n / K rows or more, q / sum q, cut at floor(cumsum(q) n_c); all of it again,
                 from where the stream is, until every client has 10 rows
    label_count  client i has class i mod C and ``labels - 1`` others, drawn one by one until they
                 differ; each class is shuffled and cut evenly among its clients in their order
    iid          all rows shuffled, and cut evenly
    quantity     the same, cut at floor(cumsum(q) n), q ~ Dir(alpha 1_K), drawn again until every
                 q_k n is 10 or more

``flower_niid_bench`` draws from ``numpy.random.default_rng(seed)``, as the baseline does since
``38ca0b8`` (2023-11-06), or with ``generator = "RandomState"`` from ``numpy.random.RandomState``,
as it did when its table was printed (``d86024f``, 2023-10-04). Its own seed is always 42, for its
configuration's ``dataset_seed`` is never passed on. It has no ``quantity``.
``niid_bench`` draws from numpy's legacy global state and, where classes are drawn, from Python's
``random``, both seeded by ``init_seed`` (0, 1, 2 in its scripts), which there changes first weights
and the order of batches as well. Its shuffle of each client's rows at the end changes nothing here,
where rows of a client are kept sorted and batches are shuffled anyway.

Deviations: where the mask leaves no client for a class, both codes divide by 0; here the partition
is refused. Both redraw without limit; here 1,000 times.

Sizes of both codes' ``dirichlet`` and the baseline's classes under ``label_count`` were compared
with what these codes make; the other kinds follow their rules, and nothing printed was found to
compare them with. NIID-Bench's noise by client is no partition: ``feature_shift = "niid_bench"``.

numpy promises the legacy stream for good, and that of ``default_rng`` only within a version; the
sizes that tests keep are of numpy 2.4.

``iid`` and ``quantity`` depend on the order of the rows in the original files; the others on the
order within each class alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal, get_args

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.world.interfaces import Partition, Partitioned
from motley.world.partition.assignment import by_owner, check, even_sizes

_MIN_SIZE = 10
_MOST_REDRAWS = 1000
_MOST_LEGACY_SEED = 2**32 - 1
Generator = np.random.Generator | np.random.RandomState
NumpyGenerator = Literal["default_rng", "RandomState"]


@dataclass(frozen=True)
class FlowerNiidBench(Partition):
    """The partitions of Flower's baseline ``niid_bench``, client by client.

    Parameters
    ----------
    kind: ``dirichlet``, ``label_count`` (#C = c) or ``iid``, see the module.
    alpha: concentration of ``dirichlet``, above 0.
    labels: classes of each client under ``label_count``.
    seed: of the partition; the baseline's is always 42.
    generator: numpy's, ``default_rng`` or, as when the baseline's table was printed,
    ``RandomState``.

    Example
    -------
    >>> labels = np.repeat(np.arange(10), 60)
    >>> FlowerNiidBench("label_count").split(Key(0), labels, 10).rows.sizes.tolist()
    [40, 90, 50, 80, 50, 50, 60, 40, 60, 80]
    """

    paper: ClassVar[Paper] = cite("li2022niidbench")
    kind: Literal["dirichlet", "label_count", "iid"] = "dirichlet"
    alpha: float = 0.5
    labels: int = 2
    seed: int = 42
    generator: NumpyGenerator = "default_rng"

    kinds: ClassVar[tuple[str, ...]] = ("dirichlet", "label_count", "iid")

    def __post_init__(self) -> None:
        _check_options(self.kind, self.kinds, self.alpha, self.labels, seed=self.seed)
        if self.generator not in get_args(NumpyGenerator):
            raise ConfigError(
                f"got generator = {self.generator!r}; expected 'default_rng' or 'RandomState'"
            )
        if self.generator == "RandomState":
            _check_legacy_seed(self.seed)

    @property
    @override
    def uses_classes(self) -> bool:
        return self.kind in ("dirichlet", "label_count")

    @property
    @override
    def in_file_order(self) -> bool:
        return not self.uses_classes

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts of all rows of classes that any client has."""
        labels = _checked(labels, population, self.kind, self.labels)
        rng = self._rng()
        if self.kind == "dirichlet":
            owner = _dirichlet(rng, labels, population, self.alpha)
        elif self.kind == "label_count":
            held = _classes_held(
                population=population,
                classes=int(labels.max()) + 1,
                count=self.labels,
                draw=lambda classes: _drawn_class(rng, classes),
            )
            owner = _shared_by_holders(rng, labels, held)
        else:
            owner = _owner_of_shuffled(
                rng.choice(len(labels), len(labels), replace=False),
                even_sizes(len(labels), population),
            )
        return Partitioned(by_owner(owner, population))

    def _rng(self) -> Generator:
        if self.generator == "RandomState":
            return np.random.RandomState(self.seed)
        return np.random.Generator(np.random.PCG64(self.seed))


@dataclass(frozen=True)
class NiidBench(Partition):
    """The partitions of NIID-Bench, client by client.

    Parameters
    ----------
    kind: ``dirichlet`` (its ``noniid-labeldir``), ``label_count`` (``noniid-#label c``), ``iid``
    (``homo``) or ``quantity`` (``iid-diff-quantity``), see the module.
    alpha: concentration of ``dirichlet`` and ``quantity``, above 0; its ``beta``.
    labels: classes of each client under ``label_count``.
    seed: its ``init_seed``, from 0 to 2^32 - 1.
    """

    paper: ClassVar[Paper] = cite("li2022niidbench")
    kind: Literal["dirichlet", "label_count", "iid", "quantity"] = "dirichlet"
    alpha: float = 0.5
    labels: int = 2
    seed: int = 0

    kinds: ClassVar[tuple[str, ...]] = (*FlowerNiidBench.kinds, "quantity")

    def __post_init__(self) -> None:
        _check_options(self.kind, self.kinds, self.alpha, self.labels, seed=self.seed)
        _check_legacy_seed(self.seed)

    @property
    @override
    def uses_classes(self) -> bool:
        return self.kind in ("dirichlet", "label_count")

    @property
    @override
    def in_file_order(self) -> bool:
        return not self.uses_classes

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Return disjoint parts of all rows of classes that any client has."""
        labels = _checked(labels, population, self.kind, self.labels)
        rng = np.random.RandomState(self.seed)
        if self.kind == "dirichlet":
            owner = _dirichlet(rng, labels, population, self.alpha)
        elif self.kind == "label_count":
            extra = Random(self.seed)
            held = _classes_held(
                population=population,
                classes=int(labels.max()) + 1,
                count=self.labels,
                draw=lambda classes: extra.randint(0, classes - 1),
            )
            owner = _shared_by_holders(rng, labels, held)
        else:
            shuffled = rng.permutation(len(labels))
            if self.kind == "iid":
                sizes = even_sizes(len(labels), population)
            else:
                sizes = _unequal_sizes(rng, len(labels), population, self.alpha)
            owner = _owner_of_shuffled(shuffled, sizes)
        return Partitioned(by_owner(owner, population))


def _check_options(kind: str, kinds: tuple[str, ...], alpha: float, labels: int, seed: int) -> None:
    if kind not in kinds:
        raise ConfigError(f"got kind = {kind!r}; expected one of: {', '.join(map(repr, kinds))}")
    if not 0 < alpha < math.inf:
        raise ConfigError(f"got alpha = {alpha}; expected a finite number above 0")
    if labels < 1:
        raise ConfigError(f"got labels = {labels}; expected at least 1 class per client")
    if seed < 0:
        raise ConfigError(f"got seed = {seed}; expected at least 0")


def _check_legacy_seed(seed: int) -> None:
    if seed > _MOST_LEGACY_SEED:
        raise ConfigError(f"got seed = {seed}; expected at most {_MOST_LEGACY_SEED}")


def _drawn_class(rng: Generator, classes: int) -> int:
    """Return a class as the baseline draws it from each generator: the streams differ."""
    if isinstance(rng, np.random.RandomState):
        return int(rng.randint(0, classes))
    return int(rng.choice(classes, 1)[0])


def _checked(labels: Ints, population: int, kind: str, count: int) -> Ints:
    """Return the labels as int64 ``[n]``, or zeros where the kind does not look at them."""
    if kind in ("iid", "quantity"):
        labels = np.zeros(len(labels), np.int64)
    least = _MIN_SIZE if kind in ("dirichlet", "quantity") else 1
    labels = check(labels, population, least)
    classes = int(labels.max()) + 1
    if kind == "label_count" and count > classes:
        raise ConfigError(f"got labels = {count}, the data has {classes} classes", "partition")
    return labels


def _dirichlet(rng: Generator, labels: Ints, population: int, alpha: float) -> Ints:
    """Return the owner of each row ``[n]``: masked Dirichlet cuts, class by class."""
    n = len(labels)
    for _ in range(_MOST_REDRAWS):
        owner = np.full(n, -1, np.int64)
        sizes = np.zeros(population, np.int64)
        for c in range(int(labels.max()) + 1):
            rows = np.flatnonzero(labels == c)
            rng.shuffle(rows)
            shares = rng.dirichlet(np.repeat(alpha, population)) * (sizes < n / population)
            counts = _cut(shares, len(rows))
            owner[rows] = np.repeat(np.arange(population), counts)
            sizes += counts
        if sizes.min() >= _MIN_SIZE:
            return owner
    raise ConfigError(_too_unequal(alpha), "partition")


def _unequal_sizes(rng: Generator, n: int, population: int, alpha: float) -> Ints:
    """Return sizes ``[K]`` in Dirichlet shares, each of which is worth 10 rows or more."""
    for _ in range(_MOST_REDRAWS):
        shares = rng.dirichlet(np.repeat(alpha, population))
        shares = shares / shares.sum()
        if (shares * n).min() >= _MIN_SIZE:
            return _cut(shares, n)
    raise ConfigError(_too_unequal(alpha), "partition")


def _too_unequal(alpha: float) -> str:
    return (
        f"in {_MOST_REDRAWS} draws with alpha = {alpha:g} some client always had fewer than "
        f"{_MIN_SIZE} rows; give a larger alpha or fewer clients"
    )


def _cut(shares: Floats, n: int) -> Ints:
    """Return sizes ``[K]`` of n rows cut at the floor of the running sum of the shares, to the bit
    as both codes do it."""
    if not shares.sum() > 0:
        raise ConfigError(
            "every client that drew a share of a class holds n / K rows already, where these codes "
            'divide by 0; give a larger alpha, or write partition = { name = "dirichlet" }',
            "partition",
        )
    ends = (np.cumsum(shares / shares.sum()) * n).astype(np.int64)
    ends[-1] = n
    return np.diff(ends, prepend=0)


def _classes_held(population: int, classes: int, count: int, draw: Callable[[int], int]) -> Bools:
    """Return whether each client has each class ``[K, C]``; ``draw(C)``: the next class drawn."""
    held = np.zeros((population, classes), bool)
    for client in range(population):
        held[client, client % classes] = True
        while held[client].sum() < count:
            held[client, draw(classes)] = True
    return held


def _shared_by_holders(rng: Generator, labels: Ints, held: Bools) -> Ints:
    """Return the owner of each row ``[n]`` (-1: nobody): each class, shuffled, is cut evenly among
    its clients in their order."""
    owner = np.full(len(labels), -1, np.int64)
    for c in range(held.shape[1]):
        rows = np.flatnonzero(labels == c)
        rng.shuffle(rows)
        holders = np.flatnonzero(held[:, c])
        if len(holders):
            owner[rows] = np.repeat(holders, even_sizes(len(rows), len(holders)))
    return owner


def _owner_of_shuffled(shuffled: Ints, sizes: Ints) -> Ints:
    """Return the owner of each row ``[n]``, where clients take their sizes of the shuffled rows in
    turn."""
    owner = np.empty(len(shuffled), np.int64)
    owner[shuffled] = np.repeat(np.arange(len(sizes)), sizes)
    return owner
