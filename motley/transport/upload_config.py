"""How updates are sent in a run: the four choices that belong together, and what each client keeps because of them.

A client's memory of its uploads lies beside what its algorithm keeps, under names of its own (``sent.e``, ``sent.picked``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from motley.core.layout import Layout
from motley.transport.allocators.base import Allocator
from motley.transport.allocators.uniform import UniformAllocator
from motley.transport.budgets import Budget, ConstantBudget
from motley.transport.compressors.base import Compressor
from motley.transport.compressors.identity import Identity
from motley.transport.feedback import Feedback, NoFeedback

__all__ = ["UploadConfig", "merge_state", "split_state"]

_PREFIX = "sent."


@dataclass(frozen=True)
class UploadConfig:
    """What becomes of an update before it leaves, what waits at the client, and who may send how much of it when."""

    compressor: Compressor = field(default_factory=Identity)
    feedback: Feedback = field(default_factory=NoFeedback)
    allocator: Allocator = field(default_factory=UniformAllocator)
    budget: Budget = field(default_factory=ConstantBudget)

    @property
    def plain(self) -> bool:
        """Whether updates travel as they are."""
        return isinstance(self.compressor, Identity) and self.feedback.state_name is None

    def initial_state(self, layout: Layout, dtype: torch.dtype) -> dict[str, Tensor]:
        """What a client keeps before its first accepted upload: nothing was held back."""
        kept = {} if self.feedback.state_name is None else {self.feedback.state_name: torch.zeros(layout.size, dtype=dtype)}
        return merge_state({}, {**kept, **self.compressor.initial_state(layout)})

    def refuses(self) -> str | None:
        """Why these four do not go together, in one sentence with the way out; None: they do."""
        heard = self.compressor.budgeted
        if not heard and (self.allocator != UniformAllocator() or self.budget != ConstantBudget()):
            name = type(self.compressor).__name__
            return f"{name} sends every value, so nobody would listen to a budget; use topk, randomk or tensor_drop, or leave it out"
        return self.feedback.refuses(self.compressor) or self.allocator.refuses(self.budget)


def merge_state(own: Mapping[str, Tensor] | None, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What an algorithm keeps of a client, and what its uploads leave, in one memory."""
    return {**(own or {}), **{_PREFIX + name: value for name, value in sent.items()}}


def split_state(client_state: Mapping[str, Tensor] | None) -> tuple[dict[str, Tensor] | None, dict[str, Tensor]]:
    """The two again; None for an algorithm that keeps nothing.

    >>> split_state(merge_state({"c": torch.zeros(1)}, {"e": torch.ones(1)}))
    ({'c': tensor([0.])}, {'e': tensor([1.])})
    """
    client_state = client_state or {}
    own = {name: value for name, value in client_state.items() if not name.startswith(_PREFIX)}
    return own or None, {name[len(_PREFIX) :]: value for name, value in client_state.items() if name.startswith(_PREFIX)}
