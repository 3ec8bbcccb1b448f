"""Random-k: a random subset of the coordinates, which client and server draw from one seed, so no
indices are sent.

Stich, Cordonnier, Jaggi: *Sparsified SGD with Memory*, NeurIPS 2018.

    I uniform among the subsets of kept = max(1, min(D, ceil(theta D - 1e-6)))
    unbiased     D / kept * v_I     E = v,  variance (D / kept - 1) ||v||^2
    plain        v_I                contraction 1 - kept / D; the form for error feedback

Cost: a hash per coordinate. On the wire: 64 bits of seed and the values.

Deviations and readings: ``unbiased = true`` is the default without memory; with error feedback the
factor must go (docs/methods/compression.md#signs), and the combination is refused.

Worked
------
v = (1, 2, 3), one value kept: variance 28.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Layout
>>> packet = RandomK().compress(torch.tensor([1.0, 2.0, 3.0]), 0.3, Layout(()), Key(3))
>>> float(packet.dense().sum()) in (3.0, 6.0, 9.0)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.transport.compressors.compressor import Sparsifier, Tensors, coding_of, kept_of
from motley.transport.compressors.topk import TopK
from motley.transport.packet import Packet, PacketSpec, drawn


@dataclass(frozen=True)
class RandomK(Sparsifier):
    """A random share ``theta`` of the coordinates.

    Parameters
    ----------
    unbiased: whether values are multiplied by ``D / kept``, so that their mean is the update.
    """

    paper: ClassVar[Paper] = TopK.paper
    unbiased: bool = True

    @override
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        return PacketSpec(layout.size, kept_of(ratio, layout.size), "seed", coding=coding_of(dtype))

    @override
    def choose(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors
    ) -> Packet:
        sent = kept_of(ratio, len(v))
        seed = Key(key.fold("places").words()[0])
        at = drawn(seed, len(v), sent)
        values = v[at]
        if self.unbiased and sent:
            values *= len(v) / sent
        return Packet(len(v), values, seed, at)

    @override
    def refuses_feedback(self, size: int) -> str | None:
        if self.unbiased:
            return (
                "random-k scales its values up, and under error feedback the residual would grow "
                "without bound; set unbiased = false"
            )
        return None
