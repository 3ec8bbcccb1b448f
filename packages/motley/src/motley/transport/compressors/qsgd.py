"""QSGD: every value is rounded to one of a few levels, up or down at random so that the result is
unbiased.

Alistarh, Grubic, Li, Tomioka, Vojnovic: *QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding*, NeurIPS 2017.

    Q(v)_i = n sgn(v_i) xi_i,   r_i = s |v_i| / n,   n = ||v||_2,
    xi_i = (floor(r_i) + Bernoulli(r_i - floor(r_i))) / s
    E Q(v) = v,   variance (n^2 / s^2) sum f_i (1 - f_i),  f_i = frac(r_i),
    at most min(N / s^2, sqrt(N) / s) ||v||^2

Symbols: ``s`` levels; N values of a bucket, each with its own norm. State: none.
On the wire: 1 + ceil(log2(s + 1)) bits per value and 32 per bucket, always; Elias codes are
estimates (``benchmarks/estimates.py``), their length depends on values.

Deviations and readings
-----------------------
* Norms are rounded up to 32 bits, so that r_i <= s holds of the number that travels; a bucket of
  one is exact.
* ``norm = "max"``: the largest absolute value in place of the Euclidean norm, as several
  implementations have it.
* Under error feedback one norm must be for less than 4 s^2 values, or the feedback is refused: the
  variance is at most N / (4 s^2) ||v||^2, since f (1 - f) <= 1/4, and reaches ||v||^2 where 4 s^2
  values are equal and the others 0, so that residuals grow.
* INTERPRETATION ``levels = 127`` (8 bits a value) and ``bucket = 512`` are the defaults;
  ``bucket = 0`` is one norm for all.

Worked
------
Bits a value at s = 1, 4, 15, 255: 2, 4, 5, 9. v = (3, -4, 0, 1), n = 5.099020: variance 14.792156
at s = 1 (bound 52), .839215 at s = 4 (bound 6.5). Elias codes are shorter where most values are 0
(N = 10^6, s = 1: 19,498 bits, INTERPRETATION-R).

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Layout
>>> values = torch.tensor([0.0, -2.0])
>>> QSGD(levels=4, bucket=0).compress(values, 1.0, Layout(()), Key(0)).dense().tolist()
[0.0, -2.0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.core.errors import CodecError, ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import Quantizer, coins
from motley.transport.packet import Codes, group_sizes


@dataclass(frozen=True)
class QSGD(Quantizer):
    """Random rounding to ``levels`` levels on either side of zero.

    Parameters
    ----------
    levels: s.
    bucket: number of values that share a norm, 0: all.
    norm: of a bucket.
    """

    paper: ClassVar[Paper] = cite("alistarh2017qsgd")
    levels: int = 127
    bucket: int = 512
    norm: Literal["l2", "max"] = "l2"

    def __post_init__(self) -> None:
        if not 1 <= self.levels < 2**24:
            raise ConfigError(
                f"got levels = {self.levels}; expected 1 to 16777215, e.g. 127 for 8 bits a value"
            )
        if self.bucket < 0:
            raise ConfigError(
                f"got bucket = {self.bucket}; expected the number of values per norm, or 0 for one "
                "norm"
            )
        if self.norm not in ("l2", "max"):
            raise ConfigError(f"got norm = {self.norm!r}; expected 'l2' or 'max'")

    @property
    @override
    def width(self) -> tuple[int, int]:
        return self.levels, self.bucket

    @override
    def quantize(self, values: Tensor, group: int | tuple[int, ...], key: Key) -> Codes:
        sizes = group_sizes(len(values), group).tolist()
        rows = _rows(values, sizes)
        if self.norm == "max":
            if isinstance(rows, list):
                scales = torch.stack([row.abs().amax(-1) for row in rows])
            else:
                scales = rows.abs().amax(-1)
        else:
            if isinstance(rows, list):
                exact = [torch.linalg.vector_norm(row, dim=-1, dtype=torch.float64) for row in rows]
            else:
                exact = None
            if exact:
                norms = torch.stack(exact)
            else:
                norms = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
            scales = _up(norms, values.dtype)
        return rounded(values, scales, self.levels, group, key=key)

    @override
    def refuses_feedback(self, size: int) -> str | None:
        values = min(self.bucket or size, size)
        if self.norm == "l2" and values >= 4 * self.levels**2:
            return (
                f"levels = {self.levels} with one norm for {values} values can round off more than "
                "the update holds, and under error feedback the residual would grow without "
                f'bound; set levels = {math.isqrt(values) // 2 + 1} or more, or feedback = "none"'
            )
        return None


def _rows(values: Tensor, sizes: list[int]) -> Tensor | list[Tensor]:
    """Return the buckets as rows, the last padded with zeros; a list of buckets where their sizes
    differ otherwise."""
    if not sizes:
        return values.new_zeros(0, 1)
    if any(n != sizes[0] for n in sizes[:-1]) or sizes[-1] > sizes[0]:
        return list(torch.split(values, sizes))
    short = sizes[0] * len(sizes) - len(values)
    if short:
        return torch.cat([values, values.new_zeros(short)]).view(len(sizes), -1)
    return values.view(len(sizes), -1)


def _up(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the nearest numbers of ``dtype`` that are not smaller."""
    near = exact.to(dtype)
    up = torch.where(
        # Never below: a value over its norm is a probability, and must not exceed 1.
        near.double() < exact,
        torch.nextafter(near, torch.full_like(near, torch.inf)),
        near,
    )
    if not torch.isfinite(up).all():
        raise CodecError("the norm of an update does not fit a number of its own dtype")
    return up


def rounded(
    values: Tensor, scales: Tensor, levels: int, group: int | tuple[int, ...], key: Key
) -> Codes:
    """Return ``levels |value| / scale``, rounded up or down at random without bias;
    ``|value| <= scale``, a scale of 0 gives 0."""
    sizes = group_sizes(len(values), group)
    safe = torch.where(scales > 0, scales, torch.ones_like(scales))
    if len(sizes) <= 1:
        each = safe
    else:
        each = torch.repeat_interleave(safe, torch.from_numpy(sizes), output_size=len(values))
    r = values.abs()
    r = (r.div_(each) if len(values) else r).mul_(levels)
    q = r.floor()
    r -= q
    q += torch.from_numpy(coins(key, len(values))) < r
    q.clamp_(max=levels).mul_(values.sign())
    if levels < 2**7:
        return Codes(q.to(torch.int8), levels, scales, group)
    return Codes(q.to(torch.int16 if levels < 2**15 else torch.int32), levels, scales, group)
