"""Local optimisers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SGD:
    lr: float = 0.1
