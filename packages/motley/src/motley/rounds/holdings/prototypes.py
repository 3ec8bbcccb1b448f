"""Prototypes of classes in a run: what a client's upload of them costs, and clients examined by the
nearest prototype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import UPDATES, Prototypes
from motley.core.arrays import Bools, Ids
from motley.engines.engine import DataView, Evaluator
from motley.rounds.channel import Channel
from motley.rounds.holdings.holding import Bits, Holding, View
from motley.tasks.task import Federation, ModelState
from motley.transport.ledger import VALUE_BITS
from motley.transport.packet import PacketSpec


def own_classes(federation: Federation, ids: Ids, view: DataView | None = None) -> Bools:
    """Return which classes each client has among the training samples that it sees, ``[n, C]``,
    wrong labels included.

    ``view``: the clients' data views; None: they see all their samples."""
    labels = federation.labels.cpu().numpy()
    train = federation.train
    present = np.zeros((len(ids), federation.classes or 0), bool)
    for i, (begin, size, seen) in enumerate(
        zip(train.offsets[ids], train.sizes[ids], federation.seen[ids], strict=True)
    ):
        first = 0 if view is None else int(view.first[i])
        own = labels[begin + (first + np.arange(seen)) % max(size, 1)]
        present[i, own if view is None or view.names is None else view.names[i, own]] = True
    return present


class HeldPrototypes(Holding):
    """Rows for each of a client's own classes, beside what else an upload has; counts that are not
    sent as numbers say which classes there are, a bit each."""

    @override
    def bits_up(self, channel: Channel, ids: Ids, round: int, view: View, full_bits: Bits) -> Bits:
        exchanged = self.setting.algorithm.local.prototypes or Prototypes()
        classes, width = channel.parts["sums"].value.shape
        by_class = {*exchanged.rows, "counts"}
        beside = {name: spec for name, spec in channel.specs.items() if name not in by_class}
        counts = own_classes(self.setting.task.federation, ids, view).sum(1)
        bits = [
            channel.upload_of(other_specs=beside | _specs(own, classes, width, exchanged))
            for own in counts.tolist()
        ]
        values = len(exchanged.rows) * width + exchanged.counted
        other_bits = sum(
            channel.specs[name].values_bits()
            for name in beside
            if channel.parts[name].fold in UPDATES
        )
        return np.array(bits, np.int64), other_bits + VALUE_BITS * counts * values


def _specs(own: int, classes: int, width: int, exchanged: Prototypes) -> dict[str, PacketSpec]:
    """Return how the parts by class of a client with so many classes of its own are written; the
    places of the counts are those of all rows."""
    if exchanged.counted:
        places = PacketSpec(classes, own, "indices")
    else:
        places = PacketSpec(classes, classes, coding="codes32")
    rows = PacketSpec(own * width, own * width)
    return {**dict.fromkeys(exchanged.rows, rows), "counts": places}


class NearestPrototype:
    """Says of a sample the class whose prototype is nearest to its feature.

    ``loss`` is the mean squared distance to the prototype of the sample's class, of zeros where
    that class has none.

    Parameters
    ----------
    evaluator: gives features.
    federation: of the run.
    prototypes: ``[C, d]``, zeros for a class without one.
    """

    def __init__(self, evaluator: Evaluator, federation: Federation, prototypes: Tensor) -> None:
        self.evaluator = evaluator
        self.federation = federation
        self.prototypes: NDArray[Any] = prototypes.double().cpu().numpy()

    def evaluate(
        self,
        model: ModelState,
        rows: Ids,
        labels: Ids | None = None,
        want: frozenset[str] = frozenset({"hit"}),
        sizes: Ids | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return ``loss`` and ``hit`` of each sample."""
        targets = (
            self.federation.y[torch.from_numpy(rows)].cpu().numpy() if labels is None else labels
        )
        want = frozenset({"features"})
        measured = self.evaluator.evaluate(model, rows, labels, want, sizes=sizes)
        features = measured["features"].astype(np.float64)
        far = np.stack(
            [np.square(features - prototype).mean(1) for prototype in self.prototypes], 1
        )
        defined = self.prototypes.any(1)
        nearest = np.where(defined, far, np.inf).argmin(1)
        return {
            "loss": far[np.arange(len(rows)), targets],
            "hit": (nearest == targets).astype(np.float64),
        }


def joined(rows: Mapping[str, Any], more: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return rows of the table ``evaluations`` with further ones, whose scopes begin with
    ``whose``."""
    scopes = [*rows["scope"], *(f"{whose}_{scope}" for scope in more["scope"])]
    return {
        name: scopes if name == "scope" else np.concatenate([rows[name], more[name]])
        for name in rows
    }
