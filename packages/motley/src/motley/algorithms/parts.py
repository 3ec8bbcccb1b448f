"""The four independent parts of a method: the local loss, the rule of local work, the aggregator of
uploads and the server's step. The file of a paper defines the parts that the paper
changes.

Signs (docs/methods/index.md#signs): clients return ``delta = after - before``; servers add.
An upload consists of named tensors; a :class:`Part` is one of them and the way it is aggregated.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from motley.algorithms.job import (
    ClientState,
    JobContext,
    MeasuredFeatures,
    PreTrainingSignals,
    Tensors,
)
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.phases import (
    RECEIVED,
    Direction,
    FeatureObjective,
    GradientCorrection,
    Passed,
    Phase,
    Tuning,
)
from motley.algorithms.upload import BLOCK, UPDATES, BlockRun, Fold, Part, Parts, Upload
from motley.algorithms.weights import Divide
from motley.core.arrays import Ids
from motley.core.components import declares, overrides
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.tasks.own_loss import Over
from motley.tasks.task import SAID, LossGradient, ModelState, Targets, of_architecture

__all__ = [
    "BLOCK",
    "RECEIVED",
    "UPDATES",
    "Aggregator",
    "Algorithm",
    "BlockRun",
    "Choice",
    "ClientState",
    "Direction",
    "ExtraExchange",
    "FeatureObjective",
    "Fold",
    "GradientCorrection",
    "JobContext",
    "LocalRule",
    "Loss",
    "MeasuredFeatures",
    "Method",
    "NetworkFunction",
    "Part",
    "Parts",
    "Passed",
    "PersonalRule",
    "Phase",
    "PreTrainingSignals",
    "Prototypes",
    "Server",
    "ServerContext",
    "ServerState",
    "Slicing",
    "Targets",
    "Tensors",
    "Tuning",
    "Upload",
    "aggregate",
    "kept_mean",
    "step_model",
]


class _MethodPart(ABC):  # noqa: B024 - what the four parts of a method share
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        """Return why this part does not go with the other parts, the local solver or the weighting;
        None if it does. Called when an experiment is built."""
        return None

    def cautions(self, solver: Solver) -> str | None:
        """Return a warning about this part with such a local solver; None: no warning."""
        return None

    def refuses_privacy(self) -> str | None:
        """Return why clipping each upload does not bound what one client changes with this part;
        None if it does."""
        return None

    def warns(self) -> str | None:
        """Return a warning for experiments that corrupt clients on purpose (wrong labels, broken
        updates); None: no warning."""
        return None


class Loss(_MethodPart):
    """The loss that clients minimize. Subclasses are frozen dataclasses of options.

    ``kind``: the targets that it is made for, None: any; a loss for classes takes a class per
    position, too (:mod:`motley.algorithms.positions`). ``whole_model``: whether it compares
    features of the model, see :meth:`frozen` and :meth:`compare`. ``passes``: forward passes of a
    local step beside the model's own.
    """

    paper: ClassVar[Paper | None] = None
    kind: ClassVar[Targets | None] = None
    whole_model: ClassVar[bool] = False
    passes: ClassVar[int] = 0

    @property
    def prepares(self) -> bool:
        """Whether :meth:`prepare` may return anything."""
        return overrides(self, Loss, "prepare")

    @property
    def over(self) -> Over:
        """What the loss looks at: ``sample``, each sample by itself, or ``batch``, the whole batch,
        whose samples then stay together, also in an examination."""
        return "sample"

    def refuses_targets(self, targets: Targets, classes: int | None) -> str | None:
        """Return why this loss cannot be computed with such targets of so many classes (or labels);
        None if it can."""
        fits = self.kind in (None, "classes" if targets == "positions" else targets)
        return None if fits else f"the targets of this task are {SAID[targets]}"

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Return the per-sample loss ``[..., B]`` of outputs ``[..., B, C]`` and targets
        ``[..., B]`` (or ``[..., B, d]``).

        ``extra``: what :meth:`prepare` returned for these samples; empty in a probe and where
        nothing is prepared."""

    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Return the gradient of each sample's loss by its outputs, in the shape of ``outputs``.
        Computed by autograd; override with the closed form."""
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            (out,) = torch.autograd.grad(self.loss(leaf, targets, extra).sum(), leaf)
        return out

    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        """Return tensors ``[n, ...]`` of the client's n training samples, in order, computed before
        the first local step with the received model in eval mode (FLASH's pseudo labels). Called
        only where :attr:`prepares` says so."""
        return {}

    def within(self) -> Loss:
        """Return the loss that this one wraps; itself if it wraps none."""
        return self

    def frozen(self, context: JobContext) -> tuple[ModelState, ...]:
        """Return the models (in eval mode) with whose features a ``whole_model`` loss compares in
        this job."""
        return ()

    def compare(
        self,
        outputs: Tensor,
        targets: Tensor,
        extra: Tensors,
        features: Tensor,
        frozen_features: tuple[Tensor, ...],
    ) -> Tensor:
        """Return the per-sample loss ``[B]`` of a ``whole_model`` loss. ``features`` ``[B, d]``:
        inputs of the last linear layer of the model in training; ``frozen_features``: the same of
        each frozen model, on the same samples; empty if there is none."""
        raise NotImplementedError(f"{type(self).__name__} compares no features")


@dataclass(frozen=True)
class Slicing:
    """Clients of less capacity train a slice of the model, as wide as they can hold.

    Parameters
    ----------
    divides: whether hidden activations are divided by the width in training.
    rolls: whether the slice moves on with the model's version.
    static_norm: whether BatchNorm has no running statistics in training, so that the model gets
    some before an examination.
    widths: the listed widths, falling from 1, of which a client draws one for every batch; empty:
    it trains its own width alone.
    distils: whether a client's widest slice then teaches the others.
    ranks: whether a slice has fewer ranks of every low-rank adapter, and all else whole
    (:mod:`motley.core.adapters`), in place of fewer units of hidden layers.
    merges: whether the server merges the adapters' products into the model
    (:mod:`motley.tasks.merged`).
    prunes: whether clients give up some of what they hold, :meth:`LocalRule.held_share`.
    masks: whether a slice is made of single weights of the received model,
    :meth:`LocalRule.held`, in place of units; its positions travel with the download.

    Example
    -------
    >>> Slicing().offset(7), Slicing(rolls=True).offset(7)
    (0, 7)
    """

    divides: bool = False
    rolls: bool = False
    static_norm: bool = False
    widths: tuple[float, ...] = ()
    distils: bool = False
    ranks: bool = False
    merges: bool = False
    prunes: bool = False
    masks: bool = False

    def offset(self, version: int) -> int:
        """Return the number of the first unit in the slices of clients that receive this version of
        the model."""
        return version if self.rolls else 0


@dataclass(frozen=True)
class Prototypes:
    """Clients exchange the mean features of classes: the download has ``prototypes`` ``[C, d]``,
    zeros for a class without one; :meth:`LocalRule.finish` gets the client's features; the upload
    has ``sums`` ``[C, d]`` and ``counts`` ``[C]``, of which a client sends the rows of its classes,
    and may have other parts beside them.

    Parameters
    ----------
    counted: whether counts are sent as numbers; False: they say which classes there are, a bit
    each.
    rows: names of the parts ``[C, d]`` of which a client sends the rows of its classes.
    """

    counted: bool = True
    rows: tuple[str, ...] = ("sums",)


@dataclass(frozen=True)
class Choice:
    """Clients receive several models, of which each takes one before it is probed, trained or
    examined: that of the lowest mean loss on all its training samples, the first of equals.
    :meth:`LocalRule.start` finds its number as ``client_state["choice"]``, int64 ``[1]``.

    Parameters
    ----------
    models: how many, at least 2.
    part: the part of an upload that says which one was taken.
    """

    models: int
    part: str = "cluster"

    def of(self, parts: Parts) -> ClientState:
        """Return the choice that an upload states, in the form in which ``start`` finds it."""
        return {"choice": parts[self.part].value.clamp(0, self.models - 1)}


class LocalRule(_MethodPart):
    """What a client does with a model: the model that it starts from, its local work, what it sends
    and what it keeps. The default is plain local training.

    ``uploads`` names the ``mean`` and ``sum`` parts of an upload: an aggregator that compares
    single uploads needs ``delta`` alone. ``shared``: whether there is one model for all clients;
    False: each client uses its own. ``unlike``: whether clients may hold models of different
    architectures; each then has a rule bound to the layout of its own, and all uploads have the
    same shapes. ``trains_common``: whether clients train, beside a model of their own, one that all
    have in common, which the server holds and sends: of several architectures the last.
    ``measures_features``: whether features are measured before training.
    ``measures_before_examination``: whether those of the model that :meth:`start` returns are
    measured before an examination, of every client, also of one that never took part: the phases of
    :attr:`PersonalRule.before_examination` and :meth:`PersonalRule.adaptation` find them in
    :attr:`JobContext.measured`. ``compares_features``:
    whether the joint losses of its phases look at features. ``lengths_follow_values``: whether the
    length of an upload depends on its values. What a rule does beside is an object that it has or
    has not: :attr:`personal`, :attr:`slicing`, :attr:`prototypes`, :attr:`choice`.
    """

    uploads: ClassVar[frozenset[str]] = frozenset({"delta"})
    shared: ClassVar[bool] = True
    unlike: ClassVar[bool] = False
    trains_common: ClassVar[bool] = False
    measures_features: ClassVar[bool] = False
    measures_before_examination: ClassVar[bool] = False
    compares_features: ClassVar[bool] = False
    lengths_follow_values: ClassVar[bool] = False

    @property
    def step_cost(self) -> float:
        """The time of a local step, in forward-and-backward passes over its batch."""
        return 1.0

    @property
    def extra_epochs(self) -> float:
        """The time of local work beside the job's steps, in passes forward and backward over a
        client's samples."""
        return 0.0

    @property
    def compares_sizes(self) -> bool:
        """Whether local work depends on :attr:`JobContext.mean_examples`, which a client of a
        deployment does not know."""
        return False

    @property
    def whole_batches(self) -> bool:
        """Whether local work beside the loss looks at a batch as a whole, so that it cannot pass in
        parts (``local.micro_batch``)."""
        return self.trains_common

    def ignores_weights(self) -> str | None:
        """Return why the experiment's ``weights`` would decide nothing, and what to write instead;
        None where they weigh uploads."""
        return None

    @property
    def phase_epochs(self) -> float:
        """The epochs that phases of the received model take beside the job's steps."""
        return 0.0

    @property
    def pre_training(self) -> frozenset[Literal["loss", "gradient"]]:
        """The signals of the received model that are measured before training, which costs the
        client a pass over its data."""
        return frozenset()

    @property
    def personal(self) -> PersonalRule | None:
        """How clients use models of their own; None: they use the shared model."""
        return self if isinstance(self, PersonalRule) else None

    @property
    def slicing(self) -> Slicing | None:
        """How clients of less capacity train slices; None: everybody trains the whole model."""
        return None

    @property
    def head_layers(self) -> int:
        """How many of the model's last linear layers the rule tells from the rest, or reads
        features before."""
        return 1 if self.reads_features else 0

    @property
    def prototypes(self) -> Prototypes | None:
        """How mean features of classes are exchanged; None: they are not."""
        return None

    @property
    def reads_features(self) -> bool:
        """Whether the rule reads features of the client's samples, which a model without a linear
        layer does not have."""
        measured = self.measures_features or self.compares_features
        return measured or self.prototypes is not None

    def measured_model(self, start: ModelState, context: JobContext) -> ModelState:
        """Return the model whose features on all the client's training samples
        :attr:`JobContext.measured` holds, by default that from which the client starts, ``start``.

        Asked under :attr:`measures_features`; :meth:`phases` is asked once more after it, with
        these features in its context."""
        return start

    @property
    def groups(self) -> tuple[Layout, ...]:
        """The layouts of the models that the server holds, one for each architecture that clients
        hold; empty: it holds one model, or what all have in common."""
        return ()

    def first_held(self, models: Sequence[ModelState]) -> ModelState:
        """Return what the server holds at first, of the initial model of each architecture."""
        return self.sent(models[0])

    @property
    def choice(self) -> Choice | None:
        """Among how many models a client chooses; None: it receives one."""
        return None

    @property
    def sends_whole(self) -> bool:
        """Whether the server holds, steps and sends a whole model."""
        return self.personal is None or self.personal.sends_all

    def bound(self, layout: Layout) -> LocalRule:
        """Return this rule bound to a model's layout; called once, when a run's setting is made."""
        return self

    def sent(self, model: ModelState) -> ModelState:
        """Return what of a model the server keeps, steps and sends; the rest stays with the
        clients. By default all of it."""
        return model

    def initial_state(self, state: ModelState) -> ClientState | None:
        """Return the state of a client before its first round, ``state`` the initial model; None
        for a method whose clients keep nothing. All clients share these tensors, so they are never
        changed in place."""
        return None

    def download(self, server: ServerState) -> Tensors:
        """Return all tensors that are sent to a client, hence all that is billed."""
        model = server.model
        return {"x": model.x, "buffers": model.buffers, "counters": model.counters}

    def values_down(self, download: Tensors, client_state: ClientState | None) -> int | None:
        """Return how many numbers of 32 bits of a download travel to a client that keeps this
        state (None: that never took part), where it has some of them from earlier rounds; None, the
        default: it has nothing, and all that it holds travels."""
        return None

    def held_share(self, client_state: ClientState | None) -> float:
        """Return the share of the model's width that a client which keeps this state holds at
        most. Asked where :attr:`Slicing.prunes` says so."""
        return 1.0

    def unsent_values(self, parts: Parts) -> int:
        """Return how many numbers of 32 bits of an upload do not travel. Asked where
        :attr:`lengths_follow_values` says so; an upload is planned as if it had all of them, and
        billed without."""
        return 0

    def held(self, x: Tensor, width: float) -> Tensor:
        """Return which parameters of a model ``x`` ``[D]`` a client of this width holds, bool
        ``[D]``; how many does not depend on ``x``. Asked where :attr:`Slicing.masks` says so; the
        client finds it as ``held`` in its download, and zeros elsewhere in ``x``."""
        raise NotImplementedError(f"{type(self).__name__} holds no single weights")

    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """Return the model that a client starts from (FedBN inserts the client's normalization
        layers), in training and probes. It depends on the client's state only under
        :attr:`PersonalRule.starts_own` and :attr:`choice`."""
        return ModelState(download["x"], download["buffers"], download["counters"])

    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """Return the model that a client uses, and with which it is examined; by default the one
        that it starts from."""
        return self.start(download, client_state)

    def correction(self, context: JobContext) -> GradientCorrection:
        """Return the correction of the gradient in every local step of this job."""
        return GradientCorrection()

    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        """Return the phases of local work, in order: by default one, in which the received model
        takes the job's steps, corrected by :meth:`correction`."""
        return (Phase(correction=self.correction(context)),)

    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        """Return the upload and the client's next state, from the model after local work."""
        parts = {
            "delta": Part(after.x - context.x, "mean"),
            "buffers": Part(after.buffers, "convex"),
            "counters": Part(after.counters, "max"),
        }
        return parts, context.client_state

    def update(self, parts: Parts) -> Tensor:
        """Return ``[D]``, the change of the client's model by local work, as the server reads it
        from an upload."""
        return parts["delta"].value


class PersonalRule(LocalRule):
    """A local rule under which clients use models of their own, with which they are examined.

    :meth:`examined` says which. ``starts_own``: whether clients also start from them, in training
    and probes, so that :meth:`start` depends on what a client keeps. ``sends_all``: whether the
    server holds, steps and sends a whole model; False: :meth:`sent` leaves some of it with the
    clients.
    """

    starts_own: ClassVar[bool] = False
    sends_all: ClassVar[bool] = True

    def adaptation(self, context: JobContext) -> tuple[Phase, ...]:
        """Return the phases in which a client that never took part adapts the model it starts from;
        by default, all of it."""
        return (Phase("tune"),)

    @property
    def before_examination(self) -> Callable[[JobContext], tuple[Phase, ...]] | None:
        """The function that returns the phases after which the received model is the one that a
        client which took part is examined with, in place of :meth:`examined`; None: there are none.
        Nothing goes on from them."""
        return None


class Aggregator(_MethodPart):
    """The rule that combines uploads into one total.

    ``upload_visibility``: ``sum`` if it needs only the weighted sum of uploads, ``each`` if single
    ones, which a class is taken to mean that says nothing. ``compares``: the rule compares uploads
    with each other, so with one upload it equals the mean. ``plain_sum``: the total is a weighted
    sum, so that an upload of norm C moves it by C at most. ``joins``: whether it has
    :meth:`partial` and :meth:`join`."""

    paper: ClassVar[Paper | None] = None
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    compares: ClassVar[bool] = False
    plain_sum: ClassVar[bool] = False
    joins: ClassVar[bool] = False

    @property
    def sees_single_uploads(self) -> bool:
        """Whether it needs single uploads, as far as its class says: one that adds them in a way of
        its own must declare ``upload_visibility`` anew."""
        declared = declares(self, "upload_visibility", "init", "add", "finish")
        return self.upload_visibility == "each" or not declared

    @property
    def least(self) -> int:
        """The fewest uploads for which the rule is defined: a smaller cohort is refused, and a
        round with fewer uploads does not change the model."""
        return 1

    def is_mean_of(self, uploads: int) -> str | None:
        """Return why the options make the rule the plain mean of so many uploads, and what to write
        instead; None where they do not."""
        return None

    @abstractmethod
    def init(self) -> Any:
        """Return an empty accumulator."""

    @abstractmethod
    def add(self, total: Any, upload: Upload) -> Any:
        """Add one upload to the accumulator, in place or not, and return it. Uploads come in order
        of client id and position."""

    def partial(self, total: Any) -> Any:
        """Return the sum of uploads in one :class:`~motley.algorithms.upload.BlockRun`; None if
        there is none."""
        raise NotImplementedError(f"{type(self).__name__} joins no sums")

    def join(self, total: Any, run: BlockRun, partial: Any) -> Any:
        """Add a run's sum as its uploads would be, and return the accumulator. Runs come in order
        of their positions."""
        raise NotImplementedError(f"{type(self).__name__} joins no sums")

    @abstractmethod
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        """Return the totals by part name, float64 for floating parts; empty when there were fewer
        than ``least`` uploads. The accumulator is used up.

        ``divide``: whether ``mean`` parts are divided by the sum of weights, by the number of
        uploads, or not at all.
        """


def aggregate(
    aggregator: Aggregator, uploads: Iterable[Upload], divide: Divide
) -> dict[str, Tensor]:
    """Aggregate uploads, given in order of client id, in one call: ``init``, ``add`` for each of
    them, ``finish``."""
    total = aggregator.init()
    for upload in uploads:
        total = aggregator.add(total, upload)
    return aggregator.finish(total, divide)


@dataclass(frozen=True)
class ServerState:
    """The server's state: the model, and further tensors by name (momentum, control variate,
    ...)."""

    model: ModelState
    extra: Tensors = field(default_factory=dict)


class NetworkFunction(Protocol):
    """The task's network as a function of a model state, for computations of the server."""

    def outputs(self, state: ModelState, inputs: Tensor) -> Tensor:
        """Return the outputs ``[B, ...]`` in eval mode, computed in chunks without gradients."""

    def loss_gradient(
        self,
        state: ModelState,
        inputs: Tensor,
        loss: Callable[[Tensor], Tensor],
        training: Key | None = None,
    ) -> LossGradient:
        """Return a scalar ``loss`` of the outputs and its gradient, in eval mode or, with a key for
        dropout, in training mode."""


class ExtraExchange(NamedTuple):
    """Extra communication and computation of every participant that a server rule causes; billed,
    and part of the client's time.

    Parameters
    ----------
    up, down: numbers sent each way.
    own: forward passes over all training samples of the client.
    batches: forward passes over one batch of public samples (a training step on one counts three).
    """

    up: int = 0
    down: int = 0
    own: float = 0.0
    batches: float = 0.0


@dataclass(frozen=True)
class ServerContext:
    """What a server rule may use beside the total of the uploads.

    Parameters
    ----------
    layout: of the model.
    population: clients that rounds may ask.
    accepted: uploads in the total.
    network: the task's network.
    criterion: the task's own loss.
    public: unlabelled model inputs ``[n, ...]``.
    validation: inputs and labels that the server holds; never test data.
    key: random stream of this step.
    losses: returns the mean loss of one model per client, each on the client's own training
    samples, in eval mode, with the algorithm's loss.
    architectures: the number of each client's architecture ``[K]``; None: all hold the same.
    groups: :attr:`LocalRule.groups`.
    own_weights: the sum of the clients' own weights (:func:`motley.algorithms.weights.own_weights`)
    over the uploads in the total, and over all clients; None: each has 1.
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
    own_weights: tuple[float, float] | None = None
    architectures: Ids | None = None
    groups: tuple[Layout, ...] = ()

    def own_model(self, client: int, kept: ClientState) -> ModelState:
        """Return the model that a client keeps as ``x``, ``buffers`` and ``counters``, as one of
        its own architecture."""
        model = ModelState(kept["x"], kept["buffers"], kept["counters"])
        if self.architectures is None:
            return model
        return of_architecture(model, int(self.architectures[client]))

    @property
    def weight_sums(self) -> tuple[float, float]:
        """The clients' own weights, added up over the uploads in the total and over all clients:
        under equal weights how many there are."""
        return self.own_weights or (float(self.accepted), float(self.population))


class Server(_MethodPart):
    """The server's step on the total of the uploads. Its computations take wall time, never virtual
    time.

    ``weighs_all``: whether the step needs the weights of all clients
    (:attr:`ServerContext.weight_sums`), of which numbers of samples are no secret then.
    """

    weighs_all: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[str]:
        """The data that the rule needs: ``public`` samples, ``validation`` samples of the server,
        ``classes``. Checked when an experiment is built."""
        return frozenset()

    @property
    def asks_clients(self) -> bool:
        """Whether the rule needs participants after their uploads: by :meth:`extra_exchange` or
        :meth:`update_with_clients`."""
        return overrides(self, Server, "extra_exchange", "update_with_clients")

    def extra_exchange(self, public: int, outputs: int) -> ExtraExchange:
        """Return the extra exchange with every participant of a round, for so many public samples
        and outputs."""
        return ExtraExchange()

    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        """Return this rule bound to a model's layout; called once, when a run's setting is made.
        ``draw(j)``: a further draw of the initial model, for every j from 1."""
        return self

    def local_among(self, local: LocalRule, layouts: tuple[Layout, ...], number: int) -> LocalRule:
        """Return the local rule of the clients of one architecture of several, by default the
        method's own.

        Parameters
        ----------
        layouts: of the models of all architectures.
        number: of the architecture.
        """
        return local

    def init(self, model: ModelState, population: int) -> ServerState:
        """Return the state before round 1."""
        return ServerState(model)

    @abstractmethod
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        """Return the next state. Never called with an empty total: a round without uploads changes
        nothing."""

    def examined(self, state: ServerState) -> ServerState:
        """Return the state whose model is examined, saved and given to new clients; by default the
        one that training goes on from."""
        return state

    def update_with_clients(
        self,
        state: ServerState,
        total: Tensors,
        client_states: Mapping[int, ClientState],
        context: ServerContext,
    ) -> tuple[ServerState, Mapping[int, ClientState]]:
        """Return the next server state and the next states of the accepted clients, by default
        ``client_states``. A client that is left out keeps the state that it had before the
        round."""
        return self.update(state, total, context), client_states

    def notes(self, state: ServerState) -> Mapping[str, float]:
        """Return numbers about the step that led to a state, for the column ``notes`` of the table
        ``rounds``."""
        return {}


def step_model(state: ServerState, step: Tensor, total: Tensors) -> ModelState:
    """Return the model after ``x + step`` (float64, then cast); buffers become their convex mean,
    counters their maximum. A buffer whose mean is NaN, which no client held, stays, and so does one
    of float64 beside weights of float32 whose mean differs by the rounding of the mean alone."""
    old = state.model
    mean = total["buffers"].to(old.buffers.dtype) if "buffers" in total else old.buffers
    if mean.dtype != old.x.dtype:
        rounding = 8 * torch.finfo(mean.dtype).eps
        mean = torch.where((mean - old.buffers).abs() <= rounding * mean.abs(), old.buffers, mean)
    return ModelState(
        (old.x.double() + step).to(old.x.dtype),
        torch.where(mean.isnan(), old.buffers, mean),
        total["counters"].to(old.counters.dtype) if "counters" in total else old.counters,
    )


def kept_mean(state: ServerState, name: str, everybody: float) -> Tensor:
    """Return a weighted mean over all clients that a server keeps in its state, float64, divided
    anew by the sum of all own weights of now, ``everybody``: in a deployment it grows with every
    client that is met. ``total_weight`` in the state is that of before."""
    return state.extra[name].double() * (float(state.extra["total_weight"]) / everybody)


@dataclass(frozen=True)
class Algorithm:
    """The four parts of a method, the weighting that it was published with (None: the experiment's
    default), and the fine-tuning of clients' models before they are examined (None: there is
    none)."""

    loss: Loss
    local: LocalRule
    aggregator: Aggregator
    server: Server
    weights: str | None = None
    tuning: Tuning | None = None

    @property
    def personal(self) -> bool:
        """Whether clients use models of their own, with which they are examined."""
        return self.local.personal is not None or self.tuning is not None

    def replace(
        self,
        loss: Loss | None = None,
        local: LocalRule | None = None,
        aggregator: Aggregator | None = None,
        server: Server | None = None,
        weights: str | None = None,
        tuning: Tuning | None = None,
    ) -> Algorithm:
        """Return the same method with some parts exchanged."""
        replacements = {
            "loss": loss,
            "local": local,
            "aggregator": aggregator,
            "server": server,
            "weights": weights,
            "tuning": tuning,
        }
        return dataclasses.replace(self, **{k: v for k, v in replacements.items() if v is not None})  # type: ignore[arg-type]


class Method(ABC):
    """A named method of a paper: a frozen dataclass of options that sets the parts which the paper
    changes.

    ``reveals``: what a server learns of single clients, also under secure aggregation; empty:
    nothing. ``adapters``: whether it is made for models with low-rank adapters. ``unlike``: how it
    is written for clients whose models have different architectures; empty: not at all."""

    paper: ClassVar[Paper]
    reveals: ClassVar[str] = ""
    adapters: ClassVar[bool] = False
    unlike: ClassVar[str] = ""

    @abstractmethod
    def change(self, plain: Algorithm) -> Algorithm:
        """Return ``plain`` (FedAvg with the task's loss) with this paper's parts."""
