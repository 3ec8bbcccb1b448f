"""What travels and what it weighs: the ledger, compressors, allocators."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["ALLOCATORS", "COMPRESSORS"]

COMPRESSORS = Catalogue(
    "compressor",
    {"identity": "motley.transport.compressors.identity:Identity"},
    planned=("topk", "randomk", "qsgd", "fedpaq", "signs", "terngrad", "tensor_drop"),
)
ALLOCATORS = Catalogue(
    "allocator",
    {"uniform": "motley.transport.allocators.uniform:Uniform"},
    planned=("by_score", "from_selector", "optrate", "flexcom", "fedcg_lp"),
)
