"""Numbers that are not finite: those that a model holds by design, and those that became so.

A causal mask of -inf, or a smallest value so far that begins at infinity, is a buffer like others.
What is rejected is a number that *became* infinite or NaN: one that is not finite, and is not what
the model that was sent holds in its place.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def all_finite(value: Tensor) -> bool:
    """Return whether all numbers are finite, in one pass: minimum and maximum propagate NaN and
    infinity."""
    return (
        not value.numel()
        or not value.is_floating_point()
        or all(math.isfinite(float(end)) for end in value.aminmax())
    )


def without_constants(after: Tensor, before: Tensor | None) -> Tensor:
    """Return ``after``, a tensor or rows of such, with 0 for each number that is not finite and the
    same in ``before``; itself where there is no such tensor, or one of another shape.

    >>> without_constants(torch.tensor([-torch.inf, torch.nan]), torch.tensor([-torch.inf, 1.0]))
    tensor([0., nan])
    """
    if all_finite(after) or before is None or before.shape != after.shape[-before.dim() :]:
        return after
    before = before.to(after.device, after.dtype)
    same = (after == before) | (after.isnan() & before.isnan())
    return torch.where(same & ~after.isfinite(), torch.zeros_like(after), after)


def became_non_finite(after: Tensor, before: Tensor | None = None) -> bool:
    """Return whether a number is not finite that was finite, or another one, ``before``.

    >>> mask = torch.tensor([0.0, -torch.inf])
    >>> became_non_finite(mask, mask), became_non_finite(mask, torch.zeros(2))
    (False, True)
    """
    return not (all_finite(after) or all_finite(without_constants(after, before)))
