"""Attack a private experiment in two worlds that differ in one client, and compare what was found
with its claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motley.core.errors import ConfigError
from motley.core.records import SIGNALS
from motley.experiments.build import Ready, prepare
from motley.experiments.config import Experiment
from motley.experiments.disclosure import noised
from motley_privacy.audited import AuditedWorlds
from motley_privacy.canary_runs import CanaryRuns, with_canary
from motley_privacy.likelihood_ratios import Attack, Observed, attacked, ceiling
from motley_privacy.privacy_plan import PrivacyPlan
from motley_privacy.stand_in import StandIn

_FEWEST = 100
_LONGEST_S = 3600.0
_USUAL_S = 600.0
"""Seconds that all trials together take at most where their number is not given, if 100 of each
world do not take longer."""
_USUAL = (2000, 1000, 500, 200, _FEWEST)
_TIMED = 4
_TIMED_S = 4.0
"""Trials of each world, at most, whose seconds are measured before the others begin, and seconds
after which no more are."""
_PARTS = 10
"""Parts after each of which the progress of a longer attack is told."""


class Audit(NamedTuple):
    """An attack on an experiment.

    Parameters
    ----------
    attack: its outcome.
    record: what ``audit.json`` holds.
    sentences: the same in words.
    """

    attack: Attack
    record: dict[str, Any]
    sentences: tuple[str, ...]


class _Planned(NamedTuple):
    """An experiment without its privacy, the parts of its run with it, and the plan."""

    experiment: Experiment
    ready: Ready
    plan: PrivacyPlan
    rounds: int


def stand_in(keys: Mapping[str, Any], data: Path | None = None, clear: bool = False) -> StandIn:
    """Return the two worlds of the quadratic stand-in for an experiment.

    Parameters
    ----------
    keys: of the experiment.
    data: folder searched first for data packs.
    clear: let signals leave without noise, for which there is no bound.

    Raises
    ------
    ConfigError: no ``[privacy]``, no number of rounds, a rule that cannot be attacked so, or what a
    run refuses.
    """
    experiment, ready, plan, rounds = _planned(keys, data, clear)
    if plan.client_noise is not None:
        message = (
            'the stand-in has no masks, and noise_by = "clients" no other sums; attack the '
            "experiment itself"
        )
        raise ConfigError(f"{message}: leave it out", "--stand-in")
    vectors = [
        signal
        for signal in noised(experiment.part("selector").needs())
        if not SIGNALS[signal].scalar
    ]
    if vectors:
        raise ConfigError(
            f"{experiment.selector['name']!r} needs {vectors[0]!r}, several numbers of every "
            "client, which the stand-in has no like of",
            "--stand-in",
        )
    population = ready.config.setting.task.federation.pool
    return StandIn(
        plan,
        rule=experiment.part("selector"),
        defence=experiment.defence,
        population=population,
        cohort=ready.config.cohort,
        rounds=rounds,
        clear=clear,
    )


def own_runs(
    keys: Mapping[str, Any],
    data: Path | None = None,
    clear: bool = False,
    canary: int | None = None,
    wrong: bool = True,
    stretched: bool = False,
) -> CanaryRuns:
    """Return the two worlds of an experiment's own runs.

    Parameters
    ----------
    keys, data, clear: as in :func:`stand_in`.
    canary: id of the client in which they differ; None: the one with the most samples.
    wrong: give it wrong targets, which it fits worst.
    stretched: make its updates as long as the clip, which no data may do.

    Raises
    ------
    ConfigError: no ``[privacy]``, no number of rounds, no such client, or what a run refuses.
    """
    experiment, ready, plan, rounds = _planned(keys, data, clear)
    own = ready._replace(config=replace(ready.config, privacy=plan))
    own, chosen = with_canary(own, canary, wrong)
    population = own.config.setting.task.federation.pool
    rule = experiment.part("selector")
    return CanaryRuns(
        plan,
        rule,
        experiment.defence,
        population,
        cohort=own.config.cohort,
        rounds=rounds,
        clear=clear,
        ready=own,
        canary=chosen,
        wrong=wrong,
        stretched=stretched,
    )


def _planned(keys: Mapping[str, Any], data: Path | None, clear: bool) -> _Planned:
    """Return the parts of an experiment; with clear signals the parts without privacy, and the plan
    of its updates alone."""
    if not isinstance(keys.get("privacy"), Mapping):
        raise ConfigError(
            "there is nothing to audit without it; write e.g. [privacy] with clip, epsilon and "
            "delta",
            "privacy",
        )
    experiment = Experiment(**{key: value for key, value in keys.items() if key != "privacy"})
    if clear and not noised(experiment.part("selector").needs()):
        raise ConfigError(
            f"{experiment.selector['name']!r} needs no signal of clients' data; leave it out",
            "--clear-signals",
        )
    updates = {
        key: value
        for key, value in keys["privacy"].items()
        if key not in ("signal_noise", "max_signals", "cohorts")
    }
    ready = prepare(
        Experiment(**{**keys, "selector": "uniform", "privacy": updates} if clear else keys), data
    )
    plan = ready.config.privacy
    rounds = experiment.stop.rounds
    if not isinstance(plan, PrivacyPlan) or rounds is None:
        raise ConfigError(
            "a trial has a number of rounds; write e.g. stop = { rounds = 20 }", "stop.rounds"
        )
    return _Planned(experiment, prepare(experiment, data) if clear else ready, plan, rounds)


def audit(
    keys: Mapping[str, Any],
    trials: int | None = None,
    seed: int = 0,
    data: Path | None = None,
    clear: bool = False,
    say: Callable[[str], None] = lambda _: None,
    quadratic: bool = False,
    canary: int | None = None,
    wrong: bool = True,
    stretched: bool = False,
) -> Audit:
    """Attack an experiment, and return the lower bound on epsilon beside the claim.

    Parameters
    ----------
    keys: of the experiment.
    trials: of each world; half of them choose the attack, the other half count. None: as many as
    ten minutes hold, at most 2,000.
    seed: of all trials; the same seed and the same number of trials give the same outcome.
    data, clear: as in :func:`stand_in`.
    say: told, before the trials, how many there are and how long they take, and of their progress.
    quadratic: attack the stand-in.
    canary, wrong, stretched: as in :func:`own_runs`.

    Raises
    ------
    ConfigError: as in :func:`stand_in` and :func:`own_runs`, or too few trials, or more than an
    hour of them.
    """
    check_trials(trials)
    worlds: StandIn | CanaryRuns
    if quadratic:
        worlds = stand_in(keys, data, clear)
    else:
        worlds = own_runs(keys, data, clear, canary, wrong=wrong, stretched=stretched)
    first = seed * 2**32
    each_s = _trial_s(worlds, first)
    count = trials or next((n for n in _USUAL if n * each_s <= _USUAL_S), _FEWEST)
    _check_time(count, each_s, quadratic)
    delta = worlds.plan.options.delta
    say(
        f"{count} trials of {worlds.rounds} rounds in each of two worlds, about "
        f"{count * each_s:.0f} s; eps_hat can be {ceiling(count - count // 2, delta):.2f} at most"
    )
    near, far = _observed(
        worlds, first, count, say if count * each_s > 2 * _TIMED_S else lambda _: None
    )
    attack = attacked(near, far, delta)
    return Audit(attack, _record(worlds, attack, count, seed), _sentences(worlds, attack))


def check_trials(trials: int | None) -> None:
    """Refuse too few trials to find anything.

    Raises
    ------
    ConfigError: they are too few.
    """
    if trials is not None and trials < _FEWEST:
        raise ConfigError(
            f"got {trials}; expected at least {_FEWEST} trials of each world", "--trials"
        )


def _trial_s(worlds: AuditedWorlds, first: int) -> float:
    """Return the seconds of one trial in each of the two worlds; the first of several is not
    counted, which warms up."""
    times: list[float] = []
    while len(times) < _TIMED and sum(times) < _TIMED_S:
        began = time.perf_counter()
        for far in (False, True):
            worlds.observed(far, [first + len(times)])
        times.append(time.perf_counter() - began)
    return float(np.mean(times[1:] or times))


def _check_time(trials: int, each_s: float, quadratic: bool) -> None:
    """Refuse more than an hour."""
    if trials * each_s <= _LONGEST_S:
        return
    fewer = int(_LONGEST_S / each_s)
    cheaper = "" if quadratic else ", or --stand-in"
    advice = f"write --trials {fewer}, or take" if fewer >= _FEWEST else "take"
    raise ConfigError(
        f"{trials} trials of each world would take about {trials * each_s / 3600:.1f} h; {advice} "
        f"fewer clients or rounds, e.g. --set stop.rounds=10{cheaper}",
        "--trials",
    )


def _observed(
    worlds: AuditedWorlds, first: int, trials: int, say: Callable[[str], None]
) -> tuple[Observed, Observed]:
    """Return what the adversary saw in both worlds, and tell of each tenth of the trials."""
    observed: tuple[list[Observed], list[Observed]] = ([], [])
    edges = np.linspace(0, trials, _PARTS + 1).astype(int).tolist()
    began = time.perf_counter()
    for begin, end in pairwise(edges):
        for far, parts in enumerate(observed):
            parts.append(worlds.observed(bool(far), range(first + begin, first + end)))
        if end < trials:
            left_s = (time.perf_counter() - began) / end * (trials - end)
            say(f"{end} of {trials} trials of each world; about {left_s:.0f} s left")
    near, far_ = (_joined(parts) for parts in observed)
    return near, far_


def _joined(parts: list[Observed]) -> Observed:
    """Return all trials of parts of them."""
    signals = [part.signals for part in parts if part.signals is not None]
    member, sums = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return Observed(member, sums, np.concatenate(signals) if signals else None)


def _saw(worlds: AuditedWorlds) -> str:
    """Return what the adversary saw."""
    if worlds.hidden:
        return "the models alone"
    noisy = " and the clients' noisy signals" if worlds.signals_seen else ""
    return f"the cohorts and the models, which are the noised sums{noisy}"


def _record(worlds: AuditedWorlds, attack: Attack, trials: int, seed: int) -> dict[str, Any]:
    plan = worlds.plan
    return {
        "attacked": worlds.attacked,
        "bound": None if worlds.clear else plan.bound.epsilon,
        "eps_hat": attack.epsilon,
        "ceiling": attack.ceiling,
        "updates_alone": plan.bound.epsilon if worlds.clear else None,
        "delta": plan.options.delta,
        "adjacency": plan.options.adjacency,
        "saw": _saw(worlds),
        "clear_signals": worlds.clear,
        "trials": trials,
        "seed": seed,
        "threshold": attack.threshold,
        "above": attack.above,
        "rule": type(worlds.rule).__name__,
        "population": worlds.population,
        "cohort": worlds.cohort,
        "rounds": worlds.rounds,
        "clip": plan.options.clip,
        "noise_multiplier": plan.noise_multiplier,
        "max_rounds": plan.max_rounds,
        **worlds.details(),
    }


def _sentences(worlds: AuditedWorlds, attack: Attack) -> tuple[str, ...]:
    plan = worlds.plan
    claim = f"at most {plan.bound.epsilon:.4g} at the caps, by the account"
    if worlds.clear:
        claim = (
            "none, for signals leave without noise; the updates alone would have "
            f"{plan.bound.epsilon:.4g}"
        )
    above = not worlds.clear and attack.epsilon > plan.bound.epsilon
    if above:
        verdict = (
            "The attack found more than the bound: the bound is wrong, or the trials are a rare "
            "exception (1 in 20); please report it."
        )
    else:
        verdict = (
            "A low eps_hat proves nothing: another attack, or more trials, may find more. Only "
            "the bound is a promise."
        )
    return (
        worlds.described(),
        f"Bound on epsilon: {claim} (delta {plan.options.delta:g}, adjacency "
        f"{plan.options.adjacency}).",
        "eps_hat, the lower bound that the attack gives with 95 % confidence: "
        f"{attack.epsilon:.3f}; so many trials can give at most {attack.ceiling:.3f}.",
        f"The adversary saw {_saw(worlds)}.",
        verdict,
    )
