"""The studies behind the tuned tables: every method, key and space is one that the examples
take."""

from __future__ import annotations

import pytest

from benchmarks import tuned
from motley.experiments.config import load
from motley_advice.tuning.plan import plan_of


@pytest.mark.parametrize("name", tuned.STUDIES)
def test_a_study_can_begin(name: str) -> None:
    study = tuned.STUDIES[name]
    plan = plan_of(
        [load(tuned.ROOT / "examples" / f"{study.file}.toml")],
        study.spaces(),
        per=study.methods,
        trials=tuned.TRIALS,
        objective="headline",
        seeds=None,
        test_seeds=None,
        rounds_first=study.rounds_first,
        hours_first=None,
        factor=3,
    )
    assert len({plan.run_equivalents(method) for method in plan.methods}) == 1
    assert plan.halving.counts(tuned.TRIALS) == (9, 3)
