"""Methods, losses and selectors that read the last linear layer get the one that gives the outputs;
another one is refused, and what acts behind it is told."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import motley
from motley.core.errors import ConfigError, ModelError
from motley.tasks import from_clients, own_task

RNG = np.random.default_rng(0)
FEDERATION = from_clients([(RNG.normal(size=(6, 4)), np.arange(6) % 3)] * 3, test_fraction=0.5)


class Net(nn.Module):
    """A head that is made last and gives the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.body(x)))
        return out


class HeadFirst(Net):
    def __init__(self) -> None:
        super().__init__()
        self.body = self._modules.pop("body")  # after the head, as one who writes it first has it


class UnusedLast(Net):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(5, 3)


class Beside(UnusedLast):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) + self.other(torch.relu(self.body(x)))
        return out


class Adapted(Net):
    """A frozen head with an adapter beside it, as peft's LoRA makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.head.requires_grad_(False)
        self.lora_A = nn.Linear(5, 2, bias=False)
        self.lora_B = nn.Linear(2, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.relu(self.body(x))
        out: Tensor = self.head(features) + self.lora_B(self.lora_A(features))
        return out


class Tied(nn.Module):
    """The last layer shares its weights with the first, under whose name they are."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3, bias=False)
        self.middle = nn.Linear(3, 4)
        self.last = nn.Linear(4, 3, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.middle(self.first(x))))
        return out


class Cosine(Net):
    """Outputs of weights that are no linear layer."""

    def __init__(self) -> None:
        super().__init__()
        del self.head
        self.weight = nn.Parameter(torch.ones(3, 5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x)) @ self.weight.T


class Scaled(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


def frozen_head() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3))
    net[4].requires_grad_(False)
    return net


def frozen_bias() -> nn.Module:
    net = Net()
    assert net.head.bias is not None
    net.head.bias.requires_grad_(False)
    return net


def normed() -> nn.Module:
    net = Net()
    weight_norm(net.head)
    return net


def built(model: Any, **keys: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        motley.build({"cohort": 2, "stop": {"rounds": 1}, **keys}, task=own_task(FEDERATION, model))


def convolved() -> nn.Module:
    rows = nn.Unflatten(0, (-1, 1, 4))
    return nn.Sequential(nn.Flatten(0), rows, nn.Conv1d(1, 3, 4), nn.Flatten())


METHODS = [
    {"algorithm": "fedas"},
    {"algorithm": "fedpac"},
    {"algorithm": "fedper"},
    {"algorithm": "fedrep"},
    {"algorithm": "fedbabu"},
    {"algorithm": "lg_fedavg"},
    {"algorithm": "fedrod"},
    {"algorithm": {"name": "ifca", "shared_base": True}},
    {"algorithm": "fedproto"},
    {"algorithm": "pfedfda"},
    {"algorithm": "fedgh"},
    {"algorithm": "moon"},
    {"selector": "hics_fl"},
    {"selector": "fedcvr_bolt", "weights": "selector_ratio"},
]


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: str(keys))
def test_the_layer_that_gives_the_outputs_is_the_last(keys: Any) -> None:
    built(Net, **keys)
    key, part = next(iter(keys.items()))
    name = part["name"] if isinstance(part, dict) else part
    message = f"{key}: {name!r} reads the last linear layer, by the order in which layers are made "
    with pytest.raises(ConfigError, match=f"{message}'body', and 'head.weight' acts on"):
        built(HeadFirst, **keys)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (UnusedLast, "'other', and the forward does not call it as a layer; let the layer"),
        (Beside, "'other', and 'head.weight' acts on the outputs after or beside it"),
        (Tied, "'middle', and 'first.weight' acts on the outputs after or beside it"),
        (Cosine, "'body', and 'weight' acts on the outputs after or beside it"),
        (frozen_head, "'2', and '4.weight' acts on the outputs after or beside it"),
        (normed, "'head', and 'head.parametrizations.weight.original1' acts on the outputs"),
        (convolved, "this model has no linear layer"),
    ],
)
def test_a_last_layer_that_gives_no_outputs_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        built(model, algorithm="fedper")
    built(model)


@pytest.mark.parametrize("name", ["FedAS", "FedPAC", "FedRoD", "pFedFDA"])
def test_a_model_without_a_linear_layer_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} reads the last linear layer, and this model"):
        built(convolved, algorithm=name.lower())


class OfPositions(Net):
    """Outputs of each position, and their mean."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, None, :]).mean(1)


class CalledTwice(Net):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) + self.head(torch.tanh(self.body(x)))
        return out


@pytest.mark.parametrize("algorithm", ["fedproto", "fedgh", "fedas", "moon"])
def test_features_are_of_one_call_for_a_sample(algorithm: str) -> None:
    with pytest.raises(ConfigError, match="the forward calls it 2 times; call it once"):
        built(CalledTwice, algorithm=algorithm)
    if algorithm == "moon":  # compares all positions
        built(OfPositions, algorithm=algorithm)
    else:
        with pytest.raises(ConfigError, match="calls it on more than one position of a sample"):
            built(OfPositions, algorithm=algorithm)
    built(CalledTwice, algorithm="fedper")


def test_a_head_with_an_adapter_is_to_be_trained_whole() -> None:
    with pytest.raises(ConfigError, match=r"'head.weight' acts .*: name it in modules_to_save"):
        built(Adapted, algorithm="fedper")


def test_a_frozen_bias_is_no_other_layer() -> None:
    built(frozen_bias, algorithm="fedper")


def test_a_scale_behind_the_head_is_told() -> None:
    with pytest.warns(UserWarning, match="'scale' acts on the outputs after the last linear layer"):
        motley.build(
            {"cohort": 2, "stop": {"rounds": 1}, "algorithm": "fedper"},
            task=own_task(FEDERATION, Scaled),
        )


def test_a_model_without_what_a_method_keeps_is_told() -> None:
    keys = {"cohort": 2, "stop": {"rounds": 1}}
    task = own_task(FEDERATION, Net)
    with pytest.warns(UserWarning, match="'fedbn' leaves layers with the clients, and this model"):
        motley.build({**keys, "algorithm": "fedbn"}, task=task)
    with pytest.warns(UserWarning, match="own_norms leaves BatchNorm with the clients, and this"):
        motley.build({**keys, "algorithm": {"name": "fedper", "own_norms": True}}, task=task)


def test_slices_of_a_model_of_ones_own_are_compared_with_the_whole() -> None:
    """Positions after a linear layer: [B, 2, 6] flattens position by position, not unit by unit."""
    two = from_clients([(RNG.normal(size=(6, 2, 4)), np.arange(6) % 3)] * 3, test_fraction=0.5)
    keys = {
        "cohort": 2,
        "stop": {"rounds": 1},
        "algorithm": "heterofl",
        "capacity": {"name": "levels", "levels": [1.0, 0.5]},
    }

    def positions() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))

    with pytest.raises(ModelError, match="half of it computes something else than the whole"):
        motley.build(keys, task=own_task(two, positions))
    motley.build(
        keys,
        task=own_task(
            two, lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
        ),
    )
