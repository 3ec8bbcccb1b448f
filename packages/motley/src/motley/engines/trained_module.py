"""A module in training: its losses and gradients, and the blocks of its parameters that a solver
steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from motley.algorithms.local_optimisers import Block, add_drift
from motley.algorithms.parts import FeatureObjective, Phase, Tensors
from motley.algorithms.torch_optimizer import TorchOptimizer
from motley.core.errors import ContractError
from motley.engines.engine import Setting
from motley.engines.last_layer_inputs import FeatureHook, FrozenModels
from motley.tasks.flat import FlatModule
from motley.tasks.one_sample import refuses_one_sample
from motley.tasks.precision import products, widened

_LARGE = 2**16
"""Weights from which a convolution is stored channels last while it is trained."""


class Batch(NamedTuple):
    """The samples of one local step: model inputs ``[B, ...]``, targets ``[B, ...]``, and what the
    loss prepared for them."""

    inputs: Tensor
    targets: Tensor
    extra: Tensors


class TrainedModule:
    """A module whose parameters view a flat vector, with the gradients of the parameters that move.

    Parameters
    ----------
    setting: of the run.
    direct: whether gradients are read once, so that they need not be gathered in a flat vector.

    Attributes
    ----------
    model: the flat module.
    parameters: those that train.
    norms: BatchNorm layers.
    channels_last: whether inputs are handed over in that format.
    blocks: of the phase begun last; after :meth:`gradient` they hold its result.
    """

    def __init__(self, setting: Setting, direct: bool) -> None:
        self.setting = setting
        self.channels_last = False
        self.model = FlatModule.of(setting.task.model, setting.dtype, setting.device)
        # hooks that run when a gradient is added to ``grad``
        adds = any(p._post_accumulate_grad_hooks for p in self.model.module.parameters())
        self.direct = direct and not adds
        self.parameters = [p for p in self.model.module.parameters() if p.requires_grad]
        self.norms = [m for m in self.model.module.modules() if isinstance(m, _BatchNorm)]
        self.blocks: list[Block] = []
        self._chosen = self.parameters
        self._moving = list(self.model.layout)
        self._used: list[bool] = []
        self._steps_taken: list[int] = []
        self._corrected = False
        self._optimizer: torch.optim.Optimizer | None = None
        self._objective: FeatureObjective | None = None
        algorithm = setting.algorithm
        compares = algorithm.loss.whole_model or algorithm.local.reads_features
        self._feature_hook = FeatureHook(self.model.module, self.model.layout) if compares else None

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the module in its current mode."""
        if self.channels_last:
            inputs = channels_last(inputs)
        if self.setting.precision == "float32":
            return widened(self.model.module(inputs))
        with products(self.setting.precision, self.setting.device):
            return widened(self.model.module(inputs))

    def losses(self, batch: Batch, frozen: FrozenModels | None) -> Tensor:
        """Return the per-sample losses, of the phase's own objective where it has one; where the
        loss compares features, the inputs also pass through the frozen models."""
        loss = self.setting.algorithm.loss
        outputs = self.outputs(batch.inputs)
        if self._objective is not None:
            return self._objective(self.features(), batch.targets)
        if frozen is None:
            return loss.loss(outputs, batch.targets, batch.extra)
        return loss.compare(
            outputs, batch.targets, batch.extra, self.features(), frozen.features(batch.inputs)
        )

    def features(self) -> Tensor:
        """Return the inputs ``[B, d]`` of the last linear layer in the last forward pass."""
        if self._feature_hook is None:
            raise ContractError("features are recorded only where the loss or the local rule asks")
        return self._feature_hook.take()

    @contextmanager
    def begin(self, phase: Phase, anchor: Tensor) -> Iterator[None]:
        """Make the blocks of a phase, whose proximal term pulls towards ``anchor`` ``[D]``; inside
        the block steps can be taken."""
        entries = list(zip(self.model.layout, self.parameters, strict=True))
        moving = [(e, p) for e, p in entries if phase.where is None or e.name in phase.where]
        self._moving = [entry for entry, _ in moving]
        self._chosen = [p for _, p in moving]
        self._objective = phase.objective
        # weights are set from outside: they stay in the flat vector
        gathered = phase.direction is not None
        in_place = self.direct and self.channels_last and not gathered
        with _stored_channels_last(self._chosen) if in_place else nullcontext():
            correction = phase.correction
            moments = self.setting.solver.fresh(self.model.w)
            flat = [
                None if t is None else t.unsqueeze(0)
                for t in (correction.offset, *moments, correction.drift)
            ]
            full_block = Block(
                self.model.w.unsqueeze(0), self.model.g.unsqueeze(0), anchor.unsqueeze(0), *flat
            )
            self._steps_taken = [0] * len(moving)
            self._used = [True] * len(moving)
            self._corrected = bool(correction.proximal) or any(
                t is not None for t in (correction.offset, correction.drift)
            )
            if self.direct:
                self.blocks = [_of_parameter(full_block, entry.slice, p) for entry, p in moving]
            elif phase.where is None and not self.setting.skips_unused:
                self.blocks = [full_block]
            else:
                self.blocks = [_part(full_block, entry.slice) for entry, _ in moving]
            solver = self.setting.solver
            self._optimizer = (
                solver.made(self._chosen) if isinstance(solver, TorchOptimizer) else None
            )
            yield

    def gradient_at(
        self, at: Tensor, batch: Batch, frozen: FrozenModels | None
    ) -> tuple[Tensor, Tensor]:
        """Return the per-sample losses at these weights ``[D]``, detached, and the gradient of
        their mean, ``[D]``: zero where nothing moves."""
        # One module serves all models of a client: whoever calls goes on with its own weights.
        weights = self.model.w.clone()
        self.model.w.copy_(at)
        with self.one_sample(batch):
            loss, parts = self._gradients(batch, frozen)
        self.model.w.copy_(weights)
        pairs = zip(parts, self._chosen, strict=True)
        gradients = [torch.zeros_like(p) if g is None else g for g, p in pairs]
        if len(gradients) == len(self.parameters):
            return loss, torch.cat([g.reshape(-1) for g in gradients])
        gradient = torch.zeros_like(at)
        for entry, g in zip(self._moving, gradients, strict=True):
            gradient[entry.slice] = g.reshape(-1)
        return loss, gradient

    def turn(self, direction: Tensor) -> None:
        """Put a direction ``[D]`` in the gradient's place."""
        if self.direct:
            parts = (direction[entry.slice].view(entry.shape) for entry in self._moving)
            self.blocks = [
                block._replace(g=g.unsqueeze(0))
                for block, g in zip(self.blocks, parts, strict=True)
            ]
        else:
            self.model.g.copy_(direction)

    @cached_property
    def refuses_one(self) -> bool:
        """Whether torch refuses a batch of one sample of this model in training mode."""
        return refuses_one_sample(self.setting.task)

    @contextmanager
    def one_sample(self, batch: Batch) -> Iterator[None]:
        """Normalize a batch of one, where torch refuses it, with the running statistics, and leave
        them."""
        training = [m for m in self.norms if m.training] if len(batch.inputs) == 1 else []
        alone = training if training and self.refuses_one else []
        set_training(alone, False)
        yield
        set_training(alone, True)

    def gradient(self, batch: Batch, frozen: FrozenModels | None) -> Tensor:
        """Return the per-sample losses, detached; the blocks hold the gradient of their mean."""
        with self.one_sample(batch) if self.norms else nullcontext():
            if self.setting.work.micro_batch is None:
                return self.gradient_of(self.losses(batch, frozen))
            loss, gradients = self._gradients(batch, frozen)
        self.hold(gradients)
        return loss

    def gradient_of(self, losses: Tensor) -> Tensor:
        """Return these per-sample losses of a forward pass, detached; the blocks hold the gradient
        of their mean."""
        in_one_vector = (
            len(self._chosen) == len(self.parameters)
            and not self.direct
            and not self.setting.skips_unused
        )
        if in_one_vector:
            self.model.gradient(losses.mean())
        else:
            self.hold(self._slopes(losses.mean()))
        return losses.detach()

    def _slopes(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Return the gradients of a loss by the parameters that move; None for a parameter without
        one, where :attr:`Setting.skips_unused`, else zeros."""
        return torch.autograd.grad(
            loss,
            self._chosen,
            allow_unused=True,
            materialize_grads=not self.setting.skips_unused,
        )

    def _gradients(
        self, batch: Batch, frozen: FrozenModels | None
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the per-sample losses, detached, and the gradients of their mean by the parameters
        that move; None for a parameter without one, where :attr:`Setting.skips_unused`, else
        zeros."""
        most = self.setting.work.micro_batch
        if most is not None and most < len(batch.inputs):
            return self._gradients_in_parts(batch, frozen, most)
        loss = self.losses(batch, frozen)
        return loss.detach(), self._slopes(loss.mean())

    def _gradients_in_parts(
        self, batch: Batch, frozen: FrozenModels | None, most: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the same as :meth:`_gradients`, in parts of at most so many samples."""
        size = len(batch.inputs)
        losses = []
        total: list[Tensor | None] = [None] * len(self._chosen)
        for first in range(0, size, most):
            rows = slice(first, first + most)
            extra = {name: value[rows] for name, value in batch.extra.items()}
            loss = self.losses(Batch(batch.inputs[rows], batch.targets[rows], extra), frozen)
            gradients = self._slopes(loss.sum() / size)
            total = [_added(*pair) for pair in zip(total, gradients, strict=True)]
            losses.append(loss.detach())
        return torch.cat(losses), total

    def step(self, lr: float, proximal: float, number: int) -> None:
        """Let the solver take step ``number`` with what the blocks hold."""
        solver = self.setting.solver
        if isinstance(solver, TorchOptimizer):
            self._step_of_torch(solver, lr, proximal)
        elif self.setting.skips_unused:
            self._step_of_used(lr, proximal, number)
        else:
            solver.step(self.blocks, lr, proximal, number)

    def _step_of_used(self, lr: float, proximal: float, number: int) -> None:
        """Let the solver take a step in which parameters without a gradient stand still.

        It counts the steps of each, as torch's do; under clipping, whose norm is that of all, it
        counts common ones."""
        solver = self.setting.solver
        if all(self._used) and len(set(self._steps_taken)) <= 1:
            solver.step(self.blocks, lr, proximal, number)
        elif solver.clip is not None:
            used = zip(self.blocks, self._used, strict=True)
            solver.step([block for block, uses in used if uses], lr, proximal, number)
        else:
            for block, uses, taken in zip(self.blocks, self._used, self._steps_taken, strict=True):
                if uses:
                    solver.step([block], lr, proximal, taken)
        self._steps_taken = [
            taken + uses for taken, uses in zip(self._steps_taken, self._used, strict=True)
        ]

    def _step_of_torch(self, solver: TorchOptimizer, lr: float, proximal: float) -> None:
        """Let the phase's optimizer of torch take a step with what the blocks hold."""
        if self._optimizer is None:
            raise ContractError("a step outside a phase")
        gathered = len(self.blocks) < len(self._used)
        used = self.blocks if gathered else list(compress(self.blocks, self._used))
        solver.correct(used, proximal)
        if gathered:
            rows = [self.blocks[0].g[:, entry.slice] for entry in self._moving]
        else:
            rows = [block.g for block in self.blocks]
        gradients = [
            (p, g.view(p.shape) if uses else None)
            for p, g, uses in zip(self._chosen, rows, self._used, strict=True)
        ]
        solver.step_module(self._optimizer, gradients, lr)
        for block in used:
            add_drift(block, lr)

    def hold(self, parts: Sequence[Tensor | None]) -> None:
        """Put the gradients of the parameters that move, in their order and shapes, in the blocks;
        None is no gradient, or one of zeros where a correction is added to it."""
        self._used = [self._corrected or g is not None for g in parts]
        pairs = zip(parts, self._chosen, strict=True)
        gradients = [torch.zeros_like(p) if g is None else g for g, p in pairs]
        if self.direct:
            self.blocks = [
                block._replace(g=g.unsqueeze(0))
                for block, g in zip(self.blocks, gradients, strict=True)
            ]
            return
        gathered = self._gathered(gradients)
        for block, g in zip(self.blocks, gathered, strict=True):
            block.g.copy_(g.reshape(1, -1))

    def _gathered(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return one gradient for each block: all in one vector, where one block holds all
        parameters."""
        joined = len(self.blocks) == 1 and len(gradients) > 1
        return [torch.cat([g.reshape(-1) for g in gradients])] if joined else gradients


def _added(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    """Return the sum of two gradients of a parameter; None stands for no gradient."""
    if total is None or part is None:
        return part if total is None else total
    return total + part


def _part(block: Block, at: slice) -> Block:
    parts = (None if t is None else t[:, at] for t in block)
    return Block(*parts)  # type: ignore[arg-type]


def _of_parameter(block: Block, at: slice, parameter: nn.Parameter) -> Block:
    """Return the block of one parameter, in its shape and memory format."""
    views = (None if t is None else t[0, at].view(parameter.shape) for t in block)
    _, *stored = (None if t is None else _stored_like(t, parameter).unsqueeze(0) for t in views)
    return Block(parameter.data.unsqueeze(0), *stored)  # type: ignore[arg-type]


@contextmanager
def _stored_channels_last(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Store large convolution weights channels last inside the block, as their gradients are, and
    copy them back at the end.

    An update whose operands have different formats costs a tenth of a step. Small convolutions are
    faster as they are."""
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
    """Return the same numbers in the parameter's memory format."""
    last = parameter.ndim == 4 and not parameter.is_contiguous()
    return value.contiguous(memory_format=torch.channels_last) if last else value


def channels_last(images: Tensor) -> Tensor:
    """Return the same images ``[B, C, H, W]`` stored channels last.

    Of one channel both formats are the same memory, and torch takes it for channels first unless
    the strides say otherwise."""
    if images.shape[1] > 1:
        return images.contiguous(memory_format=torch.channels_last)
    height, width = images.shape[2:]
    return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))


def set_training(modules: Sequence[nn.Module], mode: bool) -> None:
    """Put these modules alone, without their children, in training or evaluation mode."""
    for module in modules:
        nn.Module.train(module, mode)
