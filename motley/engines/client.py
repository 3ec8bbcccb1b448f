"""One client's local work on one reusable module: the reference every batched engine is compared with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from motley.algorithms.base import Context, GradientCorrection, PreTrainingSignals, Tensors
from motley.algorithms.local import Block
from motley.core.errors import EngineError, MotleyError
from motley.core.keys import Key
from motley.engines.base import DataView, Job, JobInputs, Setting, TrainResult
from motley.engines.batches import BatchPlan
from motley.engines.features import FeatureHook, Frozen
from motley.engines.samples import Samples
from motley.tasks.base import ModelState
from motley.tasks.flat import FlatModule
from motley.tasks.nn import Dropout, set_stream

__all__ = ["CHUNK", "Client", "TrainStats", "Watch", "context", "finish", "squares"]

Watch = Callable[[Mapping[str, object], Tensor, Tensor], None]
"""Called after each step's backward pass with what is being done (client, dispatch, steps, step, inputs), the per-sample losses
and the flat gradient; the debug engine looks here."""


class TrainStats(NamedTuple):
    """What was met in training: steps, mean over them of the batches' mean losses, root mean square of the losses over samples,
    largest norm of a batch's gradient (NaN unless wanted). NaN without steps."""

    steps: int
    loss: float
    loss_rms: float
    max_grad_norm: float = math.nan

    @classmethod
    def of(cls, losses: list[Tensor], norms: list[Tensor]) -> TrainStats:
        """From the per-sample losses of every step, and the gradient's norm in each, if that is wanted."""
        if not losses:
            return cls(0, math.nan, math.nan)
        mean = torch.stack([loss.mean() for loss in losses]).double().mean()
        square = torch.cat(losses).double().square().mean()
        largest = float(torch.stack(norms).max()) if norms else math.nan
        return cls(len(losses), float(mean), float(square.sqrt()), largest)


CHUNK = {False: 1024, True: 256}
"""Samples that go through the model together when nothing is trained; fewer where convolutions keep whole images of features."""

_LARGE = 2**16
"""Weights from which a convolution is stored channels last while it is trained."""


class Client:
    """Whoever is asked: a module, a flat vector its parameters view, a flat gradient, and the loop over local steps.

    Parameters
    ----------
    setting: of the run. samples: shared by all clients, read-only. watch: see :data:`Watch`.
    """

    def __init__(self, setting: Setting, samples: Samples, watch: Watch | None = None) -> None:
        self.setting = setting
        self.samples = samples
        self.watch = watch
        self.model = FlatModule.of(setting.task.model, setting.dtype, setting.device)
        self._doing: dict[str, object] = {}
        self.parameters = [p for p in self.model.module.parameters() if p.requires_grad]
        self._direct = setting.solver.plain and watch is None  # gradients are read once: no need to gather them in a flat row
        self._channels_last = _bears_channels_last(self.model.module, samples)
        self.norms = [m for m in self.model.module.modules() if isinstance(m, _BatchNorm)]
        self.convolves = any(isinstance(m, nn.Conv2d) for m in self.model.module.modules())
        self.chunk = CHUNK[self.convolves]
        compares = setting.algorithm.loss.whole_model
        self.frozen = Frozen(setting) if compares else None
        self._tap = FeatureHook(self.model.module, self.model.layout) if compares else None

    def train(self, job: Job, received: JobInputs, want: frozenset[str]) -> TrainResult:
        """Receive, take ``job.steps`` steps, hand back.

        Raises
        ------
        EngineError: the model or loss failed for this client; ``context`` carries client, dispatch, step and inputs.
        """
        self._doing = {"client": job.client, "dispatch": job.dispatch, "steps": job.steps}
        try:
            return self._train(job, received, want)
        except MotleyError:
            raise
        except Exception as error:
            raise EngineError(f"the local work of client {job.client} failed: {error}", dict(self._doing)) from error

    def _train(self, job: Job, received: JobInputs, want: frozenset[str]) -> TrainResult:
        setting, model = self.setting, self.model
        start, ctx, gradient_correction = context(setting, job, received)
        model.load(start)
        met = self._steps(job, ctx, gradient_correction, "max_grad_norm" in want)
        return finish(setting, job, ctx, model.state(), met, want)

    def prepare(self, job: Job, received: JobInputs) -> Tensors:
        """What the loss wants to know about each of the client's samples before step 0."""
        start, ctx, _ = context(self.setting, job, received)
        self.model.load(start)
        return self._extras(ctx, job, self.mine(job))

    def mine(self, job: Job) -> Tensor:
        """Places of the samples that the client sees."""
        part = self.samples.training
        return torch.from_numpy(part.positions(np.array([job.client]), job.data_view)).to(part.rows.device)

    def _steps(self, job: Job, ctx: Context, gradient_correction: GradientCorrection, measured: bool) -> TrainStats:
        """Take the steps; what was met, gradient norms where they are to be ``measured``."""
        setting, samples, model = self.setting, self.samples, self.model
        mine = self.mine(job)
        plan = BatchPlan.draw(setting.key("batches", job), len(mine), setting.work, job.steps)
        order = torch.from_numpy(plan.order).to(samples.rows.device)
        sizes = plan.sizes.tolist()
        rows = torch.split(samples.rows[mine[order]], sizes)
        targets = torch.split(samples.training.targets(mine[order], job.data_view), sizes)
        extras = {name: torch.split(value[order], sizes) for name, value in self._extras(ctx, job, mine).items()}
        augment = setting.key("augment", job) if samples.transform is not None else None
        set_stream(model.module, setting.key("dropout", job))
        if self.frozen is not None:
            self.frozen.load(setting.algorithm.loss.frozen(ctx))
        model.module.train()
        losses: list[Tensor] = []
        norms: list[Tensor] = []
        with _stored_channels_last(self.parameters if self._direct and self._channels_last else []):
            blocks = self._blocks(ctx, gradient_correction)
            for step in range(len(plan)):
                inputs = samples.inputs(rows[step], augment.fold(step) if augment is not None else None)
                self._doing.update(step=step, inputs=inputs)
                extra = {name: parts[step] for name, parts in extras.items()}
                loss, blocks = self._gradient(inputs, targets[step], extra, blocks)
                if self.watch is not None:
                    self.watch(self._doing, loss, model.g)
                if measured:
                    norms.append(squares([block.g for block in blocks])[0].sqrt())
                setting.solver.step(blocks, job.lr, gradient_correction.proximal, step)
                losses.append(loss)
        return TrainStats.of(losses, norms)

    def _gradient(self, inputs: Tensor, targets: Tensor, extra: Tensors, blocks: list[Block]) -> tuple[Tensor, list[Block]]:
        """The per-sample losses, detached, and the blocks with the gradient of the batch's mean loss in them."""
        alone = [m for m in self.norms if m.training] if len(inputs) == 1 else []
        _set_training(alone, False)  # a batch of one has no variance: normalise with the running statistics and leave them
        loss = self._losses(inputs, targets, extra)
        if self._direct:
            found = torch.autograd.grad(loss.mean(), self.parameters, materialize_grads=True)
            blocks = [block._replace(g=g.unsqueeze(0)) for block, g in zip(blocks, found, strict=True)]
        else:
            self.model.gradient(loss.mean())
        _set_training(alone, True)
        return loss.detach(), blocks

    def _losses(self, inputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        """Per-sample losses of the model in training; the same inputs go through frozen models where the loss compares with them."""
        loss, outputs = self.setting.algorithm.loss, self._outputs(inputs)
        if not self.frozen or self._tap is None:
            return loss.loss(outputs, targets, extra)
        return loss.compare(outputs, targets, extra, self._tap.take(), self.frozen.features(inputs))

    def _blocks(self, ctx: Context, gradient_correction: GradientCorrection) -> list[Block]:
        """What a step works on: one block for the whole flat vector, or, where gradients are used as they come, one each."""
        model = self.model
        flat = [
            None if t is None else t.unsqueeze(0) for t in (gradient_correction.offset, *self.setting.solver.fresh(model.w))
        ]
        whole = Block(model.w.unsqueeze(0), model.g.unsqueeze(0), ctx.x.unsqueeze(0), *flat)
        if not self._direct:
            return [whole]
        blocks = []
        for entry, parameter in zip(model.layout, self.parameters, strict=True):
            views = (None if t is None else t[0, entry.slice].view(entry.shape) for t in whole)
            _, *others = (None if t is None else _stored_like(t, parameter).unsqueeze(0) for t in views)
            blocks.append(Block(parameter.data.unsqueeze(0), *others))  # type: ignore[arg-type]
        return blocks

    def _extras(self, ctx: Context, job: Job, mine: Tensor) -> Tensors:
        """What the loss wants to know about each of the client's samples before step 0."""
        loss = self.setting.algorithm.loss
        if not loss.prepares:
            return {}
        inputs = self.samples.inputs(self.samples.rows[mine])
        return loss.prepare(ctx, self.forward, inputs, self.samples.training.targets(mine, job.data_view))

    def mean_gradient(self, rows: Tensor, targets: Tensor) -> Tensor:
        """Gradient of the mean loss over these samples at the loaded model in eval mode, ``[D]``; overwritten by the next."""
        self.model.module.eval()
        self.model.g.zero_()
        for some, wanted in zip(torch.split(rows, self.chunk), torch.split(targets, self.chunk), strict=True):
            outputs = self._outputs(self.samples.inputs(some))
            loss = self.setting.algorithm.loss.loss(outputs, wanted, {}).sum() / len(rows)
            loss.backward()  # type: ignore[no-untyped-call]
        return self.model.g

    def recalibrate(self, state: ModelState, client: int, batches: int, key: Key, data_view: DataView | None) -> ModelState:
        """A model after these batches of a client's samples went through in training mode, but for dropout."""
        part = self.samples.training
        mine = part.rows[torch.from_numpy(part.positions(np.array([client]), data_view)).to(part.rows.device)]
        draw = BatchPlan.draw(key, len(mine), self.setting.work, batches)
        self.model.load(state)
        self.train_mode()
        for i in range(batches):
            self._outputs(self.samples.inputs(mine[torch.from_numpy(draw[i]).to(mine.device)]))
        return self.model.state()

    def train_mode(self) -> None:
        """Training mode without dropout: batches normalise, nothing is drawn."""
        self.model.module.train()
        _set_training([m for m in self.model.module.modules() if isinstance(m, Dropout)], False)

    def mean_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of the loaded model in the mode it is in, with its graph."""
        return self.setting.algorithm.loss.loss(self._outputs(inputs), targets, {}).mean()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the loaded model in eval mode, without gradients; chunk by chunk."""
        self.model.module.eval()
        with torch.no_grad():
            parts = [self._outputs(some) for some in torch.split(inputs, self.chunk)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _outputs(self, inputs: Tensor) -> Tensor:
        if self._channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        outputs: Tensor = self.model.module(inputs)
        return outputs


def context(setting: Setting, job: Job, received: JobInputs) -> tuple[ModelState, Context, GradientCorrection]:
    """The model a client starts from, what the correction may know about its job, and the correction it chose.

    ``Context.x`` is the model the client starts from: the received one, with what the correction's ``start`` put in its place.
    """
    download, memory = received.download, received.memories.get(job.client)
    start = setting.algorithm.correction.start(download, memory)
    examples = int(setting.task.federation.seen[job.client])
    norm = setting.solver.solver_norm(job.steps, 0.0, job.lr)
    arrival = received.arrivals.get(job.client, PreTrainingSignals())
    ctx = Context(start.x, download, memory, job.steps, job.lr, examples, norm, setting.task.layout, arrival)
    gradient_correction = setting.algorithm.correction.gradient_correction(ctx)
    if gradient_correction.proximal:
        ctx = dataclasses.replace(ctx, solver_norm=setting.solver.solver_norm(job.steps, gradient_correction.proximal, job.lr))
    return start, ctx, gradient_correction


def finish(setting: Setting, job: Job, ctx: Context, after: ModelState, met: TrainStats, want: frozenset[str]) -> TrainResult:
    """Upload, memory and signals from the model after local work and the losses met on the way."""
    sent, kept = setting.algorithm.correction.finish(after, ctx)
    parts = {name: part._replace(value=part.value.cpu()) for name, part in sent.items()}
    memory = None if kept is None else {name: value.cpu() for name, value in kept.items()}
    signals: dict[str, float | NDArray[np.float64]] = {"loss": met.loss}
    if "loss_rms" in want:
        signals["loss_rms"] = met.loss_rms
    if "max_grad_norm" in want:
        signals["max_grad_norm"] = met.max_grad_norm
    if "update_norm" in want:
        signals["update_norm"] = float((after.x - ctx.x).double().norm())
    finite = (not met.steps or math.isfinite(met.loss)) and all(_finite(part.value) for part in parts.values())
    return TrainResult(job.client, parts, memory, met.steps, signals, finite)


def squares(gradients: Iterable[Tensor]) -> Tensor:
    """Squared Euclidean norm of each client's gradient, float64 ``[c]``, from blocks ``[c, ...]``."""
    return torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=torch.float64).square() for g in gradients]).sum(0)


def _finite(value: Tensor) -> bool:
    """Whether all is finite, in one pass: minimum and maximum carry NaN and infinity along."""
    return not value.numel() or all(math.isfinite(float(end)) for end in value.aminmax())


def _bears_channels_last(module: nn.Module, samples: Samples) -> bool:
    """Whether a module convolves images and works on them stored channels last, which convolves a quarter faster on a CPU.

    A module that calls ``view`` on its activations does not; ``flatten`` and ``reshape`` do. Tried on two samples."""
    if not any(isinstance(m, nn.Conv2d) for m in module.modules()) or not len(samples.rows):
        return False
    module.eval()
    with torch.no_grad():
        inputs = samples.inputs(samples.rows[:2])
        if inputs.ndim != 4:
            return False
        try:
            module(inputs.contiguous(memory_format=torch.channels_last))
        except RuntimeError:  # if it fails for another reason, it will fail where its error can be told
            return False
    return True


@contextmanager
def _stored_channels_last(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Large convolution weights are stored channels last inside, as their gradients come, and written back into the flat row at
    the end: an update that walks one of the two crosswise costs a tenth of a step. Small ones convolve faster as they are."""
    views = [(p, p.data) for p in parameters if p.ndim == 4 and p.numel() >= _LARGE]
    for parameter, view in views:
        parameter.data = view.contiguous(memory_format=torch.channels_last)
    try:
        yield
    finally:
        for parameter, view in views:
            view.copy_(parameter.data)
            parameter.data = view


def _stored_like(value: Tensor, parameter: nn.Parameter) -> Tensor:
    """The same numbers in the parameter's memory format."""
    last = parameter.ndim == 4 and not parameter.is_contiguous()
    return value.contiguous(memory_format=torch.channels_last) if last else value


def _set_training(modules: Sequence[nn.Module], mode: bool) -> None:
    for module in modules:
        nn.Module.train(module, mode)
