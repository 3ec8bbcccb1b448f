"""FedPer: clients share the base of the model, and each keeps a head of its own.

Arivazhagan, Aggarwal, Singh, Choudhary: *Federated Learning with Personalization Layers*, 2019
(arXiv:1912.00818).

    server    holds, averages and sends the base: all but the head
    client k  starts from the received base and its own head; trains both together;
              sends the base; keeps the head

Symbols: the head is the last ``layers`` linear layers and what lies between them; the base is
everything before.
State: the head of each client that took part; the initial model's for the others. Traffic: the
base, both ways. Clients are probed, trained and evaluated with their own heads; there is no common
model.

Deviations: none. With ``own_norms`` clients keep BatchNorm, too, as under FedBN. A model without a
base is refused; without a head (``layers = 0``) it is plain averaging, bit for bit.

Worked
------
Toy B (docs/methods/algorithms.md#personalisation): heads 2.2 and 1.9, bases 1.4 and .8, new base
1.1.

>>> from motley.algorithms.fedper import FedPer
>>> FedPer(layers=2)
FedPer(layers=2, own_norms=False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.personal import PersonalLayers, check_layers, head_of
from motley.core.layout import Layout
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class PersonalHead(PersonalLayers):
    """Plain local training in which every client keeps its head, the last ``layers`` linear
    layers."""

    layers: int = 1

    @property
    @override
    def head_layers(self) -> int:
        return self.layers

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        return head_of(layout, self.layers)


@dataclass(frozen=True)
class FedPer(Method):
    """Averaging of the base, while every client keeps its head: the last ``layers`` (1) linear
    layers; with ``own_norms`` BatchNorm, too."""

    paper: ClassVar[Paper] = cite("arivazhagan2019fedper")
    layers: int = 1
    own_norms: bool = False

    def __post_init__(self) -> None:
        check_layers("layers", self.layers)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=PersonalHead(layers=self.layers, own_norms=self.own_norms))
