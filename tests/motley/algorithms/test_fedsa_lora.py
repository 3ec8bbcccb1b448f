"""FedSA-LoRA: factors by hand, what stays with clients, what travels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from motley.algorithms.fedsa_lora import FedSALoRA
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.lora_fedavg import LoRAFedAvg
from motley.core.errors import ConfigError, ModelError
from motley.experiments.build import build
from motley.tasks.task import ModelState
from motley.testing.algorithms import Adapted, Play
from tests.motley.algorithms.test_ranks import keys
from tests.motley.algorithms.toys import Toy


class Pair(nn.Module):
    """One adapter of one rank, of one input and one output, alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lora_A = nn.Linear(1, 1, bias=False)
        self.lora_B = nn.Linear(1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lora_B(self.lora_A(x))


def test_the_first_factor_is_averaged_and_the_second_stays():
    """Residuals -4, -2 move h alone, by .4, .2; then -3.6, -1.8: h by .36, .18, b by .1 * 3.6 * .4
    = .144 and .1 * 1.8 * .2 = .036."""
    toy = Toy(FedSALoRA(), model=Pair, start=(1.0, 0.0), targets=(4.0, 2.0))
    toy.round()
    assert toy.x == pytest.approx([1.0], rel=1e-12)
    assert [toy.kept[k]["x"].item() for k in (0, 1)] == pytest.approx([0.4, 0.2], rel=1e-12)
    toy.round()
    assert toy.x == pytest.approx([1.09], rel=1e-12)
    assert toy.examined(0) == pytest.approx([1.09, 0.76], rel=1e-12)
    assert toy.examined(1) == pytest.approx([1.09, 0.38], rel=1e-12)


class WithHead(nn.Sequential):
    """A layer with an adapter, and a trained head of five weights and a bias for each class."""

    def __init__(self) -> None:
        super().__init__(Adapted(6, 5), nn.ReLU(), nn.Linear(5, 4))


@pytest.mark.parametrize(("others", "shared"), [("own", 4 * 6), ("shared", 4 * 6 + 5 * 4 + 4)])
def test_what_belongs_to_no_adapter_stays_or_travels(others, shared):
    rule = Toy(FedSALoRA(others=others), model=WithHead, start=(0.0,) * 68).algorithm.local
    whole = ModelState(torch.arange(68.0), torch.zeros(0), torch.zeros(0))
    assert rule.sent(whole).x.numel() == shared
    assert rule.initial_state(whole)["x"].numel() == 68 - shared


def test_one_client_trains_as_alone():
    """With one client a round that is always the same, nothing is mixed: the model is that of
    averaging of both factors."""
    own, both = (Play(method, "uniform", SGD(lr=0.1)) for method in (FedSALoRA(), LoRAFedAvg()))
    for play in (own, both):
        play.run([(3,)] * 3)
    used = own.algorithm.local.examined(
        own.algorithm.local.download(own.server), own.client_states[3]
    )
    torch.testing.assert_close(used.x, both.server.model.x, rtol=1e-12, atol=0)


def test_the_first_factors_alone_are_billed():
    """Two adapters of rank 4 on 6 and 5 inputs: 44 numbers each way for three clients."""
    loop = build(keys("fedsa_lora"))
    loop.step()
    ledger = loop.state.ledger
    assert ledger.total("model", "down") == ledger.paper_bits == 3 * 32 * 44


def test_refused():
    with pytest.raises(ConfigError, match="got others = 'all'; expected 'own' or 'shared'"):
        FedSALoRA(others="all")
    with pytest.raises(ModelError, match="the model has no low-rank adapters"):
        Toy(FedSALoRA())
