"""Attack a private experiment in two worlds that differ in one client, and compare what was found with its claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from motley.core.errors import ConfigError
from motley.core.records import SIGNALS
from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley.experiments.stand_in import StandIn
from motley.privacy.attack import Attack, attacked
from motley.privacy.disclosure import noised

__all__ = ["Audit", "audit", "stand_in"]

_FEWEST = 100
_LONGEST_S = 3600.0
_TIMED = 4
"""Trials of each world whose seconds are measured before the others begin."""


class Audit(NamedTuple):
    """An attack on an experiment.

    Parameters
    ----------
    attack: its outcome. record: what ``audit.json`` holds. sentences: the same in words.
    """

    attack: Attack
    record: dict[str, Any]
    sentences: tuple[str, ...]


def stand_in(keys: Mapping[str, Any], data: Path | None = None, clear: bool = False) -> StandIn:
    """Return the two worlds of an experiment's keys.

    Parameters
    ----------
    data: folder searched first for data packs. clear: let signals leave without noise, for which there is no bound.

    Raises
    ------
    ConfigError: no ``[privacy]``, no number of rounds, a rule that cannot be attacked so, or what a run refuses.
    """
    if not isinstance(keys.get("privacy"), Mapping):
        raise ConfigError("there is nothing to audit without it; write e.g. [privacy] with clip, epsilon and delta", "privacy")
    given = Experiment(**{key: value for key, value in keys.items() if key != "privacy"})
    _check(given, clear)
    updates = {key: value for key, value in keys["privacy"].items() if key not in ("signal_noise", "max_signals", "cohorts")}
    private = Experiment(**{**keys, "selector": "uniform", "privacy": updates} if clear else keys)
    ready = prepare(private, data)
    plan = ready.config.privacy
    if plan is None or given.stop.rounds is None:
        raise ConfigError("a trial has a number of rounds; write e.g. stop = { rounds = 20 }", "stop.rounds")
    population = ready.config.setting.task.federation.pool
    return StandIn(plan, given.part("selector"), given.defence, population, ready.config.cohort, given.stop.rounds, clear)


def _check(given: Experiment, clear: bool) -> None:
    """Refuse what the stand-in has no like of."""
    name, needs = given.selector["name"], given.part("selector").needs()
    vectors = [signal for signal in noised(needs) if not SIGNALS[signal].scalar]
    if vectors:
        raise ConfigError(
            f"{name!r} needs {vectors[0]!r}, a whole vector of every client, which is not attacked here", "selector"
        )
    if clear and not noised(needs):
        raise ConfigError(f"{name!r} needs no signal of clients' data; leave it out", "--clear-signals")


def audit(
    keys: Mapping[str, Any],
    trials: int = 2000,
    seed: int = 0,
    data: Path | None = None,
    clear: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Attack an experiment's stand-in, and return the lower bound on epsilon beside the claim.

    Parameters
    ----------
    keys: of the experiment. trials: of each world; half of them choose the attack, the other half count. seed: of all trials; the same
    seed gives the same outcome. data, clear: as in :func:`stand_in`. say: told, before the trials, how many there are and how long
    they take.

    Raises
    ------
    ConfigError: as in :func:`stand_in`, or too few trials, or more than an hour of them.
    """
    if trials < _FEWEST:
        raise ConfigError(f"got {trials}; expected at least {_FEWEST} trials of each world", "--trials")
    worlds = stand_in(keys, data, clear)
    first = seed * 2**32
    began = time.perf_counter()
    for far in (False, True):
        worlds.observed(far, range(first, first + _TIMED))
    expected_s = (time.perf_counter() - began) / _TIMED * trials
    if expected_s > _LONGEST_S:
        fewer = max(_FEWEST, int(trials * _LONGEST_S / expected_s))
        raise ConfigError(
            f"{trials} trials of each world would take about {expected_s / 3600:.1f} h; write --trials {fewer}, or take fewer "
            "clients or rounds, e.g. --set stop.rounds=10", "--trials",
        )  # fmt: skip
    say(f"{trials} trials of {worlds.rounds} rounds in each of two worlds, about {expected_s:.0f} s")
    near, other = (worlds.observed(one, range(first, first + trials)) for one in (False, True))
    found = attacked(near, other, worlds.plan.options.delta)
    return Audit(found, _record(worlds, found, trials, seed), _sentences(worlds, found))


def _saw(worlds: StandIn) -> str:
    """Return what the adversary saw."""
    if worlds.hidden:
        return "the models alone"
    noisy = " and the clients' noisy signals" if worlds.signals_seen else ""
    return f"the cohorts and the models, which are the noised sums{noisy}"


def _record(worlds: StandIn, found: Attack, trials: int, seed: int) -> dict[str, Any]:
    plan = worlds.plan
    return {
        "attacked": "quadratic stand-in", "bound": None if worlds.clear else plan.bound.epsilon, "eps_hat": found.epsilon,
        "ceiling": found.ceiling, "updates_alone": plan.bound.epsilon if worlds.clear else None, "delta": plan.options.delta,
        "adjacency": plan.options.adjacency, "saw": _saw(worlds), "clear_signals": worlds.clear, "trials": trials, "seed": seed,
        "threshold": found.threshold, "above": found.above, "rule": type(worlds.rule).__name__, "population": worlds.population,
        "cohort": worlds.cohort, "rounds": worlds.rounds, "clip": plan.options.clip, "noise_multiplier": plan.noise_multiplier,
        "max_rounds": plan.max_rounds,
    }  # fmt: skip


def _sentences(worlds: StandIn, found: Attack) -> tuple[str, ...]:
    plan = worlds.plan
    claim = f"at most {plan.bound.epsilon:.4g} at the caps, by the account"
    if worlds.clear:
        claim = f"none, for signals leave without noise; the updates alone would have {plan.bound.epsilon:.4g}"
    above = not worlds.clear and found.epsilon > plan.bound.epsilon
    verdict = (
        "The attack found more than the bound: the bound is wrong, or the trials are a rare exception (1 in 20); please report it."
        if above
        else "A low eps_hat proves nothing: another attack, or more trials, may find more. Only the bound is a promise."
    )
    return (
        f"Attacked is a quadratic stand-in with the experiment's selector, {worlds.population} clients, cohort {worlds.cohort}, "
        f"{worlds.rounds} rounds, clip, noise and caps; not its data and model. All clients are available and answer in time.",
        f"Bound on epsilon: {claim} (delta {plan.options.delta:g}, adjacency {plan.options.adjacency}).",
        f"eps_hat, the lower bound that the attack gives with 95 % confidence: {found.epsilon:.3f}; so many trials can give at "
        f"most {found.ceiling:.3f}.",
        f"The adversary saw {_saw(worlds)}.",
        verdict,
    )
