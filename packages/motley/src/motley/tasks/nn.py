"""Layers that draw random numbers from a job's own key instead of torch's process-wide
generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from typing_extensions import override

from motley.core.errors import ConfigError, ModelError
from motley.core.keys import Key


class Dropout(nn.Module):
    """``torch.nn.Dropout`` whose masks come from the job's own key: the same job has the same masks
    on any thread.

    Parameters
    ----------
    p: share of values set to zero, in [0, 1); the others are divided by ``1 - p``.
    channels: drop whole channels of ``[B, C, ...]`` (``torch.nn.Dropout1d``, ``2d``, ``3d``)
    instead of single values.

    Before training, :func:`set_stream` gives every such layer of a module its generator, which then
    draws the masks of all steps. Masks are drawn in float32 whatever the dtype, so that float32 and
    float64 runs have the same ones.
    """

    def __init__(self, p: float = 0.5, channels: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ConfigError(f"got {p}; expected a share of at least 0 and below 1", "dropout")
        self.p = p
        self.channels = channels
        self._seed: int | None = None
        self._generator: torch.Generator | None = None

    def reseed(self, key: Key) -> None:
        """Restart this layer's masks from a key."""
        self._seed = key.words()[0] >> 1
        if self._generator is not None:
            self._generator.manual_seed(self._seed)

    def _stream(self, device: torch.device) -> torch.Generator:
        if self._seed is None:
            raise ModelError(
                "a Dropout in training mode has no key, as one that the forward puts in training "
                "mode for an evaluation: leave its mode to the run; in code of your own call "
                "motley.tasks.nn.set_stream(module, key) first"
            )
        if self._generator is None or self._generator.device != device:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` in evaluation mode, the masked and rescaled ``x`` in training mode; any
        shape with the batch first."""
        if not self.training or self.p == 0.0:
            return x
        shape = (*x.shape[:2], *(1,) * (x.dim() - 2)) if self.channels else x.shape
        keep = torch.rand(shape, generator=self._stream(x.device), device=x.device) >= self.p
        return x * (keep.to(x.dtype) / (1.0 - self.p))

    @override
    def extra_repr(self) -> str:
        return f"p={self.p}, channels={self.channels}"


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: Dropout | None = None,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Return scaled dot-product attention, ``[..., T, E]``, whose dropped weights come from the
    job's own key.

    It takes the place of ``torch.nn.functional.scaled_dot_product_attention`` where that has a
    ``dropout_p``.

    Parameters
    ----------
    query: ``[..., T, E]``.
    key, value: ``[..., S, E]``.
    dropout: a layer of the module that calls this; None: nothing is dropped.
    mask: broadcast to ``[..., T, S]``; bool, True where a query may attend to a key; or numbers
    that are added to the scores.
    causal: position t attends to the positions 0 .. t alone; needs T = S.

    >>> x = torch.eye(3).expand(1, 3, 3)
    >>> attention(x, x, x, causal=True)[0, 0]
    tensor([1., 0., 0.])
    """
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if causal:
        scores = scores.masked_fill(
            scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf
        )
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    return (weights if dropout is None else dropout(weights)) @ value


class KeyedAttention(nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` whose dropped attention weights come from the job's own key;
    the same parameters.

    :func:`replace_stochastic` turns torch's layers with dropout into these. In evaluation mode it
    is torch's own.
    """

    weight_dropout: Dropout

    @override
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attended values in the form of ``query``, and None for the weights, which are
        not returned in training."""
        if not self.training:
            return super().forward(
                query,
                key,
                value,
                key_padding_mask,
                need_weights=need_weights,
                attn_mask=attn_mask,
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
            )
        if query.dim() != 3:
            raise ModelError(
                f"attention got samples of shape {list(query.shape)}; expected a batch of "
                "sequences, 3 dimensions"
            )
        q, k, v = (self._heads(x, i) for i, x in enumerate((query, key, value)))
        mask = _added(attn_mask, q)
        if mask is not None and mask.dim() == 3:
            mask = mask.view(len(q), self.num_heads, *mask.shape[1:])
        padding = _added(key_padding_mask, q)
        if padding is not None:
            mask = padding[:, None, None] if mask is None else mask + padding[:, None, None]
        out = attention(q, k, v, self.weight_dropout, mask=mask).transpose(1, 2).flatten(2)
        out = self.out_proj(out)
        return (out if self.batch_first else out.transpose(0, 1)), None

    def _heads(self, x: Tensor, which: int) -> Tensor:
        """Return the query (0), key (1) or value (2) of every head, ``[B, heads, T, E]``."""
        own = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weight = own[which] if self.in_proj_weight is None else self.in_proj_weight.chunk(3)[which]
        bias = None if self.in_proj_bias is None else self.in_proj_bias.chunk(3)[which]
        x = nn.functional.linear(x if self.batch_first else x.transpose(0, 1), weight, bias)
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)


def _added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a mask in torch's attention layers (True: not to be attended to) as numbers to add to
    the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


class _KeyedRecurrent(nn.RNNBase):
    """A recurrent layer of torch whose dropout between its layers comes from the job's own key; the
    same parameters."""

    between: Dropout

    @override
    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return what torch's layer does: outputs, and the last state of every layer."""
        if not self.training:
            return super().forward(input, hx)
        if not isinstance(input, Tensor) or input.dim() != 3:
            raise ModelError(
                "a recurrent layer with dropout takes padded batches of 3 dimensions; a packed or "
                "single sequence needs dropout = 0 and motley.tasks.nn.Dropout between single "
                "layers"
            )
        function = getattr(torch, self.mode.lower())
        options = (self.bias, 1, 0.0, True, self.bidirectional, self.batch_first)
        directions = 2 if self.bidirectional else 1
        hx = self._begin(input) if hx is None else hx
        states = hx if isinstance(hx, tuple) else (hx,)
        out = input
        each = len(self._flat_weights) // self.num_layers
        last = []
        for layer in range(self.num_layers):
            weights = self._flat_weights[layer * each : (layer + 1) * each]
            begin = [state[layer * directions : (layer + 1) * directions] for state in states]
            out, *end = function(
                self.between(out) if layer else out,
                begin if self.mode == "LSTM" else begin[0],
                weights,
                *options,
            )
            last.append(end)
        joined = tuple(torch.cat(parts) for parts in zip(*last, strict=True))
        return out, joined if self.mode == "LSTM" else joined[0]

    def _begin(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return zeros for the state of every layer, ``[layers, B, width]``; two for an LSTM."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        batch = input.shape[0 if self.batch_first else 1]
        widths = [self.proj_size or self.hidden_size, self.hidden_size]
        return tuple(
            input.new_zeros(count, batch, width)
            for width in widths[: 2 if self.mode == "LSTM" else 1]
        )


class _KeyedLSTM(_KeyedRecurrent, nn.LSTM): ...


class _KeyedGRU(_KeyedRecurrent, nn.GRU): ...


class _KeyedRNN(_KeyedRecurrent, nn.RNN): ...


def stochastic_layers(module: nn.Module) -> list[Dropout]:
    """Return the layers of a module that draw random numbers in training; empty for a deterministic
    module."""
    return [layer for layer in module.modules() if isinstance(layer, Dropout) and layer.p > 0]


def set_stream(module: nn.Module, key: Key) -> None:
    """Give every random layer of a module its own key, folded from ``key`` (a job's key of purpose
    ``dropout``)."""
    for index, layer in enumerate(stochastic_layers(module)):
        layer.reseed(key.fold(index))


_CHANNELS = {nn.Dropout: False, nn.Dropout1d: True, nn.Dropout2d: True, nn.Dropout3d: True}
_RECURRENT: dict[type, type[_KeyedRecurrent]] = {
    nn.LSTM: _KeyedLSTM,
    nn.GRU: _KeyedGRU,
    nn.RNN: _KeyedRNN,
}


def replace_stochastic(module: nn.Module) -> nn.Module:
    """Replace torch's dropout layers in a module by :class:`Dropout`, in place, and return the
    module.

    Dropout inside ``nn.MultiheadAttention`` (so of torch's transformers, too) and between the
    layers of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` is tied to the key as well; their parameters
    stay what they are.

    Raises
    ------
    ModelError: a layer draws random numbers that cannot be tied to a key; the message names it.
    """
    if type(module) in _CHANNELS:
        return _keyed(module)
    for name, layer in list(module.named_modules(remove_duplicate=True)):
        for child_name, child in list(layer.named_children()):
            if type(child) in _CHANNELS:
                setattr(layer, child_name, _keyed(child))
        _key_inside(layer)
        reason = _unkeyed(layer)
        if reason:
            raise ModelError(
                f"layer {name or 'the module itself'!r} ({type(layer).__name__}) {reason}, which "
                "cannot be tied to a client's own seed; set its dropout to 0 and put "
                "motley.tasks.nn.Dropout around it, or remove it"
            )
    return module


def _keyed(layer: nn.Module) -> Dropout:
    keyed = Dropout(float(getattr(layer, "p")), _CHANNELS[type(layer)])  # type: ignore[index]  # noqa: B009
    return keyed.train(layer.training)


def _key_inside(layer: nn.Module) -> None:
    """Turn a layer of torch that drops values inside itself into the one whose masks come from the
    key, in place."""
    if (
        type(layer) is nn.MultiheadAttention
        and layer.dropout > 0
        and layer.bias_k is None
        and not layer.add_zero_attn
    ):
        layer.__class__ = KeyedAttention
        layer.weight_dropout = Dropout(layer.dropout).train(layer.training)
    if type(layer) in _RECURRENT and layer.dropout > 0 and layer.num_layers > 1:  # type: ignore[operator]
        layer.__class__ = _RECURRENT[type(layer)]
        layer.between = Dropout(layer.dropout).train(layer.training)  # type: ignore[arg-type]


def _unkeyed(layer: nn.Module) -> str | None:
    """Return how a layer draws from torch's process-wide generator; None if it does not."""
    if isinstance(layer, _DropoutNd) and type(layer) not in _CHANNELS and layer.p > 0:
        return f"drops values (p = {layer.p})"
    if isinstance(layer, nn.RReLU):
        return "draws random slopes"
    if isinstance(layer, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return "pools at random places"
    if (
        isinstance(layer, nn.MultiheadAttention)
        and layer.dropout > 0
        and not isinstance(layer, KeyedAttention)
    ):
        return f"drops attention weights (dropout = {layer.dropout})"
    if (
        isinstance(layer, nn.RNNBase)
        and layer.dropout > 0
        and layer.num_layers > 1
        and not isinstance(layer, _KeyedRecurrent)
    ):
        return f"drops values between its layers (dropout = {layer.dropout})"
    return None


def class_name(module: nn.Module) -> str:
    """Return the name of a module's class; of one that adapts a model to one tensor, the model's.

    >>> class_name(nn.Linear(1, 1))
    'Linear'
    """
    while getattr(type(module), "adapts", False):
        module = cast("nn.Module", module.model)
    return type(module).__name__


def require_keyed(module: nn.Module, forward: Callable[[nn.Module], object]) -> None:
    """Run ``forward`` on the module in training mode; raise ModelError if it used torch's
    process-wide generator.

    This finds cases that no list of layer types can: ``F.dropout`` or ``torch.rand`` inside a
    module's own ``forward``.
    """
    set_stream(module, Key(0))
    training = module.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.default_generator.get_state()
        forward(module.train())
        drawn = not torch.equal(before, torch.default_generator.get_state())
    module.train(training)
    if drawn:
        raise ModelError(
            f"the {class_name(module)} draws from torch's process-wide generator in its forward "
            "(F.dropout, torch.rand, scaled_dot_product_attention), which cannot be tied to a "
            "client's own seed; use a layer instead, self.drop = motley.tasks.nn.Dropout(0.1), and "
            "for attention motley.tasks.nn.attention(q, k, v, self.drop)"
            f"{_without_dropout(module)}"
        )


def _without_dropout(module: nn.Module) -> str:
    """Return the advice for a model that is not the user's: the options by which it would draw
    nothing itself, those of attention where there are any; empty where none are found."""
    options: dict[str, None] = {}
    for layer in module.modules():
        config = getattr(layer, "config", None)
        held = {**vars(config)} if hasattr(config, "to_dict") else {}
        own = {} if isinstance(layer, Dropout | nn.modules.dropout._DropoutNd) else vars(layer)
        for name, value in {**held, **own}.items():
            if "drop" in name and isinstance(value, float) and value > 0:
                options[name] = None
    of_attention = [name for name in options if "att" in name]
    names = of_attention or list(options)
    if not names:
        return ""
    settings = ", ".join(f"{name} = 0" for name in names)
    return f"; of a model that is not yours, make it with {settings}"
