"""Device models: seconds per local step of each client.

A model with ``per = "client"`` draws a client's speed once; with ``per = "round"`` anew each round.

Worked
------
``shifted_exponential``, N = 500, lambda_t = 10: mean 5500 s; the expected maximum of ten clients is
500 + 5000 H_10 = 15,144.84 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import DataError
from motley.core.files import files_digest
from motley.core.keys import Key
from motley.world.draws import (
    Per,
    check_per,
    check_positive,
    check_range,
    key_of,
    log_normal,
    uniform,
)
from motley.world.interfaces import Device
from motley.world.traces import Assign, assigned, check_assign, columns


@dataclass(frozen=True)
class ConstantDevice(Device):
    """Every client needs ``seconds`` per local step; 0 is allowed."""

    follows_examples: ClassVar[bool] = False

    seconds: float = 0.3

    def __post_init__(self) -> None:
        check_positive("seconds", self.seconds, "(seconds per local step)", zero=True)

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        return np.full(len(ids), float(self.seconds))


@dataclass(frozen=True)
class UniformDevice(Device):
    """Uniform in (``low``, ``high``) seconds per local step; U(0.1, 0.5) drawn per client in
    HeteRo-Select v2 and FedCG."""

    follows_examples: ClassVar[bool] = False

    low: float = 0.1
    high: float = 0.5
    per: Per = "client"

    def __post_init__(self) -> None:
        check_range("[low, high]", self.low, self.high, "seconds per local step")
        check_per(self.per)

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        return uniform(key_of(key, self.per, round_index), ids, self.low, self.high)


@dataclass(frozen=True)
class LogNormalDevice(Device):
    """``median * exp(sigma Z)`` seconds per local step: a few very slow clients (FedScale's speeds
    have sigma 0.6)."""

    follows_examples: ClassVar[bool] = False

    median: float = 0.3
    sigma: float = 0.6
    per: Per = "client"

    def __post_init__(self) -> None:
        check_positive("median", self.median, "(seconds per local step)")
        check_positive("sigma", self.sigma, "(of the logarithm)", zero=True)
        check_per(self.per)

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        return log_normal(key_of(key, self.per, round_index), ids, self.median, self.sigma)


@dataclass(frozen=True)
class ShiftedExponential(Device):
    """FLASH's latency: full local work on N samples takes ``a_t N + Exp(mean lambda_t N)`` s, mean
    ``(a_t + lambda_t) N``.

    READING: the paper's Exp(1 / lambda_T N_i) is a rate with N in the denominator. Partial work
    takes its share of the time.

    Parameters
    ----------
    a_t: constant seconds per sample.
    lambda_t: mean of the random seconds per sample (FLASH: 1, 10, 100).
    """

    follows_examples: ClassVar[bool] = True

    a_t: float = 1.0
    lambda_t: float = 10.0
    per: Per = "round"

    def __post_init__(self) -> None:
        check_positive("a_t", self.a_t, "(seconds per sample)", zero=True)
        check_positive("lambda_t", self.lambda_t, "(seconds per sample)", zero=True)
        check_per(self.per)

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        """Return the whole time divided by the full local steps; 0 for a client without work."""
        per_sample = (
            self.a_t + self.lambda_t * key_of(key, self.per, round_index).exponential(ids)[:, 0]
        )
        return np.asarray(per_sample * examples / np.maximum(steps, 1), np.float64)


@dataclass(frozen=True)
class TraceDevice(Device):
    """Measured speeds, constant over time.

    Parameters
    ----------
    file: CSV or Parquet with a row per device and a column ``step_s``, seconds per local step (from
    FedScale's profiles:
        ``3 * batch size * milliseconds per sample / 1000``).
    assign: which client has which row, see :mod:`motley.world.traces`.
    """

    follows_examples: ClassVar[bool] = False

    file: str
    assign: Assign = "in_turn"

    def __post_init__(self) -> None:
        check_assign(self.assign)
        values = self._seconds()
        if not ((values >= 0) & np.isfinite(values)).all():
            raise DataError(f"{self.file}: column 'step_s' must be finite and at least 0 seconds")

    def files_digest(self) -> str:
        """Return a hash of the file's bytes."""
        return files_digest(self.file)

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        values = self._seconds()
        return values[assigned(key, ids, len(values), self.assign)]

    def _seconds(self) -> Floats:
        return columns(self.file, ("step_s",))["step_s"]
