"""Robust aggregators, which limit the influence of broken or hostile uploads. ``Delta_k`` below is
the decoded update of client k.

Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates*, ICML 2018 (median, trimmed mean). Blanchard, El Mhamdi, Guerraoui, Stainer:
*Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent*, NeurIPS 2017 (Krum). Sun,
Kairouz, Suresh, McMahan: *Can You Really Backdoor Federated Learning?*, 2019 (norm bounding).

    median           coordinate by coordinate; an even count takes the mean of the two middle values
    trimmed_mean(b)  coordinate by coordinate, without the floor(b M) smallest and largest
    krum(f)          the Delta_k whose M - f - 2 nearest others are nearest (sum of squared
                     distances)
    multi_krum(f, k) the mean of the k best by that score (default k = M - f)
    norm_bound(c)    the mean of Delta_k min(1, c / ||Delta_k||)

Symbols: M uploads of the round, f of which may be hostile. State: none. Cost: all M uploads in
memory at once (M D numbers); Krum M^2 D operations. They need every single upload, which is not
available under secure aggregation.

Deviations and readings
-----------------------
* Unweighted: ``weights = "uniform"`` is asked for, since a client can forge its size. None is
  unbiased.
* With M < 2 f + 3 Krum is not defined: a smaller cohort is refused, and a round in which fewer
  uploads arrive does not change the model.
* Ties are broken by client id. Buffers are aggregated like the update; under norm_bound their plain
  mean is taken.
* INTERPRETATION-R for the constants (b = 0.1).

Worked
------
Delta = (0, 0), (1, 0), (0, 1), (1, 1), (10, 10): mean (2.4, 2.4), median (1, 1), trimmed at b = .2
(.666667, .666667), Krum with f = 1 scores (2, 2, 2, 2, 343), so client 0, multi-Krum with k = 4
(.5, .5).

>>> import torch
>>> from motley.algorithms.parts import Part, Upload, aggregate
>>> uploads = [Upload({"delta": Part(torch.tensor([d]), "mean")}, 1.0) for d in (0.0, 1.0, 50.0)]
>>> aggregate(Median(), uploads, "weight")["delta"].tolist()
[1.0]
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import Aggregator, Algorithm, Part, Upload, aggregate
from motley.algorithms.weights import Divide
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.rounding import rounded

YIN_2018 = cite("yin2018byzantine")
BLANCHARD_2017 = cite("blanchard2017krum")
SUN_2019 = cite("sun2019backdoor")
_BLOCK = 1 << 18
"""Number of coordinates that are sorted at once."""


class _Robust(Aggregator):
    """The base of the robust aggregators: uniform weights and plain updates."""

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        name = type(self).__name__
        if weights != "uniform":
            return (
                f"{name} weighs all clients alike, since a size can be forged; got weights = "
                f'"{weights}", use "uniform"'
            )
        more = sorted(algorithm.local.uploads - {"delta"})
        if more:
            return (
                f"{name} compares plain updates, but {type(algorithm.local).__name__} "
                f"also uploads {', '.join(more)}; use mean"
            )
        return None


class _Collecting(_Robust):
    """An aggregator that needs all uploads at once; weights and ``divide`` are ignored."""

    @override
    def init(self) -> Any:
        return []

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        total.append(upload)
        return total

    @override
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        return self.combine(total) if len(total) >= self.least else {}

    @abstractmethod
    def combine(self, uploads: Sequence[Upload]) -> dict[str, Tensor]:
        """Return the totals by part name of at least ``least`` uploads."""


class _Coordinates(_Collecting):
    """A robust aggregator that treats every coordinate alone."""

    compares: ClassVar[bool] = True

    @abstractmethod
    def middle(self, ranked: Tensor) -> Tensor:
        """Reduce ``[M, n]``, sorted along the clients, to ``[n]``."""

    def combine(self, uploads: Sequence[Upload]) -> dict[str, Tensor]:
        """Apply :meth:`middle` to every part but counters, in blocks of coordinates."""
        total = {}
        for name, (first, fold, _) in uploads[0].parts.items():
            rows = [upload.parts[name].value for upload in uploads]
            if fold == "max":
                total[name] = torch.stack(rows).amax(0)
                continue
            pieces = [
                self.middle(
                    torch.stack([row[at : at + _BLOCK] for row in rows]).double().sort(0).values
                )
                for at in range(0, len(first), _BLOCK)
            ]
            total[name] = torch.cat(pieces) if pieces else first.double()
        return total


@dataclass(frozen=True)
class Median(_Coordinates):
    """The median of every coordinate."""

    paper: ClassVar[Paper | None] = YIN_2018

    @override
    def middle(self, ranked: Tensor) -> Tensor:
        half = len(ranked) // 2
        return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


@dataclass(frozen=True)
class TrimmedMean(_Coordinates):
    """The mean of every coordinate without its extremes: option ``trim`` (the share left out at
    either end, 0.1)."""

    paper: ClassVar[Paper | None] = YIN_2018
    trim: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise ConfigError(f"got trim = {self.trim}; expected at least 0 and less than 0.5")

    def _cut(self, uploads: int) -> int:
        """Return how many uploads are left out at either end."""
        return int(self.trim * uploads + 1e-6)

    @override
    def is_mean_of(self, uploads: int) -> str | None:
        if self.trim == 0 or self._cut(uploads):
            return None
        least = math.ceil(100 / uploads) / 100
        mend = f"write trim = {least:g}" if least < 0.5 else "ask more clients"
        return f"trim = {self.trim:g} leaves out none of {uploads} uploads; {mend}"

    @override
    def middle(self, ranked: Tensor) -> Tensor:
        cut = self._cut(len(ranked))
        return ranked[cut : len(ranked) - cut].mean(0)


@dataclass(frozen=True)
class Krum(_Collecting):
    """The upload that is nearest to the others: option ``f`` (1), the number of uploads that may be
    hostile."""

    paper: ClassVar[Paper | None] = BLANCHARD_2017
    f: int = 1

    def __post_init__(self) -> None:
        if self.f < 0:
            raise ConfigError(f"got f = {self.f}; expected at least 0")

    @property
    @override
    def least(self) -> int:
        return 2 * self.f + 3

    def scores(self, updates: Tensor) -> Tensor:
        """Return each update's sum of squared distances to its ``M - f - 2`` nearest others:
        ``[M, D]`` to ``[M]``, M at least ``2 f + 3``."""
        count = len(updates)
        square = torch.stack([(updates - update).square().sum(1) for update in updates])
        square.fill_diagonal_(torch.inf)
        return square.sort(1).values[:, : count - self.f - 2].sum(1)

    def kept(self, count: int) -> int:
        """Return how many of ``count`` uploads are averaged, those with the lowest scores; ties by
        client id."""
        return 1

    @override
    def combine(self, uploads: Sequence[Upload]) -> dict[str, Tensor]:
        updates = torch.stack([upload.parts["delta"].value for upload in uploads]).double()
        scores = rounded(self.scores(updates).cpu().numpy())
        chosen = sorted(np.argsort(scores, kind="stable")[: self.kept(len(uploads))].tolist())
        return aggregate(Mean(), (uploads[i]._replace(weight=1.0) for i in chosen), "weight")


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the ``k`` uploads that are nearest to the others (None: all but f)."""

    k: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k < 1:
            raise ConfigError(f"got k = {self.k}; expected at least 1, or none for all but f")

    @override
    def kept(self, count: int) -> int:
        return count - self.f if self.k is None else self.k

    @override
    def is_mean_of(self, uploads: int) -> str | None:
        if self.k is None or self.k < uploads:
            return None
        return f"k = {self.k} averages all of {uploads} uploads; write at most k = {uploads - 1}"


@dataclass(frozen=True)
class NormBound(_Robust):
    """The mean of updates shortened to the length ``c``, which depends on the model and has no
    default."""

    paper: ClassVar[Paper | None] = SUN_2019
    c: float

    def __post_init__(self) -> None:
        if not 0 < self.c < float("inf"):
            raise ConfigError(f"got c = {self.c}; expected a positive length")

    @override
    def init(self) -> Any:
        return Mean().init()

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        delta = upload.parts["delta"].value
        length = float(delta.double().norm())
        factor = 1.0 if length <= self.c else self.c / length
        parts = {**upload.parts, "delta": Part(delta * factor, "mean")}
        return Mean().add(total, Upload(parts, 1.0, upload.scale))

    @override
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        return Mean().finish(total, "weight")
