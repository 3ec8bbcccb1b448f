"""Failure models: clients that drop out after being dispatched, and corrupted updates.

A failure is the share of the local work after which the client drops out (``drop_at``), or a factor
on the update that it sends (``upload_factor``): -1 flips its sign, 10 scales it, NaN stands for
diverged training. Wrong *labels* are a property of the data:
``label_noise = { name = "label_flip", share = 0.3 }``.

The client's own state (error memory, variates) is as if it had not been asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.draws import check_share
from motley.world.interfaces import Failures


@dataclass(frozen=True)
class NoFailures(Failures):
    """No client fails."""


@dataclass(frozen=True)
class DropOut(Failures):
    """Each dispatched client drops out with probability ``rate``, independently in every round.

    READING: "time to failure uniform on [0, T_k]" is read as uniform over the local work; downloads
    and uploads do not fail.

    Parameters
    ----------
    rate: probability per client and round, in [0, 1].
    at: share of the work done by then, in [0, 1]; None: uniform.
    low: if given, each client's own rate is drawn once, uniformly in (``low``, ``rate``).

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
                raise ConfigError(
                    f"got low = {self.low} above rate = {self.rate}; expected low <= rate"
                )

    @property
    @override
    def nobody_delivers(self) -> bool:
        return self.rate == 1 and self.low in (None, 1)

    @override
    def drop_at(self, key: Key, ids: Ids, round_index: int) -> Floats:
        fails, share = key.fold("drop", round_index).uniform(ids, 2).T
        rate: float | Floats = self.rate
        if self.low is not None:
            rate = self.low + (self.rate - self.low) * key.fold("rate").uniform(ids)[:, 0]
        return np.where(fails < rate, share if self.at is None else self.at, np.nan)


@dataclass(frozen=True)
class Crash(Failures):
    """Each client crashes once, in a random round, and never delivers again; the server is not
    told.

    The round is geometric: of the remaining clients a share ``rate`` crashes each round, whether
    dispatched or not.

    Parameters
    ----------
    rate: probability per client and round, in [0, 1].
    share: of the clients that ever crash, in [0, 1].

    Example
    -------
    >>> crash, ids = Crash(rate=0.1), np.arange(10_000)
    >>> [round(float(np.isnan(crash.drop_at(Key(0), ids, t)).mean()), 1) for t in (1, 5, 20)]
    [0.9, 0.6, 0.1]
    """

    rate: float = 0.01
    share: float = 1.0

    def __post_init__(self) -> None:
        check_share("rate", self.rate)
        check_share("share", self.share)

    @property
    @override
    def nobody_delivers(self) -> bool:
        return self.rate == 1 and self.share == 1

    @override
    def drop_at(self, key: Key, ids: Ids, round_index: int) -> Floats:
        """Return a uniform share of the work in the round of the crash, and 0 in later rounds."""
        ever, when, share = key.fold("crash").uniform(ids, 3).T
        with np.errstate(divide="ignore"):  # rate 0: never; rate 1: in the first round
            if self.rate:
                rounds = np.ceil(np.log(when) / np.log1p(-self.rate))
            else:
                rounds = np.full(len(ids), np.inf)
        rounds = np.where(ever < self.share, np.maximum(rounds, 1), np.inf)
        return np.where(round_index < rounds, np.nan, np.where(round_index == rounds, share, 0.0))


@dataclass(frozen=True)
class NonFinite(Failures):
    """Each dispatched client sends NaN with probability ``rate``: the update is rejected, its
    traffic counted.

    Parameters
    ----------
    rate: probability per client and round, in [0, 1].
    """

    rate: float = 0.05

    def __post_init__(self) -> None:
        check_share("rate", self.rate)

    @override
    def upload_factor(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return np.where(
            key.fold("non_finite", round_index).uniform(ids)[:, 0] < self.rate, np.nan, 1.0
        )


@dataclass(frozen=True)
class Corrupted(Failures):
    """Some clients always send a corrupted update, against which robust aggregators protect.

    Parameters
    ----------
    share: of the clients that are corrupted, in [0, 1], drawn independently for each client.
    kind: ``sign_flip`` sends ``-scale`` times the update, ``scaling`` sends ``scale`` times it.
    scale: above 0.

    Example
    -------
    >>> corrupted = Corrupted(share=0.5, scale=3.0)
    >>> sorted(set(corrupted.upload_factor(Key(0), np.arange(10), 1).tolist()))
    [-3.0, 1.0]
    """

    share: float = 0.3
    kind: Literal["sign_flip", "scaling"] = "sign_flip"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_share("share", self.share)
        if self.kind not in ("sign_flip", "scaling"):
            raise ConfigError(f"got kind = {self.kind!r}; expected 'sign_flip' or 'scaling'")
        if not 0 < self.scale < np.inf:
            raise ConfigError(
                f"got scale = {self.scale}; expected a finite number above 0 (kind = 'sign_flip' "
                "sets the sign)"
            )
        if self.kind == "scaling" and self.scale == 1:
            raise ConfigError(
                'got scale = 1 with kind = "scaling", which changes nothing; set scale, e.g. scale '
                "= 10"
            )

    def corrupted(self, key: Key, ids: Ids) -> Bools:
        """Return which clients are corrupted ``[len(ids)]``."""
        return np.asarray(key.fold("corrupt").uniform(ids)[:, 0] < self.share)

    @override
    def upload_factor(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return np.where(
            self.corrupted(key, ids), -self.scale if self.kind == "sign_flip" else self.scale, 1.0
        )
