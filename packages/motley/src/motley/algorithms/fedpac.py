"""FedPAC: clients keep their heads and pull features to the means of their classes; the server
combines the heads by quadratic programmes of feature statistics.

Xu, Tong, Huang: *Personalized Federated Learning with Feature Alignment and Classifier
Collaboration*, ICLR 2023 (arXiv:2306.11867).

    client k  with the received base, before its first step, over its samples of each class c:
                  h_kc = p_kc mean_kc
                  V_k  = (sum_c p_kc mean |z|^2 - sum_c |h_kc|^2) / n_k
              head:  ``head_epochs`` on l, with the rate ``head_lr``; the base stands still
              base:  the job's steps on l + lam mean_j (z_j - g_yj)^2; the head stands still
              sends the base, the head w_k, h_k, V_k, and of each of its classes the sum of the
              features of after its work and the count n_kc
    server    averages the bases;  g_c <- sum_k n_kc mean_kc / sum_k n_kc
              of each client i of the round:
                  min_a  sum_j a_j^2 V_j + sum_c |sum_j a_j (h_ic - h_jc)|^2
                         a_j >= 0, sum_j a_j = 1
              w_i <- sum_j a_j w_j

Symbols: z [d] the input of the last linear layer, the head, l the loss of the task, p_kc = n_kc /
n_k, mean_kc the mean feature of class c at client k, g_c the mean over the clients, |.| the
Euclidean norm. V_k is the variance of a head learned on n_k samples, the other term its bias at
client i: clients whose features of the same classes lie alike share heads.
State: each client's head; at the server g. Traffic: the base and C x d values down, for a
participant its new head besides; up the base, the head, 2 d values and a count for each class of
the client, which these are, and V. The server sees every client's head and mean features, so it
needs every single upload. Time: FedRep's, and two forward passes over the client's samples.

Deviations and readings
-----------------------
* The formulas are those of the authors' code (commit 5770f4f: ``statistics_extraction``,
  ``local_training``, ``get_head_agg_weight``); numbers of equations are not given, since of the
  paper's text only the beginning could be read.
* The programme is solved to rounding, as non-negative least squares; the code hands it to a general
  solver. As there, weights of at most .001 are left out, and the others divided by their sum.
* ``head_lr`` is .1, as in that code, whose bases take .01 or .02; PFLlib (commit d832e76) has one
  rate for both. A schedule moves the base's alone.
* As in the code, a class without g is pulled to the client's own mean of before training, and while
  no class has one nothing is pulled. In PFLlib's form such a class is never pulled.
* INTERPRETATION-D a class that nobody in a round has keeps its g; the code stops there. PFLlib
  counts all clients alike in g.
* INTERPRETATION-D features are in eval mode and without augmentation. The loss that a client
  reports holds the pull in both phases; it does not move a head.
* A round of one client with ``lam = 0`` and the run's rate as ``head_lr`` is FedRep, bit for bit.

Worked
------
One feature. Client 0 has 1 and 3 of class 0: h = (2, 0), V = (5 - 4) / 2 = .5. Client 1 has 2 of
class 0 and 4 of class 1: h = (1, 2), V = (10 - 5) / 2 = 2.5. The squared distance is 5, so client 0
weighs the heads 1 / .5 : 1 / 7.5, client 1 1 / 5.5 : 1 / 2.5.

>>> import torch
>>> h = torch.tensor([[[2.0], [0.0]], [[1.0], [2.0]]])
>>> combination_weights(h, torch.tensor([0.5, 2.5])).round(decimals=4).tolist()
[[0.9375, 0.0625], [0.3125, 0.6875]]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.fedavg import Average
from motley.algorithms.fedproto import (
    PrototypeLoss,
    class_features,
    class_sums,
    next_prototypes,
    prototype_shape,
)
from motley.algorithms.fedrep import HeadThenBase
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    ExtraExchange,
    JobContext,
    LocalRule,
    Method,
    Part,
    Phase,
    Prototypes,
    Server,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.personal import head_of, masks, require_head
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

LEAST_WEIGHT = 1e-3
"""A head that weighs no more is left out of a combination."""


def combination_weights(means: Tensor, variances: Tensor) -> Tensor:
    """Return the weights of the heads for each client ``[M, M]``, float64; a row sums to 1.

    Parameters
    ----------
    means: h, ``[M, C, d]``.
    variances: V, ``[M]``.
    """
    h = means.double().flatten(1).numpy()
    spread = np.diag(np.sqrt(variances.double().numpy().clip(min=0.0)))
    rows = []
    for own in h:
        # the objective is the squared length of this matrix times the weights, or of R times them
        rows.append(_least_on_simplex(np.linalg.qr(np.vstack([spread, (own - h).T])).R))
    weights = np.stack(rows)
    weights[weights <= LEAST_WEIGHT] = 0.0
    return torch.from_numpy(weights / weights.sum(1, keepdims=True))


def _least_on_simplex(root: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of at least 0 and of sum 1 ``[M]`` for which ``root`` ``[M, M]`` times
    them is shortest.

    Of b >= 0 let |root b|^2 + (sum b - 1)^2 be least. With b = t a, sum a = 1, the best t gives q /
    (1 + q), q = |root a|^2, which rises with q: so a is what is sought.
    """
    from scipy.optimize import nnls  # takes a tenth of the start of every run

    scale = np.abs(root).max()
    scaled = root / scale if scale else root
    ones = np.ones((1, len(root)))
    solution, _ = nnls(np.vstack([scaled, ones]), np.append(np.zeros(len(root)), 1.0))
    return np.asarray(solution / solution.sum(), np.float64)


@dataclass(frozen=True)
class AlignmentLoss(PrototypeLoss):
    """A loss plus ``lam`` times the mean squared distance of a sample's feature from the mean
    feature of its class over all clients; of a class that nobody sent yet, from the client's own of
    before training."""

    @override
    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        prepared = super().prepare(context, forward, inputs, targets)
        means = context.download.get("prototypes")
        if means is None or context.measured is None or not means.any():
            return prepared
        sums, counts = class_sums(means, context.measured)
        own = (sums / counts.clamp(min=1).unsqueeze(1)).to(means)
        everybody = means.any(1, keepdim=True)
        return {**prepared, "prototype": torch.where(everybody, means, own)[targets]}


@dataclass(frozen=True)
class AlignedHead(HeadThenBase):
    """Local training of the head at a rate of its own, then of the base; the client keeps its head,
    and uploads it with statistics of features of before and after training."""

    uploads: ClassVar[frozenset[str]] = frozenset(
        {"delta", "head", "sums", "counts", "means", "variance"}
    )
    measures_features: ClassVar[bool] = True
    head_epochs: int = 1
    head_lr: float = 0.1

    @property
    @override
    def prototypes(self) -> Prototypes:
        return Prototypes(rows=("sums", "means"))

    @property
    @override
    def extra_epochs(self) -> float:
        return super().extra_epochs + 2 / 3

    @override
    def bound(self, layout: Layout) -> LocalRule:
        require_head(layout, "FedPAC")
        return super().bound(layout)

    @override
    def download(self, server: ServerState) -> Tensors:
        none = server.model.x.new_zeros(prototype_shape(self.layout))
        return {**super().download(server), "prototypes": server.extra.get("centroids", none)}

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        *head, base = super().phases(context)
        return (*(dataclasses.replace(phase, lr=self.head_lr) for phase in head), base)

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        parts, state = super().finish(after, context)
        like = context.download["prototypes"]
        means, variance = statistics(like, context)
        return {
            **parts,
            "head": Part(state["x"], "sum"),
            **class_features(like, context, equal=False),
            "means": Part(means.to(like.dtype), "sum"),
            "variance": Part(variance.to(like.dtype), "sum"),
        }, state

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.loss, AlignmentLoss):
            return "FedPAC pulls features in its loss, which was exchanged; leave loss out"
        if not isinstance(algorithm.server, CombinedHeads):
            name = type(algorithm.server).__name__
            return (
                f"clients upload heads and features, of which the server rule {name} makes "
                "nothing; leave server out"
            )
        return None


def statistics(like: Tensor, context: JobContext) -> tuple[Tensor, Tensor]:
    """Return h ``[C, d]`` and V ``[1]`` of a client's features before training, float64; zeros
    where none were measured.

    ``like``: of the shape ``[C, d]``."""
    sums, counts = class_sums(like, context.measured)
    n = counts.sum().clamp(min=1)
    h = sums / n
    measured = context.measured
    square = 0.0 if measured is None else measured.features.double().square().sum() / n
    return h, ((square - h.square().sum()) / n).reshape(1)


@dataclass(frozen=True)
class CombinedHeads(Average):
    """The mean of bases and of features of classes, and for every participant a head combined from
    all that arrived; ``layout`` is set by :meth:`bound`."""

    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.local, AlignedHead):
            name = type(algorithm.local).__name__
            return f"heads are combined of those that FedPAC's clients upload; {name} uploads none"
        return needs_gather("FedPAC", algorithm)

    @override
    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        return ExtraExchange(down=int(masks(self.layout, head_of(self.layout, 1))["x"].sum()))

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        means = next_prototypes(state, total, "centroids")
        return ServerState(super().update(state, total, context).model, {"centroids": means})

    @override
    def update_with_clients(
        self,
        state: ServerState,
        total: Tensors,
        client_states: Mapping[int, ClientState],
        context: ServerContext,
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        heads = total["each.head"]
        weights = combination_weights(total["each.means"], total["each.variance"].flatten())
        combined = (weights @ heads.double()).to(heads.dtype)
        clients = total["each.client"].tolist()
        states = {k: {**client_states[k], "x": x} for k, x in zip(clients, combined, strict=True)}
        return self.update(state, total, context), states


@dataclass(frozen=True)
class FedPAC(Method):
    """Features pulled to the mean of their class, under heads that the server combines for each
    client: options ``lam`` (1) of the pull, ``head_epochs`` (1) and ``head_lr`` (0.1) of the
    head."""

    paper: ClassVar[Paper] = cite("xu2023fedpac")
    reveals: ClassVar[str] = "which classes a client has, its mean features of them and its head"
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    lam: float = 1.0
    head_epochs: int = 1
    head_lr: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.lam < float("inf"):
            raise ConfigError(f"got lam = {self.lam}; expected a finite number of at least 0")
        if self.head_epochs < 1:
            raise ConfigError(
                f"got head_epochs = {self.head_epochs}; expected a whole number of at least 1"
            )
        if not 0 < self.head_lr < float("inf"):
            raise ConfigError(f"got head_lr = {self.head_lr}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = AlignedHead(head_epochs=self.head_epochs, head_lr=self.head_lr)
        return plain.replace(
            loss=AlignmentLoss(plain.loss, self.lam),
            local=local,
            aggregator=Gather(),
            server=CombinedHeads(),
        )
