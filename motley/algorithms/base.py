"""The four independent parts of a method: what is minimised, how the local gradient is corrected, how uploads are folded,
how the server steps. One paper's file defines the parts that the paper changes.

Signs (docs/methods/index.md#signs): clients return ``delta = after - before``; servers add.
Parts that travel are named tensors; a :class:`Part` of an upload also says how it is folded.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from motley.algorithms.local import Solver
from motley.algorithms.weights import Divide
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.tasks.base import LossGradient, ModelState

__all__ = [
    "Aggregator",
    "Algorithm",
    "ClientState",
    "Correction",
    "ExtraExchange",
    "Fold",
    "GradientCorrection",
    "JobContext",
    "Loss",
    "Method",
    "NetworkFunction",
    "Part",
    "Parts",
    "PreTrainingSignals",
    "Server",
    "ServerContext",
    "ServerState",
    "Targets",
    "Tensors",
    "Upload",
    "aggregate",
    "step_model",
]

Tensors = Mapping[str, Tensor]
ClientState = Mapping[str, Tensor]
"""What a client keeps between rounds, by name."""

Fold = Literal["mean", "sum", "convex", "max"]
Targets = Literal["classes", "numbers"]


class Part(NamedTuple):
    """One tensor of an upload and how it is folded: ``mean`` with the round's weights (which need not sum to 1), ``sum``
    unweighted, ``convex`` with the weights normalised (buffers), ``max`` element-wise (integer buffers)."""

    value: Tensor
    fold: Fold


Parts = Mapping[str, Part]


class Upload(NamedTuple):
    """What one accepted client sent, and its raw weight in this round. ``scale`` is the staleness factor: the update holds it
    already, ``convex`` parts are weighed by it. ``client``: whose it is, for rules that keep something by client."""

    parts: Parts
    weight: float
    scale: float = 1.0
    client: int = -1


@dataclass(frozen=True)
class GradientCorrection:
    """The local gradient becomes ``g + pull (w - x) + shift``, x the received model.

    Parameters
    ----------
    pull: a scalar (one per client when clients are batched). shift: ``[D]`` or None.
    """

    proximal: float = 0.0
    offset: Tensor | None = None


class PreTrainingSignals(NamedTuple):
    """What was measured of the received model before the first step, over all of the client's training samples, in eval mode, with
    the loss that is trained with; only what :attr:`Correction.pre_training` names.

    Parameters
    ----------
    loss: mean loss. gradient: ``[D]``, gradient of that mean; in eval mode too, so normalisation uses the received statistics
    and nothing moves.
    """

    loss: float = math.nan
    gradient: Tensor | None = None


@dataclass(frozen=True)
class JobContext:
    """What a correction or loss may know about the job it serves; never an id, never a time.

    Parameters
    ----------
    x: ``[D]`` the received model. download: everything received. memory: what the client kept, None if nothing.
    steps: local steps of this job. lr: learning rate used in it. num_examples: the client's training samples.
    solver_norm: FedNova's ``||a||_1`` of the local solver over these steps.
    layout: where parameters lie in the flat vector. pre_training: what the correction wanted to have measured beforehand.
    """

    x: Tensor
    download: Tensors
    client_state: ClientState | None
    steps: int
    lr: float
    num_examples: int
    solver_norm: float
    layout: Layout
    pre_training: PreTrainingSignals = field(default_factory=PreTrainingSignals)


class _Piece(ABC):  # noqa: B024 - what the four parts of a method share
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        """Why this part cannot go with the others, the local solver or the weighting; None when it can. Asked when an
        experiment is built."""
        return None

    def warns(self) -> str | None:
        """What a user should know who lets some clients be corrupted on purpose (wrong labels, broken updates); None: nothing."""
        return None


class Loss(_Piece):
    """What a client minimises. Subclasses are frozen dataclasses of options."""

    paper: ClassVar[Paper | None] = None
    kind: ClassVar[Targets | None] = None  # the targets it is made for; None: any
    whole_model: ClassVar[bool] = False  # True: the loss compares features of several models, see ``frozen`` and ``compare``
    passes: ClassVar[int] = 0  # forward passes of a local step beside the model's own

    @property
    def prepares(self) -> bool:
        """Whether :meth:`prepare` gives anything; a loss that overrides it says True."""
        return False

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Per-sample loss ``[..., B]`` of outputs ``[..., B, C]`` and targets ``[..., B]`` (or ``[..., B, d]``).

        ``extra``: what :meth:`prepare` gave for these samples; empty in a probe and where nothing is prepared."""

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Gradient of each sample's loss by its outputs, the shape of ``outputs``. By autograd; override with the closed form."""
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            (out,) = torch.autograd.grad(self.loss(leaf, targets, extra).sum(), leaf)
        return out

    def prepare(self, context: JobContext, forward: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensors:
        """Per-sample extras ``[n, ...]`` computed with the received model in eval mode before step 0 (FLASH's pseudo labels).
        Called only where :attr:`prepares` says so; rows are the client's training samples in order."""
        return {}

    def within(self) -> Loss:
        """The loss that this one is built around; itself where it is built around none."""
        return self

    def frozen(self, context: JobContext) -> tuple[ModelState, ...]:
        """Models in eval mode whose features a ``whole_model`` loss compares with in this job; none: :meth:`loss` is all."""
        return ()

    def compare(self, outputs: Tensor, targets: Tensor, extra: Tensors, features: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """Per-sample loss ``[B]`` of a ``whole_model`` loss. ``features`` ``[B, d]``: what the last linear layer of the model in
        training is given; ``others``: the same of each frozen model, on the same inputs."""
        raise NotImplementedError(f"{type(self).__name__} compares no features")


class Correction(_Piece):
    """How the local gradient is corrected, what travels, and what a client keeps. The default is plain local training.

    ``uploads`` names the ``mean`` and ``sum`` parts of an upload: an aggregator that judges single uploads asks for ``delta`` alone.
    """

    uploads: ClassVar[frozenset[str]] = frozenset({"delta"})
    shared: ClassVar[bool] = True  # False: there is no model for everybody, each client keeps its own

    @property
    def personal_start(self) -> bool:
        """Whether clients start from models of their own, so that :meth:`start` depends on what a client keeps."""
        return False

    @property
    def sends_whole_model(self) -> bool:
        """Whether :meth:`sent` keeps all of a model; False where some of it stays with the clients."""
        return True

    @property
    def keeps_state(self) -> bool:
        """Whether clients keep something between rounds, so that :meth:`memory` is not None."""
        return False

    @property
    def pre_training(self) -> frozenset[Literal["loss", "gradient"]]:
        """What must be measured of the received model before training; it costs the client a pass over its data."""
        return frozenset()

    def bound(self, layout: Layout) -> Correction:
        """This correction, knowing where parameters and buffers lie; asked once, when a run's setting is made."""
        return self

    def sent(self, model: ModelState) -> ModelState:
        """What of a model the server keeps, steps and sends; the rest is the clients' own. The default: all of it."""
        return model

    def initial_state(self, state: ModelState) -> ClientState | None:
        """What a client holds before its first round, ``state`` the initial model; None for a method without client memory. The
        same tensors for all clients, so never changed in place."""
        return None

    def download(self, server: ServerState) -> Tensors:
        """All that is sent to a client, hence all that is billed."""
        model = server.model
        return {"x": model.x, "buffers": model.buffers, "counters": model.counters}

    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """The model a client starts from (FedBN puts its own normalisation in); used by training, measuring and examining alike."""
        return ModelState(download["x"], download["buffers"], download["counters"])

    def gradient_correction(self, context: JobContext) -> GradientCorrection:
        """The correction of every local step of this job."""
        return GradientCorrection()

    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        """Upload and next memory, from the model after local work."""
        parts = {
            "delta": Part(after.x - context.x, "mean"),
            "buffers": Part(after.buffers, "convex"),
            "counters": Part(after.counters, "max"),
        }
        return parts, context.client_state

    def update(self, parts: Parts) -> Tensor:
        """``[D]``, by how much the client's model moved, as a server reads it from an upload."""
        return parts["delta"].value


class Aggregator(_Piece):
    """How uploads become one total. ``upload_visibility`` says whether single uploads must be known (``each``) or their sum is enough;
    ``compares``, that one upload alone is taken as it is."""

    paper: ClassVar[Paper | None] = None
    upload_visibility: ClassVar[Literal["sum", "each"]] = "sum"
    compares: ClassVar[bool] = False

    @property
    def least(self) -> int:
        """Fewest uploads for which it is defined: a smaller cohort is refused, and a round with fewer leaves the model as it was."""
        return 1

    @abstractmethod
    def init(self) -> Any:
        """Return an empty accumulator."""

    @abstractmethod
    def add(self, total: Any, upload: Upload) -> Any:
        """Add one upload to the accumulator and return the accumulator; it may be changed in place. Uploads come in order of
        client id."""

    @abstractmethod
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        """Return the totals by part name, float64 for floating parts; empty when there were fewer than ``least`` uploads. The
        accumulator is used up.

        ``divide``: whether ``mean`` parts are divided by the sum of weights, by the number of uploads, or not at all.
        """


def aggregate(aggregator: Aggregator, uploads: Iterable[Upload], divide: Divide) -> dict[str, Tensor]:
    """Aggregate uploads, given in order of client id, in one call: ``init``, ``add`` for each of them, ``finish``."""
    total = aggregator.init()
    for upload in uploads:
        total = aggregator.add(total, upload)
    return aggregator.finish(total, divide)


@dataclass(frozen=True)
class ServerState:
    """The server's side of a method: the model, and named extra tensors (momentum, control variate, ...)."""

    model: ModelState
    extra: Tensors = field(default_factory=dict)


class NetworkFunction(Protocol):
    """The task's network as a function of a model state, for whatever the server computes with it."""

    def outputs(self, state: ModelState, inputs: Tensor) -> Tensor:
        """Outputs ``[B, ...]`` in eval mode, without gradients, chunk by chunk."""

    def loss_gradient(
        self, state: ModelState, inputs: Tensor, loss: Callable[[Tensor], Tensor], training: Key | None = None
    ) -> LossGradient:
        """A scalar ``loss`` of the outputs, and its gradient; in eval mode, or in training mode with dropout drawn by a key."""


class ExtraExchange(NamedTuple):
    """What the server rule asks of every participant beyond download, local work and upload; billed, and part of its time.

    Parameters
    ----------
    up, down: numbers sent each way. own: forward passes over all its training samples. batches: forward passes over one batch of
    public samples (a training step on one counts three).
    """

    up: int = 0
    down: int = 0
    own: float = 0.0
    batches: float = 0.0


@dataclass(frozen=True)
class ServerContext:
    """What a server rule may use beyond the total: the layout, the population, the number folded, and what the experiment gives it.

    Parameters
    ----------
    network: the task's, to compute with; ``criterion`` its own loss. public: unlabelled model inputs ``[n, ...]``.
    validation: inputs and labels that the server holds; never test data. key: draws what this step draws.
    losses: asks clients for the mean loss of a model each on their own training samples, in eval mode, with the algorithm's loss.
    """

    layout: Layout
    population: int
    accepted: int
    network: NetworkFunction | None = None
    public: Tensor | None = None
    validation: tuple[Tensor, Tensor] | None = None
    criterion: Loss | None = None
    key: Key = field(default_factory=lambda: Key(0))
    losses: Callable[[Sequence[int], Sequence[ModelState]], Tensor] | None = None


class Server(_Piece):
    """How the server steps on a total. What it computes takes wall time, never virtual time."""

    @property
    def needs(self) -> frozenset[str]:
        """What it cannot do without: ``public`` samples, ``validation`` samples of the server, ``classes``. Asked when an experiment
        is built."""
        return frozenset()

    @property
    def asks_clients(self) -> bool:
        """Whether it needs the participants in mid-round: by :meth:`extra_exchange` or :meth:`update_with_clients`."""
        return False

    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        """What it asks of every participant in a round, with so many public samples and outputs."""
        return ExtraExchange()

    def init(self, model: ModelState, population: int) -> ServerState:
        """State before round 1."""
        return ServerState(model)

    @abstractmethod
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        """The next state. Never called with an empty total: a round without uploads leaves everything as it was."""

    def update_with_clients(
        self, state: ServerState, total: Tensors, kept: Mapping[int, ClientState], context: ServerContext
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        """The end of a round: the next state, and what the accepted clients keep, ``kept`` when there is nothing to tell them. One
        that is left out keeps what it had before the round."""
        return self.update(state, total, context), kept


def step_model(state: ServerState, step: Tensor, total: Tensors) -> ModelState:
    """The model after ``x + step`` (float64, then cast), buffers replaced by their convex mean, counters by their maximum."""
    old = state.model
    return ModelState(
        (old.x.double() + step).to(old.x.dtype),
        total["buffers"].to(old.buffers.dtype) if "buffers" in total else old.buffers,
        total["counters"].to(old.counters.dtype) if "counters" in total else old.counters,
    )


@dataclass(frozen=True)
class Algorithm:
    """A method: its four parts, and the weighting it is published with (None: the experiment's default)."""

    loss: Loss
    correction: Correction
    aggregator: Aggregator
    server: Server
    weights: str | None = None
    papers: tuple[Paper, ...] = ()

    def replace(
        self,
        loss: Loss | None = None,
        correction: Correction | None = None,
        aggregator: Aggregator | None = None,
        server: Server | None = None,
        weights: str | None = None,
    ) -> Algorithm:
        """The same method with some parts exchanged."""
        given = {"loss": loss, "correction": correction, "aggregator": aggregator, "server": server, "weights": weights}
        return dataclasses.replace(self, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]


class Method(ABC):
    """A named method of a paper: a frozen dataclass of options that says which parts the paper changes."""

    paper: ClassVar[Paper]

    @abstractmethod
    def change(self, plain: Algorithm) -> Algorithm:
        """``plain`` (FedAvg with the task's loss) with this paper's parts in."""
