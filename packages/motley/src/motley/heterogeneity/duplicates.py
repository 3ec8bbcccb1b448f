"""Samples that lie at several clients, found by the hash of their bytes."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from motley.heterogeneity.client_data import ClientData
from motley.heterogeneity.findings import Finding

__all__ = ["duplicate_findings", "sample_hashes"]

_CHUNK = 2**14
_NAMES = ("duplicates", "duplicates_within")


def duplicate_findings(data: ClientData, hashes: NDArray[np.uint64]) -> list[Finding]:
    """Return ``duplicates``, the share of samples that also lie at another client, and
    ``duplicates_within``, at the same client.

    Parameters
    ----------
    hashes: of :func:`sample_hashes`.

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
    ]


def sample_hashes(data: ClientData) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each sample's bytes, aligned with ``data.rows.values``."""
    out = np.empty(len(data.rows.values), np.uint64)
    for begin in range(0, len(out), _CHUNK):
        some = data.read(data.rows.values[begin : begin + _CHUNK])
        flat = np.ascontiguousarray(some).reshape(len(some), -1).view(np.uint8)
        digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in map(bytes, flat))
        out[begin : begin + len(flat)] = np.frombuffer(digests, np.uint64)
    return out
