"""LG-FedAvg: clients share the head of the model, and each keeps a base of its own.

Liang, Liu, Liu, Allen, Auerbach, Brent, Salakhutdinov, Morency: *Think Locally, Act Globally:
Federated Learning with Local and Global Representations*, 2020 (arXiv:2001.01523).

    server    holds, averages and sends the head
    client k  starts from its own base and the received head; trains both together;
              sends the head; keeps the base

Symbols: the head is the last ``keep`` linear layers and what lies between them; the base is
everything before.
State: the base of each client that took part, buffers included; the initial model's for the others.
Traffic: the head, both ways. Clients are probed, trained and evaluated with their own bases; there
is no common model.

Deviations and readings
-----------------------
* Training begins at the run's initial model; the model that serves a client is the last one.
* With ``own_norms`` clients keep the head's BatchNorm, too, as under FedBN; that of the base they
  keep in any case.
* Bases may be of different architectures (the experiment's key ``models``) where the heads have one
  shape; the shared head begins as the first model's.
* Any weights, by default ``uniform``, as in the authors' code.
* Where all layers are shared it is plain averaging, bit for bit.

Worked
------
Toy B (docs/methods/algorithms.md#personalisation): new head (2.2 + 1.9) / 2 = 2.05; bases 1.4 and
.8.

>>> from motley.algorithms.lg_fedavg import LGFedAvg
>>> LGFedAvg()
LGFedAvg(keep=1, own_norms=False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.personal import PersonalLayers, head_of
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class PersonalBase(PersonalLayers):
    """Plain local training in which every client keeps its base: all but the last ``keep`` linear
    layers."""

    unlike: ClassVar[bool] = True
    keep: int = 1

    @property
    @override
    def head_layers(self) -> int:
        return self.keep

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        head = head_of(layout, self.keep)
        return [
            entry.name
            for entry in (*layout, *layout.buffers, *layout.counters)
            if entry.name not in head
        ]


@dataclass(frozen=True)
class LGFedAvg(Method):
    """Averaging of the head, the last ``keep`` (1) linear layers, while every client keeps its
    base; with ``own_norms`` the head's BatchNorm, too."""

    paper: ClassVar[Paper] = cite("liang2020lgfedavg")
    unlike: ClassVar[str] = "lg_fedavg"
    keep: int = 1
    own_norms: bool = False

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ConfigError(f"got keep = {self.keep}; expected a whole number of at least 1")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=PersonalBase(keep=self.keep, own_norms=self.own_norms), weights="uniform"
        )
