"""A deadline counts from the dispatch: what a probe took before it is not taken from the
clients."""

from __future__ import annotations

from typing import Any

import pytest

from motley.experiments.build import build
from motley.experiments.config import Experiment


def simulated(**keys: Any) -> Any:
    """Six clients of three samples each: three local steps of 1 s, a probe of three forward passes
    of 1/3 s."""
    base: dict[str, Any] = {
        "task": {"name": "quadratic", "minima": [0.0] * 6, "examples": [3] * 6},
        "population": 6,
        "cohort": 3,
        "partition": "by_writer",
        "stop": {"rounds": 2},
        "engine": "sequential",
        "local": {"batch_size": 1, "epochs": 1},
        "device": {"name": "constant", "seconds": 1.0},
        "network": "none",
        "evaluate": {"every": 1000, "per_client": False},
    }
    return build(Experiment(**{**base, **keys}))


@pytest.mark.parametrize("late", ["drop", "partial"])
@pytest.mark.parametrize(
    ("selector", "probe_s"),
    [("uniform", 0.0), ({"name": "power_of_choice", "d": 4}, 1.0), ("delta", 3.0)],
)
def test_a_deadline_counts_from_the_dispatch(selector: Any, probe_s: float, late: str) -> None:
    """D = 3.5 s holds three steps of 1 s, whatever the probe took before them: three forward
    passes, or three gradients of a step each. Every round lasts its probe and 3 s."""
    simulation = simulated(
        selector=selector, synchrony={"name": "deadline", "seconds": 3.5, "late": late}
    )
    done = [simulation.step() for _ in range(2)]
    assert [one.accepted for one in done] == [3, 3]
    assert [one.time_s for one in done] == pytest.approx([probe_s + 3, 2 * (probe_s + 3)])


@pytest.mark.parametrize(("seconds", "accepted"), [(2.9, 0), (3.1, 3)])
def test_a_deadline_ends_so_many_seconds_after_the_dispatch(seconds: float, accepted: int) -> None:
    """A probe of 1 s, then D: at 2.9 s nobody has done three steps, at 3.1 s all have at 3 s."""
    simulation = simulated(
        selector={"name": "power_of_choice", "d": 4},
        synchrony={"name": "deadline", "seconds": seconds},
    )
    done = simulation.step()
    assert done.accepted == accepted
    assert done.time_s == pytest.approx(1 + min(seconds, 3.0))


@pytest.mark.parametrize("late", ["drop", "partial"])
def test_who_arrives_at_the_deadline_itself_is_in_time(late: str) -> None:
    """Three steps of 0.1 s take 0.30000000000000004 s; D = 0.3 holds them, in every round."""
    simulation = simulated(
        device={"name": "constant", "seconds": 0.1},
        stop={"rounds": 4},
        synchrony={"name": "deadline", "seconds": 0.3, "late": late},
    )
    done = [simulation.step() for _ in range(4)]
    assert [summary.accepted for summary in done] == [3, 3, 3, 3]
    assert done[-1].time_s == pytest.approx(1.2)


def test_a_probe_longer_than_the_deadline_makes_nobody_late() -> None:
    """Twelve forward passes take 4 s, longer than the deadline of 3.5 s."""
    simulation = simulated(
        task={"name": "quadratic", "minima": [0.0] * 6, "examples": [12] * 6},
        local={"batch_size": 1, "steps": 3},
        selector={"name": "power_of_choice", "d": 4},
        synchrony={"name": "deadline", "seconds": 3.5},
    )
    done = simulation.step()
    assert (done.accepted, done.time_s) == (3, pytest.approx(7.0))
