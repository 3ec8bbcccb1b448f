"""Who breaks off after being asked, and whose update is not what it should be (optimisation-and-compression B3, D14).

A failure is a share of the local work after which the client is gone (``drop_at``), or a factor on the update that it sends
(``upload_factor``): -1 turns its sign, 10 scales it, NaN is what a client sends whose training blew up. Clients with wrong *labels*
are a matter of data: ``label_noise = { name = "label_flip", share = 0.3 }``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.base import Failures
from motley.world.draws import check_share

__all__ = ["Corrupted", "Crash", "DropOut", "Never", "NonFinite"]


@dataclass(frozen=True)
class Never(Failures):
    """Nobody."""


@dataclass(frozen=True)
class DropOut(Failures):
    """Each client that was asked breaks off with chance ``rate``, for this once.

    READING: "time to failure uniform on [0, T_k]" is read as uniform over the local work; downloads and uploads do not fail.

    Parameters
    ----------
    rate: chance per client and round, in [0, 1]. at: share of the work done by then, in [0, 1]; None: uniform.
    low: where given, a client's own rate is drawn once, uniformly in (``low``, ``rate``).

    Example
    -------
    >>> gone = DropOut(rate=0.25, at=0.5).drop_at(Key(0), np.arange(8), 1)
    >>> sorted(set(gone[~np.isnan(gone)].tolist()))
    [0.5]
    """

    rate: float = 0.1
    at: float | None = None
    low: float | None = None

    def __post_init__(self) -> None:
        check_share("rate", self.rate)
        if self.at is not None:
            check_share("at", self.at)
        if self.low is not None:
            check_share("low", self.low)
            if self.low > self.rate:
                raise ConfigError(f"got low = {self.low} above rate = {self.rate}; expected low <= rate")

    def drop_at(self, key: Key, ids: Ids, moment: int) -> Floats:
        """The share of work of those who break off."""
        fails, share = key.fold("drop", moment).uniform(ids, 2).T
        rate = self.rate if self.low is None else self.low + (self.rate - self.low) * key.fold("rate").uniform(ids)[:, 0]
        return np.where(fails < rate, share if self.at is None else self.at, np.nan)


@dataclass(frozen=True)
class Crash(Failures):
    """Each client crashes once, in a round of its own, and never delivers again; nobody tells the server.

    The round is geometric: of those still there a share ``rate`` crashes each round, whether asked or not.

    Parameters
    ----------
    rate: chance per client and round, in [0, 1]. share: of the clients that ever crash, in [0, 1].

    Example
    -------
    >>> crash, ids = Crash(rate=0.1), np.arange(10_000)
    >>> [round(float(np.isnan(crash.drop_at(Key(0), ids, moment)).mean()), 1) for moment in (1, 5, 20)]
    [0.9, 0.6, 0.1]
    """

    rate: float = 0.01
    share: float = 1.0

    def __post_init__(self) -> None:
        check_share("rate", self.rate)
        check_share("share", self.share)

    def drop_at(self, key: Key, ids: Ids, moment: int) -> Floats:
        """In its round somewhere in the work, later at once."""
        ever, when, where = key.fold("crash").uniform(ids, 3).T
        with np.errstate(divide="ignore"):  # rate 0: never; rate 1: in the first round
            rounds = np.ceil(np.log(when) / np.log1p(-self.rate)) if self.rate else np.full(len(ids), np.inf)
        rounds = np.where(ever < self.share, np.maximum(rounds, 1), np.inf)
        return np.where(moment < rounds, np.nan, np.where(moment == rounds, where, 0.0))


@dataclass(frozen=True)
class NonFinite(Failures):
    """Each client that was asked sends NaN with chance ``rate``, for this once: it is rejected, counted and paid for.

    Parameters
    ----------
    rate: chance per client and round, in [0, 1].
    """

    corrupts_updates: ClassVar[bool] = True

    rate: float = 0.05

    def __post_init__(self) -> None:
        check_share("rate", self.rate)

    def upload_factor(self, key: Key, ids: Ids, moment: int) -> Floats:
        """NaN for those."""
        return np.where(key.fold("non_finite", moment).uniform(ids)[:, 0] < self.rate, np.nan, 1.0)


@dataclass(frozen=True)
class Corrupted(Failures):
    """Some clients send something else than they learned, always: what robust aggregators are for.

    Parameters
    ----------
    share: of the clients, in [0, 1]; each draws for itself, so about so many do.
    kind: ``sign_flip`` sends ``-scale`` times the update, ``scaling`` sends ``scale`` times it.
    scale: above 0.

    Example
    -------
    >>> sorted(set(Corrupted(share=0.5, scale=3.0).upload_factor(Key(0), np.arange(10), 1).tolist()))
    [-3.0, 1.0]
    """

    corrupts_updates: ClassVar[bool] = True

    share: float = 0.3
    kind: Literal["sign_flip", "scaling"] = "sign_flip"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_share("share", self.share)
        if self.kind not in ("sign_flip", "scaling"):
            raise ConfigError(f"got kind = {self.kind!r}; expected 'sign_flip' or 'scaling'")
        if not 0 < self.scale < np.inf:
            raise ConfigError(f"got scale = {self.scale}; expected a finite number above 0 (a sign is what kind is for)")
        if self.kind == "scaling" and self.scale == 1:
            raise ConfigError('got scale = 1 with kind = "scaling", which changes nothing; set scale, e.g. scale = 10')

    def corrupt(self, key: Key, ids: Ids) -> NDArray[np.bool_]:
        """Who does so ``[len(ids)]``."""
        return np.asarray(key.fold("corrupt").uniform(ids)[:, 0] < self.share)

    def upload_factor(self, key: Key, ids: Ids, moment: int) -> Floats:
        """The same in every round."""
        return np.where(self.corrupt(key, ids), -self.scale if self.kind == "sign_flip" else self.scale, 1.0)
