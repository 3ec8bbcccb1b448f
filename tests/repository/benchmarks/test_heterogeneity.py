"""The tables of docs/measured.md from runs: each says by which end of the curves its methods
are compared."""

from __future__ import annotations

import pytest

from benchmarks.heterogeneity import Table, collect
from tests.motley.results import fake


@pytest.mark.parametrize(
    ("evaluated", "end"), [(range(1, 21), "stable"), (range(2, 21, 2), "final")]
)
def test_differences_are_of_the_end_that_all_runs_have(evaluated: range, end: str) -> None:
    """Of 20 rounds, ten evaluations past half of the run give a stable value, and five do not. In
    both, 0.5 and 0.51 end above 0.25: 25.5 points, with t = 12.7062 times the standard error
    0.5."""
    runs = []
    for name, levels in (("uniform", (0.25, 0.25)), ("oort", (0.5, 0.51))):
        for seed, level in enumerate(levels):
            rows = {
                "round": list(evaluated),
                "scope": ["mean"] * len(evaluated),
                "accuracy": [level] * len(evaluated),
            }
            config = {
                "selector": {"name": name},
                "algorithm": {"name": "fedavg"},
                "stop": {"rounds": 20},
            }
            counted = fake.table("rounds", round=list(range(1, 21)))
            runs.append(
                fake.run(
                    config, seed=seed, evaluations=fake.table("evaluations", **rows), rounds=counted
                )
            )
    found = collect(Table("t", ("final", "shared"), base="uniform"), runs)
    assert found["end"] == end
    (better,) = [row for row in found["rows"] if row["label"] == "oort"]
    assert better["difference"] == {
        "interval": [pytest.approx(25.5), pytest.approx(19.1469), pytest.approx(31.8531)],
        "verdict": "better",
    }
    assert better["shared"] == (
        [pytest.approx(50.5), pytest.approx(0.7071, abs=1e-4)] if end == "stable" else [None, None]
    )
