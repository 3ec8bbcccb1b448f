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


def test_the_mean_of_all_clients_models_is_examined():
    """Client 1 has the initial 0 until round 2, .6 from then, client 0 .1 until round 3."""
    simulation = fedawe(TURNS)
    server = simulation.config.setting.algorithm.server
    examined = []
    while not simulation.done:
        simulation.step()
        examined.append(server.examined(simulation.state.server).model.x.item())
    assert examined == pytest.approx([0.05, 0.35, 0.44, 0.476, 0.8684, 0.97498], rel=1e-12)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"clip": 0.1}, [0.1, 0.1, 0.2, 0.28, 0.29]),
        ({"clip": 0.1, "server_lr": 0.5}, [0.05, 0.05, 0.1, 0.145, 0.1475]),
    ],
)
def test_a_clip_bounds_the_mean_of_the_multiplied_updates(options, path):
    """With 0.1: client 1 brings .6 of 0, scaled to .1; client 0 from .1 .18, scaled; then .08 from
    .2; in round 5 from .28 and .1, mean .19, .072 and .87, whose mean is scaled. The rate of 0.5
    is applied to what is scaled: in round 5 from .145 and .05 by .05."""
    found = path_of(fedawe(TURNS[:5], algorithm={"name": "fedawe", **options}))
    assert found == pytest.approx(path, rel=1e-12)


def test_it_is_the_algorithm_of_the_paper_written_anew():
    """Five parabolas, thirty rounds of clients drawn anew, two steps each."""
    draw = np.random.default_rng(81)
    turns = [tuple(np.flatnonzero(draw.random(5) < 0.4).tolist()) or (0,) for _ in range(30)]
    minima = [1.0, 3.0, -2.0, 0.5, 4.0]
    own = np.zeros(5)
    last = np.full(5, -1)
    path = []
    for t, clients in enumerate(turns):
        brought = []
        for k in clients:
            x = own[k]
            for _ in range(2):
                x = x - 0.1 * (x - minima[k])
            brought.append(own[k] - (t - last[k]) * (own[k] - x))
        own[list(clients)] = np.mean(brought)
        last[list(clients)] = t
        path.append(own.mean())
    simulation = fedawe(turns, minima=minima, taus=(2,) * 5, cohort=5)
    server = simulation.config.setting.algorithm.server
    for expected in path:
        simulation.step()
        assert server.examined(simulation.state.server).model.x.item() == pytest.approx(expected)


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
    rest near (1 + 1 + 1 + 2) / 4, FedAWE near 2; each starts from where the other ends."""
    turns = [(0,), (0,), (0,), (0, 1)] * 60
    ends = {
        name: np.mean(path_of(fedawe(turns, lr=0.02, algorithm=name, start=start))[-4:])
        for name, start in (("fedavg", 2.0), ("fedawe", 1.25))
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
        ({"algorithm": {"name": "fedawe", "clip": 0.0}}, "got clip = 0.0; expected a positive"),
        (
            {"algorithm": {"name": "fedawe", "clip": 1.0}, "weights": "examples"},
            'a plain mean of updates, got weights = "examples"',
        ),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "fedawe", **keys})
