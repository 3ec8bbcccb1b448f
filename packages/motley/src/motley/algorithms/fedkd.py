"""FedKD: every client keeps a mentor, which learns with a small mentee of all clients by outputs
and features; of the mentee travel the first factors of each matrix's change.

Wu, Wu, Lyu, Huang, Xie: *Communication-Efficient Federated Learning via Knowledge Distillation*,
Nature Communications 13, 2022 (arXiv:2108.13323).

    receive the mentee's model; p, r the mentor's class probabilities and features of a batch of B
    samples, q, s the mentee's; L_t, L_s the mean task losses of the two; C classes
    step         D = (sum q (log q - log p) + sum p (log p - log q)) / (B C)
                 H = mean of (r - W s)^2 over samples and features
                 both models and W  <-  - lr grad [ L_t + L_s + (D + 2 H) / (L_t + L_s) ]
    send         of the mentee's change, each matrix as its first singular values and vectors, the
                 fewest whose squares are more than T of the sum of all squares; the rest whole
    server       the mean of what was sent, its matrices cut by the same rule, is added to the
                 mentee, and goes to the clients
    T            t_start + min(1, (1 + t) / rounds) (t_end - t_start) in round t, from 0

Symbols: features are the inputs of the last linear layer. W is the client's own and is kept. The
mentor may have another architecture (the experiment's key ``models``): the mentee is then the last
that is listed. k singular values of an m x n matrix are k (m + n + 1) numbers, and its m n
are sent where that is not more. State: mentor, W, how many steps' changes the client
has. Traffic: up and down the factors; a client that was absent gets the changes that it missed, or
the model where that is shorter, one that is new the model. Time: a step of both models. A client is
probed and examined with its mentor.

Deviations and readings
-----------------------
* The equations are those of the authors' code (commit 9b9e63f), where one loss trains all, and of
  PFLlib (d832e76) and HtFLlib (e959261), which add W and take the last features; the authors'
  compare all layers and attention maps of two transformers of one width, without W. The text's
  equations could not be looked up, so none is cited by number.
* READING where no fewer than all singular values have more than T, all are sent; the codes send
  none then. The authors' code multiplies the factors as if singular values were a matrix.
* READING changes are cut, as in the authors' code; PFLlib and HtFLlib cut the models.
* READING kernels are matrices of one row for each output channel.
* READING W begins as the identity, and takes plain steps at the job's rate; ``local.clip`` stands
  for the clipping of both libraries, which is at 10.
* An upload's length follows from its values, which are not known when it is planned: it takes the
  time of a whole one, and is billed by its numbers, with one for each matrix, once it is there.
* The training loss that is reported has the last term of the common one.
* Published: t_start .95, t_end .98, Adam.

Worked
------
With rounds = 3, T is .96, .97, .98, and stays. A change diag(3, 1) has squares 9 and 1: at .96 both
singular values are sent, as 4 numbers, at .85 the first, diag(3, 0), whose 5 numbers are more than
the matrix's 4. One sample x = 1 of class 0, no biases, one layer: r = s = 1, W = 1, H = 0. Logits
of the mentor (0, 0), of the mentee (ln 3, 0): p = (1/2, 1/2), q = (3/4, 1/4), L_t + L_s = .693147 +
.287682, D = ln 3 / 8. The mentor's gradient is (-.696080, .696080), the mentee's (.018138,
-.018138). r = 2, s = 1, W = 1, L_t + L_s = 2: H = 1, and lr = .1 moves W by .1 x 4 / 2 = .2.

>>> from motley.algorithms.fedkd import FedKD
>>> FedKD()
FedKD(t_start=0.95, t_end=0.98, rounds=100)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fml import CommonAverage, MutualTraining
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    Passed,
    Phase,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.layout import Entry, Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState, class_logits

PROJECTION = "projection"
SENT = "sent_values"
"""The name of the numbers of every step's change, int64 ``[steps]``, in state and download."""


@dataclass(frozen=True)
class Energy:
    """The share of the squares of singular values that is sent: it goes from ``start`` to ``end``
    in so many rounds."""

    start: float
    end: float
    rounds: int

    def __call__(self, round: int) -> float:
        """Return the share in a round, which counts from 0."""
        return self.start + min(1.0, (1 + round) / self.rounds) * (self.end - self.start)


def matrices(layout: Layout) -> Iterator[Entry]:
    """Yield the parameters of a layout that are sent as factors."""
    return (entry for entry in layout if len(entry.shape) > 1)


def cut(delta: Tensor, layout: Layout, energy: float) -> tuple[Tensor, Tensor]:
    """Return a change ``[D]`` of the model with each matrix cut to its first singular values, the
    fewest whose squares are more than ``energy`` of the sum of all squares, and how many these are,
    in the dtype of ``delta``, one for each matrix."""
    delta = delta.clone()
    ranks = []
    for entry in matrices(layout):
        matrix = delta[entry.slice].double().view(entry.shape[0], -1)
        if not matrix.isfinite().all():  # the upload is rejected
            ranks.append(min(matrix.shape))
            continue
        u, values, v = torch.linalg.svd(matrix, full_matrices=False)
        squares = values.square().cumsum(0)
        k = int((squares <= energy * squares[-1]).sum()) + 1 if squares[-1] else 0
        k = min(k, len(values))
        if k < len(values):
            first = (u[:, :k] * values[:k]) @ v[:k]
            delta[entry.slice] = first.reshape(-1).to(delta.dtype)
        ranks.append(k)
    return delta, delta.new_tensor(ranks)


def numbers(ranks: Tensor, layout: Layout) -> int:
    """Return how many numbers a change takes whose matrices have so many singular values, without
    these counts themselves."""
    total = layout.size
    for entry, k in zip(matrices(layout), ranks.tolist(), strict=True):
        rows = entry.shape[0]
        total += min(int(k) * (rows + entry.size // rows + 1), entry.size) - entry.size
    return total


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return the mean over samples and classes of ``p (log p - log q)``, of log-probabilities."""
    return (p.exp() * (p - q)).mean()


@dataclass(frozen=True)
class AdaptiveLoss:
    """A model's part of the common loss, whose gradient by this model is that of the whole.

    Parameters
    ----------
    mentor: whether it is the mentor's; the mentee's also moves ``projection``.
    lr: the rate of these moves.
    """

    mentor: bool
    lr: float

    def __call__(
        self, own: Passed, others: Mapping[str, Passed], values: dict[str, Tensor]
    ) -> Tensor:
        """See :class:`motley.algorithms.phases.JointLoss`."""
        (other,) = others.values()
        p, q = (class_logits(each.outputs).log_softmax(-1) for each in (own, other))
        divergence = _divergence(p, q) + _divergence(q, p)
        mentor, mentee = (own, other) if self.mentor else (other, own)
        if mentor.features is None or mentee.features is None:
            raise TypeError("features are compared, and there are none")
        apart = mentor.features - mentee.features @ values[PROJECTION].mT
        task_losses = own.losses.mean() + other.losses.mean()
        if not self.mentor:
            slope = -4 * (apart.mT @ mentee.features).detach() / apart.numel()
            values[PROJECTION] = values[PROJECTION] - self.lr * slope / task_losses.detach()
        return own.losses + (divergence + 2 * apart.square().mean()) / task_losses


@dataclass(frozen=True)
class AdaptiveDistillation(MutualTraining):
    """Training of a client's mentor and of the received mentee by one loss; the mentee's change is
    sent in factors.

    Parameters
    ----------
    energy: of the factors.
    layout, common: of mentor and mentee, once they are bound.
    """

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "ranks"})
    compares_features: ClassVar[bool] = True
    lengths_follow_values: ClassVar[bool] = True
    method: ClassVar[str] = "FedKD"
    energy: Energy = Energy(0.95, 0.98, 100)
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value
    common: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout) -> LocalRule:
        return dataclasses.replace(
            self, layout=layout, common=self.common if self.common.entries else layout
        )

    @override
    def refuses_privacy(self) -> str:
        return "how long an upload is depends on the client's data"

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        mentor, mentee = (
            next((e.shape[1] for e in reversed(layout.entries) if e.linear and len(e.shape) > 1), 1)
            for layout in (self.layout, self.common)
        )
        return {
            **super().initial_state(state),
            PROJECTION: torch.eye(mentor, mentee, dtype=state.x.dtype),
            "steps": torch.zeros(1, dtype=torch.int64),
        }

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), SENT: server.extra[SENT]}

    @override
    def values_down(self, download: Tensors, client_state: ClientState | None) -> int:
        model = self.common.size
        had = 0 if client_state is None else int(client_state["steps"])
        if had:
            model = min(model, int(download[SENT][had - 1 :].sum()))
        return model + len(download["buffers"]) + 2 * len(download["counters"])

    @override
    def unsent_values(self, parts: Parts) -> int:
        return self.common.size - numbers(parts["ranks"].value, self.common)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        state = context.client_state
        if state is None:
            raise ConfigError("a client has no mentor in its state")
        mentor, mentee = super().phases(context)
        projection = {PROJECTION: state[PROJECTION]}
        return (
            dataclasses.replace(mentor, joint=AdaptiveLoss(True, context.lr), values=projection),
            dataclasses.replace(mentee, joint=AdaptiveLoss(False, context.lr)),
        )

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState]:
        parts, state = super().finish(after, context)
        earlier = context.client_state or state
        steps = len(context.download[SENT])
        delta, ranks = cut(parts["delta"].value, self.common, self.energy(steps))
        return {
            **parts,
            "delta": Part(delta, "mean"),
            "ranks": Part(ranks, "sum"),
        }, {
            **state,
            PROJECTION: context.values.get(PROJECTION, earlier[PROJECTION]),
            "steps": torch.tensor([steps + 1]),
        }


@dataclass(frozen=True)
class FactorAverage(CommonAverage):
    """The server step on the mentee by the mean of the uploads, in factors."""

    energy: Energy = Energy(0.95, 0.98, 100)

    @override
    def local_among(self, local: LocalRule, layouts: tuple[Layout, ...], number: int) -> LocalRule:
        if not isinstance(local, AdaptiveDistillation):
            return local
        return dataclasses.replace(local, common=layouts[-1])

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {SENT: torch.zeros(0, dtype=torch.int64)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        sent = state.extra[SENT]
        step, ranks = cut(total["delta"], context.layout, self.energy(len(sent)))
        values = torch.tensor([numbers(ranks, context.layout) + len(ranks)])
        model = step_model(state, self.lr * step, total)
        return ServerState(model, {SENT: torch.cat([sent, values])})


@dataclass(frozen=True)
class FedKD(Method):
    """A mentee that is averaged, by factors of its changes, and mentors of the clients' own, which
    learn together.

    Parameters
    ----------
    t_start, t_end: the share of the squares of singular values that is sent, at first and at last.
    rounds: after how many it is ``t_end``.
    """

    paper: ClassVar[Paper] = cite("wu2022fedkd")
    unlike: ClassVar[str] = "fedkd"
    t_start: float = 0.95
    t_end: float = 0.98
    rounds: int = 100

    def __post_init__(self) -> None:
        for name in ("t_start", "t_end"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected above 0, up to 1")
        if self.rounds < 1:
            raise ConfigError(f"got rounds = {self.rounds}; expected at least 1")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        energy = Energy(self.t_start, self.t_end, self.rounds)
        return plain.replace(
            local=AdaptiveDistillation(energy=energy),
            server=FactorAverage(energy=energy),
            weights="uniform",
        )
