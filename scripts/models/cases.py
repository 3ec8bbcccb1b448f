"""Random models, losses, optimizers and clients: what people write, and what nobody should."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

__all__ = ["Case", "draw"]

CLASSES = 3


@dataclass(frozen=True)
class Case:
    """One model with its data and options.

    Parameters
    ----------
    seed: it was drawn from. model: makes a fresh module. loss: as ``own_task`` takes it, or None.
    plain_loss: outputs and targets -> the loss of a batch, as torch has it. clients: samples and
    targets of each. kind: options of ``from_clients``. local: keys of ``local``, learning rate
    apart. optimizer: name and options. words: what is in it.
    """

    seed: int
    model: Callable[[], nn.Module]
    loss: Any
    plain_loss: Callable[[Tensor, Tensor], Tensor]
    clients: list[tuple[np.ndarray, np.ndarray]]
    kind: dict[str, bool]
    local: dict[str, Any]
    optimizer: dict[str, Any]
    words: tuple[str, ...] = field(default=())


class Residual(nn.Module):
    """Adds what a layer gives to what it got."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Twice(nn.Module):
    """The same layer, two times."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.inner(x)))


class KeptInEvaluation(nn.Module):
    """A layer that never is in training mode."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def train(self, mode: bool = True) -> KeptInEvaluation:
        super().train(mode)
        self.inner.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Scaled(nn.Module):
    """Times a parameter of this shape; of shape (), a temperature."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full(shape, 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale if self.scale.numel() else x + self.scale.sum()


class Buffered(nn.Module):
    """Uses a buffer of some type, and may change it in training."""

    def __init__(self, value: Tensor, persistent: bool, changes: str) -> None:
        super().__init__()
        self.register_buffer("held", value, persistent=persistent)
        self.changes = changes

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.changes == "in place":
            self.held += 1
        if self.training and self.changes == "replaced":
            self.held = self.held + 1
        if self.held.dtype == torch.bool:
            return x * (1.0 + self.held.to(x.dtype).mean())
        return x * (1.0 + 0.01 * self.held.to(x.dtype).mean())


class Masked(nn.Module):
    """Attends over positions with a mask of zeros and minus infinity as a buffer."""

    def __init__(self, width: int, length: int, persistent: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]


class Call(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class InPlace(nn.Module):
    """Changes its input."""

    def forward(self, x: Tensor) -> Tensor:
        if x.is_leaf or not x.requires_grad:
            x -= 0.5
            return x
        return x.mul(1.0).sub_(0.5)


class BoundAnew(nn.Module):
    """A head whose weight is bound to unit length by ``.data``."""

    def __init__(self, width: int, out: int, in_place: bool) -> None:
        super().__init__()
        self.o = nn.Linear(width, out, bias=False)
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        unit = F.normalize(self.o.weight.data, dim=1)
        if self.in_place:
            self.o.weight.data.copy_(unit)
        else:
            self.o.weight.data = unit
        return self.o(x)


class Counting(nn.Module):
    """Remembers in an attribute how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x * (1.0 + 0.01 * self.calls)


class CastInside(nn.Module):
    """Computes a layer in float32 whatever the model has."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width) + 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() @ self.weight.float()).to(x.dtype)


def _numpy_noise(x: Tensor) -> Tensor:
    return x + torch.from_numpy(np.random.normal(size=tuple(x.shape))).to(x.dtype)  # noqa: NPY002


def _activation(rng: random.Random) -> tuple[str, nn.Module]:
    kinds: list[tuple[str, Callable[[], nn.Module]]] = [
        ("relu", nn.ReLU),
        ("relu", nn.ReLU),
        ("relu", nn.ReLU),
        ("relu in place", partial(nn.ReLU, inplace=True)),
        ("gelu", nn.GELU),
        ("tanh", nn.Tanh),
        ("leaky", nn.LeakyReLU),
        ("prelu", nn.PReLU),
        ("silu", nn.SiLU),
    ]
    word, make = rng.choice(kinds)
    return word, make()


def _norm(rng: random.Random, width: int, dims: int) -> tuple[str, nn.Module]:
    batch: Callable[..., nn.Module] = nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d
    kinds: list[tuple[str, Callable[[], nn.Module]]] = [
        ("batchnorm", partial(batch, width)),
        ("batchnorm cumulative", partial(batch, width, momentum=None)),
        ("batchnorm untracked", partial(batch, width, track_running_stats=False)),
        ("batchnorm plain", partial(batch, width, affine=False)),
        ("batchnorm in eval", lambda: KeptInEvaluation(batch(width))),
        ("groupnorm", partial(nn.GroupNorm, 2, width)),
    ]
    if dims == 1:
        kinds += [("layernorm", partial(nn.LayerNorm, width)), ("rms", partial(nn.RMSNorm, width))]
    else:
        kinds += [
            ("instancenorm", partial(nn.InstanceNorm2d, width)),
            ("instancenorm tracked", partial(nn.InstanceNorm2d, width, track_running_stats=True)),
        ]
    word, make = rng.choice(kinds)
    return word, make()


def _buffer(rng: random.Random) -> tuple[str, nn.Module]:
    kind = rng.choice(["float32", "float64", "float16", "bfloat16", "int64", "int32", "bool"])
    value = torch.ones(3).to(getattr(torch, kind))
    changes = rng.choice(["never", "in place", "replaced"]) if kind != "bool" else "never"
    persistent = rng.random() < 0.7
    if not persistent:
        changes = "never"  # what is not sent cannot be the same at every client
    word = f"buffer {kind} {changes}{'' if persistent else ' not persistent'}"
    return word, Buffered(value, persistent, changes)


def _odd(rng: random.Random, width: int) -> tuple[str, nn.Module]:
    """Return a layer as people write them, which engines may not expect; ``[B, width]`` stays."""
    kinds: list[tuple[str, Callable[[], nn.Module]]] = [
        ("residual", lambda: Residual(nn.Linear(width, width))),
        ("shared layer", lambda: Twice(nn.Linear(width, width))),
        ("temperature", lambda: Scaled(())),
        ("empty parameter", lambda: Scaled((0,))),
        ("gains", lambda: Scaled((width,))),
        ("frozen", lambda: nn.Linear(width, width).requires_grad_(False)),
        ("frozen bias", lambda: _frozen_bias(width)),
        ("in place", InPlace),
        (
            "batch standardized",
            lambda: Call(lambda x: (x - x.mean(0)) / (x.var(0, False) + 0.1).sqrt()),
        ),
        ("batch size", lambda: Call(lambda x: x * len(x))),
        ("detach", lambda: Call(lambda x: x + 0.1 * x.detach())),
        ("weight norm", lambda: parametrizations.weight_norm(nn.Linear(width, width))),
        ("old weight norm", lambda: _old_weight_norm(width)),
        ("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(width, width))),
        ("spectral norm", lambda: parametrizations.spectral_norm(nn.Linear(width, width))),
        ("cast inside", lambda: CastInside(width)),
        ("counts calls", Counting),
        ("torch noise", lambda: Call(lambda x: x + 0.1 * torch.randn_like(x))),
        ("numpy noise", lambda: Call(_numpy_noise)),
        ("functional dropout", lambda: Call(lambda x: F.dropout(x, 0.3))),
        ("scripted", lambda: torch.jit.script(nn.Sequential(nn.Linear(width, width), nn.Tanh()))),
        ("bilinear", lambda: _SelfBilinear(width)),
    ]
    word, make = rng.choice(kinds)
    return word, make()


class _SelfBilinear(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Bilinear(width, width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, torch.tanh(x))


def _frozen_bias(width: int) -> nn.Module:
    layer = nn.Linear(width, width)
    layer.bias.requires_grad_(False)
    return layer


def _old_weight_norm(width: int) -> nn.Module:
    return nn.utils.weight_norm(nn.Linear(width, width))  # type: ignore[no-untyped-call]


def _hooks(rng: random.Random, module: nn.Module) -> str:
    """Put a hook of some kind on a layer or a parameter of a module."""
    layers = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
        and isinstance(layer.weight, nn.Parameter)
        and layer.weight.requires_grad
    ]
    if not layers:
        return "no hook"
    layer = rng.choice(layers)
    kind = rng.choice(["forward", "pre", "backward", "tensor", "accumulated", "instance", "quiet"])
    if kind == "forward":
        layer.register_forward_hook(lambda m, inputs, out: out * 1.1)
    elif kind == "pre":
        layer.register_forward_pre_hook(lambda m, inputs: (inputs[0] * 1.1,))
    elif kind == "backward":
        layer.register_full_backward_hook(
            lambda m, into, out: tuple(None if g is None else g * 0.5 for g in into)
        )
    elif kind == "tensor":
        layer.weight.register_hook(lambda g: g * 0.5)
    elif kind == "accumulated":
        layer.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))
    elif kind == "instance":
        forward = layer.forward
        layer.forward = lambda x: forward(x) * 0.9  # type: ignore[method-assign]
    else:
        layer.register_forward_hook(lambda m, inputs, out: None)
    return f"hook {kind}"


def _vector_body(rng: random.Random, width: int, words: list[str]) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    for _ in range(rng.randint(0, 3)):
        wide = rng.choice([4, 6])
        layers.append(nn.Linear(width, wide, bias=rng.random() < 0.8))
        width = wide
        if rng.random() < 0.35:
            word, layer = _norm(rng, width, 1)
            words.append(word)
            layers.append(layer)
        if rng.random() < 0.8:
            word, layer = _activation(rng)
            words.append(word)
            layers.append(layer)
        if rng.random() < 0.15:
            words.append("dropout")
            layers.append(nn.Dropout(0.3))
        if rng.random() < 0.3:
            word, layer = _odd(rng, width)
            words.append(word)
            layers.append(layer)
        if rng.random() < 0.15:
            word, layer = _buffer(rng)
            words.append(word)
            layers.append(layer)
    return layers, width


def _image_body(rng: random.Random, words: list[str]) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    channels = 2
    for _ in range(rng.randint(1, 2)):
        groups = rng.choice([1, 1, 2])
        layers.append(nn.Conv2d(channels, 4, 3, padding=1, groups=groups))
        channels = 4
        if rng.random() < 0.5:
            word, layer = _norm(rng, channels, 2)
            words.append(word)
            layers.append(layer)
        word, layer = _activation(rng)
        words.append(word)
        layers.append(layer)
        if rng.random() < 0.15:
            words.append("dropout of channels")
            layers.append(nn.Dropout2d(0.3))
    pool = rng.choice(["max", "mean", "adaptive", "none"])
    words.append(f"pool {pool}")
    size = 5
    if pool == "max":
        layers.append(nn.MaxPool2d(2))
        size = 2
    elif pool == "mean":
        layers.append(nn.AvgPool2d(2))
        size = 2
    elif pool == "adaptive":
        layers.append(nn.AdaptiveAvgPool2d(1))
        size = 1
    flat = rng.choice([nn.Flatten(), Call(lambda x: x.reshape(len(x), -1))])
    return [*layers, flat], channels * size * size


class Tokens(nn.Module):
    """A model of tokens ``[B, T]``: embeddings, a layer over time, and a head for each sample or
    each position."""

    def __init__(self, rng: random.Random, out: int, positions: bool, words: list[str]) -> None:
        super().__init__()
        options: dict[str, Any] = rng.choice(
            [
                {},
                {},
                {"padding_idx": 0},
                {"scale_grad_by_freq": True},
                {"max_norm": 1.0},
            ]
        )
        words.append(f"embedding {' '.join(options)}")
        self.table = nn.Embedding(7, 6, **options)
        over = rng.choice(["gru", "lstm", "rnn", "masked", "transformer", "none"])
        words.append(f"over time {over}")
        self.over = over
        if over in ("gru", "lstm", "rnn"):
            kind = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[over]
            deep = rng.random() < 0.3
            dropout = 0.2 if deep and rng.random() < 0.5 else 0.0
            self.layer: nn.Module = kind(
                6, 6, num_layers=2 if deep else 1, dropout=dropout, batch_first=True
            )
            words += ["dropout"] if dropout else []
        elif over == "masked":
            self.layer = Masked(6, 4, rng.random() < 0.5)
        elif over == "transformer":
            dropout = rng.choice([0.0, 0.1])
            words += ["dropout"] if dropout else []
            self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=dropout, batch_first=True)
        else:
            self.layer = nn.Identity()
        tied = positions and out == 7 and rng.random() < 0.5
        self.head = nn.Linear(6, out)
        if tied:
            words.append("tied")
            self.head.weight = self.table.weight
        self.positions = positions

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(self.table(x))
        if isinstance(h, tuple):
            h = h[0]
        return self.head(h if self.positions else h.mean(1))


def _focal(outputs: Tensor, targets: Tensor) -> Tensor:
    each = F.cross_entropy(outputs, targets, reduction="none")
    return (1 - (-each).exp()) ** 2 * each


def _contrast(outputs: Tensor, targets: Tensor) -> Tensor:
    unit = F.normalize(outputs, dim=1)
    same = (targets[:, None] == targets[None]).to(outputs.dtype)
    return ((unit @ unit.T - same) ** 2).mean()


def _cox(outputs: Tensor, targets: Tensor) -> Tensor:
    time, risk = targets[:, 0].abs(), outputs[:, 0]
    died = (targets[:, 0] > 0).to(outputs.dtype)
    at_risk = (time[None] >= time[:, None]).to(outputs.dtype)
    total = (at_risk * risk.exp()[None]).sum(1).log()
    return -(died * (risk - total)).sum() / died.sum().clamp(min=1)


def _centred(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs - outputs.mean(0), targets, reduction="none")


_WEIGHTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def _weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, weight=_WEIGHTS.to(outputs.dtype))


def _losses(kind: str) -> list[tuple[str, Any, Callable[[Tensor, Tensor], Tensor]]]:
    """Return names, what ``own_task`` is given, and torch's own form."""
    if kind == "classes":
        default = F.cross_entropy
        functions: dict[str, Any] = {
            "mean": nn.CrossEntropyLoss(),
            "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
            "sum": nn.CrossEntropyLoss(reduction="sum"),
            "weighted": _weighted,
            "focal": _focal,
            "contrast": _contrast,
            "centred": _centred,
            "margin": nn.MultiMarginLoss(),
        }
    elif kind == "positions":

        def default(outputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(outputs.mT, targets, reduction="none").mean(1).mean()

        functions = {"mean of positions": lambda o, t: F.cross_entropy(o.mT, t)}
    elif kind == "multilabel":

        def default(outputs: Tensor, targets: Tensor) -> Tensor:
            return (
                F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
                .mean(1)
                .mean()
            )

        functions = {"bce": nn.BCEWithLogitsLoss(), "soft margin": nn.MultiLabelSoftMarginLoss()}
    elif kind == "binary":

        def default(outputs: Tensor, targets: Tensor) -> Tensor:
            return F.binary_cross_entropy_with_logits(outputs[:, 0], targets.to(outputs.dtype))

        functions = {}
    else:

        def default(outputs: Tensor, targets: Tensor) -> Tensor:
            return 0.5 * ((outputs - targets) ** 2).sum(1).mean()

        functions = {
            "mse": nn.MSELoss(),
            "mse sum": nn.MSELoss(reduction="sum"),
            "l1": nn.L1Loss(),
            "huber": nn.HuberLoss(delta=0.5),
            "cox": _cox,
        }
    own = [(name, function, function) for name, function in functions.items()]
    return [("default", None, default), ("default", None, default), *own]


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    inputs = rng.choice(["vector", "vector", "vector", "image", "tokens"])
    kinds = ["classes", "classes", "numbers", "multilabel", "binary"]
    kind = rng.choice([*kinds, "positions"] if inputs == "tokens" else kinds)
    words = [inputs, kind]
    out = {
        "classes": CLASSES,
        "binary": 1,
        "multilabel": 3,
        "positions": 7,
        "numbers": rng.choice([1, 2]),
    }[kind]
    sizes = [rng.choice([1, 2, 3, 5, 6, 8, 9, 12, 13]) for _ in range(rng.randint(2, 4))]
    clients = []
    for n in sizes:
        shape = {"vector": (5,), "image": (2, 5, 5), "tokens": (4,)}[inputs]
        x = (
            numbers.integers(0, 7, (n, *shape))
            if inputs == "tokens"
            else numbers.normal(size=(n, *shape)).astype(np.float32)
        )
        y: np.ndarray = {
            "classes": lambda n=n: numbers.integers(0, CLASSES, n),
            "binary": lambda n=n: numbers.integers(0, 2, n),
            "multilabel": lambda n=n: numbers.integers(0, 2, (n, 3)),
            "positions": lambda n=n: numbers.integers(0, 7, (n, 4)),
            "numbers": lambda n=n: numbers.normal(size=(n, out)).astype(np.float32),
        }[kind]()
        clients.append((x, y))
    # every class occurs, so that the task has as many as the model
    first = clients[0][1]
    if kind in ("classes", "binary"):
        every = np.arange(CLASSES if kind == "classes" else 2)
        clients[0] = (
            np.concatenate([clients[0][0]] * 3)[: max(len(first), len(every))],
            np.concatenate([every, first])[: max(len(first), len(every))],
        )
        if len(clients[0][0]) < len(clients[0][1]):
            clients[0] = (
                np.resize(clients[0][0], (len(clients[0][1]), *clients[0][0].shape[1:])),
                clients[0][1],
            )
    if kind == "positions":
        clients[0][1][0, 0] = 6
    name, loss, plain = rng.choice(_losses(kind))
    words.append(f"loss {name}")
    module_seed = rng.randrange(2**31)
    build = partial(_module, module_seed, inputs, out, kind)
    found: list[str] = []
    build(found)
    words += found
    local: dict[str, Any] = {"batch_size": rng.choice([1, 2, 3, 4, 5, 8, 100])}
    local |= rng.choice([{"epochs": 1}, {"epochs": 2}, {"steps": 3}])
    optimizer = rng.choice(
        [
            {"name": "sgd", "lr": 0.1},
            {"name": "sgd", "lr": 0.1},
            {"name": "sgd", "lr": 0.1, "momentum": 0.9},
            {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
            {"name": "sgd", "lr": 0.1, "weight_decay": 0.01},
            {"name": "adam", "lr": 0.01},
            {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
        ]
    )
    if optimizer["name"] != "sgd" and any("norm" in word or "standard" in word for word in words):
        # a bias before a norm has a gradient of 0, and Adam steps along what rounding leaves of it
        optimizer = {"name": "sgd", "lr": 0.1}
    options = {"multilabel": {"multilabel": True}, "numbers": {"regression": True}}.get(kind, {})
    return Case(
        seed, build, loss, plain, clients, options, local, optimizer, tuple(dict.fromkeys(words))
    )


def _module(
    seed: int, inputs: str, out: int, kind: str, words: list[str] | None = None
) -> nn.Module:
    """Return a fresh module of a seed: the same every time."""
    rng = random.Random(seed)
    noted = [] if words is None else words
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if inputs == "tokens":
            made: nn.Module = Tokens(rng, out, kind == "positions", noted)
        else:
            layers: list[nn.Module] = []
            width = 5
            if inputs == "image":
                layers, width = _image_body(rng, noted)
            elif rng.random() < 0.1:
                noted.append("in place first")
                layers = [InPlace()]
            body, width = _vector_body(rng, width, noted)
            head: nn.Module = nn.Linear(width, out)
            chance = rng.random()
            if chance < 0.06:
                noted.append("bound anew")
                head = BoundAnew(width, out, False)
            elif chance < 0.12:
                noted.append("normalized in place")
                head = BoundAnew(width, out, True)
            ends: list[nn.Module] = []
            if rng.random() < 0.12:
                noted.append("relu last")
                ends = [nn.ReLU()]
            made = nn.Sequential(*layers, *body, head, *ends)
        if rng.random() < 0.2:
            noted.append(_hooks(rng, made))
    return made
