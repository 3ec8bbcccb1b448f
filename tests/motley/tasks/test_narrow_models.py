"""Narrower models: index sets and sizes worked out by hand; a slice computes what the whole model
does without its other units."""

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ContractError, ModelError
from motley.core.layout import Axis, Entry
from motley.tasks.flat import FlatModule, layout_of
from motley.tasks.models import factory
from motley.tasks.narrow_models import cuttable, narrowed, operations, require_slices

IMAGE = (3, 32, 32)


def benchmark_cnn():
    """The convolutional network of a personalized-learning library: 32 and 64 channels of 5x5, 512
    hidden features."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def cut(make):
    module = make()
    return cuttable(layout_of(module), module)


def test_index_sets_of_an_mlp_from_the_start_and_rolling():
    layout = cut(
        lambda: nn.Sequential(
            nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)
        )
    )

    def found(width, offset):
        return {
            name: [index.tolist() for index in kept]
            for name, kept in layout.slices(width, offset).items()
        }

    assert found(0.5, 0) == {  # ceil(1.5) = 2 of 3 units, 2 of 4
        "0.weight": [[0, 1], [0, 1]],
        "0.bias": [[0, 1]],
        "2.weight": [[0, 1], [0, 1]],
        "2.bias": [[0, 1]],
        "4.weight": [[0, 1], [0, 1]],
        "4.bias": [[0, 1]],
    }
    # 5 mod 3 = 2: units 2, 0; 5 mod 4 = 1: units 1, 2; inputs and classes never roll
    assert found(0.5, 5) == {
        "0.weight": [[0, 2], [0, 1]],
        "0.bias": [[0, 2]],
        "2.weight": [[1, 2], [0, 2]],
        "2.bias": [[1, 2]],
        "4.weight": [[0, 1], [1, 2]],
        "4.bias": [[0, 1]],
    }
    # in the flat vector: 0.weight [3, 2] at 0, 0.bias at 6, 2.weight [4, 3] at 9, 2.bias at 21,
    # 4.weight [2, 4] at 25, 4.bias at 33
    expected = [0, 1, 4, 5, 6, 8, 12, 14, 15, 17, 22, 23, 26, 27, 30, 31, 33, 34]
    assert layout.kept_positions(0.5, 5).tolist() == expected
    assert layout.kept_size(0.5) == len(expected)


def test_whole_number_shares_are_not_rounded_up():
    assert [
        len(Axis(1, units).kept(width))
        for units, width in ((200, 0.1), (10, 0.3), (10, 0.31), (3, 0.01))
    ] == [20, 3, 4, 1]


def test_a_linear_layer_after_flatten_keeps_all_positions_of_a_channel():
    # 4 positions per channel
    layout = cut(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)))
    assert [index.tolist() for index in layout.slices(0.5, 1)["2.weight"]] == [
        [0, 1, 2],
        [4, 5, 6, 7],
    ]


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        # 784*200+200 + 200*200+200 + 200*10+10; half: 784*100+100 + 100*100+100 + 100*10+10;
        # quarter: 50 units
        (factory("mlp", (1, 28, 28), 10), (796_840, 358_440, 169_240)),
        # 25*32+32 + 800*64+64 + 1024*512+512 + 512*10+10; half: 16, 32, 256; quarter: 8, 16, 128
        (benchmark_cnn, (2_328_104, 588_584, 150_440)),
    ],
    ids=["mlp", "cnn"],
)
def test_bytes_of_slices(make, sizes):
    layout = cut(make)
    assert tuple(4 * layout.kept_size(width) for width in (1.0, 0.5, 0.25)) == sizes
    # as wide as the model: all of it, in order
    assert np.array_equal(layout.kept_positions(1.0, 7), np.arange(layout.size))


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("mlp", (1, 28, 28)),
        ({"name": "mlp", "norm": "batch"}, (1, 8, 8)),
        *((m, IMAGE) for m in ("cnn", "alexnet", "resnet9")),
    ],
)
def test_a_slice_computes_what_the_whole_model_does_without_its_other_units(model, shape, offset):
    make = factory(model, shape, 10)
    layout = cut(make)
    whole = FlatModule(make(), torch.float64)
    narrow = FlatModule(narrowed(make, layout, 0.25, True), torch.float64)
    kept = torch.from_numpy(layout.kept_positions(0.25, offset))
    narrow.w.copy_(whole.w[kept])
    held = torch.zeros_like(whole.w)
    held[kept] = 1
    whole.w.mul_(held)
    x = torch.linspace(-1, 1, 2 * int(np.prod(shape)), dtype=torch.float64).reshape(2, *shape)
    whole.module.eval()
    narrow.module.eval()
    torch.testing.assert_close(narrow.module(x), whole.module(x), rtol=1e-9, atol=1e-12)


def test_a_sum_shares_the_units_of_its_layers():
    make = factory("resnet18", IMAGE, 10)
    layout = cut(make)
    stem = layout["0.weight"].axes[0]
    inside = layout["3.conv1.weight"].axes[0]
    assert layout["3.conv2.weight"].axes[0] == layout["4.conv2.weight"].axes[0] == stem != inside
    assert layout["5.shortcut.0.weight"].axes == (
        layout["5.conv2.weight"].axes[0],
        stem,
        None,
        None,
    )
    with torch.no_grad():
        assert narrowed(make, layout, 0.25, False).eval()(torch.zeros(1, *IMAGE)).shape == (1, 10)


def test_activations_are_divided_by_the_width_in_training_alone():
    def make():  # W1 = (2, 3), W2 = (1, 1), input 1
        module = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False))
        module[0].weight.data, module[1].weight.data = (
            torch.tensor([[2.0], [3.0]]),
            torch.ones(1, 2),
        )
        return module

    one = torch.ones(1, 1)
    half = narrowed(make, cut(make), 0.5, True)
    assert (half.train()(one).item(), half.eval()(one).item(), make()(one).item()) == (
        4.0,
        2.0,
        5.0,
    )
    assert narrowed(make, cut(make), 0.5, False).train()(one).item() == 2.0


def test_operations_of_a_slice():
    make = factory("mlp", (784,), 10)
    narrow = narrowed(make, cut(make), 0.5, False)
    x = torch.zeros(1, 784)
    # a multiplication and an addition for every weight
    assert (operations(make(), x), operations(narrow, x)) == (
        2 * (784 * 200 + 200 * 200 + 2000),
        2 * (78400 + 10000 + 1000),
    )


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x) * x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (factory("linear", (4,), 2), "it has no hidden layer"),
        (lambda: factory("transformer", (8,), 10, sequences=True)(), "its graph cannot be read"),
        (lambda: factory("leaf_lstm", (8,), 10, sequences=True)(), "it has a layer Embedding"),
        (Branching, "a Branching cannot be cut into slices of its width: it calls mul"),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
            "it has a layer LayerNorm, '1'",
        ),
        (
            lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Conv2d(4, 2, 1)),
            "it has a layer Conv2d, '0'",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2).requires_grad_(False)),
            "some of its parameters are frozen",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused_in_a_sentence(make, message):
    with pytest.raises(ModelError, match=message):
        cut(make)


class Flipping(nn.ReLU):
    """An activation of one's own, which is no function of each unit by itself."""

    def forward(self, x):
        return super().forward(x.flip(-1))


def hooked():
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    module[0].register_forward_hook(lambda layer, inputs, outputs: outputs.flip(-1))
    return module


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)),
            (3, 4),
            "half of it computes something else than the whole without the other half",
        ),
        (hooked, (4,), "half of it computes something else"),
        (
            lambda: nn.Sequential(nn.Linear(4, 6), Flipping(), nn.Linear(6, 3)),
            (4,),
            "half of it computes something else",
        ),
        (
            lambda: nn.Sequential(nn.Linear(4, 6), nn.AdaptiveAvgPool1d(6), nn.Linear(6, 3)),
            (4,),
            "half of it fails",
        ),
    ],
)
def test_a_slice_that_computes_something_else_is_refused(make, shape, message):
    with pytest.raises(ModelError, match=message):
        require_slices(make, cut(make), torch.ones(2, *shape))


@pytest.mark.parametrize("model", ["mlp", "cnn", {"name": "mlp", "norm": "batch"}])
def test_slices_of_known_layers_are_taken(model):
    make = factory(model, IMAGE, 10)
    require_slices(make, cut(make), torch.ones(2, *IMAGE))


def test_a_layout_without_axes_has_no_slices():
    with pytest.raises(ContractError, match=r"axes of 'w' are not known"):
        Entry("w", "", (2,), 0).kept(0.5)
