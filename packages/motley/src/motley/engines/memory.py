"""The memory that a step of training takes, estimated from the model.

    weights      all parameters and buffers, frozen ones too
    gradients    of the trainable parameters
    optimizer    what the local solver keeps of each of them (none, one or two numbers)
    step         the most that the other tensors of a pass forward and backward take at a time:
                 activations that wait for the backward pass, gradients of activations

The first three are counted. The last is found by taking a step of the given batch on the CPU and
counting, after every operation, the tensors that are still there; so it is the same on every
device. Not counted: the library itself, workspaces inside operations, data, caches of a GPU's
allocator.

>>> from torch import nn
>>> from motley.algorithms.local_optimisers import Adam
>>> module = nn.Linear(3, 2)
>>> training_memory(module, Adam(lr=0.1), torch.zeros(10, 3), lambda outputs: outputs.sum())[:3]
(32, 32, 64)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from motley.algorithms.local_optimisers import Solver


class TrainingMemory(NamedTuple):
    """Bytes that training takes; see this module."""

    weights: int
    gradients: int
    optimizer: int
    step: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class _Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that operations inside the block make and that are still
    there.

    Parameters
    ----------
    excluded: tensors that were there before.
    """

    def __init__(self, excluded: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.excluded = {t.untyped_storage()._cdata for t in excluded}
        self.living: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.living = {
            at: entry
            for at, entry in self.living.items()
            if not entry[0].expired()  # type: ignore[no-untyped-call]
        }
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self.excluded:
                    seen = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                    self.living[storage._cdata] = seen, storage.nbytes()
        self.most = max(self.most, sum(size for _, size in self.living.values()))
        return out


def training_memory(
    module: nn.Module, solver: Solver, inputs: Tensor, loss: Callable[[Tensor], Tensor]
) -> TrainingMemory:
    """Return the memory of training a module, on the CPU, in the mode in which it is.

    Parameters
    ----------
    module: in the type that it trains in; its gradients are taken away.
    inputs: a batch ``[B, ...]``.
    loss: from the outputs to a number.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    tensors = {t.untyped_storage()._cdata: t for t in chain(module.parameters(), module.buffers())}
    for p in trained:
        p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in trained if p.grad is not None]
    with _Living([*tensors.values(), *gradients, inputs]) as counted:
        loss(module(inputs)).backward()  # type: ignore[no-untyped-call]
    for p in trained:
        p.grad = None
    size = sum(p.nbytes for p in trained)
    weights = sum(t.nbytes for t in tensors.values())
    return TrainingMemory(weights, size, solver.moments * size, counted.most)
