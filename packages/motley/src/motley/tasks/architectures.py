"""Models of different architectures in one federation: which there are, and which client holds
which.

A client holds its architecture for good. Client k gets the first model that is furthest behind its
share among the clients 0 .. k (:func:`dealt`), so that a client's model depends on its id alone,
and equal shares deal the models in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.tasks.flat import (
    FlatNetwork,
    LossGradient,
    ModelState,
    architecture_of,
    construct,
    layout_of,
    of_architecture,
)


@dataclass(frozen=True)
class Architectures:
    """The architectures of a federation, at least two.

    Parameters
    ----------
    names: of the models, for readers.
    factories: each makes a fresh module.
    layouts: positions of the parameters of each.
    numbers: the number of each client's architecture, int64 ``[K]``; empty where the experiment has
    yet to say.

    Raises
    ------
    ConfigError: fewer than two models, or a number that none of them has.
    """

    names: tuple[str, ...]
    factories: tuple[Callable[[], nn.Module], ...]
    layouts: tuple[Layout, ...]
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        count = len(self.factories)
        if count < 2:
            raise ConfigError(
                f"got {count} model; expected at least two, or a single one as task.model", "models"
            )
        unknown = self.numbers[(self.numbers < 0) | (self.numbers >= count)]
        if len(unknown):
            raise ConfigError(
                f"got {int(unknown[0])} as the number of a client's model; expected 0 to "
                f"{count - 1}",
                "models",
            )

    @classmethod
    def of(
        cls, names: Sequence[str], factories: Sequence[Callable[[], nn.Module]]
    ) -> Architectures:
        """Return the architectures of these models, which nobody holds yet."""
        layouts = tuple(layout_of(construct(factory, 0)) for factory in factories)
        return cls(tuple(names), tuple(factories), layouts)

    def __len__(self) -> int:
        return len(self.factories)


def dealt(share: Sequence[float], clients: int) -> NDArray[np.int64]:
    """Return the number of each client's model ``[K]``: client k gets the model whose count among
    the clients before it is furthest below ``(k + 1) share``, the first of equals.

    >>> dealt([1, 1, 1], 5).tolist(), dealt([0.5, 0.25, 0.25], 8).tolist()
    ([0, 1, 2, 0, 1], [0, 1, 2, 0, 0, 1, 2, 0])
    """
    shares = np.array(share, np.float64) / sum(share)
    counts = np.zeros(len(shares), np.int64)
    numbers = np.zeros(clients, np.int64)
    for k in range(clients):
        behind = np.round((k + 1) * shares - counts, 9)
        numbers[k] = behind.argmax()
        counts[numbers[k]] += 1
    return numbers


@dataclass(frozen=True)
class UnlikeNetwork:
    """The networks of all architectures as one function of a state: that of the state's own.

    Parameters
    ----------
    networks: by number; each has the methods of
    :class:`~motley.algorithms.parts.NetworkFunction`.
    """

    networks: tuple[FlatNetwork, ...]

    def outputs(self, state: ModelState, inputs: Tensor) -> Tensor:
        """See :meth:`motley.algorithms.parts.NetworkFunction.outputs`."""
        return self.networks[architecture_of(state)].outputs(state, inputs)

    def loss_gradient(
        self,
        state: ModelState,
        inputs: Tensor,
        loss: Callable[[Tensor], Tensor],
        training: Key | None = None,
    ) -> LossGradient:
        """See :meth:`motley.algorithms.parts.NetworkFunction.loss_gradient`."""
        number = architecture_of(state)
        slope = self.networks[number].loss_gradient(state, inputs, loss, training)
        return slope._replace(state=of_architecture(slope.state, number))
