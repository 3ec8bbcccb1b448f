"""Clients that are held out of every round: which ones, and the federation without their samples
and with these alone.

They stand for clients that come after training. At the end of a run they are examined with the
model that a new client receives, and after adapting it to their own training samples
(:mod:`motley.rounds.examining`).

>>> held_out_ids(Key(0).fold("split"), population=10, share=0.2).tolist()
[0, 9]
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from motley.core.arrays import Bools, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.task import Federation


def held_out_count(population: int, share: float) -> int:
    """Return how many of so many clients are held out: the nearest number to their share, at least
    one.

    Raises
    ------
    ConfigError: no client would be left to train.
    """
    count = max(1, round(share * population)) if share else 0
    if count and count >= population:
        reason = f"got {share:g} of {population} clients, which leaves none to train"
        raise ConfigError(f"{reason}; give a smaller share", "split.holdout_clients")
    return count


def held_out_ids(key: Key, population: int, share: float) -> Ids:
    """Return the ids of the clients that are held out, sorted.

    Parameters
    ----------
    key: random stream of purpose ``split``.
    share: of the clients.
    """
    count = held_out_count(population, share)
    if not count:
        return np.zeros(0, np.int64)
    rank = np.argsort(key.fold("clients").uniform(np.arange(population))[:, 0], kind="stable")
    return np.sort(rank[:count])


def hold_out_clients(federation: Federation, ids: Ids) -> Federation:
    """Return the federation in which these clients have no samples; ``held_out`` is the one in
    which they alone have theirs.

    Raises
    ------
    ConfigError: the columns of a table were prepared with statistics of these clients' training
    rows.
    """
    if not len(ids):
        return federation
    traffic = federation.statistics
    if traffic is not None and traffic.up_bits[ids].any():
        reason = (
            "the columns of this table were prepared with statistics of all clients' training rows"
        )
        remedy = 'name the table in the file with scale = "federated", or prepare it beforehand'
        raise ConfigError(f"{reason}; {remedy}", "split.holdout_clients")
    new = np.isin(np.arange(len(federation)), ids)
    note = {
        "new clients": f"{len(ids)} of {len(federation)} clients are held out of every round and "
        "examined at the end"
    }
    remaining = _with_samples_of(federation, ~new)
    return dataclasses.replace(
        remaining, held_out=_with_samples_of(federation, new), notes={**federation.notes, **note}
    )


def _with_samples_of(federation: Federation, chosen: Bools) -> Federation:
    """Return the federation in which the other clients have no samples."""
    train, validation = (
        torch.from_numpy(chosen[part.owner]) for part in (federation.train, federation.validation)
    )
    held = federation.validation_labels
    return dataclasses.replace(
        federation,
        train=_parts_of(federation.train, chosen),
        labels=federation.labels[train],
        validation=_parts_of(federation.validation, chosen),
        validation_labels=None if held is None else held[validation],
        test=_parts_of(federation.test, chosen),
        window=None if federation.window is None else np.where(chosen, federation.window, 0),
    )


def _parts_of(parts: Ragged, chosen: Bools) -> Ragged:
    """Return the parts of the chosen clients; those of the others are empty."""
    sizes = np.where(chosen, parts.sizes, 0)
    return Ragged(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), parts.values[chosen[parts.owner]]
    )
