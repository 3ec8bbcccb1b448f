"""The numbers of the measurement of federated fine-tuning, from runs by hand and as stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.fine_tuning import ARMS, OUT, PLAN, arm, reached, summary

RANKS = {"16": 1, "8": 0, "4": 2}


def run(name: str, seed: int, seconds: list[float], perplexity: list[float]) -> dict[str, Any]:
    return {
        "arm": name,
        "seed": seed,
        "round": [0, 2, 4],
        "seconds": seconds,
        "up_mb": [0.0, 1.0, 2.0],
        "down_mb": [0.0, 3.0, 6.0],
        "perplexity": perplexity,
        "worst_tenth": perplexity[-1] + 1,
        "sent": RANKS,
        "clients": RANKS,
    }


def test_time_is_saved_by_pairs_that_reach_the_target() -> None:
    """Of two seeds 10 and 20 s become 5 and 15: 50 and 25 % saved, 37.5 in the mean, and a t
    interval of one degree of freedom, 12.706 deviations of the mean of 12.5 each side."""
    runs = []
    for name in ARMS:
        late = 5.0 if name in ("both", "clients") else 10.0
        runs.append(run(name, 0, [0.0, late, 20.0], [9.0, 7.0, 6.0]))
        end = 8.0 if name == "clients" else 7.0
        runs.append(run(name, 1, [0.0, 10.0, 10.0 + late], [9.0, 8.0, end]))
    rows = {row["arm"]: row for row in summary(runs, 7.0)}
    assert rows["uniform"]["reached"] == rows["both"]["reached"] == 2
    assert (rows["uniform"]["seconds"], rows["both"]["seconds"]) == (15.0, 10.0)
    assert (rows["both"]["up_mb"], rows["both"]["down_mb"], rows["both"]["round"]) == (1.5, 4.5, 3)
    assert rows["both"]["saved"] == pytest.approx([37.5, -121.33, 196.33], abs=0.01)
    assert rows["clients"]["saved"] is None
    assert rows["clients"]["reached"] == 1
    assert rows["clients"]["seconds"] == 5.0
    assert rows["clients"]["perplexity_difference"][0] == 0.5
    assert rows["both"]["sent"] == {"16": 1.0, "8": 0.0, "4": 2.0}


def test_the_start_reaches_no_target() -> None:
    """What the model knew before is no work of the arm."""
    assert reached(run("uniform", 0, [0.0, 1.0, 2.0], [5.0, 7.0, 5.0]), 6.0) == 2


def test_arms_differ_in_one_thing_from_the_uniform_one() -> None:
    arms = {name: arm(name, {"uniform": 10.0, "clients": 5.0}) for name in ARMS}
    base = arms["uniform"]
    changed = {name: {k for k in base if one[k] != base[k]} for name, one in arms.items()}
    assert changed["ranks"] == changed["memory"] == {"capacity"}
    assert changed["clients"] == {"selector"}
    assert arms["both"]["capacity"] == {**arms["ranks"]["capacity"], "seconds": 5.0}


def test_the_stored_arms_are_those_of_the_stored_runs() -> None:
    found = json.loads(OUT.read_text(encoding="utf-8"))
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    assert found["plan"] == plan
    assert found["arms"] == summary(found["runs"], plan["target"])
    assert len(found["runs"]) == len(ARMS) * len(plan["seeds"])
