"""SCAFFOLD as ``fedbench`` 0.1.3 and FedFramework have it, and each difference repaired.

NechbaMohammed/FedFramework ``9a03bf3`` (``fedml/algorithms/scaffold/client.py``, ``server.py``),
after the client of Flower's baseline ``niid_bench``. x the received model, y the client's after K
steps, c the server's variate, c_i the client's, both from 0:

    receive x, c;  K times: a step of the optimizer, then w <- w - lr (c - c_i)
    v = s (y - x) / (lr K)                    s = 1  as released; -1 repaired
    c_i <- c_i - c + v                        kept, and as released never read again: c_i = 0
    send y - x, and v                         as released; the change of c_i repaired
    server: x <- x + sum p (y - x),  c <- c + sum p (what was sent),  p by samples

The fourth difference, gradients of norm at most 1, is ``local.clip`` of the experiment. With all
repaired it is ``scaffold`` with ``corrects = "weights"`` and ``divisor = "steps"``.

What follows, where all clients take K steps, G_t the mean of what the clients' own optimizers add
up to in round t, along the corrected paths:

    as released      x_{t+1} = x_0 + G_t             one round of local work from the first model
    variate read     x_{t+1} = x_t + G_t - sum_{s<t} (x_s - x_0)     swings grow by sqrt 2 a round
    sign repaired    x_{t+1} = 2 x_t - x_0 + G_t     the distance from x_0 doubles every round
    change sent      x_{t+1} = x_{t-1} + G_t         every other round starts over

Where client i takes K_i steps and adds g_i, c is the mean of g_i / (lr K_i) of the round before,
and as released x_{t+1} = x_t + G_t - (mean of K_i) (mean of g_i / K_i of round t - 1): what is
taken back is not what was added, and the difference adds up over rounds.

Worked
------
One client, F = (w - 1)^2 / 2, plain SGD, lr .1, one step a round, x_0 = 0, so G_t = .1 (1 - x_t).
FedAvg: .1, .19, .271.
As released: .1; c = 1, x = .1 + .09 - .1 = .09; c = .9, x = .09 + .091 - .09 = .091.
Variate read: .1; c = c_i = 1, the correction is 0, x = .19; c = 1.9, c_i = 1 - 1 + .9 = .9, x = .19
+ .081 - .1 = .171.
Sign repaired: .1; c = -1, x = .1 + .09 + .1 = .29; c = -2.9, x = .29 + .071 + .29 = .651.
Change sent: .1; c = 1, x = .09; v = -.1, sent -1.1, c = -.1, x = .09 + .091 + .01 = .191.
All repaired: a lone client's variates cancel, and x is FedAvg's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    GradientCorrection,
    JobContext,
    LocalRule,
    Method,
    Part,
    Parts,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class ReleasedVariates(LocalRule):
    """Local training whose weights are corrected by ``c - c_i`` after each step, see the module.

    Parameters
    ----------
    reads: whether a client reads the c_i that it kept.
    sign: of the displacement ``y - x`` in v: 1 or -1.
    sends: ``displacement``, v itself, or ``change``, that of c_i.
    """

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "dc"})
    reads: bool = False
    sign: Literal[1, -1] = 1
    sends: Literal["displacement", "change"] = "displacement"

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ConfigError(f"got sign = {self.sign!r}; expected 1 or -1")
        if self.sends not in ("displacement", "change"):
            raise ConfigError(f"got sends = {self.sends!r}; expected 'displacement' or 'change'")

    @override
    def initial_state(self, state: ModelState) -> ClientState | None:
        return {"c": torch.zeros_like(state.x)} if self.reads else None

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), "c": server.extra["c"]}

    @override
    def correction(self, context: JobContext) -> GradientCorrection:
        return GradientCorrection(drift=context.download["c"] - self._own(context))

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        parts, _ = super().finish(after, context)
        own = self._own(context)
        displacement = self.sign * parts["delta"].value / (context.lr * context.steps)
        change = displacement - context.download["c"]
        sent = displacement if self.sends == "displacement" else change
        return {**parts, "dc": Part(sent, "mean")}, {"c": own + change} if self.reads else None

    def _own(self, context: JobContext) -> Tensor:
        """Return c_i ``[D]``, 0 where it is not read."""
        kept = context.client_state if self.reads else None
        return torch.zeros_like(context.x) if kept is None else kept["c"]


@dataclass(frozen=True)
class AddedVariates(Average):
    """The server step ``x <- x + lr sum p (y - x);  c <- c + sum p (what was sent)``."""

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(model, {"c": torch.zeros_like(model.x), "first": model.x.clone()})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        c = state.extra["c"].double() + total["dc"]
        return ServerState(
            step_model(state, self.lr * total["delta"], total),
            {**state.extra, "c": c.to(state.extra["c"].dtype)},
        )

    @override
    def notes(self, state: ServerState) -> dict[str, float]:
        """Return the distance of the model from the first one."""
        return {"from_start": float((state.model.x - state.extra["first"]).double().norm())}


@dataclass(frozen=True)
class FedbenchScaffold(Method):
    """``fedbench``'s SCAFFOLD; the defaults are as released.

    Parameters
    ----------
    reads: whether a client reads the c_i that it kept.
    sign: of the displacement ``y - x``: 1, or -1 as SCAFFOLD has it.
    sends: ``displacement``, or ``change`` as SCAFFOLD has it.
    """

    paper: ClassVar[Paper] = cite("karimireddy2020scaffold")
    reads: bool = False
    sign: Literal[1, -1] = 1
    sends: Literal["displacement", "change"] = "displacement"

    def __post_init__(self) -> None:
        self._local()

    def _local(self) -> ReleasedVariates:
        return ReleasedVariates(self.reads, self.sign, self.sends)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=self._local(), server=AddedVariates())
