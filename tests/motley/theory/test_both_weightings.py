"""Methods that were published with equal weights, weighted by samples: steps worked by hand, the
objective that they minimize, and equal samples, which change nothing."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from motley.algorithms import CATALOGUE
from motley.algorithms.fedavg import plain_fedavg
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import ServerContext
from motley.algorithms.rhfl import RHFL
from motley.algorithms.weights import Weighting, own_weights
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.rounds.backend import Sizes
from motley.tasks.quadratic import minimum
from motley.tasks.task import ModelState

from .test_algorithms import simulate

REMEMBER = ["scaffold", {"name": "scaffold", "option": "I"}, "feddyn", "mifa", "fedvarp"]
MINIMA, CURVATURES, SAMPLES = (0.0, 10.0, 4.0, -3.0), (1.0, 2.0, 0.5, 1.5), (1, 2, 3, 6)


def weighted(samples, steps=1, lr=0.1, batch=10, **keys):
    """Parabolas of which client k has so many samples, every client ``steps`` full-gradient
    steps."""
    minima = keys.pop("minima", MINIMA)
    task = {
        "name": "quadratic",
        "minima": list(minima),
        "examples": list(samples),
        "curvatures": list(keys.pop("curvatures", (1.0,) * len(minima))),
    }
    local = {"steps": steps, "batch_size": batch, "optimizer": {"name": "sgd", "lr": lr}}
    base = {"minima": minima, "task": task, "local": local, "weights": "examples"}
    return simulate(**{**base, **keys})


def values(simulation, name):
    """Return what each client keeps, 0 for one that never took part."""
    kept = simulation.state.clients.client_states
    count = len(simulation.federation)
    return [kept[k][name].item() if k in kept else 0.0 for k in range(count)]


def test_scaffold_by_samples_two_clients_two_rounds():
    """n = (1, 3), so p = (.25, .75); minima 1 and 3, x = 0, lr .1, two steps. Round 1: y = (.19,
    .57), c_k = (-.95, -2.85), x = .0475 + .4275 = .475, c = -.2375 - 2.1375 = -2.375. Round 2:
    client 0 steps along w - 1 + .95 - 2.375 = w - 2.425: .67, .8455; client 1 along w - 2.525: .68,
    .8645. c_0 = -.95 + 2.375 + (.475 - .8455) / .2 = -.4275, c_1 = -2.85 + 2.375 - 1.9475 =
    -2.4225; x = .211375 + .648375 = .85975, c = -.106875 - 1.816875 = -1.92375."""
    simulation = weighted(
        (1, 3), steps=2, minima=(1.0, 3.0), start=0.0, rounds=2, algorithm="scaffold"
    )
    for x, c, own in [(0.475, -2.375, (-0.95, -2.85)), (0.85975, -1.92375, (-0.4275, -2.4225))]:
        simulation.step()
        server = simulation.state.server
        assert server.model.x.item() == pytest.approx(x, rel=1e-12)
        assert server.extra["c"].item() == pytest.approx(c, rel=1e-12)
        assert values(simulation, "c") == pytest.approx(own, rel=1e-12)


def test_feddyn_by_samples_by_hand():
    """m = (0, 10), alpha = 1, x = 3, exact local solves: w = (1.5, 6.5), g = (1.5, -3.5) as with
    equal weights. p = (.25, .75): h = .375 - 2.625 = -2.25, x = .375 + 4.875 + 2.25 = 7.5."""
    method = {"name": "feddyn", "alpha": 1.0}
    keys = {"minima": (0.0, 10.0), "start": 3.0, "algorithm": method}
    simulation = weighted((1, 3), steps=400, **keys)
    simulation.step()
    assert values(simulation, "g") == pytest.approx([1.5, -3.5], rel=1e-12)
    assert simulation.state.server.extra["h"].item() == pytest.approx(-2.25, rel=1e-12)
    assert simulation.state.server.model.x.item() == pytest.approx(7.5, rel=1e-12)


@pytest.mark.parametrize(("q", "x"), [(0.0, 0.3), (1.0, 30 / 118), (2.0, 102 / 502)])
def test_qfedavg_by_samples_by_hand(q, x):
    """n = (3, 1), lr .1, x = 0, one step of curvature 2 and 6 at losses 1 and 4: with F = a (w -
    m)^2 / 2 and a gradient of -2 and -6, w = (.2, .6). q = 1: Delta = (-2, -24), h = (14, 76), x =
    (6 + 24) / (42 + 76). q = 2: Delta = (-2, -96), h = (18, 448), x = 102 / 502."""
    a, m = (2.0, 4.5), (1.0, 4 / 3)  # a m = gradient, a m^2 / 2 = loss
    keys = {"minima": m, "curvatures": a, "start": 0.0}
    simulation = weighted((3, 1), algorithm={"name": "qfedavg", "q": q}, **keys)
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize("weights", ["examples", "uniform"])
@pytest.mark.parametrize(("cohort", "steps"), [(4, 1), (2, 3)])
@pytest.mark.parametrize("method", REMEMBER, ids=str)
def test_the_limit_is_the_minimum_of_the_weighted_objective(method, cohort, steps, weights):
    """sum n_k a_k m_k / sum n_k a_k by samples, sum a_k m_k / sum a_k equally; also where half of
    the clients are absent. MIFA and FedVARP correct no drift: their pull is that of all steps."""
    share = np.array(SAMPLES if weights == "examples" else (1, 1, 1, 1))
    pull = np.array(CURVATURES)
    if method in ("mifa", "fedvarp"):
        pull = 1 - (1 - 0.2 * pull) ** steps
    rounds = 45 if method == "feddyn" and cohort == 2 else 37  # the others are nearer by then
    method = {"name": "feddyn", "alpha": 1.0} if method == "feddyn" else method
    keys = {"curvatures": CURVATURES, "algorithm": method, "cohort": cohort, "lr": 0.2}
    simulation = weighted(SAMPLES, steps=steps, weights=weights, rounds=rounds, **keys)
    while not simulation.done:
        simulation.step()
    wanted = float(minimum(share, pull, MINIMA))
    assert simulation.state.server.model.x.item() == pytest.approx(wanted, abs=0.002)


@pytest.mark.parametrize("method", [*REMEMBER, "qfedavg"], ids=str)
def test_clients_that_all_claim_no_samples_do_not_move_the_model(method):
    simulation = weighted(SAMPLES, algorithm=method, start=1.5, rounds=2)
    examples = simulation.backend.planner.examples
    simulation.backend.sizes = lambda now: Sizes(examples, np.zeros(4, np.int64))
    while not simulation.done:
        simulation.step()
    assert simulation.state.server.model.x.item() == 1.5


@pytest.mark.parametrize(
    ("method", "server", "own"), [("scaffold", "c", "c"), ("feddyn", "h", "g")]
)
def test_what_the_server_keeps_stays_the_weighted_mean_of_the_clients(method, server, own):
    """Two of four clients a round, weighted by samples; SCAFFOLD's also where a client is drawn
    twice, since its variate moves once."""
    draws = {"feddyn": {}, "scaffold": {"selector": {"name": "uniform", "variant": "weighted_wr"}}}
    keys = {"algorithm": method, "cohort": 2, "rounds": 12, "lr": 0.05, **draws[method]}
    simulation = weighted(SAMPLES, steps=3, **keys)
    while not simulation.done:
        simulation.step()
        mean = np.average(values(simulation, own), weights=SAMPLES)
        kept = simulation.state.server.extra[server].item()
        assert kept == pytest.approx(mean, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("method", [*REMEMBER, "qfedavg"], ids=str)
def test_equal_samples_are_equal_weights(method):
    """Three samples each: the same models to rounding, after rounds with half of the clients."""
    keys = {"algorithm": method, "cohort": 2, "rounds": 6, "lr": 0.05}
    found = []
    for weights in ("examples", "uniform"):
        simulation = weighted((3, 3, 3, 3), steps=2, weights=weights, **keys)
        while not simulation.done:
            simulation.step()
        found.append(simulation.state.server.model.x.item())
    assert found[0] == pytest.approx(found[1], rel=1e-13)


@pytest.mark.parametrize(("method", "name"), [("scaffold", "c"), ("feddyn", "h"), ("mifa", "mean")])
def test_a_mean_over_clients_is_divided_anew_when_more_are_met(method, name):
    """A server that knew 4 samples and kept 6 knows 12 now: what it kept is 2. An update of 0 of a
    client with one sample changes nothing else."""
    server = CATALOGUE.build({"name": method}).change(plain_fedavg()).server
    model = ModelState(torch.zeros(1), torch.zeros(0), torch.zeros(0))
    nothing = torch.zeros(1, dtype=torch.float64)
    state = server.init(model, 3)
    kept = {name: torch.tensor([6.0], dtype=state.extra[name].dtype)}
    known = {"total_weight": torch.tensor([4.0], dtype=torch.float64)}
    state = type(state)(model, {**state.extra, **kept, **known})
    each = {"each.client": torch.tensor([1]), "each.own_weight": torch.ones(1)}
    total = {"delta": nothing, "dc": nothing, "rate": nothing, "each.delta": nothing[None], **each}
    state = server.update(state, total, ServerContext(Layout(()), 3, 1, own_weights=(1.0, 12.0)))
    assert state.extra[name].item() == 2.0
    assert state.extra["total_weight"].item() == 12.0


def test_rhfl_by_samples_multiplies_its_confidence():
    """The same losses before and now, so that all confidences are equal: the step is the mean by
    samples, (1 * 1 + 3 * 5) / 4. With equal weights it is 3."""
    server = RHFL(align=False).change(plain_fedavg()).server
    model = ModelState(torch.zeros(1), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    rows = torch.tensor([[1.0], [5.0]])
    empty = torch.zeros(2, 0)
    for own, x in [((1.0, 3.0), 4.0), ((2.0, 2.0), 3.0)]:
        total = {
            "delta": rows.mean(0),
            "counters": model.counters,
            "each.client": torch.tensor([0, 1]),
            "each.own_weight": torch.tensor(own, dtype=torch.float64),
            "each.delta": rows,
            "each.buffers": empty,
            "each.counters": empty.long(),
        }

        def losses(clients, models):
            return torch.ones(2)

        context = ServerContext(Layout(()), 2, 2, losses=losses)
        state = server.update(server.init(model, 2), total, context)
        assert state.model.x.item() == pytest.approx(x, rel=1e-7)


@pytest.mark.parametrize("method", [*REMEMBER, "qfedavg"], ids=str)
@pytest.mark.parametrize("weights", ["horvitz_thompson", "score", "selector"])
def test_other_weightings_are_refused(method, weights):
    message = f'or weights by samples.*got weights = "{weights}", use "uniform" or "examples"'
    with pytest.raises(ConfigError, match=message):
        simulate(algorithm=method, weights=weights)


def weightings(algorithm):
    """The ``weights`` that a method takes, first those where the key is left out; only these where
    no weights decide anything."""
    usual = algorithm.weights or "examples"
    if algorithm.local.ignores_weights() is not None:
        return (usual,)
    parts = (algorithm.local, algorithm.loss, algorithm.aggregator, algorithm.server)
    return tuple(
        mode
        for mode in dict.fromkeys((usual, *get_args(Weighting)))
        if not any(part.refuses(algorithm, SGD(), mode) for part in parts)
    )


def test_rhfl_by_samples_needs_a_common_model():
    made = {mode: RHFL(mode=mode).change(plain_fedavg()) for mode in ("agg", "kd")}
    taken = {mode: weightings(algorithm) for mode, algorithm in made.items()}
    assert taken == {"agg": ("uniform", "examples"), "kd": ("uniform",)}
    said = made["kd"].server.refuses(made["kd"], SGD(), "examples")
    assert said.startswith("in mode 'kd' no models are averaged")
    assert said.endswith('got weights = "examples", use "uniform" or leave the key out')


def test_a_method_says_which_weightings_it_takes():
    """The published one first."""
    taken = {
        name: weightings(CATALOGUE.build({"name": name}).change(plain_fedavg()))
        for name in ("fedavg", "scaffold", "fednova", "ditto", "local_only")
    }
    six = ("examples", "uniform", "horvitz_thompson", "score", "selector", "selector_ratio")
    assert taken == {
        "fedavg": six,
        "scaffold": ("uniform", "examples"),
        "fednova": ("examples", "uniform", "score", "selector_ratio"),
        "ditto": ("uniform", "examples", *six[2:]),
        "local_only": ("examples",),
    }


def test_own_weights():
    assert own_weights("examples", np.array([3, 1])).tolist() == [3.0, 1.0]
    assert own_weights("uniform", np.array([3, 1])).tolist() == [1.0, 1.0]
