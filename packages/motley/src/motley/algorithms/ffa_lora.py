"""FFA-LoRA: the first factor of every low-rank adapter stays as it was drawn, and clients train the
second alone, so that the mean of factors is the factor of the mean.

Sun, Li, Li, Ding: *Improving LoRA in Privacy-preserving Federated Learning*, ICLR 2024
(arXiv:2403.12313).

    client k  W = W_0 + s B A, W_0 and A frozen; trains B; sends its change
    server    B <- sum_k p_k B_k,   so   B A = sum_k p_k B_k A

Symbols: A ``[R, inputs]`` drawn, B ``[outputs, R]`` zeros at first, p_k = n_k / sum n. State: none;
a client holds A as it was drawn. Traffic: B, both ways.

Deviations and readings
-----------------------
* INTERPRETATION-D A is not billed: every client draws it from the run's seed, as it does the
  initial model.
* One rank for all, as published; clients of less ``capacity`` are refused.
* Other trainable parameters are trained and averaged.

Worked
------
R = 1, A = (1, 0), B_1 = (1, 0), B_2 = (0, 1), p = (3/4, 1/4): B = (.75, .25), B A = ((.75, 0),
(.25, 0)), which is the mean of the products.

>>> from motley.algorithms.ffa_lora import FFALoRA
>>> FFALoRA()
FFALoRA()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.fedbabu import FrozenHead
from motley.algorithms.parts import Algorithm, Method
from motley.core.adapters import adapters_of
from motley.core.layout import Layout
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class FrozenFactor(FrozenHead):
    """Local training under the first factors as they were drawn, which all clients have and nobody
    sends."""

    @property
    @override
    def head_layers(self) -> int:
        return 0

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        return [adapter.a.name for adapter in adapters_of(layout)] if layout.size else []


@dataclass(frozen=True)
class FFALoRA(Method):
    """Averaging of the second factors of low-rank adapters, while the first ones stay as they were
    drawn."""

    paper: ClassVar[Paper] = cite("sun2024ffalora")
    adapters: ClassVar[bool] = True

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=FrozenFactor())
