"""The weighted mean of all uploads, and that of each cluster's, for a server that keeps a model for
each cluster (IFCA).

An upload says in its part ``cluster`` (int64 ``[1]``) to which of k clusters it belongs. In
addition to :class:`~motley.algorithms.aggregators.mean.Mean`, the total holds

    <part>.<j>  the mean over the uploads of cluster j, for every j that has any
    sizes       int64 [k], how many uploads each cluster has

State: none. Cost: a sum for each cluster beside that of all. Secure aggregation would have to add
within clusters.

>>> import torch
>>> from motley.algorithms.parts import Part, Upload, aggregate
>>> given = ((1.0, 0), (3.0, 1), (5.0, 1))
>>> def upload(d: float, j: int) -> Upload:
...     cluster = Part(torch.tensor([j]), "sum")
...     return Upload({"delta": Part(torch.tensor([d]), "mean"), "cluster": cluster}, 1.0)
>>> total = aggregate(ClusterMeans(k=3), [upload(d, j) for d, j in given], "weight")
>>> {name: value.tolist() for name, value in total.items()}
{'delta': [3.0], 'sizes': [1, 2, 0], 'delta.0': [1.0], 'delta.1': [4.0]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean, Sums
from motley.algorithms.parts import Upload
from motley.algorithms.weights import Divide


@dataclass(frozen=True)
class ClusterMeans(Mean):
    """The weighted mean of all uploads and, under ``<part>.<j>``, of those of each cluster;
    ``sizes`` ``[k]`` counts these."""

    upload_visibility: ClassVar[Literal["sum", "each"]] = "sum"
    plain_sum: ClassVar[bool] = False
    joins: ClassVar[bool] = False
    k: int = 2
    average: Literal["models", "gradients"] = "models"

    @override
    def init(self) -> Any:
        return super().init(), {}

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        everybody, clusters = total
        j = int(upload.parts["cluster"].value.clamp(0, self.k - 1))
        upload = upload._replace(
            parts={name: part for name, part in upload.parts.items() if name != "cluster"}
        )
        clusters[j] = super().add(clusters[j] if j in clusters else super().init(), upload)
        return super().add(everybody, upload), clusters

    @override
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        everybody = total[0].folded() or Sums()
        clusters = {j: tree.folded() for j, tree in total[1].items()}
        out = self.divided(everybody, divide)
        if clusters:
            out["sizes"] = torch.tensor(
                [clusters[j].count if j in clusters else 0 for j in range(self.k)]
            )
        for j, sums in clusters.items():
            if self.average == "gradients":
                sums.weight = everybody.weight
                sums.count = everybody.count
            mean = self.divided(sums, divide)
            out |= {f"{name}.{j}": value for name, value in mean.items()}
        return out
