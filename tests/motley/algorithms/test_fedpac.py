"""FedPAC: feature statistics, weights of heads and a pulled step by hand, the programme against all
faces of the simplex, and rounds against the method written out."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from motley.algorithms.fedavgm import FedAvgM
from motley.algorithms.fedpac import AlignmentLoss, FedPAC, combination_weights, statistics
from motley.algorithms.fedrep import FedRep
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import JobContext, MeasuredFeatures, ServerState
from motley.core.errors import MotleyError
from motley.core.layout import Layout
from motley.experiments.build import build
from motley.rounds.holdings.prototypes import own_classes
from motley.testing.algorithms import COHORTS, MODELS, SIZES, Play
from tests.motley.algorithms.test_fedproto import TowardsFour
from tests.motley.algorithms.test_personalised import near
from tests.motley.algorithms.test_plain_reference import WORK, Plain, average, close
from tests.motley.algorithms.toys import B, Toy
from tests.rows import Rows

PLAIN, NORMED = MODELS
LR, HEAD_LR, LAM = 0.1, 0.3, 0.7


def measured(features: list[float], targets: list[int]) -> JobContext:
    """A job whose client has these features, one number each."""
    values = torch.tensor(features, dtype=torch.float64).unsqueeze(1)
    return JobContext(
        x=torch.zeros(1),
        download={},
        client_state=None,
        steps=1,
        lr=0.1,
        num_examples=len(targets),
        solver_norm=1.0,
        layout=Layout(()),
        measured=MeasuredFeatures(values, torch.tensor(targets)),
    )


@pytest.mark.parametrize(
    ("features", "targets", "means", "variance"),
    [
        ([1.0, 3.0], [0, 0], [2.0, 0.0], 0.5),  # (5 - 4) / 2
        ([2.0, 4.0], [0, 1], [1.0, 2.0], 2.5),  # (10 - 1 - 4) / 2
        ([3.0], [1], [0.0, 3.0], 0.0),
    ],
)
def test_statistics_by_hand(features, targets, means, variance) -> None:
    """h_c = p_c mean_c and V = (sum p_c mean z^2 - sum h_c^2) / n."""
    h, spread = statistics(torch.zeros(2, 1), measured(features, targets))
    assert h.flatten().tolist() == near(*means)
    assert spread.tolist() == near(variance)


def test_weights_of_two_heads_by_hand() -> None:
    """The squared distance of (2, 0) and (1, 2) is 5: client 0 weighs by 1 / .5 and 1 / (2.5 + 5),
    client 1 by 1 / (.5 + 5) and 1 / 2.5."""
    h = torch.tensor([[[2.0], [0.0]], [[1.0], [2.0]]])
    weights = combination_weights(h, torch.tensor([0.5, 2.5]))
    assert weights[0].tolist() == near(15 / 16, 1 / 16)
    assert weights[1].tolist() == near(5 / 16, 11 / 16)


def test_a_head_of_a_thousandth_is_left_out() -> None:
    """Far clients: 1 / 1 against 1 / (1 + 10,000) is below .001, so each has its own head."""
    h = torch.tensor([[[0.0]], [[100.0]]])
    assert combination_weights(h, torch.ones(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_clients_without_any_feature_keep_what_is_a_combination() -> None:
    """Where every combination is as good, rows still sum to 1."""
    weights = combination_weights(torch.zeros(3, 2, 1), torch.zeros(3))
    assert weights.sum(1).tolist() == near(1.0, 1.0, 1.0)


def best_on_faces(h: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """The weights of each client, by the programme's solution on every face of the simplex: of the
    faces whose solution has no weight below 0 the one of the least objective."""
    rows = []
    for own in h:
        gaps = (own - h).reshape(len(h), -1)
        quadratic = np.diag(variances) + gaps @ gaps.T
        candidates = []
        for size in range(1, len(h) + 1):
            for face in map(list, itertools.combinations(range(len(h)), size)):
                inner = quadratic[np.ix_(face, face)]
                if size > 1 and np.linalg.matrix_rank(inner) < size:
                    continue  # a smaller face has as small an objective
                on_face = np.ones(1) if size == 1 else np.linalg.solve(inner, np.ones(size))
                weights = np.zeros(len(h))
                weights[face] = on_face / on_face.sum()
                if (weights >= 0).all():
                    candidates.append((weights @ quadratic @ weights, weights))
        weights = min(candidates, key=lambda pair: pair[0])[1]
        weights[weights <= 1e-3] = 0.0
        rows.append(weights / weights.sum())
    return np.array(rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_programme_is_solved_on_the_right_face(seed: int, scale: float) -> None:
    """Five clients, six numbers each, close enough that heads are shared, and some are not."""
    draw = np.random.default_rng(seed)
    h = scale * draw.normal(size=(5, 2, 3)) * draw.uniform(0.1, 1.5, size=(5, 1, 1))
    variances = scale**2 * draw.uniform(0.01, 1.0, size=5)
    weights = combination_weights(torch.from_numpy(h), torch.from_numpy(variances)).numpy()
    np.testing.assert_allclose(weights, best_on_faces(h, variances), rtol=0.0, atol=1e-9)
    assert (weights > 0).sum() > 5  # not everybody alone


def test_a_step_by_hand() -> None:
    """Base b = 1, head h = 2, feature b, target 4, mean 3, rate .1: the head first, h = 2 - .1
    (2 - 4) 1 = 2.2; then the gradient of b is (2.2 - 4) 2.2 + 2 (1 - 3) = -7.96, so b = 1.796. With
    head_lr = .05, h = 2.1 and b = 1 + .1 (1.9 2.1 + 4) = 1.799."""
    for head_lr, b, h in ((0.1, 1.796, 2.2), (0.05, 1.799, 2.1)):
        method = FedPAC(head_lr=head_lr)
        play = Toy(method, model=B, start=(1.0, 2.0), targets=(0.0,), loss=TowardsFour())
        means = torch.tensor([[3.0], [0.0]]).double()
        play.server = ServerState(play.server.model, {"centroids": means})
        play.round()
        assert play.examined() == near(b, h)
        assert play.server.extra["centroids"].flatten().tolist() == near(b, 0.0)


@pytest.mark.parametrize(
    ("means", "towards"), [([0.0, 5.0], [2.0, 2.0, 5.0]), ([0.0, 0.0], [0.0, 0.0, 0.0])]
)
def test_a_class_without_a_mean_is_pulled_to_the_clients_own(means, towards) -> None:
    """Class 0 has the features 1 and 3 before training, and others' mean is of class 1 alone;
    before anybody sent one, nothing is pulled."""
    download = {"prototypes": torch.tensor(means, dtype=torch.float64).unsqueeze(1)}
    context = dataclasses.replace(measured([1.0, 3.0, 7.0], [0, 0, 1]), download=download)
    loss = AlignmentLoss(CrossEntropy(), LAM)
    inputs, targets = torch.zeros(3, 1), torch.tensor([0, 0, 1])
    prepared = loss.prepare(context, lambda x: x, inputs, targets)
    assert prepared["prototype"].flatten().tolist() == near(*towards)


# ---- rounds, written out ----


def features(model: nn.Module, plain: Plain, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.from_numpy(plain.data.train[client])
    return model[:2](plain.data.x[rows]).detach(), plain.data.y[rows]


def pulled(model: nn.Module, batches, lr: float, moved: nn.Module, means: dict, own: dict) -> None:
    """Descend on the cross entropy and the pull with torch's own SGD, one part of the model."""
    optimiser = torch.optim.SGD(moved.parameters(), lr=lr)
    for x, y in batches:
        z = model[:2](x)
        loss = F.cross_entropy(model[2](z), y)
        if means:
            towards = torch.stack([means.get(c, own[c]) for c in y.tolist()])
            loss = loss + LAM * F.mse_loss(z, towards)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def written_out(plain: Plain, jobs: list, means: dict[int, torch.Tensor]) -> dict:
    """Run one round; return the means of the classes after it."""
    trained, h, variances = {}, [], []
    sums: dict[int, torch.Tensor] = {}
    counts: dict[int, int] = {}
    for job in jobs:
        client = job.client
        model = copy.deepcopy(plain.shared)
        if client in plain.own:
            model[2].load_state_dict(plain.own[client].state_dict())
        z, y = features(model, plain, client)
        own = {c: z[y == c].mean(0) for c in set(y.tolist())}
        share = {c: float((y == c).double().mean()) for c in own}
        h.append(
            np.stack([(share[c] * own[c]).numpy() if c in own else np.zeros(5) for c in range(4)])
        )
        second = sum(
            share[c] * float(torch.trace(z[y == c].T @ z[y == c] / (y == c).sum())) for c in own
        )
        variances.append(
            (second - sum(share[c] ** 2 * float(own[c] @ own[c]) for c in own)) / len(y)
        )
        whole = -(-SIZES[client] // WORK.batch_size)
        pulled(model, plain.batches(job, whole), HEAD_LR, model[2], means, own)
        pulled(model, plain.batches(job, job.steps, "base"), LR, model[0], means, own)
        z, y = features(model, plain, client)
        for c in own:
            sums[c] = sums.get(c, 0.0) + z[y == c].sum(0)
            counts[c] = counts.get(c, 0) + int((y == c).sum())
        trained[client] = model
    weights = best_on_faces(np.array(h), np.array(variances))
    average(trained, plain.shared, only_base=True)
    for row, client in zip(weights, trained, strict=True):
        head = copy.deepcopy(plain.first[2])
        with torch.no_grad():
            for name, value in head.named_parameters():
                parts = zip(row, trained.values(), strict=True)
                value.copy_(sum(w * dict(m[2].named_parameters())[name] for w, m in parts))
        plain.own[client] = head
    return {**means, **{c: sums[c] / counts[c] for c in sums}}


def test_rounds_are_those_of_the_method_written_out() -> None:
    """Whole modules, torch's optimizers and the programme by all faces: four rounds of other
    clients, after each of which every client's model agrees to 1e-9."""
    play = Play(FedPAC(lam=LAM, head_lr=HEAD_LR), "examples", SGD(lr=LR))
    plain = Plain(play)
    means: dict[int, torch.Tensor] = {}
    for number, cohort in enumerate(COHORTS):
        play.round(number, cohort)
        means = written_out(plain, play.jobs(number, tuple(sorted(cohort))), means)
        rule = play.algorithm.local
        download = rule.download(play.server)
        for client in range(len(SIZES)):
            model = copy.deepcopy(plain.shared)
            if client in plain.own:
                model[2].load_state_dict(plain.own[client].state_dict())
            close(rule.examined(download, play.client_states.get(client, play.first)), model)
        for c, mean in means.items():
            torch.testing.assert_close(download["prototypes"][c], mean, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_a_client_alone_without_a_pull_is_fedrep(model: str) -> None:
    """Its head is combined of itself; bit for bit."""
    methods = (FedPAC(lam=0.0, head_lr=LR), FedRep(head_epochs=1))
    fedpac, fedrep = (
        Play(method, "examples", SGD(lr=LR), model).run([(2,), (5,), (2,)]) for method in methods
    )
    assert torch.equal(fedpac.server.model.x, fedrep.server.model.x)
    for client, kept in fedrep.client_states.items():
        assert all(torch.equal(fedpac.client_states[client][n], v) for n, v in kept.items())


# ---- what travels, and what it does not go with ----

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}},
    "population": 6,
    "cohort": 2,
    "partition": {"name": "label_count", "labels": 3},
    "stop": {"rounds": 2},
    "split": {"test": "client"},
    "local": {"batch_size": 32},
    "algorithm": "fedpac",
}
BASE, HEAD = 64 * 16 + 16, 16 * 10 + 10


def test_rows_of_classes_are_billed_beside_the_model() -> None:
    """Down the base, the means of all ten classes and a head; up the base, the head, V, and of the
    client's three classes two rows of 16 and a count. The message's head and digest take 23 bytes,
    each of its six parts 39 beside its name, and the list of three of ten places 2."""
    rows = Rows()
    loop = build(KEYS, writer=rows)
    assert own_classes(loop.federation, np.arange(6)).sum(1).tolist() == [3] * 6
    loop.step()
    row = rows.tables["rounds"][0]
    up = BASE + HEAD + 1 + 3 * (2 * 16 + 1)
    names = ["delta", "head", "sums", "counts", "means", "variance"]
    assert row["down_bits"] == 2 * 32 * (BASE + 10 * 16 + HEAD)
    assert row["up_paper_bits"] == 2 * 32 * up
    assert row["up_bits"] == 2 * 8 * (23 + 6 * 39 + len("".join(names)) + 2 + 4 * up)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algorithm": {"name": "fedpac", "lam": -1}}, "got lam = -1.0; expected a finite number"),
        ({"algorithm": {"name": "fedpac", "head_epochs": 0}}, "got head_epochs = 0; expected"),
        ({"algorithm": {"name": "fedpac", "head_lr": 0}}, "got head_lr = 0.0; expected a positive"),
        ({"server": "momentum"}, "of which the server rule Momentum makes nothing; leave server"),
        ({"aggregator": "median", "weights": "uniform"}, "uploads"),
        ({"compressor": "topk", "budget": {"name": "constant", "average": 0.2}}, "does not upload"),
        ({"engine": "vmap"}, "has phases of a learning rate or a loss of their own"),
        ({"task": "quadratic", "partition": "by_writer"}, "targets of this task are"),
        (
            {"task": {**KEYS["task"], "model": {"name": "mlp", "hidden": []}}},
            "the clients keep every parameter of this model",
        ),
    ],
)
def test_what_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(MotleyError, match=message):
        build({**KEYS, **keys})


def test_server_rules_of_its_own_alone() -> None:
    play = Play(FedPAC(), "examples", SGD())
    other = play.algorithm.replace(server=FedAvgM().change(play.algorithm).server)
    message = (
        "clients upload heads and features, of which the server rule Momentum makes nothing; leave "
        "server out"
    )
    assert other.local.refuses(other, SGD(), "examples") == message
