"""Updates that are not what they were: late ones, times their staleness factor or as the way to the client's model; corrupted ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.base import Part, Tensors, Upload
from motley.engines.base import TrainResult
from motley.rounds.in_flight import InFlight
from motley.tasks.base import ModelState
from motley.timing.synchrony import ServerStep

__all__ = ["corrupted", "mixed", "scaled", "weighed"]

Numbered = Iterator[tuple[int, Upload]]
"""An upload and the row of its flight."""


def weighed(
    uploads: Numbered,
    step: ServerStep,
    gone: NDArray[np.int64],
    landed: InFlight,
    newest: ModelState,
    downloads: Mapping[int, Tensors],
) -> Iterator[Upload]:
    """The uploads as the step wants them. ``gone``: which flights of the step have landed, in the order of ``landed``."""
    if step.scale is not None and step.mix:
        received = {i: downloads[version]["x"] for i, version in enumerate(landed.timelines.version.tolist())}
        uploads = mixed(uploads, step.scale[gone], newest, received)
    elif step.scale is not None:
        uploads = scaled(uploads, step.scale[gone])
    return (upload for _, upload in uploads)


def scaled(uploads: Numbered, scale: NDArray[np.float64]) -> Numbered:
    """Each update times its factor (FedBuff); the aggregator weighs buffers by it. ``scale``: by row."""
    for i, upload in uploads:
        factor, delta = float(scale[i]), upload.parts["delta"]
        yield i, upload._replace(parts={**upload.parts, "delta": delta._replace(value=factor * delta.value)}, scale=factor)


def mixed(uploads: Numbered, scale: NDArray[np.float64], newest: ModelState, received: dict[int, Tensor]) -> Numbered:
    """``scale`` times the way from the newest model to the client's own, which is its update on the model it received (FedAsync);
    buffers are mixed alike. ``received``: by row, the vector each client started from."""
    for i, upload in uploads:
        factor, delta, buffers = float(scale[i]), upload.parts["delta"], upload.parts["buffers"]
        way = delta.value.double() + received[i].to(delta.value).double() - newest.x.to(delta.value).double()
        blend = factor * buffers.value + (1.0 - factor) * newest.buffers.to(buffers.value)
        parts = {
            **upload.parts,
            "delta": delta._replace(value=(factor * way).to(delta.value)),
            "buffers": Part(blend, "convex"),
        }
        yield i, upload._replace(parts=parts)


def corrupted(stream: Iterable[TrainResult], factor: NDArray[np.float64]) -> Iterator[TrainResult]:
    """What clients send whose updates are multiplied by ``factor`` ``[n]``; 1 changes nothing. INTERPRETATION: the update alone, its
    buffers, counters and control variates are as training made them. The norm that a client tells follows."""
    for trained, by in zip(stream, factor.tolist(), strict=True):
        if by == 1.0 or not trained.finite:
            yield trained
            continue
        delta, told = trained.parts["delta"], {}
        value = by * delta.value
        if "update_norm" in trained.signals:
            told = {"update_norm": abs(by) * trained.signals["update_norm"]}
        parts, finite = {**trained.parts, "delta": delta._replace(value=value)}, bool(torch.isfinite(value).all())
        yield dataclasses.replace(trained, parts=parts, signals={**trained.signals, **told}, finite=finite)
