"""The network of Ji's code, beside its ``forward`` in plain PyTorch."""

import pytest
import torch
from torch.nn import functional

from motley import Experiment
from motley.core.components import imports
from motley.core.errors import ConfigError
from motley_papers.rules.ji_cnn import JiCNN


def test_it_is_the_codes_network_in_evaluation() -> None:
    net = JiCNN().build((1, 28, 28), 10).eval()
    assert sum(p.numel() for p in net.parameters()) == 260 + 5020 + 16050 + 510 == 21_840
    x = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    w1, b1, w2, b2, w3, b3, w4, b4 = net.parameters()
    wanted = functional.relu(functional.max_pool2d(functional.conv2d(x, w1, b1), 2))
    wanted = functional.relu(functional.max_pool2d(functional.conv2d(wanted, w2, b2), 2))
    wanted = functional.relu(functional.linear(wanted.flatten(1), w3, b3))
    assert torch.allclose(net(x), functional.linear(wanted, w4, b4), atol=1e-6)


def test_half_of_the_channels_and_of_the_features_are_dropped() -> None:
    net = JiCNN().build((1, 28, 28), 10)
    assert [(at, m.p, m.channels) for at, m in enumerate(net) if hasattr(m, "channels")] == [
        (4, 0.5, True),
        (10, 0.5, False),
    ]


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs images \[C, 28, 28\]; got \[3, 32, 32\]"):
        JiCNN().build((3, 32, 32), 10)


def test_in_a_task_it_counts_by_its_name_so_that_the_ids_of_runs_stay() -> None:
    with imports(True):
        experiment = Experiment(
            task={"name": "image", "model": "motley_papers.rules.ji_cnn:JiCNN"},
            population=10,
            cohort=2,
            stop={"rounds": 1},
        )
    assert experiment.own_code == {}
    assert experiment.run_id() == "4d21dfc6038c"
