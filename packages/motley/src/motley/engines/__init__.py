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


def resolve_auto(setting: Setting) -> str:
    """Return the name of the engine that ``engine = "auto"`` selects for a setting.

    Stacks of linear layers with ReLU: ``batched``. Other models of at most 10^5 weights without
    BatchNorm or dropout: ``vmap``. Otherwise ``threads`` on a CPU and ``sequential`` on a GPU
    (docs/engines.md#what-auto-takes).
    """
    from motley.tasks.flat import construct, layout_of  # a list of names must not import torch

    for name in ("batched", "vmap"):
        small = name == "batched" or layout_of(construct(setting.task.model, 0)).size <= _SMALL
        if name in setting.ruled_out:
            continue
        if small and ENGINES.get(name).refuses(setting) is None:  # type: ignore[attr-defined]
            return name
    return "threads" if setting.device == "cpu" else "sequential"
