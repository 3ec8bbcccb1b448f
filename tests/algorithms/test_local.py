"""Local SGD: goldens of FedNova's ||a||_1, blocks against flat vectors, clipping, and what is refused."""

import pytest
import torch

from motley.algorithms.local import SGD, Block, Clip, correct
from motley.algorithms.random import generator
from motley.core.errors import ConfigError
from motley.core.keys import Key


@pytest.mark.parametrize(
    ("solver", "steps", "pull", "wanted"),
    [
        (SGD(lr=0.1), 7, 0.0, 7.0),
        (SGD(lr=0.1, momentum=0.9), 3, 0.0, 5.61),  # a = (2.71, 1.9, 1)
        (SGD(lr=0.1), 3, 1.0, 2.71),  # lr pull = 0.1: a = (0.81, 0.9, 1)
        (SGD(lr=0.1, momentum=0.9), 3, 1.0, 5.14),  # the pull goes through the buffer
        (SGD(lr=0.1, momentum=0.9, nesterov=True), 2, 0.0, 1.9 + 2.71),  # b = 1, 1.9;  A = (1 + 0.9) + (1 + 0.9 * 1.9)
        (SGD(lr=0.1), 0, 1.0, 0.0),
    ],
)
def test_solver_norm(solver, steps, pull, wanted):
    assert solver.solver_norm(steps, pull) == pytest.approx(wanted, abs=1e-12)


def test_solver_norm_is_what_the_solver_does():
    """With gradients that are all -1 the update is lr ||a||_1, pull included."""
    for solver in (SGD(lr=0.1, momentum=0.9), SGD(lr=0.1, momentum=0.5, nesterov=True), SGD(lr=0.1)):
        x = torch.zeros(1, 1, dtype=torch.float64)
        w, v = x.clone(), x.clone()
        for _ in range(5):
            solver.step([Block(w, torch.full_like(w, -1.0), x, None, v if solver.momentum else None)], 0.1, 2.0)
        assert w.item() == pytest.approx(0.1 * solver.solver_norm(5, 2.0), rel=1e-12)


SOLVERS = [SGD(0.1), SGD(0.1, 0.9, 0.01), SGD(0.1, 0.9, nesterov=True, clip=Clip(0.7)), SGD(0.1, clip=Clip(0.5, "gradient"))]


@pytest.mark.parametrize("solver", SOLVERS)
def test_blocks_of_clients_and_flat_rows_are_the_same_arithmetic(solver):
    rng = generator(Key(0))
    g, x, w, v, shift = (torch.randn(3, 8, dtype=torch.float64, generator=rng) for _ in range(5))
    lr, pull = torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor([0.0, 0.5, 1.0]).double()

    def split(t):
        t = t.clone()
        return t[:, :6].reshape(3, 2, 3).contiguous(), t[:, 6:].contiguous()

    parts = list(zip(*(split(t) for t in (w, g, x, shift, v)), strict=True))
    solver.step([Block(*part) for part in parts], lr, pull)
    for i in range(3):
        row = w[i : i + 1].clone()
        block = Block(row, g[i : i + 1].clone(), x[i : i + 1], shift[i : i + 1], v[i : i + 1].clone())
        solver.step([block], float(lr[i]), float(pull[i]))
        mine = torch.cat([parts[0][0][i].flatten(), parts[1][0][i]])
        torch.testing.assert_close(mine, row[0], rtol=1e-12, atol=1e-12)


def test_no_pull_leaves_the_gradient_alone_bit_for_bit():
    g = torch.tensor([[-0.0, 1.0]])
    correct(Block(torch.tensor([[torch.inf, 1.0]]), g, torch.zeros(1, 2)), 0.0)
    assert g.tolist() == [[-0.0, 1.0]]


def test_clipping_is_per_client_over_all_blocks():
    first, second = torch.tensor([[3.0], [0.3]]), torch.tensor([[4.0], [0.4]])
    Clip(1.0).apply([Block(first, first, first), Block(second, second, second)])
    torch.testing.assert_close(torch.cat([first, second], 1), torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


def test_a_zero_gradient_is_not_clipped_into_nan():
    g = torch.zeros(1, 3)
    Clip(1.0).apply([Block(g, g, g)])
    assert g.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "got lr = 0.0; expected a positive number"),
        ({"lr": float("inf")}, "got lr = inf"),
        ({"momentum": 1.0}, "got momentum = 1.0; expected at least 0 and less than 1"),
        ({"weight_decay": -1.0}, "got weight_decay = -1.0"),
        ({"nesterov": True}, "give a momentum"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        SGD(**options)


def test_clip_refused():
    with pytest.raises(ConfigError, match="got norm = 0"):
        Clip(0.0)


def test_generators_follow_their_key():
    a, b, c = (torch.rand(5, generator=generator(key)) for key in (Key(0), Key(0), Key(1)))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
