import copy
import threading
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from motley.core.errors import ConfigError, ModelError
from motley.core.keys import Key
from motley.tasks.nn import (
    Dropout,
    attention,
    replace_stochastic,
    require_keyed,
    set_stream,
    stochastic_layers,
)


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
    first = Dropout(0.5).train()
    second = Dropout(0.5).train()
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
    module = replace_stochastic(
        nn.ModuleDict({"a": inner, "b": nn.Dropout2d(0.3), "c": nn.Dropout1d(0.0)})
    )
    assert [(layer.p, layer.channels) for layer in stochastic_layers(module)] == [
        (0.2, False),
        (0.3, True),
    ]
    assert isinstance(replace_stochastic(nn.Dropout(0.1)), Dropout)


class MyDropout(nn.Dropout):
    pass


class MyAttention(nn.MultiheadAttention):
    pass


class MyLSTM(nn.LSTM):
    pass


@pytest.mark.parametrize(
    ("layer", "word"),
    [
        (nn.AlphaDropout(0.1), "AlphaDropout"),
        (nn.FeatureAlphaDropout(0.1), "FeatureAlphaDropout"),
        (nn.RReLU(), "RReLU"),
        (nn.FractionalMaxPool2d(2, 2), "FractionalMaxPool2d"),
        (nn.MultiheadAttention(4, 2, dropout=0.1, add_bias_kv=True), "MultiheadAttention"),
        (MyAttention(4, 2, dropout=0.1), "MyAttention"),
        (MyLSTM(2, 2, num_layers=2, dropout=0.1), "MyLSTM"),
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


def _masks(what: nn.Module, key: int, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Outputs of two steps in training under a key."""
    set_stream(what.train(), Key(key))
    return [what(*inputs)[0].detach() for _ in range(2)]


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (nn.MultiheadAttention(4, 2, dropout=0.5), 3),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.5), 1),
        (nn.GRU(4, 4, num_layers=3, dropout=0.5), 1),
        (nn.RNN(4, 4, num_layers=2, dropout=0.5), 1),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5), 1),
        (
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5), 2, enable_nested_tensor=False
            ),
            1,
        ),
        (nn.TransformerDecoderLayer(4, 2, 8, dropout=0.5), 2),
    ],
)
def test_dropout_inside_torchs_layers_comes_from_the_key(layer: nn.Module, inputs: int) -> None:
    """The key alone decides; parameters keep names and numbers; evaluation is torch's own."""
    before = torch.get_rng_state()
    names = [name for name, _ in layer.named_parameters()]
    module = replace_stochastic(copy.deepcopy(layer))
    x = [torch.arange(24.0).view(2, 3, 4).sin() for _ in range(inputs)]
    first, again, other = (_masks(module, key, *x) for key in (0, 0, 1))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(torch.get_rng_state(), before)
    assert [name for name, _ in module.named_parameters()] == names
    torch.testing.assert_close(module.eval()(*x)[0], layer.eval()(*x)[0])


@pytest.mark.parametrize(
    "options", [{}, {"kdim": 6, "vdim": 10}, {"bias": False}, {"batch_first": True}]
)
def test_keyed_attention_is_torchs(options: dict) -> None:
    """With hardly any dropout, the numbers of torch's layer under every kind of mask. Layers take
    True as not to be attended to."""
    theirs = nn.MultiheadAttention(8, 2, dropout=1e-300, **options).double().train()
    mine = replace_stochastic(copy.deepcopy(theirs))
    set_stream(mine, Key(0))
    rng = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(3, n, width, generator=rng, dtype=torch.float64)
        for n, width in ((5, 8), (4, options.get("kdim", 8)), (4, options.get("vdim", 8)))
    )
    if "batch_first" not in options:
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    some = torch.tensor([[False, False, True, True]]).expand(5, 4)
    added = torch.randn(6, 5, 4, generator=rng, dtype=torch.float64)
    padding = torch.tensor([[False] * 4, [False, False, False, True], [False] * 4])
    for mask, pad in product((None, some, added), (None, padding)):
        pad = (
            pad
            if pad is None or mask is not added
            else torch.zeros(3, 4).double().masked_fill(pad, -torch.inf)
        )
        out, _ = theirs(q, k, v, key_padding_mask=pad, attn_mask=mask, need_weights=False)
        torch.testing.assert_close(
            mine(q, k, v, key_padding_mask=pad, attn_mask=mask)[0], out, rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True}, {"batch_first": True, "bias": False}, {"proj_size": 3}]
)
def test_keyed_recurrent_layers_are_torchs(kind: type, options: dict) -> None:
    if "proj_size" in options and kind is not nn.LSTM:
        return
    theirs = kind(4, 6, 3, dropout=1e-300, **options).double().train()
    mine = replace_stochastic(copy.deepcopy(theirs))
    set_stream(mine, Key(0))
    x = torch.arange(140.0, dtype=torch.float64).view(5, 7, 4).cos()
    out, state = theirs(x)
    torch.testing.assert_close(mine(x), (out, state), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(mine(x, state), theirs(x, state), rtol=1e-12, atol=1e-14)


def test_what_keyed_layers_do_not_take_is_said() -> None:
    recurrent = replace_stochastic(nn.LSTM(2, 2, num_layers=2, dropout=0.1))
    with pytest.raises(
        ModelError, match=r"a recurrent layer with dropout takes padded batches of 3 dimensions"
    ):
        recurrent(torch.ones(3, 2))
    with pytest.raises(
        ModelError, match=r"attention got samples of shape \[3, 2\]; expected a batch of sequences"
    ):
        replace_stochastic(nn.MultiheadAttention(2, 1, dropout=0.1))(*[torch.ones(3, 2)] * 3)


def test_attention_by_hand() -> None:
    """One query, two keys: scores 2 / sqrt(4) = 1 and 0, so weights e / (e + 1) and 1 / (e + 1) of
    the values 0 and 1."""
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    k = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    v = torch.tensor([[0.0], [1.0]])
    share = 1 / (1 + torch.e)
    assert attention(q, k, v).item() == pytest.approx(share)
    assert attention(q, k, v, mask=torch.tensor([[False, True]])).item() == 1.0
    assert attention(q, k, v, mask=torch.tensor([[0.0, 1.0]])).item() == pytest.approx(0.5)
    torch.testing.assert_close(
        attention(k, k, v, causal=True),
        nn.functional.scaled_dot_product_attention(k, k, v, is_causal=True),
    )
    drop = Dropout(0.5).train()
    drop.reseed(Key(0))
    dropped = {round(attention(q, k, v, drop).item(), 6) for _ in range(40)}
    assert dropped == {0.0, round(2 * share, 6)}


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)[:, None]
        return F.scaled_dot_product_attention(h, h, h, dropout_p=0.5)[:, 0]


def test_dropped_attention_inside_forward_is_found_with_the_line_that_replaces_it() -> None:
    with pytest.raises(ModelError, match=r"motley\.tasks\.nn\.attention\(q, k, v, self\.drop\)"):
        require_keyed(Attends(), lambda module: module(torch.ones(2, 2)))


def test_of_a_model_of_others_the_options_that_draw_are_named() -> None:
    """Of attention where there are any, else all; layers that draw from keys are none."""

    class Config:
        def __init__(self) -> None:
            self.attention_dropout = 0.1
            self.hidden_dropout = 0.2
            self.cross_attn_pdrop = 0.0

        def to_dict(self) -> dict[str, float]:
            return vars(self)

    class Theirs(nn.Module):
        def __init__(self, config: Config | None) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.drop_rate = 0.3
            if config is not None:
                self.config = config

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(self.inner(x), self.drop_rate)

    for config, advice in (
        (Config(), "make it with attention_dropout = 0$"),
        (None, "; of a model that is not yours, make it with drop_rate = 0$"),
    ):
        with pytest.raises(ModelError, match=advice):
            require_keyed(Theirs(config), lambda module: module(torch.ones(2, 2)))
