"""A sample of the random models that ``scripts/fuzz-models`` trains beside plain PyTorch."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

CASES = 300
PARTS = 6
ALWAYS = 3
"""Cases, parts that run side by side, and turns that ``auto`` has beside its own, as the engine
that people take."""


@pytest.mark.filterwarnings("ignore")  # some of what people use is deprecated
@pytest.mark.parametrize("part", range(PARTS))
def test_no_difference_to_torch_is_silent(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is shown by ``scripts/fuzz-models --only SEED``."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3] / "scripts")])
    from models.cases import draw  # type: ignore[import-not-found]
    from models.compare import ENGINES, compared  # type: ignore[import-not-found]

    counts: Counter[str] = Counter()
    faults = {}
    for seed in range(part, CASES, PARTS):
        turn = (seed // PARTS) % (len(ENGINES) + ALWAYS)
        name = ENGINES[turn] if turn < len(ENGINES) else "auto"
        result = compared(draw(seed), (name,))[name]
        counts[result.outcome] += 1
        if result.outcome in ("different", "crashed"):
            faults[seed] = (name, result.text)
    assert not faults
    assert counts["equal"] + counts["fell back"] >= CASES / PARTS / 3  # it compares, too
