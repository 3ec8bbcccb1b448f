"""The configuration of uploads in a run, and the part of a client's state that it needs.

A client's state holds the tensors of its algorithm and those of its uploads, the latter with a
prefix (``sent.e``, ``sent.picked``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from motley.core.layout import Layout
from motley.transport.allocators.allocator import Allocator
from motley.transport.allocators.uniform_ratio import UniformAllocator
from motley.transport.budgets import Budget, ConstantBudget
from motley.transport.compressors.compressor import Compressor
from motley.transport.compressors.identity import Identity
from motley.transport.feedback import Adaptive, Feedback, NoFeedback

_PREFIX = "sent."


@dataclass(frozen=True)
class UploadConfig:
    """How updates are sent: compressor, error feedback, allocator of upload ratios to clients, and
    budget of the rounds."""

    compressor: Compressor = field(default_factory=Identity)
    feedback: Feedback = field(default_factory=NoFeedback)
    allocator: Allocator = field(default_factory=UniformAllocator)
    budget: Budget = field(default_factory=ConstantBudget)

    @property
    def plain(self) -> bool:
        """Whether updates are sent uncompressed and without error feedback."""
        return type(self.compressor) is Identity and type(self.feedback) is NoFeedback

    def initial_state(self, layout: Layout, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return the upload part of a client's state before its first accepted upload."""
        if self.feedback.state_name is None:
            feedback_state = {}
        else:
            feedback_state = {self.feedback.state_name: torch.zeros(layout.size, dtype=dtype)}
        return merge_state({}, {**feedback_state, **self.compressor.initial_state(layout)})

    def refuses(self, size: int) -> str | None:
        """Return why these four do not go together on updates of ``size`` values, in one sentence
        with a remedy; None if they do."""
        if not self.compressor.budgeted and (
            self.allocator != UniformAllocator() or self.budget != ConstantBudget()
        ):
            name = type(self.compressor).__name__
            return (
                f"{name} sends every value, so a budget has no effect; use topk, randomk or "
                "tensor_drop, or leave it out"
            )
        return self.refuses_feedback(size) or self.allocator.refuses(self.budget)

    def refuses_feedback(self, size: int) -> str | None:
        """Return why the feedback does not go with the others on updates of ``size`` values; None
        if it does."""
        identity = type(self.compressor) is Identity  # nothing is left that could fade
        has_budget = self.compressor.budgeted and "upload_ratio" not in self.allocator.requires
        if type(self.feedback) is Adaptive and not has_budget and not identity:
            return (
                "the factor of adaptive feedback follows the budget, and nothing here does, so "
                f"that it would be low = {self.feedback.low} in every round; use feedback = "
                '{ name = "fixed" }'
            )
        return self.feedback.refuses(self.compressor, size)


def merge_state(own: Mapping[str, Tensor] | None, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return one client state with the tensors of the algorithm (``own``) and those of the uploads
    (``sent``)."""
    return {**(own or {}), **{_PREFIX + name: value for name, value in sent.items()}}


def split_state(
    client_state: Mapping[str, Tensor] | None,
) -> tuple[dict[str, Tensor] | None, dict[str, Tensor]]:
    """Return the algorithm's tensors of a client state, None if there are none, and those of the
    uploads.

    >>> split_state(merge_state({"c": torch.zeros(1)}, {"e": torch.ones(1)}))
    ({'c': tensor([0.])}, {'e': tensor([1.])})
    """
    client_state = client_state or {}
    own = {name: value for name, value in client_state.items() if not name.startswith(_PREFIX)}
    return own or None, {
        name[len(_PREFIX) :]: value
        for name, value in client_state.items()
        if name.startswith(_PREFIX)
    }
