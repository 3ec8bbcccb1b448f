"""FedRep: every client first trains its own head on the received base, then the base under its new
head.

Collins, Hassani, Mokhtari, Shakkottai: *Exploiting Shared Representations for Personalized
Federated Learning*, ICML 2021 (arXiv:2102.07078).

    server    holds, averages and sends the base
    client k  head:  h_k <- h_k - lr grad_h F(b, h_k; batch)
                     ``head_epochs``, the base stands still
              base:  b   <- b   - lr grad_b F(b, h_k; batch)
                     the job's steps, the head stands still;  sends b, keeps h_k

Symbols: b the base, h_k the head of client k: the last ``layers`` linear layers and what lies
between them. State and traffic: as FedPer. Cost: a step of the head takes the time of its forward
pass, a third of a step.

Deviations and readings
-----------------------
* Each phase begins with fresh optimizer state and writes nothing outside of its own parameters.
* BatchNorm statistics of the base move in both phases, as its layers do see the batches.
* With ``own_norms`` clients keep BatchNorm, too, as under FedBN; that of the base trains with the
  base.
* ``head_epochs = 0`` trains the base alone; without a head (``layers = 0``) it is plain averaging,
  bit for bit.

Worked
------
Toy B (docs/methods/algorithms.md#personalisation), one epoch of the head: h = 2.2, b = 1 - .1 (2.2
- 4) 2.2 = 1.396; h = 1.9, b = .829; new base 1.1125.

>>> from motley.algorithms.fedrep import FedRep
>>> FedRep().head_epochs
10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.fedper import PersonalHead
from motley.algorithms.parts import Algorithm, JobContext, Method, Phase
from motley.algorithms.personal import check_layers
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class HeadThenBase(PersonalHead):
    """Local training of the head for ``head_epochs``, then of the base; every client keeps its
    head."""

    head_epochs: int = 10

    @property
    @override
    def extra_epochs(self) -> float:
        return self.head_epochs / 3 if self.layers else 0.0

    @property
    @override
    def phase_epochs(self) -> float:
        return float(self.head_epochs) if self.layers else 0.0

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        head = frozenset(self.own_entries(self.layout))
        if not head:
            return super().phases(context)
        base = Phase(
            "base" if self.head_epochs else "",
            where=frozenset(entry.name for entry in self.layout) - head,
        )
        return (Phase(where=head, epochs=self.head_epochs), base) if self.head_epochs else (base,)


@dataclass(frozen=True)
class FedRep(Method):
    """Averaging of the base, trained after each client's own head: options ``head_epochs`` (10) and
    ``layers`` (1) of the head; with ``own_norms`` clients keep BatchNorm, too.

    The base is trained for the experiment's ``local`` epochs or steps.
    """

    paper: ClassVar[Paper] = cite("collins2021fedrep")
    head_epochs: int = 10
    layers: int = 1
    own_norms: bool = False

    def __post_init__(self) -> None:
        check_layers("layers", self.layers)
        if self.head_epochs < 0:
            raise ConfigError(
                f"got head_epochs = {self.head_epochs}; expected a whole number of at least 0"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = HeadThenBase(
            layers=self.layers, own_norms=self.own_norms, head_epochs=self.head_epochs
        )
        return plain.replace(local=local)
