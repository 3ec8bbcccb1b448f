"""Measures of who takes part, and of what it makes of them, from tables made by hand."""

import dataclasses

import pytest

import motley
from motley.results.measures import Censored
from motley_papers.measuring import measure_of
from tests.motley.results import fake


def value(name, run, target=None):
    return measure_of(name).of(run, target).value


def four_clients(**config):
    """Steps of 0.1, 0.4, 0.2 and 0.3 s, so the slowest quarter is client 1. Accepted: 0 twice, 1
    and 2 once; 3 never, so it is the least present. Busy for 1 + 2 + 1 = 4 s each, with 2 places
    over 10 s."""
    federation = fake.table(
        "federation", client=[0, 1, 2, 3], step_s=[0.1, 0.4, 0.2, 0.3], domain=[0, 0, 1, 1]
    )
    clients = fake.table(
        "clients",
        round=[1, 1, 2, 2, 2],
        client=[0, 1, 0, 2, 1],
        staleness=[0, 1, 0, 3, 9],
        outcome=["accepted", "accepted", "accepted", "accepted", "late"],
        download_s=[1.0, 1.0, 1.0, 1.0, None],
        compute_s=[2.0, 2.0, 2.0, 2.0, None],
        upload_s=[1.0, 1.0, 1.0, 1.0, None],
    )
    rounds = fake.table("rounds", round=[1, 2], time_s=[4.0, 10.0])
    accuracy = {
        "round": [2] * 4,
        "scope": ["client"] * 4,
        "client": [0, 1, 2, 3],
        "accuracy": [0.9, 0.5, 0.8, 0.6],
    }
    evaluations = fake.table("evaluations", **accuracy)
    tables = {
        "federation": federation,
        "clients": clients,
        "rounds": rounds,
        "evaluations": evaluations,
    }
    return fake.run({"cohort": 2, "population": 4, **config}, **tables)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("slow_share", 25.0),  # one of four accepted updates
        ("slow_metric", 50.0),
        ("slow_gap", 80.0 - 10 / 3 - 50.0),  # (90 + 80 + 60) / 3 - 50
        ("seldom_gap", 220 / 3 - 60.0),  # (90 + 50 + 80) / 3 - 60
        ("seldom_share", 0.0),
        ("seldom_metric", 60.0),
        ("staleness", 1.0),  # (0 + 1 + 0 + 3) / 4
        ("idle", 20.0),  # 1 - 16 / (2 * 10)
    ],
)
def test_who_is_heard_and_what_it_makes_of_them(name, wanted):
    assert value(name, four_clients()) == pytest.approx(wanted)


def test_places_are_a_share_of_the_clients_where_the_file_says_so():
    assert value("idle", four_clients(cohort=None, participation=0.5)) == pytest.approx(20.0)


def test_clients_of_one_appearance():
    run = four_clients(feature_shift={"name": "domains", "names": ["plain", "dim"]})
    assert value("domain.plain", run) == pytest.approx(70.0)
    assert value("domain.dim", run) == pytest.approx(70.0)
    assert value("domain.blurred", run) != value("domain.blurred", run)  # not a number


def losses(values, step=1, rounds=None):
    at = [step * i for i in range(len(values))]
    table = fake.table(
        "evaluations",
        round=at,
        scope=["mean"] * len(values),
        client=[-1] * len(values),
        loss=values,
    )
    return fake.run(
        {"split": {"test": "client"}, "stop": {"rounds": rounds or at[-1]}}, evaluations=table
    )


def test_the_largest_rise_is_above_the_best_until_then():
    """The best is 1 when the loss is 2, and 0.5 when it is 0.75: rises of 1 and 0.25."""
    run = losses([3.0, 1.0, 2.0, 0.5, 0.75])
    assert value("loss_rise", run) == pytest.approx(1.0)
    assert value("loss", run) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("values", "rounds", "wanted"),
    [([1.0, 1.9, 2.8], 20, 0.0), ([1.0, 2.1, 1.0], 20, 1.0), ([1.0, 1.0], 20, 1.0)],
    ids=["0.9 in ten rounds", "1.1 in ten rounds", "ended early"],
)
def test_divergence_is_a_loss_more_than_one_above_that_of_ten_rounds_before(values, rounds, wanted):
    assert value("diverged", losses(values, 10, rounds)) == wanted


@pytest.mark.parametrize(("algorithm", "kept"), [("scaffold", 80e-6), ("fedavg", 0.0)])
def test_a_record_tells_what_a_client_keeps(tmp_path, algorithm, kept):
    """SCAFFOLD's variate of a model of ten numbers, in float64."""
    keys = {
        "task": {"name": "quadratic", "dim": 10},
        "population": 2,
        "cohort": 2,
        "partition": "by_writer",
        "weights": "uniform",
    }
    experiment = motley.Experiment(**keys, algorithm=algorithm, stop={"rounds": 1}, dtype="float64")
    assert value("state_mb", motley.run(experiment, out=tmp_path / "run")) == pytest.approx(kept)


def test_what_a_client_keeps():
    run = four_clients()
    assert value("state_mb", run) != value("state_mb", run)  # a record from before
    told = dataclasses.replace(run, meta={**run.meta, "client_state_bytes": 204_000})
    assert value("state_mb", told) == pytest.approx(0.204)


def to_use(method, **config):
    """Samples 40, 70, 0 in batches of 32 (2, 3, 0 batches), steps of 0.5, 0.1 and 9 s. Accuracy 0.9
    before training, then 0.5."""
    federation = fake.table(
        "federation",
        client=[0, 1, 2],
        num_train=[40, 70, 0],
        batch_size=[32] * 3,
        step_s=[0.5, 0.1, 9.0],
    )
    seen = {"round": [0, 1], "time_s": [0.0, 10.0], "accuracy": [0.9, 0.5], "scope": ["global"] * 2}
    run = fake.run(
        {"algorithm": method}, federation=federation, evaluations=fake.table("evaluations", **seen)
    )
    return measure_of("use_seconds_to_target").of(run, 0.4)


@pytest.mark.parametrize(
    ("method", "tuning_s"),
    [
        ({"name": "fedavg"}, 0.0),
        ({"name": "fine_tuned", "epochs": 3}, 3.0),  # the first client's 3 x 2 steps of 0.5 s
        # its 5 steps; without samples nobody trains
        ({"name": "fine_tuned", "epochs": 0, "steps": 5}, 2.5),
    ],
)
def test_fine_tuning_is_billed_and_an_untrained_model_reaches_no_target(method, tuning_s):
    assert to_use(method) == Censored(10.0 + tuning_s, True)
