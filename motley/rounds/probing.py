"""What is known about clients before they are asked to train: what they tell at enrolment, what the planner expects of them, and
how long measuring takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.layout import Layout
from motley.core.records import SIGNALS
from motley.core.work import LocalWork
from motley.engines.base import MEASURED, PRE_TRAINING
from motley.tasks.base import Federation, ModelState
from motley.timing.timeline import FORWARD, transfer_s

__all__ = ["ENROLLED", "arrival", "estimates", "numbers", "passes", "told"]


ENROLLED = frozenset(name for name, signal in SIGNALS.items() if signal.kind == "enrolment")
"""What clients send at enrolment; whatever else is enrolled the server knows itself."""


def told(federation: Federation, model: ModelState, layout: Layout) -> dict[str, Floats]:
    """Signals of everybody before round 1, ``[K, ...]``: labels and sizes, and the initial model's last layer, one row for all."""
    last = model.x[layout.last_layer].cpu().double().numpy()
    return {
        "label_histogram": federation.histogram(),
        "num_examples": federation.seen.astype(np.float64),
        "last_layer": np.broadcast_to(last, (len(federation), len(last))),
    }


def estimates(down_bits: int, down_mbps: Floats, compute_s: Floats, up_bits: int, up_mbps: Floats) -> dict[str, Floats]:
    """The planner's signals ``[n]``: a whole model down, the full local work, a whole update up, in this round."""
    return {
        "uplink_mbps": up_mbps,
        "download_estimate_s": transfer_s(down_bits, down_mbps),
        "compute_estimate_s": compute_s,
        "upload_estimate_s": transfer_s(up_bits, up_mbps),
    }


def passes(want: Mapping[str, int | None], federation: Federation, work: LocalWork, ids: Ids) -> Floats:
    """Batches each client puts forward to measure these signals, ``[n]``. One pass over samples serves all that is wanted of
    them; a gradient costs a whole local step, that is ``1 / FORWARD`` batches put forward."""
    cost = {"forward": 1.0, "gradient": 1.0 / FORWARD}
    total = np.zeros(len(ids))
    for part, sizes in {"training": federation.seen, "validation": federation.validation.sizes}.items():
        whole = work.batches(sizes[ids]).astype(np.float64)
        for_each = [
            cost[MEASURED[name][1]] * (whole if batches is None else np.minimum(batches, whole))
            for name, batches in want.items()
            if MEASURED[name][0] == part
        ]
        total += np.max(for_each, axis=0) if for_each else 0.0
    return total


def arrival(reported: Iterable[str], correction: Iterable[str] = ()) -> dict[str, int | None]:
    """What is measured on the received model, on all samples, to report these signals and for the correction to know."""
    return dict.fromkeys(sorted({PRE_TRAINING[name] for name in reported if name in PRE_TRAINING} | set(correction)))


def numbers(signals: Mapping[str, Floats]) -> int:
    """How many numbers a client sends with these signals, ``[n]`` or ``[n, d]`` each."""
    return sum(int(np.prod(value.shape[1:])) for value in signals.values())
