"""Upload ratios with which all clients finish at the same time: a linear program in closed form
(FedCG).

    min T  s.t.  tau_k + theta_k u_k <= T,   sum_k w_k theta_k >= budget sum_k w_k,
                 least <= theta_k <= 1
    h(T)   = sum_k w_k clip((T - tau_k) / u_k, least, 1)            non-decreasing, piecewise linear
    T_low  = max_k (tau_k + least u_k)
    T*     = T_low if h(T_low) >= budget sum_k w_k, else the root of h(T) = budget sum_k w_k
    theta_k = clip((T* - tau_k) / u_k, least, 1)

    slack   = "traffic": theta_k <- least + s (theta_k - least), with s in [0, 1] such that
              sum w theta = budget sum w, if it is larger

Symbols: ``tau_k`` seconds of the client's local work; ``u_k`` seconds of an uncompressed upload;
``theta_k`` share of the update sent; ``w_k`` weight of its error, modelled as ``1 - theta_k``;
``budget`` the weighted mean of the shares. The optimum in theta is not unique.
``slack = "fidelity"`` returns the largest shares that T* allows; ``"traffic"`` scales them down to
the budget: with equal weights the least traffic at the same T*. They differ if T* = T_low, that is
if the slowest client computes longer than the budget takes to send.

>>> compute_s, upload_s = np.array([5.0, 10, 12]), np.array([40.0, 10, 20])
>>> theta, finish_s = upload_ratios(compute_s, upload_s, budget=0.4, least=0.05)
>>> theta.round(6).tolist(), round(finish_s, 6)
([0.292857, 0.671429, 0.235714], 16.714286)
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import numpy as np

from motley.core.arrays import Floats

Slack = Literal["fidelity", "traffic"]
"""The use of spare time at the optimum: larger uploads, or less traffic."""

NEGLIGIBLE = 1e-9
"""Uploads that take less than this share of the longest total time are sent whole."""


def upload_ratios(
    compute_s: Floats,
    upload_s: Floats,
    budget: float,
    least: float,
    weights: Floats | None = None,
    slack: Slack = "fidelity",
) -> tuple[Floats, float]:
    """Return the optimal ratios ``[m]`` and T*, exact up to rounding.

    Parameters
    ----------
    compute_s, upload_s: tau and u, ``[m]``, at least 0; NaN: unknown; the ratio is ``budget`` and
    the client is not in the program.
    budget, least: mean and smallest ratio, in (0, 1].
    weights: w, ``[m]``, at least 0 and not all of them 0; None: equal.
    slack: see the module.

    T* is 0 if all times are unknown.
    """
    finite = ~np.isnan(compute_s + upload_s)
    theta = np.full(len(finite), budget)
    if not finite.any():
        return theta, 0.0
    tau = compute_s[finite]
    u = upload_s[finite]
    low = float((tau + least * _measurable(tau, u)).max())
    finish_s = max(
        low,
        finish_time(
            tau=tau,
            u=u,
            budget=budget,
            least=least,
            weights=None if weights is None else weights[finite],
        ),
    )
    allowed = ratios_for(finish_s, tau, u, least)
    if slack == "traffic":
        w = np.ones(len(tau)) if weights is None else weights[finite]
        spare = float((w * (allowed - least)).sum())
        required = max((budget - least) * float(w.sum()), 0.0)
        allowed = least + (allowed - least) * (required / spare if spare > required else 1.0)
    theta[finite] = allowed
    return theta, finish_s


def finish_time(
    tau: Floats, u: Floats, budget: float, least: float, weights: Floats | None = None
) -> float:
    """Return the root of ``h(T) = budget sum w``, which lies between two corners of h; 0 if
    ``least`` alone exceeds the budget."""
    u = _measurable(tau, u)
    w = np.ones(len(tau)) if weights is None else weights

    def total(finish_s: float) -> float:
        return float((w * _clipped(finish_s, tau, u, least)).sum())

    need = budget * float(w.sum())
    corners = np.unique(np.concatenate([tau + least * u, tau + u]))
    after = bisect_left(corners, need, key=total)
    if after == 0:
        return 0.0
    if after == len(corners):  # only by rounding
        return float(corners[-1])
    before = float(corners[after - 1])
    reached = total(float(corners[after - 1]))
    return before + (need - reached) / (total(float(corners[after])) - reached) * float(
        corners[after] - before
    )


def ratios_for(finish_s: float, tau: Floats, u: Floats, least: float) -> Floats:
    """Return the largest ratios with which clients finish by ``finish_s``, at least ``least``;
    uploads that take no time are whole."""
    slow = _measurable(tau, u)
    return np.where(slow > u, 1.0, _clipped(finish_s, tau, slow, least))


def _measurable(tau: Floats, u: Floats) -> Floats:
    """Return ``u``, at least a negligible share of the longest total time, so that h is continuous
    for links that take no time."""
    return np.maximum(u, NEGLIGIBLE * float((tau + u).max()) or 1.0)


def _clipped(finish_s: float, tau: Floats, u: Floats, least: float) -> Floats:
    return np.asarray(np.clip((finish_s - tau) / u, least, 1.0))
