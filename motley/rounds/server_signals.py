"""Signals that the server makes itself, from the uploads it decodes: they cost no bits.

    gradient          -update / (steps lr)                 the pseudo-gradient
    gradient_sketch   its projection to 256 numbers
    sketch            the update's projection to 64 numbers
    last_layer        (x + update), its last linear layer
    cosine            <update, c> / (|update| |c|),         c the consensus of the steps before: c <- 0.9 c + 0.1 total

where update is what one client's model moved by, as its decoded upload tells, x the model sent for it, and total the aggregated
delta of a server step; the first step's is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.base import Parts, Tensors
from motley.core.sketch import Sketch
from motley.engines.base import Setting

__all__ = ["SERVER_SIGNALS", "ServerSignals"]

KEEP = 0.9
"""Share of the old consensus that is kept at a server step."""

Value = float | NDArray[np.float64]


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
        x = self.setting.algorithm.correction.start(download, None).x
        return {name: _MADE[name](self, update, x, rates) for name in self.wanted}

    def step(self, total: Tensors) -> None:
        """Take a server step into the consensus."""
        if "cosine" in self.wanted:
            new, old = total["delta"].cpu().double(), self.consensus
            self.consensus = new.clone() if old is None else KEEP * old + (1.0 - KEEP) * new

    def save(self) -> dict[str, NDArray[np.float64]]:
        """The consensus, if there is one."""
        return {} if self.consensus is None else {"consensus": self.consensus.numpy()}

    def restore(self, saved: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from :meth:`save`."""
        self.consensus = torch.from_numpy(saved["consensus"]) if saved else None

    def _gradient(self, update: Tensor, x: Tensor, rates: float) -> NDArray[np.float64]:
        return (update / -rates if rates else torch.full_like(update, torch.nan)).numpy()

    def _gradient_sketch(self, update: Tensor, x: Tensor, rates: float) -> NDArray[np.float64]:
        return self._project("gradient_sketch", self._gradient(update, x, rates))

    def _sketch(self, update: Tensor, x: Tensor, rates: float) -> NDArray[np.float64]:
        return self._project("sketch", update.numpy())

    def _project(self, name: str, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        return Sketch.signal(name, self.setting.streams, self.layout.size).of(vector)

    def _last_layer(self, update: Tensor, x: Tensor, rates: float) -> NDArray[np.float64]:
        at = self.layout.last_layer
        return (x[at].cpu().double() + update[at]).numpy()

    def _cosine(self, update: Tensor, x: Tensor, rates: float) -> float:
        if self.consensus is None:
            return float("nan")
        lengths = float(update.norm() * self.consensus.norm())
        return float(update @ self.consensus) / lengths if lengths else float("nan")


_MADE: Mapping[str, Callable[[ServerSignals, Tensor, Tensor, float], Value]] = {
    "gradient": ServerSignals._gradient,
    "gradient_sketch": ServerSignals._gradient_sketch,
    "sketch": ServerSignals._sketch,
    "last_layer": ServerSignals._last_layer,
    "cosine": ServerSignals._cosine,
}
SERVER_SIGNALS = frozenset(_MADE)
"""Reported signals that are made of decoded uploads."""
