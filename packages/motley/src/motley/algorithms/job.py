"""What a local rule or loss may know about the job that it serves, and the tensors that a client
receives and keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from motley.core.layout import Layout
from motley.tasks.task import ModelState

Tensors = Mapping[str, Tensor]
ClientState = Mapping[str, Tensor]
"""Tensors that a client keeps between rounds, by name."""


class PreTrainingSignals(NamedTuple):
    """Signals of the received model, measured before the first local step on all of the client's
    training samples, in eval mode, with the loss that is trained with. Only those that
    :attr:`motley.algorithms.parts.LocalRule.pre_training` names are measured.

    Parameters
    ----------
    loss: mean loss.
    gradient: ``[D]``, gradient of the mean loss; normalization layers use the received statistics.
    """

    loss: float = math.nan
    gradient: Tensor | None = None


class MeasuredFeatures(NamedTuple):
    """Features of a client's training samples, the inputs of a model's last linear layer, in eval
    mode and without augmentation.

    Parameters
    ----------
    features: ``[n, d]``.
    targets: ``[n]``.
    """

    features: Tensor
    targets: Tensor


@dataclass(frozen=True)
class JobContext:
    """What a local rule or loss may know about the job that it serves; it holds no id and no time.

    Parameters
    ----------
    x: ``[D]``, the received model.
    download: all received tensors.
    client_state: what the client kept, None if nothing.
    steps: local steps of this job.
    lr: learning rate used in it.
    num_examples: the client's training samples.
    mean_examples: of all clients that rounds may ask, each known in a simulation alone
    (:attr:`motley.algorithms.parts.LocalRule.compares_sizes`).
    solver_norm: FedNova's ``||a||_1`` of the local solver over these steps; with the proximal term
    of the first phase only in ``finish``.
    layout: positions of the parameters in the flat vector.
    pre_training: signals measured before training.
    measured: features measured before training with the model that
    :meth:`motley.algorithms.parts.LocalRule.measured_model` names; None: none
    are.
    models, values: after local work, the models of the client's own that phases moved, and the
    values of phases; where prototypes are exchanged also ``features`` ``[n, d]`` and ``targets``
    ``[n]`` of the client's samples, in eval mode. Empty before.
    classes: bool ``[C]``, the classes of the client's training samples, where clients train slices
    of the model.
    """

    x: Tensor
    download: Tensors
    client_state: ClientState | None
    steps: int
    lr: float
    num_examples: int
    solver_norm: float
    layout: Layout
    pre_training: PreTrainingSignals = field(default_factory=PreTrainingSignals)
    measured: MeasuredFeatures | None = None
    models: Mapping[str, ModelState] = field(default_factory=dict)
    values: Tensors = field(default_factory=dict)
    classes: Tensor | None = None
    mean_examples: float = math.nan
