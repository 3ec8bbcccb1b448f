"""Hutchinson's diagonal against exact Hessians.

Worked numbers: docs/methods/compression.md#curvature.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from motley.core.keys import Key
from motley.tasks.curvature import hutchinson, rademacher


def network() -> tuple[nn.Module, Tensor, Tensor]:
    """A small one with curvature everywhere, in float64."""
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return module, torch.randn(8, 3, generator=generator, dtype=torch.float64), torch.arange(8) % 3


def exact(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The whole Hessian ``[D, D]``."""
    names = [(name, p.shape, p.numel()) for name, p in module.named_parameters()]

    def loss(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [n for _, _, n in names])
        values = {
            name: part.view(shape) for (name, shape, _), part in zip(names, parts, strict=True)
        }
        return nn.functional.cross_entropy(functional_call(module, values, (x,)), y)

    return torch.autograd.functional.hessian(
        loss, torch.cat([p.detach().flatten() for p in module.parameters()])
    )


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def probes(module: nn.Module, x: Tensor, y: Tensor, parameters: list[Tensor], n: int) -> Tensor:
    """``n`` probes ``[n, D]``."""
    out = []
    for seed in range(n):
        loss = nn.functional.cross_entropy(module(x), y)
        out.append(
            flat(hutchinson(loss, parameters, rademacher(Key(seed), [p.shape for p in parameters])))
        )
    return torch.stack(out)


def test_one_probe_is_z_times_hz() -> None:
    module, x, y = network()
    parameters = list(module.parameters())
    z = rademacher(Key(4), [p.shape for p in parameters])
    found = flat(hutchinson(nn.functional.cross_entropy(module(x), y), parameters, z))
    signs = flat(z).double()
    assert torch.allclose(found, signs * (exact(module, x, y) @ signs), rtol=1e-10, atol=1e-12)


def test_the_mean_over_probes_is_the_diagonal_and_the_variance_the_rows_squares() -> None:
    module, x, y = network()
    h = exact(module, x, y)
    n = 1500
    found = probes(module, x, y, list(module.parameters()), n)
    variance = h.square().sum(1) - h.diagonal().square()
    assert ((found.mean(0) - h.diagonal()).abs() <= 4.5 * (variance / n).sqrt() + 1e-12).all()
    assert found.var(0).numpy() == pytest.approx(variance.numpy(), rel=0.3, abs=1e-6)


def test_some_layers_alone_are_the_block_among_them() -> None:
    """z = 0 elsewhere: the same mean, and nothing of the other layers' rows in the variance."""
    module, x, y = network()
    z = rademacher(Key(1), [p.shape for p in module[2].parameters()])
    found = flat(
        hutchinson(nn.functional.cross_entropy(module(x), y), list(module[2].parameters()), z)
    )
    block = exact(module, x, y)[16:, 16:]
    signs = flat(z).double()
    assert torch.allclose(found, signs * (block @ signs), rtol=1e-10, atol=1e-12)


def test_the_worked_two_by_two() -> None:
    """H = [[2, 1], [1, 3]]: z = (1, 1) gives (3, 4), z = (1, -1) gives (1, 2); mean (2, 3)."""
    w = torch.tensor([0.3, -0.7], requires_grad=True)
    h = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    found = [
        hutchinson(0.5 * w @ h @ w, [w], [torch.tensor(z)])[0].tolist()
        for z in ([1.0, 1.0], [1.0, -1.0])
    ]
    assert found == [[3.0, 4.0], [1.0, 2.0]]


def test_a_diagonal_hessian_is_exact_in_every_probe_and_a_pull_adds_itself() -> None:
    w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    for seed in range(4):
        found = hutchinson((w**4).sum(), [w], rademacher(Key(seed), [w.shape]), proximal=0.1)[0]
        assert found.numpy() == pytest.approx(12 * np.array([1.0, 4.0, 9.0]) + 0.1)


def test_a_proximal_term_adds_mu_to_every_entry() -> None:
    module, x, y = network()
    parameters = list(module.parameters())
    z = rademacher(Key(2), [p.shape for p in parameters])
    anchor = [p.detach() + 1 for p in parameters]
    loss = nn.functional.cross_entropy(module(x), y)
    pulled = nn.functional.cross_entropy(module(x), y)
    pulled = pulled + 0.05 * sum(
        (p - a).square().sum() for p, a in zip(parameters, anchor, strict=True)
    )
    assert torch.allclose(
        flat(hutchinson(pulled, parameters, z)), flat(hutchinson(loss, parameters, z, proximal=0.1))
    )


def test_linear_and_untouched_parameters_have_no_curvature() -> None:
    w = torch.ones(3, requires_grad=True)
    unused = torch.ones(2, requires_grad=True)
    z = [torch.ones(3), torch.ones(2)]
    assert [part.tolist() for part in hutchinson(w.sum(), [w, unused], z)] == [[0.0] * 3, [0.0] * 2]
    found = hutchinson((w**2).sum(), [w, unused], z)
    assert [part.tolist() for part in found] == [[2.0] * 3, [0.0] * 2]
    assert not found[0].requires_grad


def test_signs_are_fair_and_a_function_of_the_key() -> None:
    (z,) = rademacher(Key(0), [(40_000,)])
    assert set(z.tolist()) == {-1, 1}
    assert abs(float(z.double().mean())) < 4 / 200
    a, b = rademacher(Key(0), [(100, 300), (10_000,)])
    assert torch.equal(torch.cat([a.flatten(), b]), z)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what it imports
def test_against_curvlinops() -> None:
    """Another implementation's Hessian-vector product, where it is installed."""
    curvlinops = pytest.importorskip("curvlinops")
    module, x, y = network()
    parameters = list(module.parameters())
    product = curvlinops.HessianLinearOperator(module, nn.CrossEntropyLoss(), parameters, [(x, y)])
    z = rademacher(Key(9), [p.shape for p in parameters])
    found = flat(hutchinson(nn.functional.cross_entropy(module(x), y), parameters, z))
    signs = flat(z).double()
    assert torch.allclose(found, signs * (product @ signs), rtol=1e-8, atol=1e-10)
