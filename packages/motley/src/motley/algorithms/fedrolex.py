"""FedRolex: clients of less capacity train a window of units that moves on by one in every round,
so that all units are trained.

Alam, Liu, Yan, Zhang: *FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction*, NeurIPS 2022 (arXiv:2212.01548).

    client k  of width r holds in round t (from 0) rows {t mod n, ..., (t + s - 1) mod n} of a layer
              of n units, s = ceil(r n), and the columns of the rows kept before it; otherwise as
              in HeteroFL
    server    each coordinate moves by the mean over the clients that hold it, as in HeteroFL

Symbols: as in :mod:`motley.algorithms.heterofl`, with the same weights, by default ``uniform``;
inputs and classes never roll. All clients of a round share t, the number of server steps made
before it. Needs: ``capacity``, and a server that waits for a round. State: none. Traffic: the
slice, both ways.

Deviations: the direction is the paper's, the rounding is upwards as in the authors' code. BatchNorm
is static as under HeteroFL.

>>> from motley.algorithms.fedrolex import Rolling
>>> [Rolling().slicing.offset(version) for version in range(3)]
[0, 1, 2]
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.parts import Algorithm, Method, Slicing
from motley.algorithms.sliced import AbsentRows, SlicedTraining, check_rows, masked
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class Rolling(SlicedTraining):
    """Local training of a slice whose first unit is the number of the model's version."""

    @property
    @override
    def slicing(self) -> Slicing:
        return dataclasses.replace(super().slicing, rolls=True)


@dataclass(frozen=True)
class FedRolex(Method):
    """Averaging of rolling slices: in each round a client trains as many units of every layer as it
    can hold, one further on.

    Parameters
    ----------
    mask: whether classes that a client lacks are masked in its loss and its last layer.
    absent_rows: whether the last layer's rows of these classes count where ``mask`` is false
    (``as_mask``), or are ``left_out`` all the same.
    """

    paper: ClassVar[Paper] = cite("alam2022fedrolex")
    mask: bool = True
    absent_rows: AbsentRows = "as_mask"

    def __post_init__(self) -> None:
        check_rows(self.mask, self.absent_rows)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        loss, mask = masked(plain, self.mask, self.absent_rows)
        return plain.replace(loss=loss, local=Rolling(mask=mask), weights="uniform")
