"""Local training by ordered dropout: every batch passes through a slice whose width is drawn from
the listed ones.

The modules of all widths share their weights: a narrower one's are views of the first entries along
each axis. BatchNorm statistics are each module's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.local_optimisers import Block
from motley.algorithms.parts import LocalRule, Part, Parts, Slicing, Tensors
from motley.core.errors import ContractError
from motley.engines.client import Client, StepHook
from motley.engines.engine import Job, JobInputs, Setting, TrainResult
from motley.engines.samples import Samples
from motley.engines.sliced_client import SlicedClient, task_of_width
from motley.engines.trained_module import Batch, TrainedModule
from motley.tasks.finite import became_non_finite
from motley.tasks.nn import set_stream
from motley.tasks.targets import class_logits
from motley.tasks.task import ModelState


class OrderedSliceClient(SlicedClient):
    """A client that trains jobs of any listed width, each by ordered dropout.

    Parameters
    ----------
    setting, samples, step_hook: see :class:`SlicedClient`.
    """

    @property
    def widths(self) -> tuple[float, ...]:
        """The listed widths, falling from 1."""
        return _slicing(self.setting).widths

    @override
    def train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        own = self.at(job.width)
        own.load_statistics(self._statistics(inputs.download))
        sliced = dataclasses.replace(
            inputs, download=self.received_slice(inputs.download, job.width, job.offset)
        )
        result = own.train(job, sliced, want)
        parts = self._widened(result.parts, job, inputs.download)
        buffers = parts["buffers"].value
        finite = result.finite and not became_non_finite(buffers, inputs.download["buffers"])
        return dataclasses.replace(result, parts=parts, finite=finite)

    @override
    def at(self, width: float) -> OrderedClient:
        if width not in self.widths:
            listed = list(self.widths)
            raise ContractError(f"got a client of width {width:g}; the listed widths are {listed}")
        if width not in self._narrow:
            self._narrow[width] = OrderedClient(self.setting, self.samples, width, self.step_hook)
        return self._narrow[width]  # type: ignore[return-value]  # at alone fills it

    @override
    def received_slice(self, download: Tensors, width: float, offset: int) -> Tensors:
        own = self._statistics(download)[width]
        return {
            **download,
            "x": download["x"][self.positions_of(width, 0)[0]],
            "buffers": own.buffers,
            "counters": own.counters,
        }

    def _statistics(self, download: Tensors) -> dict[float, ModelState]:
        """Return the received BatchNorm statistics of each listed width, without weights."""
        widths = self.widths
        rows = [download[name].view(len(widths), -1) for name in ("buffers", "counters")]
        return {
            width: ModelState(download["x"][:0], buffers[self.positions_of(width, 0)[1]], counters)
            for width, buffers, counters in zip(widths, *rows, strict=True)
        }

    @override
    def _widened(self, parts: Parts, job: Job, download: Tensors) -> Mapping[str, Part]:
        """Return an upload of the whole model's length, with the statistics of every listed width
        up to the client's own."""
        widened = super()._widened(parts, job, download)
        widths = self.widths
        buffers, counters = (
            # Cloned: on the CPU .cpu() copies nothing, and clients of a version share the download.
            download[name].cpu().clone().view(len(widths), -1)
            for name in ("buffers", "counters")
        )
        held = torch.zeros_like(buffers, dtype=torch.bool)
        for width, state in self.at(job.width).statistics().items():
            row = widths.index(width)
            positions = self.positions_of(width, 0)[1].cpu()
            buffers[row, positions], counters[row], held[row, positions] = (
                state.buffers.cpu(),
                state.counters.cpu(),
                True,
            )
        values = Part(buffers.view(-1), "convex", held.view(-1))
        return {**widened, "buffers": values, "counters": Part(counters.view(-1), "max")}


class OrderedClient(Client):
    """A client of one width that draws the width of every batch from the listed ones up to its own.

    Parameters
    ----------
    run_setting: the run's setting.
    samples, step_hook: see :class:`Client`.
    width: of the client.
    """

    def __init__(
        self,
        run_setting: Setting,
        samples: Samples,
        width: float,
        step_hook: StepHook | None = None,
    ) -> None:
        method = run_setting.algorithm.replace(local=LocalRule())
        super().__init__(
            dataclasses.replace(
                run_setting, task=task_of_width(run_setting, width), algorithm=method
            ),
            samples,
            step_hook,
        )
        self.width = width
        slicing = _slicing(run_setting)
        self.distils = slicing.distils
        self._narrower: dict[float, TrainedModule] = {}
        for narrower in (p for p in slicing.widths if p < width):
            setting = dataclasses.replace(self.setting, task=task_of_width(run_setting, narrower))
            self._narrower[narrower] = module = TrainedModule(setting, self._direct)
            module.channels_last = self.received.channels_last
        self._drawn: Sequence[float] = ()
        self._blocks: list[Block] = []

    def load_statistics(self, states: Mapping[float, ModelState]) -> None:
        """Take over the BatchNorm statistics of the narrower widths."""
        for width, module in self._narrower.items():
            model = module.model
            model.load(dataclasses.replace(states[width], x=model.w))

    def statistics(self) -> dict[float, ModelState]:
        """Return the BatchNorm statistics of every listed width up to the client's own, as training
        left them."""
        return {self.width: self.model.state()} | {
            p: module.model.state() for p, module in self._narrower.items()
        }

    @override
    def train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        widths = (self.width, *self._narrower)
        drawn = (
            self.setting.key("batches", job)
            .fold("widths")
            .numpy()
            .integers(len(widths), size=job.steps)
        )
        self._drawn = [widths[i] for i in drawn.tolist()]
        for width, narrow in self._narrower.items():
            set_stream(narrow.model.module, self.setting.key("dropout", job).fold(f"{width:g}"))
            narrow.model.module.train()
        return super().train(job, inputs, want)

    @override
    def _gradient(self, trained: TrainedModule, batch: Batch, step: int) -> Tensor:
        if step == 0:
            self._share(trained)
        trained.blocks = self._blocks
        if self._drawn[step] == self.width:
            return super()._gradient(trained, batch, step)
        return self._narrow_step(trained, self._narrower[self._drawn[step]], batch)

    def _share(self, trained: TrainedModule) -> None:
        """Let the narrower modules' weights be views of the widest one's, which its phase may have
        stored anew."""
        self._blocks = trained.blocks
        for narrow in self._narrower.values():
            for own, wide in zip(narrow.parameters, trained.parameters, strict=True):
                own.data = wide.data[_first(own)]

    def _narrow_step(self, trained: TrainedModule, narrow: TrainedModule, batch: Batch) -> Tensor:
        """Return the per-sample losses by the true labels; the blocks hold the gradient of a step
        on a narrower slice."""
        with narrow.one_sample(batch), trained.one_sample(batch):
            outputs = judged = narrow.outputs(batch.inputs)
            if self.distils:
                judged = trained.outputs(batch.inputs)
            loss = term = self.setting.algorithm.loss.loss(judged, batch.targets, batch.extra)
            gradients: list[Tensor] = []
            if self.distils:
                term = self_distillation(outputs, judged)
                gradients += torch.autograd.grad(
                    loss.mean(), trained.parameters, materialize_grads=True
                )
            own = torch.autograd.grad(term.mean(), narrow.parameters, materialize_grads=True)
        if trained.direct and not self.distils:  # nothing moves outside of the narrower slice
            trained.blocks = [_block(p, g) for p, g in zip(narrow.parameters, own, strict=True)]
        else:
            gradients = gradients or [torch.zeros_like(p) for p in trained.parameters]
            for gradient, g in zip(gradients, own, strict=True):
                gradient[_first(g)] += g
            trained.hold(gradients)
        if self.step_hook is not None:
            self.step_hook(self._current, loss.detach(), trained.model.g)
        return loss.detach()


def _slicing(setting: Setting) -> Slicing:
    """Return how the clients of a run are sliced, which an ordered client is only made for."""
    slicing = setting.algorithm.local.slicing
    if slicing is None:
        raise ContractError("ordered dropout needs a local rule that slices the model")
    return slicing


def self_distillation(outputs: Tensor, teacher: Tensor) -> Tensor:
    """Return the cross-entropy ``[B]`` between the softmax of a teacher's outputs and that of
    ``outputs``, ``[B, C]`` each, or ``[B, 1]`` where one output tells two classes apart.

    No gradient passes to the teacher.

    Example
    -------
    >>> outputs = torch.tensor([[3.0, 1.0]]).log().requires_grad_()
    >>> self_distillation(outputs, torch.zeros(1, 2)).sum().backward()
    >>> outputs.grad.tolist()
    [[0.25, -0.25]]
    """
    outputs = class_logits(outputs)
    teacher = class_logits(teacher.detach())
    return -(teacher.softmax(-1) * outputs.log_softmax(-1)).sum(-1)


def _first(narrow: Tensor) -> tuple[slice, ...]:
    """Return where a narrower tensor lies in the wider one: at the first entries along each
    axis."""
    return tuple(slice(0, n) for n in narrow.shape)


def _block(parameter: Tensor, gradient: Tensor) -> Block:
    """Return the block of one parameter for a plain step, which reads no other model."""
    weights = parameter.data.unsqueeze(0)
    return Block(weights, gradient.unsqueeze(0), weights)
