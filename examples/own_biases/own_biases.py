"""A method of your own, as a package: clients share the weights of the model, and each keeps biases
of its own.

One of the partial models of Pillutla, Malik, Mohamed, Rabbat, Sanjabi, Xiao: *Federated Learning
with Partial Model Personalization*, ICML 2022 (arXiv:2204.03809), who keep adapters, the first or
the last layers.

    server    holds, averages and sends everything but the biases
    client k  starts from what it received and its own biases; trains both;
              sends all but the biases; keeps its biases

State: the biases of each client that took part; the initial model's for the others. Traffic: all
but the biases, both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley import Layout, Paper
from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.personal import PersonalLayers

__all__ = ["OwnBiases", "PersonalBiases"]


@dataclass(frozen=True)
class PersonalBiases(PersonalLayers):
    """Local training in which each client keeps the biases of its linear layers."""

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        return [entry.name for entry in layout if entry.linear and entry.name.endswith("bias")]


@dataclass(frozen=True)
class OwnBiases(Method):
    """Averaging of everything but the biases, which every client keeps."""

    paper: ClassVar[Paper] = Paper(
        "pillutla2022partial",
        "Federated Learning with Partial Model Personalization",
        (
            "Krishna Pillutla",
            "Kshitiz Malik",
            "Abdelrahman Mohamed",
            "Michael Rabbat",
            "Maziar Sanjabi",
            "Lin Xiao",
        ),
        "International Conference on Machine Learning (ICML)",
        2022,
    )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=PersonalBiases())
