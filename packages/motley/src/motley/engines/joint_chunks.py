"""Chunks of clients of several runs in one computation, for a GPU, which spends the time of small
models on starting operations: a step of the clients of 25 runs starts as many as one of 5 clients.

Each run hands in what it would compute, and waits. What has the same layers, loss, optimizer and
samples becomes one chunk; the results go back to their runs. Nothing else is shared: batches,
corrections and random numbers are those that each run drew for itself.

A client's numbers have the bits of its run alone while all clients of the chunk have equal rates,
and batches of one length in every step. They differ by rounding where another client's batch is
longer, since sums then have more terms that are 0, and where rates differ, since gradients are then
stored before they are multiplied.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.engines.chunk import Chunk, Executor, LossSums, PhaseJob, PhaseResults
from motley.engines.cores import torch_threads
from motley.engines.engine import Setting
from motley.engines.local import WINDOW_WEIGHTS
from motley.engines.samples import Samples, SampleSplit
from motley.engines.stages import SCHEDULE_PLACES
from motley.tasks.flat import construct, torch_defaults
from motley.tasks.pixels import ImageTransform

Outcome = PhaseResults | Exception
"""What comes of the work of one run."""


@dataclass(frozen=True, eq=False)
class HandedIn:
    """One phase of clients of one run, as for :meth:`Executor.train`.

    Parameters
    ----------
    executor: computes it where the run is alone.
    kind: equal for executors that compute alike.
    """

    executor: Executor
    kind: Hashable
    setting: Setting
    samples: Samples
    clients: Sequence[PhaseJob]
    measured: bool

    def alone(self) -> PhaseResults:
        """Return what the run alone would compute."""
        return self.executor.train(self.setting, self.samples, self.clients, self.measured)

    def key(self) -> Hashable:
        """Return what is equal for work that one chunk can hold, samples aside."""
        first = self.clients[0]
        view = first.job.data_view
        drifts = view is not None, view is not None and view.names is not None
        return self.kind, self.measured, first.phase.where, drifts


def kind_of(executor: Executor, setting: Setting) -> Hashable | None:
    """Return what is equal for executors that compute alike; None for one that computes for its run
    alone, since its samples are augmented, or its module holds what cannot be compared."""
    transform = setting.task.transform
    scaling: Hashable = None
    if isinstance(transform, ImageTransform) and not transform.augment:
        constants = transform.scaling.shift, transform.scaling.scale
        scaling = tuple(tuple(values.tolist()) for values in constants)
    elif transform is not None:
        return None
    kind = (
        type(executor),
        scaling,
        _structure(construct(setting.task.model, 0)),
        setting.task.layout,
        setting.solver,
        setting.algorithm.loss,
        (setting.dtype, setting.precision, setting.device, setting.products),
    )
    try:
        hash(kind)
    except TypeError:
        return None
    return kind


def _structure(module: nn.Module) -> Hashable:
    """Return the layers of a module by name, with their types and options; parameters that stand
    still, and options without an equality, equal nothing else."""
    bare = vars(nn.Module()).keys() - {"training"}
    return tuple(
        (
            name,
            type(part),
            *((key, _option(value)) for key, value in vars(part).items() if key not in bare),
            *(object() for value in part.parameters(recurse=False) if not value.requires_grad),
        )
        for name, part in module.named_modules()
    )


def _option(value: object) -> object:
    if isinstance(value, Tensor):  # which is compared number by number
        return object()
    return tuple(value) if isinstance(value, list) else value


class JointExecutor(Executor):
    """Hands in what its run computes, and waits for the results.

    Parameters
    ----------
    executor: of the run alone.
    kind: by :func:`kind_of`.
    hand_in: returns what came of the work, or raises.
    """

    joint: ClassVar[bool] = True

    def __init__(
        self, executor: Executor, kind: Hashable, hand_in: Callable[[HandedIn], PhaseResults]
    ) -> None:
        self._executor = executor
        self._kind = kind
        self._hand_in = hand_in

    @override
    def run(self, chunk: Chunk) -> Tensor:
        return self._executor.run(chunk)

    @override
    def train(
        self, setting: Setting, samples: Samples, clients: Sequence[PhaseJob], measured: bool
    ) -> PhaseResults:
        return self._hand_in(
            HandedIn(
                executor=self._executor,
                kind=self._kind,
                setting=setting,
                samples=samples,
                clients=clients,
                measured=measured,
            )
        )


class _JointSamples(Samples):
    """The clients of several runs on the same samples as those of one federation, numbered on from
    run to run.

    ``begins``: number of the first client of each run.
    """

    def __init__(self, parts: Sequence[Samples]) -> None:
        first = parts[0]
        splits = [part.training for part in parts]
        self.parts = parts
        self.begins = [0, *accumulate(len(part.seen) for part in parts)]
        self.x, self.y = first.x, first.y
        self.dtype, self.transform = first.dtype, first.transform
        self.seen = np.concatenate([part.seen for part in parts])
        before = [0, *accumulate(len(split.rows) for split in splits)]
        offsets = [split.offsets[:-1] + begin for split, begin in zip(splits, before, strict=False)]
        self.training = SampleSplit(
            rows=torch.cat([split.rows for split in splits]),
            labels=torch.cat([split.labels for split in splits]),
            offsets=np.concatenate([*offsets, before[-1:]]),
            sizes=np.concatenate([split.sizes for split in splits]),
            seen=self.seen,
        )
        self.rows = self.training.rows


class JointComputation:
    """Computes what runs hand in, together where it fits together."""

    def __init__(self) -> None:
        self._x: list[Tensor] = []
        self._samples: dict[Hashable, _JointSamples] = {}
        self.sizes: list[int] = []
        """Runs of each chunk of the last call."""

    def compute(self, works: Sequence[HandedIn]) -> list[Outcome]:
        """Return the outcome of each run's work; an error is one of that run alone."""
        self._let_go(works)
        groups: dict[Hashable, list[int]] = {}
        for i, work in enumerate(works):
            groups.setdefault((work.key(), self._shared(work.samples)), []).append(i)
        self.sizes = [len(group) for group in groups.values()]
        outcomes: dict[int, Outcome] = {}
        # as in the run's own thread (ThreadPool.map)
        with torch_defaults(), torch_threads(1):
            for key, group in groups.items():
                outcomes.update(
                    zip(group, self._of_group(key, [works[i] for i in group]), strict=True)
                )
        return [outcomes[i] for i in range(len(works))]

    def _let_go(self, works: Sequence[HandedIn]) -> None:
        """Keep the samples of no run that has ended: they may fill a GPU's memory."""
        held = {id(work.samples.x) for work in works}
        self._x = [x for x in self._x if id(x) in held]
        self._samples = {
            key: samples for key, samples in self._samples.items() if id(samples.x) in held
        }

    def _shared(self, samples: Samples) -> int:
        """Return the identity of the samples' features, and let runs with the same have one
        copy."""
        for x in self._x:
            if samples.x is x:
                return id(x)
            alike = samples.x.shape == x.shape and samples.x.dtype == x.dtype
            if alike and samples.x.device == x.device and torch.equal(samples.x, x):
                samples.x = x
                return id(x)
        self._x.append(samples.x)
        return id(samples.x)

    def _of_group(self, key: Hashable, works: Sequence[HandedIn]) -> list[Outcome]:
        if len(works) > 1:
            try:
                return [*self._together(key, works)]
            except Exception as error:  # whose fault it is shows when each is computed by itself
                warnings.warn(
                    f"the clients of {len(works)} runs could not be computed together, and are "
                    f"run by run: {type(error).__name__}: {error}",
                    stacklevel=2,
                )
        return [_attempt(work) for work in works]

    def _together(self, key: Hashable, works: Sequence[HandedIn]) -> Iterator[PhaseResults]:
        parts = [work.samples for work in works]
        samples = self._samples.get(key)
        if samples is None or samples.parts != parts:
            samples = self._samples[key] = _JointSamples(parts)
        clients = [
            client._replace(job=dataclasses.replace(client.job, client=begin + client.job.client))
            for begin, work in zip(samples.begins, works, strict=False)
            for client in work.clients
        ]
        setting = works[0].setting
        models: dict[int, Tensor] = {}
        sums: dict[int, LossSums] = {}
        for group in _fitting(clients, setting.task.layout.size):
            rows, totals = works[0].executor.train(
                setting, samples, [clients[i] for i in group], works[0].measured
            )
            models.update(zip(group, rows, strict=True))
            sums.update(zip(group, totals, strict=True))
        end = 0
        for work in works:
            begin, end = end, end + len(work.clients)
            yield [models[i] for i in range(begin, end)], [sums[i] for i in range(begin, end)]


def _attempt(work: HandedIn) -> Outcome:
    try:
        return work.alone()
    except Exception as error:
        return error


def _fitting(clients: Sequence[PhaseJob], weights: int) -> Iterator[list[int]]:
    """Yield the numbers of clients of one chunk after another, those with most steps first, whose
    models and batches fit in memory.

    ``weights``: of a model.
    """
    group: list[int] = []
    widest = 0
    for i in sorted(range(len(clients)), key=lambda i: -len(clients[i].plan)):
        width = int(clients[i].plan.sizes.max(initial=0))
        more = len(group) + 1
        places = len(clients[(group or [i])[0]].plan) * max(widest, width)
        if group and (more * weights > WINDOW_WEIGHTS or more * places > SCHEDULE_PLACES):
            yield group
            group, widest = [], 0
        group.append(i)
        widest = max(widest, width)
    if group:
        yield group
