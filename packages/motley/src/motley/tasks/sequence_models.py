"""Models of sequences of characters or words: int64 ``[B, T]`` to scores ``[B, T, C]``, or
``[B, C]`` after the last position.

``C`` is the size of the alphabet, which they read and write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.tasks.models import Model
from motley.tasks.nn import Dropout, attention


@dataclass(frozen=True)
class _Sequences(Model):
    """A model of sequences ``[T]``. ``targets``: scores at ``every`` position, or after the
    ``last`` alone; set by the task."""

    sequences: ClassVar[bool] = True
    targets: Literal["every", "last"] = "every"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(
                f"dropout: got {self.dropout}; expected a share of at least 0 and below 1"
            )
        sizes = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        for name, value in sizes.items():
            if value < 1:
                raise ConfigError(f"{name}: got {value}; expected at least 1")


@dataclass(frozen=True)
class LeafLSTM(_Sequences):
    """LEAF's network for Shakespeare: an embedding of 8, two LSTM layers of 256, a linear layer:
    818,860 parameters for 76 characters.

    Caldas et al., *LEAF: A Benchmark for Federated Settings*, 2018, arXiv 1812.01097 (its
    ``stacked_lstm``), after McMahan et al., AISTATS 2017. LEAF predicts the character after the
    last one only, ``targets = "last"``; here every position is predicted unless that is set.
    torch's LSTM has two bias vectors where TensorFlow's has one (2,048 parameters more), and no
    forget bias of 1.

    Parameters
    ----------
    embedding, hidden, layers: sizes. dropout: between the LSTM layers, drawn from the client's own
    seed.
    """

    embedding: int = 8
    hidden: int = 256
    layers: int = 2

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _LSTMNetwork(self, outputs)


class _LSTMNetwork(nn.Module):
    def __init__(self, sizes: LeafLSTM, alphabet: int) -> None:
        super().__init__()
        self.last = sizes.targets == "last"
        dropout = sizes.dropout if sizes.layers > 1 else 0.0
        self.embedding = nn.Embedding(alphabet, sizes.embedding)
        self.lstm = nn.LSTM(
            sizes.embedding, sizes.hidden, sizes.layers, batch_first=True, dropout=dropout
        )
        self.output = nn.Linear(sizes.hidden, alphabet)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map characters ``[B, T]`` to scores ``[B, T, C]``, or ``[B, C]``."""
        hidden, _ = self.lstm(self.embedding(x))
        out: Tensor = self.output(hidden[:, -1] if self.last else hidden)
        return out


@dataclass(frozen=True)
class Transformer(_Sequences):
    """A small causal transformer with layer normalization before each part: 426,572 parameters for
    76 characters and windows of 80.

    Vaswani et al., *Attention Is All You Need*, NeurIPS 2017: the decoder without its attention to
    an encoder. Position t sees the positions 0 .. t alone; positions have learned embeddings, so
    sequences are at most as long as the task's windows.

    Parameters
    ----------
    width: of the embedding; a multiple of ``heads``.
    layers: blocks of attention and two linear layers with ``4 width`` between them. dropout: of the
    embedding, the attention weights and each part's result, drawn from the client's own seed.
    """

    width: int = 128
    layers: int = 2
    heads: int = 4

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ConfigError(
                f"width: got {self.width} with {self.heads} heads; expected a multiple of the heads"
            )

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _TransformerNetwork(self, shape[0], outputs)


class _TransformerNetwork(nn.Module):
    def __init__(self, sizes: Transformer, length: int, alphabet: int) -> None:
        super().__init__()
        self.last = sizes.targets == "last"
        self.embedding = nn.Embedding(alphabet, sizes.width)
        self.positions = nn.Embedding(length, sizes.width)
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.dropout = Dropout(sizes.dropout)
        self.blocks = nn.Sequential(*(_Block(sizes) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width)
        self.output = nn.Linear(sizes.width, alphabet)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map characters ``[B, T]`` to scores ``[B, T, C]``, or ``[B, C]``."""
        hidden = self.blocks(self.dropout(self.embedding(x) + self.positions.weight[: x.shape[1]]))
        out: Tensor = self.output(self.norm(hidden[:, -1] if self.last else hidden))
        return out


class _Block(nn.Module):
    """Causal attention and two linear layers, each on normalized values and added to what came
    in."""

    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)
        self.joint = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropped_weights, self.dropped_mix, self.dropped_narrow = (
            Dropout(sizes.dropout) for _ in range(3)
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, T, width]`` to the same shape."""
        joint = self.joint(self.before(x)).view(*x.shape[:2], 3, self.heads, -1)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = (
            attention(query, key, value, self.dropped_weights, causal=True)
            .transpose(1, 2)
            .flatten(2)
        )
        x = x + self.dropped_mix(self.mix(mixed))
        out: Tensor = x + self.dropped_narrow(self.narrow(torch.relu(self.wide(self.after(x)))))
        return out
