"""Measure losses and gradients around a client app's own PyTorch code, without touching what it
computes.

:class:`LossMeter` notes every call of one of PyTorch's loss functions, computes the loss of each
sample from the same arguments, and counts the steps of all optimizers. :func:`without_steps` lets a
training function pass over its data without training: its optimizers do nothing, its modules are in
evaluation mode, and it ends after one pass. PyTorch is imported with this module.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from random import getstate, setstate
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader
from typing_extensions import override

from motley.algorithms.flash_robust import FlashRobust

_LOSSES = {
    function: inspect.signature(function)
    for function in (
        functional.cross_entropy,
        functional.nll_loss,
        functional.binary_cross_entropy,
        functional.binary_cross_entropy_with_logits,
        functional.mse_loss,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
    )
}
"""The loss functions that are noted; ``torch.nn``'s modules of these losses call them."""


class LossMeter(TorchFunctionMode):
    """Notes losses and steps within a block; its numbers are complete when the block ends.

    Parameters
    ----------
    trains: whether losses count only where gradients are recorded, as in training; otherwise all
    do.
    robust: whether FLASH's robust loss of every sample is computed, too; of cross-entropy to
    classes alone.
    gradients: whether gradients are taken in :func:`without_steps`; otherwise ``backward`` does
    nothing there.
    batches: calls after which :func:`without_steps` ends; None: after one pass over the data.

    Attributes
    ----------
    calls, samples: numbers of calls, and of samples in them.
    steps: of all optimizers; in :func:`without_steps` they are ``steps_left_out``.
    learning_rates: their sum over the steps; NaN if an optimizer has several at once.

    >>> outputs = torch.tensor([[0.0, 0.0]], requires_grad=True)
    >>> with LossMeter() as meter:
    ...     _ = functional.cross_entropy(outputs, torch.tensor([1]))
    >>> meter.samples, round(meter.signals()["loss"], 4), round(math.log(2), 4)
    (1, 0.6931, 0.6931)
    """

    def __init__(
        self,
        trains: bool = True,
        robust: bool = False,
        gradients: bool = False,
        batches: int | None = None,
    ) -> None:
        super().__init__()
        self.trains = trains
        self.robust = robust
        self.gradients = gradients
        self.batches = batches
        self.passes = False  # within without_steps
        self.calls = self.samples = self.steps = self.steps_left_out = 0
        self.learning_rates = 0.0
        self._sums: dict[str, Any] = {}
        self._since_step = 0
        self._gradient: dict[int, Any] = {}

    @override
    def __enter__(self) -> LossMeter:
        self._hook = register_optimizer_step_post_hook(self._stepped)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    @override
    def __exit__(self, *error: Any) -> None:
        self._hook.remove()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.passes and not self.gradients and func is torch.Tensor.backward:
            return None
        result = func(*args, **kwargs)
        if func in _LOSSES and (torch.is_grad_enabled() or not self.trains):
            self._note(func, _LOSSES[func].bind(*args, **kwargs).arguments)
            if self.passes and self.batches is not None and self.calls > self.batches:
                raise _EnoughError
        return result

    def _note(self, func: Any, arguments: dict[str, Any]) -> None:
        # the pass ends here, after the optimizer's step of the batch before
        if self.passes and self.calls == self.batches:
            self.calls += 1
            return
        with torch.no_grad():
            alike = {"reduction": "none", "size_average": None, "reduce": None}
            own = {name: value for name, value in alike.items() if name in _LOSSES[func].parameters}
            each = func(**{**arguments, **own})
            if each.ndim:
                each = each.reshape(len(each), -1).double().mean(1)
            else:
                each = each.double().reshape(1)
            terms = {"loss": each.sum(), "squares": (each**2).sum()}
            if (
                self.robust
                and func is functional.cross_entropy
                and not arguments["target"].is_floating_point()
            ):
                terms["robust_loss"] = (
                    FlashRobust().loss(arguments["input"], arguments["target"], {}).double().sum()
                )
        self.calls = self.calls + 1
        self.samples = self.samples + len(each)
        self._since_step = self._since_step + len(each)
        for name, value in terms.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        rates = {float(group["lr"]) for group in optimizer.param_groups if "lr" in group}
        self.steps += 1
        self.learning_rates += rates.pop() if len(rates) == 1 else math.nan

    def take_gradients(self, optimizer: Any, *_: Any) -> None:
        """Add the gradients of an optimizer's parameters, weighted by the samples since its last
        step, and leave none."""
        for parameter in (tensor for group in optimizer.param_groups for tensor in group["params"]):
            if parameter.grad is not None and self.gradients:
                part = parameter.grad.detach().double() * self._since_step
                key = id(parameter)
                self._gradient[key] = self._gradient[key] + part if key in self._gradient else part
            parameter.grad = None  # and the optimizer leaves the parameter as it is
        self._since_step = 0
        self.steps_left_out += 1

    def signals(self) -> dict[str, float]:
        """Return the means over the samples: ``loss``, ``loss_rms``, and where asked for
        ``robust_loss`` and ``grad_norm``; what training alone has, ``local_steps`` and
        ``learning_rates``; nothing that was not measured."""
        values: dict[str, float] = {}
        if self.samples:
            mean = {name: float(total) / self.samples for name, total in self._sums.items()}
            values = {"loss": mean["loss"], "loss_rms": math.sqrt(mean["squares"])}
            values |= {"robust_loss": mean["robust_loss"]} if "robust_loss" in mean else {}
        if self._gradient and self.samples:
            squares = sum(float((part**2).sum()) for part in self._gradient.values())
            values["grad_norm"] = math.sqrt(squares) / self.samples
        if self.steps and self.trains and not self.passes:
            values["local_steps"] = float(self.steps)
            values |= (
                {} if math.isnan(self.learning_rates) else {"learning_rates": self.learning_rates}
            )
        return values


class _EnoughError(BaseException):
    """Enough was measured; no handler of the app for its own errors catches it."""


def without_steps(train: Callable[[], Any], meter: LossMeter) -> dict[str, float]:
    """Call a training function so that it measures the model it is given, and return the meter's
    signals.

    The function runs until it begins to pass over a data loader again, or to its end; the
    generators of random numbers are as before afterwards. One that fails without gradients, as a
    GradScaler does, is called again with them.
    """
    try:
        return _measured(train, meter)
    except Exception:
        if meter.gradients:
            raise
        again = LossMeter(robust=meter.robust, gradients=True, batches=meter.batches)
        with contextlib.suppress(Exception):
            values = _measured(train, again)
            # without an optimizer, the function has made steps of its own
            if again.steps_left_out:
                return values
        raise


def _measured(train: Callable[[], Any], meter: LossMeter) -> dict[str, float]:
    meter.passes = True
    state = getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002  # what apps may use
    trained: list[Any] = []

    def evaluate(module: Any, _: Any) -> None:
        if module.training:
            trained.append(module)
            module.training = False

    hooks = [
        register_optimizer_step_pre_hook(meter.take_gradients),
        register_module_forward_pre_hook(evaluate),
    ]
    try:
        with _one_pass(meter), meter, contextlib.suppress(_EnoughError):
            train()
    finally:
        for hook in hooks:
            hook.remove()
        for module in trained:
            module.training = True
        setstate(state[0])
        np.random.set_state(state[1])  # noqa: NPY002
        torch.random.set_rng_state(state[2])
    return meter.signals()


@contextlib.contextmanager
def _one_pass(meter: LossMeter) -> Iterator[None]:
    """Within the block, end the measurement when a data loader is passed over for the second
    time."""
    original = DataLoader.__iter__
    passed = set[int]()

    def iterate(loader: Any) -> Any:
        if id(loader) in passed and meter.samples:
            raise _EnoughError
        passed.add(id(loader))
        return original(loader)

    DataLoader.__iter__ = iterate  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataLoader.__iter__ = original  # type: ignore[method-assign]
