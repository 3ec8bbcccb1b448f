"""pFedFDA: heads, distributions and their mixture by hand, the shares against a grid, and rounds
and examinations against the method written out."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional as F

from motley.algorithms.fedavg import FedAvg
from motley.algorithms.fedper import FedPer
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.moon import Moon
from motley.algorithms.parts import MeasuredFeatures
from motley.algorithms.pfedfda import (
    GaussianHead,
    Gaussians,
    PFedFDA,
    best_shares,
    gaussians_of,
    least_in_unit_box,
    own_gaussians,
    prior_of,
    triangle,
)
from motley.core.errors import ConfigError, MotleyError
from motley.engines.engine import AdaptInputs, Job
from motley.engines.local import Sequential
from motley.experiments.build import build
from motley.tasks.flat import layout_of
from motley.testing.algorithms import COHORTS, SIZES, Play
from tests.motley.algorithms.test_personalised import near
from tests.motley.algorithms.test_plain_reference import Plain, average
from tests.rows import Rows

LR = 0.1
E = 1e-4


def gaussians(means: list[float], covariance: float) -> Gaussians:
    """Distributions of one feature."""
    return Gaussians(
        torch.tensor(means).double().unsqueeze(1), torch.tensor([[covariance]]).double()
    )


def features(values: list[float], targets: list[int]) -> MeasuredFeatures:
    return MeasuredFeatures(torch.tensor(values).double().unsqueeze(1), torch.tensor(targets))


# ---- numbers by hand ----


def test_a_prior_by_hand() -> None:
    """Shares 3/4, 1/4 and 0 of three classes, each with .0001 more, by 1.0003."""
    prior = prior_of(torch.tensor([0, 0, 1, 0]), 3)
    assert prior.tolist() == near(0.7501 / 1.0003, 0.2501 / 1.0003, 0.0001 / 1.0003)
    assert prior_of(torch.zeros(0, dtype=torch.int64), 2).tolist() == near(0.5, 0.5)


def test_a_head_by_hand() -> None:
    """One feature shrinks to itself: W = mu / S, b = log p - mu W / 2."""
    weight, bias = gaussians([0.5, 2.5], 1.5).head(torch.tensor([0.25, 0.75]).double())
    assert weight.flatten().tolist() == near(1 / 3, 5 / 3)
    assert bias.tolist() == near(np.log(0.25) - 1 / 12, np.log(0.75) - 25 / 12)


def test_a_head_of_two_features_by_hand() -> None:
    """S = diag(1, 3) shrinks by e = .0001 towards 2 I: diag(1.0001, 2.9999)."""
    of_two = Gaussians(torch.tensor([[1.0, 3.0]]).double(), torch.diag(torch.tensor([1.0, 3.0])))
    weight, _ = of_two._replace(covariance=of_two.covariance.double()).head(torch.ones(1))
    assert weight.flatten().tolist() == near(1 / 1.0001, 3 / 2.9999)


@pytest.mark.parametrize(
    ("fewest", "means"), [(1, [1.0, 3.0, 7.0]), (2, [1.0, 5.0, 7.0]), (3, [4.0, 5.0, 7.0])]
)
def test_own_distributions_by_hand(fewest: int, means: list[float]) -> None:
    """Features 0 and 2 of class 0 and 3 of class 1: squares around 1 and 3 sum to 2, by 3 - 1. A
    rare class has the server's mean, and one without features always."""
    server = gaussians([4.0, 5.0, 7.0], 9.0)
    own = own_gaussians(features([0.0, 2.0, 3.0], [0, 0, 1]), server, ridge=1.0, fewest=fewest)
    assert own.means.flatten().tolist() == near(*means)
    assert own.covariance.item() == pytest.approx(2 / 2 + E + 1, abs=1e-15)


def test_every_entry_of_the_covariance_has_a_little_more() -> None:
    """Two features (1, 2) and (3, 6) of a class: 1/1 (2, 4, 4, 8), .0001 everywhere, a ridge."""
    server = Gaussians(torch.zeros(1, 2).double(), torch.eye(2).double())
    measured = MeasuredFeatures(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0, 0]))
    own = own_gaussians(measured, server, ridge=0.5)
    assert own.covariance.flatten().tolist() == near(2.5 + E, 4 + E, 4 + E, 8.5 + E)


def test_a_mixture_by_hand() -> None:
    mixed = gaussians([1.0, 3.0], 2.0).mixed(gaussians([0.0, 2.0], 1.0), torch.tensor([0.5, 0.25]))
    assert mixed.means.flatten().tolist() == near(0.5, 2.5)
    assert mixed.covariance.item() == 1.25
    alike = gaussians([1.0, 3.0], 2.0).mixed(gaussians([0.0, 2.0], 1.0), torch.tensor([0.5]))
    assert alike.covariance.item() == 1.5


def test_a_covariance_travels_as_its_upper_triangle() -> None:
    square = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]]).double()
    upper = triangle(square)
    assert upper.tolist() == [1, 2, 3, 4, 5, 6]
    back = gaussians_of({"covariance": upper, "means": torch.zeros(2, 3)})
    assert torch.equal(back.covariance, square)


@pytest.mark.parametrize(
    ("middle", "point"),
    [((0.2, 0.9), (0.2, 0.9)), ((-1.0, 0.9), (0.0, 0.4)), ((2.0, 3.0), (1.0, 1.0))],
)
def test_the_least_of_a_square_in_the_box(middle, point) -> None:
    """(s - a)^2 + (s - a)(t - b) + (t - b)^2 is least at (a, b), for a = -1 on the edge s = 0 at t
    = b - 1/2, and far above the box in its corner."""

    def square(at: torch.Tensor) -> torch.Tensor:
        s, t = at[0] - middle[0], at[1] - middle[1]
        return s * s + s * t + t * t

    found = least_in_unit_box(square, torch.tensor([0.5, 0.5]).double())
    assert found.tolist() == near(*point)


def test_a_start_of_negative_curvature_goes_down() -> None:
    """-(s - .4)^2 bends down: from .5 its least is at 1, from .3 at 0."""
    for start, end in ((0.5, 1.0), (0.3, 0.0)):
        found = least_in_unit_box(lambda at: -((at[0] - 0.4) ** 2), torch.tensor([start]).double())
        assert found.tolist() == [end]


# ---- the shares of a mixture ----


def folds(z, y, server: Gaussians, ridge: float) -> list[tuple[Gaussians, torch.Tensor, Any]]:
    """Of each of two folds the distributions of the other, its samples and their classes."""
    classes, size = server.means.shape
    order = np.zeros(len(y), np.int64)
    for c in range(classes):
        order[y == c] = np.arange((y == c).sum())
    enough = np.array([(y == c).sum() > 1 for c in y])
    found = []
    for side in (0, 1):
        test, rest = enough & (order % 2 == side), enough & (order % 2 != side)
        own = server.means.clone()
        scatter = torch.zeros(size, size).double()
        for c in sorted(set(y[rest])):
            rows = z[rest & (y == c)]
            own[c] = rows.mean(0)
            scatter += (rows - own[c]).T @ (rows - own[c])
        covariance = scatter / max(rest.sum() - 1, 1) + E + ridge * torch.eye(size)
        found.append((Gaussians(own, covariance), z[test], torch.from_numpy(y[test])))
    return found


def fold_loss(shares, two: list, server: Gaussians, prior) -> torch.Tensor:
    """The sum over two folds, with inverses, written for single classes."""
    total = torch.zeros(()).double()
    for own, z, y in two:
        means = shares[0] * own.means + (1 - shares[0]) * server.means
        both = shares[-1] * own.covariance + (1 - shares[-1]) * server.covariance
        weight, bias = lda(means, both, prior)
        total = total + F.cross_entropy(z @ weight.T + bias, y)
    return total


def lda(means: torch.Tensor, covariance: torch.Tensor, prior: torch.Tensor):
    size = len(covariance)
    level = E * torch.trace(covariance) / size * torch.eye(size)
    weight = means @ torch.linalg.inv((1 - E) * covariance + level)
    return weight, torch.log(prior) - torch.diag(means @ weight.T) / 2


def shares_written_out(z, y, server: Gaussians, prior, ridge: float, count: int) -> torch.Tensor:
    """SciPy's bounded search from 1/2, then plain Newton steps where no bound holds."""
    two = folds(z, y, server, ridge)

    def loss(at: torch.Tensor) -> torch.Tensor:
        return fold_loss(at, two, server, prior)

    def value_and_slope(at: np.ndarray):
        leaf = torch.from_numpy(at).requires_grad_()
        value = loss(leaf)
        return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

    if max(np.bincount(y)) < 2:
        return torch.zeros(count).double()
    half, box = np.full(count, 0.5), [(0.0, 1.0)] * count
    at = minimize(value_and_slope, half, jac=True, bounds=box, tol=1e-14).x
    inside = np.flatnonzero((at > 1e-7) & (at < 1 - 1e-7))
    for _ in range(4):
        point = torch.from_numpy(at)
        slope = value_and_slope(at)[1][inside]
        bend = torch.autograd.functional.hessian(loss, point).numpy()[np.ix_(inside, inside)]
        at[inside] -= np.linalg.solve(bend, slope)
    return torch.from_numpy(at)


def drawn(seed: int) -> tuple[torch.Tensor, np.ndarray, Gaussians]:
    draw = np.random.default_rng(seed)
    y = draw.choice(4, p=[0.5, 0.3, 0.2, 0.0], size=40)
    means = draw.normal(size=(4, 3))
    z = torch.from_numpy(means[y] + draw.normal(size=(40, 3)) * [1.0, 0.5, 2.0])
    server = torch.from_numpy(means + draw.uniform(0.1, 1.0) * draw.normal(size=(4, 3)))
    return z, y, Gaussians(server, draw.uniform(0.3, 3.0) * torch.eye(3).double())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2])
def test_no_point_of_a_grid_has_a_smaller_loss(seed: int, count: int) -> None:
    z, y, server = drawn(seed)
    prior = prior_of(torch.from_numpy(y), 4)
    found = best_shares(MeasuredFeatures(z, torch.from_numpy(y)), server, prior, 0.5, count)
    two = folds(z, y, server, 0.5)
    least = fold_loss(found, two, server, prior).item()
    axis = np.linspace(0.0, 1.0, 6)
    grid = [(s, t) for s in axis for t in (axis if count == 2 else [s])]
    losses = [fold_loss(torch.tensor(p), two, server, prior).item() for p in grid]
    assert least <= min(losses) + 1e-12
    written = shares_written_out(z, y, server, prior, 0.5, count)
    torch.testing.assert_close(found, written, rtol=0.0, atol=1e-8)


def test_without_two_samples_of_a_class_the_server_s_stay() -> None:
    server = gaussians([0.0, 2.0], 1.0)
    single = features([1.0, 5.0], [0, 1])
    assert best_shares(single, server, torch.ones(2) / 2, 1.0, 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("value", "variance"), [(float("nan"), 1.0), (3.0, -1.0)])
def test_what_is_no_distribution_stops_no_client(value: float, variance: float) -> None:
    """A feature that is not finite, and a variance below 0, as late updates may bring about."""
    server = gaussians([0.0, 2.0], variance)
    measured = features([1.0, value, 5.0], [0, 0, 1])
    assert best_shares(measured, server, torch.ones(2) / 2, 1.0, 2).tolist() == [0.0, 0.0]


# ---- rounds and examinations, written out ----


def by_loops(z: torch.Tensor, y: np.ndarray, server: Gaussians, rare: int) -> Gaussians:
    means, scatter = server.means.clone(), torch.zeros(z.shape[1], z.shape[1]).double()
    for c in sorted(set(y)):
        rows = z[y == c]
        scatter += (rows - rows.mean(0)).T @ (rows - rows.mean(0))
        if len(rows) > rare:
            means[c] = rows.mean(0)
    return Gaussians(means, scatter / max(len(y) - 1, 1) + E + torch.eye(z.shape[1]))


def mixed_by_loops(z, y, server: Gaussians, prior, form: str, rare: int) -> Gaussians:
    own = by_loops(z, y, server, rare)
    if form == "local":
        return own
    s, *rest = shares_written_out(z, y, server, prior, 1.0, {"one": 1, "two": 2}[form]).tolist()
    t = rest[0] if rest else s
    return Gaussians(
        s * own.means + (1 - s) * server.means, t * own.covariance + (1 - t) * server.covariance
    )


def own_prior(plain: Plain, client: int) -> torch.Tensor:
    classes = plain.data.y[torch.from_numpy(plain.data.train[client])].numpy()
    shares = torch.from_numpy(np.bincount(classes, minlength=4) / len(classes)) + E
    return shares / shares.sum()


def with_head(model: nn.Module, server: Gaussians, prior: torch.Tensor) -> nn.Module:
    weight, bias = lda(server.means, server.covariance, prior)
    with torch.no_grad():
        model[2].weight.copy_(weight)
        model[2].bias.copy_(bias)
    return model


def written_out(plain: Plain, jobs: list, server: Gaussians, form: str) -> Gaussians:
    """Run one round; return the server's distributions after it."""
    trained, sent = {}, {}
    for job in jobs:
        prior = own_prior(plain, job.client)
        model = with_head(copy.deepcopy(plain.shared), server, prior)
        optimiser = torch.optim.SGD(model[0].parameters(), lr=LR)
        passed, classes = [], []
        for x, y in plain.batches(job, job.steps):
            z = model[:2](x)
            passed.append(z.detach())
            classes.append(y.numpy())
            optimiser.zero_grad()
            F.cross_entropy(model[2](z), y).backward()
            optimiser.step()
        both = torch.cat(passed), np.concatenate(classes)
        sent[job.client] = mixed_by_loops(*both, server, prior, form, rare=0)
        trained[job.client] = model
        plain.own[job.client] = with_head(copy.deepcopy(model), sent[job.client], prior)[2]
    average(trained, plain.shared, only_base=True)
    total = sum(SIZES[k] for k in sent)
    return Gaussians(
        sum(SIZES[k] / total * own.means for k, own in sent.items()),
        sum(SIZES[k] / total * own.covariance for k, own in sent.items()),
    )


def examined(play: Play, clients: list[int], purpose: str = "examine") -> list[torch.Tensor]:
    """The models with which these clients are examined, as the loop has them made."""
    rule = play.algorithm.local
    download = rule.download(play.server)
    states = [play.client_states.get(k, play.first) for k in clients]
    begun = [AdaptInputs(rule.start(download, state), state, download) for state in states]
    jobs = [Job(k, 0, 0, LR) for k in clients]
    engine = Sequential(play.setting)
    return [model.x for model in engine.adapt(jobs, begun, purpose)]


@pytest.mark.parametrize("form", ["two", "one", "local"])
def test_rounds_are_those_of_the_method_written_out(form) -> None:
    """Whole modules, torch's optimizer, inverses and SciPy's search: four rounds of other clients,
    after each of which base, means, covariance, and the heads that every client keeps and is
    examined with agree to 1e-9."""
    play = Play(PFedFDA(interpolation=form), "examples", SGD(lr=LR))
    plain = Plain(play)
    server = gaussians_of(play.server.extra)
    assert server.means.min() == 0
    assert server.means.max() == 1
    assert torch.equal(server.covariance, torch.eye(5).double())
    for number, cohort in enumerate(COHORTS):
        play.round(number, cohort)
        server = written_out(plain, play.jobs(number, tuple(sorted(cohort))), server, form)
        after = gaussians_of(play.server.extra)
        torch.testing.assert_close(after.means, server.means, rtol=0.0, atol=1e-9)
        torch.testing.assert_close(after.covariance, server.covariance, rtol=0.0, atol=1e-9)
        base = nn.utils.parameters_to_vector(plain.shared[0].parameters()).detach()
        torch.testing.assert_close(play.server.model.x, base, rtol=0.0, atol=1e-9)
        for client, head in plain.own.items():
            kept = nn.utils.parameters_to_vector(head.parameters()).detach()
            torch.testing.assert_close(play.client_states[client]["x"], kept, rtol=0.0, atol=1e-9)
        for client, x in enumerate(examined(play, list(range(len(SIZES))))):
            rows = torch.from_numpy(plain.data.train[client])
            model, prior = copy.deepcopy(plain.shared), own_prior(plain, client)
            z = model[:2](plain.data.x[rows]).detach()
            mixed = mixed_by_loops(z, plain.data.y[rows].numpy(), server, prior, form, rare=2)
            whole = with_head(model, mixed, prior)
            own = nn.utils.parameters_to_vector(whole.parameters()).detach()
            torch.testing.assert_close(x, own, rtol=0.0, atol=1e-9)


def test_new_clients_are_examined_as_those_that_never_took_part() -> None:
    play = Play(PFedFDA(), "examples", SGD(lr=LR)).run([(0, 2)])
    assert 5 not in play.client_states
    for one, other in zip(examined(play, [5]), examined(play, [5], "new"), strict=True):
        assert torch.equal(one, other)


# ---- whole runs, and what it does not go with ----

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}},
    "population": 6,
    "cohort": 2,
    "partition": {"name": "label_count", "labels": 3},
    "stop": {"rounds": 2},
    "split": {"test": "client"},
    "local": {"batch_size": 32},
    "algorithm": "pfedfda",
}
BASE = 64 * 16 + 16


def test_base_means_and_a_triangle_travel_both_ways() -> None:
    rows = Rows()
    build(KEYS, writer=rows).step()
    row = rows.tables["rounds"][0]
    assert row["down_bits"] == 2 * 32 * (BASE + 10 * 16 + 16 * 17 // 2)
    assert row["up_paper_bits"] == row["down_bits"]


def test_clients_that_never_took_part_have_heads_of_their_own() -> None:
    """A client of three classes predicts these alone, under its prior, and others would not."""
    loop = build({**KEYS, "stop": {"rounds": 4}, "population": 8})
    while not loop.done:
        loop.step()
    absent = sorted(set(range(8)) - set(loop.state.clients.client_states))
    assert absent
    personal = loop.personal_models(loop.state.server)
    assert personal is not None
    scores = []
    for client, model in zip(absent, personal(absent), strict=True):
        rows = loop.federation.train[client]
        base, head = model.x[:BASE], model.x[BASE:]
        x = torch.as_tensor(loop.federation.x[rows]).flatten(1).float()
        z = (x @ base[: 64 * 16].view(16, 64).T + base[64 * 16 :]).relu()
        said = (z @ head[:160].view(10, 16).T + head[160:]).argmax(1)
        classes = loop.federation.y[rows]
        assert set(said.tolist()) <= set(classes.tolist())
        scores.append(float((said == classes).double().mean()))
    assert np.mean(scores) > 0.6  # three classes, and an untrained head would guess among ten


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algorithm": {"name": "pfedfda", "ridge": 0}}, "got ridge = 0.0; expected a positive"),
        ({"algorithm": {"name": "pfedfda", "interpolation": "three"}}, "interpolation"),
        ({"server": "momentum"}, "of which the server rule Momentum makes nothing; leave server"),
        ({"loss": {"name": "moon", "mu": 1.0}}, "loss"),
        ({"weights": "horvitz_thompson"}, "weights that sum to 1; got weights"),
        ({"compressor": "topk", "budget": {"name": "constant", "average": 0.2}}, "does not upload"),
        ({"local": {"batch_size": 32, "micro_batch": 8}}, "under 'pfedfda' clients compute with"),
        ({"engine": "vmap"}, "has phases that depend on one another"),
        ({"task": "quadratic", "partition": "by_writer"}, r"of shape \(1, 1\); let it be a plain"),
        (
            {"task": {**KEYS["task"], "model": {"name": "mlp", "hidden": []}}},
            "keep every parameter",
        ),
    ],
)
def test_what_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(MotleyError, match=message):
        build({**KEYS, **keys})


def test_a_head_without_a_bias_is_refused() -> None:
    layout = layout_of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4, bias=False)))
    with pytest.raises(ConfigError, match=r"parameters of shape \(4, 2\); let it be a plain"):
        GaussianHead().bound(layout)


def test_its_parts_go_together_alone() -> None:
    play = Play(PFedFDA(), "examples", SGD())
    other = FedAvg().change(play.algorithm)
    assert "the server rule Average makes nothing" in (
        other.local.refuses(other, SGD(), "examples") or ""
    )
    plain = FedPer().change(play.algorithm)
    assert plain.server.refuses(plain, SGD(), "examples") == (
        "pFedFDA averages distributions of features, of which PersonalHead uploads none"
    )
    compared = play.algorithm.replace(loss=Moon().change(play.algorithm).loss)
    assert "compares features; leave loss out" in (
        compared.local.refuses(compared, SGD(), "examples") or ""
    )


def test_first_means_need_a_head_that_is_drawn() -> None:
    play = Play(PFedFDA(), "examples", SGD())
    server = play.algorithm.server
    flat = type(server)(layout=server.layout, draw=lambda _: play.setting.zeros())
    with pytest.raises(ConfigError, match="are all equal, so no class would differ"):
        flat.init(play.server.model, 4)
