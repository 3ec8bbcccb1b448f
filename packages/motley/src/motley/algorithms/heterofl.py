"""HeteroFL: clients of less capacity train the first units of every layer, and each coordinate is
averaged over those who hold it.

Diao, Ding, Tarokh: *HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients*, ICLR 2021 (arXiv:2010.01264).

    client k  of width r holds rows {0, ..., ceil(r n) - 1} of a layer of n units, and the
              columns of the rows kept before it;
              trains it with hidden activations divided by r; delta_k = after - before
    server    x_c <- x_c + (sum over clients k that hold c of a_k delta_kc)
                     / (sum over the same clients of a_k)

Symbols: c a coordinate, a_k the raw weight: 1 by default (``uniform``, as published), n_k
under ``examples``. With ``mask``, the outputs of classes that a client lacks are 0 in its loss, and
the last layer's rows of these classes are not counted among those it holds. Needs: ``capacity``;
without it every client has the width 1.
State: none. Traffic: the slice, both ways; positions are free, for both sides know the width.

BatchNorm is static: it uses the statistics of the batch in training, and cumulative ones, collected
by the clients before an examination, in evaluation.

Deviations: every width has statistics of its own in evaluation, where nothing is masked. The server
knows which classes a client has, as in the authors' code; this is not billed. Rows of absent
classes are sent, and do not count.

``mask = false`` counts the rows of absent classes, unless ``absent_rows`` leaves them out.
Published: SGD .1 (MNIST .01), times .1 at half of the rounds (CIFAR-10: at 3/8 and 5/8), momentum
.9, decay 5e-4, norm clipped to 1, batches of 10, 5 epochs, widths 1, 1/2, 1/4, 1/8, 1/16.

Worked
------
Logits (2, 5), the first class alone present: log(1 + e^-2) = 0.126928. W1 = (2, 3), W2 = (1, 1),
input 1, linear, r = 1/2: the slice gives 4 in training and 2 in evaluation, the whole model 5.

>>> from motley.algorithms.heterofl import HeteroFL
>>> HeteroFL()
HeteroFL(mask=True, absent_rows='as_mask')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.sliced import AbsentRows, SlicedTraining, check_rows, masked
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class HeteroFL(Method):
    """Averaging of nested slices: each client trains the first units of every layer, as many as it
    can hold.

    Parameters
    ----------
    mask: whether classes that a client lacks are masked in its loss and its last layer.
    absent_rows: whether the last layer's rows of these classes count where ``mask`` is false
    (``as_mask``), or are ``left_out`` all the same.
    """

    paper: ClassVar[Paper] = cite("diao2021heterofl")
    mask: bool = True
    absent_rows: AbsentRows = "as_mask"

    def __post_init__(self) -> None:
        check_rows(self.mask, self.absent_rows)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        loss, mask = masked(plain, self.mask, self.absent_rows)
        return plain.replace(loss=loss, local=SlicedTraining(mask=mask), weights="uniform")
