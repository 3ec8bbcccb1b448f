"""Label noise: wrong labels, drawn once per training sample; test labels stay clean.

* symmetric: a label becomes each of the other C - 1 classes with probability rate / (C - 1) (RHFL's
  code);
* pair_flip: a label becomes the next class (C - 1 becomes 0) with probability rate;
* label_flip: every label y of a share of the clients becomes C - 1 - y (data poisoning);
* beta: symmetric, with a rate per client drawn from Beta(100 mean, 100 - 100 mean) (FLASH: 15 %
  noise is mean 0.15, deviation 0.0355. The paper does not state the kind of noise: symmetric is an
  INTERPRETATION).

``mode = "exact"`` (default) makes exactly ``round(rate_k n_k)`` labels of client k wrong,
``"bernoulli"`` draws each independently. ``share``: only that share of the clients,
``round(share K)`` of them chosen by the key, has noisy labels.

Worked
------
``beta`` with a mean of 5, 10, 15, 20, 25 %: deviation .02169, .02985, .03553, .03980, .04309.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.draws import row_integers, row_uniform
from motley.world.interfaces import LabelNoise

Mode = Literal["exact", "bernoulli"]


@dataclass(frozen=True)
class CleanLabels(LabelNoise):
    """No label is wrong."""

    @override
    def apply(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> tuple[Ints, Floats]:
        return labels, np.zeros(population)


@dataclass(frozen=True)
class SymmetricNoise(LabelNoise):
    """Wrong labels are uniform over the other classes.

    Parameters
    ----------
    rate: share of wrong labels, in [0, 1].
    mode, share: see the module.
    inclusive: the chosen labels are drawn from *all* C classes, so only ``rate (1 - 1/C)`` become
    wrong; not the default.
    """

    rate: float
    mode: Mode = "exact"
    share: float = 1.0
    inclusive: bool = False

    def __post_init__(self) -> None:
        _check(self.mode, rate=self.rate, share=self.share)

    @override
    def apply(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> tuple[Ints, Floats]:
        rates = np.where(_noisy(key, self.share, population), self.rate, 0.0)
        changed = _changed(key, rates, owner, self.mode, numbers=numbers)
        if not self.inclusive:
            return _others(key, labels, changed, classes, numbers=numbers), rates
        anew = row_integers(
            key=key.fold("class"), low=0, high=classes, count=len(labels), numbers=numbers
        )
        return np.where(changed, anew, labels), rates * (1 - 1 / classes)


@dataclass(frozen=True)
class BetaNoise(LabelNoise):
    """Symmetric noise whose rate differs between clients.

    Parameters
    ----------
    mean: mean rate, in (0, 1); client k's is Beta(a, 100 - a), a = 100 mean.
    mode, share: see the module.
    """

    mean: float
    mode: Mode = "exact"
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.mean < 1:
            raise ConfigError(
                f"got mean = {self.mean}; expected a share in (0, 1); for clean labels use "
                'label_noise = "none"'
            )
        _check(self.mode, share=self.share)

    @override
    def apply(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> tuple[Ints, Floats]:
        drawn = self.rates(key, np.arange(population))
        rates = np.where(_noisy(key, self.share, population), drawn, 0.0)
        changed = _changed(key, rates, owner, self.mode, numbers=numbers)
        return _others(key, labels, changed, classes, numbers=numbers), rates

    def rates(self, key: Key, ids: Ids) -> Floats:
        """Return each client's rate ``[len(ids)]``, by inversion, so that it depends on the
        client's id alone."""
        from scipy.special import betaincinv  # takes a tenth of the start of every run

        a = 100 * self.mean
        return np.asarray(betaincinv(a, 100 - a, key.fold("rate").uniform(ids)[:, 0]), np.float64)


@dataclass(frozen=True)
class PairFlip(LabelNoise):
    """Wrong labels are the next class.

    Parameters
    ----------
    rate: share of wrong labels, in [0, 1].
    mode, share: see the module.
    """

    rate: float
    mode: Mode = "exact"
    share: float = 1.0

    def __post_init__(self) -> None:
        _check(self.mode, rate=self.rate, share=self.share)

    @override
    def apply(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> tuple[Ints, Floats]:
        _check_classes(classes)
        rates = np.where(_noisy(key, self.share, population), self.rate, 0.0)
        changed = _changed(key, rates, owner, self.mode, numbers=numbers)
        return np.where(changed, (labels + 1) % classes, labels), rates


@dataclass(frozen=True)
class LabelFlip(LabelNoise):
    """Some clients flip all their labels: y becomes C - 1 - y, for robustness studies.

    With an odd number of classes the middle one is unchanged; the rates are the shares of labels
    that are wrong.

    Parameters
    ----------
    share: of the clients, ``round(share K)`` of them chosen by the key.

    Example
    -------
    >>> labels, rates = LabelFlip(1.0).apply(Key(0), np.array([0, 1, 2]), np.array([0, 0, 1]), 3, 2)
    >>> labels.tolist(), rates.tolist()
    ([2, 1, 0], [0.5, 1.0])
    """

    share: float = 0.3

    def __post_init__(self) -> None:
        _check("exact", share=self.share)

    @override
    def apply(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> tuple[Ints, Floats]:
        _check_classes(classes)
        flipped = np.where(_noisy(key, self.share, population)[owner], classes - 1 - labels, labels)
        wrong = np.bincount(owner, flipped != labels, minlength=population)
        return flipped, wrong / np.maximum(np.bincount(owner, minlength=population), 1)


def _check(mode: str, **shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"got {name} = {value}; expected a share in [0, 1]")
    if mode not in ("exact", "bernoulli"):
        raise ConfigError(f"got mode = {mode!r}; expected 'exact' or 'bernoulli'")


def _check_classes(classes: int) -> None:
    if classes < 2:
        raise ConfigError(
            f"wrong labels need at least 2 classes, the data has {classes}", "label_noise"
        )


def _noisy(key: Key, share: float, population: int) -> Bools:
    """Return whether each client's labels are noisy ``[K]``: the ``round(share K)`` clients with
    the lowest draws."""
    drawn = key.fold("clients").uniform(np.arange(population))[:, 0]
    return np.argsort(np.argsort(drawn)) < round(share * population)


def _changed(key: Key, rates: Floats, owner: Ids, mode: Mode, numbers: Ints | None) -> Bools:
    """Return which labels are changed ``[n]``."""
    drawn = row_uniform(key.fold("flip"), len(owner), numbers)
    if mode == "bernoulli":
        return np.asarray(drawn < rates[owner])
    sizes = np.bincount(owner, minlength=len(rates))
    order = np.lexsort((drawn, owner))
    place = np.empty(len(owner), np.int64)
    place[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(place < np.rint(rates * sizes)[owner])


def _others(key: Key, labels: Ints, changed: Bools, classes: int, numbers: Ints | None) -> Ints:
    """Return the labels with those in ``changed`` replaced by another class, uniformly."""
    _check_classes(classes)
    offset = row_integers(
        key=key.fold("class"), low=1, high=classes, count=len(labels), numbers=numbers
    )
    return np.where(changed, (labels + offset) % classes, labels)
