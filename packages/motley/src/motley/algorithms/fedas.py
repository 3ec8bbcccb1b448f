"""FedAS: clients pull the received base towards the features of their own last one before they
train, and count by how steep their loss still is.

Yang, Huang, Ye: *FedAS: Bridging Inconsistency in Personalized Federated Learning*, CVPR 2024.

    client k  m_c <- mean of the features of class c under its own last model
              align: the received base b, for ``align_epochs`` with the rate ``align_lr``, on
                         sum over the classes c of the batch of mean |z - m_c|^2 / d
              train: b and its own head, the job's steps on l
              F_k <- sum over the batches of |grad mean l|^2, of all parameters, in eval mode
              sends F_k (b - received b) and F_k;  keeps base and head
    server    b <- b + sum_k F_k delta_k / sum_k F_k

Symbols: z [d] the input of the last linear layer, the head; the base is everything before; m_c [d];
l the loss of the task; F_k the trace of the empirical Fisher information of batches.
State: each client's whole model, with which it is examined; the initial model for the others.
Traffic: the base, both ways, and a number up. Time, beside the job's steps: a forward pass over the
client's samples, ``align_epochs``, and an epoch for F_k.

Deviations and readings
-----------------------
* The formulas are those of the authors' code (commit 1a4f5fd: ``set_parameters``, ``train``,
  ``aggregate_wrt_fisher``); numbers of equations are not given, since of the paper's text only the
  abstract could be read.
* In the code all clients of a round align one object, the server's model, each from where the one
  before left it. That form is left out: here each client aligns the base that it received.
* ``align_lr`` is .01, as there, whose clients train with .005, and plain SGD aligns; here the run's
  local optimizer does.
* The code forms batches in one order, of 16 where it aligns, and leaves a last short one out;
  where a client has no full batch its F is 0. Here batches are the run's, shuffled, short ones too.
* INTERPRETATION-D features are in eval mode. BatchNorm statistics are averaged with the weights of
  samples; the code has none at the server.
* A client that was away longer is aligned by an older model, as in the code, where also those who
  do not take part measure F, which nothing uses.
* Where all F are 0 nothing moves. With ``align_epochs = 0`` and a client alone in a round it trains
  as FedPer.

Worked
------
Base b = .5 received, own last model b = 1, h = 2, one sample with the feature b and the target 4,
half the squared error, both rates .1. m = 1: b = .5 - .1 x 2 (.5 - 1) = .6. Then h b - 4 = -2.8:
b = .6 + .1 x 5.6 = 1.16, h = 2 + .1 x 1.68 = 2.168. There h b - 4 = -1.48512, the gradient is
(-3.219740, -1.722739), F = 13.334557. Of F = 1 and 3 with the updates 4 and 8 the base moves by 7.

>>> from motley.algorithms.fedas import FedAS
>>> FedAS()
FedAS(align_epochs=1, align_lr=0.01)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedper import PersonalHead
from motley.algorithms.fedproto import class_sums, prototype_shape
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    Phase,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.personal import require_head
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

_FISHER = "fisher"


@dataclass(frozen=True)
class ClassPull:
    """The sum over the classes of a batch of the mean squared distance of their features from
    ``means`` ``[C, d]``."""

    means: Tensor

    def __call__(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return per-sample losses ``[B]`` whose mean is that sum."""
        far = (features - self.means[targets]).square().mean(-1)
        # in place of bincount, which waits for a GPU
        of_its_class = (targets.unsqueeze(1) == targets).sum(1)
        return far * len(targets) / of_its_class


def _add_square(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
    """Return the gradient, and add its squared norm to the trace."""
    slope = gradient(values[RECEIVED])
    values[_FISHER] = values[_FISHER] + slope.double().square().sum()
    return slope


@dataclass(frozen=True)
class AlignedBase(PersonalHead):
    """Local training of the received base, aligned with the client's own last one, and of its head;
    the client keeps both, and multiplies its update by the trace of its Fisher information."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", _FISHER})
    measures_features: ClassVar[bool] = True
    align_epochs: int = 1
    align_lr: float = 0.01

    @property
    @override
    def extra_epochs(self) -> float:
        return 4 / 3 + self.align_epochs

    @property
    @override
    def whole_batches(self) -> bool:
        return True

    @override
    def bound(self, layout: Layout) -> LocalRule:
        require_head(layout, "FedAS")
        return super().bound(layout)

    @override
    def ignores_weights(self) -> str | None:
        return "updates are weighed by how steep the client's loss is; leave weights out"

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"x": state.x, "buffers": state.buffers, "counters": state.counters}

    @override
    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        head = None
        if client_state is not None:
            head = super().initial_state(ModelState(**client_state))
        return super().start(download, head)

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        if client_state is None:
            return self.start(download, None)
        return ModelState(**client_state)

    @override
    def measured_model(self, start: ModelState, context: JobContext) -> ModelState:
        return self.examined(context.download, context.client_state)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        none = context.x.new_zeros(prototype_shape(self.layout))
        sums, counts = class_sums(none, context.measured)
        means = (sums / counts.clamp(min=1).unsqueeze(1)).to(none)
        base = frozenset(entry.name for entry in self.layout) - self.kept(self.layout)
        align = Phase(
            "align",
            where=base,
            epochs=self.align_epochs,
            lr=self.align_lr,
            objective=ClassPull(means),
            reported=False,
        )
        measure = Phase(
            _FISHER,
            epochs=1,
            direction=_add_square,
            values={_FISHER: none.new_zeros(1, dtype=torch.float64)},
            still=True,
            reported=False,
        )
        return (*((align,) if self.align_epochs else ()), Phase(), measure)

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        parts, state = super().finish(after, context)
        trace = context.values.get(_FISHER, after.x.new_zeros(1)).to(after.x)
        return {
            **parts,
            "delta": Part(parts["delta"].value * trace, "sum"),
            _FISHER: Part(trace, "sum"),
        }, state

    @override
    def update(self, parts: Parts) -> Tensor:
        trace = parts[_FISHER].value
        return super().update(parts) / torch.where(trace == 0, 1.0, trace)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.server, FisherMean):
            return None
        return (
            "FedAS divides by the sum of the clients' traces, which the server rule "
            f"{type(algorithm.server).__name__} does not; leave server out"
        )


@dataclass(frozen=True)
class FisherMean(Server):
    """The server step by the mean of the updates, weighed by the traces of the clients' Fisher
    information."""

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"classes"})

    @override
    def refuses_privacy(self) -> str | None:
        return "its server divides by a sum that noise may bring to zero or below"

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, AlignedBase):
            return None
        return f"FedAS weighs updates by traces, of which {type(algorithm.local).__name__} has none"

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        trace = total[_FISHER]
        step = total["delta"] / torch.where(trace == 0, 1.0, trace)
        return ServerState(step_model(state, step, total), state.extra)


@dataclass(frozen=True)
class FedAS(Method):
    """Own heads over a base that every client first aligns with its own last one: options
    ``align_epochs`` (1) and ``align_lr`` (0.01) of that; updates weigh by the clients' Fisher
    information."""

    paper: ClassVar[Paper] = cite("yang2024fedas")
    align_epochs: int = 1
    align_lr: float = 0.01

    def __post_init__(self) -> None:
        if self.align_epochs < 0:
            raise ConfigError(
                f"got align_epochs = {self.align_epochs}; expected a whole number of at least 0"
            )
        if not 0 < self.align_lr < float("inf"):
            raise ConfigError(f"got align_lr = {self.align_lr}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = AlignedBase(align_epochs=self.align_epochs, align_lr=self.align_lr)
        return plain.replace(local=local, server=FisherMean())
