"""What is done with single uploads before they are aggregated: staleness scaling, simulated
corruption; and all of it in a worker, which sends only the sum."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from motley.algorithms.parts import Aggregator, Upload
from motley.core.arrays import Floats
from motley.engines.engine import TrainResult
from motley.rounds.channel import UploadCheck


@dataclass(frozen=True)
class UploadSum:
    """Adds uploads where they arise, as the round loop adds them
    (:class:`~motley.engines.engine.Reduction`).

    Parameters
    ----------
    aggregator: of the run, which joins sums.
    check: of what leaves a client.
    weights: raw, by position.
    own_weights: of the clients, by position.
    factors: on the updates of corrupted clients.
    scales: for staleness; None: none.
    """

    aggregator: Aggregator
    check: UploadCheck
    weights: Floats
    own_weights: Floats
    factors: Floats
    scales: Floats | None

    def begin(self) -> Any:
        """Return an empty accumulator."""
        return self.aggregator.init()

    def add(self, total: Any, position: int, result: TrainResult) -> tuple[Any, TrainResult]:
        """Add the upload at a position unless it is not finite; return the accumulator, and the
        result without its upload."""
        result = corrupted(self.check(result), float(self.factors[position]))
        if not result.finite:
            return total, dataclasses.replace(result, parts={}, client_state=None)
        upload = Upload(
            result.parts,
            float(self.weights[position]),
            client=result.client,
            own_weight=float(self.own_weights[position]),
        )
        if self.scales is not None:
            upload = scaled(upload, float(self.scales[position]))
        total = self.aggregator.add(total, upload._replace(position=position))
        return total, dataclasses.replace(result, parts={})

    def partial(self, total: Any) -> Any:
        """Return the sum in the accumulator as it travels."""
        return self.aggregator.partial(total)


def scaled(upload: Upload, factor: float) -> Upload:
    """Return an upload whose update is multiplied by its staleness factor (FedBuff); aggregators
    weigh buffers by ``scale``."""
    delta = upload.parts["delta"]
    return upload._replace(
        parts={**upload.parts, "delta": delta._replace(value=factor * delta.value)}, scale=factor
    )


def corrupted(result: TrainResult, factor: float) -> TrainResult:
    """Return the result of a client whose update is multiplied by ``factor`` before it is sent; 1
    changes nothing.

    INTERPRETATION: the update alone; buffers, counters and control variates are as training made
    them. The norm of the update that the client reports follows."""
    if factor == 1.0 or not result.finite:
        return result
    delta = result.parts["delta"]
    signals = dict(result.signals)
    value = factor * delta.value
    if "update_norm" in signals:
        signals["update_norm"] = abs(factor) * signals["update_norm"]
    parts = {**result.parts, "delta": delta._replace(value=value)}
    finite = bool(torch.isfinite(value).all())
    return dataclasses.replace(result, parts=parts, signals=signals, finite=finite)
