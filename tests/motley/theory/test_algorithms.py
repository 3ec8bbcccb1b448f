"""What theory says of each algorithm, on parabolas, through the whole simulation; the worked
numbers of docs/methods/algorithms.md."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

from motley.algorithms.fedprox import AdaptiveAverage
from motley.algorithms.parts import JobContext, PreTrainingSignals, ServerContext
from motley.algorithms.qfedavg import FairUpdate
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.tasks.task import ModelState

ALL = [
    "fedavg",
    "fedprox",
    "scaffold",
    {"name": "scaffold", "option": "I"},
    "fednova",
    "fedavgm",
    "fedadagrad",
    "fedadam",
    "fedyogi",
    "feddyn",
    "qfedavg",
    pytest.param("fedbn", marks=pytest.mark.filterwarnings("ignore:'fedbn' leaves layers")),
    {"name": "fedprox", "mu": 1.0, "adaptive": True},
]


def simulate(minima=(0.0, 10.0), taus=(2, 20), lr=0.01, rounds=1, start=None, **keys) -> RoundLoop:
    """Parabolas of curvature 1; client k takes ``taus[k]`` full-gradient steps; the model starts at
    ``start``."""
    base = {
        "task": {"name": "quadratic", "minima": list(minima), "examples": list(taus)},
        "population": len(minima),
        "cohort": len(minima),
        "partition": "by_writer",
        "stop": {"rounds": rounds},
        "local": {"batch_size": 1, "optimizer": {"name": "sgd", "lr": lr}},
        "dtype": "float64",
        "engine": "sequential",
        "evaluate": {"every": 10_000, "per_client": False},
        "weights": "uniform",
    }
    simulation = build(Experiment(**{**base, **keys}))
    if start is not None:
        simulation.state.server.model.x.fill_(start)
    return simulation


def run(**keys) -> float:
    simulation = simulate(**keys)
    while not simulation.done:
        simulation.step()
    return simulation.state.server.model.x.item()


def test_scaffold_two_clients_two_rounds() -> None:
    """F_1 = (w-1)^2/2, F_2 = (w-3)^2/2, x = 0, lr .1, two steps, option II. Round 1: y = (.19,
    .57), c_k = -y / .2 = (-.95, -2.85), x = .38, c = -1.9. Round 2: y = (.6783, .6973), c_k =
    (-.5415, -2.5365), x = .6878, c = -1.539."""
    simulation = simulate(
        minima=(1.0, 3.0), taus=(2, 2), lr=0.1, start=0.0, rounds=2, algorithm="scaffold"
    )
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(0.38, rel=1e-12)
    assert simulation.state.server.extra["c"].item() == pytest.approx(-1.9, rel=1e-12)
    assert [simulation.state.clients.client_states[k]["c"].item() for k in (0, 1)] == pytest.approx(
        [-0.95, -2.85], rel=1e-12
    )
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(0.6878, rel=1e-12)
    assert simulation.state.server.extra["c"].item() == pytest.approx(-1.539, rel=1e-12)
    assert [simulation.state.clients.client_states[k]["c"].item() for k in (0, 1)] == pytest.approx(
        [-0.5415, -2.5365], rel=1e-12
    )


def test_scaffold_with_gradients_at_the_received_model() -> None:
    """The same clients under option I: round 1 as before, x = .38, and c_k = grad F_k(0) = (-1,
    -3), c = -2. In round 2 both step along (w - m_k) - c_k + c = w - 2: y = .542, then .6878, for
    both. c_k = grad F_k(.38) = (-.62, -2.62)."""
    option = {"name": "scaffold", "option": "I"}
    simulation = simulate(
        minima=(1.0, 3.0), taus=(2, 2), lr=0.1, start=0.0, rounds=2, algorithm=option
    )
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(0.38, rel=1e-12)
    assert [simulation.state.clients.client_states[k]["c"].item() for k in (0, 1)] == pytest.approx(
        [-1.0, -3.0], rel=1e-12
    )
    assert simulation.state.server.extra["c"].item() == pytest.approx(-2.0, rel=1e-12)
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(0.6878, rel=1e-12)
    assert [simulation.state.clients.client_states[k]["c"].item() for k in (0, 1)] == pytest.approx(
        [-0.62, -2.62], rel=1e-12
    )


@pytest.mark.parametrize(
    ("optimizer", "taus", "rounds"),
    [({"name": "sgd", "lr": 0.1}, (2, 10), 50), ({"name": "adam", "lr": 0.01}, (2, 20), 40)],
)
def test_scaffold_option_one_reaches_the_optimum(
    optimizer: dict[str, object], taus: tuple[int, int], rounds: int
) -> None:
    """Also under Adam, up to its step: near the optimum the corrected gradients of all clients are
    small together. From 3, a hundredth a step."""
    local = {"batch_size": 1, "optimizer": optimizer}
    keys = {"local": local, "rounds": rounds, "taus": taus, "start": 3.0}
    found = run(algorithm={"name": "scaffold", "option": "I"}, **keys)
    assert found == pytest.approx(5.0, abs=1e-8 if optimizer["name"] == "sgd" else 0.05)


def test_what_is_measured_on_arrival_takes_time() -> None:
    """Three steps of a second; a loss over three batches takes a third of a step each, a gradient a
    whole step each."""
    keys = {"taus": (3, 3), "device": {"name": "constant", "seconds": 1.0}}
    took = {}
    for name, option in {"fedavg": {}, "qfedavg": {}, "scaffold": {"option": "I"}}.items():
        simulation = simulate(algorithm={"name": name, **option}, **keys)
        simulation.step()
        took[name] = simulation.state.clients.now_s
    assert took == pytest.approx({"fedavg": 3.0, "qfedavg": 4.0, "scaffold": 6.0})


@pytest.mark.parametrize(("q", "want"), [(0.0, 0.4), (1.0, 26 / 90), (2.0, 98 / 466)])
def test_qfedavg_by_hand(q: float, want: float) -> None:
    """x = 0, lr .1, so L = 10. F_1 = (w - 1)^2 and F_2 = 2.25 (w - 4/3)^2: F(0) = (1, 4), one step
    gives w = (.2, .6) and u = (-2, -6). q = 1: Delta = (-2, -24), h = 1 * 4 + 10, 1 * 36 + 40 =
    (14, 76): x = 26/90 = .288889. q = 2: Delta = (-2, -96), h = 2 * 4 + 10, 8 * 36 + 160 = (18,
    448): 98/466 = .210300. q = 0: 8/20 = .4, plain averaging."""
    task = {"name": "quadratic", "minima": [1.0, 4 / 3], "curvatures": [2.0, 4.5]}
    simulation = simulate(
        minima=(1.0, 4 / 3), task=task, lr=0.1, start=0.0, algorithm={"name": "qfedavg", "q": q}
    )
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(want, rel=1e-9)


def test_qfedavg_stands_where_the_powers_of_the_losses_balance() -> None:
    """Curvatures 1 and 4, minima 0 and 10, one step each, q = 1: sum F F' = x^3 / 2 - 8 (10 - x)^3
    = 0, so x / (10 - x) is the cube root of 16 and x = 7.158915; q = 0 stands at 8, which suits the
    second client more."""
    keys = {
        "task": {"name": "quadratic", "minima": [0.0, 10.0], "curvatures": [1.0, 4.0]},
        "rounds": 80,
        "lr": 0.1,
    }
    ratio = 16 ** (1 / 3)
    assert run(algorithm="qfedavg", **keys) == pytest.approx(10 * ratio / (1 + ratio), abs=1e-6)
    assert run(algorithm={"name": "qfedavg", "q": 0.0}, **keys) == pytest.approx(8.0, abs=1e-6)


def test_losses_times_a_factor_leave_the_shares_of_clients() -> None:
    """All F times c: F^q of one client over another's stays, and the step changes its length
    only."""
    fair = FairUpdate(q=2.0)
    shares = []
    for c in (1.0, 7.0):
        sent = []
        for loss in (1.0, 4.0):
            ctx = JobContext(
                torch.zeros(1),
                {},
                None,
                1,
                0.1,
                1,
                1.0,
                Layout(()),
                PreTrainingSignals(loss=c * loss),
            )
            sent.append(
                fair.finish(ModelState(torch.ones(1), torch.zeros(0), torch.zeros(0)), ctx)[0]
            )
        assert fair.update(sent[0]).tolist() == pytest.approx([1.0], rel=1e-6)
        shares.append(sent[1]["scale"].value.item() / sent[0]["scale"].value.item())
    assert shares == pytest.approx([16.0, 16.0], rel=1e-8)


def test_qfedavg_uses_each_clients_own_loss() -> None:
    """One loss of 2.5 for both clients of the worked example would give .222222 (A7.9): no
    reweighting, only a shorter step."""
    parts = []
    for loss, w in ((2.5, 0.2), (2.5, 0.6)):
        ctx = JobContext(
            torch.zeros(1), {}, None, 1, 0.1, 1, 1.0, Layout(()), PreTrainingSignals(loss=loss)
        )
        parts.append(
            FairUpdate(q=1.0).finish(
                ModelState(torch.tensor([w]), torch.zeros(0), torch.zeros(0)), ctx
            )[0]
        )
    wrong = sum(p["delta"].value.item() for p in parts) / sum(p["h"].value.item() for p in parts)
    assert wrong == pytest.approx(0.222222, abs=1e-6)
    test_qfedavg_by_hand(1.0, 26 / 90)


def test_a_corrupted_federation_is_told_about_fairness() -> None:
    keys = {
        "task": "synthetic",
        "population": 4,
        "cohort": 2,
        "partition": "by_writer",
        "stop": {"rounds": 1},
        "label_noise": {"name": "symmetric", "rate": 0.3},
    }
    with pytest.warns(
        UserWarning, match=r"q-FedAvg \(q = 1\) gives large weights to clients with a high loss"
    ):
        build(Experiment(**keys, algorithm="qfedavg"))
    build(Experiment(**keys, algorithm={"name": "qfedavg", "q": 0.0}))  # warnings are errors here
    build(Experiment(**keys))
    build(Experiment(**{**keys, "label_noise": "none"}, algorithm="qfedavg"))


def test_scaffold_begins_as_uniform_averaging() -> None:
    assert run(algorithm="scaffold") == pytest.approx(run(algorithm="fedavg"), rel=1e-14)


def test_scaffold_reaches_the_optimum_where_averaging_stays_away() -> None:
    """Steps (2, 20) of rate .05: FedAvg stands at 10 (1 - .95^20) / (2 - .95^2 - .95^20) =
    8.680675; with control variates the minimum of the mean, 5, is the only fixed point. FedAvg
    comes within 1e-7 in 40 rounds, SCAFFOLD within 1e-9 in 22."""
    assert run(lr=0.05, rounds=50) == pytest.approx(8.680675, abs=1e-6)
    assert run(algorithm="scaffold", lr=0.05, rounds=30) == pytest.approx(5.0, abs=1e-8)


def test_scaffold_divides_by_the_whole_population() -> None:
    """Two of four clients a round: c moves by (1/K) of the sum, K = 4, and stays the mean of all
    c_k, of whoever took part."""
    simulation = simulate(
        minima=(0.0, 10.0, 4.0, -3.0),
        taus=(2, 5, 3, 4),
        rounds=25,
        algorithm="scaffold",
        cohort=2,
        lr=0.05,
    )
    while not simulation.done:
        simulation.step()
        own = [
            simulation.state.clients.client_states[k]["c"].item()
            if k in simulation.state.clients.client_states
            else 0.0
            for k in range(4)
        ]
        assert simulation.state.server.extra["c"].item() == pytest.approx(
            np.mean(own), rel=1e-12, abs=1e-14
        )


def test_scaffold_under_momentum_is_not_inflated() -> None:
    """Momentum .9, ten steps: tau in place of ||a||_1 would make c_k 4.138106 times too long. With
    a constant gradient g (far from the minimum, tiny steps) option II must give c_k = g."""
    local = {"batch_size": 1, "optimizer": {"name": "sgd", "lr": 1e-9, "momentum": 0.9}}
    simulation = simulate(
        minima=(-100.0, -100.0), taus=(10, 10), start=0.0, algorithm="scaffold", local=local
    )
    simulation.step()
    assert simulation.state.clients.client_states[0]["c"].item() == pytest.approx(100.0, rel=1e-6)


def test_a_dropped_client_keeps_its_variate() -> None:
    """m = (0, 10), x = 4, lr .1, two steps. Round 1: y = (3.24, 5.14), c_k = (3.8, -5.7), x = 4.19,
    c = -.95. Client 1's second upload is rejected: its variate stays as it was; client 0 steps
    along w - 4.75 to 4.2964, c_0 = 4.218, c = -.95 + .418 / 2 = -.741. In round 3 client 1 steps
    along w - 10 + 5.7 - .741: 4.37086, 4.437874, and c_1 = -5.7 + .741 - .141474 / .2."""
    simulation = simulate(taus=(2, 2), rounds=3, algorithm="scaffold", lr=0.1, start=4.0)
    simulation.step()
    before = simulation.state.clients.client_states[1]["c"].clone()
    assert before.item() == pytest.approx(-5.7, rel=1e-12)
    lost = simulation.engine.train

    def failing(jobs, *rest):
        for job, done in zip(jobs, lost(jobs, *rest), strict=True):
            yield (
                done
                if job.client == 0
                else type(done)(
                    done.client, done.parts, done.client_state, done.steps, done.signals, False
                )
            )

    simulation.engine.train = failing
    simulation.step()
    assert torch.equal(simulation.state.clients.client_states[1]["c"], before)
    simulation.engine.train = lost
    simulation.step()
    now = simulation.state.clients.client_states[1]["c"].item()
    assert now == pytest.approx(-5.66637, rel=1e-12)


def test_fednova_by_hand() -> None:
    """m = (0, 10), p = .5 each, x = 4, lr .1, steps (2, 4): y = (3.24, 6.0634), d = (3.8, -5.1585),
    tau_eff = 3: x = 4 - .1 * 3 * (-.67925) = 4.203775; plain averaging gives 4.6517."""
    keys = {"taus": (2, 4), "lr": 0.1, "start": 4.0}
    assert run(algorithm="fednova", **keys) == pytest.approx(4.203775, abs=5e-7)
    assert run(**keys) == pytest.approx(4.6517, abs=5e-6)


@pytest.mark.parametrize(("lr", "want"), [(0.01, 4.778178), (0.1, 3.161589), (0.001, 4.977530)])
def test_fednova_bias_vanishes_with_the_step(lr: float, want: float) -> None:
    """Fixed points with steps (2, 20); the target is 5. FedAvg's is 9.014818 however small the
    step. With 11 steps on average, of which client k goes (1 - (1 - lr)^tau) / tau of the way to
    its minimum each, every round leaves the same share of the way to the fixed point."""
    tau = np.array([2, 20])
    gone = (1 - (1 - lr) ** tau) / tau
    assert (gone * [0.0, 10.0]).sum() / gone.sum() == pytest.approx(want, abs=5e-7)
    left = 1 - 11 * gone.mean()
    simulation = simulate(algorithm="fednova", lr=lr, rounds=30)
    way = simulation.state.server.model.x.item() - want
    for number in range(1, 31):
        simulation.step()
        x = simulation.state.server.model.x.item()
        assert x == pytest.approx(want + left**number * way, abs=1e-6)


def test_fednova_with_equal_work_is_averaging() -> None:
    assert run(algorithm="fednova", taus=(7, 7), lr=0.1) == pytest.approx(
        run(taus=(7, 7), lr=0.1), rel=1e-13
    )


@pytest.mark.parametrize(
    ("momentum", "mu", "norm"),
    [(0.9, 0.0, 5.61), (0.0, 1.0, 2.71), (0.9, 1.0, 5.14)],
    ids=["momentum", "proximal", "both"],
)
def test_fednova_counts_what_the_solver_did(momentum: float, mu: float, norm: float) -> None:
    """Three steps at lr .1, so lr mu = .1: ||a||_1 = 5.61, 2.71, 5.14. The uploaded direction is
    delta over it."""
    local = {"batch_size": 1, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": momentum}}
    keys = {"minima": (1.0, 1.0), "taus": (3, 3), "start": 0.0, "local": local}
    simulation = simulate(algorithm={"name": "fednova", "mu": mu}, **keys)
    seen = {}

    class Spy(type(simulation.algorithm.aggregator)):
        def add(self, total, upload):
            if not seen:
                seen.update(
                    {
                        name: part.value.item()
                        for name, part in upload.parts.items()
                        if part.value.numel()
                    }
                )
            return super().add(total, upload)

    object.__setattr__(simulation.algorithm, "aggregator", Spy())
    simulation.step()
    assert seen["solver_norm"] == pytest.approx(norm, abs=5e-7)
    assert seen["delta"] * norm == pytest.approx(simulation.state.server.model.x.item(), rel=1e-12)


def test_feddyn_by_hand() -> None:
    """m = (0, 10), alpha = 1, x = 3, exact local solves: w = (1.5, 6.5), g = (1.5, -3.5), h = -1, x
    = 4 + 1 = 5. Solved by 400 steps of .1, which leave .8^400 of the way."""
    simulation = simulate(
        taus=(400, 400), lr=0.1, start=3.0, algorithm={"name": "feddyn", "alpha": 1.0}
    )
    simulation.step()
    assert [simulation.state.clients.client_states[k]["g"].item() for k in (0, 1)] == pytest.approx(
        [1.5, -3.5], rel=1e-12
    )
    assert simulation.state.server.extra["h"].item() == pytest.approx(-1.0, rel=1e-12)
    assert simulation.state.server.model.x.item() == pytest.approx(5.0, rel=1e-12)


def test_feddyn_reaches_the_optimum_and_h_is_the_mean_of_g() -> None:
    keys = {
        "minima": (0.0, 10.0, 4.0),
        "taus": (10, 20, 15),
        "lr": 0.1,
        "algorithm": {"name": "feddyn", "alpha": 1.0},
    }
    simulation = simulate(rounds=45, cohort=2, **keys)
    while not simulation.done:
        simulation.step()
        own = [
            simulation.state.clients.client_states[k]["g"].item()
            if k in simulation.state.clients.client_states
            else 0.0
            for k in range(3)
        ]
        assert simulation.state.server.extra["h"].item() == pytest.approx(
            np.mean(own), rel=1e-10, abs=1e-12
        )
    assert simulation.state.server.model.x.item() == pytest.approx(14 / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "step", "v"),
    [
        ("fedadagrad", 0.00990050, 0.010001),
        ("fedadam", 0.00905028, 0.00010099),
        ("fedyogi", 0.00904988, 0.000101),
    ],
)
def test_adaptive_servers_by_hand(name: str, step: float, v: float) -> None:
    """Total .1, server rate .01, fresh state v = 1e-6: Adagrad (beta1 0) .01 * .1 /
    (sqrt(.010001) + .001), Adam and Yogi with beta1 = .9, beta2 = .99. One client from 0 with its
    minimum at 1 and one step of .1 has delta = .1."""
    simulation = simulate(minima=(1.0,), taus=(1,), lr=0.1, start=0.0, algorithm=name)
    simulation.step()
    assert simulation.state.server.model.x.item() == pytest.approx(step, abs=5e-9)
    assert simulation.state.server.extra["v"].item() == pytest.approx(v, rel=1e-5)


def test_adagrad_with_momentum_by_hand() -> None:
    algorithm = {"name": "fedadagrad", "beta1": 0.9}
    assert run(minima=(1.0,), taus=(1,), lr=0.1, start=0.0, algorithm=algorithm) == pytest.approx(
        0.00099005, abs=5e-9
    )


@pytest.mark.parametrize(
    ("name", "step"), [("fedadagrad", 0.001), ("fedadam", 0.0316227), ("fedyogi", 0.0316227)]
)
def test_adaptive_servers_as_flamby_has_them(name: str, step: float) -> None:
    """v from 0, beta1 .9, beta2 .999, tau 1e-8, total .1, server rate .01: m = .01; Adagrad's v =
    .01, so .01 * .01 / .1; Adam's and Yogi's v = .00001, so .0001 / (.00316228 + 1e-8)."""
    betas = {"beta1": 0.9} if name == "fedadagrad" else {"beta1": 0.9, "beta2": 0.999}
    algorithm = {"name": name, "first_v": 0.0, "tau": 1e-8, **betas}
    keys = {"minima": (1.0,), "taus": (1,), "lr": 0.1, "start": 0.0, "algorithm": algorithm}
    assert run(**keys) == pytest.approx(step, abs=5e-8)


@pytest.mark.parametrize(("form", "step"), [("adam", 0.00990099), ("flower", 0.00674963)])
def test_bias_corrections_by_hand(form: str, step: float) -> None:
    """Total .1, server rate .01, v from 0: m = .01, v = .0001. Adam: .01 * .1 / (.1 + .001).
    Flower's: .01 * .01 / (.01 + .001) = .00909091 times sqrt(1 - .99^2) / (1 - .9^2) = .141067 /
    .19 = .742460."""
    algorithm = {"name": "fedadam", "bias_correction": form}
    keys = {"minima": (1.0,), "taus": (1,), "lr": 0.1, "start": 0.0, "algorithm": algorithm}
    assert run(**keys) == pytest.approx(step, abs=5e-9)


def test_a_second_moment_does_not_begin_below_zero() -> None:
    message = r"got first_v = -1\.0; expected a number of at least 0"
    with pytest.raises(ConfigError, match=message):
        run(algorithm={"name": "fedadam", "first_v": -1.0})


def test_yogi_lets_v_fall_slowly() -> None:
    """v = 1, total = .1: Adam forgets to .9901; Yogi takes off .01 * .01 = .0001 only."""
    from motley.algorithms.fedopt import ServerAdam, ServerYogi

    v = torch.tensor(1.0).double()
    square = torch.tensor(0.01).double()
    assert ServerAdam().second(v, square).item() == pytest.approx(0.9901)
    assert ServerYogi().second(v, square).item() == pytest.approx(0.9999)


@pytest.mark.filterwarnings("ignore:the targets have a root mean square of 1e")
def test_server_momentum_grows_to_its_limit() -> None:
    """A constant total gives steps of 1, 1.9, 2.71, ...: total / (1 - beta) in the end; beta = 0 is
    FedAvg."""
    keys = {"minima": (1e9,), "taus": (1,), "lr": 1e-9, "start": 0.0}
    assert run(rounds=3, algorithm="fedavgm", **keys) == pytest.approx(1 + 1.9 + 2.71, rel=1e-6)
    # .9^100 = 3e-5 of the limit is missing
    simulation = simulate(rounds=100, algorithm="fedavgm", **keys)
    before = 0.0
    while not simulation.done:
        before = simulation.state.server.model.x.item()
        simulation.step()
    last = simulation.state.server.model.x.item() - before
    assert last == pytest.approx(10.0, rel=1e-4)
    assert run(rounds=5, algorithm={"name": "fedavgm", "momentum": 0.0}) == run(rounds=5)


def test_the_adaptive_pull_follows_the_loss() -> None:
    """mu .25, step .1, patience 2. Losses 5, 4, 3: two falls, mu .15; 3, 2: an equal one breaks the
    row; 1: mu .05; 0, -1: mu 0, never below; 7: mu .1; 7: as it was."""
    server = AdaptiveAverage(mu=0.25, step=0.1, patience=2)
    state = server.init(ModelState(torch.zeros(1), torch.zeros(0), torch.zeros(0)), 4)
    path = []
    for loss in (5, 4, 3, 3, 2, 1, 0, -1, 7, 7):
        total = {"delta": torch.zeros(1).double(), "loss": torch.tensor([loss]).double()}
        state = server.update(state, total, ServerContext(Layout(()), 4, 2))
        path.append(state.extra["mu"].item())
    assert path == pytest.approx(
        [0.25, 0.25, 0.15, 0.15, 0.15, 0.05, 0.05, 0.0, 0.1, 0.1], abs=1e-12
    )


def test_the_adaptive_pull_is_sent_and_used() -> None:
    """Minima 0 and 10, a step of lr .9 from a point between: the loss falls, so mu 1 becomes .9
    after the first fall with patience 1 and clients step along F' + .9 (w - x). One number more
    each way. The rate 1.9 overshoots: the loss grows, and mu with it."""
    rule = {"name": "fedprox", "mu": 1.0, "adaptive": True, "patience": 1}
    keys = {"taus": (2, 2), "lr": 0.5, "start": 9.0, "rounds": 3}
    simulation = simulate(algorithm=rule, **keys)
    x = 9.0
    found = []
    for mu in (1.0, 1.0, 0.9):
        after = []
        for m in (0.0, 10.0):
            w = x
            for _ in range(2):
                w -= 0.5 * ((w - m) + mu * (w - x))
            after.append(w)
        x = sum(after) / 2
        simulation.step()
        found.append(simulation.state.server.extra["mu"].item())
        assert simulation.state.server.model.x.item() == pytest.approx(x, rel=1e-12)
    assert found == pytest.approx([1.0, 0.9, 0.8])
    up = simulation.channel.upload_bits
    model = simulation.algorithm.local.download(simulation.state.server)
    assert (up, simulation.channel.whole_download(model)) == (
        64 + 8 * (67 + 1 + 4 + 38),
        64,
    )  # heads of delta and of loss
    wild = simulate(algorithm={**rule, "mu": 0.0}, **{**keys, "lr": 2.5, "taus": (1, 1)})
    wild.step(), wild.step()
    assert wild.state.server.extra["mu"].item() == pytest.approx(0.1)


@functools.cache
def unequal(algorithm: str, engine: str) -> float:
    """The model after three rounds of two of three clients with unequal steps; the algorithm as
    JSON, so that the reference is computed once for all engines."""
    keys = {"minima": (0.0, 10.0, 4.0), "taus": (2, 7, 3), "lr": 0.05, "cohort": 2, "rounds": 3}
    return run(algorithm=json.loads(algorithm), engine=engine, **keys)


@pytest.mark.parametrize("engine", ["threads", "batched", "vmap", "debug"])
@pytest.mark.parametrize("name", ALL, ids=str)
def test_every_engine_agrees_with_the_reference(name: object, engine: str) -> None:
    """In float64, to 1e-9."""
    algorithm = json.dumps(name)
    assert unequal(algorithm, engine) == pytest.approx(unequal(algorithm, "sequential"), rel=1e-9)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"algorithm": "scaffold", "server": "momentum"},
            "SCAFFOLD's server keeps c, which the server rule Momentum does not",
        ),
        (
            {"algorithm": "scaffold", "local": {"batch_size": 1, "optimizer": "adam"}},
            'option II computes a gradient.*not possible under Adam.*option = "I"',
        ),
        (
            {"algorithm": {"name": "scaffold", "option": "III"}},
            "algorithm.option: got 'III'.*expected one of 'I', 'II'",
        ),
        (
            {"algorithm": {"name": "fedprox", "adaptive": True}, "server": "adam"},
            "keeps the adaptive mu, which the server rule ServerAdam",
        ),
        (
            {"algorithm": {"name": "fedprox", "adaptive": True}, "weights": "horvitz_thompson"},
            "follows a mean loss, whose weights must sum to 1",
        ),
        (
            {"algorithm": {"name": "fedprox", "patience": 2}},
            "step and patience belong to adaptive = true",
        ),
        (
            {"algorithm": {"name": "fedprox", "adaptive": True, "step": 0}},
            "got step = 0.0; expected a positive number",
        ),
        (
            {"algorithm": "qfedavg", "server": "adam"},
            "divides by the sum of the h_k, which the server rule ServerAdam does not",
        ),
        (
            {"algorithm": "qfedavg", "aggregator": "median"},
            "Median compares plain updates, but FairUpdate also uploads h",
        ),
        (
            {"algorithm": {"name": "qfedavg", "q": -1}},
            "got q = -1.0; expected a finite number of at least 0",
        ),
        (
            {"algorithm": "fednova", "weights": "horvitz_thompson"},
            "two weighted means, whose weights must sum to 1",
        ),
        ({"algorithm": "fednova", "server": "adam"}, "FedNova's updates are normalized"),
        (
            {"algorithm": "scaffold", "aggregator": "median"},
            "Median compares plain updates, but ControlVariates also uploads dc",
        ),
        (
            {"aggregator": "krum", "weights": "examples"},
            'Krum weighs all clients alike.*use "uniform"',
        ),
        (
            {"aggregator": {"name": "krum", "f": 1}},
            "needs at least 5 uploads in a round, and the cohort is 2",
        ),
        (
            {"algorithm": {"name": "fedadam", "beta2": 1.0}},
            "got beta2 = 1.0; expected at least 0 and less than 1",
        ),
        (
            {"algorithm": {"name": "feddyn", "alpha": 0.0}},
            "got alpha = 0.0; expected a positive number",
        ),
        ({"aggregator": "norm_bound"}, "aggregator.c: 'norm_bound' needs this option"),
        (
            {"algorithm": "fedadam", "server": "average"},
            r"server: got 'average', and the server step of algorithm 'fedadam' \(ServerAdam\) is "
            'all that it brings.*leave server out, or write algorithm = "fedavg" beside it',
        ),
        (
            {"algorithm": {"name": "fedavg", "server_lr": 0.5}, "server": "momentum"},
            "server step of algorithm 'fedavg' .*leave server out, or leave its options out",
        ),
    ],
)
def test_what_cannot_go_together_is_refused_with_its_reason(
    keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(**keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"server": "momentum"},
        {"algorithm": {"name": "fedprox", "mu": 0.1}, "server": "momentum"},
        {
            "algorithm": {"name": "fedadam", "server_lr": 0.01},
            "server": {"name": "adam", "lr": 0.01},
        },
    ],
    ids=["beside FedAvg", "beside a local rule", "the same"],
)
def test_a_server_that_replaces_nothing_is_taken(keys: dict[str, object]) -> None:
    simulate(**keys)
