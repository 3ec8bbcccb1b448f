"""Numbers that are made from a run's tables in the papers' units."""

from math import isnan, log

import pytest

import motley
from motley.results import measures
from motley_papers.measuring import measure_of
from tests.motley.results import fake


def test_a_mean_squared_error_is_twice_a_regression_s_loss(tmp_path):
    """One client with ``f = (w - 3)^2 / 2``, whose squared error is ``(w - 3)^2``: a step of 0.5
    halves the way to 3, so that round t has ``(w_0 - 3)^2 / 4^t``, and rounds 3 to 12 are the last
    ten."""
    task = {"name": "quadratic", "minima": [3.0]}
    local = {"steps": 1, "optimizer": {"name": "sgd", "lr": 0.5}}
    experiment = motley.Experiment(
        task=task,
        population=1,
        cohort=1,
        stop={"rounds": 12},
        evaluate={"every": 1},
        local=local,
        dtype="float64",
    )
    run = motley.run(experiment, out=tmp_path / "run")
    losses = measures.curve(run)
    first = 2 * losses.y[0] * 4.0 ** losses.x[0]
    last_ten = [first / 4.0**t for t in range(3, 13)]
    mse, stable, ln = (measure_of(name).of(run, None) for name in ("mse", "mse_stable", "mse_log"))
    assert mse.reached
    assert mse.value == pytest.approx(first / 4.0**12)
    assert stable.value == pytest.approx(sum(last_ten) / 10)
    assert ln.value == pytest.approx(log(first) - 12 * log(4.0))


@pytest.mark.parametrize("name", ["mse", "mse_stable", "mse_log"])
def test_a_classifier_has_none(tmp_path, name):
    value = measure_of(name).of(fake.run(tmp_path / "run"), None).value
    assert value != value  # not a number


def test_wrong_labels_are_counted_as_often_as_they_are_trained_on():
    """10 samples, half of them wrong, three times; 30 samples, a tenth of them wrong, once; 50
    samples, all wrong, late and never used: (3 * 5 + 1 * 3) / (3 * 10 + 1 * 30) = 30 %."""
    federation = fake.table(
        "federation", client=[0, 1, 2], noise=[0.5, 0.1, 1.0], num_train=[10, 30, 50]
    )
    outcomes = ["accepted", "accepted", "late", "accepted", "accepted"]
    clients = fake.table("clients", round=[1, 1, 1, 2, 3], client=[0, 1, 2, 0, 0], outcome=outcomes)
    measure = measure_of("wrong_labels")
    assert measure.of(
        fake.run(federation=federation, clients=clients), None
    ).value == pytest.approx(30.0)
    nobody = measure.of(fake.run(federation=federation), None).value
    assert nobody != nobody


def test_accuracy_over_pooled_samples_counts_clients_by_their_samples(tmp_path):
    """Clients with 10, 30 and 60 test samples, of which .5, .9 and .2 are right: (5 + 27 + 12) /
    100 = 44 %, the clients' mean is 160 / 3 %. A client without test samples has no figure; an
    earlier evaluation does not count."""
    shown = {
        "scope": ["client"] * 5,
        "accuracy": [0.0, 0.5, 0.9, 0.2, float("nan")],
        "examples": [10, 10, 30, 60, 0],
    }
    evaluations = fake.table(
        "evaluations",
        round=[1, 2, 2, 2, 2],
        version=[1, 2, 2, 2, 2],
        client=[0, 0, 1, 2, 3],
        **shown,
    )
    run = fake.run(evaluations=evaluations)
    assert measure_of("pooled").of(run, None).value == pytest.approx(44.0)
    assert measure_of("client_mean").of(run, None).value == pytest.approx(160 / 3)
    nothing = measure_of("pooled").of(fake.run(), None).value
    assert nothing != nothing


def test_notes_without_a_group_are_measures_too(tmp_path):
    rounds = fake.table(
        "rounds",
        round=[1, 2, 3],
        notes=['{"max_probability": 0.5}', "", '{"max_probability": 0.7, "x.y": 2}'],
    )
    run = fake.run(rounds=rounds)
    assert measure_of("note.max_probability.mean").of(run, None).value == pytest.approx(0.6)
    assert measure_of("note.max_probability.late").of(run, None).value == 0.7
    assert measure_of("note.x.y.mean").of(run, None).value == 2
    assert measure_of("note.max_probability.least").of(run, None).value == 0.5


def test_notes_of_the_chosen_are_averaged_over_them_round_by_round():
    """Round 1: 0.2 and 0.4, mean 0.3; round 2: 0.8, for the other has none. Of 20 rounds with the
    values 1 to 20 the first tenth is two, (1 + 2) / 2, and the last (19 + 20) / 2."""
    choices = fake.table(
        "choices",
        round=[2, 1, 1, 2, 2],
        dispatch=[2, 0, 1, 3, 2],
        client=[5, 5, 7, 7, 5],
        name=["component.value"] * 4 + ["other"],
        value=[0.8, 0.2, 0.4, None, 9.0],
    )
    run = fake.run(choices=choices)
    mean, early, late = (
        measure_of(f"chosen.component.value.{part}") for part in ("mean", "early", "late")
    )
    assert mean.of(run, None).value == pytest.approx((0.3 + 0.8) / 2)
    assert early.of(run, None).value == pytest.approx(0.3)
    assert late.of(run, None).value == pytest.approx(0.8)
    assert mean.title == "component.value of the chosen, all rounds"
    numbers = list(range(1, 21))
    choices = fake.table(
        "choices",
        round=numbers,
        dispatch=numbers,
        client=[5] * 20,
        name=["component.value"] * 20,
        value=[float(number) for number in numbers],
    )
    run = fake.run(choices=choices)
    assert early.of(run, None).value == pytest.approx(1.5)
    assert late.of(run, None).value == pytest.approx(19.5)
    nothing = mean.of(fake.run(), None).value
    assert nothing != nothing


def test_clients_of_a_ruined_run_have_no_worst_tenth():
    """Nine clients with a loss of 0.1 and one without any: 0.1 is not that of the worst."""
    sound = fake.of_losses([2.0, 0.12], [0.1] * 9 + [0.3])
    ruined = fake.of_losses([2.0, float("nan")], [0.1] * 9 + [float("nan")])
    worst = measure_of("worst_tenth")
    assert worst.of(sound, None).value == pytest.approx(0.3)
    assert isnan(worst.of(ruined, None).value)


def test_a_run_that_broke_off_counts_with_all_its_rounds():
    """Losses 2, 0.5 and then none: the target of 0.1 is missed in both rounds, not in one."""
    run = fake.of_losses([2.0, 0.5, float("nan")], [0.1])
    missed = measure_of("rounds_to_target").of(run, 0.1)
    assert (missed.value, missed.reached) == (2.0, False)
