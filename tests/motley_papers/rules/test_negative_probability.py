"""The loss of a softmax that was taken for its logarithm."""

import pytest
import torch

from motley_papers.rules.negative_probability import NegativeProbability


def test_by_hand() -> None:
    """Two equal outputs: -1/2, and half of cross-entropy's gradient (-1/2, 1/2)."""
    outputs, targets = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])
    assert NegativeProbability().loss(outputs, targets, {}).tolist() == [-0.5]
    assert NegativeProbability().gradient(outputs, targets, {}).tolist() == [[-0.25, 0.25]]


@pytest.mark.parametrize("shape", [(6, 4), (3, 6, 4)])
def test_it_is_torchs_nll_loss_of_a_softmax(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 4, shape[:-1], generator=generator)
    torchs = torch.nn.functional.nll_loss(
        outputs.softmax(-1).reshape(-1, 4), targets.flatten(), reduction="none"
    )
    mine = NegativeProbability().loss(outputs, targets, {})
    assert torch.allclose(mine.flatten(), torchs, rtol=1e-12)
    (wanted,) = torch.autograd.grad(torchs.sum(), outputs)
    assert torch.allclose(NegativeProbability().gradient(outputs, targets, {}), wanted, atol=1e-15)
