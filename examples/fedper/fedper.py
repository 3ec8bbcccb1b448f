"""FedPer: clients share the base of the model, and each keeps a head of its own.

Arivazhagan, Aggarwal, Singh, Choudhary: *Federated Learning with Personalization Layers*, 2019 (arXiv:1912.00818).

    server    holds, averages and sends the base: all layers but the last ``layers`` linear ones
    client k  starts from the received base and its own head; trains both; sends the base; keeps the head

State: the head of each client that took part; the initial model's for the others. Traffic: the base, both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley import ConfigError, Layout, Paper
from motley.algorithms.base import Algorithm, Method
from motley.algorithms.personal import PersonalLayers

__all__ = ["FedPer", "PersonalHead"]


@dataclass(frozen=True)
class PersonalHead(PersonalLayers):
    """Local training in which each client keeps its last ``layers`` linear layers."""

    layers: int = 1

    @override
    def personal(self, layout: Layout) -> list[str]:
        linear = list(dict.fromkeys(entry.layer for entry in layout if entry.linear))
        return [entry.name for entry in layout if entry.layer in linear[-self.layers :]]


@dataclass(frozen=True)
class FedPer(Method):
    """Averaging of all layers but the last, which every client keeps.

    Parameters
    ----------
    layers: number of linear layers, counted from the end, that stay with the clients.
    """

    paper: ClassVar[Paper] = Paper(
        "arivazhagan2019fedper", "Federated Learning with Personalization Layers",
        ("Manoj Ghuhan Arivazhagan", "Vinay Aggarwal", "Aaditya Kumar Singh", "Sunav Choudhary"), "arXiv:1912.00818", 2019,
    )  # fmt: skip
    layers: int = 1

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ConfigError(f"got layers = {self.layers}; expected a whole number of at least 1")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(correction=PersonalHead(layers=self.layers))
