"""FedAWE: models that clients go on from, worked by hand, and what travels."""

from __future__ import annotations

import numpy as np
import pytest

from motley.core import codec
from motley.core.errors import ConfigError
from tests.motley.algorithms.test_fedau import in_turn
from tests.motley.theory.test_algorithms import run, simulate

TURNS = [(0,), (1,), (0,), (0,), (0, 1), (1,)]


def fedawe(turns, **keys):
    return in_turn(turns, **{"algorithm": "fedawe", "cohort": 2, **keys})


def path_of(simulation):
    """Return the server's model after every step."""
    found = []
    while not simulation.done:
        simulation.step()
        found.append(simulation.state.server.model.x.item())
    return found


def test_models_that_clients_go_on_from():
    """Round 2: client 1 steps from the initial 0, to .3, twice. Round 3: client 0 from .1 by .09,
    twice: .28. Round 5: client 0 from .352 by .0648; client 1 from .6 by .24, three times: 1.32."""
    found = path_of(fedawe(TURNS))
    assert found == pytest.approx([0.1, 0.6, 0.28, 0.352, 0.8684, 1.08156], rel=1e-12)


def test_the_server_rate_is_that_of_the_updates_alone():
    """Half of it: .05; client 1 .3 from 0; client 0 from .05, .095: .145; .18775; client 0
    .2283625, client 1 from .3, .27 by 1.5, .705: .46668125."""
    found = path_of(fedawe(TURNS[:5], algorithm={"name": "fedawe", "server_lr": 0.5}))
    assert found == pytest.approx([0.05, 0.3, 0.145, 0.18775, 0.46668125], rel=1e-12)


def test_each_client_keeps_the_model_after_its_last_round():
    simulation = fedawe(TURNS)
    found = path_of(simulation)
    kept = simulation.state.clients.client_states
    assert kept[0]["x"].item() == found[4]
    assert kept[1]["x"].item() == found[5]
    assert [int(kept[k]["last"]) for k in (0, 1)] == [5, 6]


def test_by_samples_models_are_weighed():
    """n = (1, 3), one step each: .1 and .3, x = .25; then from it .325 and .525, x = .475."""
    task = {"name": "quadratic", "minima": [1.0, 3.0], "examples": [1, 3]}
    local = {"steps": 1, "batch_size": 10, "optimizer": {"name": "sgd", "lr": 0.1}}
    found = path_of(fedawe([(0, 1)] * 2, task=task, local=local, weights="examples"))
    assert found == pytest.approx([0.25, 0.475], rel=1e-12)


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_with_everybody_in_each_round_it_is_averaging(weights):
    keys = {"taus": (2, 7), "rounds": 4, "lr": 0.1, "weights": weights}
    assert run(algorithm="fedawe", **keys) == pytest.approx(run(**keys), rel=1e-12)


def test_who_comes_seldom_counts_as_much():
    """Minima 1 and 3; client 0 comes in each round, client 1 in every fourth: averaging comes to
    rest near (1 + 1 + 1 + 2) / 4, FedAWE near 2."""
    turns = [(0,), (0,), (0,), (0, 1)] * 100
    ends = {
        name: np.mean(path_of(fedawe(turns, lr=0.01, algorithm=name))[-4:])
        for name in ("fedavg", "fedawe")
    }
    assert ends["fedavg"] == pytest.approx(1.25, abs=0.03)
    assert ends["fedawe"] == pytest.approx(2.0, abs=0.05)


def test_a_model_travels_down_once_a_round_and_once_more_for_a_new_client():
    """One weight of 64 bits: of round 2 the answer and the number of the step; of round 1 the model
    in advance, too."""
    simulation = fedawe([(0,), (0,)])
    first = simulation.step().total_bits
    again = simulation.step().total_bits - first
    assert first - again == 64
    plain = in_turn([(0,)], algorithm="fedavg").step().total_bits
    assert again <= plain + 64


def test_a_run_goes_on_from_a_checkpoint():
    whole, other = fedawe(TURNS), fedawe(TURNS)
    for _ in range(3):
        whole.step()
    other.restore(codec.decode(codec.encode(whole.save())))
    assert path_of(whole) == path_of(other)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"server": "adam"}, "which the server rule ServerAdam does not send them; leave server"),
        ({"weights": "selector"}, 'got weights = "selector", use "uniform" or "examples"'),
        ({"algorithm": {"name": "fedawe", "server_lr": -1}}, "got lr = -1.0; expected a positive"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "fedawe", **keys})
