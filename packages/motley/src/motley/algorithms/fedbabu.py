"""FedBABU: clients train the base under a head that never moves, and fine-tune the whole model
before it is used.

Oh, Kim, Yun: *FedBABU: Toward Enhanced Representation for Federated Image Classification*, ICLR
2022 (arXiv:2106.06042).

    server    holds, averages and sends the base
    client k  b <- b - lr grad_b F(b, h; batch);  sends b
              h the initial model's head, for all clients
    examined  (b, h), the shared model, and for each client (b, h) after ``tune_epochs`` on its
              own training samples

Symbols: b the base, h the head: the last ``layers`` linear layers and what lies between them.
State: none; a client holds the initial head. Traffic: the base, both ways. Fine-tuning belongs to
the examination: it takes no virtual time and nothing goes on from it.

Deviations and readings
-----------------------
* INTERPRETATION-D the initial head is not billed: every client draws it from the run's seed, as it
  does the initial model.
* Fine-tuning moves base and head with the run's own optimizer and learning rate, from the average
  (not from the client's last model).
* With ``own_norms`` clients keep BatchNorm, too, as under FedBN; there is no shared model then.
* Any weights, by default ``uniform``, as in the authors' code.
* Without a head (``layers = 0``) training is plain averaging, bit for bit.

Worked
------
Toy B (docs/methods/algorithms.md#personalisation): new base 1.1, head 2 bit for bit; one epoch of
fine-tuning at y = 4 gives b = 1.46, h = 2.198.

>>> from motley.algorithms.fedbabu import FedBABU
>>> FedBABU().tune_epochs
5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.fedper import PersonalHead
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Phase,
    Tuning,
)
from motley.algorithms.personal import batch_norm_of, check_layers
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class FrozenHead(PersonalHead):
    """Local training of the base alone, under the initial model's head, which all clients have and
    nobody sends."""

    shared: ClassVar[bool] = True

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        head = self.own_entries(self.layout)
        if not head:
            return super().phases(context)
        return (
            Phase(where=frozenset(entry.name for entry in self.layout if entry.name not in head)),
        )

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        """Return the change of the base, and the head as it was, which all clients hold in one
        copy."""
        parts, head = super().finish(after, context)
        return parts, context.client_state or head


@dataclass(frozen=True)
class OwnNormsAndFrozenHead(FrozenHead):
    """Local training of the base under a fixed head, in which every client keeps its own
    BatchNorm."""

    shared: ClassVar[bool] = False

    @override
    def bound(self, layout: Layout) -> LocalRule:
        if batch_norm_of(layout):
            return super().bound(layout)
        return FrozenHead(layers=self.layers).bound(layout)

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        return PersonalHead.finish(self, after, context)


@dataclass(frozen=True)
class FedBABU(Method):
    """Averaging of a base that is trained under a fixed head: options ``tune_epochs`` (5) of
    fine-tuning before a client's model is examined, and ``layers`` (1) of the head; with
    ``own_norms`` clients keep BatchNorm."""

    paper: ClassVar[Paper] = cite("oh2022fedbabu")
    tune_epochs: int = 5
    layers: int = 1
    own_norms: bool = False

    def __post_init__(self) -> None:
        check_layers("layers", self.layers)
        if self.tune_epochs < 0:
            raise ConfigError(
                f"got tune_epochs = {self.tune_epochs}; expected a whole number of at least 0"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local: FrozenHead = FrozenHead(layers=self.layers)
        if self.own_norms:
            local = OwnNormsAndFrozenHead(layers=self.layers, own_norms=True)
        return plain.replace(local=local, tuning=Tuning(epochs=self.tune_epochs), weights="uniform")
