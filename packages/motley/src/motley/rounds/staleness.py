"""Staleness: uploads that were trained from an older model, scaled (FedBuff) or mixed in as models
(FedAsync), as the synchrony says."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from motley.algorithms.parts import Part, Tensors, Upload
from motley.rounds.aggregation import scaled
from motley.rounds.round import Round
from motley.rounds.stage import Arrived, Stage
from motley.rounds.state import RunState
from motley.tasks.task import ModelState


class Staleness(Stage):
    """Adjusts each upload by the factor that the synchrony has found for its staleness."""

    @override
    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        landed = step.landed
        if landed.scale is None:
            return arrived
        factor = float(landed.scale[arrived.row])
        upload = arrived.upload
        if not landed.mix:
            return arrived._replace(upload=scaled(upload, factor))
        return arrived._replace(upload=mixed(upload, factor, state.server.model, arrived.download))


def mixed(upload: Upload, factor: float, newest: ModelState, download: Tensors) -> Upload:
    """Return an upload whose update leads from the newest model to ``factor`` times the way to the
    client's model (FedAsync).

    The client's model is its update added to the model it received, ``download["x"]``. Buffers are
    mixed alike."""
    delta = upload.parts["delta"]
    buffers = upload.parts.get("buffers")
    way = (
        delta.value.double()
        + download["x"].to(delta.value).double()
        - newest.x.to(delta.value).double()
    )
    parts = {**upload.parts, "delta": delta._replace(value=(factor * way).to(delta.value))}
    if buffers is not None:
        blend = factor * buffers.value + (1.0 - factor) * newest.buffers.to(buffers.value)
        parts["buffers"] = Part(blend, "convex", buffers.held)
    return upload._replace(parts=parts)
