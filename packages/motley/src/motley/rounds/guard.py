"""The guard: the server refuses a step that would ruin the model, and goes back to the last good
model where one is ruined.

One corrupted or diverged upload that is finite passes all checks of uploads; after a step of norm
1e28 every honest update overflows, and the rest of the run is lost. The guard looks at the
aggregated step alone. It refuses a step

- whose aggregate has a norm larger than ``factor`` times the median of the last ``window`` steps
  *and* than the norm of the model;
- that moves the model by more than ``factor`` times the model's norm (by more than 1.8e19 where the
  model is 0);
- after which a number of the server's state is not finite.

The uploads of a refused step that stand out (:mod:`motley.rounds.refusals`) count as rejected, paid
for and not used, and the server steps on the others; where none stands out, all do. After an
evaluation whose headline loss is not finite, the server goes back to its state at the last
evaluation that was.

This is no defence against dishonest clients: robust aggregators are. ``guard = "off"`` lets every
step through, to study divergence.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from motley.algorithms.parts import ServerState
from motley.core.bounds import Count
from motley.tasks.finite import without_constants

OVERFLOW = math.sqrt(torch.finfo(torch.float32).max)
"""The largest norm whose square is finite in 32 bits."""


@dataclass(frozen=True)
class Guard:
    """How large a step of the server may be."""

    factor: Annotated[float, Gt(1)] = 1000.0
    """Multiple of the median norm of recent steps, and of the model's norm, above which a step is
    refused."""
    window: Count = 20
    """Recent steps whose median counts."""

    def limit(self, norms: Sequence[float], size: float) -> float:
        """Return the largest norm that the next aggregate may have.

        Parameters
        ----------
        norms: of the aggregates so far, newest last.
        size: norm of the model before the step.

        Example
        -------
        >>> Guard(factor=10.0, window=3).limit([9.0, 0.1, 0.3, 0.2], 1.5)
        2.0
        """
        return (
            max(self.factor * statistics.median(norms[-self.window :]), size) if norms else math.inf
        )

    def refuses(
        self, length: float, norms: Sequence[float], before: ServerState, after: ServerState
    ) -> bool:
        """Return whether a step is refused.

        Parameters
        ----------
        length: norm of the step's aggregate.
        norms: of the aggregates so far, newest last.
        before, after: the server around the step.
        """
        size = norm(before.model.x)
        moved = norm(after.model.x - before.model.x)  # NaN or infinite where a weight is
        sound = length <= self.limit(norms, size) and moved <= (self.factor * size or OVERFLOW)
        previous = {"buffers": before.model.buffers, **before.extra}
        now = {"buffers": after.model.buffers, **after.extra}
        return not sound or not all(
            _finite(without_constants(value, previous.get(name))) for name, value in now.items()
        )


def total_norm(total: Mapping[str, Tensor], buffers: Tensor | None = None) -> float:
    """Return the Euclidean norm of all numbers of an aggregate, computed in 64 bits, without
    buffers that no client held (NaN), and without numbers of the server's ``buffers`` that are not
    finite and stay."""
    parts = dict(total)
    for name in (name for name in total if "buffers" in name.split(".")):
        # of one model, of every client, or of each of several models
        parts[name] = without_constants(total[name], buffers)
    if "buffers" in total:
        parts["buffers"] = parts["buffers"].nan_to_num(0.0, math.inf, -math.inf)
    return math.hypot(*(norm(part) for part in parts.values() if part.is_floating_point()))


def norm(tensor: Tensor) -> float:
    """Return the Euclidean norm of a tensor's numbers, computed in 64 bits."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or math.isfinite(norm(tensor))
