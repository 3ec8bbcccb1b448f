"""How far clients' label distributions lie from a common one, for a million clients at once."""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats

__all__ = ["column_mean", "distributions", "entropy", "jensen_shannon"]

_BLOCK = 1 << 12  # rows at a time: temporaries stay in the cache
_FOLD = 256


def distributions(histograms: Floats) -> Floats:
    """Counts ``[K, C]`` to shares ``[K, C]``; NaN rows where a count is absent or negative, or all are zero."""
    with np.errstate(over="ignore"):
        total = histograms.sum(axis=1, keepdims=True)
    good = (total > 0) & np.isfinite(total) & (histograms >= 0).all(axis=1, keepdims=True)
    return np.asarray(np.divide(histograms, total, out=np.full(histograms.shape, np.nan), where=good))


def column_mean(p: Floats) -> Floats:
    """Mean over the first axis, ``[K, C]`` to ``[C]``, in long strides: three times faster than ``p.mean(0)`` for small C."""
    whole = len(p) // _FOLD * _FOLD
    folded = p[:whole].reshape(-1, _FOLD * p.shape[1]).sum(axis=0).reshape(_FOLD, p.shape[1])
    return np.asarray((folded.sum(axis=0) + p[whole:].sum(axis=0)) / len(p))


def entropy(p: Floats) -> Floats:
    """``-sum p log2 p`` over the last axis, in bits, ``0 log 0 = 0``; ``[..., C]`` to ``[...]``."""
    logs = np.log2(np.maximum(p, np.finfo(np.float64).tiny))
    return np.asarray(-np.einsum("...c,...c->...", logs, p))


def jensen_shannon(p: Floats, q: Floats, entropy_p: Floats) -> Floats:
    """``JS(p_k || q)`` with base-2 logs, in [0, 1], ``[K]``; NaN where p is.

    ``JS = H((p + q) / 2) - H(p) / 2 - H(q) / 2``, where the ``H(p_k)`` are computed once and kept: one logarithm per entry.

    Parameters
    ----------
    p: ``[K, C]`` distributions. q: ``[C]``. entropy_p: ``entropy(p)``, ``[K]``.
    """
    mixed = np.empty(len(p))
    for start in range(0, len(p), _BLOCK):
        block = p[start : start + _BLOCK] + q
        block *= 0.5
        mixed[start : start + _BLOCK] = entropy(block)
    mixed -= 0.5 * entropy_p
    mixed -= 0.5 * entropy(q)
    return np.asarray(np.clip(mixed, 0.0, 1.0))
