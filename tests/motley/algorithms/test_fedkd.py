"""FedKD: a mentor and a mentee that learn by one loss, and changes cut to their first singular
values, worked by hand and beside a plain loop of torch and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

from motley.algorithms.fedkd import AdaptiveLoss, Energy, cut, numbers
from motley.algorithms.phases import Passed
from motley.core.errors import ConfigError
from motley.core.layout import Entry, Layout
from motley.experiments.build import build
from motley.tasks import from_clients, own_task
from tests.motley.algorithms.test_fml import drawn, flat, keys, loaded, narrow, scores, wide
from tests.motley.experiments.test_unlike_models import finished, models_of

SQUARE = Layout((Entry("a.weight", "a", (2, 2), 0), Entry("a.bias", "a", (2,), 4)))
DELTA = torch.tensor([3.0, 0.0, 0.0, 1.0, 7.0, 8.0])


def test_the_share_goes_from_start_to_end_and_stays() -> None:
    energy = Energy(0.95, 0.98, 3)
    assert [energy(t) for t in range(4)] == pytest.approx([0.96, 0.97, 0.98, 0.98])


@pytest.mark.parametrize(
    ("energy", "diagonal", "rank"),
    [(0.85, [3.0, 0.0], 1), (0.9, [3.0, 1.0], 2), (0.96, [3.0, 1.0], 2), (1.0, [3.0, 1.0], 2)],
)
def test_a_matrix_is_cut_to_the_fewest_values_that_have_more(energy, diagonal, rank) -> None:
    """Squares 9 and 1: one value has .9 of them, which is not more than .9. A bias is whole."""
    change, ranks = cut(DELTA, SQUARE, energy)
    torch.testing.assert_close(change[[0, 3]], torch.tensor(diagonal))
    assert change[[1, 2]].abs().max() < 1e-12
    assert change[4:].tolist() == [7.0, 8.0]
    assert ranks.tolist() == [rank]
    # 1 (2 + 2 + 1) = 5 numbers are more than the matrix's 4
    assert numbers(ranks, SQUARE) == 6


def test_numbers_of_factors() -> None:
    """Of rank one 6 x 10: 6 + 10 + 1; a kernel of 4 outputs is a matrix of 4 rows."""
    layout = Layout((Entry("a.weight", "a", (6, 10), 0), Entry("b.weight", "b", (4, 2, 3), 60)))
    generator = torch.Generator().manual_seed(0)
    draw = [torch.randn(n, 1, generator=generator) for n in (6, 10, 4, 6)]
    delta = torch.cat([(draw[0] @ draw[1].mT).flatten(), (draw[2] @ draw[3].mT).flatten()])
    change, ranks = cut(delta, layout, 0.999)
    assert ranks.tolist() == [1, 1]
    torch.testing.assert_close(change, delta)
    assert numbers(ranks, layout) == 17 + 11
    assert cut(torch.zeros(84), layout, 0.9)[1].tolist() == [0, 0]
    assert numbers(torch.zeros(2), layout) == 0
    assert cut(torch.full((84,), math.nan), layout, 0.9)[1].tolist() == [6, 4]


def test_a_step_of_two_linear_models() -> None:
    """See the module's page: one sample x = 1 of class 0."""
    data = [(np.ones((1, 1), np.float32), [0])]
    federation = from_clients(data, test=data, classes=2)
    factories = [scores(0.0, 0.0), scores(math.log(3.0), 0.0)]
    given = keys(algorithm={"name": "fedkd", "t_start": 1.0, "t_end": 1.0}, cohort=1)
    loop = finished(build(given, task=own_task(federation, factories)))
    (mentor,) = (model.x for model in models_of(loop))
    assert mentor.tolist() == pytest.approx([0.0696080, -0.0696080], abs=1e-7)
    mentee = loop.state.server.model.x
    assert mentee.tolist() == pytest.approx([math.log(3.0) - 0.0018138, 0.0018138], abs=1e-7)


def test_the_projection_moves_by_the_mentees_loss_alone() -> None:
    """r = 2, s = 1, W = 1, L_t + L_s = 2, no divergence: H = 1, and W moves by .1 * 4 / 2."""
    losses, outputs = torch.tensor([1.0]), torch.zeros(1, 2)
    mentor = Passed(losses, outputs, torch.tensor([[2.0]]))
    mentee = Passed(losses, outputs, torch.tensor([[1.0]]))
    values = {"projection": torch.ones(1, 1)}
    assert AdaptiveLoss(True, 0.1)(mentor, {"": mentee}, values).item() == pytest.approx(2.0)
    assert values["projection"].item() == 1.0
    assert AdaptiveLoss(False, 0.1)(mentee, {"": mentor}, values).item() == pytest.approx(2.0)
    assert values["projection"].item() == pytest.approx(1.2)


def first(matrix: np.ndarray, energy: float) -> np.ndarray:
    u, values, v = np.linalg.svd(matrix, full_matrices=False)
    total = (values**2).sum()
    k = next(k for k in range(1, len(values) + 1) if (values[:k] ** 2).sum() > energy * total)
    return u[:, :k] @ np.diag(values[:k]) @ v[:k]


def changed(before: dict, after: dict, energy: float) -> dict:
    deltas = {name: (after[name] - before[name]).numpy() for name in before}
    return {name: first(d, energy) if d.ndim > 1 else d for name, d in deltas.items()}


def plainly(clients, mentors, mentee, projections, energies, lr=0.1) -> nn.Module:
    """Train as a plain loop of torch does: one loss, one backward pass, one optimizer; all clients
    in each round, one full batch a step, two steps."""
    for energy in energies:
        before = {name: value.clone() for name, value in mentee.state_dict().items()}
        sent = []
        for number, (mentor, (x, y)) in enumerate(zip(mentors, clients, strict=True)):
            small = narrow().double()
            small.load_state_dict(before)
            w = projections[number].clone().requires_grad_()
            optimizer = torch.optim.SGD([*mentor.parameters(), *small.parameters(), w], lr=lr)
            inputs, labels = torch.tensor(x, dtype=torch.float64), torch.tensor(y)
            for _ in range(2):
                r, s = mentor[:-1](inputs), small[:-1](inputs)
                p, q = mentor[-1](r), small[-1](s)
                losses = cross_entropy(p, labels) + cross_entropy(q, labels)
                apart = kl_div(log_softmax(p, 1), softmax(q, 1), reduction="sum")
                apart = apart + kl_div(log_softmax(q, 1), softmax(p, 1), reduction="sum")
                hidden = 2 * mse_loss(r, s @ w.mT)
                optimizer.zero_grad()
                (losses + (apart / p.numel() + hidden) / losses).backward()
                optimizer.step()
            projections[number] = w.detach()
            sent.append(changed(before, small.state_dict(), energy))
        mean = {name: np.mean([each[name] for each in sent], 0) for name in before}
        step = {name: first(d, energy) if d.ndim > 1 else d for name, d in mean.items()}
        mentee.load_state_dict({name: before[name] + torch.tensor(step[name]) for name in before})
    return mentee


@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_it_agrees_with_a_plain_loop_of_torch(engine) -> None:
    """Four clients, two of each architecture, two rounds."""
    clients = drawn()
    given = keys(
        algorithm={"name": "fedkd", "t_start": 0.5, "t_end": 0.8, "rounds": 2},
        cohort=4,
        stop={"rounds": 2},
        local={"steps": 2, "batch_size": 6, "optimizer": {"name": "sgd", "lr": 0.1}},
        engine=engine,
    )
    federation = from_clients(clients, test=clients, classes=3)
    loop = build(given, task=own_task(federation, [wide, narrow]))
    factories = [wide, narrow, wide, narrow]
    mentors = [loaded(make, model) for make, model in zip(factories, models_of(loop), strict=True)]
    mentee = loaded(narrow, loop.state.server.model)
    projections = [torch.eye(n, 2, dtype=torch.float64) for n in (4, 2, 4, 2)]
    plainly(clients, mentors, mentee, projections, [0.65, 0.8])
    finished(loop)
    torch.testing.assert_close(loop.state.server.model.x, flat(mentee), rtol=1e-9, atol=1e-12)
    for model, expected in zip(models_of(loop), mentors, strict=True):
        torch.testing.assert_close(model.x, flat(expected), rtol=1e-9, atol=1e-12)
    for client, expected in enumerate(projections):
        kept = loop.state.clients.client_states.of_algorithm([client])[client]
        torch.testing.assert_close(kept["projection"], expected, rtol=1e-9, atol=1e-12)


def test_uploads_and_downloads_are_billed_by_their_numbers() -> None:
    """The mentee has matrices of 3 x 20 and 20 x 3 and 23 biases. At .5 one singular value of each
    travels: 2 (20 + 3 + 1) numbers, the biases, and two counts. A first download is the model; a
    client that comes again gets the step that it missed."""
    clients = drawn()
    federation = from_clients(clients, test=clients, classes=3)
    given = keys(
        algorithm={"name": "fedkd", "t_start": 0.5, "t_end": 0.5}, cohort=4, stop={"rounds": 2}
    )
    loop = build(given, task=own_task(federation, [wide, big]))
    while not loop.done:
        loop.step()
    size = flat(big()).numel()
    assert size == 3 * 20 + 20 + 20 * 3 + 3
    sent = loop.state.server.extra["sent_values"].tolist()
    least = 2 * (20 + 3 + 1) + 23 + 2
    assert sent == [least, least]
    ledger = loop.state.ledger
    assert ledger.total(direction="down") == 4 * 32 * (size + least)
    # a planned upload has all numbers
    head = loop.channel.upload_bits - 32 * (size + 2)
    assert ledger.total(direction="up") == 2 * 4 * (head + 32 * least)


def big() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 3))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"algorithm": {"name": "fedkd", "t_end": 1.5}}, r"got t_end = 1.5; expected above 0, up"),
        ({"algorithm": {"name": "fedkd", "rounds": 0}}, r"got rounds = 0; expected at least 1"),
        ({"server": {"name": "adam"}}, r"FedKD averages the common model, which ServerAdam"),
        ({"compressor": {"name": "topk"}}, r"decides itself what of an update is sent; leave the"),
    ],
)
def test_what_does_not_go_together_is_refused(more, message) -> None:
    clients = drawn()
    federation = from_clients(clients, test=clients, classes=3)
    with pytest.raises(ConfigError, match=message):
        build({**keys(algorithm="fedkd"), **more}, task=own_task(federation, wide))


def test_a_model_without_a_linear_layer_is_refused() -> None:
    def pooled() -> nn.Module:
        return nn.Sequential(nn.Conv1d(1, 3, 3), nn.Flatten())

    data = [(np.ones((2, 1, 3), np.float32), [0, 1])] * 2
    federation = from_clients(data, test=data, classes=3)
    with pytest.raises(ConfigError, match="'fedkd' tells the last linear layer from the rest"):
        build(keys(algorithm="fedkd"), task=own_task(federation, pooled))
