"""Speed, links, absence, waiting and probing against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley.timing.timeline import Timelines, plan
from motley_advice.heterogeneity.findings import Finding
from motley_advice.inspection.planned import PlannedRounds, planned_rounds, synchronous_loop
from motley_advice.inspection.system import _law_distance, scaled_ratio, system_findings

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 20,
    "cohort": 4,
    "stop": {"rounds": 3},
    "partition": "iid",
}


def found(**changes: Any) -> dict[str, Finding]:
    loop = synchronous_loop(prepare(Experiment(**{**KEYS, **changes})))
    return {one.name: one for one in system_findings(loop)}


def test_a_hundredfold_ratio_is_one_and_a_tenfold_one_a_half() -> None:
    assert scaled_ratio(np.array([2.0] * 5 + [200.0] * 5)) == (100.0, 1.0)
    assert scaled_ratio(np.array([2.0] * 5 + [20.0] * 5))[1] == pytest.approx(0.5)
    # links without a limit are all alike
    assert scaled_ratio(np.array([np.inf, np.inf])) == (1.0, 0.0)


def test_speed_spread_rises_with_the_spread_of_devices() -> None:
    spreads = [
        found(device={"name": "log_normal", "sigma": sigma})["speed_spread"].value
        for sigma in (0.0001, 0.5, 1.5)
    ]
    assert spreads[0] < 0.01
    assert spreads == sorted(spreads)
    # log-normal: the 90th percentile is exp(2 * 1.2816 * sigma) times the 10th; of 20 clients
    # within a factor e^0.5 of that
    assert spreads[1] == pytest.approx(2 * 1.2816 * 0.5 / np.log(10) / 2, abs=0.11)


def test_nobody_waits_where_all_are_alike_and_somebody_does_else() -> None:
    assert found(local={"steps": 5, "batch_size": 8})["waiting"].value == pytest.approx(0.0)
    assert (
        found(local={"steps": 5, "batch_size": 8}, device={"name": "log_normal", "sigma": 1.5})[
            "waiting"
        ].value
        > 0.4
    )


def test_waiting_of_two_clients_is_half_of_the_share_that_the_faster_is_idle() -> None:
    lines = plan([0, 1], [0, 1], 0, [10, 30], 0.0, 1.0, 0, np.inf, 0, np.inf)
    rounds = PlannedRounds([lines], np.array([2]))
    assert rounds.lengths_s.tolist() == [30.0]
    # 10 s and 30 s of 30 s: 20 s on average
    assert rounds.waiting.tolist() == pytest.approx([1 - 20 / 30])
    dropped: Timelines = plan(
        [0, 1], [0, 1], 0, [10, 30], 0.0, 1.0, 0, np.inf, 0, np.inf, [np.nan, 0.5]
    )
    late = PlannedRounds([dropped], np.array([2]))
    assert late.dropped.tolist() == [False, True]
    # the other leaves after half of its 30 s
    assert late.waiting.tolist() == pytest.approx([1 - 10 / 15])


def test_availability_is_the_share_online_and_of_each_client() -> None:
    half = found(availability={"name": "bernoulli", "p": 0.5})["availability"]
    # 20 clients at 168 moments: standard error 0.0086
    assert half.value == pytest.approx(0.5, abs=0.05)
    assert half.per_client is not None
    assert half.per_client.shape == (20,)
    assert found()["availability"].note == "everybody is always online"


@pytest.mark.parametrize("day_s", [600.0, 3600.0, 86_400.0])
def test_a_day_of_a_few_minutes_is_met_at_all_its_phases(day_s: float) -> None:
    """All are online in the first quarter of each day, however many of them an hour has."""
    nights = {"name": "day_night", "share": 0.25, "spread": 0.0, "day_s": day_s}
    assert found(availability=nights)["availability"].value == pytest.approx(0.25, abs=0.02)


def test_absence_of_those_who_hold_a_class_is_found() -> None:
    counts = np.array([[10.0, 0.0]] * 50 + [[0.0, 10.0]] * 50)
    assert _law_distance(counts, np.ones(100)) == 0.0
    # the second half is online a third as often: three quarters of what is met is class 0, instead
    # of a half
    assert _law_distance(counts, np.repeat([0.9, 0.3], 50)) == pytest.approx(0.25)
    assert found(availability={"name": "bernoulli", "p": 0.5})["availability_bias"].value < 0.02


@pytest.mark.parametrize(("algorithm", "sent"), [("fedavg", 9640), ("fedawe", 9648)])
def test_probing_all_costs_a_model_and_a_number_of_each_client(algorithm: str, sent: int) -> None:
    """FedAWE sends the number of its step beside the model, of 8 bytes, and the new mean to who
    has uploaded, which is not a part of a probe."""
    given = found(
        algorithm=algorithm,
        network={"name": "uniform", "up_mbps": [1.0, 1.0]},
        device={"name": "constant", "seconds": 0.3},
        local={"batch_size": 8},
    )
    # digits_mlp has 2,410 parameters of 4 bytes, 9,640; a number comes back
    assert given["probe_all_bytes"].value == 20 * (sent + 4)
    assert given["probe_all_bytes"].federated_bytes == sent + 4
    # 1,797 samples are 90 for the largest client, 72 of them for training: 9 batches of a third of
    # 0.3 s each, and 32 bits up
    assert given["probe_all_s"].value == pytest.approx(9 * 0.1 + 32e-6)


def test_rounds_without_anybody_pass_and_are_not_counted() -> None:
    loop = synchronous_loop(
        prepare(Experiment(**{**KEYS, "availability": {"name": "bernoulli", "p": 0.02}}))
    )
    planned = planned_rounds(loop, 30)
    assert len(planned.online) == 30
    assert len(planned.lines) == int((planned.online > 0).sum())


def test_planning_draws_the_same_cohorts_again() -> None:
    first, second = (
        planned_rounds(synchronous_loop(prepare(Experiment(**KEYS))), 3).lines for _ in range(2)
    )
    assert [one.client.tolist() for one in first] == [one.client.tolist() for one in second]
