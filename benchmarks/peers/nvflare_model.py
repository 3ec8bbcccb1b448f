"""The model as NVFlare's jobs name it: a class and its arguments."""

from __future__ import annotations

from torch import Tensor, nn
from work import WORKLOADS, autocast, network


class Named(nn.Module):
    """The network of a workload, with its initial weights."""

    def __init__(self, workload: str, precision: str) -> None:
        super().__init__()
        model = network(WORKLOADS[workload])
        self.network = model if precision == "float32" else autocast(model)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)
