"""Covariances of K clients over many rounds without a K x K matrix:
``S^d = sum_s e_s^d (e_s^d)^T``, stored as the vectors e_s.

K clients, D' coordinates; ``e_s`` is ``[K, D']``, the innovation of round s. Single entries of
``S^d`` follow from the vectors: ``S^d_kj = sum_s e_s[k, d] e_s[j, d]``, K D' multiplications a
round for one j per client.

A *block* is one e_s: the ids of the clients that may differ from zero and their rows in float32. A
round in which few clients changed costs only these. Above a memory limit :func:`fold` replaces the
older wide blocks by fewer linear combinations of them, which are blocks again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids

Rows = NDArray[np.float32]
Block = tuple[Ids, Rows]

_CHUNK = 256  # clients at a time: temporaries stay in the cache
_MOST = 32  # blocks folded at once: a fold costs no more than a round or two


def append(blocks: tuple[Block, ...], ids: Ids, innovation: Floats) -> tuple[Block, ...]:
    """Return the blocks with one more, of ``innovation`` ``[K, D']``; rows of zeros are left out if
    they are the majority."""
    changed = innovation.any(axis=1)
    count = np.count_nonzero(changed)
    if not count:
        return blocks
    if 2 * count > len(ids):
        return (*blocks, (ids, innovation.astype(np.float32)))
    return (*blocks, (ids[changed], innovation[changed].astype(np.float32)))


def paired_products(blocks: tuple[Block, ...], ids: Ids, mate: Ids, width: int) -> Rows:
    """Return ``sum_s e_s[k] * e_s[mate(k)]`` for every client, ``[K, D']``; ``mate``: positions
    ``[K]`` in the sorted ``ids``."""
    out = np.zeros((len(ids), width), np.float32)
    full_rows = []
    for block in blocks:
        if len(block[0]) == len(ids):
            full_rows.append(block[1])
            continue
        at = np.searchsorted(ids, block[0])
        out[at] += block[1] * _rows(block, ids[mate[at]])
    mates, which = np.unique(mate, return_inverse=True)
    mate_rows = [rows[mates] for rows in full_rows]
    buffer = np.empty((_CHUNK, width), np.float32)
    for start in range(0, len(ids), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        product = buffer[: len(ids[chunk])]
        for rows, of_mates in zip(full_rows, mate_rows, strict=True):
            np.take(of_mates, which[chunk], axis=0, out=product, mode="clip")
            product *= rows[chunk]
            out[chunk] += product
    return out


def cohort_products(blocks: tuple[Block, ...], chosen: Ids, width: int) -> Floats:
    """Return ``S^d`` of a few clients, ``sum_s e_s[i] e_s[j]``, ``[D', n, n]``, in the order of
    ``chosen``."""
    out = np.zeros((width, len(chosen), len(chosen)))
    for block in blocks:
        rows = _rows(block, chosen).astype(np.float64).T
        out += rows[:, :, None] * rows[:, None, :]
    return out


def fold(blocks: tuple[Block, ...], limit_bytes: float) -> tuple[tuple[Block, ...], float]:
    """Return the blocks within the memory limit, and the trace lost by folding, summed over the
    coordinates.

    The older half of the wide blocks (the oldest 32, if these are fewer), E ``[n, K D']``, becomes
    half as many rows ``Q^T E``, with Q the leading eigenvectors of ``E E^T``: of all bases common
    to the coordinates the one that loses least trace. The loss, ``sum_d E_d^T (I - Q Q^T) E_d``, is
    positive semidefinite, so losses of several folds add up, the trace bounds every other norm of
    the error, and an entry is wrong by at most ``sqrt(lost_kk lost_jj)``. Narrow blocks and at
    least seven wide ones stay.
    """
    if sum(rows.nbytes for _, rows in blocks) <= limit_bytes:
        return blocks, 0.0
    widest = max(len(ids) for ids, _ in blocks)
    wide = [i for i, (ids, _) in enumerate(blocks) if 2 * len(ids) > widest]
    wide = wide[: min(len(wide) // 2, _MOST)]
    old = [blocks[i] for i in wide]
    if len(old) < 4:
        return blocks, 0.0
    ids = np.unique(np.concatenate([block[0] for block in old]))
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(ids), _CHUNK)]
    gram = np.zeros((len(old), len(old)))
    for chunk in chunks:
        stacked = _stacked(old, ids[chunk])
        gram += stacked @ stacked.T
    values, vectors = np.linalg.eigh(gram)
    rank = len(old) // 2
    basis = vectors[:, -rank:].T.astype(np.float32)  # [rank, n]
    folded = [np.empty((len(ids), old[0][1].shape[1]), np.float32) for _ in range(rank)]
    for chunk in chunks:
        for rows, combined in zip(folded, basis @ _stacked(old, ids[chunk]), strict=True):
            rows[chunk] = combined.reshape(rows[chunk].shape)
    unfolded = [block for i, block in enumerate(blocks) if i not in set(wide)]
    lost = float(np.maximum(values[:-rank], 0.0).sum())
    return (*((ids, rows) for rows in folded), *unfolded), lost


def _rows(block: Block, ids: Ids) -> Rows:
    """Return the block's rows of these clients; zero for a client that is not in it."""
    # beyond the last id searchsorted points behind the end; such rows are zeroed below
    at = np.minimum(np.searchsorted(block[0], ids), len(block[0]) - 1)
    return np.asarray(block[1][at] * (block[0][at] == ids)[:, None], dtype=np.float32)


def _stacked(blocks: list[Block], ids: Ids) -> Rows:
    return np.stack([_rows(block, ids).ravel() for block in blocks])
