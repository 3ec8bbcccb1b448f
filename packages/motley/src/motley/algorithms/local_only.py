"""Local training alone: every client trains a model of its own, and nothing is sent.

The baseline of personalized methods (Smith, Chiang, Sanjabi, Talwalkar: *Federated Multi-Task
Learning*, NeurIPS 2017, arXiv:1705.10467, section 5, compares with it).

    client k  w_k <- w_k - lr g(w_k), tau times, in every round in which it takes part;  keeps w_k

State: the model of each client that took part, buffers included; the initial model's for the
others. Traffic: nothing, either way. There is no common model. The initial model is the same for
all clients, and so are the batches of a client under another method with the same seed and cohorts:
local training has as many local steps.

>>> from motley.algorithms.local_only import LocalOnly
>>> LocalOnly()
LocalOnly()
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.parts import Algorithm, LocalRule, Method
from motley.algorithms.personal import PersonalLayers
from motley.core.layout import Layout
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class WholeModel(PersonalLayers):
    """Plain local training in which every client keeps its whole model."""

    unlike: ClassVar[bool] = True

    @override
    def own_entries(self, layout: Layout) -> list[str]:
        return [entry.name for entry in (*layout, *layout.buffers, *layout.counters)]

    @override
    def ignores_weights(self) -> str | None:
        return "every client keeps its whole model, and nothing is averaged; leave weights out"

    @override
    def bound(self, layout: Layout) -> LocalRule:
        return dataclasses.replace(self, layout=layout)


@dataclass(frozen=True)
class LocalOnly(Method):
    """Local training without a server: every client keeps a model of its own, and nothing is
    sent."""

    paper: ClassVar[Paper] = cite("smith2017federated")
    unlike: ClassVar[str] = "local_only"

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=WholeModel())
