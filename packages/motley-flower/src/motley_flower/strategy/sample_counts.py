"""How many training samples each client has, as far as its own word on it counts.

The number that a client says at enrolment stays. It counts up to a cap: the client's number in the
file of clients, else ``max_examples``, else ten times the median of what the connected clients say
(:func:`~motley.core.outliers.weight_cap`). No reply to training counts more than that, and no
evaluation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from motley.core.errors import ConfigError
from motley.core.outliers import weight_cap
from motley.core.records import Report
from motley_flower.node_registry import EXAMPLES, NodeRegistry
from motley_flower.strategy.replies import WeightBound

_CAP = ("ten times the median of the connected clients", "the file of clients has")


@dataclass
class SampleCounts:
    """The numbers of samples of one run.

    Parameters
    ----------
    registry: of the nodes.
    key: by which the strategy weighs; None: it does not.
    max_examples: the largest number of any client; None: the clients' median decides.
    observed: by client, the number that the selector knows; NaN where it knows none.
    """

    registry: NodeRegistry
    key: str | None
    max_examples: float | None
    observed: dict[int, float] = field(default_factory=dict)

    def believed(self, clients: Iterable[int]) -> dict[int, float]:
        """Return how many samples each client counts as having; NaN where it never said."""
        return {
            k: cap if self._said(k) > cap else self._said(k)
            for k, cap in self.caps(clients).items()
        }

    def caps(self, clients: Iterable[int]) -> dict[int, float]:
        """Return the largest number of samples that counts of each client; infinite where nothing
        bounds it."""
        listed = self._listed
        most = self.max_examples if self.key in (None, EXAMPLES) else None
        usual = weight_cap([self._said(k) for k in self.registry.node_of]) if most is None else most
        return {client: listed.get(client, usual) for client in clients}

    def changed(self) -> dict[int, float]:
        """Return what the selector must be told: the numbers of connected clients that count
        otherwise than it knows, by client."""
        now = self.believed(self.registry.node_of)
        for client, node in self.registry.node_of.items():
            if now[client] < self._said(client):
                sentence = (
                    f"says that it has {self._said(client):g} samples; more than "
                    f"{_CAP[client in self._listed]} do not count"
                )
                self.registry.places.note(node, "capped", sentence, client)
        now = {k: n for k, n in now.items() if not math.isnan(n) and n != self.observed.get(k)}
        self.observed |= now
        return now

    def counting(self, report: Report) -> Report:
        """Return an enrolment with the number of samples that counts, as :meth:`changed` found it
        last."""
        number = self.observed.get(report.id, report.num_examples)
        signals = {
            name: number if name == "num_examples" else value
            for name, value in report.signals.items()
        }
        return dataclasses.replace(report, num_examples=number, signals=signals)

    def bounds(self, clients: Iterable[int]) -> dict[int, WeightBound]:
        """Return how much the weight counts that each client's reply to training says.

        Raises
        ------
        ConfigError: nothing bounds the weights of most clients, so that one alone could decide the
        model.
        """
        if self.key is None:
            return {}
        clients = list(clients)
        if self.key != EXAMPLES:
            if self.max_examples is None and clients:
                self._unbounded(clients[0])
            return dict.fromkeys(clients, WeightBound(self.max_examples or math.inf))
        return {client: self._bound(client, cap) for client, cap in self.caps(clients).items()}

    def evaluation_bounds(self, clients: Iterable[int]) -> dict[int, WeightBound]:
        """Return how much the weight counts that each client's evaluation says: at most as many
        samples as it enrolled with."""
        clients = list(clients)
        most = self.max_examples or math.inf
        if self.key != EXAMPLES:
            return dict.fromkeys(clients, WeightBound(most))
        caps = self.caps(clients)
        believed = self.believed(clients)
        return {
            k: WeightBound(min(most, caps[k]), caps[k] if math.isnan(believed[k]) else believed[k])
            for k in clients
        }

    @property
    def _listed(self) -> dict[int, float]:
        listed = self.registry.places.listed
        return {} if listed is None else listed.examples

    def _said(self, client: int) -> float:
        return self.registry.enrolled[client].num_examples

    def _bound(self, client: int, cap: float) -> WeightBound:
        if not math.isnan(self._said(client)):
            return WeightBound(self._said(client), cap)
        if self.max_examples is not None:
            return WeightBound(self.max_examples)
        silent = [k for k in self.registry.node_of if math.isnan(self._said(k))]
        if len(silent) >= min(2, self.registry.awaited) and 2 * len(silent) > len(
            self.registry.node_of
        ):
            self._unbounded(client)
        # nobody else is known: any weight will do
        return WeightBound(counts=1.0 if math.isinf(cap) else cap)

    def _unbounded(self, client: int) -> None:
        raise ConfigError(
            f"nothing bounds {self.key!r} of client {client}, by which the strategy weighs its "
            "update; give the largest that a client may have, with_selector(..., "
            f"max_examples=10_000), or let the client app add {EXAMPLES!r} to its answer at "
            "enrolment",
            key="max_examples",
        )
