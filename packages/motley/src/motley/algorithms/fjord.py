"""FjORD: ordered dropout, in which a client trains nested slices of the model, a width drawn anew
for every batch.

Horvath, Laskaridis, Almeida, Leontiadis, Venieris, Lane: *FjORD: Fair and Accurate Federated
Learning under heterogeneous targets with Ordered Dropout*, NeurIPS 2021 (arXiv:2102.13451).

    client k  of width r, for every batch: p drawn uniformly from the listed widths up to r, one
              for all layers;
              one step on CE(z_p, y); with ``distil`` on CE(z_r, y) + CE(z_p, softmax(z_r)), no
              gradient through softmax(z_r)
    server    x_c <- x_c + (sum over clients k that hold c of n_k delta_kc)
                     / (sum over the same clients of n_k)

Symbols: z_p the outputs of the slice of the width p, the first ceil(p n) units of every hidden
layer; n_k the training samples; c a coordinate. A client's width is the widest listed one that its
``capacity`` holds, without ``capacity`` 1. BatchNorm has one set of running statistics for each
listed width, each averaged over the clients that hold this width, and one scale and offset for all.
State: none. Traffic: the slice of the client's width, the statistics of the listed widths up to it,
both ways. Cost: a step of the drawn width, with ``distil`` beside one of the client's own width.

Deviations and readings
-----------------------
* The gradient outside of the drawn slice is 0, and the solver steps on the whole slice of the
  client: momentum and decay move what was not drawn, too (INTERPRETATION-D).
* Where the client's own width is drawn, distillation adds nothing: the gradient of its term is 0
  there.
* The training loss that is reported is the one by the true labels.
* A step takes the mean of the listed widths' shares up to the client's; with ``distil`` one pass at
  its own width beside every narrower one.

Worked
------
z_r = (0, 0), z_p = (log 3, 0): the gradient of the distillation by z_p is (1/4, -1/4).

>>> from motley.algorithms.fjord import FjORD
>>> FjORD(widths=(1.0, 0.5))
FjORD(widths=(1.0, 0.5), distil=False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.loss_around import LossAround
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    Method,
    Part,
    Parts,
    Slicing,
    Targets,
    Tensors,
)
from motley.algorithms.sliced import SlicedTraining
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class OrderedDropout(SlicedTraining):
    """Local training of nested slices, a width drawn for every batch; the server keeps BatchNorm
    statistics of each listed width.

    Its buffers and counters are those of every listed width one after the other, each as long as
    the whole model's.
    """

    widths: tuple[float, ...] = (1.0,)
    distils: bool = False

    @property
    @override
    def slicing(self) -> Slicing:
        return Slicing(widths=self.widths, distils=self.distils)

    @override
    def sent(self, model: ModelState) -> ModelState:
        return ModelState(
            model.x, model.buffers.repeat(len(self.widths)), model.counters.repeat(len(self.widths))
        )

    @override
    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """Return the whole model with the statistics of the width 1."""
        buffers, counters = (
            download[name].view(len(self.widths), -1)[0] for name in ("buffers", "counters")
        )
        return ModelState(download["x"], buffers, counters)

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        """Return the update; the engine, which knows the statistics of the other widths, puts them
        in the places of those received."""
        parts, next_state = super().finish(after, context)
        buffers = Part(context.download["buffers"], "convex")
        return {
            **parts,
            "buffers": buffers,
            "counters": Part(context.download["counters"], "max"),
        }, next_state


@dataclass(frozen=True)
class Taught(LossAround):
    """A loss of classes for clients whose widest slice teaches the narrower ones.

    Parameters
    ----------
    base: the loss by the true labels.
    """

    kind: ClassVar[Targets | None] = "classes"

    @override
    def refuses_targets(self, targets: Targets, classes: int | None) -> str | None:
        if targets != "classes":
            return (
                "slices teach each other one class per sample, which the targets of this task "
                "are not; write distil = false"
            )
        return self.base.refuses_targets(targets, classes)


@dataclass(frozen=True)
class FjORD(Method):
    """Ordered dropout: each client trains nested slices of the model, as wide as it can hold, a
    width drawn anew for every batch.

    Parameters
    ----------
    widths: the listed widths, falling from 1.
    distil: whether a client's widest slice teaches the narrower ones.
    """

    paper: ClassVar[Paper] = cite("horvath2021fjord")
    widths: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.2)
    distil: bool = False

    def __post_init__(self) -> None:
        falling = list(self.widths) == sorted({*self.widths}, reverse=True) and all(
            width > 0 for width in self.widths
        )
        if not falling or self.widths[:1] != (1.0,):
            raise ConfigError(
                f"got widths = {list(self.widths)}; expected shares that fall from 1, e.g. [1.0, "
                "0.5, 0.25]"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        loss = Taught(plain.loss) if self.distil else plain.loss
        return plain.replace(
            loss=loss,
            local=OrderedDropout(widths=self.widths, distils=self.distil),
            weights="examples",
        )
