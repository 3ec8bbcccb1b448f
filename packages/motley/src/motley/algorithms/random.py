"""A torch generator from a key, for random tensors (dropout masks, augmentation, randomized
rounding)."""

from __future__ import annotations

import torch

from motley.core.keys import Key

__all__ = ["generator"]


def generator(key: Key, device: str | torch.device = "cpu") -> torch.Generator:
    """Return a fresh generator seeded by the key; the process-wide generator is never used.

    The same key gives the same numbers on one device type; CPU and GPU generators differ. Torch's
    CPU generator keeps 32 bits of the seed, so two keys share a stream with probability 2^-32.

    >>> key = Key(0).fold("dropout", 3)
    >>> first, again = (torch.rand(4, generator=generator(key)) for _ in range(2))
    >>> bool((first == again).all())
    True
    """
    return torch.Generator(device).manual_seed(key.words()[0] >> 1)
