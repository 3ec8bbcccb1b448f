import math

import pytest
import torch

from motley_papers.rules.softmax_twice import SoftmaxTwice


def test_by_hand() -> None:
    """Two equal outputs: log 2, and half of plain cross-entropy's gradient (-1/2, 1/2)."""
    outputs, targets = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])
    assert SoftmaxTwice().loss(outputs, targets, {}).item() == pytest.approx(math.log(2))
    assert SoftmaxTwice().gradient(outputs, targets, {}).tolist() == [[-0.25, 0.25]]


def test_the_least_loss_of_ten_classes() -> None:
    outputs = torch.zeros(1, 10, dtype=torch.float64)
    outputs[0, 3] = 100.0
    loss = SoftmaxTwice().loss(outputs, torch.tensor([3]), {}).item()
    assert loss == pytest.approx(math.log(1 + 9 / math.e), rel=1e-12)
    assert loss == pytest.approx(1.461150, abs=5e-7)


@pytest.mark.parametrize("shape", [(6, 4), (3, 6, 4)])
def test_it_is_torchs_cross_entropy_of_a_softmax(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 4, shape[:-1], generator=generator)
    torchs = torch.nn.functional.cross_entropy(
        outputs.softmax(-1).reshape(-1, 4), targets.flatten(), reduction="none"
    )
    mine = SoftmaxTwice().loss(outputs, targets, {})
    assert torch.allclose(mine.flatten(), torchs)
    (wanted,) = torch.autograd.grad(torchs.sum(), outputs)
    assert torch.allclose(SoftmaxTwice().gradient(outputs.detach(), targets, {}), wanted)
