"""Samples that lie at several clients, found by the hash of their bytes.

Samples of few different values equal each other by chance. The numbers of a sample are halved, even
positions and odd ones (of a table even columns and odd ones, since a word's inputs tell each
other): where chance made whole samples equal, it would far more often make one half
equal and not the other. So a sample is a copy for certain if it equals another, a half of it equals
that of no different sample, that half is almost never shared by different samples, and the other
half varies.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools
from motley_advice.heterogeneity.client_data import ClientData
from motley_advice.heterogeneity.findings import Finding

_CHUNK = 2**14
_NAMES = ("duplicates", "duplicates_within", "copied")
_LONE = 0.9
"""Share of different samples that must have a half of their own for that half to be a proof."""
_VALUES = 1.5
"""Values that the other half must take, in effect."""


def duplicate_findings(
    data: ClientData, hashes: NDArray[np.uint64], certain: Bools
) -> list[Finding]:
    """Return ``duplicates``, the share of samples that also lie at another client,
    ``duplicates_within``, at the same client, and ``copied``, the share of samples at another
    client that chance did not make equal.

    Parameters
    ----------
    hashes: of :func:`sample_hashes`.
    certain: of :func:`certain_copies`.

    Exact: two samples are the same if all their bytes are (labels are not compared). A copy that
    was rescaled or cropped is not found. Hashes have 64 bits, so that 10^7 different samples have
    one false match with a probability of 3e-6. Nothing is measured where all samples are the same,
    as those of tasks without features (``quadratic``).
    """
    owner = data.rows.owner
    order = np.lexsort((owner, hashes))
    sample = hashes[order]
    client = owner[order]
    first = np.flatnonzero(np.concatenate([[True], sample[1:] != sample[:-1]]))
    if len(first) == 1:
        why = "all samples are the same bytes: the task's features say nothing of them"
        return [
            Finding(name, math.nan, unit="share", how="not measurable", note=why) for name in _NAMES
        ]
    group = np.repeat(np.arange(len(first)), np.diff(first, append=len(sample)))
    elsewhere = np.empty(len(sample), bool)
    elsewhere[order] = (np.minimum.reduceat(client, first) != np.maximum.reduceat(client, first))[
        group
    ]
    within = np.zeros(len(sample), bool)
    within[order[1:]] = (sample[1:] == sample[:-1]) & (client[1:] == client[:-1])
    sizes = data.rows.sizes

    def per_client(which: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.where(
            sizes > 0, np.bincount(owner, which, minlength=len(data)) / np.maximum(sizes, 1), np.nan
        )

    mean = round(float(sizes[sizes > 0].mean()))
    return [
        Finding(
            "duplicates",
            float(elsewhere.mean()),
            unit="share",
            per_client=per_client(elsewhere),
            how="exact",
            needs="a hash of every sample, keyed with a secret of the clients",
            federated="clients share a key and send keyed hashes, 8 bytes a sample; the server "
            "counts equal ones",
            federated_bytes=8 * mean,
            note="share of samples, byte for byte, that also lie at another client",
        ),
        Finding(
            "duplicates_within",
            float(within.mean()),
            unit="share",
            per_client=per_client(within),
            how="exact",
            needs="one number",
            federated="each client sends its share",
            federated_bytes=8,
            note="share of samples that repeat an earlier one of the same client",
        ),
        Finding(
            "copied",
            float((elsewhere & certain).mean()),
            unit="share",
            per_client=per_client(elsewhere & certain),
            how="exact",
            needs="hashes of every sample and its two halves, keyed with a secret of the clients",
            federated="clients share a key and send keyed hashes, 24 bytes a sample; the server "
            "counts equal ones",
            federated_bytes=24 * mean,
            note="share of samples that also lie at another client and are not equal by chance, as "
            "samples of few different values are",
        ),
    ]


def certain_copies(data: ClientData, hashes: NDArray[np.uint64]) -> Bools:
    """Return which samples equal another one although chance does not make samples of these clients
    equal, ``[n]``.

    Parameters
    ----------
    hashes: of :func:`sample_hashes`.
    """
    _, first, group, times = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    if times.max() == 1:
        return np.zeros(len(hashes), bool)
    lone = []
    values = []
    for half in (0, 1):
        _, of, held = np.unique(
            sample_hashes(data, half)[first], return_inverse=True, return_counts=True
        )
        lone.append(held[of] == 1)
        values.append(len(first) ** 2 / float(np.square(held).sum()))
    proven = np.zeros(len(first), bool)
    for half in (0, 1):
        if lone[half].mean() >= _LONE and values[1 - half] >= _VALUES:
            proven |= lone[half]
    return np.asarray((proven & (times > 1))[group])


def sample_hashes(data: ClientData, half: int | None = None) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each sample's bytes, aligned with ``data.rows.values``.

    Parameters
    ----------
    half: 0 or 1 for the numbers of even or odd positions or columns alone; None: all numbers.
    """
    out = np.empty(len(data.rows.values), np.uint64)
    column = data.columns.column
    for begin in range(0, len(out), _CHUNK):
        samples = data.read(data.rows.values[begin : begin + _CHUNK])
        numbers = samples.reshape(len(samples), -1)
        if half is not None:
            by_column = len(column) == numbers.shape[1]
            numbers = numbers[:, column % 2 == half] if by_column else numbers[:, half::2]
        flat = np.ascontiguousarray(numbers).view(np.uint8)
        digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in map(bytes, flat))
        out[begin : begin + len(flat)] = np.frombuffer(digests, np.uint64)
    return out
