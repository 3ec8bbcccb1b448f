"""FedAU: weights of intervals worked by hand, and what they correct."""

from __future__ import annotations

import numpy as np
import pytest

from motley.algorithms.fedau import participated
from motley.core.errors import ConfigError
from motley.core.keys import Key
from tests.motley.rounds.test_upload_pipeline import InTurn
from tests.motley.theory.test_algorithms import run, simulate

MINIMA = (1.0, 3.0)


def in_turn(turns, **keys):
    """Return parabolas with minima 1 and 3 of which these clients take part, round by round."""
    base = {"minima": MINIMA, "taus": (1, 1), "lr": 0.1, "start": 0.0, "algorithm": "fedau"}
    turn = InTurn(tuple(turns))
    return simulate(**{**base, "selector": turn, "cohort": 1, "rounds": len(turns), **keys})


@pytest.mark.parametrize(
    ("cutoff", "path"),
    [
        ({}, [0.05, 0.1975, 0.237625, 0.294803125, 0.5653228125]),
        ({"cutoff": 1}, [0.05, 0.1975, 0.237625, 0.27574375, 0.4119565625]),
    ],
    ids=["none", "1"],
)
def test_one_client_a_round(cutoff, path):
    """Round 4: client 0 had intervals of 1 and 2 rounds, so that its update counts 1.5 times:
    .237625 + 1.5 * .0762375 / 2. Round 5: client 1 had one of 2: .294803125 + 2 * .2705196875 / 2.
    With a cutoff of one round all intervals are 1."""
    method = {"name": "fedau", **cutoff}
    simulation = in_turn([(0,), (1,), (0,), (0,), (1,)], algorithm=method)
    found = []
    while not simulation.done:
        simulation.step()
        found.append(simulation.state.server.model.x.item())
    assert found == pytest.approx(path, rel=1e-12)


def test_by_samples():
    """n = (1, 3), p = (1/4, 3/4): x = .1 / 4 = .025; then .025 + .75 * .1 * 2.975 = .248125; then
    client 0, of one interval of 1 round: .248125 + .25 * .1 * .751875 = .266921875."""
    task = {"name": "quadratic", "minima": [1.0, 3.0], "examples": [1, 3]}
    local = {"steps": 1, "batch_size": 10, "optimizer": {"name": "sgd", "lr": 0.1}}
    simulation = in_turn([(0,), (1,), (0,)], task=task, local=local, weights="examples")
    found = []
    while not simulation.done:
        simulation.step()
        found.append(simulation.state.server.model.x.item())
    assert found == pytest.approx([0.025, 0.248125, 0.266921875], rel=1e-12)


@pytest.mark.parametrize(
    ("history", "now", "cutoff", "weight", "after"),
    [
        ((0, 0, 1.0), 7, None, 1.0, (7, 1, 7.0)),
        ((2, 1, 2.0), 3, None, 2.0, (3, 2, 1.5)),
        ((0, 0, 1.0), 8, 3, 3.0, (8, 3, 8 / 3)),  # away for 7: two intervals of 3, then one of 2
        ((5, 2, 4.0), 9, 3, 11 / 3, (9, 4, 3.0)),  # away for 3: one of 3; one of 1 ends
        ((5, 2, 4.0), 8, 3, 4.0, (8, 3, 11 / 3)),  # away for 2: none yet; one of 3 ends
    ],
)
def test_intervals(history, now, cutoff, weight, after):
    found, kept = participated(history, now, cutoff)
    assert (found, *kept) == pytest.approx((weight, *after), rel=1e-15)


@pytest.mark.parametrize("cutoff", [None, 1, 4])
def test_intervals_are_those_of_a_count_round_by_round(cutoff):
    """The same as a count of the rounds of absence, which is reset at the cutoff, and the mean of
    all intervals noted so far."""
    history, away, lengths = (0, 0, 1.0), 0, []
    for number, comes in enumerate(Key(3).fold("who").uniform(np.arange(200))[:, 0] < 0.3, 1):
        if comes:
            weight, history = participated(history, number, cutoff)
            assert weight == pytest.approx(np.mean(lengths) if lengths else 1.0, rel=1e-12)
            lengths.append(away + 1)
            away = 0
            continue
        away += 1
        if away == cutoff:
            lengths.append(away)
            away = 0


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_with_everybody_in_each_round_it_is_averaging(weights):
    keys = {"taus": (2, 7), "rounds": 4, "lr": 0.1, "weights": weights}
    assert run(algorithm="fedau", **keys) == pytest.approx(run(**keys), rel=1e-12)


def test_who_comes_seldom_counts_as_much():
    """Minima 1 and 3; client 1 comes every fourth round, client 0 in the others: averaging swings
    round 1.5, FedAU round the minimum of the plain mean, 2 (the mean of four rounds); each starts
    from where the other ends."""
    turns = [(0,), (0,), (0,), (1,)] * 60
    ends = {}
    for name, start in (("fedavg", 2.0), ("fedau", 1.5)):
        simulation = in_turn(turns, lr=0.02, algorithm=name, start=start)
        path = []
        while not simulation.done:
            simulation.step()
            path.append(simulation.state.server.model.x.item())
        ends[name] = np.mean(path[-4:])
    assert ends["fedavg"] == pytest.approx(1.5, abs=0.03)
    assert ends["fedau"] == pytest.approx(2.0, abs=0.03)


def test_a_round_of_fedau_costs_one_number_more_down():
    plain, fedau = (
        in_turn([(0,)], algorithm=name).step().total_bits for name in ("fedavg", "fedau")
    )
    assert fedau - plain == 64


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"server": "adam"}, "the server rule ServerAdam does not send; leave server out"),
        ({"weights": "score"}, 'got weights = "score", use "uniform" or "examples"'),
        ({"algorithm": {"name": "fedau", "server_lr": 0}}, "got lr = 0.0; expected a positive"),
        ({"algorithm": {"name": "fedau", "cutoff": 0}}, "got cutoff = 0; expected a number of rou"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "fedau", **keys})
