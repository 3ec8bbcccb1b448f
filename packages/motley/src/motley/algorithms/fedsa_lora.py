"""FedSA-LoRA: the first factor of every low-rank adapter is averaged, the second stays with its
client.

Guo, Zeng, Wang, Fan, Wang, Qu: *Selective Aggregation for Low-Rank Adaptation in Federated
Learning*, ICLR 2025 (arXiv:2410.01463).

    client k  W = W_0 + s B_k A, W_0 frozen; trains A and B_k; sends A, keeps B_k
    server    A <- sum_k p_k A_k

Symbols: A ``[R, inputs]``, which the paper finds to be alike among clients, B ``[outputs, R]``,
which it finds to differ; p_k = n_k / sum n. State: at each client B_k, from zeros, and under
``others = "own"`` what else it trains. Traffic: A, both ways.

Deviations and readings
-----------------------
* The paper's text speaks of A and B alone; the authors' code also keeps the classifier with the
  client. ``others = "own"``, the default, keeps all trainable parameters that belong to no adapter,
  as the code; ``"shared"`` averages them.
* One rank for all, as published; clients of less ``capacity`` are refused.
* BatchNorm statistics are averaged.

Worked
------
(h b - c)^2 / 2 with A = b, B = h, (b, h) = (1, 0), c = (4, 2), lr .1, two rounds of one step: h =
(.4, .2), b = 1; then h = (.76, .38), b = (1.144 + 1.036) / 2 = 1.09.

>>> from motley.algorithms.fedsa_lora import FedSALoRA
>>> FedSALoRA()
FedSALoRA(others='own')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.personal import PersonalLayers
from motley.core.adapters import adapters_of
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class OwnFactor(PersonalLayers):
    """Plain local training in which every client keeps its second factors, and with ``others`` what
    belongs to no adapter."""

    others: bool = True

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        adapters = adapters_of(layout)
        shared = {adapter.a.name for adapter in adapters}
        if not self.others:
            return [adapter.b.name for adapter in adapters]
        return [entry.name for entry in layout if entry.name not in shared]


@dataclass(frozen=True)
class FedSALoRA(Method):
    """Averaging of the first factors of low-rank adapters, while every client keeps the second
    ones: option ``others`` ("own" or "shared"), what belongs to no adapter."""

    paper: ClassVar[Paper] = cite("guo2025fedsalora")
    adapters: ClassVar[bool] = True
    others: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        if self.others not in ("own", "shared"):
            raise ConfigError(f"got others = {self.others!r}; expected 'own' or 'shared'")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=OwnFactor(others=self.others == "own"))
