"""TernGrad: every value becomes -1, 0 or +1 times the largest one, at random without bias.

Wen, Xu, Yan, Wu, Wang, Chen, Li: *TernGrad: Ternary Gradients to Reduce Communication in
Distributed Deep Learning*, NeurIPS 2017.

    v <- clip(v, -c sigma, c sigma)     c = 2.5, sigma the standard deviation of the layer
    S = max |v|,    Q_i = S sgn(v_i) Bernoulli(|v_i| / S)
    unbiased for the clipped v, variance sum (S |v_i| - v_i^2)

On the wire: 2 bits a value (1.584963 would do), 32 per layer and 64 for its length.

Deviations and readings
-----------------------
* READING "layer" is a parameter tensor, as in the paper's code; ``per = "vector"`` is one scale for
  all, and what a chain takes.
* INTERPRETATION sigma is about the layer's own mean, over all its values; a tensor of one value, or
  of equal ones, is not clipped.

Worked
------
v = (.5, -1, .25): variance .4375.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Entry, Layout
>>> layout = Layout((Entry("w", "", (2,), 0),))
>>> TernGrad(clip=None).compress(torch.tensor([0.0, -2.0]), 1.0, layout, Key(0)).dense().tolist()
[0.0, -2.0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import Quantizer, tensor_sizes
from motley.transport.compressors.qsgd import rounded
from motley.transport.packet import Codes, group_sizes


@dataclass(frozen=True)
class TernGrad(Quantizer):
    """Random rounding to three values per coordinate.

    Parameters
    ----------
    clip: largest absolute value, in standard deviations; None: no clipping.
    per: one scale for each ``layer`` or for the ``vector``.
    """

    paper: ClassVar[Paper] = cite("wen2017terngrad")
    clip: float | None = 2.5
    per: Literal["layer", "vector"] = "layer"

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(
                f"got clip = {self.clip}; expected standard deviations, 2.5 in the paper, or none"
            )
        if self.per not in ("layer", "vector"):
            raise ConfigError(f"got per = {self.per!r}; expected 'layer' or 'vector'")

    @property
    @override
    def width(self) -> tuple[int, int]:
        return 1, 0

    @override
    def groups(self, layout: Layout) -> int | tuple[int, ...]:
        return tensor_sizes(layout) if self.per == "layer" else 0

    @override
    def quantize(self, values: Tensor, group: int | tuple[int, ...], key: Key) -> Codes:
        sizes = group_sizes(len(values), group).tolist()
        parts = [self._clipped(part) for part in (torch.split(values, sizes) if sizes else ())]
        if not parts:
            return rounded(values, scales=values[:0], levels=1, group=group, key=key)
        scales = [part.abs().max() if len(part) else part.new_zeros(()) for part in parts]
        return rounded(torch.cat(parts), scales=torch.stack(scales), levels=1, group=group, key=key)

    def _clipped(self, part: Tensor) -> Tensor:
        if self.clip is None or len(part) < 2:
            return part
        low, high = part.aminmax()
        if low == high:  # its deviation is 0, or what rounding of the mean leaves
            return part
        bound = min(self.clip * float(part.std(correction=0)), torch.finfo(part.dtype).max)
        return part.clamp(-bound, bound) if bound else part
