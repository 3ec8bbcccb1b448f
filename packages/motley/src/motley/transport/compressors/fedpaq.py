"""FedPAQ: clients send the quantized difference of models after several local steps.

Reisizadeh, Mokhtari, Hassani, Jadbabaie, Pedarsani: *FedPAQ: A Communication-Efficient Federated
Learning Method with Periodic Averaging and Quantization*, AISTATS 2020.

    send Q(w_k - x);   x <- x + 1/M sum_S Q(w_k - x);
    Q the low-precision quantizer of QSGD with one norm for the vector

Assumption of its theory: ``E Q(v) = v`` and ``E ||Q(v) - v||^2 <= q ||v||^2``, here
``q = min(D / s^2, sqrt(D) / s)``.

Deviations and readings
-----------------------
* What is quantized is the difference, never the model. Periodic averaging and random participation
  are the experiment's (``local``, ``selector = "uniform"``, ``weights = "uniform"``); this is its
  quantizer.
* READING ``levels = 1`` is the default: the paper's experiments vary s and name 1 first.

>>> FedPAQ(levels=5).width
(5, 0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import Quantizer
from motley.transport.compressors.qsgd import QSGD
from motley.transport.packet import Codes


@dataclass(frozen=True)
class FedPAQ(Quantizer):
    """QSGD's quantizer with one norm for the whole update; ``levels`` is s."""

    paper: ClassVar[Paper] = cite("reisizadeh2020fedpaq")
    levels: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.levels < 2**24:
            raise ConfigError(
                f"got levels = {self.levels}; expected 1 to 16777215, 1 in the paper's first "
                "experiment"
            )

    @property
    @override
    def width(self) -> tuple[int, int]:
        return self.levels, 0

    @override
    def quantize(self, values: Tensor, group: int | tuple[int, ...], key: Key) -> Codes:
        return QSGD(self.levels, bucket=0).quantize(values, group, key)

    @override
    def refuses_feedback(self, size: int) -> str | None:
        return QSGD(self.levels, bucket=0).refuses_feedback(size)
