"""Signals that the server computes from decoded uploads (:mod:`motley.core.server_signals`), in torch's arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from motley.algorithms.base import Parts, Tensors
from motley.core.server_signals import UPDATE_SIGNALS, Value, next_consensus, update_signals
from motley.engines.base import REPORTED, Setting

__all__ = ["SERVER_SIGNALS", "ServerSignals"]

SERVER_SIGNALS = UPDATE_SIGNALS - REPORTED
"""Reported signals that are computed from decoded uploads; the norm of its update is known to the engine."""


class ServerSignals:
    """Computes the signals of decoded uploads in one run; the consensus update is part of the run's state.

    Parameters
    ----------
    wanted: names of signals; names other than :data:`SERVER_SIGNALS` are ignored. setting: what is trained.
    """

    def __init__(self, wanted: Iterable[str], setting: Setting) -> None:
        self.wanted = sorted(set(wanted) & SERVER_SIGNALS)
        self.setting, self.layout = setting, setting.task.layout

    def of(self, parts: Parts, download: Tensors, rates: float, consensus: Tensor | None) -> dict[str, Value]:
        """Return the wanted signals of one upload by name.

        Parameters
        ----------
        parts: decoded. download: what the client was sent. rates: sum of its local steps' learning rates. consensus: ``[D]``.
        """
        if not self.wanted:
            return {}
        update = self.setting.algorithm.correction.update(parts).cpu().double()
        x, at = self.setting.algorithm.correction.received(download, parts).x, self.layout.last_layer
        streams = self.setting.streams
        return update_signals(
            self.wanted, update, rates, lambda: x[at].cpu().double() + update[at], consensus, streams, Tensor.norm
        )

    def next_consensus(self, consensus: Tensor | None, total: Tensors) -> Tensor | None:
        """Return the consensus update ``[D]`` after a server step on ``total``; None where no signal compares with it."""
        if "cosine" not in self.wanted:
            return consensus
        new: Tensor = next_consensus(consensus, total["delta"].cpu().double().clone())
        return new
