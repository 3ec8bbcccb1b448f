"""Which ways of sending updates go together."""

from __future__ import annotations

import pytest

from motley.transport.allocators.optrate import OptRate
from motley.transport.budgets import ConstantBudget, CosineBudget
from motley.transport.compressors.randomk import RandomK
from motley.transport.compressors.topk import TopK
from motley.transport.feedback import Fixed
from motley.transport.upload_config import UploadConfig


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (UploadConfig(budget=CosineBudget()), "Identity sends every value"),
        (UploadConfig(allocator=OptRate()), "Identity sends every value"),
        (UploadConfig(RandomK(), Fixed()), "random-k scales"),
        (UploadConfig(TopK(), allocator=OptRate(), budget=CosineBudget()), "constant budget"),
    ],
)
def test_one_reason_is_enough(config: UploadConfig, reason: str) -> None:
    assert reason in (config.refuses(100) or "")


def test_what_goes_together() -> None:
    assert UploadConfig().refuses(100) is None
    assert UploadConfig(TopK(), Fixed(), OptRate(), ConstantBudget(0.2)).refuses(100) is None
