"""An LSTM of one's own for texts, with dropout before its last layer.

From this folder, three selectors with two seeds each, two runs at a time:

    motley data get shakespeare
    motley compare shakespeare.toml --set task.model=own_lstm:OwnLSTM --allow-import \
        --over selector=uniform,power_of_choice,oort --seeds 0,1 --jobs 2
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from motley.tasks.models import Model


@dataclass(frozen=True)
class OwnLSTM(Model):
    """One LSTM layer; its options are keys of ``task.model``."""

    sequences: ClassVar[bool] = True
    hidden: int = 64
    dropout: float = 0.1

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Return a fresh network; dropout masks are drawn from each client's own seed."""
        return Network(self, outputs)


class Network(nn.Module):
    """Scores of the next character at every position."""

    def __init__(self, options: OwnLSTM, alphabet: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(alphabet, 16)
        self.lstm = nn.LSTM(16, options.hidden, batch_first=True)
        self.drop = nn.Dropout(options.dropout)
        self.out = nn.Linear(options.hidden, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """Map characters ``[B, T]`` to scores ``[B, T, C]``."""
        hidden, _ = self.lstm(self.embed(x))
        return self.out(self.drop(hidden))
