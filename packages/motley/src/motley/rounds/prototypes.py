"""Prototypes of classes in a run: what a client's upload of them costs, and clients examined by the
nearest prototype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.arrays import Bools, Ids
from motley.engines.base import DataView
from motley.rounds.channel import Channel
from motley.tasks.base import Federation, ModelState
from motley.transport.packet import PacketSpec
from motley.transport.wire import length

__all__ = ["Evaluator", "NearestPrototype", "PrototypeSizes", "joined", "own_classes"]


def own_classes(federation: Federation, ids: Ids, view: DataView | None = None) -> Bools:
    """Return which classes each client has among the training samples that it sees, ``[n, C]``,
    wrong labels included.

    ``view``: the clients' data views; None: they see all their samples."""
    labels = federation.labels.cpu().numpy()
    train = federation.train
    found = np.zeros((len(ids), federation.classes or 0), bool)
    for i, (begin, size, seen) in enumerate(
        zip(train.offsets[ids], train.sizes[ids], federation.seen[ids], strict=True)
    ):
        first = 0 if view is None else int(view.first[i])
        own = labels[begin + (first + np.arange(seen)) % max(size, 1)]
        found[i, own if view is None or view.names is None else view.names[i, own]] = True
    return found


class PrototypeSizes:
    """The uploads of clients that send a prototype for each of their own classes.

    Parameters
    ----------
    federation: of the run. channel: knows the parts of a whole upload: ``sums`` ``[C, d]`` and
    ``counts`` ``[C]``; counts of whole numbers only say which classes there are, a bit each.
    """

    def __init__(self, federation: Federation, channel: Channel) -> None:
        self.federation = federation
        parts = channel.parts
        self._classes, self._width = parts["sums"].value.shape
        self._counted = parts["counts"].value.is_floating_point()

    def upload_bits(self, ids: Ids, view: DataView | None) -> tuple[Ids, Ids]:
        """Return the bits of each upload, and these as papers count them, ``[n]`` each. ``view``:
        the clients' data views."""
        counts = own_classes(self.federation, ids, view).sum(1)
        bits = [8 * length(self._specs(count)) for count in counts.tolist()]
        return np.array(bits, np.int64), 32 * counts * (self._width + self._counted)

    def _specs(self, own: int) -> dict[str, PacketSpec]:
        """Return how the upload of a client with so many classes is written; the places of the
        counts are those of the sums."""
        places = (
            PacketSpec(self._classes, own, "indices")
            if self._counted
            else PacketSpec(self._classes, self._classes, coding="codes32")
        )
        return {"sums": PacketSpec(own * self._width, own * self._width), "counts": places}


class Evaluator(Protocol):
    """What measures the samples of one model, as :meth:`motley.engines.base.Engine.evaluate`
    does."""

    def evaluate(
        self,
        model: ModelState,
        rows: Ids,
        labels: Ids | None = None,
        want: frozenset[str] = frozenset({"hit"}),
    ) -> dict[str, NDArray[Any]]:
        """Return ``loss`` and the wanted quantities of each sample."""


class NearestPrototype:
    """Says of a sample the class whose prototype is nearest to its feature.

    ``loss`` is the mean squared distance to the prototype of the sample's class, of zeros where
    that class has none.

    Parameters
    ----------
    evaluator: gives features. federation: of the run. prototypes: ``[C, d]``, zeros for a class
    without one.
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
    ) -> dict[str, NDArray[Any]]:
        """Return ``loss`` and ``hit`` of each sample."""
        targets = (
            self.federation.y[torch.from_numpy(rows)].cpu().numpy() if labels is None else labels
        )
        features = self.evaluator.evaluate(model, rows, labels, frozenset({"features"}))[
            "features"
        ].astype(np.float64)
        far = np.stack([np.square(features - one).mean(1) for one in self.prototypes], 1)
        known = self.prototypes.any(1)
        nearest = np.where(known, far, np.inf).argmin(1)
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
