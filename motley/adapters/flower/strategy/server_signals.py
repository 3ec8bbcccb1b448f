"""Signals that the server computes from replies (:mod:`motley.core.server_signals`).

An update is what came back minus what was sent, over all floating arrays but BatchNorm's running statistics, in the record's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.keys import Streams
from motley.core.server_signals import UPDATE_SIGNALS, Value, next_consensus, update_signals

__all__ = ["RATES", "ReplySignals", "flat", "last_layer"]

Arrays = Mapping[str, NDArray[Any]]

RATES = "learning_rates"
"""Key under which a client tells the sum of its local steps' learning rates."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


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
    wanted: names of signals; others than :data:`UPDATE_SIGNALS` are passed over. seed: of the sketches.
    """

    def __init__(self, wanted: Iterable[str], seed: int) -> None:
        self.wanted, self.streams = sorted(set(wanted) & UPDATE_SIGNALS), Streams(seed)
        self.consensus: NDArray[np.float64] | None = None

    def signals(self, sent: NDArray[np.float64], arrays: Arrays, rates: float) -> dict[str, Value]:
        """The wanted signals of one upload; ``sent``: the flat vector it started from."""
        if not self.wanted:
            return {}
        update = flat(arrays) - sent
        same = self.consensus is not None and len(self.consensus) == len(update)
        consensus = self.consensus if same else None
        return update_signals(self.wanted, update, rates, lambda: last_layer(arrays), consensus, self.streams)

    def step(self, total: NDArray[np.float64]) -> None:
        """Take what the model moved by into the consensus."""
        if "cosine" in self.wanted:
            same = self.consensus is not None and len(self.consensus) == len(total)
            self.consensus = next_consensus(self.consensus if same else None, total)
