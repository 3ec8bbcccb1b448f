"""FML: two models that learn from each other, worked by hand and beside a plain loop of torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.tasks import from_clients, own_task
from tests.motley.experiments.test_unlike_models import finished, models_of


def scores(*rows):
    """A linear layer of one input, with these weights and no bias."""

    def make():
        layer = nn.Linear(1, len(rows), bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[row] for row in rows]))
        return layer

    return make


def keys(**more):
    base = {
        "task": {"name": "own"},
        "cohort": 2,
        "stop": {"rounds": 1},
        "algorithm": "fml",
        "dtype": "float64",
        "local": {"batch_size": 4, "optimizer": {"name": "sgd", "lr": 0.1}},
        "engine": "sequential",
    }
    return {**base, **more}


def test_one_step_of_two_linear_models():
    """See the module's page: the own model moves by (.0375, -.0375), the common one stands still;
    both clients have the one sample x = 1 of class 0. The second client's own model is a common
    one: with p = q both gradients are half of q - (1, 0)."""
    one = [(np.ones((1, 1), np.float32), [0])] * 2
    federation = from_clients(one, test=one, classes=2)
    factories = [scores(0.0, 0.0), scores(math.log(3.0), 0.0)]
    loop = finished(build(keys(), task=own_task(federation, factories)))
    first, second = (model.x for model in models_of(loop))
    assert first.tolist() == pytest.approx([0.0375, -0.0375], rel=1e-6)
    step = 0.1 * 0.5 * 0.25
    assert second.tolist() == pytest.approx([math.log(3.0) + step, -step], rel=1e-6)
    common = loop.state.server.model.x
    assert common.tolist() == pytest.approx([math.log(3.0) + step / 2, -step / 2], rel=1e-6)


def wide():
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def narrow():
    return nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 3))


def drawn(clients=4, samples=6):
    """Clients whose samples fill one batch of a round."""
    draw = np.random.default_rng(5)
    data = [(draw.normal(size=(samples, 3)), draw.integers(0, 3, samples)) for _ in range(clients)]
    return [(x.astype(np.float32), y.tolist()) for x, y in data]


def plainly(clients, own, common, rounds, alpha, beta, momentum):
    """Train by mutual learning as a plain loop of torch does, all clients in each round, one full
    batch a step, two steps; change the own models and return the common one."""
    for _ in range(rounds):
        ends = []
        for model, (x, y) in zip(own, clients, strict=True):
            small = narrow().double()
            small.load_state_dict(common.state_dict())
            steps = [
                torch.optim.SGD(each.parameters(), lr=0.1, momentum=momentum)
                for each in (model, small)
            ]
            inputs, labels = torch.tensor(x, dtype=torch.float64), torch.tensor(y)
            for _ in range(2):
                p, q = model(inputs), small(inputs)
                for optimizer, share, mine, other in (
                    (steps[0], alpha, p, q),
                    (steps[1], beta, q, p),
                ):
                    target = softmax(other.detach(), 1)
                    apart = kl_div(log_softmax(mine, 1), target, reduction="batchmean")
                    loss = share * cross_entropy(mine, labels) + (1 - share) * apart
                    optimizer.zero_grad()
                    loss.backward()
                for optimizer in steps:
                    optimizer.step()
            ends.append(small.state_dict())
        common.load_state_dict(
            {name: torch.stack([end[name] for end in ends]).mean(0) for name in ends[0]}
        )
    return common


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def loaded(factory, model):
    module = factory().double()
    nn.utils.vector_to_parameters(model.x.double().clone(), module.parameters())
    return module


@pytest.mark.parametrize(("alpha", "beta", "momentum"), [(0.5, 0.5, 0.0), (0.3, 0.8, 0.9)])
@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_it_agrees_with_a_plain_loop_of_torch(alpha, beta, momentum, engine):
    """Four clients, two of each architecture; momentum begins afresh in every round."""
    clients = drawn()
    local = {
        "steps": 2,
        "batch_size": 6,
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": momentum},
    }
    given = keys(
        algorithm={"name": "fml", "alpha": alpha, "beta": beta},
        cohort=4,
        stop={"rounds": 3},
        local=local,
        engine=engine,
    )
    federation = from_clients(clients, test=clients, classes=3)
    loop = build(given, task=own_task(federation, [wide, narrow]))
    factories = [wide, narrow, wide, narrow]
    own = [loaded(make, model) for make, model in zip(factories, models_of(loop), strict=True)]
    common = loaded(narrow, loop.state.server.model)
    plainly(clients, own, common, 3, alpha, beta, momentum)
    finished(loop)
    assert torch.allclose(loop.state.server.model.x, flat(common), rtol=1e-9, atol=1e-12)
    for model, expected in zip(models_of(loop), own, strict=True):
        assert torch.allclose(model.x, flat(expected), rtol=1e-9, atol=1e-12)


def test_with_shares_of_one_it_is_local_training_beside_fedavg():
    """Bit for bit, with batches drawn anew."""
    clients = drawn(samples=9)
    federation = from_clients(clients, test=clients, classes=3)

    def loop_of(method):
        given = keys(algorithm=method, cohort=3, stop={"rounds": 3}, weights="uniform")
        return finished(build(given, task=own_task(federation, wide)))

    both = loop_of({"name": "fml", "alpha": 1.0, "beta": 1.0})
    given = keys(algorithm="local_only", cohort=3, stop={"rounds": 3})
    alone = finished(build(given, task=own_task(federation, wide)))
    for model, expected in zip(models_of(both), models_of(alone), strict=True):
        assert torch.equal(model.x, expected.x)
    assert torch.equal(both.state.server.model.x, loop_of("fedavg").state.server.model.x)


def test_the_small_model_alone_travels():
    """3 x 2 + 2 + 2 x 3 + 3 weights of 32 bits, both ways, four clients."""
    clients = drawn()
    federation = from_clients(clients, test=clients, classes=3)
    given = keys(cohort=4)
    ledger = finished(build(given, task=own_task(federation, [wide, narrow]))).state.ledger
    size = flat(narrow()).numel()
    assert size == 17
    assert ledger.total(direction="down") == 4 * 32 * size
    assert ledger.paper_bits == 4 * 32 * size


def test_a_step_takes_the_time_of_both_models():
    """Operations of a pass: 2 (3 x 6 + 6 x 4 + 4 x 3) and 2 (3 x 2 + 2 x 3)."""
    clients = drawn()
    federation = from_clients(clients, test=clients, classes=3)
    device = {"name": "constant", "seconds": 1.0}
    loop = build(keys(device=device), task=own_task(federation, [wide, narrow]))
    setting = loop.setting
    assert setting.step_passes == pytest.approx(1 + 24 / 108)
    seconds = loop.backend.planner.step_s(np.arange(2), 1) * setting.step_passes
    assert seconds == pytest.approx([1 + 24 / 108, 48 / 108])
    own, small = setting.kinds
    alone = small._memory_alone(1.0, None).total
    assert own.memory().total == own._memory_alone(1.0, None).total + alone


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"algorithm": {"name": "fml", "alpha": 1.5}}, r"got alpha = 1.5; expected 0 to 1"),
        ({"algorithm": {"name": "fml", "beta": -0.1}}, r"got beta = -0.1; expected 0 to 1"),
        ({"server": {"name": "adam"}}, r"averages the common model, which ServerAdam.*leave serv"),
        (
            {"local": {"batch_size": 4, "micro_batch": 2, "optimizer": {"name": "sgd", "lr": 0.1}}},
            r"local.micro_batch: under 'fml' clients compute with whole batches",
        ),
        ({"engine": "vmap"}, r"phases that depend on one another, which sequential and threads"),
    ],
)
def test_what_does_not_go_together_is_refused(more, message):
    clients = drawn()
    federation = from_clients(clients, test=clients, classes=3)
    with pytest.raises(ConfigError, match=message):
        build(keys(**more), task=own_task(federation, wide))
