"""Engines that run in this process: their base class, and ``sequential``, ``debug`` and
``threads``, which train client by client."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from motley.algorithms.parts import ClientState, JobContext, Phase, PreTrainingSignals, Tensors
from motley.algorithms.torch_optimizer import TorchOptimizer
from motley.core.arrays import Floats, Ints
from motley.core.errors import ContractError, EngineError
from motley.core.keys import Key
from motley.core.usable_cores import at_once, cores
from motley.engines.client import Client, StepHook
from motley.engines.cores import ThreadPool, torch_threads
from motley.engines.engine import (
    PRE_TRAINING,
    AdaptInputs,
    DataView,
    Engine,
    Job,
    JobInputs,
    Purpose,
    Setting,
    Slices,
    TrainResult,
)
from motley.engines.gradients import ThreadGradients
from motley.engines.ordered_client import OrderedSliceClient
from motley.engines.prober import Prober
from motley.engines.samples import Samples
from motley.engines.slice_prober import measure_slices
from motley.engines.sliced_client import MaskedClient, SlicedClient
from motley.engines.stages import refuses_phases
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device

_NO_KEY = Key(0)  # all samples are measured: nothing is drawn

SMALL = 100_000
"""Weights up to which a model without convolutions is computed on one torch thread: its operations
are too short to share."""

WINDOW_WEIGHTS = 64_000_000
"""Weights of the results that may be in memory before they are taken: 256 MB in float32."""


def refuses_method(setting: Setting) -> str | None:
    """Return why a batched engine cannot train by the setting's method: its clients train slices,
    its phases cannot be computed for many clients at once, or its loss compares features of several
    models; None if it can."""
    loss = setting.algorithm.loss
    rule = setting.algorithm.local
    if loss.over == "batch":
        return "the loss looks at its whole batch, which sequential and threads compute"
    if setting.work.micro_batch is not None:
        return "batches pass in parts (local.micro_batch), which sequential and threads compute"
    if isinstance(setting.solver, TorchOptimizer):
        return "an optimizer of torch steps one module, which sequential and threads compute"
    if rule.slicing is not None:
        return (
            f"clients under {type(rule).__name__} train slices of the model, which "
            "sequential and threads compute"
        )
    reason = refuses_phases(rule, _trial_phases(setting))
    if reason is not None:
        return reason
    if loss.whole_model:
        return (
            f"the loss {type(loss).__name__} compares features of several models, which "
            "sequential and threads compute"
        )
    if rule.reads_features:
        return (
            f"clients under {type(rule).__name__} read features of their samples, which sequential "
            "and threads compute"
        )
    return None


def _trial_phases(setting: Setting) -> tuple[Phase, ...]:
    """Return the phases of a client without samples that received a model of zeros, whose loss and
    gradient are zero, too."""
    rule = setting.algorithm.local
    server = setting.algorithm.server
    model = setting.zeros()
    sent = setting.first_zeros()
    download = rule.download(server.init(sent, len(setting.task.federation)))
    client_state = rule.initial_state(model)
    x = rule.start(download, client_state).x
    measured = PreTrainingSignals(0.0, torch.zeros_like(x))
    return rule.phases(
        JobContext(
            x=x,
            download=download,
            client_state=client_state,
            steps=0,
            lr=setting.solver.lr,
            num_examples=0,
            solver_norm=0.0,
            layout=setting.task.layout,
            pre_training=measured if rule.pre_training else PreTrainingSignals(),
        )
    )


def _refuses_features(setting: Setting) -> str | None:
    """Return why features of this model, or of the one trained in common, cannot be compared: it
    has no linear layer; None if they can, or are not."""
    algorithm = setting.algorithm
    if algorithm.loss.whole_model:
        name = f"the loss {type(algorithm.loss).__name__}"
    elif algorithm.local.compares_features:
        name = type(algorithm.local).__name__
    else:
        return None
    layouts = (setting.task.layout, setting.common.task.layout)
    if all(any(entry.linear for entry in layout) for layout in layouts):
        return None
    return f"{name} compares the inputs of the last linear layer, and the model has no linear layer"


def _client(setting: Setting, samples: Samples, step_hook: StepHook | None = None) -> Client:
    slicing = setting.algorithm.local.slicing
    kind: type[Client] = Client
    if slicing is not None and slicing.masks:
        kind = MaskedClient
    elif slicing is not None:
        kind = OrderedSliceClient if slicing.widths else SlicedClient
    return kind(setting, samples, step_hook)


def window_of(setting: Setting, workers: int) -> int:
    """Return the number of jobs that are trained together, such that their results fit in
    memory."""
    with_gradient = "gradient" in setting.algorithm.local.pre_training
    # a float64 row, and a copy, beside the result
    each = setting.task.layout.size * (4 if with_gradient else 1)
    return max(2 * workers, WINDOW_WEIGHTS // each)


def on_one_thread(module: nn.Module, weights: int) -> bool:
    """Whether a model of so many weights is computed on one torch thread."""
    return weights <= SMALL and not any(isinstance(part, nn.Conv2d) for part in module.modules())


class LocalEngine(Engine):
    """An engine in this process; it measures and evaluates with one :class:`Client`. Subclasses
    train a window of jobs.

    Parameters
    ----------
    setting: of the run.
    step_hook: see :data:`StepHook`.
    """

    def __init__(self, setting: Setting, step_hook: StepHook | None = None) -> None:
        reason = self.refuses(setting)
        if reason is not None:
            raise ContractError(
                f"the engine {self.name!r} was given a setting it refuses: {reason}"
            )
        self.setting = setting
        self.threads = cores(setting.threads)
        self.samples = Samples(setting.task, setting.dtype, setting.device)
        self.client = _client(setting, self.samples, step_hook)
        alone = on_one_thread(self.client.model.module, self.client.model.layout.size)
        self.inner = 1 if alone else self.threads
        self.prober = Prober(setting, self.samples, self.client, self.inner)
        self._needed = setting.algorithm.local.pre_training
        self._chooses = setting.algorithm.local.choice is not None
        self._window = window_of(setting, self.threads)

    def _clients(self) -> ThreadPool[Client]:
        """Return a pool of threads with a client each, as many as may compute at once."""
        more = (_client(self.setting, self.samples) for _ in range(at_once(self.threads) - 1))
        return ThreadPool([self.client, *more])

    def _on_device(
        self,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        clients: Iterable[int],
    ) -> tuple[Tensors, dict[int, ClientState | None]]:
        """Return the download and these clients' states on the device; tensors that lie there
        already are not copied."""

        def moved(tensors: Tensors) -> Tensors:
            return {name: value.to(self.setting.device) for name, value in tensors.items()}

        states = {client: client_states[client] for client in clients if client in client_states}
        return moved(download), {
            client: None if state is None else moved(state) for client, state in states.items()
        }

    @override
    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """See :meth:`Engine.train`. Jobs are trained in windows whose results fit in memory;
        signals of the received model that the selector or the local rule wants are measured first,
        for a whole window at once."""
        download, client_states = self._on_device(
            download, client_states, [job.client for job in jobs]
        )
        reported = [name for name in want if name in PRE_TRAINING]
        for begin in range(0, len(jobs), self._window):
            window_jobs = jobs[begin : begin + self._window]
            inputs = JobInputs(download, client_states, {})
            measured: Mapping[str, Floats] = {}
            if self._needed or self._chooses or reported:
                inputs, measured = self._measured_first(window_jobs, inputs, reported)
            for i, trained in enumerate(self._train(window_jobs, inputs, want)):
                if window_jobs[i].layers and trained.finite:
                    with torch_threads(self.inner):
                        curvature = self.client.curvature(window_jobs[i], inputs, trained)
                    trained = dataclasses.replace(trained, curvature=curvature)
                if reported:
                    signals = {name: float(measured[PRE_TRAINING[name]][i]) for name in reported}
                    trained = dataclasses.replace(trained, signals={**trained.signals, **signals})
                yield trained

    def _measured_first(
        self, jobs: Sequence[Job], inputs: JobInputs, reported: Sequence[str]
    ) -> tuple[JobInputs, Mapping[str, Floats]]:
        """Return the inputs of jobs with the model that each client chooses and what its rule wants
        to know of the received one; and what was measured of that, ``[n]`` by name.

        Parameters
        ----------
        reported: signals that clients report of the received model.
        """
        clients = np.array([job.client for job in jobs], dtype=np.int64)
        view = DataView.of(jobs)
        states = self.choose(clients, inputs.download, inputs.client_states, view)
        probed = dict.fromkeys({PRE_TRAINING[name] for name in reported} | self._needed)
        if not probed:
            return JobInputs(inputs.download, states, {}), {}
        slices = Slices(np.array([job.width for job in jobs]), jobs[0].offset)
        measured = self._measured(
            clients,
            inputs.download,
            states,
            want=probed,
            key=_NO_KEY,
            data_view=view,
            slices=slices,
        )
        signals = {}
        if self._needed:
            signals = {job.client: self._pre_training(measured, i) for i, job in enumerate(jobs)}
        return JobInputs(inputs.download, states, signals), measured

    def _pre_training(self, measured: Mapping[str, Floats], i: int) -> PreTrainingSignals:
        """Return the signals that the local rule needs of the i-th client's received model."""
        needed = self.setting.algorithm.local.pre_training
        setting = self.setting
        gradient = None
        if "gradient" in needed:
            gradient = torch.from_numpy(measured["gradient"][i]).to(setting.device, setting.dtype)
        return PreTrainingSignals(
            float(measured["loss"][i]) if "loss" in needed else math.nan, gradient
        )

    @abstractmethod
    def _train(
        self, jobs: Sequence[Job], inputs: JobInputs, want: frozenset[str]
    ) -> Iterator[TrainResult]:
        """Train a window of jobs; yield the results in their order. The inputs lie on the
        device."""

    @override
    def measure(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
        slices: Slices | None = None,
    ) -> dict[str, Floats]:
        clients = np.asarray(clients, dtype=np.int64)
        download, client_states = self._on_device(
            download, client_states, clients.tolist() if client_states else ()
        )
        states = self.choose(clients, download, client_states, data_view)
        return self._measured(
            clients, download, states, want, key=key, data_view=data_view, slices=slices
        )

    @override
    def choose(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        data_view: DataView | None = None,
    ) -> Mapping[int, ClientState | None]:
        if not self._chooses or not len(clients):
            return client_states
        download, client_states = self._on_device(
            download, client_states, clients.tolist() if client_states else ()
        )
        best = self.prober.choose(clients, download, data_view).to(self.setting.device)
        return {
            client: {**(client_states.get(client) or {}), "choice": best[i : i + 1]}
            for i, client in enumerate(clients.tolist())
        }

    def _measured(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None,
        slices: Slices | None,
    ) -> dict[str, Floats]:
        """Measure clients on what they received; tensors lie on the device."""
        if slices is None or not isinstance(self.client, SlicedClient):
            return self.prober.measure(
                clients, download, client_states, want, key=key, data_view=data_view
            )
        return measure_slices(
            prober=self.prober,
            client=self.client,
            clients=clients,
            download=download,
            want=want,
            key=key,
            data_view=data_view,
            slices=slices,
        )

    @override
    def recalibrate(
        self,
        model: ModelState,
        client: int,
        batches: int,
        key: Key,
        data_view: DataView | None = None,
        cumulative: bool = False,
    ) -> ModelState:
        with torch_threads(self.inner), torch.no_grad():
            recalibrated = self.client.recalibrate(
                model, client, batches, key, data_view=data_view, cumulative=cumulative
            )
            return recalibrated.to("cpu")

    @override
    def adapt(
        self, jobs: Sequence[Job], begun: Iterable[AdaptInputs], purpose: Purpose = "tune"
    ) -> Iterator[ModelState]:
        for job, inputs in zip(jobs, begun, strict=True):
            with torch_threads(self.inner):
                adapted = self.client.adapt(job, inputs, purpose)
            yield adapted.to("cpu")

    @override
    def evaluate(
        self,
        model: ModelState,
        rows: Ints,
        labels: Ints | None = None,
        want: frozenset[str] = frozenset({"hit"}),
        sizes: Ints | None = None,
    ) -> dict[str, NDArray[Any]]:
        """See :meth:`Engine.evaluate`. The loss is the task's own, whatever loss the algorithm
        minimizes."""
        index = to_device(np.asarray(rows, dtype=np.int64), self.samples.rows.device)
        targets = (
            self.samples.y[index] if labels is None else torch.from_numpy(labels).to(index.device)
        )
        return self.prober.forward(
            model, index, targets, loss=self.prober.plain_loss, want=want, sizes=sizes
        )


class Sequential(LocalEngine):
    """The reference engine: one client after the other on one module, all cores inside each
    operation that is long enough.

    It takes any module and any loss; a loss that compares features needs a model with a linear
    layer.
    """

    name: ClassVar[str] = "sequential"

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        return _refuses_features(setting)

    @override
    def _train(
        self, jobs: Sequence[Job], inputs: JobInputs, want: frozenset[str]
    ) -> Iterator[TrainResult]:
        for job in jobs:
            with torch_threads(self.inner):
                trained = self.client.train(job, inputs, want)
            yield trained


class Debug(Sequential):
    """The sequential engine with every step checked: the first number that is not finite raises.

    The :class:`EngineError` holds in its ``context`` client, dispatch, step, inputs, per-sample
    losses and the flat gradient.
    """

    name: ClassVar[str] = "debug"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, _check)


def _check(step: Mapping[str, object], loss: Tensor, gradient: Tensor) -> None:
    """Raise where a number is not finite; inputs are checked first, then what is computed from
    them."""
    checked = {"inputs": step["inputs"], "loss": loss, "gradient": gradient}
    for name, value in checked.items():
        if isinstance(value, Tensor) and not bool(value.isfinite().all()):
            where = f"step {step['step']} of client {step['client']}"
            # The error outlives the step, whose tensors the next client overwrites.
            copies = {name: t.clone() for name, t in checked.items() if isinstance(t, Tensor)}
            raise EngineError(f"the {name} of {where} is not finite", {**step, **copies})


class Threads(LocalEngine):
    """As many clients at a time as there are cores, each on a Python thread with one torch thread
    and a module of its own.

    Each client is computed exactly as by the sequential engine on one thread; this pays for
    convolutions on a CPU.
    """

    name: ClassVar[str] = "threads"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._pool = self._clients()
        self.prober.gradient_pass = ThreadGradients(self._pool)

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        if setting.device != "cpu":
            return f"it is for CPUs, and the device is {setting.device!r}; use sequential"
        return _refuses_features(setting)

    @override
    def _train(
        self, jobs: Sequence[Job], inputs: JobInputs, want: frozenset[str]
    ) -> Iterator[TrainResult]:
        """Train the longest jobs first."""

        def work(client: Client, job: Job) -> TrainResult:
            return client.train(job, inputs, want)

        # a long job begun last would leave the other threads idle; each has bits of its own anyway
        order = sorted(range(len(jobs)), key=lambda i: -jobs[i].steps)
        done = dict(zip(order, self._pool.map(work, [jobs[i] for i in order]), strict=True))
        yield from (done[i] for i in range(len(jobs)))

    @override
    def adapt(
        self, jobs: Sequence[Job], begun: Iterable[AdaptInputs], purpose: Purpose = "tune"
    ) -> Iterator[ModelState]:
        """See :meth:`Engine.adapt`. As many models are in memory at a time as results in
        training."""
        waiting = iter(begun)
        window = window_of(self.setting, self.threads)
        for begin in range(0, len(jobs), window):
            pairs = [(job, next(waiting)) for job in jobs[begin : begin + window]]
            # one of the clients also evaluates
            yield from list(
                self._pool.map(lambda client, pair: client.adapt(*pair, purpose), pairs)
            )

    @override
    def close(self) -> None:
        self._pool.close()
