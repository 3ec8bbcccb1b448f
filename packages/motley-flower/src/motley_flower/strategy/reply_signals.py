"""Compute signals from the models that clients send back; the formulas are in
:mod:`motley.core.server_signals`."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.core.keys import Streams
from motley.core.server_signals import LAST_UPDATE, Value, next_consensus, update_signals
from motley_flower.strategy.replies import ClientResult
from motley_flower.strategy.strategy_state import SelectionState

Arrays = Mapping[str, NDArray[Any]]

LEARNING_RATES = "learning_rates"
"""Metric key under which a client reports the sum of its local steps' learning rates."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _parameters(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """All floating arrays but BatchNorm's running statistics, in the record's order."""
    return {
        name: array
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not name.endswith(_STATISTICS)
    }


def _flat(arrays: Iterable[NDArray[Any]]) -> Floats:
    parts = [np.asarray(array, np.float64).ravel() for array in arrays]
    return np.concatenate(parts) if parts else np.zeros(0)


def model_vector(arrays: Arrays) -> Floats:
    """Return a model's parameters as one vector ``[D]``: all floating arrays but BatchNorm's
    running statistics, in order."""
    return _flat(_parameters(arrays).values())


def last_layer(arrays: Arrays) -> Floats:
    """Return weights and bias of a model's last matrix ``[d]``; all parameters where the model has
    no matrix."""
    parameters = list(_parameters(arrays).values())
    matrices = [i for i, array in enumerate(parameters) if array.ndim == 2]
    if not matrices:
        return _flat(parameters)
    weight = parameters[matrices[-1]]
    following = parameters[matrices[-1] + 1 : matrices[-1] + 2]
    return _flat([weight, *(array for array in following if array.shape == weight.shape[:1])])


def output_bias(arrays: Arrays) -> slice | None:
    """Return where in a model's vector the bias of its last matrix is; None where there is none."""
    parameters = list(_parameters(arrays).values())
    matrices = [i for i, array in enumerate(parameters) if array.ndim == 2]
    following = parameters[matrices[-1] + 1 : matrices[-1] + 2] if matrices else []
    if not following or following[0].shape != parameters[matrices[-1]].shape[:1]:
        return None
    start = sum(array.size for array in parameters[: matrices[-1] + 1])
    return slice(start, start + following[0].size)


def arrays_of(record: Any, without: Container[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ArrayRecord by name; ``without``: names that are left out."""
    return {name: array.numpy() for name, array in record.items() if name not in without}


@dataclass(frozen=True)
class ReplySignals:
    """The signals of clients' updates that the server computes in one run.

    Parameters
    ----------
    wanted: names in :data:`~motley.core.server_signals.UPDATE_SIGNALS`.
    streams: of the selector's seed.
    keeps: whether every client's last update is kept for
    :data:`~motley.core.server_signals.LAST_UPDATE`; lost when the server starts again.
    """

    wanted: frozenset[str]
    streams: Streams
    keeps: bool = False

    @property
    def reported(self) -> frozenset[str]:
        """What clients must report for these signals: the sum of their learning rates, if a
        gradient is wanted."""
        return frozenset({LEARNING_RATES} if self.wanted & {"gradient", "gradient_sketch"} else ())

    @property
    def compares(self) -> bool:
        """Whether any signal is made of updates."""
        return bool(self.wanted) or self.keeps

    def of(
        self, client: int, result: ClientResult, model: Floats, state: SelectionState
    ) -> dict[str, Value]:
        """Return the wanted signals of one client's result, and stage its update where last updates
        are kept; ``model``: the vector ``[D]`` that training started from."""
        if not self.compares:
            return {}
        arrays = {
            name: array for name, array in result.arrays.items() if name not in state.first_dtypes
        }
        update = model_vector(arrays) - model
        if self.keeps:
            state.last_updates.stage(client, update)
        rates = float(result.signals.get(LEARNING_RATES, math.nan))
        same = _of_size(state.consensus, len(update))
        return update_signals(
            wanted=self.wanted,
            update=update,
            rates=rates,
            last_layer=lambda: last_layer(arrays),
            output_bias=output_bias(arrays),
            consensus=same,
            streams=self.streams,
        )

    def before_choice(
        self, state: SelectionState, clients: Iterable[int]
    ) -> dict[int, dict[str, Value]]:
        """Return the signals of candidates that the server knows without asking them."""
        ids = np.array(list(clients) if self.keeps else [], np.int64)
        cosines = state.last_updates.cosines(ids, state.consensus).tolist()
        return {
            client: {LAST_UPDATE: cosine}
            for client, cosine in zip(ids.tolist(), cosines, strict=True)
        }

    def stepped(self, state: SelectionState, before: Any, after: Any) -> None:
        """Take in a server step between two ArrayRecords: move the consensus update, keep the
        staged updates."""
        if "cosine" in self.wanted or self.keeps:
            new, old = (arrays_of(record, state.first_dtypes) for record in (after, before))
            total = model_vector(new) - model_vector(old)
            state.consensus = next_consensus(_of_size(state.consensus, len(total)), total)
            state.last_updates.commit()


def _of_size(consensus: Floats | None, size: int) -> Floats | None:
    """Return the consensus update, if it is one of a model of this size."""
    return consensus if consensus is not None and len(consensus) == size else None
