import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.tasks.flat import layout_of
from motley.tasks.models import MODELS, factory


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "count"),
    [
        ("logistic_regression", (1, 28, 28), 10, 7_850),
        ("mlp", (1, 28, 28), 10, 199_210),
        ("cnn", (3, 32, 32), 10, 259_914),
        ("lenet", (1, 28, 28), 10, 44_426),
        ("lenet", (3, 32, 32), 10, 62_006),
        ("leaf_cnn", (1, 28, 28), 62, 6_603_710),
        ("simple_cnn", (3, 32, 32), 10, 1_626_442),
        ("alexnet", (3, 32, 32), 10, 2_781_514),
        ("resnet9", (3, 32, 32), 100, 6_621_540),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("resnet18", (3, 64, 64), 200, 11_271_432),
        ("digits_mlp", (1, 8, 8), 10, 2_410),
    ],
)
def test_parameter_counts_of_the_papers(
    name: str, shape: tuple[int, ...], outputs: int, count: int
) -> None:
    """Counts of docs/methods/models-and-data.md#models; e.g. cnn without padding (32 -> 28 -> 14 ->
    10 -> 5): 32*75 + 32 + 64*800 + 64 + 1600*128 + 128 + 128*10 + 10 = 259,914 (with padding
    579,402)."""
    module = factory(name, shape, outputs)()
    assert layout_of(module).size == count
    assert module.eval()(torch.zeros(1, *shape)).shape == (1, outputs)


def test_the_network_of_fedcvr_bolts_released_code() -> None:
    """3x3 with padding (32 -> 32 -> 16 -> 16 -> 8): 32*27 + 32 + 64*288 + 64 + 4096*128 + 128 +
    1290 = 545,098."""
    module = factory({"name": "cnn", "kernel": 3, "padding": 1}, (3, 32, 32), 10)()
    assert layout_of(module).size == 545_098
    assert module.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    for options, message in (
        ({"kernel": 7}, "kernel: got 7; expected a side from 1 to 5"),
        ({"padding": 5}, "padding: got 5 with kernel = 5; expected at least 0 and less"),
    ):
        with pytest.raises(ConfigError, match=message):
            factory({"name": "cnn", **options}, (3, 32, 32), 10)


@pytest.mark.parametrize(
    "name", [name for name in MODELS.names() if not MODELS.get(name).sequences]
)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_every_model_fits_the_usual_images(name: str, shape: tuple[int, int, int]) -> None:
    assert factory(name, shape, 7)().eval()(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", ["cnn", "lenet", "leaf_cnn", "simple_cnn", "alexnet", "resnet9"])
@pytest.mark.parametrize("stored", [torch.contiguous_format, torch.channels_last])
def test_a_pool_before_relu_has_the_bits_of_one_after_it(
    name: str, stored: torch.memory_format
) -> None:
    torch.manual_seed(0)
    module = factory(name, (3, 32, 32), 10)()
    papers = factory(name, (3, 32, 32), 10)()
    papers.load_state_dict(module.state_dict())
    assert _relu_first(papers) >= 1
    images = torch.randn(3, 3, 32, 32).to(memory_format=stored)
    images[0] = 0.0  # areas whose numbers are equal
    outputs = []
    for each in (module, papers):
        outputs.append(each(images))
        outputs[-1].square().sum().backward()
    assert torch.equal(*outputs)
    for ours, theirs in zip(module.parameters(), papers.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)


def _relu_first(module: nn.Module) -> int:
    """Exchange each pool with the ReLU after it, and return how many there were."""
    exchanged = 0
    for sequence in module.modules():
        if isinstance(sequence, nn.Sequential):
            for i in range(len(sequence) - 1):
                if isinstance(sequence[i], nn.MaxPool2d) and isinstance(sequence[i + 1], nn.ReLU):
                    sequence[i], sequence[i + 1] = sequence[i + 1], sequence[i]
                    exchanged += 1
    return exchanged


def test_linear_stacks_are_plain_sequences() -> None:
    kinds = [type(layer) for layer in factory({"name": "mlp", "hidden": [5]}, (3,), 2)()]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    (_, linear) = factory({"name": "linear", "bias": False}, (3,), 2)()
    assert linear.bias is None


def test_an_mlp_with_batch_norm_is_normalised_before_each_relu() -> None:
    kinds = [
        type(layer)
        for layer in factory({"name": "mlp", "hidden": [5, 4], "norm": "batch"}, (3,), 2)()
    ]
    hidden = [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    assert kinds == [nn.Flatten, *hidden, *hidden, nn.Linear]


def test_dropout_sits_between_the_linear_layers_only() -> None:
    from motley.tasks.nn import stochastic_layers

    assert len(stochastic_layers(factory("mlp", (3,), 2, dropout=0.1)())) == 2
    assert len(stochastic_layers(factory("cnn", (1, 28, 28), 2, dropout=0.1)())) == 1
    assert len(stochastic_layers(factory("resnet9", (3, 32, 32), 2, dropout=0.1)())) == 1
    assert not stochastic_layers(factory("alexnet", (3, 32, 32), 2)())


@pytest.mark.parametrize(
    ("record", "shape", "words"),
    [
        ("cnn", (1, 8, 8), r"CNN needs images of at least 16 x 16; got 8 x 8; try mlp"),
        (
            "resnet9",
            (30,),
            r"ResNet9 needs images \[C, H, W\]; this data has samples of shape \[30\]",
        ),
        ("mpl", (3,), r"task.model.name: got 'mpl' \(did you mean 'mlp'\?\)"),
        ({"name": "mlp", "dropout": 1.0}, (3,), r"task.model: dropout: got 1.0; expected a share"),
        (
            {"name": "mlp", "hidden": [0]},
            (3,),
            r"task.model: hidden: got \[0\]; expected widths of at least 1",
        ),
    ],
)
def test_models_that_do_not_fit_say_so(record: object, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        factory(record, shape, 2)  # type: ignore[arg-type]


def test_dropout_for_a_model_without_any_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"task.model.dropout: 'logistic_regression' has no such option"
    ):
        factory("logistic_regression", (3,), 2, dropout=0.1)
