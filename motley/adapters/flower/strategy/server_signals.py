"""Signals that the server makes of uploads: they cost no bits, and nobody can lie about them.

    update_norm       |update|
    gradient          -update / (sum of learning rates)      the client tells that sum, as ``learning_rates``
    gradient_sketch   its projection to 256 numbers
    sketch            the update's projection to 64 numbers
    last_layer        weights and bias of the last matrix, after training
    cosine            <update, c> / (|update| |c|),          c <- 0.9 c + 0.1 total, as in the simulation

An update is what came back minus what was sent, over all floating arrays but BatchNorm's running statistics, in the record's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.keys import Streams
from motley.core.sketch import SKETCHES, Sketch

__all__ = ["MADE", "RATES", "ReplySignals", "flat", "last_layer"]

Arrays = Mapping[str, NDArray[Any]]
Value = float | NDArray[np.float64]

MADE = frozenset({"update_norm", "gradient", "gradient_sketch", "sketch", "last_layer", "cosine"})
"""Reported signals that are made here."""
RATES = "learning_rates"
"""Key under which a client tells the sum of its local steps' learning rates."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_KEEP = 0.9


def _learned(name: str, array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and not name.endswith(_STATISTICS)


def flat(arrays: Arrays) -> NDArray[np.float64]:
    """The learned arrays as one vector."""
    parts = [np.asarray(array, np.float64).ravel() for name, array in arrays.items() if _learned(name, array)]
    return np.concatenate(parts) if parts else np.zeros(0)


def last_layer(arrays: Arrays) -> NDArray[np.float64]:
    """Weights and bias of the last matrix; the whole vector where there is none."""
    learned = {name: array for name, array in arrays.items() if _learned(name, array)}
    names = list(learned)
    matrices = [i for i, name in enumerate(names) if learned[name].ndim == 2]
    if not matrices:
        return flat(arrays)
    at = matrices[-1]
    bias = (
        names[at + 1 : at + 2] if len(names) > at + 1 and learned[names[at + 1]].shape == learned[names[at]].shape[:1] else []
    )
    return flat({name: learned[name] for name in [names[at], *bias]})


class ReplySignals:
    """What is made of the uploads of one run.

    Parameters
    ----------
    wanted: names of signals; others than :data:`MADE` are passed over. seed: of the sketches.
    """

    def __init__(self, wanted: Iterable[str], seed: int) -> None:
        self.wanted, self.streams = sorted(set(wanted) & MADE), Streams(seed)
        self.consensus: NDArray[np.float64] | None = None

    def signals(self, sent: NDArray[np.float64], arrays: Arrays, rates: float) -> dict[str, Value]:
        """The wanted signals of one upload; ``sent``: the flat vector it started from."""
        if not self.wanted:
            return {}
        update = flat(arrays) - sent
        out: dict[str, Value] = {}
        for name in self.wanted:
            if name == "update_norm":
                out[name] = float(np.linalg.norm(update))
            elif name == "last_layer":
                out[name] = last_layer(arrays)
            elif name == "cosine":
                out[name] = self._cosine(update)
            else:
                vector = update if name == "sketch" else -update / rates if rates > 0 else np.full_like(update, np.nan)
                out[name] = Sketch.signal(name, self.streams, len(vector)).of(vector) if name in SKETCHES else vector
        return out

    def _cosine(self, update: NDArray[np.float64]) -> float:
        if self.consensus is None or len(self.consensus) != len(update):
            return float("nan")
        lengths = float(np.linalg.norm(update) * np.linalg.norm(self.consensus))
        return float(update @ self.consensus) / lengths if lengths else float("nan")

    def step(self, total: NDArray[np.float64]) -> None:
        """Take what the model moved by into the consensus."""
        if "cosine" in self.wanted:
            same = self.consensus is not None and len(self.consensus) == len(total)
            self.consensus = _KEEP * self.consensus + (1.0 - _KEEP) * total if same and self.consensus is not None else total
