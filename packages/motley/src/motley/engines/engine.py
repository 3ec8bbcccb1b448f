"""The interface of an engine: it trains clients, probes them, and evaluates models. The round loop
decides which clients, and when.

The sequential engine is the reference; every other must agree with it in float64
(``tests/motley/engines``). Batches are drawn before training (:mod:`motley.engines.batches`), the
same ones for every engine.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from motley.algorithms.head_loss import per_head
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    BlockRun,
    ClientState,
    NetworkFunction,
    Parts,
    PreTrainingSignals,
    Tensors,
    Tuning,
)
from motley.algorithms.positions import per_position
from motley.algorithms.task_loss import loss_of
from motley.core.adapters import merged_of, ranked
from motley.core.errors import ContractError
from motley.core.keys import Key, Streams
from motley.core.layout import Layout
from motley.core.work import FORWARD, LocalWork
from motley.engines.matrix_products import Library
from motley.engines.memory import TrainingMemory, training_memory
from motley.tasks.architectures import UnlikeNetwork
from motley.tasks.flat import FlatNetwork, construct, initial, placed
from motley.tasks.merged import merging
from motley.tasks.narrow_models import cuttable, narrowed, operations, rough_operations
from motley.tasks.nn import set_stream
from motley.tasks.precision import Precision, products, widened
from motley.tasks.task import ModelState, Task, model_input

MEASURED: Mapping[
    str, tuple[Literal["training", "validation", "test"], Literal["forward", "gradient"]]
] = MappingProxyType(
    {
        "loss": ("training", "forward"),
        "robust_loss": ("training", "forward"),
        "val_loss": ("validation", "forward"),
        "test_loss": ("test", "forward"),
        "grad_norm": ("training", "gradient"),
        "gradient": ("training", "gradient"),
        "gradient_sketch": ("training", "gradient"),
    }
)
"""The signals that :meth:`Engine.measure` computes, each with the samples of a client that it is
computed on and the kind of pass that it takes: ``forward`` (a loss) or ``gradient`` (forward and
backward)."""

PRE_TRAINING: Mapping[str, str] = MappingProxyType(
    {
        "arrival_loss": "loss",
        "robust_loss": "robust_loss",
        "val_loss": "val_loss",
        "grad_norm": "grad_norm",
    }
)
"""The signals reported with an update that are computed on the received model, before the first
local step: name of the reported signal -> name of the same quantity in :data:`MEASURED`."""

REPORTED = frozenset({"loss", "loss_rms", "update_norm", "max_grad_norm", *PRE_TRAINING})
"""The signals that every engine can report with an update, in :attr:`TrainResult.signals`: those
computed during training, and those of :data:`PRE_TRAINING`."""


WORKER_OPTIONS = ("workers", "worker_cores", "address", "gpu_share", "wait_s", "differing_nodes")
"""The options of :class:`Setting` that only engines with workers have; None where they are left
out."""


ENGINE_OPTIONS = (*WORKER_OPTIONS, "products")
"""The options of :class:`Setting` that only some engines have; None where they are left out."""


class EngineEvent(NamedTuple):
    """Something that happened to a machine or worker of an engine. ``at``: date and time in UTC.
    ``reason``: in words."""

    at: str
    event: str
    reason: str


@dataclass(frozen=True, slots=True)
class DataView:
    """The training samples and class labels of n clients at one moment of a drifting federation.

    Parameters
    ----------
    first: position among the client's own samples at which its window of ``Federation.seen``
    samples begins, ``[n]``; a window that reaches the end continues at position 0.
    names: label that each client uses for each class, ``[n, C]``; None if labels do not drift.
    """

    first: NDArray[np.int64]
    names: NDArray[np.int64] | None = None

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> DataView:
        return DataView(self.first[rows], None if self.names is None else self.names[rows])

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> DataView | None:
        """The data views of several jobs, concatenated; None if the jobs have none."""
        views = [job.data_view for job in jobs if job.data_view is not None]
        if not views:
            return None
        names = [view.names for view in views if view.names is not None]
        return cls(
            np.concatenate([view.first for view in views]), np.concatenate(names) if names else None
        )


DataViews = Callable[[NDArray[np.int64]], DataView | None]
"""A function from client ids to these clients' data view now; it returns None where no data
drift."""


@dataclass(frozen=True, slots=True)
class Job:
    """The planned local work of one client.

    Parameters
    ----------
    client: id of the client.
    dispatch: number of the dispatch, increasing over the run.
    steps: local steps to take.
    lr: learning rate of every step, schedules and per-client factors included.
    data_view: the client's data view under drift (one row); None if it sees all its samples. Set
    for all jobs of a call or for none.
    layers: names of the layers whose curvature is measured after the last step.
    width, offset: the slice that is trained, see :meth:`motley.core.layout.Layout.slices`; width 1:
    the whole model.
    earlier_steps: local steps of the client that the server has accepted before, where the task has
    an order of batches (:attr:`motley.tasks.task.Task.batches`); else 0.
    """

    client: int
    dispatch: int
    steps: int
    lr: float
    data_view: DataView | None = None
    layers: tuple[str, ...] = ()
    width: float = 1.0
    offset: int = 0
    earlier_steps: int = 0


Purpose = Literal["tune", "new", "examine"]
"""Why a client trains before it is examined: ``tune``, it fine-tunes the model that it uses
(:attr:`Algorithm.tuning`); ``new``, it never took part, and adapts the model that it receives
(:meth:`PersonalRule.adaptation`); ``examine``, its method asks for it
(:attr:`PersonalRule.before_examination`)."""


class AdaptInputs(NamedTuple):
    """The inputs of a client's local work before an examination: the model it begins with, the
    state that the client keeps, and all that it received; None: the model alone."""

    model: ModelState
    client_state: ClientState | None = None
    download: Tensors | None = None

    def on(self, device: torch.device | str) -> AdaptInputs:
        """Return model, state and download on a device."""
        client_state, download = (
            tensors and {name: value.to(device) for name, value in tensors.items()}
            for tensors in (self.client_state, self.download)
        )
        return AdaptInputs(self.model.to(device), client_state, download)


class Slices(NamedTuple):
    """The slices of a model that n clients received, see :attr:`Job.width`.

    Parameters
    ----------
    widths: ``[n]``.
    offset: the same for all of them.
    """

    widths: NDArray[np.float64]
    offset: int = 0


@dataclass(frozen=True)
class JobInputs:
    """The inputs of jobs that train the same model version; tensors lie on the engine's device.

    Parameters
    ----------
    download: tensors that all clients received.
    client_states: client id -> state that the client kept from earlier rounds.
    pre_training: client id -> signals measured on the received model before training.
    """

    download: Tensors
    client_states: Mapping[int, ClientState | None]
    pre_training: Mapping[int, PreTrainingSignals] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainResult:
    """The result of one job.

    Parameters
    ----------
    client: id of the client.
    parts: the upload.
    client_state: state that the client keeps.
    steps: local steps taken.
    signals: the requested learning signals, scalars or arrays.
    finite: whether the loss is, and no number of the upload became infinite or NaN
    (:mod:`motley.tasks.finite`).
    curvature: layer name -> diagonal of the Hessian at the client's final model, for the layers
    that the job named; layers that cannot be differentiated twice are missing.
    unsent: :meth:`LocalRule.unsent_values <motley.algorithms.parts.LocalRule.unsent_values>`.
    """

    client: int
    parts: Parts
    client_state: ClientState | None
    steps: int
    signals: Mapping[str, float | NDArray[np.float64]]
    finite: bool
    curvature: Tensors = field(default_factory=dict)
    unsent: int = 0


class Reduction(Protocol):
    """What is done with a step's uploads where they arise, so that their sum travels in place of
    them. It is sent to the workers."""

    def begin(self) -> Any:
        """Return an empty accumulator."""

    def add(self, total: Any, position: int, result: TrainResult) -> tuple[Any, TrainResult]:
        """Add the upload at a position; return the accumulator, and the result without its
        upload."""

    def partial(self, total: Any) -> Any:
        """Return the sum in the accumulator as it travels."""


class RunSum(NamedTuple):
    """What travels of the jobs of a run of positions.

    Parameters
    ----------
    run: the positions.
    results: of its jobs, in order, without uploads.
    partial: the uploads' sum.
    """

    run: BlockRun
    results: Sequence[TrainResult]
    partial: Any


@dataclass(frozen=True)
class Setting:
    """Everything an engine is built from; one per run. Binds the algorithm's local rule to the
    task's layout, and its loss to the task's targets.

    Parameters
    ----------
    task: model, data and name of the loss.
    algorithm: the four parts.
    solver: local optimizer.
    work: amount of local work.
    streams: random streams; a job's stream for a purpose is ``streams.key(purpose).fold(dispatch,
    client)``.
    dtype: of parameters and arithmetic.
    precision: of matrix products and convolutions.
    device: torch device.
    threads: cores this run may use (None: all that the process may).
    workers: worker processes that share these cores, for engines that have workers (None: one for
    every core).
    worker_cores: cores of each worker.
    address: of a Ray cluster.
    gpu_share: share of a GPU that a worker takes.
    wait_s: wall seconds to wait for a cluster with no room for a worker.
    differing_nodes: what becomes of a run if a node has other code than this process (None:
    ``skip``).
    mixes: whether samples of several clients may share a forward pass outside training; False where
    an output depends on who else is in the batch.
    evaluation_batch: samples of such a pass where they may not, or the loss is one of whole
    batches; None: all of a client's.
    skips_unused: whether the optimizer leaves out, as torch's do, a parameter to which a step gives
    no gradient, in place of stepping it with a gradient of zeros.
    ruled_out: engine -> why it does not train this model as torch does
    (:mod:`motley.engines.admission`).
    sliced: whether the model is a slice already, which is not cut again.
    probes_model: whether curvature is that of a probe of the whole model,
    :attr:`motley.transport.compressors.compressor.Compressor.probes_model`.
    products: the library that multiplies matrices, for engines that choose (None: by
    :func:`motley.engines.matrix_products.faster_library` in float32 on a CPU, else PyTorch).
    matmul_precision: ``torch.get_float32_matmul_precision()`` of the run's own process, which holds
        in its workers, too.
    common_kind: the setting of the architecture that clients of another one train beside their own;
    None: see :attr:`common`.
    """

    task: Task
    algorithm: Algorithm
    solver: Solver
    work: LocalWork
    streams: Streams = field(default_factory=Streams)
    dtype: torch.dtype = torch.float32
    precision: Precision = "float32"
    device: str = "cpu"
    threads: int | None = None
    workers: int | None = None
    worker_cores: int | None = None
    address: str | None = None
    gpu_share: float | None = None
    wait_s: float | None = None
    differing_nodes: Literal["skip", "refuse"] | None = None
    mixes: bool = True
    evaluation_batch: int | None = None
    skips_unused: bool = False
    ruled_out: Mapping[str, str] = field(default_factory=dict)
    sliced: bool = False
    probes_model: bool = False
    products: Library | None = None
    matmul_precision: str = field(default_factory=torch.get_float32_matmul_precision)
    common_kind: Setting | None = None

    def __post_init__(self) -> None:
        if self.precision == "bfloat16" and self.dtype != torch.float32:
            raise ContractError(
                f"precision bfloat16 needs weights of torch.float32, got {self.dtype}"
            )
        slicing = self.algorithm.local.slicing
        if slicing is not None and not self.sliced:
            if slicing.merges and not merged_of(self.task.layout):
                merged = partial(merging, self.task.model)
                object.__setattr__(self, "task", self.task.with_model(merged))
            if slicing.ranks:
                layout = ranked(self.task.layout)
            elif slicing.masks:
                layout = self.task.layout
            else:
                layout = cuttable(self.task.layout, construct(self.task.model, 0))
            object.__setattr__(self, "task", dataclasses.replace(self.task, layout=layout))
        unlike = self.task.architectures
        local = self.algorithm.local
        if unlike is not None:
            local = self.algorithm.server.local_among(local, unlike.layouts, 0)
        local = local.bound(self.task.layout)
        server = self.algorithm.server.bound(
            self.task.layout, partial(_drawn, self.task.model, self.streams.key("init"), self.dtype)
        )
        loss = per_head(
            per_position(self.algorithm.loss, self.task.federation.targets), self.task.heads
        )
        object.__setattr__(
            self,
            "algorithm",
            self.algorithm.replace(local=local, server=server, loss=loss),
        )

    def alone(self) -> Setting:
        """Return the setting of an engine without workers."""
        return dataclasses.replace(
            self, workers=None, worker_cores=None, address=None, gpu_share=None, wait_s=None
        )

    @property
    def kinds(self) -> tuple[Setting, ...]:
        """The setting of each architecture, in order, whose clients all hold the same; this one
        alone where there is one architecture."""
        return (self,) if self.task.architectures is None else self._kinds

    @cached_property
    def mean_examples(self) -> float:
        """The mean number of training samples of the clients that rounds may ask; NaN where no rule
        looks at it."""
        if not self.algorithm.local.compares_sizes:
            return math.nan
        data = self.task.federation
        return float((data.seen.sum() - data.seen[data.new_clients].sum()) / data.pool)

    @cached_property
    def _kinds(self) -> tuple[Setting, ...]:
        tasks = self.task.alike()
        algorithm = self.algorithm
        layouts = tuple(task.layout for task in tasks)
        rules = [
            algorithm.server.local_among(algorithm.local, layouts, number)
            for number in range(len(tasks))
        ]
        kinds = [
            dataclasses.replace(self, task=task, algorithm=algorithm.replace(local=rule))
            for task, rule in zip(tasks, rules, strict=True)
        ]
        if algorithm.local.trains_common:
            kinds = [dataclasses.replace(kind, common_kind=kinds[-1]) for kind in kinds]
        return tuple(kinds)

    @property
    def common(self) -> Setting:
        """The setting of the architecture that clients train in common
        (:attr:`LocalRule.trains_common
        <motley.algorithms.parts.LocalRule.trains_common>`): of several the last."""
        return self.common_kind or self.kinds[-1]

    def kind_of(self, client: int) -> int:
        """Return the number of a client's architecture."""
        unlike = self.task.architectures
        return 0 if unlike is None else int(unlike.numbers[client])

    def of(self, client: int) -> Setting:
        """Return the setting of a client's architecture."""
        return self.kinds[self.kind_of(client)]

    def initial(self) -> ModelState:
        """Return the initial model, which does not depend on what other architectures there
        are."""
        return initial(self.task.model, self.streams.key("init"), self.dtype)

    def first_held(self, model: ModelState) -> ModelState:
        """Return what the server holds at first; ``model``: the initial one, of several
        architectures the first."""
        local = self.algorithm.local
        needed = local.groups or local.trains_common
        others = [kind.initial() for kind in self.kinds[1:]] if needed else []
        return local.first_held([model, *others])

    def network(self) -> NetworkFunction:
        """Return the task's network as a function of a state, or those of all architectures."""
        networks = tuple(
            FlatNetwork(kind.task.model, kind.dtype, kind.device, precision=kind.precision)
            for kind in self.kinds
        )
        return networks[0] if self.task.architectures is None else UnlikeNetwork(networks)

    @property
    def separates_clients(self) -> bool:
        """Whether a forward pass outside training takes the samples of one client, together."""
        losses = (self.algorithm.loss, loss_of(self.task))
        return not self.mixes or any(loss.over == "batch" for loss in losses)

    def zeros(self) -> ModelState:
        """Return a model of zeros, to ask the parts of the algorithm for names and shapes."""
        return self._zeros(self.task.layout)

    def first_zeros(self) -> ModelState:
        """Return what the server holds at first, of models of zeros."""
        local = self.algorithm.local
        own = (self.common if local.trains_common else self).task.layout
        return local.first_held([self._zeros(layout) for layout in local.groups or (own,)])

    def _zeros(self, layout: Layout) -> ModelState:
        vectors = (layout.entries, layout.buffers, layout.counters)
        sizes = [sum(entry.size for entry in entries) for entries in vectors]
        return ModelState(*(torch.zeros(size, dtype=self.dtype) for size in sizes))

    @property
    def step_passes(self) -> float:
        """The passes forward and backward over a batch that a local step takes."""
        algorithm = self.algorithm
        passes = algorithm.local.step_cost + FORWARD * algorithm.loss.passes
        if not algorithm.local.trains_common:
            return passes
        return passes + self.common.forward_operations() / self.forward_operations()

    def work_share(self, width: float) -> float:
        """Return the operations of a local step on a slice of this width, as a share of those on
        the whole model."""
        if width == 1.0:
            return 1.0
        task = self.task
        slicing = self.algorithm.local.slicing
        if slicing is not None and slicing.masks:
            return self.held_size(width) / task.layout.size
        slice_of = partial(narrowed, task.model, task.layout, width=width, divided=False)
        sample = self.sample()
        return operations(construct(slice_of, 0), sample) / operations(
            construct(task.model, 0), sample
        )

    def held_size(self, width: float) -> int:
        """Return how many parameters a client of this width holds."""
        local = self.algorithm.local
        layout = self.task.layout
        if local.slicing is None or not local.slicing.masks:
            return layout.kept_size(width)
        return int(local.held(torch.zeros(layout.size), width).sum())

    def sample(self) -> Tensor:
        """Return a model input ``[1, ...]``."""
        task = self.task
        raw = task.federation.x[:1].clone()  # a transform may work in place
        raw = raw if task.transform is None else task.transform(raw, None)
        return model_input(raw, torch.float32, "cpu")

    def forward_operations(self) -> int:
        """Return about how many floating-point operations a forward pass of one sample takes."""
        return rough_operations(construct(self.task.model, 0), self.sample())

    def memory(self, width: float = 1.0, batch_size: int | None = None) -> TrainingMemory:
        """Return the memory of a local step on a slice of this width, on a batch of so many
        samples, the run's by default, that of a model trained in common included; see
        :mod:`motley.engines.memory`."""
        own = self._memory_alone(width, batch_size)
        if not self.algorithm.local.trains_common:
            return own
        common = self.common._memory_alone(1.0, batch_size)
        return TrainingMemory(*map(sum, zip(own, common, strict=True)))

    def _memory_alone(self, width: float, batch_size: int | None) -> TrainingMemory:
        """Return the memory of a local step of the one model."""
        task = self.task
        data = task.federation
        size = batch_size or self.work.batch_size
        rows = torch.arange(min(size, self.work.micro_batch or size)) % len(data.x)
        raw = data.x[rows]
        raw = raw if task.transform is None else task.transform(raw, None)
        targets = data.y[rows]
        targets = targets.to(self.dtype) if targets.is_floating_point() else targets
        slicing = self.algorithm.local.slicing
        divided = slicing is not None and slicing.divides
        cut = partial(narrowed, task.model, task.layout, width=width, divided=divided)
        factory = task.model if width == 1.0 else cut
        module = placed(construct(factory, 0), self.dtype, "cpu").train()
        set_stream(module, Key(0))
        loss = self.algorithm.loss

        def mean(outputs: Tensor) -> Tensor:
            outputs = widened(outputs)
            computable = not (loss.prepares or loss.whole_model)
            return (loss.loss(outputs, targets, {}) if computable else outputs.square()).mean()

        with products(self.precision, "cpu"):
            return training_memory(module, self.solver, model_input(raw, self.dtype), mean)

    def tuning_steps(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the local steps of each client's fine-tuning before an examination, ``[n]``."""
        tuning = self.algorithm.tuning or Tuning()
        batches = self.work.batches(self.task.federation.seen[clients], clients)
        return batches * tuning.epochs + np.where(batches > 0, tuning.steps, 0)

    def key(self, purpose: str, job: Job) -> Key:
        """The random stream of one job for one purpose."""
        return self.streams.key(purpose).fold(job.dispatch, job.client)


def _drawn(model: Callable[[], nn.Module], key: Key, dtype: torch.dtype, number: int) -> ModelState:
    """Return a further draw of the initial model."""
    return initial(model, key.fold(number), dtype)


class Evaluator(Protocol):
    """What measures the samples of one model, as :meth:`motley.engines.engine.Engine.evaluate`
    does."""

    def evaluate(
        self,
        model: ModelState,
        rows: NDArray[np.int64],
        labels: NDArray[np.int64] | None = None,
        want: frozenset[str] = frozenset({"hit"}),
        sizes: NDArray[np.int64] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return ``loss`` and the wanted quantities of each sample."""


class Engine(ABC):
    """Trains and measures clients and evaluates models. ``threads``: cores that the engine uses, at
    most ``Setting.threads``."""

    name: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()
    """Those of :data:`ENGINE_OPTIONS` that the engine has; the other engines refuse them."""
    threads: int
    inner: int = 1
    """Torch threads inside one long operation of a run that has all cores. Equal bits need equal
    numbers that run at once."""
    worker_shape: str | None = None
    """Workers times cores of each, such as ``"4 x 2"``; None for an engine without workers. Equal
    bits need equal shapes."""
    library: str | None = None
    """Which library multiplies matrices, for an engine with the option ``products``."""
    joint: bool = False
    """Whether clients train together with those of other runs, which may change last bits."""

    @property
    def nodes(self) -> Mapping[str, str]:
        """What became of each node of a cluster, by its name: ``worked``, ``usable``, or why it was
        left out; empty for engines without a cluster."""
        return {}

    @abstractmethod
    def __init__(self, setting: Setting) -> None:
        """Raises ContractError for a setting that :meth:`refuses` rejects."""

    @classmethod
    @abstractmethod
    def refuses(cls, setting: Setting) -> str | None:
        """Return one sentence on why this engine cannot run this setting; None when it can."""

    @abstractmethod
    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """Train jobs that all received the same ``download``; yield results in the order of
        ``jobs``.

        ``want``: learning signals to return beside ``loss``. A client whose loss or upload is not
        finite is returned with ``finite = False``; that is not an error.
        """

    def refuses_sums(self, steps: Sequence[int]) -> str | None:
        """Return why the uploads of jobs of so many steps do not travel as sums
        (:meth:`train_sums`), after "every update travels: "; None if they do. An engine in this
        process sends nothing."""
        return "the engine has no workers"

    def train_sums(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str],
        reduction: Reduction,
    ) -> Iterator[RunSum]:
        """Train jobs as :meth:`train` does, and yield the sums of their uploads, in order of
        positions. The position of a job is its place in ``jobs``. Only where :meth:`refuses_sums`
        allows it."""
        raise NotImplementedError(f"{self.name} sends no sums")

    @abstractmethod
    def measure(
        self,
        clients: NDArray[np.int64],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
        slices: Slices | None = None,
    ) -> dict[str, NDArray[np.float64]]:
        """Probe clients: return the wanted signals of :data:`MEASURED`, ``[len(clients)]`` or
        ``[len(clients), d]`` each.

        Signals are computed on the received model in eval mode; of several, on the one that the
        client takes. ``want``: signal -> number of batches of each client's own (possibly noisy)
        data, drawn without replacement by ``key``; None: all of the data. NaN for a client without
        samples. ``data_view``: the clients' data view under drift. ``slices``: what the clients
        received, None: the whole model; gradients are 0 outside of a slice.
        """

    @abstractmethod
    def choose(
        self,
        clients: NDArray[np.int64],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        data_view: DataView | None = None,
    ) -> Mapping[int, ClientState | None]:
        """Return the clients' states with the number of the received model that each takes,
        ``choice``; unchanged where one model is received (:attr:`LocalRule.choice
        <motley.algorithms.parts.LocalRule.choice>`)."""

    @abstractmethod
    def evaluate(
        self,
        model: ModelState,
        rows: NDArray[np.int64],
        labels: NDArray[np.int64] | None = None,
        want: frozenset[str] = frozenset({"hit"}),
        sizes: NDArray[np.int64] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return ``loss`` and the wanted quantities of each sample, of one model in eval mode on
        these rows of the federation.

        Parameters
        ----------
        labels: the targets; the rows' clean ones by default.
        want: names of :func:`motley.engines.scores.measured`; ``hit``: whether a sample is right
        (NaN in regression); ``features``: inputs of the last linear layer, where the algorithm's
        loss compares them. Outputs are kept only where they are wanted.
        sizes: numbers of consecutive rows that belong together, each a client's, which do not share
        a forward pass with others where :attr:`Setting.separates_clients`; None: all rows do.
        """

    @abstractmethod
    def recalibrate(
        self,
        model: ModelState,
        client: int,
        batches: int,
        key: Key,
        data_view: DataView | None = None,
        cumulative: bool = False,
    ) -> ModelState:
        """Return the model with normalization statistics updated on a client's data; weights do not
        change.

        So many ``batches`` of one epoch, drawn by ``key``, pass through the model in training mode
        without dropout. ``cumulative``: all batches that the model's counters have seen weigh the
        same; else as the momentum of its layers says.
        """

    def alike(self, setting: Setting) -> Engine:
        """Return an engine that adapts and evaluates models under another setting, on as many cores
        as this one."""
        return type(self)(setting)

    @abstractmethod
    def adapt(
        self, jobs: Sequence[Job], begun: Iterable[AdaptInputs], purpose: Purpose = "tune"
    ) -> Iterator[ModelState]:
        """Yield each model, on the CPU, after its job's local work for an examination, on batches
        that no training uses.

        ``Job.dispatch`` numbers the examination. ``begun``: the model of each job, and what its
        client keeps."""

    def take_events(self) -> list[EngineEvent]:
        """Return what happened to machines and workers since the last call; nothing where there are
        none."""
        return []

    def condition(self) -> str:
        """Return how many workers are ready, where, and what is waited for, in words; the empty
        string where that is no question."""
        return ""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """End the engine's threads and processes."""


def client_losses(
    engine: Engine,
    clients: Sequence[int],
    models: Sequence[ModelState],
    data_views: DataViews | None = None,
) -> Tensor:
    """Return the mean loss of ``models[i]`` on all training samples of ``clients[i]``, float64
    ``[n]``.

    The loss is the algorithm's, in eval mode; server rules that compare models on clients' data
    request it in mid-round.
    ``data_views``: gives the clients' current data view; None: all samples.
    """
    losses = []
    for client, model in zip(clients, models, strict=True):
        download = {"x": model.x, "buffers": model.buffers, "counters": model.counters}
        ids = np.array([client])
        data_view = None if data_views is None else data_views(ids)
        measured = engine.measure(
            ids,
            download,
            client_states={client: download},
            want={"loss": None},
            key=Key(0),
            data_view=data_view,
        )
        losses.append(float(measured["loss"][0]))
    return torch.tensor(losses, dtype=torch.float64)
