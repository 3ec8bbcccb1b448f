"""Signals that the server computes from decoded uploads (:mod:`motley.core.server_signals`), in torch's arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.base import Parts, Tensors
from motley.core.server_signals import UPDATE_SIGNALS, Value, next_consensus, update_signals
from motley.engines.base import REPORTED, Setting

__all__ = ["SERVER_SIGNALS", "ServerSignals"]

SERVER_SIGNALS = UPDATE_SIGNALS - REPORTED
"""Reported signals that are computed from decoded uploads; the norm of its update is known to the engine."""


class ServerSignals:
    """What is made of uploads in one run, and the consensus they are compared with.

    Parameters
    ----------
    wanted: names of signals; those that are not made here are passed over. setting: of the run.
    """

    def __init__(self, wanted: Iterable[str], setting: Setting) -> None:
        self.wanted = sorted(set(wanted) & SERVER_SIGNALS)
        self.setting, self.layout = setting, setting.task.layout
        self.consensus: Tensor | None = None

    def signals(self, parts: Parts, download: Tensors, rates: float) -> dict[str, Value]:
        """The wanted signals of one upload; ``download`` what was sent, ``rates`` the sum of its steps' learning rates."""
        if not self.wanted:
            return {}
        update = self.setting.algorithm.correction.update(parts).cpu().double()
        x, at = self.setting.algorithm.correction.start(download, None).x, self.layout.last_layer
        return update_signals(
            self.wanted,
            update,
            rates,
            lambda: x[at].cpu().double() + update[at],
            self.consensus,
            self.setting.streams,
            Tensor.norm,
        )

    def step(self, total: Tensors) -> None:
        """Take a server step into the consensus."""
        if "cosine" in self.wanted:
            self.consensus = next_consensus(self.consensus, total["delta"].cpu().double().clone())

    def save(self) -> dict[str, NDArray[np.float64]]:
        """The consensus, if there is one."""
        return {} if self.consensus is None else {"consensus": self.consensus.numpy()}

    def restore(self, saved: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from :meth:`save`."""
        self.consensus = torch.from_numpy(saved["consensus"]) if saved else None
