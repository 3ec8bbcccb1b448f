"""Local optimizers of the clients. Learning-rate schedules are applied outside: every step is given
its ``lr``.

One step of :class:`SGD`, in this order (gradient ``g`` of the batch's mean loss, received model
``x``):

    g <- clip(g)                         clip.of = "gradient"
    g <- g + proximal (w - x) + offset   the algorithm's correction (FedProx, SCAFFOLD, ...)
    g <- clip(g)                         clip.of = "corrected": clipping acts on the loss with
                                         its proximal term
    g <- g + weight_decay w              decays toward 0; the proximal term pulls toward x, so
                                         they are not merged
    v <- momentum v + g                  v starts at 0 in every round
    w <- w - lr v                        nesterov: w - lr (g + momentum v)
    w <- w - lr drift                    an algorithm's correction outside of the optimizer

:class:`Adam` takes the same ``g``, decay included, and then steps along its moments (so a proximal
term enters before them, docs/methods/algorithms.md#flash-columns):

    v <- beta1 v + (1 - beta1) g;   s <- beta2 s + (1 - beta2) g^2;   both start at 0 in every round
    w <- w - lr (v / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps),   t = 1, 2, ... in the round

Kingma, Ba: *Adam: A Method for Stochastic Optimization*, ICLR 2015; its decay is the plain L2 term.
:class:`AdamW` leaves the decay out of ``g`` and applies it to the weights themselves, before the
step along the moments (Loshchilov, Hutter: *Decoupled Weight Decay Regularization*, ICLR 2019,
Algorithm 2 with the learning rate as its schedule, as torch does):

    w <- w - lr weight_decay w

``drift`` comes last under every optimizer.

A step works on *blocks*: tensors whose first axis is the client. A flat vector is one block
``[1, D]``; a batched engine passes one block ``[c, *shape]`` per parameter. So every engine runs
the same arithmetic (docs/methods/algorithms.md#fedavg, docs/methods/algorithms.md#fedprox).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from motley.core.bounds import Positive
from motley.core.errors import ConfigError, ContractError
from motley.core.paper import Paper, cite

Scale = float | Tensor
"""One number for all clients of a block, or one per client ``[c]``."""


class Block(NamedTuple):
    """One parameter (or all of them, flat) of several clients.

    Parameters
    ----------
    w: ``[c, ...]`` weights, changed in place.
    g: ``[c, ...]`` gradient, used as scratch.
    x: ``[1, ...]`` or ``[c, ...]`` the received model.
    offset: ``[1, ...]`` or ``[c, ...]``, or None.
    v, s: ``[c, ...]``, state of the solver from step to step (momentum or first moment; second
    moment), or None.
    drift: ``[1, ...]`` or ``[c, ...]``, or None.
    """

    w: Tensor
    g: Tensor
    x: Tensor
    offset: Tensor | None = None
    v: Tensor | None = None
    s: Tensor | None = None
    drift: Tensor | None = None


@dataclass(frozen=True)
class Clip:
    """Clipping of local gradients, over all parameters of a client."""

    norm: Positive
    """Largest Euclidean norm of a step's gradient."""
    of: Literal["gradient", "corrected"] = "corrected"
    """Before the algorithm's correction is added, or after."""

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise ConfigError(f"got norm = {self.norm}; expected a positive number")
        if self.of not in ("gradient", "corrected"):
            raise ConfigError(f"got of = {self.of!r}; expected 'gradient' or 'corrected'")

    def apply(self, blocks: Sequence[Block]) -> None:
        """Scale ``g`` by ``min(1, norm / ||g||)``, per client, in place."""
        squares = [block.g.flatten(1).square().sum(1) for block in blocks]
        length = torch.stack(squares).sum(0).sqrt_()
        factor = (self.norm / length).clamp_(max=1.0)  # [c]; a zero gradient gives inf, hence 1
        for block in blocks:
            block.g.mul_(_wide(factor, block.g))


class Solver(ABC):
    """A local optimizer. Subclasses are frozen dataclasses of options, ``lr`` (learning rate) and
    ``clip`` among them.

    ``linear``: whether an update is a weighted sum of the gradients, ``lr sum a_s g_s`` with
    weights known beforehand.
    """

    linear: ClassVar[bool] = True
    lr: float
    clip: Clip | None

    @property
    def plain(self) -> bool:
        """Whether a step is just ``w - lr (g + correction)``, so that engines may fuse it."""
        return False

    @property
    def moments(self) -> int:
        """How many numbers the optimizer keeps of each weight."""
        return sum(part is not None for part in self.fresh(torch.zeros(1)))

    @abstractmethod
    def fresh(self, w: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return a block's ``v`` and ``s`` at the start of a round, in the shape of its weights;
        None for one that is not used."""

    @abstractmethod
    def step(self, blocks: Sequence[Block], lr: Scale, proximal: Scale, number: int = 0) -> None:
        """Take one step of every client, in place; ``g`` is overwritten. ``number``: of the step,
        from 0 in every round."""

    @abstractmethod
    def solver_norm(self, steps: int, proximal: float = 0.0, lr: float | None = None) -> float:
        """Return FedNova's ``||a||_1``, the sum of the coefficients of the gradients in the
        update."""

    def _corrected(self, blocks: Sequence[Block], proximal: Scale, weight_decay: float) -> None:
        """Apply clipping, correction and decay to ``g`` in place."""
        if self.clip is not None and self.clip.of == "gradient":
            self.clip.apply(blocks)
        for block in blocks:
            correct(block, proximal)
        if self.clip is not None and self.clip.of == "corrected":
            self.clip.apply(blocks)
        if weight_decay:
            for block in blocks:
                block.g.add_(block.w, alpha=weight_decay)


def _check_rates(lr: float, weight_decay: float) -> None:
    if not 0 < lr < float("inf"):
        raise ConfigError(f"got lr = {lr}; expected a positive number")
    if not 0 <= weight_decay < float("inf"):
        raise ConfigError(f"got weight_decay = {weight_decay}; expected a number of at least 0")


@dataclass(frozen=True)
class SGD(Solver):
    """Stochastic gradient descent with momentum, weight decay and clipping.

    Parameters
    ----------
    lr: learning rate.
    momentum: in [0, 1).
    weight_decay: at least 0.
    nesterov: needs momentum.
    clip: None for no clipping.

    Raises
    ------
    ConfigError: an option outside its range.
    """

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    clip: Clip | None = None

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise ConfigError(
                f"got momentum = {self.momentum}; expected at least 0 and less than 1"
            )
        if self.nesterov and not self.momentum:
            raise ConfigError(
                "got nesterov = true with momentum = 0; give a momentum, e.g. 0.9, or leave "
                "nesterov out"
            )

    @property
    @override
    def plain(self) -> bool:
        return not self.momentum and not self.weight_decay and self.clip is None

    @override
    def fresh(self, w: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return (torch.zeros_like(w) if self.momentum else None), None

    @override
    def step(self, blocks: Sequence[Block], lr: Scale, proximal: Scale, number: int = 0) -> None:
        if self.plain:
            for block in blocks:
                descend(block, lr, proximal)
            return
        self._corrected(blocks, proximal, self.weight_decay)
        for block in blocks:
            add_scaled(block.w, self._direction(block), lr, -1.0)
            add_drift(block, lr)

    def _direction(self, block: Block) -> Tensor:
        if block.v is None:
            return block.g
        block.v.mul_(self.momentum).add_(block.g)
        return block.g.add_(block.v, alpha=self.momentum) if self.nesterov else block.v

    def solver_norm(self, steps: int, proximal: float = 0.0, lr: float | None = None) -> float:
        """Return FedNova's ``||a||_1``, the sum of the coefficients of the gradients in this
        solver's update.

        By the per-step recursion (docs/methods/algorithms.md#fednova): with b the buffer's and A
        the update's sum of coefficients, ``b <- momentum b + 1 - lr proximal A;  A <- A + b``.
        Weight decay and clipping are ignored.
        ``lr``: default the solver's.

        >>> round(SGD(lr=0.1, momentum=0.9).solver_norm(3), 4)
        5.61
        """
        return _solver_norm(
            steps, self.momentum, self.nesterov, (self.lr if lr is None else lr) * proximal
        )


@dataclass(frozen=True)
class Adam(Solver):
    """Adam with moments that start at 0 in every round.

    Parameters
    ----------
    lr: learning rate.
    beta1, beta2: decay rates of the moments, in [0, 1).
    eps: added to the root of the second moment.
    weight_decay: at least 0.
    clip: None for no clipping.

    Raises
    ------
    ConfigError: an option outside its range.

    Example
    -------
    >>> w, g = torch.zeros(1, 2), torch.tensor([[0.5, -8.0]])
    >>> Adam(lr=0.1).step([Block(w, g, w.clone(), None, *Adam().fresh(w))], 0.1, 0.0)
    >>> w.tolist()  # the first step is lr in the direction of the sign
    [[-0.10000000149011612, 0.10000000149011612]]
    """

    paper: ClassVar[Paper] = cite("kingma2015adam")
    linear: ClassVar[bool] = False
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: Clip | None = None

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ConfigError(f"got {name} = {value}; expected at least 0 and less than 1")
        if not 0 < self.eps < float("inf"):
            raise ConfigError(f"got eps = {self.eps}; expected a positive number")

    @override
    def fresh(self, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(w), torch.zeros_like(w)

    @override
    def step(self, blocks: Sequence[Block], lr: Scale, proximal: Scale, number: int = 0) -> None:
        self._corrected(blocks, proximal, self.weight_decay)
        self._along_moments(blocks, lr, number)

    def _along_moments(self, blocks: Sequence[Block], lr: Scale, number: int) -> None:
        """Update the moments with ``g`` and step along them, in place."""
        first = 1.0 - self.beta1 ** (number + 1)
        second = 1.0 - self.beta2 ** (number + 1)
        for block in blocks:
            v = block.v
            s = block.s
            if v is None or s is None:
                raise ContractError("got a block without moments; create them with Adam.fresh")
            v.mul_(self.beta1).add_(block.g, alpha=1.0 - self.beta1)
            s.mul_(self.beta2).addcmul_(block.g, block.g, value=1.0 - self.beta2)
            root = torch.div(s, second, out=block.g).sqrt_().add_(self.eps)
            add_scaled(block.w, torch.div(v, root, out=root), lr / first, -1.0)
            add_drift(block, lr)

    def solver_norm(self, steps: int, proximal: float = 0.0, lr: float | None = None) -> float:
        """Return the number of steps: Adam's update is not a weighted sum of its gradients
        (INTERPRETATION-D, docs/methods/algorithms.md#fednova)."""
        return float(steps)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: every step shrinks the weights by ``lr weight_decay``,
    apart from the gradient's moments.

    Parameters
    ----------
    weight_decay: at least 0. Other parameters as in :class:`Adam`.

    Raises
    ------
    ConfigError: an option outside its range.

    Example
    -------
    >>> w, g = torch.ones(1, 1), torch.full((1, 1), 5.0)
    >>> block = Block(w, g, w.clone(), None, *AdamW().fresh(w))
    >>> AdamW(lr=0.5, weight_decay=0.2).step([block], 0.5, 0.0)
    >>> round(w.item(), 6)  # 1 - 0.5 * 0.2, then lr in the direction of the sign
    0.4
    """

    paper: ClassVar[Paper] = cite("loshchilov2019adamw")
    weight_decay: float = 0.01

    @override
    def step(self, blocks: Sequence[Block], lr: Scale, proximal: Scale, number: int = 0) -> None:
        self._corrected(blocks, proximal, 0.0)
        if self.weight_decay:
            for block in blocks:
                add_scaled(block.w, block.w, lr * self.weight_decay, -1.0)
        self._along_moments(blocks, lr, number)


def correct(block: Block, proximal: Scale) -> None:
    """Add ``proximal (w - x) + offset`` to ``g`` in place; ``proximal = 0.0`` leaves ``g``
    unchanged, bit for bit."""
    if isinstance(proximal, Tensor) or proximal:
        add_scaled(block.g, block.w - block.x, proximal)
    if block.offset is not None:
        block.g.add_(block.offset)


def descend(block: Block, lr: Scale, proximal: Scale) -> None:
    """Step ``w <- w - lr (g + proximal (w - x) + offset + drift)`` in place, fused: the proximal
    term is an interpolation toward ``x``."""
    if isinstance(proximal, Tensor) or proximal:
        weight = lr * proximal
        block.w.lerp_(
            block.x.expand_as(block.w),
            _wide(weight, block.w) if isinstance(weight, Tensor) else weight,
        )
    if block.offset is not None:
        add_scaled(block.w, block.offset, lr, -1.0)
    add_scaled(block.w, block.g, lr, -1.0)
    add_drift(block, lr)


def add_drift(block: Block, lr: Scale) -> None:
    """Step ``w <- w - lr drift`` in place, where the block has a drift."""
    if block.drift is not None:
        add_scaled(block.w, block.drift, lr, -1.0)


def add_scaled(y: Tensor, t: Tensor, scale: Scale, sign: float = 1.0) -> None:
    """Add ``sign scale t`` to ``y`` in place, ``scale`` a number or one per client (first axis)."""
    if isinstance(scale, Tensor):
        y.addcmul_(t, _wide(scale, y), value=sign)
    else:
        y.add_(t, alpha=sign * scale)


def _wide(per_client: Tensor, like: Tensor) -> Tensor:
    """Return ``[c]`` as ``[c, 1, ..., 1]``."""
    return per_client.view(-1, *(1,) * (like.ndim - 1))


@lru_cache(maxsize=4096)
def _solver_norm(steps: int, momentum: float, nesterov: bool, decay: float) -> float:
    if not momentum and not decay:
        return float(steps)
    buffer = total = 0.0
    for _ in range(steps):
        gradient = 1.0 - decay * total
        buffer = momentum * buffer + gradient
        total += gradient + momentum * buffer if nesterov else buffer
    return total
