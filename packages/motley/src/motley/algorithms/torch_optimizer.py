"""Local optimizers of torch: any class of ``torch.optim``, or a function that makes one.

A client begins every round, and every phase of its local work, with a fresh optimizer on the
parameters that it trains. Motley clips and corrects the gradients as for its own optimizers
(:mod:`motley.algorithms.local_optimisers`), then the optimizer takes its step. A factor of the
learning rate (``local.lr_schedule``, a selector's) multiplies the rate of every parameter group; an
optimizer whose hooks change its rates from step to step goes without one.

>>> TorchOptimizer(torch.optim.AdamW).lr
0.001
>>> TorchOptimizer(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)).lr
0.1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.algorithms.local_optimisers import Block, Clip, Scale, Solver
from motley.core.errors import ConfigError, ContractError
from motley.core.own_code import in_one_line, place_in_own_code

_LINE = "optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)"


@dataclass(frozen=True)
class TorchOptimizer(Solver):
    """A local optimizer of torch.

    Parameters
    ----------
    make: a class of ``torch.optim``, or a function of the parameters that returns an optimizer.
    clip: None for no clipping.

    Raises
    ------
    ConfigError: no such function, or an optimizer that cannot step on dense gradients alone, as
    ``LBFGS``, which evaluates the loss again.
    """

    linear: ClassVar[bool] = False
    make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    clip: Clip | None = None
    lr: float = field(init=False, compare=False, default=0.0)
    """Learning rate of the first parameter group."""
    kept: int = field(init=False, compare=False, default=0)
    """Numbers that the optimizer keeps of each weight."""

    def __post_init__(self) -> None:
        parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (3,))]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        try:
            optimizer = self._stepped(parameters)
            lr = float(optimizer.param_groups[0]["lr"])
        except ConfigError:
            raise
        except Exception as error:  # a user's optimizer may raise anything
            raise self._refused(error) from error
        if not lr > 0:
            raise ConfigError(
                f"got lr = {lr} in the first group of parameters, after a step; expected a "
                "positive number: what stands still needs no group, requires_grad_(False)",
                "local.optimizer",
            )
        stepped = next((p for p in parameters if p in optimizer.state), parameters[0])
        state = optimizer.state[stepped].values()
        scalars = sum(isinstance(value, Tensor) and value.shape == stepped.shape for value in state)
        object.__setattr__(self, "lr", lr)
        object.__setattr__(self, "kept", scalars)

    def _stepped(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a fresh optimizer after a step of a matrix and a vector, or of the matrix alone,
        where it takes no vectors (``Muon``)."""
        try:
            optimizer = self.made(parameters)
        except ConfigError:
            optimizer = self.made(parameters[:1])
        optimizer.step()
        return optimizer

    def made(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a fresh optimizer of these parameters.

        Raises
        ------
        ConfigError: it cannot be made of them.
        """
        try:
            optimizer = self.make(parameters)
        except Exception as error:  # a user's function may raise anything
            raise self._refused(error) from error
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(
                f"the function that makes the optimizer gave {type(optimizer).__name__}; write "
                f"{_LINE}",
                "local.optimizer",
            )
        return optimizer

    def _refused(self, error: Exception) -> ConfigError:
        """Return the error that no optimizer could be made, or took no step."""
        return ConfigError(
            f"got {self.make!r}, which makes no optimizer of local steps "
            f"({in_one_line(error)}{place_in_own_code(error)}); write {_LINE}",
            "local.optimizer",
        )

    @override
    def fresh(self, w: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return None, None  # torch keeps the state

    @property
    @override
    def moments(self) -> int:
        return self.kept

    @override
    def step(self, blocks: Sequence[Block], lr: Scale, proximal: Scale, number: int = 0) -> None:
        raise ContractError("an optimizer of torch steps a module's parameters, step_module")

    def step_module(
        self,
        optimizer: torch.optim.Optimizer,
        gradients: Sequence[tuple[nn.Parameter, Tensor | None]],
        lr: float,
    ) -> None:
        """Take one step. ``gradients``: of each parameter; None: it stands still. ``lr``: of the
        first parameter group before a factor of the optimizer's own.

        Raises
        ------
        ConfigError: hooks of the optimizer change its rates, and a schedule does, too.
        """
        rates = [group["lr"] for group in optimizer.param_groups]
        factor = lr / self.lr
        before = [parameter.grad for parameter, _ in gradients]  # views that an engine reads
        for parameter, gradient in gradients:
            parameter.grad = gradient
        if factor != 1.0:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        optimizer.step()
        if factor != 1.0:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                if group["lr"] != rate * factor:
                    raise ConfigError(
                        "the optimizer changes its learning rate from step to step (a scheduler in "
                        "a hook), and lr_schedule or the selector changes it, too; leave one out",
                        "local.optimizer",
                    )
                group["lr"] = rate
        for (parameter, _), grad in zip(gradients, before, strict=True):
            parameter.grad = grad

    def correct(self, blocks: Sequence[Block], proximal: Scale) -> None:
        """Apply clipping and the algorithm's correction to ``g`` in place."""
        self._corrected(blocks, proximal, 0.0)

    def solver_norm(self, steps: int, proximal: float = 0.0, lr: float | None = None) -> float:
        """Return the number of steps: the update is no weighted sum of gradients that is known
        (INTERPRETATION-D, docs/methods/algorithms.md#fednova)."""
        return float(steps)


def as_solver(value: Any) -> Any:
    """Return a class of ``torch.optim``, or a function that makes an optimizer, as a solver;
    anything else as it is."""
    if isinstance(value, Solver) or (isinstance(value, type) and issubclass(value, Solver)):
        return value
    if isinstance(value, torch.optim.Optimizer):
        raise ConfigError(
            f"got an optimizer of one model's parameters; give what makes one for each client, "
            f"optimizer = torch.optim.{type(value).__name__}",
            "local.optimizer",
        )
    return TorchOptimizer(value) if callable(value) else value
