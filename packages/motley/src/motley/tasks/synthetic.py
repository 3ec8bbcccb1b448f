"""Synthetic(alpha, beta) of Li et al., MLSys 2020 (arXiv 1812.06127):
``task = { name = "synthetic", alpha = 1, beta = 1 }``.

For client k: ``u ~ N(0, alpha)``, ``B ~ N(0, beta)``; ``v_j ~ N(B, 1)``; ``W_ij, b_i ~ N(u, 1)``; a
sample is ``x ~ N(v, diag(j^-1.2))``, ``y = argmax(W x + b)``. The authors' code passes alpha and
beta as standard deviations (the paper reads as variances; the same for 0 and 1): so does this. They
set no seed, so their numbers cannot be repeated.

(0, 0) is not IID: the W still differ. Sizes are ``floor(lognormal(4, 2)) + 50`` and extreme: one
client can hold four fifths of all samples, and FedAvg's mean accuracy over clients (after 100
rounds about 51 % with uniform weights, 28 % with weights by samples) lies far below FedCVR-Bolt's
72.67. That paper does not
say which sizes it used: run ``sizes = "lognormal"`` and ``"equal"``, and compare methods by paired
differences per seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from motley.core.arrays import Floats, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.side_by_side import side_by_side
from motley.tasks.models import Model, factory
from motley.tasks.task import Dataset, TaskSource

_BLOCK = 4096
"""Clients that a thread draws at a time."""
_AT_ONCE = 2**19
"""Numbers drawn for clients of equal size that are worked on together."""


@dataclass(frozen=True)
class Synthetic(TaskSource):
    """Clients with their own linear rule (alpha) and their own feature mean (beta); natural
    clients.

    Parameters
    ----------
    alpha, beta: standard deviations of ``u`` and ``B``. Synthetic(0, 0) is still not IID: every
    client has its own ``W``.
    iid: the authors' IID variant: ``v = 0`` and one ``W, b ~ N(0, 1)`` for all.
    sizes: ``lognormal``: ``floor(lognormal(4, 2)) + 50`` samples, which is extreme (one client can
        hold most of all samples); ``equal``: ``examples`` each.
    examples: see ``sizes``.
    dim, classes: 60 and 10 in the paper.
    model: a name or record of a model.
    own_test: the first nine tenths of a client's samples (rounded down) are for training, the rest
        is its own test part, as in the authors' code; False: ``split`` decides, as for other data.

    ``partition = "by_writer"`` keeps these clients; any other partition mixes their samples.
    """

    makes_clients: ClassVar[bool] = True

    alpha: float = 1.0
    beta: float = 1.0
    iid: bool = False
    sizes: Literal["lognormal", "equal"] = "lognormal"
    examples: int = 200
    dim: int = 60
    classes: int = 10
    model: str | Mapping[str, Any] | Model = "logistic_regression"
    own_test: bool = True

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0.0 <= value < float("inf"):
                raise ConfigError(
                    f"{name}: got {value}; expected a standard deviation of at least 0"
                )
        for name, least in (("examples", 2), ("dim", 1), ("classes", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: got {getattr(self, name)}; expected at least {least}")

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return all clients' samples, client by client; a client's samples depend on its id
        alone."""
        count = self._sizes(key.fold("sizes"), population)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
        x = np.empty((starts[-1], self.dim), np.float32)
        y = np.empty(starts[-1], np.int64)
        u, centre = (key.fold(name).normal(np.arange(population))[:, 0] for name in ("u", "B"))
        root = key.fold("rule").numpy()
        shared = root.standard_normal((self.dim + 1) * self.classes) if self.iid else None
        means = self.alpha * u, self.beta * centre
        clients = key.fold("client")

        def fill(block: range) -> None:
            rng = clients.numpy()
            beside = 0 if self.iid else self.dim + (self.dim + 1) * self.classes
            for group in _of_equal_size(block, count * self.dim + beside):
                rows = slice(starts[group.start], starts[group.stop])
                own, wanted = self._samples(
                    rng,
                    key=clients,
                    clients=group,
                    count=int(count[group.start]),
                    means=means,
                    shared=shared,
                )
                x[rows] = own.reshape(-1, self.dim)
                y[rows] = wanted.ravel()

        blocks = range(0, population, _BLOCK)
        list(side_by_side(fill, [range(k, min(k + _BLOCK, population)) for k in blocks]))
        client = np.repeat(np.arange(population), count)
        place = np.arange(starts[-1]) - starts[client]
        test = self.own_test & (place >= np.floor(0.9 * count + 1e-6)[client])
        law = "IID" if self.iid else f"({self.alpha:g}, {self.beta:g})"
        note = {
            "data": f"Synthetic {law}, {self.sizes} sizes, largest client {count.max()} of "
            f"{starts[-1]} samples"
        }
        return Dataset(
            x=torch.from_numpy(x),
            y=torch.from_numpy(y),
            classes=self.classes,
            test=test,
            groups=client,
            names=(),
            notes=note,
            generated=True,
        )

    def _sizes(self, key: Key, population: int) -> NDArray[np.int64]:
        if self.sizes == "equal":
            return np.full(population, self.examples, np.int64)
        return np.exp(4.0 + 2.0 * key.normal(np.arange(population))[:, 0]).astype(np.int64) + 50

    def _samples(
        self,
        rng: np.random.Generator,
        key: Key,
        clients: range,
        count: int,
        means: tuple[Floats, Floats],
        shared: Floats | None,
    ) -> tuple[Floats, Ints]:
        """Return the samples ``[n, count, dim]`` and their classes ``[n, count]`` of clients that
        have as many each.

        ``means``: of ``W`` and of ``v``, of all. ``shared``: the numbers of the rule of all.
        A client's numbers come from its own stream: ``v``, then the rule ``[dim + 1, classes]``,
        ``b`` in its last row, then its samples."""
        dim = self.dim
        rule = (dim + 1) * self.classes
        first = 0 if shared is not None else dim + rule
        drawn = np.empty((len(clients), first + count * dim))
        for row, _ in zip(drawn, key.rewound(rng, clients), strict=True):
            rng.standard_normal(out=row)
        own = drawn[:, first:].reshape(-1, count, dim) * np.arange(1, dim + 1) ** -0.6
        if shared is None:
            rows = slice(clients.start, clients.stop)
            weights = drawn[:, dim:first] + means[0][rows, None]
            own += (drawn[:, :dim] + means[1][rows, None])[:, None]
        else:
            weights = np.broadcast_to(shared, (len(clients), rule))
        weights = weights.reshape(-1, dim + 1, self.classes)
        return own, (own @ weights[:, :-1] + weights[:, -1:]).argmax(axis=2)

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        return factory(self.model, (self.dim,), self.classes)


def _of_equal_size(clients: range, numbers: Ints) -> Iterator[range]:
    """Yield these clients in ranges of clients of which as many numbers are drawn each, of at most
    :data:`_AT_ONCE` numbers unless one client has more."""
    first = clients.start
    for k in range(first + 1, clients.stop + 1):
        full = (k - first + 1) * int(numbers[first]) > _AT_ONCE
        if k == clients.stop or full or numbers[k] != numbers[first]:
            yield range(first, k)
            first = k
