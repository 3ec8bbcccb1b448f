"""Engines: they compute the local training of clients, client by client, in batches, on threads
or processes; the distribution ``motley-ray`` adds a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motley.core.components import Catalogue

if TYPE_CHECKING:
    from motley.engines.engine import Setting

__all__ = ["ENGINES", "resolve_auto"]

ENGINES = Catalogue(
    "engine",
    {
        "sequential": "motley.engines.local:Sequential",
        "batched": "motley.engines.batched:Batched",
        "vmap": "motley.engines.batched:Vmap",
        "threads": "motley.engines.local:Threads",
        "debug": "motley.engines.local:Debug",
        "processes": "motley.engines.processes:Processes",
    },
    base="motley.engines.engine:Engine",
    beside={"ray": "RayCluster"},
)

_SMALL = 100_000
"""Weights up to which training many clients at once by vmap is faster."""
_CONVOLVED = 10**7
"""Operations of a step's forward pass from which convolutions are faster client by client: a
processor computes them in channels-last format, which vmap cannot give them. On two cores LeNet in
batches of 64 (36 million) takes 1.4 to 1.6 times as long by vmap, and in batches of 10 (6 million)
.8 to 1.3 times; with twenty clients steps of 3 million take it half as long as threads."""


def resolve_auto(setting: Setting) -> str:
    """Return the name of the engine that ``engine = "auto"`` selects for a setting.

    Stacks of linear layers with ReLU: ``batched``. Other models of at most 10^5 weights without
    BatchNorm or dropout: ``vmap``, unless large steps of convolutions are computed on a CPU.
    Otherwise ``threads`` on a CPU and ``sequential`` on a GPU (docs/engines.md#what-auto-takes).
    """
    from motley.tasks.flat import construct, layout_of  # a list of names must not import torch

    for name in ("batched", "vmap"):
        small = name == "batched" or layout_of(construct(setting.task.model, 0)).size <= _SMALL
        if name in setting.ruled_out:
            continue
        if small and ENGINES.get(name).refuses(setting) is None:  # type: ignore[attr-defined]
            if name == "vmap" and setting.device == "cpu" and _convolves_much(setting):
                continue
            return name
    return "threads" if setting.device == "cpu" else "sequential"


def _convolves_much(setting: Setting) -> bool:
    """Return whether a step of local work has convolutions and many operations."""
    from torch.nn.modules.conv import _ConvNd

    from motley.tasks.flat import construct

    if not any(isinstance(part, _ConvNd) for part in construct(setting.task.model, 0).modules()):
        return False
    held = float(setting.task.federation.seen.mean())
    return setting.forward_operations() * min(setting.work.batch_size, held) >= _CONVOLVED
