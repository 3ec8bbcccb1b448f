"""Local solvers: goldens of FedNova's ||a||_1 and of Adam, blocks against flat vectors, clipping,
and what is refused.

Worked numbers: docs/methods/algorithms.md#flash-columns.
"""

import pytest
import torch

from motley.algorithms.local_optimisers import SGD, Adam, AdamW, Block, Clip, correct
from motley.core.errors import ConfigError


@pytest.mark.parametrize(
    ("solver", "steps", "proximal", "wanted"),
    [
        (SGD(lr=0.1), 7, 0.0, 7.0),
        (SGD(lr=0.1, momentum=0.9), 3, 0.0, 5.61),  # a = (2.71, 1.9, 1)
        (SGD(lr=0.1), 3, 1.0, 2.71),  # lr pull = 0.1: a = (0.81, 0.9, 1)
        (SGD(lr=0.1, momentum=0.9), 3, 1.0, 5.14),  # the pull goes through the buffer
        # b = 1, 1.9;  A = (1 + 0.9) + (1 + 0.9 * 1.9)
        (SGD(lr=0.1, momentum=0.9, nesterov=True), 2, 0.0, 1.9 + 2.71),
        (SGD(lr=0.1), 0, 1.0, 0.0),
    ],
)
def test_solver_norm(solver, steps, proximal, wanted):
    assert solver.solver_norm(steps, proximal) == pytest.approx(wanted, abs=1e-12)


def test_solver_norm_is_what_the_solver_does():
    """With gradients that are all -1 the update is lr ||a||_1, pull included."""
    for solver in (
        SGD(lr=0.1, momentum=0.9),
        SGD(lr=0.1, momentum=0.5, nesterov=True),
        SGD(lr=0.1),
    ):
        x = torch.zeros(1, 1, dtype=torch.float64)
        w = x.clone()
        v = x.clone()
        for _ in range(5):
            solver.step(
                [Block(w, torch.full_like(w, -1.0), x, None, v if solver.momentum else None)],
                0.1,
                2.0,
            )
        assert w.item() == pytest.approx(0.1 * solver.solver_norm(5, 2.0), rel=1e-12)


SOLVERS = [
    SGD(0.1),
    SGD(0.1, 0.9, 0.01),
    SGD(0.1, 0.9, nesterov=True, clip=Clip(0.7)),
    SGD(0.1, clip=Clip(0.5, "gradient")),
    Adam(0.1, weight_decay=0.01, clip=Clip(0.7)),
    AdamW(0.1, weight_decay=0.3, clip=Clip(0.7)),
]


@pytest.mark.parametrize("solver", SOLVERS)
def test_blocks_of_clients_and_flat_rows_are_the_same_arithmetic(solver):
    rng = torch.Generator().manual_seed(0)
    first, second, x, w, offset = (
        torch.randn(3, 8, dtype=torch.float64, generator=rng) for _ in range(5)
    )
    lr = torch.tensor([0.1, 0.2, 0.3]).double()
    proximal = torch.tensor([0.0, 0.5, 1.0]).double()

    def split(t):
        t = t.clone()
        return t[:, :6].reshape(3, 2, 3).contiguous(), t[:, 6:].contiguous()

    def blocks(*parts):
        return [Block(*part, *solver.fresh(part[0])) for part in parts]

    cut = blocks(*zip(*(split(t) for t in (w, first, x, offset)), strict=True))
    rows = [blocks([t[i : i + 1].clone() for t in (w, first, x, offset)])[0] for i in range(3)]
    for number, g in enumerate((first, second)):
        solver.step(
            [b._replace(g=part) for b, part in zip(cut, split(g), strict=True)],
            lr,
            proximal,
            number,
        )
        for i, row in enumerate(rows):
            solver.step(
                [row._replace(g=g[i : i + 1].clone())], float(lr[i]), float(proximal[i]), number
            )
    for i, row in enumerate(rows):
        mine = torch.cat([cut[0].w[i].flatten(), cut[1].w[i]])
        torch.testing.assert_close(mine, row.w[0], rtol=1e-12, atol=1e-12)


def _adam(options, gradients, w=0.0, proximal=0.0, kind=Adam):
    """Where Adam goes with these gradients of one number."""
    solver = kind(**options)
    at = torch.full((1, 1), w, dtype=torch.float64)
    block = Block(at, at, at.clone(), None, *solver.fresh(at))
    path = []
    for number, g in enumerate(gradients):
        solver.step([block._replace(g=torch.full_like(at, g))], solver.lr, proximal, number)
        path.append(at.item())
    return path


def test_adam_by_hand():
    """lr .1, beta1 .5, beta2 .75, gradients 3 and 1 from w = 0. Step 1: v = 1.5, s = 2.25,
    corrected 3 and 9: w = -.1. Step 2: v = 1.25, s = 1.9375, corrected 1.25 / .75 = 5/3 and 1.9375
    / .4375 = 31/7: w = -.1 - .1 (5/3) / sqrt(31/7)."""
    path = _adam({"lr": 0.1, "beta1": 0.5, "beta2": 0.75}, [3.0, 1.0])
    assert path == pytest.approx([-0.1, -0.1 - 0.1 * (5 / 3) / (31 / 7) ** 0.5], rel=1e-8)


def test_adamw_by_hand():
    """As above from w = 2 with decay .5: each step first takes lr decay = .05 of w, whatever the
    gradient. Step 1: 1.9 - .1. Step 2: 1.8 * .95 = 1.71, then along the same moments."""
    path = _adam(
        {"lr": 0.1, "beta1": 0.5, "beta2": 0.75, "weight_decay": 0.5}, [3.0, 1.0], w=2.0, kind=AdamW
    )
    assert path == pytest.approx([1.8, 1.71 - 0.1 * (5 / 3) / (31 / 7) ** 0.5], rel=1e-8)


def test_the_pull_of_adamw_is_at_the_weights_before_they_decay():
    """w = x = 1, a step with g = 0 and decay .5 goes to .95 and no further; then g = 0 + 2
    (.95 - 1) = -.1, whatever the decay."""
    path = _adam(
        {"lr": 0.1, "beta1": 0.0, "beta2": 0.0, "weight_decay": 0.5},
        [0.0, 0.0],
        w=1.0,
        proximal=2.0,
        kind=AdamW,
    )
    assert path == pytest.approx([0.95, 0.95 * 0.95 + 0.1], rel=1e-6)  # the sign of -.1


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize(("kind", "torchs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
def test_adam_is_torchs(weight_decay, kind, torchs):
    w = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    theirs = torchs([w], lr=0.05, weight_decay=weight_decay)
    gradients = [0.3, -1.0, 2.0, 0.0, 0.01]
    path = []
    for g in gradients:
        w.grad = torch.full_like(w, g)
        theirs.step()
        path.append(w.item())
    assert _adam(
        {"lr": 0.05, "weight_decay": weight_decay}, gradients, w=0.7, kind=kind
    ) == pytest.approx(path, rel=1e-12)


def test_the_pull_goes_through_adams_moments():
    """A pull added after them would keep the first step at lr; the second sees g + mu (w - x) =
    -1 + 5 * .1 = -.5: v = (.1 * 1 * .9 + .1 * .5) / .19, s = (.001 * .999 + .001 * .25) /
    .001999."""
    path = _adam({"lr": 0.1}, [-1.0, -1.0], proximal=5.0)
    second = 0.1 * ((0.09 + 0.05) / 0.19) / ((0.000999 + 0.00025) / 0.001999) ** 0.5
    assert path == pytest.approx([0.1, 0.1 + second], rel=1e-7)


def test_adams_norm_is_its_number_of_steps():
    assert Adam(lr=0.1).solver_norm(7, proximal=2.0) == 7.0


def test_no_pull_leaves_the_gradient_alone_bit_for_bit():
    g = torch.tensor([[-0.0, 1.0]])
    correct(Block(torch.tensor([[torch.inf, 1.0]]), g, torch.zeros(1, 2)), 0.0)
    assert g.tolist() == [[-0.0, 1.0]]


def test_clipping_is_per_client_over_all_blocks():
    first = torch.tensor([[3.0], [0.3]])
    second = torch.tensor([[4.0], [0.4]])
    Clip(1.0).apply([Block(first, first, first), Block(second, second, second)])
    torch.testing.assert_close(
        torch.cat([first, second], 1), torch.tensor([[0.6, 0.8], [0.3, 0.4]])
    )


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "got lr = -1.0; expected a positive number"),
        ({"beta2": 1.0}, "got beta2 = 1.0; expected at least 0 and less than 1"),
        ({"eps": 0.0}, "got eps = 0.0; expected a positive number"),
        ({"weight_decay": float("nan")}, "got weight_decay = nan"),
    ],
)
def test_adam_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Adam(**options)


def test_clip_refused():
    with pytest.raises(ConfigError, match="got norm = 0"):
        Clip(0.0)
