"""RHFL: clients with noisy labels learn from each other through the outputs of their models on
public samples.

Fang, Ye: *Robust Federated Learning With Noisy and Heterogeneous Clients*, CVPR 2022.

Three parts, on a cohort S of M clients:

    SL    symmetric loss of the local work, lambda CE + RCE (the loss ``symmetric``)
    CCR   client confidence re-weighting:
          L_k  the loss of k's model on its own training samples,     F_k = (L_k^prev - L_k) / L_k
          w_k = 1/(M-1) + beta F_k / sum_S F,      W = softmax(w)
    HFL   feedback alignment:
          R_k = softmax of k's outputs on a batch of public samples;
          every k takes an Adam step on sum_{i != k} W_i KL(R_i || R_k), R_i held fixed

``mode = "agg"``, FLASH's variant: local training from a common model; L_k of the trained models
y_k; W; one pass of HFL over the public samples, all models at the server, outputs exchanged batch
by batch; ``x <- x + sum_S W_k (y_k - x)``, buffers likewise.

``mode = "kd"``, the paper's: there is no common model. Each client trains its own; once a round the
cohort's outputs on all public samples go up, and the one soft label ``sum_{i != k} W_i R_i`` comes
back, which has the same gradient; the client then makes its pass. ``exchange = "batch"`` exchanges
outputs anew for every batch: the same traffic, more latency, not the same numbers.

Symbols: beta ``beta``; ``L^prev`` is of the client's last participation. Adam 1e-3 on batches of
256 (``lr``, ``batch_size``), the last short batch left out; ``adam = "fresh"`` begins it anew for
every batch (each step is about lr times a sign), ``"kept"`` lets it run
through the pass.

State: at the server ``loss`` [K], L at each client's last participation, and ``told`` [K], whether
there was one; in kd each client keeps its model. Needs: public samples (not with
``align = false``). Gives: W, a convex combination. Cost: one number up per client; in kd also n C
numbers of soft outputs each way instead of the model, and 4 passes over the public samples in the
client's time. In agg the server's work takes wall time and no virtual time. The rule needs every
single upload.

Deviations and readings
-----------------------
* INTERPRETATION-D L_k is taken in eval mode and leaves the buffers alone; so is HFL, whose public
  samples come from elsewhere: identical models then lose exactly 0.
* INTERPRETATION-D sum F <= 0: F counts as equal. First-timers get the mean F of the others; with no
  L^prev in the cohort W is uniform, 1/M in agg (so that it sums to 1) and 1/(M-1) in kd (the
  authors'). One upload: no HFL, W = 1. A client whose L is not finite neither teaches, learns nor
  counts. With partial participation the cohort takes the place of all clients.
* In kd a round is local work, CCR, HFL, which is the published order begun elsewhere; the published
  pre-training (40 epochs) is left to the local work of the first rounds. The answer's seconds are
  counted with the download.
* W takes the place of weights: ``weights = "uniform"``, the default, adds none, as published (all
  clients have as many samples there). READING ``"examples"`` in agg: ``W_k`` in proportion to
  ``n_k exp(w_k)``, so that with beta = 0 and without HFL it is FedAvg by samples. In kd it is
  refused: no models are averaged, the soft label leaves out another client for each, and a client
  teaches by its confidence alone.
* In kd clients may hold models of different architectures (the experiment's key ``models``), as
  published; clients that hold the same begin with the same initial model.
* Local work is the experiment's. Public samples are not augmented.

Worked
------
p = (.7, .2, .1), y = 0: CE .356675, RCE 2.763102, SL 2.798770. L_prev = 2 for four clients, L = (1,
1.5, 1.8, 2), beta = .5: F = (1, .3333, .1111, 0), w = (.679487, .448718, .371795, .333333), W =
(.308979, .245305, .227143, .218573), under ``examples`` with n = (4, 3, 2, 1) (.467319, .278262,
.171773, .082646). FLASH's robust loss has log 0 := -4 where this one has -9.210340; both are never
negative.

>>> weights = confidence([1.0, 1.5, 1.8, 2.0], [2.0] * 4, beta=0.5, first=0.25)
>>> [round(w, 6) for w in weights.tolist()]
[0.308979, 0.245305, 0.227143, 0.218573]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from typing_extensions import override

from motley.algorithms import LOSSES
from motley.algorithms.aggregators.gather import Gather, client_models, needs_gather
from motley.algorithms.flat_adam import FlatAdam
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    ExtraExchange,
    JobContext,
    Method,
    NetworkFunction,
    Part,
    PersonalRule,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device

PAPER = cite("fang2022rhfl")


def confidence(loss: ArrayLike, before: ArrayLike, beta: float, first: float) -> Tensor:
    """Return the weights ``W`` [M] from the losses now and at the last participation (NaN: none);
    ``first`` each if no client has a loss of an earlier participation."""
    now = torch.as_tensor(loss, dtype=torch.float64)
    then = torch.as_tensor(before, dtype=torch.float64)
    count = len(now)
    finite = torch.isfinite(then)
    if count == 1:
        return torch.ones(1, dtype=torch.float64)
    if not bool(finite.any()):
        return torch.full((count,), first, dtype=torch.float64)
    gain = (then - now) / now.clamp(min=1e-12)
    gain[~finite] = gain[finite].mean()
    total = float(gain.sum())
    share = gain / total if total > 0 else torch.full_like(gain, 1.0 / count)
    return torch.softmax(1.0 / (count - 1) + beta * share, 0)


def feedback(soft: Tensor, weights: Tensor, k: int) -> Callable[[Tensor], Tensor]:
    """Return ``logits -> sum_{i != k} W_i KL(R_i || softmax(logits))``, mean over the batch;
    ``soft`` is R ``[M, B, C]``."""
    peer_weights = weights.to(soft.dtype).clone()
    peer_weights[k] = 0.0
    label = torch.einsum("m,mbc->bc", peer_weights, soft)
    entropy: Tensor = torch.special.entr(soft).sum(-1).mean(-1) @ peer_weights

    def loss(logits: Tensor) -> Tensor:
        cross: Tensor = -(label * torch.log_softmax(logits, -1)).sum(-1).mean()
        return cross - entropy

    return loss


@dataclass(frozen=True)
class Alignment:
    """HFL: every model is trained in one pass over the public samples.

    Parameters
    ----------
    lr, batch_size: of Adam.
    adam: ``fresh`` for every batch, or ``kept`` through the pass.
    exchange: outputs anew for every ``batch``, or once a ``round``.
    """

    lr: float = 1e-3
    batch_size: int = 256
    adam: Literal["fresh", "kept"] = "fresh"
    exchange: Literal["batch", "round"] = "round"

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")
        if self.batch_size < 1:
            raise ConfigError(f"got batch_size = {self.batch_size}; expected at least 1")

    def batches(self, count: int) -> tuple[int, int]:
        """Return the number and size of batches of ``count`` samples; a short last batch is left
        out unless it is the only one."""
        size = min(self.batch_size, count)
        return count // size, size

    def __call__(
        self, models: Sequence[ModelState], weights: Tensor, context: ServerContext
    ) -> list[ModelState]:
        """Return the models after the pass; buffers do not change."""
        network = context.network
        public = context.public
        if network is None or public is None:
            raise ConfigError("RHFL was given no network or no public samples")
        count, size = self.batches(len(public))
        order = to_device(
            context.key.fold("public").numpy().permutation(len(public))[: count * size],
            public.device,
        )
        now = list(models)
        adams = [FlatAdam.fresh(model.x) for model in now]
        outputs = _soft(network, now, public[order]) if self.exchange == "round" else None
        for at in range(0, count * size, size):
            inputs = public[order[at : at + size]]
            soft = _soft(network, now, inputs) if outputs is None else outputs[:, at : at + size]
            for k, model in enumerate(now):
                g = network.loss_gradient(
                    model, inputs, feedback(soft, weights.to(soft.device), k)
                ).gradient.to(model.x.device)
                x, after = (FlatAdam.fresh(model.x) if self.adam == "fresh" else adams[k]).step(
                    model.x, g, self.lr
                )
                now[k], adams[k] = dataclasses.replace(model, x=x), after
        return now


def _soft(network: NetworkFunction, models: Sequence[ModelState], inputs: Tensor) -> Tensor:
    """Return the softmax outputs ``[M, B, C]``."""
    return torch.stack([network.outputs(model, inputs).softmax(-1) for model in models])


@dataclass(frozen=True)
class PersonalModel(PersonalRule):
    """Every client trains and keeps its own model; nothing of it is sent down or up."""

    uploads: ClassVar[frozenset[str]] = frozenset()
    shared: ClassVar[bool] = False
    starts_own: ClassVar[bool] = True
    unlike: ClassVar[bool] = True

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.server, ConfidenceServer):
            return None
        return (
            "in mode 'kd' clients upload no updates, of which "
            f"{type(algorithm.server).__name__} makes its step; leave server out"
        )

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"x": state.x, "buffers": state.buffers, "counters": state.counters}

    def download(self, server: ServerState) -> Tensors:
        """Return nothing; the soft label is an extra exchange of the server rule."""
        return {}

    @override
    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        if client_state is None:
            raise ConfigError("a client has no model of its own in its state")
        return ModelState(client_state["x"], client_state["buffers"], client_state["counters"])

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        return {}, {"x": after.x, "buffers": after.buffers, "counters": after.counters}


@dataclass(frozen=True)
class ConfidenceServer(Server):
    """RHFL's server rule, CCR and HFL; see the options of :class:`RHFL`."""

    own: bool = False
    beta: float = 0.5
    align: bool = True
    alignment: Alignment = Alignment()

    def __post_init__(self) -> None:
        if not 0 <= self.beta < float("inf"):
            raise ConfigError(f"got beta = {self.beta}; expected a finite number of at least 0")

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"public", "classes"}) if self.align else frozenset({"classes"})

    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        """Return the exchange: L_k up; where kd aligns, also the outputs on all public samples both
        ways, and a forward and a training pass over these samples."""
        if not (self.own and self.align):
            return ExtraExchange(up=1, own=1.0)
        count, size = self.alignment.batches(public)
        values = count * size * outputs
        return ExtraExchange(up=1 + values, down=values, own=1.0, batches=4.0 * count)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(
            model,
            {
                "loss": torch.zeros(population, dtype=torch.float64),
                "told": torch.zeros(population, dtype=torch.bool),
            },
        )

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if self.own and weights != "uniform":
            return (
                "in mode 'kd' no models are averaged, and a client teaches by its confidence "
                f'alone; got weights = "{weights}", use "uniform" or leave the key out'
            )
        return refuses_but_both("RHFL", weights) or needs_gather("RHFL", algorithm)

    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        """Return the state after ``x + sum W_k (y_k - x)``; in kd the server's model does not
        change."""
        if self.own:
            return state
        models = client_models(state, total)
        clients = total["each.client"]
        weights, extra, good = self._weigh(state, clients, models, context)
        own = total["each.own_weight"][good]
        if bool((own != own[:1]).any()):
            weights = weights * own / (weights * own).sum()
        chosen = [models[i] for i in good]
        if self.align and len(chosen) > 1:
            chosen = self.alignment(chosen, weights, context)
        step = torch.zeros_like(state.model.x, dtype=torch.float64)
        buffers = torch.zeros_like(state.model.buffers, dtype=torch.float64)
        for weight, i, model in zip(weights.tolist(), good, chosen, strict=True):
            moved = total["each.delta"][i].double() + (model.x.double() - models[i].x.double())
            step.add_(moved, alpha=weight)
            buffers.add_(model.buffers, alpha=weight)
        if good:
            return ServerState(step_model(state, step, {**total, "buffers": buffers}), extra)
        return ServerState(state.model, extra)

    def update_with_clients(
        self,
        state: ServerState,
        total: Tensors,
        client_states: Mapping[int, ClientState],
        context: ServerContext,
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        """In kd align the cohort's models with each other; a client whose loss is not finite keeps
        the model of before the round."""
        if not self.own:
            return super().update_with_clients(state, total, client_states, context)
        clients = total["each.client"]
        models = [context.own_model(c, client_states[c]) for c in clients.tolist()]
        weights, extra, good = self._weigh(state, clients, models, context)
        chosen = [models[i] for i in good]
        if self.align and len(chosen) > 1:
            chosen = self.alignment(chosen, weights, context)
        aligned = {
            int(clients[i]): {"x": model.x, "buffers": model.buffers, "counters": model.counters}
            for i, model in zip(good, chosen, strict=True)
        }
        return ServerState(state.model, extra), aligned

    def _weigh(
        self,
        state: ServerState,
        clients: Tensor,
        models: Sequence[ModelState],
        context: ServerContext,
    ) -> tuple[Tensor, Tensors, list[int]]:
        """Return W of the clients whose loss is finite, the server's next tensors, and the
        positions of these clients."""
        if context.losses is None:
            raise ConfigError(
                "RHFL needs the clients' losses, and the server context has no way to request them"
            )
        loss = context.losses(clients.tolist(), models).double()
        good = torch.isfinite(loss).nonzero().flatten()
        first = 1.0 / max(len(good) - 1 if self.own else len(good), 1)
        measured = clients[good]
        before = torch.where(
            state.extra["told"][measured], state.extra["loss"][measured], torch.nan
        )
        extra = {name: value.clone() for name, value in state.extra.items()}
        extra["loss"][measured], extra["told"][measured] = loss[good], True
        return confidence(loss[good], before, self.beta, first), extra, good.tolist()


@dataclass(frozen=True)
class RHFL(Method):
    """Robust learning with noisy clients: symmetric loss, client confidence and feedback alignment.

    Parameters
    ----------
    mode: ``agg``: one common model; ``kd``: each client has its own model, as published.
    beta: influence of a client's progress.
    align: whether HFL is done.
    lr, batch_size, adam: of HFL.
    exchange: in kd, outputs once a ``round`` or for every ``batch``.
    """

    paper: ClassVar[Paper] = PAPER
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    unlike: ClassVar[str] = 'rhfl (mode = "kd")'
    mode: Literal["agg", "kd"] = "agg"
    beta: float = 0.5
    align: bool = True
    lr: float = 1e-3
    batch_size: int = 256
    adam: Literal["fresh", "kept"] = "fresh"
    exchange: Literal["round", "batch"] = "round"

    def __post_init__(self) -> None:
        if self.mode == "agg" and self.exchange == "batch":
            raise ConfigError(
                'got exchange = "batch" with mode = "agg", where the server has all models; leave '
                'it out or use mode = "kd"'
            )
        self._server()

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        own = PersonalModel() if self.mode == "kd" else None
        loss = LOSSES.build("symmetric")
        return plain.replace(
            loss=loss, local=own, aggregator=Gather(), server=self._server(), weights="uniform"
        )

    def _server(self) -> ConfidenceServer:
        exchange: Literal["round", "batch"] = "batch" if self.mode == "agg" else self.exchange
        return ConfidenceServer(
            self.mode == "kd",
            self.beta,
            self.align,
            Alignment(self.lr, self.batch_size, self.adam, exchange),
        )
