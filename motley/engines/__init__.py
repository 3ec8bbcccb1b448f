"""How local work is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motley.core.components import Catalogue

if TYPE_CHECKING:
    from motley.engines.base import Setting

__all__ = ["ENGINES", "resolve_auto"]

ENGINES = Catalogue(
    "engine",
    {
        "sequential": "motley.engines.sequential:Sequential",
        "batched": "motley.engines.batched:Batched",
        "vmap": "motley.engines.batched:Vmap",
        "threads": "motley.engines.threads:Threads",
        "debug": "motley.engines.debug:Debug",
        "processes": "motley.engines.processes:Processes",
        "ray": "motley.engines.ray_cluster:RayCluster",
    },
)

_SMALL = 100_000
"""Weights up to which batching clients by vmap pays."""


def resolve_auto(setting: Setting) -> str:
    """The engine that ``engine = "auto"`` means here.

    Stacks of linear layers with ReLU: ``batched``. Other models of at most 10^5 weights without BatchNorm or dropout: ``vmap``.
    Else ``threads`` on a CPU and ``sequential`` on a GPU (models-and-protocols).
    """
    from motley.tasks.flat import construct, layout_of  # torch is not loaded for a list of names

    for name in ("batched", "vmap"):
        small = name == "batched" or layout_of(construct(setting.task.model, 0)).size <= _SMALL
        if small and ENGINES.get(name).refuses(setting) is None:  # type: ignore[attr-defined]
            return name
    return "threads" if setting.device == "cpu" else "sequential"
