"""What every engine does: train jobs, measure clients, evaluate rows. Who is asked, when, at what cost is decided elsewhere.

The sequential engine is the reference; every other must agree with it in float64 (``tests/engines``). Batches come from
:mod:`motley.engines.batches` and are the same for every engine, known before training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from motley.algorithms.base import Algorithm, Memory, Parts, PreTrainingSignals, Tensors
from motley.algorithms.local import Solver
from motley.core.keys import Key, Streams
from motley.core.work import LocalWork
from motley.tasks.base import ModelState, Task

__all__ = ["MEASURED", "PRE_TRAINING", "REPORTED", "DataView", "Engine", "Job", "JobInputs", "Setting", "TrainResult"]

MEASURED: Mapping[str, tuple[Literal["training", "validation"], Literal["forward", "gradient"]]] = MappingProxyType(
    {
        "loss": ("training", "forward"),
        "robust_loss": ("training", "forward"),
        "val_loss": ("validation", "forward"),
        "grad_norm": ("training", "gradient"),
        "gradient": ("training", "gradient"),
        "gradient_sketch": ("training", "gradient"),
    }
)
"""Learning signals a probe can measure: on which samples of a client, by which kind of pass."""

PRE_TRAINING: Mapping[str, str] = MappingProxyType(
    {"arrival_loss": "loss", "robust_loss": "robust_loss", "val_loss": "val_loss", "grad_norm": "grad_norm"}
)
"""Reported signals that are measured on the received model before training, and the probed signals that they are."""

REPORTED = frozenset({"loss", "loss_rms", "update_norm", "max_grad_norm", *PRE_TRAINING})
"""Learning signals that every engine returns with an update."""


@dataclass(frozen=True, slots=True)
class DataView:
    """What clients see of their training samples at a moment, where the data drifts.

    Parameters
    ----------
    first: the place among its own at which each client's window of ``Federation.seen`` samples begins, ``[n]``; windows go round.
    names: what each calls each class, ``[n, C]``; None: as ever.
    """

    first: NDArray[np.int64]
    names: NDArray[np.int64] | None = None

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> DataView:
        return DataView(self.first[rows], None if self.names is None else self.names[rows])

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> DataView | None:
        """Those of some jobs together."""
        each = [job.data_view for job in jobs if job.data_view is not None]
        if not each:
            return None
        names = [data_view.names for data_view in each if data_view.names is not None]
        return cls(np.concatenate([data_view.first for data_view in each]), np.concatenate(names) if names else None)


@dataclass(frozen=True, slots=True)
class Job:
    """One client's local work, planned.

    Parameters
    ----------
    client: its id. dispatch: the monotone number of this sending-out. steps: local steps to take. lr: learning rate of every
    step (schedules and per-client factors are in it already). sight: its one row of what it sees; None: all it has, or all do or
    none do. layers: whose curvature is measured after the last step.
    """

    client: int
    dispatch: int
    steps: int
    lr: float
    data_view: DataView | None = None
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobInputs:
    """What jobs of one version begin with, on the device.

    Parameters
    ----------
    download: what all of them received. memories: what each client kept. arrivals: what was measured beforehand for each.
    """

    download: Tensors
    memories: Mapping[int, Memory | None]
    arrivals: Mapping[int, PreTrainingSignals] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainResult:
    """What came of a job.

    Parameters
    ----------
    client: its id. parts: the upload. memory: what the client keeps. steps: steps taken.
    signals: learning signals asked for, scalars or arrays. finite: whether all of the upload and the loss is finite.
    curvature: of the layers that were asked for, the Hessian's diagonal at the client's final model; without those that cannot be
    differentiated twice.
    """

    client: int
    parts: Parts
    memory: Memory | None
    steps: int
    signals: Mapping[str, float | NDArray[np.float64]]
    finite: bool
    curvature: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What an engine is built from: one per run.

    Parameters
    ----------
    task: model, data, loss name. algorithm: the four parts. solver: local optimiser. work: how much of it.
    streams: seeds; a job's stream for a purpose is ``streams.key(purpose).fold(dispatch, client)``.
    dtype: of parameters and arithmetic. device: where. threads: cores this run may use (None: all the process may).
    workers: processes that share these cores, for engines that have some (None: one for every core). address: of a cluster.

    The algorithm's correction is bound to the task's layout here.
    """

    task: Task
    algorithm: Algorithm
    solver: Solver
    work: LocalWork
    streams: Streams = field(default_factory=Streams)
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    threads: int | None = None
    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        bound = self.algorithm.correction.bound(self.task.layout)
        object.__setattr__(self, "algorithm", self.algorithm.replace(correction=bound))

    def key(self, purpose: str, job: Job) -> Key:
        """The stream of one job for one purpose."""
        return self.streams.key(purpose).fold(job.dispatch, job.client)


class Engine(ABC):
    """How local work is computed. ``threads``: cores it uses, at most ``Setting.threads``."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[Literal["workers", "address"]]] = frozenset()
    """Which of these the engine makes something of."""
    threads: int
    shape: str | None = None
    """How its cores are divided among workers, ``"4 x 2"``; part of what "the same bits" holds for."""

    @abstractmethod
    def __init__(self, setting: Setting) -> None:
        """Raises ContractError for a setting that it :meth:`refuses`."""

    @classmethod
    @abstractmethod
    def refuses(cls, setting: Setting) -> str | None:
        """Why this engine cannot run this setting, in one sentence; None when it can."""

    @abstractmethod
    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        memories: Mapping[int, Memory | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        """Run jobs that all received the same ``download``; results come in the order of ``jobs``, whatever order they ran in.

        ``want``: learning signals to return (always among them: ``loss``). A client whose loss or upload is not finite is
        returned with ``finite = False``, never raised.
        """

    @abstractmethod
    def measure(
        self,
        clients: NDArray[np.int64],
        download: Tensors,
        memories: Mapping[int, Memory | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
    ) -> dict[str, NDArray[np.float64]]:
        """Probe: each wanted signal of :data:`MEASURED`, ``[len(clients)]`` or ``[len(clients), d]``, of the received model in eval
        mode on so many batches of each client's own (possibly noisy) data, drawn without replacement by ``key``; None: on all of
        it. NaN for a client without samples. ``data_view``: what they see now."""

    @abstractmethod
    def evaluate(
        self, model: ModelState, rows: NDArray[np.int64], labels: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Per-sample loss and hit (1.0 or 0.0; NaN in regression) of one model on these rows' clean labels, or on ``labels``, in
        eval mode."""

    @abstractmethod
    def recalibrate(
        self, model: ModelState, client: int, batches: int, key: Key, data_view: DataView | None = None
    ) -> ModelState:
        """The model with the normalisation statistics it has after so many batches of an epoch of a client's, drawn by ``key``, went
        through in training mode, without dropout; its weights as they were."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Give back threads or processes."""
