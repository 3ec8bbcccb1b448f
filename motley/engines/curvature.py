"""Curvature at a client's final model, layer by layer, for a compressor that wants to know (optimisation-and-compression C5).

One Hutchinson probe on one training batch, drawn by the job's own key; in training mode with the batch's BatchNorm statistics, but
without dropout and without augmentation. What the correction adds to the Hessian (FedProx: mu) is in it.
"""

from __future__ import annotations

import torch

from motley.algorithms.base import Tensors
from motley.engines.base import Job, JobInputs, TrainResult
from motley.engines.batches import BatchPlan
from motley.engines.client import Client, context
from motley.tasks.base import ModelState
from motley.tasks.curvature import hutchinson, rademacher

__all__ = ["curvature"]


def curvature(client: Client, job: Job, received: JobInputs, trained: TrainResult) -> Tensors:
    """The diagonal of each of ``job.layers``, ``[n]`` in the order of the flat vector; empty where a kernel has no second derivative.

    ``client``'s model is overwritten.
    """
    setting, model = client.setting, client.model
    start, _, gradient_correction = context(setting, job, received)
    moved = setting.algorithm.correction.update(trained.parts).to(start.x)
    model.load(ModelState(start.x + moved, start.buffers, start.counters))
    inputs, targets = _batch(client, job)
    client.train_mode()
    if len(inputs) == 1:  # no variance in one sample
        model.module.eval()
    entries = [entry for entry in model.layout if entry.layer in job.layers]
    chosen = [p for entry, p in zip(model.layout, client.parameters, strict=True) if entry.layer in job.layers]
    probe = rademacher(setting.key("compress", job).fold("curvature"), [entry.shape for entry in entries])
    try:
        found = hutchinson(client.mean_loss(inputs, targets), chosen, probe, float(gradient_correction.proximal))
    except RuntimeError as error:
        if "derivative" not in str(error):
            raise
        return {}
    parts: dict[str, list[torch.Tensor]] = {}
    for entry, diagonal in zip(entries, found, strict=True):
        parts.setdefault(entry.layer, []).append(diagonal.reshape(-1))
    return {layer: torch.cat(some).cpu() for layer, some in parts.items()}


def _batch(client: Client, job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of one batch of the samples that the client sees."""
    samples, mine = client.samples, client.mine(job)
    draw = BatchPlan.draw(client.setting.key("compress", job), len(mine), client.setting.work, 1)
    at = mine[torch.from_numpy(draw.order).to(mine.device)]
    return samples.inputs(samples.rows[at]), samples.training.targets(at, job.data_view)
