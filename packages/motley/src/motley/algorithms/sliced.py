"""Local training of slices: clients of less capacity train, send and receive a narrower part of the
model.

A slice of the width r keeps s = ceil(r n) of the n units (features or channels) of every hidden
layer, 1e-6 subtracted before rounding up (:meth:`motley.core.layout.Layout.slices`). A weight keeps
the rows of its own layer's units and the columns of those of the layer before it, kernels and all
positions behind ``flatten`` whole; inputs and outputs are never cut, and layers whose outputs are
added keep the same units. Which units a slice has is said by a method
(:mod:`motley.algorithms.heterofl`, :mod:`motley.algorithms.fedrolex`,
:mod:`motley.algorithms.fjord`), how wide it is by the world's ``capacity``. A network with
attention, recurrence, embeddings, LayerNorm or GroupNorm is refused
(:mod:`motley.tasks.narrow_models`).

    delta_c = (sum over clients k that hold c of a_k delta_kc) / (sum over the same clients of a_k)
    x_c <- x_c + lr delta_c

A coordinate c that nobody holds stays bit for bit. Both ways 4 bytes for each value of the slice
travel; positions are free, for both sides know width and round. A step takes the slice's share of
the operations.

Static BatchNorm (HeteroFL, FedRolex): in training BatchNorm normalizes with the statistics of the
batch alone, and running ones are neither kept nor sent (a batch of one sample that torch refuses
takes those of the module). Before an examination, and for the model that is saved, statistics are
collected: every client with at least two samples passes the batches of one epoch through the model
in training mode, and all batches weigh alike (torch: momentum None). It belongs to the examination:
no traffic, no virtual time. ``recalibrate = { cumulative = true, clients = 10, batches = 100 }``
takes fewer. INTERPRETATION-D the authors' code passes the whole training set at the server, through
the whole model; here each width has statistics of its own. A selector that measures the received
model is refused for a model with BatchNorm, which has no statistics then.

Worked
------
W = ((1, 2), (3, 4)) between hidden layers; client A (r = 1) adds 1 everywhere, client B (r = 1/2)
holds W_00 alone and adds 3: ((3, 3), (4, 5)); weighted by n = 3 and 1, W_00 = 1 + (3 + 3) / 4 =
2.5; B alone ((4, 2), (3, 4)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.loss_around import LossAround
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Loss,
    Part,
    Parts,
    Slicing,
    Targets,
    Tensors,
)
from motley.core.errors import ConfigError
from motley.tasks.task import ModelState

AbsentRows = Literal["as_mask", "left_out"]
"""Whether the last layer's rows of classes that a client lacks are averaged: not with the mask, or
never."""


def check_rows(mask: bool, absent_rows: AbsentRows) -> None:
    """Refuse a second name of the run with the mask, under which absent rows are left out.

    Raises
    ------
    ConfigError: both are given.
    """
    if mask and absent_rows == "left_out":
        raise ConfigError(
            'got absent_rows = "left_out" with mask = true, which leaves these rows out; write '
            "mask = false, or leave absent_rows out"
        )


@dataclass(frozen=True)
class SlicedTraining(LocalRule):
    """Plain local training of a slice, in which hidden activations are divided by its width, and
    BatchNorm uses the statistics of the batch alone: clients keep, send and receive no running
    ones.

    Parameters
    ----------
    mask: whether the last layer's rows of classes that a client lacks do not count in the
    aggregation.
    """

    mask: bool = False

    @property
    @override
    def head_layers(self) -> int:
        return 1 if self.mask else 0

    @property
    @override
    def slicing(self) -> Slicing:
        return Slicing(divides=True, static_norm=True)

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        return {
            "delta": Part(after.x - context.x, "covered", self._held(context))
        }, context.client_state

    def _held(self, context: JobContext) -> Tensor | None:
        """Return which coordinates of the slice count; None: all of them."""
        if not self.mask or context.classes is None:
            return None
        held = torch.ones_like(context.x, dtype=torch.bool)
        last = [entry for entry in context.layout if entry.linear][-1].layer
        for entry in context.layout:
            if entry.layer == last:
                rows = context.classes.repeat_interleave(entry.size // len(context.classes))
                held[entry.slice] = rows
        return held

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        name = type(self).__name__
        aggregator = type(algorithm.aggregator)
        server = type(algorithm.server)
        if aggregator is not Mean:
            return (
                f"{aggregator.__name__} works on whole updates, and these clients update "
                "different slices; leave it out"
            )
        if server is not Average:
            return (
                f"{server.__name__} would move coordinates that nobody trained; use plain "
                "averaging with slices"
            )
        if weights in ("horvitz_thompson", "selector"):
            return (
                f"{name} divides by the weights of the clients that hold a coordinate, and "
                f"{weights!r} by something else"
            )
        return None


@dataclass(frozen=True)
class MaskedClasses(LossAround):
    """A loss of classes in which the outputs of classes that a client lacks are set to 0 before the
    softmax.

    Parameters
    ----------
    base: the loss without the mask.

    Example
    -------
    >>> from motley.algorithms.losses import CrossEntropy
    >>> outputs, present = torch.tensor([[2.0, 5.0]]), torch.tensor([[True, False]])
    >>> loss = MaskedClasses(CrossEntropy()).loss(outputs, torch.tensor([0]), {"present": present})
    >>> round(loss.item(), 6)  # log(1 + e^-2)
    0.126928
    """

    kind: ClassVar[Targets | None] = "classes"

    @override
    def refuses_targets(self, targets: Targets, classes: int | None) -> str | None:
        if targets == "positions":
            return (
                "classes are masked by sample, and the targets of this task are a class per "
                "position; write mask = false"
            )
        return self.base.refuses_targets(targets, classes)

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.loss(
            outputs * extra["present"] if "present" in extra else outputs, targets, extra
        )

    @override
    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        """Return which classes occur among the client's samples, bool ``[n, C]``, the same row for
        each of them, beside what ``base`` prepares of outputs that are masked."""
        present = torch.zeros(
            forward(inputs[:1]).shape[-1], dtype=torch.bool, device=targets.device
        )
        present[targets] = True
        prepared = {"present": present.expand(len(targets), -1)}
        if not self.base.prepares:
            return prepared
        beside = self.base.prepare(context, lambda x: forward(x) * present, inputs, targets)
        return {**beside, **prepared}


def masked(plain: Algorithm, mask: bool, absent_rows: AbsentRows) -> tuple[Loss, bool]:
    """Return an algorithm's loss, with absent classes masked if ``mask``, and whether the rows of
    absent classes are left out of the average; a loss of something else than classes stays, and all
    rows count."""
    classes = plain.loss.kind == "classes"
    loss = MaskedClasses(plain.loss) if classes and mask else plain.loss
    return loss, classes and (mask or absent_rows == "left_out")
