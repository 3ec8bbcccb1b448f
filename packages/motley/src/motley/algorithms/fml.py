"""FML: every client trains a model of its own and a small common one, which learn from each other;
the common one alone travels.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu: *Federated Mutual Learning*, 2020
(arXiv:2006.16765).

    receive the common model c;   own model w_k;   p its class probabilities, q those of c
    step         w_k <- w_k - lr grad [ alpha l(w_k) + (1 - alpha) KL(q || p) ]
                 c   <- c   - lr grad [ beta  l(c)   + (1 - beta)  KL(p || q) ]
                 on the same batch, both from values before the step; no gradient passes from one
                 model to the other
    send         the change of c;   keep w_k
    server       c <- c + mean of the changes

Symbols: l the loss of the task (or the one that the experiment names); the divergence is of each
sample's probabilities, its mean over the batch as that of l. The own models may have different
architectures (the experiment's key ``models``): the common model is then the last that is listed,
whose architecture clients may hold, too, or nobody with a share of 0. Where all clients have one
architecture, the common model has it, too.

State: each client's own model, buffers included; at the server the common model. Traffic: the
common model, both ways. Time: a step of both models; one on the common model counts by its
operations. A client is probed and examined with its own model, which is the only one that is
examined.

Deviations and readings
-----------------------
* The equations are those of the authors' code (commit b547bbf), where the divergence is a sum over
  classes, and a mean over the batch. HtFLlib (commit e959261) divides it by the number of classes,
  and passes gradients from each model's divergence to the other one, too: not built.
* READING both models take the local optimizer's rate, which begins afresh in every round; in the
  code the own model's optimizer goes on.
* INTERPRETATION-D a client's own model begins as the run's initial one of its architecture, the
  common model as that of the last.
* With ``alpha = 1`` the own models are those of local training, bit for bit, and with ``beta = 1``
  the common one is FedAvg's.
* Any weights, by default ``uniform``, as in the code. Published: alpha = beta = .5 in the code.

Worked
------
Two classes, x = 1, class 0, no biases: own logits (0, 0), common ones (ln 3, 0), so that p = (1/2,
1/2) and q = (3/4, 1/4). With alpha = beta = .5 the gradients are .5 (p - (1, 0)) + .5 (p - q) =
(-.375, .375) and .5 (q - (1, 0)) + .5 (q - p) = (0, 0): lr = .1 moves the own logits to (.0375,
-.0375) and leaves the common ones.

>>> from motley.algorithms.fml import FML
>>> FML()
FML(alpha=0.5, beta=0.5)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Parts,
    Passed,
    Phase,
    ServerState,
    Tensors,
)
from motley.algorithms.rhfl import PersonalModel
from motley.algorithms.upload import Part
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState, class_logits

COMMON = "common"


@dataclass(frozen=True)
class MutualLoss:
    """A model's part of mutual learning: ``share`` times its own loss, and the rest times the
    divergence of its class probabilities from the other model's."""

    share: float

    def __call__(
        self, own: Passed, others: Mapping[str, Passed], values: dict[str, Tensor]
    ) -> Tensor:
        """See :class:`motley.algorithms.phases.JointLoss`."""
        if self.share == 1:
            return own.losses
        (other,) = others.values()
        target = class_logits(other.outputs).log_softmax(-1)
        logits = class_logits(own.outputs).log_softmax(-1)
        divergence = (target.exp() * (target - logits)).sum(-1)
        return self.share * own.losses + (1 - self.share) * divergence


@dataclass(frozen=True)
class MutualTraining(PersonalModel):
    """Training of a client's own model and of the received common one, which learn from each
    other's class probabilities."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta"})
    trains_common: ClassVar[bool] = True
    method: ClassVar[str] = "FML"
    alpha: float = 0.5
    beta: float = 0.5

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        loss = algorithm.loss
        if not isinstance(algorithm.server, CommonAverage):
            name = type(algorithm.server).__name__
            return (
                f"{self.method} averages the common model, which {name} does not know; leave "
                "server out"
            )
        if loss.whole_model or loss.prepares:
            return (
                f"{self.method} trains two models by their outputs, and {type(loss).__name__} "
                "needs more of one; leave loss out"
            )
        return None

    @override
    def first_held(self, models: Sequence[ModelState]) -> ModelState:
        return models[-1]

    @override
    def download(self, server: ServerState) -> Tensors:
        return LocalRule.download(self, server)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        common = LocalRule.start(self, context.download, None)
        return (
            Phase(joint=MutualLoss(self.alpha)),
            Phase(
                model=COMMON,
                start=common,
                beside=True,
                common=True,
                joint=MutualLoss(self.beta),
            ),
        )

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState]:
        received = LocalRule.start(self, context.download, None)
        common = context.models.get(COMMON, received)
        parts = {
            "delta": Part(common.x - received.x, "mean"),
            "buffers": Part(common.buffers, "convex"),
            "counters": Part(common.counters, "max"),
        }
        return parts, self.initial_state(after)


@dataclass(frozen=True)
class CommonAverage(Average):
    """The plain server step on the common model of a task of classes."""

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"classes"})


@dataclass(frozen=True)
class FML(Method):
    """A small common model that is averaged, and models of the clients' own, which learn from each
    other: options ``alpha`` and ``beta`` (0.5 each), the shares of their own losses in the training
    of the own and of the common model."""

    paper: ClassVar[Paper] = cite("shen2020fml")
    unlike: ClassVar[str] = "fml"
    alpha: float = 0.5
    beta: float = 0.5

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected 0 to 1")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=MutualTraining(self.alpha, self.beta), server=CommonAverage(), weights="uniform"
        )
