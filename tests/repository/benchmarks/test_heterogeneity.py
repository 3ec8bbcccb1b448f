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
    both, 0.5 ends above 0.25."""
    runs = []
    for name, level in (("uniform", 0.25), ("oort", 0.5)):
        for seed in (0, 1):
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
    assert better["difference"] == {"interval": [25.0, 25.0, 25.0], "verdict": "better"}
    assert better["shared"] == ([50.0, 0.0] if end == "stable" else [None, None])
