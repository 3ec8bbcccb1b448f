"""The phases of a client's local work: which model moves, which of its parameters, for how long and
along which direction.

Most methods have one phase: the received model takes the job's steps. A method with several says so
in :meth:`motley.algorithms.parts.LocalRule.phases`, and they run one after the other, or beside
each other. Every phase begins with fresh optimizer state, and a proximal term pulls all of them
towards the same model, the one that the client starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from motley.tasks.task import ModelState

RECEIVED = ""
"""The name of the received model among those that phases move."""


@dataclass(frozen=True)
class GradientCorrection:
    """A correction of local steps: ``g`` becomes ``g + proximal (w - x) + offset``, x the received
    model, and after each step of the local optimizer ``w`` becomes ``w - lr drift``.

    Parameters
    ----------
    proximal: a scalar (one per client when clients are batched).
    offset, drift: ``[D]`` or None.
    """

    proximal: float = 0.0
    offset: Tensor | None = None
    drift: Tensor | None = None


class GradientAt(Protocol):
    """The gradient of a batch's mean loss at any weights, in the module of the model that the phase
    moves."""

    def __call__(self, at: Tensor, batch: int = 0, prepared: bool = True) -> Tensor:
        """Return the gradient ``[D]`` at the weights ``at`` ``[D]``, zero where the phase moves
        nothing; ``batch``: which of the step's batches. ``prepared``: whether the loss gets what it
        prepared of the samples; False: it is the one that probes measure."""


class Direction(Protocol):
    """The direction in which a step moves a model, in place of the gradient at it."""

    def __call__(self, gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        """Return the direction ``[D]``.

        Parameters
        ----------
        values: the weights of the models of all phases under way, by name, as they are before the
        step (never changed in place), and the phase's further values, which may be replaced.
        step: number of the step, from 0.
        """


class Passed(NamedTuple):
    """What a model makes of a batch before a step.

    Parameters
    ----------
    losses: of the experiment's own loss ``[B]``.
    outputs: ``[B, C]``.
    features: the inputs of its last linear layer ``[B, d]``; None where the local rule does not say
    that it compares them (:attr:`motley.algorithms.parts.LocalRule.compares_features`).
    targets: of the batch ``[B]``.
    """

    losses: Tensor
    outputs: Tensor
    features: Tensor | None = None
    targets: Tensor | None = None

    def detached(self) -> Passed:
        """Return the same without gradient."""
        features = None if self.features is None else self.features.detach()
        return Passed(self.losses.detach(), self.outputs.detach(), features, self.targets)


class JointLoss(Protocol):
    """The loss of a model that is trained beside others, of what these make of the same batch."""

    def __call__(
        self, own: Passed, others: Mapping[str, Passed], values: dict[str, Tensor]
    ) -> Tensor:
        """Return the per-sample loss ``[B]``.

        Parameters
        ----------
        own: of the model that the phase moves.
        others: of the models of the other phases under way, by name, without gradient.
        values: further values of the phases under way, which may be replaced for the next step,
        once all losses of this one are made.
        """


class FeatureObjective(Protocol):
    """The loss of a phase of its own, of the features of the model that the phase moves."""

    def __call__(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the per-sample loss ``[B]`` of features ``[B, d]`` and targets ``[B]``."""


@dataclass(frozen=True)
class Phase:
    """One stage of a client's local work.

    Parameters
    ----------
    name: of the phase's random streams; phases of the same name take the same batches. Empty: the
    run's own streams.
    model: name of the model that moves, :data:`RECEIVED` or one of the client's own.
    start: the model from which the model begins, or a function of the values under way that returns
    it; None: where an earlier phase left it, the received model as it was received.
    where: names of the parameters that move; None: all. The others get no gradient, decay, momentum
    or write.
    epochs: passes over the client's samples, also a part of one; None: the job's steps.
    lr: learning rate; None: the job's.
    correction: of the gradient in every step.
    direction: what takes the gradient's place; None: the gradient itself.
    values: further tensors that the direction or the joint loss may read and replace, by name.
    batches: batches of a step.
    beside: whether the phase takes its steps together with those of the phase before it, on the
    same batches.
    joint: the loss of a model that learns from the outputs of the others under way; all phases that
    take their steps together have one, or none has.
    common: whether the model that moves has the architecture that clients train in common
    (:attr:`motley.algorithms.parts.LocalRule.trains_common`), in place of their own.
    objective: the loss in place of the method's; its rule reads features
    (:attr:`motley.algorithms.parts.LocalRule.reads_features`).
    still: whether the model stays as it is, in eval mode, while ``direction`` reads gradients.
    reported: whether the client counts the steps of the received model, and reports their losses.

    Example
    -------
    >>> head = Phase(where=frozenset({"2.weight", "2.bias"}), epochs=1)
    >>> base = Phase("base", where=frozenset({"0.weight"}))
    """

    name: str = ""
    model: str = RECEIVED
    start: ModelState | Callable[[Mapping[str, Tensor]], ModelState] | None = None
    where: frozenset[str] | None = None
    epochs: float | None = None
    lr: float | None = None
    correction: GradientCorrection = field(default_factory=GradientCorrection)
    direction: Direction | None = None
    values: Mapping[str, Tensor] = field(default_factory=dict)
    batches: int = 1
    beside: bool = False
    joint: JointLoss | None = None
    common: bool = False
    objective: FeatureObjective | None = None
    still: bool = False
    reported: bool = True


@dataclass(frozen=True)
class Tuning:
    """Plain local training of a client's model on its own training samples before the model is
    examined.

    It belongs to the examination: nothing is sent or kept, no virtual time passes, and training
    goes on from what was before.

    Parameters
    ----------
    epochs, steps: passes over the client's samples, and local steps beside them.
    lr: learning rate; None: the run's own.
    """

    epochs: int = 0
    steps: int = 0
    lr: float | None = None
