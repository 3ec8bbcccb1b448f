"""A warning where a model of one's own is fed numbers that look unscaled: pixels of 0 to 255,
incomes beside ages; and what is said of large targets."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from motley.tasks.flat import construct
from motley.tasks.task import Federation, Transform, model_input

UNSCALED = 10.0
"""Root mean square above which the inputs of a first layer look unscaled; it is 1 for standardized
inputs, below 1 for those in [0, 1]."""
LARGE = 300.0
"""Root mean square of targets from which the first steps move a model of weights of about 1 by so
much that the guard refuses them."""
SAMPLES = 64
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def large_targets(targets: Any) -> str:
    """Return in words that targets ``[n, ...]`` are too large to be learned as they are; nothing
    where they are not.

    >>> large_targets([250_000.0, 150_000.0])[:52]
    'the targets have a root mean square of 2.06e+05, and'
    """
    values = np.asarray(targets, np.float64)
    size = float(np.sqrt((values**2).mean())) if values.size else 0.0
    if size <= LARGE:
        return ""
    unit = 10 ** math.floor(math.log10(size))
    return (
        f"the targets have a root mean square of {size:.3g}, and are not scaled: a model's first "
        f"steps towards them may be refused; write them in a larger unit, divided by {unit:,}"
    )


def warn_of_unscaled(
    make: Callable[[], nn.Module], federation: Federation, transform: Transform | None
) -> None:
    """Warn where the first layer with parameters receives large numbers, unless it normalizes them
    itself; the warning has the line that scales them. Whole numbers that are looked up
    (``nn.Embedding``) have no scale.

    Parameters
    ----------
    make: makes a fresh module.
    transform: as for :func:`motley.tasks.own_task`.
    """
    rows = federation.train.values
    if not len(rows) or federation.x.dtype == torch.int64:
        return
    sample = federation.x[torch.from_numpy(rows[:: max(1, len(rows) // SAMPLES)][:SAMPLES])]
    inputs = model_input(sample if transform is None else transform(sample, None), torch.float32)
    received = _first_inputs(construct(make, 0), inputs)
    if received is None:
        return
    size = float(received.double().square().mean().sqrt())
    most = float(received.abs().max())
    if size <= UNSCALED:
        return
    mean = float(received.double().mean())
    deviation = float(received.double().std())
    pixels = sample.dtype == torch.uint8
    line = "x / 255" if pixels else f"(x - {mean:.3g}) / {deviation or 1.0:.3g}"
    if pixels:
        tables = ""
    else:
        tables = (
            '; columns of a table: table={"scale": "federated"} in from_arrays, from_clients or '
            "from_files"
        )
    warnings.warn(
        f"the model's first layer receives numbers up to {most:.3g} (root mean square {size:.3g}), "
        "and learns badly from inputs that are not scaled; write own_task(..., transform=lambda "
        f"x, key: {line}){tables}",
        stacklevel=3,
    )


def _first_inputs(module: nn.Module, batch: Tensor) -> Tensor | None:
    """Return what the first layer with parameters receives; None where it normalizes, or takes
    whole numbers."""
    layers: list[tuple[nn.Module, Tensor]] = []

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            layers.append((layer, inputs[0].detach()))

    for layer in module.modules():
        if isinstance(layer, torch.jit.ScriptModule):
            continue  # it takes no hooks
        if next(layer.parameters(recurse=False), None) is not None:
            layer.register_forward_pre_hook(look)
    # whether the model takes the samples is tried elsewhere
    with torch.no_grad(), suppress(Exception):
        module.eval()(batch)
    layer, inputs = layers[0] if layers else (module, batch.new_zeros(0))
    usable = inputs.is_floating_point() and inputs.numel() and not isinstance(layer, _NORMS)
    return inputs if usable and bool(inputs.isfinite().all()) else None
