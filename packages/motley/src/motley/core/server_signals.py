"""Signals that the server computes from uploads it received; they cost no bits and no client
reports them.

    gradient          -update / (sum of learning rates)   the pseudo-gradient
    gradient_sketch   its projection to 256 numbers
    sketch            the update's projection to 64 numbers
    last_layer        weights of the last linear layer after training
    output_bias       what the update adds to the bias of the last linear layer
    cosine            <update, c> / (|update| |c|)
    update_norm       |update|

    last_update_cosine  the cosine of a client's last update with the c of now, before a choice:
                        :mod:`motley.core.last_updates`

where update is how far one client's training moved its model, and total is the aggregated update
of a server step; c is the consensus update, ``c <- 0.9 c + 0.1 total``, and the first total is the
first consensus. The functions take NumPy arrays or torch tensors of float64 on the CPU and do not
import torch: dot products and norms are those of the arrays' own library, whose bits differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from motley.core.arrays import Floats
from motley.core.keys import Streams
from motley.core.sketch import SKETCHES, Sketch

Value = float | Floats
UPDATE_SIGNALS = frozenset(
    {
        "gradient",
        "gradient_sketch",
        "sketch",
        "last_layer",
        "output_bias",
        "cosine",
        "update_norm",
    }
)
"""Signals that :func:`update_signals` computes."""
LAST_UPDATE = "last_update_cosine"
"""The signal that is computed from the updates that a server keeps."""
KEEP = 0.9
"""Share of the old consensus that is kept at a server step."""


def update_signals(
    wanted: Iterable[str],
    update: Any,
    rates: float,
    last_layer: Callable[[], Any],
    output_bias: slice | None,
    consensus: Any | None,
    streams: Streams,
    norm: Callable[[Any], Any] = np.linalg.norm,
) -> dict[str, Value]:
    """Return the wanted signals of one upload by name, in alphabetical order.

    Parameters
    ----------
    wanted: names in :data:`UPDATE_SIGNALS`.
    update: ``[D]``, float64.
    rates: sum of the local steps' learning rates; the gradient is NaN where it is not above 0.
    last_layer: returns the weights of the last layer after training.
    output_bias: where in the update its bias is; None: it has none, and the signal is NaN.
    consensus: ``[D]``, or None before the first server step.
    streams: of the run's seed.
    norm: the Euclidean norm in the array library of ``update``.
    """
    vector: Floats = np.asarray(update)
    signals: dict[str, Value] = {}
    for name in sorted(wanted):
        if name == "update_norm":
            signals[name] = float(norm(update))
        elif name == "last_layer":
            signals[name] = np.asarray(last_layer())
        elif name == "output_bias":
            signals[name] = np.full(1, np.nan) if output_bias is None else vector[output_bias]
        elif name == "cosine":
            signals[name] = float("nan") if consensus is None else _cosine(update, consensus, norm)
        else:
            value = vector if name == "sketch" else _gradient(vector, rates)
            signals[name] = (
                Sketch.signal(name, streams, len(value)).of(value) if name in SKETCHES else value
            )
    return signals


def _gradient(update: Floats, rates: float) -> Floats:
    return update / -rates if rates > 0 else np.full_like(update, np.nan)


def _cosine(update: Any, consensus: Any, norm: Callable[[Any], Any]) -> float:
    lengths = float(norm(update)) * float(norm(consensus))
    return float(update @ consensus) / lengths if lengths else float("nan")


def next_consensus(consensus: Any | None, total: Any) -> Any:
    """Return the consensus update after a server step that moved the model by ``total`` ``[D]``, in
    its array library.

    >>> next_consensus(np.array([1.0, 0.0]), np.array([0.0, 1.0])).round(3)
    array([0.9, 0.1])
    """
    return total if consensus is None else KEEP * consensus + (1.0 - KEEP) * total
