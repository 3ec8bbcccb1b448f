"""The model as NVFlare's jobs name it: a class and its arguments."""

from __future__ import annotations

from torch import Tensor, nn
from work import WORKLOADS, network


class Named(nn.Module):
    """The network of a workload, with its initial weights."""

    def __init__(self, workload: str) -> None:
        super().__init__()
        self.network = network(WORKLOADS[workload])

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)
