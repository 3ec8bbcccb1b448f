"""Samples that go to no client: what the server validates with, and public samples without labels."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.tasks.base import Pool
from motley.tasks.federate import Divisible, stratified

__all__ = ["reserve"]


def reserve(pool: Pool, rows: Divisible, share: float, key: Key) -> tuple[Divisible, NDArray[np.int64]]:
    """What is left to divide, and the rows of the pool that are kept back: ``share`` of those to divide, class by class, and of each
    natural client where there are any. The data set's own test half is never touched.

    Raises
    ------
    ConfigError: nothing would be kept back.
    """
    owner = np.zeros_like(rows.divide) if rows.groups is None else rows.groups
    free = np.flatnonzero(~pool.test[rows.divide])
    taken = np.zeros(len(rows.divide), bool)
    taken[free] = stratified(rows.divide[free], owner[free], rows.labels[free], share, key)
    if not taken.any():
        raise ConfigError(f"a share of {share:g} of {len(rows.divide)} samples leaves nothing to keep back; give a larger one")
    groups = None if rows.groups is None else rows.groups[~taken]
    left = dataclasses.replace(rows, divide=rows.divide[~taken], labels=rows.labels[~taken], groups=groups)
    return left, rows.divide[taken]
