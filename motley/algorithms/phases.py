"""The phases of a client's local work: which model moves, which of its parameters, for how long and along which direction.

Most methods have one phase: the received model takes the job's steps. A method with several says so in
:meth:`motley.algorithms.base.Correction.phases`, and they run one after the other. Every phase begins with fresh optimiser state,
and a proximal term pulls all of them towards the same model, the one that the client starts from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from motley.tasks.base import ModelState

__all__ = ["RECEIVED", "GradientCorrection", "Phase", "Tuning"]

RECEIVED = ""
"""The name of the received model among those that phases move."""


@dataclass(frozen=True)
class GradientCorrection:
    """A correction of the local gradient: ``g`` becomes ``g + proximal (w - x) + offset``, x the received model.

    Parameters
    ----------
    proximal: a scalar (one per client when clients are batched). offset: ``[D]`` or None.
    """

    proximal: float = 0.0
    offset: Tensor | None = None


@dataclass(frozen=True)
class Phase:
    """One stage of a client's local work.

    Parameters
    ----------
    name: of the phase's random streams; phases of the same name take the same batches. Empty: the run's own streams.
    model: name of the model that moves, :data:`RECEIVED` or one of the client's own.
    start: the model from which a model of the client's own begins; None: where an earlier phase left it.
    where: names of the parameters that move; None: all. The others get no gradient, decay, momentum or write.
    epochs: passes over the client's samples; None: the job's steps.
    correction: of the gradient in every step.

    Example
    -------
    >>> head, base = Phase(where=frozenset({"2.weight", "2.bias"}), epochs=1), Phase("base", where=frozenset({"0.weight"}))
    """

    name: str = ""
    model: str = RECEIVED
    start: ModelState | None = None
    where: frozenset[str] | None = None
    epochs: int | None = None
    correction: GradientCorrection = field(default_factory=GradientCorrection)


@dataclass(frozen=True)
class Tuning:
    """Plain local training of a client's model on its own training samples before the model is examined.

    It belongs to the examination: nothing is sent or kept, no virtual time passes, and training goes on from what was before.

    Parameters
    ----------
    epochs, steps: passes over the client's samples, and local steps beside them. lr: learning rate; None: the run's own.
    """

    epochs: int = 0
    steps: int = 0
    lr: float | None = None
