import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from motley.core.errors import ConfigError, ModelError
from motley.core.keys import Key
from motley.tasks.nn import Dropout, replace_stochastic, require_keyed, set_stream, stochastic_layers


def test_the_same_key_gives_the_same_masks_and_another_does_not() -> None:
    module = nn.Sequential(Dropout(0.5), Dropout(0.5)).train()
    x = torch.ones(4, 50)
    outs = []
    for seed in (0, 0, 1):
        set_stream(module, Key(seed))
        outs.append((module(x), module(x)))
    assert torch.equal(outs[0][0], outs[1][0])
    assert torch.equal(outs[0][1], outs[1][1])
    assert not torch.equal(outs[0][0], outs[0][1])  # step after step
    assert not torch.equal(outs[0][0], outs[2][0])


def test_two_layers_have_streams_of_their_own() -> None:
    first, second = Dropout(0.5).train(), Dropout(0.5).train()
    set_stream(nn.ModuleList([first, second]), Key(0))
    x = torch.ones(2, 64)
    assert not torch.equal(first(x), second(x))


def test_masks_do_not_depend_on_dtype_nor_touch_torchs_generator() -> None:
    layer = Dropout(0.3).train()
    before = torch.get_rng_state()
    set_stream(layer, Key(5))
    single = layer(torch.ones(3, 20))
    set_stream(layer, Key(5))
    double = layer(torch.ones(3, 20, dtype=torch.float64))
    assert torch.equal(single != 0, double != 0)
    assert double.max().item() == pytest.approx(1 / 0.7, rel=1e-15)
    assert torch.equal(torch.get_rng_state(), before)


def test_share_channels_and_evaluation_mode() -> None:
    layer = Dropout(0.25).train()
    set_stream(layer, Key(0))
    out = layer(torch.ones(200, 200))
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)  # sd 0.0022
    assert out.mean().item() == pytest.approx(1.0, abs=0.015)
    channels = Dropout(0.5, channels=True).train()
    set_stream(channels, Key(0))
    planes = channels(torch.ones(8, 8, 3, 3)).flatten(2)
    assert torch.equal(planes.amin(2), planes.amax(2))
    assert torch.equal(layer.eval()(torch.ones(3)), torch.ones(3))


def test_without_a_stream_training_is_refused() -> None:
    with pytest.raises(ModelError, match="set_stream"):
        Dropout(0.5).train()(torch.ones(2, 2))
    with pytest.raises(ConfigError, match=r"got 1.0; expected a share of at least 0 and below 1"):
        Dropout(1.0)


def test_threads_do_not_disturb_each_other() -> None:
    def work(seed: int, out: dict[int, torch.Tensor]) -> None:
        layer = Dropout(0.5).train()
        set_stream(layer, Key(seed))
        out[seed] = torch.stack([layer(torch.ones(64)) for _ in range(50)])

    alone: dict[int, torch.Tensor] = {}
    together: dict[int, torch.Tensor] = {}
    for seed in range(4):
        work(seed, alone)
    threads = [threading.Thread(target=work, args=(seed, together)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone[seed], together[seed]) for seed in range(4))


def test_torch_dropouts_are_exchanged_wherever_they_are() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2))
    module = replace_stochastic(nn.ModuleDict({"a": inner, "b": nn.Dropout2d(0.3), "c": nn.Dropout1d(0.0)}))
    assert [(layer.p, layer.channels) for layer in stochastic_layers(module)] == [(0.2, False), (0.3, True)]
    assert isinstance(replace_stochastic(nn.Dropout(0.1)), Dropout)


class MyDropout(nn.Dropout):
    pass


@pytest.mark.parametrize(
    ("layer", "word"),
    [
        (nn.AlphaDropout(0.1), "AlphaDropout"),
        (nn.FeatureAlphaDropout(0.1), "FeatureAlphaDropout"),
        (nn.RReLU(), "RReLU"),
        (nn.FractionalMaxPool2d(2, 2), "FractionalMaxPool2d"),
        (nn.MultiheadAttention(4, 2, dropout=0.1), "MultiheadAttention"),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), "LSTM"),
        (nn.GRU(2, 2, num_layers=2, dropout=0.1), "GRU"),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1), "MultiheadAttention"),
        (MyDropout(0.1), "MyDropout"),
    ],
)
def test_what_cannot_be_keyed_is_refused_by_name(layer: nn.Module, word: str) -> None:
    with pytest.raises(ModelError, match=rf"layer 'body\.odd.*' \({word}\)"):
        replace_stochastic(nn.ModuleDict({"body": nn.ModuleDict({"odd": layer})}))


def test_the_same_layers_without_dropout_pass() -> None:
    replace_stochastic(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0))
    replace_stochastic(nn.LSTM(2, 2, num_layers=2))


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.layer(x), 0.5, self.training)


def test_a_draw_inside_forward_is_found() -> None:
    with pytest.raises(ModelError, match="Hidden draws from torch's process-wide generator"):
        require_keyed(Hidden(), lambda module: module(torch.ones(2, 2)))
    module = nn.Sequential(nn.Linear(2, 2), Dropout(0.5)).eval()
    require_keyed(module, lambda fresh: fresh(torch.ones(2, 2)))
    assert not module.training
