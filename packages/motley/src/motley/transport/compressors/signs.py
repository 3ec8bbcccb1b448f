"""Signs: one bit per coordinate, and one scale.

Bernstein, Wang, Azizzadenesheli, Anandkumar: *signSGD: Compressed Optimization for Non-Convex
Problems*, ICML 2018; with the scale Karimireddy, Rebjock, Stich, Jaggi: *Error Feedback Fixes
SignSGD and other Gradient Compression Schemes*, ICML 2019.

    mean   C(v) = (||v||_1 / N) sgn(v)
           contraction 1 - ||v||_1^2 / (N ||v||^2); for error feedback
    unit   C(v) = sgn(v)
           signSGD; the server takes the majority, x <- x + lr sign(sum C(v_k)), a tie is 0

Deviations and readings: INTERPRETATION ``sgn(0) = +1``. The majority is a server's business: a
server's momentum or mean of unit signs is what stands there unless it says otherwise. ``unit`` is
biased without bound and refused under error feedback.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Layout
>>> Signs().compress(torch.tensor([2.0, -1.0, 0.0]), 1.0, Layout(()), Key(0)).dense().tolist()
[1.0, -1.0, 1.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import Quantizer
from motley.transport.packet import Codes, group_sizes


@dataclass(frozen=True)
class Signs(Quantizer):
    """One bit per coordinate; ``scale``: the factor of the signs, the mean absolute value or 1."""

    paper: ClassVar[Paper] = cite("bernstein2018signsgd")
    scale: Literal["mean", "unit"] = "mean"

    def __post_init__(self) -> None:
        if self.scale not in ("mean", "unit"):
            raise ConfigError(
                f"got scale = {self.scale!r}; expected 'mean' (the mean absolute value) or 'unit'"
            )

    @property
    @override
    def width(self) -> tuple[int, int]:
        return 0, 0

    @override
    def quantize(self, values: Tensor, group: int | tuple[int, ...], key: Key) -> Codes:
        sizes = group_sizes(len(values), group).tolist()
        parts = torch.split(values, sizes) if sizes else ()
        if self.scale == "unit":
            scales = values.new_ones(len(sizes))
        else:
            means = [
                float(part.abs().sum(dtype=torch.float64)) / max(len(part), 1) for part in parts
            ]
            scales = torch.tensor(means, dtype=values.dtype)
        q = (values >= 0).to(torch.int8).mul_(2).sub_(1)
        return Codes(q, 0, scales, group)

    @override
    def refuses_feedback(self, size: int) -> str | None:
        if self.scale == "unit":
            return 'signs without a scale do not contract; set scale = "mean"'
        return None
