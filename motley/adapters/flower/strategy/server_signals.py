"""Compute signals from the models that clients send back; the formulas are in :mod:`motley.core.server_signals`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.strategy.replies import ClientResult
from motley.core.arrays import Floats
from motley.core.keys import Streams
from motley.core.server_signals import Value, next_consensus, update_signals

__all__ = ["LEARNING_RATES", "ReplySignals", "arrays_of", "last_layer", "model_vector"]

Arrays = Mapping[str, NDArray[Any]]

LEARNING_RATES = "learning_rates"
"""Metric key under which a client reports the sum of its local steps' learning rates."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _parameters(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """All floating arrays but BatchNorm's running statistics, in the record's order."""
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f" and not name.endswith(_STATISTICS)}


def _flat(arrays: Iterable[NDArray[Any]]) -> Floats:
    parts = [np.asarray(array, np.float64).ravel() for array in arrays]
    return np.concatenate(parts) if parts else np.zeros(0)


def model_vector(arrays: Arrays) -> Floats:
    """Return a model's parameters as one vector ``[D]``: all floating arrays but BatchNorm's running statistics, in order."""
    return _flat(_parameters(arrays).values())


def last_layer(arrays: Arrays) -> Floats:
    """Return weights and bias of a model's last matrix ``[d]``; all parameters where the model has no matrix."""
    parameters = list(_parameters(arrays).values())
    matrices = [i for i, array in enumerate(parameters) if array.ndim == 2]
    if not matrices:
        return _flat(parameters)
    weight, following = parameters[matrices[-1]], parameters[matrices[-1] + 1 : matrices[-1] + 2]
    return _flat([weight, *(array for array in following if array.shape == weight.shape[:1])])


def arrays_of(record: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ArrayRecord by name."""
    return {name: array.numpy() for name, array in record.items()}


@dataclass(frozen=True)
class ReplySignals:
    """The signals of clients' updates that the server computes in one run.

    Parameters
    ----------
    wanted: names in :data:`~motley.core.server_signals.UPDATE_SIGNALS`. streams: of the selector's seed.
    """

    wanted: frozenset[str]
    streams: Streams

    @property
    def reported(self) -> frozenset[str]:
        """What clients must report for these signals: the sum of their learning rates, if a gradient is wanted."""
        return frozenset({LEARNING_RATES} if self.wanted & {"gradient", "gradient_sketch"} else ())

    def of(self, result: ClientResult, model: Floats, consensus: Floats | None) -> dict[str, Value]:
        """Return the wanted signals of one client's result; ``model``: the vector ``[D]`` that training started from."""
        if not self.wanted:
            return {}
        update = model_vector(result.arrays) - model
        rates = float(result.signals.get(LEARNING_RATES, math.nan))
        same = _of_size(consensus, len(update))
        return update_signals(self.wanted, update, rates, lambda: last_layer(result.arrays), same, self.streams)

    def next_consensus(self, consensus: Floats | None, before: Any, after: Any) -> Floats | None:
        """Return the consensus update after a server step between two ArrayRecords; unchanged where no signal compares with it."""
        if "cosine" not in self.wanted:
            return consensus
        total = model_vector(arrays_of(after)) - model_vector(arrays_of(before))
        new: Floats = next_consensus(_of_size(consensus, len(total)), total)
        return new


def _of_size(consensus: Floats | None, size: int) -> Floats | None:
    """Return the consensus update, if it is one of a model of this size."""
    return consensus if consensus is not None and len(consensus) == size else None
