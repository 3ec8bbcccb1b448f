"""Epsilon of what clients release, added up by ``dp-accounting``; nothing is derived here but which
event stands for which release.

Multipliers are those of zero-out adjacency. Where nothing is amplified, replace-one is zero-out
with every multiplier halved, so one list of releases serves both (docs/privacy.md#accounts).

Traps of dp-accounting 0.6, each with a test: its RDP accountant does not double the sensitivity of
a Gaussian under ``REPLACE_ONE``, so multipliers are halved here and the relation is
``REPLACE_SPECIAL``; sampling without replacement takes half the multiplier as well. Its PLD
accountant, which cohorts of coins take to ``REPLACE_ONE``, doubles: a Gaussian beside them is not
halved there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from motley.core.errors import ConfigError, install_hint
from motley_privacy.options import Adjacency

Kind = Literal["gaussian", "laplace", "gumbel", "poisson", "without_replacement", "discrete"]
_AMPLIFIED = ("poisson", "without_replacement")
_RENYI = {"gumbel", "without_replacement", "discrete"}
_COARSE = 1e-3
"""Discretization of privacy losses while a multiplier is sought; the bound itself is computed at
the library's own."""
_MUCH = 100.0
"""Sum of counts over multipliers of Laplace noise from which distributions of losses outgrow
memory; Renyi divergences do not."""


@dataclass(frozen=True)
class Release:
    """What a client releases, ``count`` times.

    Parameters
    ----------
    kind: the mechanism; ``poisson`` and ``without_replacement`` are Gaussians on the sum of a
    cohort drawn so; ``discrete`` is a sum with discrete noise of clients, ``1 / (2
    multiplier^2)``-zCDP.
    multiplier: noise over zero-out sensitivity.
    m: winners of a Gumbel choice.
    population, rate, largest: of a drawn cohort; ``rate`` is the share drawn.
    """

    kind: Kind
    multiplier: float
    count: int = 1
    m: int = 1
    population: int = 0
    rate: float = 1.0
    largest: int | None = None


@dataclass(frozen=True)
class Bound:
    """Epsilon at a delta, who computed it, and whether hidden cohorts made it smaller."""

    epsilon: float
    accountant: str
    amplified: bool = False


@lru_cache
def bound(
    releases: tuple[Release, ...], delta: float, adjacency: Adjacency, accountant: str = "auto"
) -> Bound:
    """Return epsilon of these releases together.

    Raises
    ------
    ConfigError: dp-accounting is not installed, or the accountant or the adjacency does not go with
    a release.
    """
    return _bound(releases, delta, adjacency, accountant)


@lru_cache
def calibrated(
    update: Release,
    signals: tuple[Release, ...],
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    accountant: str = "auto",
) -> float:
    """Return the noise multiplier of the updates with which everything together costs ``epsilon``.

    Raises
    ------
    ConfigError: the signals alone cost as much, or as in :func:`bound`.
    """
    library = _library()
    if signals and _bound(signals, delta, adjacency, accountant).epsilon >= epsilon:
        cost = _bound(signals, delta, adjacency, accountant).epsilon
        raise ConfigError(
            f"got {epsilon:g}, and the signals alone cost {cost:.4g}; expected more, fewer signals "
            "(max_signals) or more noise",
            "privacy.epsilon",
        )
    halved = 0.5 if adjacency == "replace_one" else 1.0
    if update.kind == "gaussian" and not signals and accountant in ("auto", "closed_form"):
        sigma = library.get_sigma_gaussian(epsilon, delta)
        return float(sigma) * math.sqrt(update.count) / halved
    name = _accountant(accountant, (update, *signals))
    multiplier = library.calibrate_dp_mechanism(
        lambda: _accountants(name, adjacency, (update,), coarse=True),
        lambda z: _event((replace(update, multiplier=z), *signals), adjacency, name),
        target_epsilon=epsilon,
        target_delta=delta,
        bracket_interval=library.LowerEndpointAndGuess(0.05, 2.0),
        tol=1e-4 * epsilon,
    )
    if update.kind != "without_replacement":
        return float(multiplier)
    seen = _as_seen(update)
    return min(float(multiplier), calibrated(seen, signals, epsilon, delta, adjacency, accountant))


def _bound(
    releases: Sequence[Release], delta: float, adjacency: Adjacency, accountant: str
) -> Bound:
    """Return the bound of these releases. What is known of the Renyi divergences of cohorts of a
    fixed size exceeds, for large shares, what the same sums have without any amplification; both
    hold, and the lesser is returned."""
    _check(releases, adjacency)
    hidden = _composed(releases, delta, adjacency, accountant)
    if all(release.kind != "without_replacement" for release in releases):
        return hidden
    seen = _composed([_as_seen(release) for release in releases], delta, adjacency, accountant)
    return min(hidden, seen, key=lambda bound: bound.epsilon)


def _as_seen(release: Release) -> Release:
    """Return a release as it is where cohorts are seen: without amplification."""
    if release.kind != "without_replacement":
        return release
    return Release("gaussian", release.multiplier, release.count)


def _composed(
    releases: Sequence[Release], delta: float, adjacency: Adjacency, accountant: str
) -> Bound:
    library = _library()
    name = _accountant(accountant, releases)
    if name == "closed_form":
        halved = 0.5 if adjacency == "replace_one" else 1.0
        together = sum(release.count / (release.multiplier * halved) ** 2 for release in releases)
        epsilon = (
            library.get_epsilon_gaussian(1.0 / math.sqrt(together), delta) if together else 0.0
        )
        return Bound(float(epsilon), "closed form")
    event = _event(releases, adjacency, name)
    try:
        epsilon = _accountants(name, adjacency, releases).compose(event).get_epsilon(delta)
    except library.UnsupportedEventError:
        alternative = "rdp" if name == "pld" else "pld"
        raise ConfigError(
            f'{name!r} cannot add up such releases; write accountant = "{alternative}", or leave '
            "it out",
            "privacy.accountant",
        ) from None
    amplified = any(release.kind in _AMPLIFIED for release in releases)
    return Bound(float(epsilon), name, amplified)


def _accountant(accountant: str, releases: Sequence[Release]) -> str:
    """Return the name of the accountant; ``auto`` chooses the tightest that can."""
    kinds = {release.kind for release in releases}
    gaussian = kinds <= {"gaussian"}
    if accountant == "closed_form" and not gaussian:
        raise ConfigError(
            "the closed form is of Gaussians alone; leave accountant out", "privacy.accountant"
        )
    if accountant != "auto":
        return accountant
    if gaussian:
        return "closed_form"
    many_laplace = (
        sum(release.count / release.multiplier for release in releases if release.kind == "laplace")
        > _MUCH
    )
    return "rdp" if many_laplace or kinds & _RENYI else "pld"


def _check(releases: Sequence[Release], adjacency: Adjacency) -> None:
    kinds = {release.kind for release in releases}
    if "without_replacement" in kinds and adjacency != "replace_one":
        reason = "cohorts of a fixed size are amplified under replace-one alone"
        raise ConfigError(
            f'{reason}; write adjacency = "replace_one", or use selector = "poisson"',
            "privacy.adjacency",
        )
    if adjacency == "add_remove" and "poisson" not in kinds:
        reason = "the roster is public here, so a client cannot be added to it or removed"
        raise ConfigError(f'{reason}; write adjacency = "zero_out"', "privacy.adjacency")


def _accountants(
    name: str, adjacency: Adjacency, releases: Sequence[Release], coarse: bool = False
) -> Any:
    """Return a fresh accountant of the library, for the relation that goes with these releases."""
    library = _library()
    relation = library.NeighboringRelation.REPLACE_SPECIAL
    if any(release.kind in _AMPLIFIED for release in releases):
        names = {
            "zero_out": "REPLACE_SPECIAL",
            "replace_one": "REPLACE_ONE",
            "add_remove": "ADD_OR_REMOVE_ONE",
        }
        relation = library.NeighboringRelation[names[adjacency]]
    if name == "rdp":
        return library.rdp.RdpAccountant(neighboring_relation=relation)
    step = {"value_discretization_interval": _COARSE} if coarse else {}
    return library.pld.PLDAccountant(relation, **step)


def _event(releases: Sequence[Release], adjacency: Adjacency, name: str) -> Any:
    library = _library()
    doubled = name == "pld" and any(release.kind in _AMPLIFIED for release in releases)
    return library.ComposedDpEvent(
        [
            library.SelfComposedDpEvent(_single(release, adjacency, doubled), release.count)
            for release in releases
        ]
    )


def _single(release: Release, adjacency: Adjacency, doubled: bool) -> Any:
    """Return the library's event of one release; ``doubled``: whether its accountant doubles what
    a Gaussian moves by under replace-one itself."""
    library = _library()
    halved = release.multiplier * (0.5 if adjacency == "replace_one" else 1.0)
    if release.kind == "laplace":
        return library.LaplaceDpEvent(halved)
    # m exponential mechanisms, each bounded by eta times the width, which is 1 / multiplier
    if release.kind == "gumbel":
        return library.ZCDpEvent(release.m / halved**2 / 8.0)
    if release.kind == "discrete":
        return library.ZCDpEvent(0.5 / halved**2)
    if release.kind == "without_replacement":
        sample = round(release.rate * release.population)
        return library.SampledWithoutReplacementDpEvent(
            release.population, sample, library.GaussianDpEvent(halved)
        )
    if release.kind == "poisson" and release.largest is None:
        return library.PoissonSampledDpEvent(
            release.rate, library.GaussianDpEvent(release.multiplier)
        )
    if release.kind == "poisson":
        return library.TruncatedSubsampledGaussianDpEvent(
            release.population, release.rate, release.largest, release.multiplier
        )
    return library.GaussianDpEvent(release.multiplier if doubled else halved)


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError:
        reason = "dp-accounting, which adds up privacy losses, is not installed; "
        raise ConfigError(reason + install_hint(folder="motley-privacy"), "privacy") from None
    return dp_accounting
