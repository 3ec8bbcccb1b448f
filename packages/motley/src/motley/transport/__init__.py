"""Communication: compressors, error feedback, upload budgets and allocators, the wire format and
the traffic ledger."""

from __future__ import annotations

from typing import Any

from motley.core.components import Catalogue, class_named

__all__ = ["ALLOCATORS", "BUDGETS", "COMPRESSORS", "FEEDBACKS"]

COMPRESSORS = Catalogue(
    "compressor",
    {
        "fedpaq": "motley.transport.compressors.fedpaq:FedPAQ",
        "identity": "motley.transport.compressors.identity:Identity",
        "qsgd": "motley.transport.compressors.qsgd:QSGD",
        "randomk": "motley.transport.compressors.randomk:RandomK",
        "signs": "motley.transport.compressors.signs:Signs",
        "tensor_drop": "motley.transport.compressors.tensor_drop:TensorDrop",
        "terngrad": "motley.transport.compressors.terngrad:TernGrad",
        "topk": "motley.transport.compressors.topk:TopK",
    },
    base="motley.transport.compressors.compressor:Compressor",
)
FEEDBACKS = Catalogue(
    "feedback",
    {
        "adaptive": "motley.transport.feedback:Adaptive",
        "ef21": "motley.transport.feedback:EF21",
        "fixed": "motley.transport.feedback:Fixed",
        "none": "motley.transport.feedback:NoFeedback",
    },
    base="motley.transport.feedback:Feedback",
)
ALLOCATORS = Catalogue(
    "allocator",
    {
        "by_score": "motley.transport.allocators.by_score:ByScore",
        "fedcg_lp": "motley.transport.allocators.fedcg_lp:FedCGProgram",
        "flexcom": "motley.transport.allocators.flexcom:FlexCom",
        "from_selector": "motley.transport.allocators.from_selector:FromSelector",
        "optrate": "motley.transport.allocators.optrate:OptRate",
        "uniform": "motley.transport.allocators.uniform_ratio:UniformAllocator",
    },
    base="motley.transport.allocators.allocator:Allocator",
)
BUDGETS = Catalogue(
    "budget",
    {
        "constant": "motley.transport.budgets:ConstantBudget",
        "cosine": "motley.transport.budgets:CosineBudget",
    },
    base="motley.transport.budgets:Budget",
)


def __getattr__(name: str) -> Any:
    return class_named((COMPRESSORS, FEEDBACKS, ALLOCATORS, BUDGETS), name)
