"""FedBN: every client keeps its own BatchNorm layers, for clients whose features differ.

Li, Jiang, Zhang, Kamp, Dou: *FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization*, ICLR 2021 (arXiv:2102.07623).

    server    holds, averages and sends everything but BatchNorm
    client k  starts from the received tensors and its own BatchNorm; trains all of it;
              sends all but BatchNorm; keeps BatchNorm

A BatchNorm layer holds scale and offset, running mean and variance, and the counter of batches.
Layers are found by their type, so a ResNet's ``shortcut.1`` is among them; LayerNorm and GroupNorm
are not (they hold no statistics of data).

State: the BatchNorm of each client that took part. Traffic: all but BatchNorm, both ways; that is
no update of the whole model, so compressors are refused. Clients are probed, trained and evaluated
with their own BatchNorm; there is no common model, and no result for one.

Deviations and readings
-----------------------
* A client that never took part has the initial model's BatchNorm (INTERPRETATION-D; a mean of all
  clients' would require to upload them). The model written at the end of a run is that of such a
  client.
* Any weights: the default ``examples``.
* A model without BatchNorm is trained by plain averaging, bit for bit.
* ``fedper``, ``fedrep``, ``lg_fedavg`` and ``fedbabu`` keep BatchNorm with the clients, too, with
  the option ``own_norms``.
* Server rules that work with whole models (FedDF, FedBiO, RHFL) are refused.
* The authors train with SGD 0.01, batches of 32, one epoch.

>>> from motley.algorithms.fedbn import FedBN
>>> FedBN()
FedBN()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.personal import PersonalLayers, batch_norm_of
from motley.core.layout import Layout
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class PersonalBatchNorm(PersonalLayers):
    """Plain local training in which every client keeps its own BatchNorm."""

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        return batch_norm_of(layout)


@dataclass(frozen=True)
class FedBN(Method):
    """Averaging of everything but BatchNorm, which every client keeps for itself."""

    paper: ClassVar[Paper] = cite("li2021fedbn")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=PersonalBatchNorm())
