"""Adjustments of single uploads before they are aggregated: staleness scaling, FedAsync mixing, simulated corruption."""

from __future__ import annotations

import dataclasses

import torch

from motley.algorithms.base import Part, Tensors, Upload
from motley.engines.base import TrainResult
from motley.tasks.base import ModelState

__all__ = ["adjusted", "corrupted", "mixed", "scaled"]


def adjusted(upload: Upload, scale: float | None, mix: bool, newest: ModelState, download: Tensors) -> Upload:
    """Return an upload adjusted for its staleness; ``scale``: the factor, None for none. ``mix``: as a model, not as an update."""
    if scale is None:
        return upload
    return mixed(upload, scale, newest, download) if mix else scaled(upload, scale)


def scaled(upload: Upload, factor: float) -> Upload:
    """Return an upload whose update is multiplied by its staleness factor (FedBuff); aggregators weigh buffers by ``scale``."""
    delta = upload.parts["delta"]
    return upload._replace(parts={**upload.parts, "delta": delta._replace(value=factor * delta.value)}, scale=factor)


def mixed(upload: Upload, factor: float, newest: ModelState, download: Tensors) -> Upload:
    """Return an upload whose update leads from the newest model to ``factor`` times the way to the client's model (FedAsync).

    The client's model is its update added to the model it received, ``download["x"]``. Buffers are mixed alike."""
    delta, buffers = upload.parts["delta"], upload.parts.get("buffers")
    way = delta.value.double() + download["x"].to(delta.value).double() - newest.x.to(delta.value).double()
    parts = {**upload.parts, "delta": delta._replace(value=(factor * way).to(delta.value))}
    if buffers is not None:
        blend = factor * buffers.value + (1.0 - factor) * newest.buffers.to(buffers.value)
        parts["buffers"] = Part(blend, "convex", buffers.held)
    return upload._replace(parts=parts)


def corrupted(result: TrainResult, factor: float) -> TrainResult:
    """Return the result of a client whose update is multiplied by ``factor`` before it is sent; 1 changes nothing.

    INTERPRETATION: the update alone; buffers, counters and control variates are as training made them. The norm of the update that
    the client reports follows."""
    if factor == 1.0 or not result.finite:
        return result
    delta, signals = result.parts["delta"], dict(result.signals)
    value = factor * delta.value
    if "update_norm" in signals:
        signals["update_norm"] = abs(factor) * signals["update_norm"]
    parts, finite = {**result.parts, "delta": delta._replace(value=value)}, bool(torch.isfinite(value).all())
    return dataclasses.replace(result, parts=parts, signals=signals, finite=finite)
