"""Signals that are known before clients train: what they send at enrolment, what the planner
expects, and how long measuring takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.layout import Layout
from motley.core.records import SIGNALS
from motley.core.work import FORWARD, LocalWork
from motley.engines.engine import MEASURED, PRE_TRAINING
from motley.tasks.task import Federation, ModelState
from motley.timing.timeline import transfer_s

ENROLLED = frozenset(name for name, signal in SIGNALS.items() if signal.kind == "enrolment")
"""Signals that clients send at enrolment; the server knows other enrolled signals itself."""


def enrolment_signals(
    federation: Federation, ids: Ids, wanted: frozenset[str]
) -> dict[str, Floats]:
    """Return what these clients send before round 1, ``[n, ...]``, of what is wanted: label counts
    and number of samples."""
    if "num_examples" in wanted:
        signals = {"num_examples": federation.seen[ids].astype(np.float64)}
    else:
        signals = {}
    return signals | (
        {"label_histogram": federation.histogram()[ids]} if "label_histogram" in wanted else {}
    )


def last_layer(model: ModelState, layout: Layout, n: int) -> Floats:
    """Return the weights of a model's last layer once for each of n clients, ``[n, d]`` (one row,
    broadcast)."""
    last = model.x[layout.last_layer].cpu().double().numpy()
    return np.broadcast_to(last, (n, len(last)))


def estimates(
    down_bits: Ids, down_mbps: Floats, compute_s: Floats, up_bits: Ids, up_mbps: Floats
) -> dict[str, Floats]:
    """Return the planner's signals ``[n]``: the model down, the full local work, the update up, in
    this round."""
    return {
        "uplink_mbps": up_mbps,
        "download_estimate_s": transfer_s(down_bits, down_mbps),
        "compute_estimate_s": compute_s,
        "upload_estimate_s": transfer_s(up_bits, up_mbps),
    }


def passes(
    want: Mapping[str, int | None], federation: Federation, work: LocalWork, ids: Ids
) -> Floats:
    """Return the number of batches that each client passes forward to measure these signals,
    ``[n]``.

    One pass over samples serves all signals measured on them; a gradient costs a whole local step,
    which is ``1 / FORWARD`` forward passes."""
    cost = {"forward": 1.0, "gradient": 1.0 / FORWARD}
    total = np.zeros(len(ids))
    for part in ("training", "validation", "test"):
        wanted = {name: batches for name, batches in want.items() if MEASURED[name][0] == part}
        if not wanted:
            continue
        sizes = federation.seen if part == "training" else getattr(federation, part).sizes
        all_batches = work.batches(sizes[ids]).astype(np.float64)
        for_each = [
            cost[MEASURED[name][1]]
            * (all_batches if batches is None else np.minimum(batches, all_batches))
            for name, batches in wanted.items()
        ]
        total += np.max(for_each, axis=0)
    return total


def pre_training_signals(
    reported: Iterable[str], correction: Iterable[str] = ()
) -> dict[str, int | None]:
    """Return the signals measured on the received model, on all samples (None), for these reported
    signals and for the correction."""
    return dict.fromkeys(
        # a set of names has another order in every process
        sorted({PRE_TRAINING[name] for name in reported if name in PRE_TRAINING} | set(correction))
    )


def count_scalars(signals: Mapping[str, Floats]) -> int:
    """Return how many numbers a client sends with these signals, ``[n]`` or ``[n, d]`` each."""
    return sum(int(np.prod(value.shape[1:])) for value in signals.values())
