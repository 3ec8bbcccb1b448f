"""What clients hold of the model, where that is not all of it: it decides the length of their
messages, the operations of their work, and where their updates count.

A run has one :class:`Holding`; planner, dispatch, estimates and probes ask it. Slices
(:mod:`~motley.rounds.holdings.slices`), heads (:mod:`~motley.rounds.holdings.heads`) and prototypes
(:mod:`~motley.rounds.holdings.prototypes`) have one each, and so do several models, of which a
client takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from motley.algorithms.parts import ClientState
from motley.core.arrays import Floats, Ids
from motley.core.records import Cohort
from motley.engines.engine import DataView, Setting, TrainResult
from motley.rounds.channel import Channel

Bits = tuple[Ids, Ids]
"""Bits on the wire, and these as papers count them, ``[n]`` each."""
View = DataView | None
"""The clients' data views; None: they see all their samples."""
StepSeconds = Callable[[Ids, int], Floats]
"""Client ids and a round -> the seconds of a step on the whole model, ``[n]``."""
StatesOf = Callable[[Iterable[int]], Mapping[int, ClientState | None]]
"""Client ids -> what the algorithm keeps of these clients."""


class Holding:
    """What clients hold of the model; as it stands, all of it, of models of different
    architectures that of their own.

    A device's seconds per step are those of the first architecture; another takes its share of the
    operations.

    Parameters
    ----------
    setting: of the run.

    Attributes
    ----------
    cut: whether any client may hold less than the model's width.
    listed: the widths that a client may have or train, falling.
    """

    cut: bool = False
    listed: tuple[float, ...] = ()

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._architecture_share: Floats | None = None
        if setting.task.architectures is not None:
            each = np.array([kind.forward_operations() for kind in setting.kinds], np.float64)
            if setting.algorithm.local.trains_common:
                each += each[-1]
            self._architecture_share = each[setting.task.architectures.numbers] / each[0]

    def widths(self, ids: Ids, round: int) -> Floats:
        """Return the share of the model's width that each client holds in a round, ``[n]``."""
        return np.ones(len(ids))

    def chosen(self, cohort: Cohort) -> Holding:
        """Return what the clients of a cohort hold, now that they are chosen; of others: this."""
        return self

    def offset(self, version: int) -> int:
        """Return the number of the first unit that clients hold of this version of the model."""
        return 0

    def work_share(self, ids: Ids, round: int) -> float | Floats:
        """Return the operations of a pass through what each client holds, as shares of those
        through the whole model, one number or ``[n]``."""
        shares = self._architecture_share
        return 1.0 if shares is None else np.asarray(shares[ids], np.float64)

    def step_factor(self, ids: Ids, round: int) -> float | Floats:
        """Return how many passes through all that a client holds a local step takes, one number or
        ``[n]``."""
        return 1.0

    def probe_batches(self, ids: Ids) -> int | Ids:
        """Return the batches that each client passes forward before it is probed, ``[n]``."""
        return 0

    def bits_down(self, ids: Ids, round: int, full_bits: Ids) -> Ids:
        """Return the bits of the model on its way to each client ``[n]``, of which the whole model
        has ``full_bits``; 0 stays 0."""
        return full_bits

    def bits_up(self, channel: Channel, ids: Ids, round: int, view: View, full_bits: Bits) -> Bits:
        """Return the bits of each upload. ``channel``: sizes of whole messages. ``full_bits``: the
        bits of clients that hold the whole model."""
        return full_bits

    def spared(self, ids: Ids, round: int, gradient: bool) -> tuple[Ids, Ids] | None:
        """Return how much less than the whole model travels in a probe, ``[n]`` each: bits down,
        and numbers of a gradient up, if it is sent; None: nothing."""
        return None

    def cover(self, result: TrainResult) -> TrainResult:
        """Return a training result whose update counts where the client holds the model."""
        return result


class ChosenModel(Holding):
    """Clients that receive several models, and choose one by the loss of each on all their training
    samples."""

    def probe_batches(self, ids: Ids) -> int | Ids:
        """See :meth:`Holding.probe_batches`."""
        choice = self.setting.algorithm.local.choice
        batches = self.setting.work.batches(self.setting.task.federation.seen[ids])
        return batches if choice is None else choice.models * batches
