"""Which library multiplies the matrices of a stack of linear layers, and its products of many
clients at once.

PyTorch's own products are those of MKL, which on AMD's processors keeps to 256-bit instructions.
The OpenBLAS that NumPy and SciPy bring has kernels of 512 bits for them, and multiplies about twice
as fast where a processor has units of that width (docs/measured.md#routines).
"""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor
from typing_extensions import override

from motley.engines.processor import arithmetic

Library = Literal["torch", "openblas"]
"""A library that multiplies matrices."""

_WIDE_KERNELS = re.compile(r"openblas \S+ (SkylakeX|Cooperlake|Sapphirerapids)")
"""NumPy's OpenBLAS with kernels of 512 bits."""
_WIDE_UNITS = re.compile(r"AuthenticAMD 26 ")
"""Processors of AMD whose units are as wide, by vendor and family: Zen 5. Earlier ones were not
measured."""


@functools.cache
def faster_library() -> Library:
    """Return the library that multiplies float32 matrices faster on this processor, by a rule: what
    is measured would differ from run to run, and the last bits of results with it."""
    machine = arithmetic()
    mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    wide = _WIDE_UNITS.match(machine["processor"]) and _WIDE_KERNELS.match(machine["blas"])
    return "openblas" if mkl and wide else "torch"


class MatrixProducts(ABC):
    """Products of p clients' matrices with B samples each.

    Attributes
    ----------
    few: outputs of the last layer below which they are computed as ``[p, out, B]``.
    """

    library: ClassVar[Library]
    few: ClassVar[float]

    @abstractmethod
    def places(self, memory: Tensor, p: int, width: int, features: int) -> Tensor:
        """Return a view ``[p, width, features]`` of the beginning of ``memory``, in the order in
        which the library writes products fastest."""

    @abstractmethod
    def forward(
        self, first: Tensor, second: Tensor, bias: Tensor | None, out: Tensor | None
    ) -> Tensor:
        """Return ``first @ second + bias``, in ``out`` where it is given.

        Parameters
        ----------
        first, second: inputs ``[p, B, in]`` and weights ``[p, in, out]``, or weights ``[p, out,
            in]`` and inputs ``[p, in, B]``.
        bias: ``[p, 1, out]``, or ``[p, out, 1]``; None: none is added.
        out: from :meth:`places`, ``[p, B, out]``; None: a new tensor.
        """

    @abstractmethod
    def multiply(self, first: Tensor, second: Tensor, out: Tensor) -> None:
        """Write ``first @ second``, ``[p, n, k]`` and ``[p, k, m]``, into ``out`` ``[p, n, m]``,
        which is from :meth:`places`."""

    @abstractmethod
    def add(self, weight: Tensor, first: Tensor, second: Tensor, beta: float, alpha: float) -> None:
        """Write ``beta weight + alpha first @ second`` into the contiguous ``weight``
        ``[p, n, m]``."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let products of the block, which several Python threads may compute, take one thread
        each."""
        yield


class TorchProducts(MatrixProducts):
    """The products of PyTorch, of any type and device.

    A sample's features lie side by side. With the samples of a feature side by side MKL takes four
    times as long for layers of 200 in batches of 10, and no less in batches of 16, 32 or 64; only
    for the few outputs of a last layer it takes less.
    """

    library: ClassVar[Library] = "torch"
    few: ClassVar[float] = 16

    @override
    def places(self, memory: Tensor, p: int, width: int, features: int) -> Tensor:
        return memory[: p * width * features].view(p, width, features)

    @override
    def forward(
        self, first: Tensor, second: Tensor, bias: Tensor | None, out: Tensor | None
    ) -> Tensor:
        if bias is None:
            return torch.bmm(first, second, out=out)
        return torch.baddbmm(bias, first, second, out=out)

    @override
    def multiply(self, first: Tensor, second: Tensor, out: Tensor) -> None:
        torch.bmm(first, second, out=out)

    @override
    def add(self, weight: Tensor, first: Tensor, second: Tensor, beta: float, alpha: float) -> None:
        weight.baddbmm_(first, second, beta=beta, alpha=alpha)


class OpenBlasProducts(MatrixProducts):
    """The products of NumPy's and SciPy's OpenBLAS, of float32 tensors on a CPU, client by client:
    a client's do not depend on who is beside it.

    The samples of a feature lie side by side: with a sample's features side by side the product of
    a layer of 200 takes two and a half times as long in batches of 10 to 20.
    """

    library: ClassVar[Library] = "openblas"
    few: ClassVar[float] = math.inf

    def __init__(self) -> None:
        from scipy.linalg.blas import sgemm  # takes a tenth of the start of every run

        self._add = sgemm
        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers

    @override
    def places(self, memory: Tensor, p: int, width: int, features: int) -> Tensor:
        return memory[: p * width * features].view(p, features, width).mT

    @override
    def forward(
        self, first: Tensor, second: Tensor, bias: Tensor | None, out: Tensor | None
    ) -> Tensor:
        if out is None:
            out = first.new_empty(*first.shape[:2], second.shape[2])
            np.matmul(first.numpy(), second.numpy(), out=out.numpy())
        else:
            self.multiply(first, second, out)
        return out if bias is None else out.add_(bias)

    @override
    def multiply(self, first: Tensor, second: Tensor, out: Tensor) -> None:
        columns, rows, product = (t.numpy().swapaxes(1, 2) for t in (second, first, out))
        np.matmul(columns, rows, out=product)

    @override
    def add(self, weight: Tensor, first: Tensor, second: Tensor, beta: float, alpha: float) -> None:
        # BLAS stores columns: the transposed weights are written, which lie in order
        for client, left, right in zip(
            weight.numpy(), second.mT.numpy(), first.mT.numpy(), strict=True
        ):
            a, transposed_a = _columns(left)
            b, transposed_b = _columns(right)
            self._add(
                alpha,
                a,
                b,
                beta=beta,
                c=client.T,
                trans_a=transposed_a,
                trans_b=transposed_b,
                overwrite_c=True,
            )

    @override
    @contextmanager
    def alone(self) -> Iterator[None]:
        # each of the pool's threads is a core already; and with one thread a product has one order
        # of sums
        before = [library.num_threads for library in self._libraries]
        for library in self._libraries:
            library.set_num_threads(1)
        try:
            yield
        finally:
            for library, count in zip(self._libraries, before, strict=True):
                library.set_num_threads(count)


def _columns(matrix: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return a matrix, or its transpose and True, whose columns lie in order."""
    return (matrix, False) if matrix.flags.f_contiguous else (matrix.T, True)
