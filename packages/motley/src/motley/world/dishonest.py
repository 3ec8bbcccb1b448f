"""Clients that lie about themselves: their training is honest, what they report of it is not.

A liar's claim takes the place of the truth wherever the server goes by the client's word. By topic
(``signals``):

* ``loss``: every loss that a client measures, ``loss``, ``arrival_loss``, ``loss_rms``,
  ``robust_loss``, ``val_loss``, ``test_loss``;
* ``num_examples``: the size said at enrolment, *and* the weight of the update in the aggregation
  (``examples``, ``horvitz_thompson``); at most 10^12 samples count there;
* ``norms``: ``grad_norm``, ``max_grad_norm``, ``update_norm``;
* ``gradients``: probed ``gradient`` and ``gradient_sketch``, the true direction at the claimed
  length;
* ``label_histogram``: the same number of samples in every class, as many as are claimed in all;
* ``durations``: reported seconds, the estimates and ``uplink_mbps``: what the selector believes;
  the clock runs as it does;
* ``cosine``: as if the client reported it.

Liars want to be chosen: they claim much, and of seconds little. The strategies are functions of the
*appeal* of a number, which is the number itself, or one over it for seconds. The tables ``clients``
and ``rounds`` keep the truth; what was claimed stands beside it in the table ``claims``, and the
notes of ``rounds`` count the liars among the chosen. Lies do not touch the allocator, losses that a
server rule asks for, uploads, traffic or time.

Who lies is drawn as ``failures = "corrupted"`` draws: with the same share both are the same
clients, with a smaller one some of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids
from motley.core.claims import TOPICS
from motley.core.errors import ConfigError, suggest
from motley.core.keys import Key
from motley.world.draws import check_share
from motley.world.interfaces import Dishonest


@dataclass(frozen=True)
class NoLies(Dishonest):
    """Every client tells the truth."""


@dataclass(frozen=True)
class Liars(Dishonest):
    """Who lies, from when on, and about what; the subclasses are the strategies.

    Parameters
    ----------
    share: of the clients that lie, in [0, 1], drawn independently for each client.
    clients: their ids, in place of a share.
    start: the first round of lies; 1 includes enrolment.
    signals: topics, see above; ``["all"]`` is every one of them.
    """

    share: float = 0.1
    clients: tuple[int, ...] | None = None
    start: int = 1
    signals: tuple[str, ...] = ("all",)

    def __post_init__(self) -> None:
        check_share("share", self.share)
        if self.start < 1:
            raise ConfigError(
                f"got start = {self.start}; expected a round, from 1 (which includes enrolment)"
            )
        if self.clients is not None and min(self.clients, default=0) < 0:
            raise ConfigError(f"got clients = {list(self.clients)}; expected ids of at least 0")
        if not self.signals:
            raise ConfigError(
                'got signals = []; name what clients lie about, e.g. signals = ["loss"]'
            )
        for topic in self.signals:
            if topic not in (*TOPICS, "all"):
                topics = ", ".join((*TOPICS, "all"))
                raise ConfigError(
                    f"got signals = {list(self.signals)}{suggest(topic, TOPICS)}; expected some "
                    f"of: {topics}"
                )

    @override
    def liars(self, key: Key, ids: Ids, round_index: int) -> Bools:
        if max(round_index, 1) < self.start:
            return np.zeros(len(ids), bool)
        if self.clients is not None:
            return np.isin(ids, self.clients)
        return np.asarray(key.fold("corrupt").uniform(ids)[:, 0] < self.share)

    @override
    def topics(self) -> frozenset[str]:
        return frozenset(TOPICS if "all" in self.signals else self.signals)


@dataclass(frozen=True)
class ConstantClaim(Liars):
    """Every liar always claims the same number, plausible or not.

    Parameters
    ----------
    value: the claim, in the unit of each signal; of seconds 1 / ``value``. It may be ``inf``, which
    selectors take for no answer.

    Example
    -------
    >>> ConstantClaim(value=50.0).claims(np.array([1.0, 2.0]), np.nan).tolist()
    [50.0, 50.0]
    """

    value: float = 1e308

    @override
    def claims(self, appeal: Floats, goal: float) -> Floats:
        return np.full(len(appeal), self.value)


@dataclass(frozen=True)
class ScaledClaim(Liars):
    """Every liar claims a multiple of the truth, of seconds a fraction.

    Parameters
    ----------
    factor: above 0.

    Example
    -------
    >>> ScaledClaim(factor=10.0).claims(np.array([1.0, 2.0]), np.nan).tolist()
    [10.0, 20.0]
    """

    factor: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.factor < np.inf:
            raise ConfigError(f"got factor = {self.factor}; expected a finite number above 0")

    @override
    def claims(self, appeal: Floats, goal: float) -> Floats:
        with np.errstate(over="ignore"):
            return appeal * self.factor


@dataclass(frozen=True)
class CopiedBest(Liars):
    """Every liar claims what the most attractive honest client says at the same time; if none says
    anything, what one said last."""

    @override
    def goal(self, heard: Floats) -> float:
        return float(heard.max())

    @override
    def claims(self, appeal: Floats, goal: float) -> Floats:
        return appeal if np.isnan(goal) else np.full(len(appeal), goal)


@dataclass(frozen=True)
class Coalition(Liars):
    """All liars tell one story that no test of outliers catches: an upper quantile of what honest
    clients say.

    A liar whose true number is larger tells the truth. Liars know what honest clients say at the
    same time; if none says anything, what they said last.

    Parameters
    ----------
    quantile: of the honest numbers, in (0, 1].

    Example
    -------
    >>> story = Coalition(quantile=0.5)
    >>> story.claims(np.array([1.0, 9.0]), story.goal(np.array([2.0, 4.0, 8.0]))).tolist()
    [4.0, 9.0]
    """

    quantile: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("quantile", self.quantile, zero=False)

    @override
    def goal(self, heard: Floats) -> float:
        return float(np.sort(heard)[int(self.quantile * (len(heard) - 1))])

    @override
    def claims(self, appeal: Floats, goal: float) -> Floats:
        return np.fmax(appeal, goal)
