"""Advice from the league: which method to try first in a federation, and the proof of what the advice is worth.

A federation is compared with the league's environments by its profile (:meth:`motley.heterogeneity.record.Inspection.profile`). The
advice by likeness is the entrant with the highest mean difference to uniform FedAvg in the :data:`NEAREST` environments. Its proof:
each environment is left out in turn and advised from the others; the *regret* is how far the advised entrant stays behind the best in
that environment. Only if this regret is smaller than that of always taking the overall winner of the others, by a 95 % t interval over
environments that excludes zero, is the advice given; else the recommendation is the overall winner. Nothing is recommended whose
own interval over the environments in question holds zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import exp, isfinite, isnan, log, nan

import numpy as np

from motley.core.csv_text import csv_rows, csv_text
from motley.core.errors import DataError
from motley.results.measures import Interval, interval, paired, spread

__all__ = [
    "EVIDENCE", "NEAREST", "OUTSIDE", "PERSONAL", "PROFILES", "Advice", "Effect", "Evidence", "Proof", "advice_lines", "advise",
    "distance", "evidence_csv", "league_evidence", "profiles_csv", "proof", "read_evidence",
]  # fmt: skip

NEAREST = 5
"""Environments that advice looks at."""
EVIDENCE, PROFILES = "evidence.csv", "profiles.csv"
"""Files of the league's folder: effects by environment and entrant, and the environments' profiles."""
PERSONAL = "a model for each client"
"""The group of entrants that leave no model for all."""
OUTSIDE = "outside-"
"""Before the names of the files of federations that are no part of the league."""
Profile = Mapping[str, float]
"""Name of a finding -> its value, about 0 to 1; NaN where it was not measured."""
_WORDS = {
    "size_gini": "unequal sizes", "largest_share": "one large client", "label_divergence": "skewed labels",
    "missing_classes": "missing classes", "feature_shift": "different features", "concept_shift": "labels that mean different things",
    "label_noise": "wrong labels", "label_noise_spread": "wrong labels at some clients", "duplicates": "duplicates",
    "speed_spread": "unequal speeds", "link_spread": "unequal links", "availability": "absent clients", "drift": "client drift",
}  # fmt: skip


@dataclass(frozen=True)
class Effect:
    """What an entrant did in one environment, against uniform FedAvg.

    Parameters
    ----------
    difference: of the headline, percent points, mean over seeds; NaN where a run diverged. time, traffic: to the target, as a share of
    what uniform FedAvg took; NaN where either missed it.
    """

    difference: float
    time: float = nan
    traffic: float = nan


@dataclass(frozen=True)
class Evidence:
    """The league's findings.

    Parameters
    ----------
    effects: environment -> entrant -> effect, the control among them with 0. profiles: environment -> profile. control: its name.
    kinds: entrant -> title of its group.
    """

    effects: Mapping[str, Mapping[str, Effect]]
    profiles: Mapping[str, Profile]
    control: str
    kinds: Mapping[str, str]

    def without(self, environment: str) -> Evidence:
        """Return the evidence of all other environments."""
        left = {name: one for name, one in self.effects.items() if name != environment}
        return Evidence(left, self.profiles, self.control, self.kinds)

    @property
    def entrants(self) -> list[str]:
        """The entrants with a number in every environment."""
        every = list(self.effects.values())
        return [one for one in every[0] if all(one in there for there in every)] if every else []

    def difference(self, entrant: str, environments: Sequence[str]) -> Interval:
        """Return an entrant's mean difference to the control over environments, with its 95 % t interval."""
        return interval(spread([_finite(self.effects[name][entrant].difference) for name in environments]))

    def best(self, environments: Sequence[str], entrants: Sequence[str] | None = None) -> str:
        """Return the entrant with the highest mean difference over environments; of equals the first."""
        return max(entrants or self.entrants, key=lambda one: self.difference(one, environments).mean)

    def nearest(self, profile: Profile) -> list[str]:
        """Return the environments with the nearest profiles, the nearest first."""
        far = {name: distance(profile, self.profiles[name]) for name in self.effects if name in self.profiles}
        return sorted((name for name, one in far.items() if isfinite(one)), key=far.__getitem__)[:NEAREST]


@dataclass(frozen=True)
class Proof:
    """Mean regrets, in percent points, over environments that are left out one by one.

    Parameters
    ----------
    advice, winner, control: regret of the advice by likeness, of the overall winner of the others, and of uniform FedAvg.
    gain: how much smaller the advice's regret is than the winner's, with its 95 % t interval. by_environment: environment -> entrant
    advised, and the three regrets.
    """

    advice: float
    winner: float
    control: float
    gain: Interval
    by_environment: Mapping[str, tuple[str, float, float, float]]

    @property
    def holds(self) -> bool:
        """Whether advice by likeness beats the overall winner."""
        return self.gain.low > 0


@dataclass(frozen=True)
class Advice:
    """The entrant to try first, the environments it was chosen by, and its difference to uniform FedAvg in them. ``entrant`` is the
    control where nothing beats it."""

    entrant: str
    environments: Sequence[str]
    difference: Interval
    by_likeness: bool


def distance(one: Profile, other: Profile) -> float:
    """Return the mean absolute difference of what both profiles have; NaN where they have fewer than three numbers in common.

    >>> distance({"a": 0.0, "b": 1.0, "c": 0.5}, {"a": 0.75, "b": 1.0, "c": 0.5})
    0.25
    """
    known = [abs(value - other[name]) for name, value in one.items() if not isnan(value) and not isnan(other.get(name, nan))]
    return sum(known) / len(known) if len(known) >= 3 else nan


def advise(profile: Profile, evidence: Evidence, by_likeness: bool, entrants: Sequence[str] | None = None) -> Advice:
    """Return the entrant to try first.

    Parameters
    ----------
    by_likeness: whether the nearest environments count alone; else all do. entrants: that are considered; all of them by default.
    """
    near = evidence.nearest(profile) if by_likeness else []
    chosen = near or list(evidence.effects)
    best = evidence.best(chosen, entrants)
    effect = evidence.difference(best, chosen)
    if not effect.low > 0:
        best, effect = evidence.control, evidence.difference(evidence.control, chosen)
    return Advice(best, chosen, effect, bool(near))


def proof(evidence: Evidence, outside: Evidence | None = None) -> Proof:
    """Return the regrets when each environment that has a profile is left out and advised from the others.

    Parameters
    ----------
    outside: what was found in other federations, which are advised from all of the evidence instead.
    """
    there = evidence if outside is None else outside
    out: dict[str, tuple[str, float, float, float]] = {}
    for name in (name for name in there.effects if name in there.profiles):
        known = evidence.without(name) if outside is None else evidence
        if known.effects:
            out[name] = _regrets(there.profiles[name], known, there.effects[name])
    means = [float(np.mean([row[i] for row in out.values()])) if out else nan for i in (1, 2, 3)]
    gain = paired([row[2] for row in out.values()], [row[1] for row in out.values()])
    return Proof(means[0], means[1], means[2], gain, out)


def _regrets(profile: Profile, known: Evidence, here: Mapping[str, Effect]) -> tuple[str, float, float, float]:
    """The entrant advised by likeness, and how far it, the overall winner and the control stay behind the best of those known."""
    entrants = [one for one in known.entrants if one in here]
    advised = advise(profile, known, by_likeness=True, entrants=entrants).entrant
    winner = known.best(list(known.effects), entrants)
    most = max(_finite(here[one].difference) for one in entrants)
    behind = [most - _finite(here[one].difference) for one in (advised, winner, known.control)]
    return advised, behind[0], behind[1], behind[2]


def advice_lines(profile: Profile, evidence: Evidence | None = None, outside: Evidence | None = None) -> list[str]:
    """Return the advice for a federation in at most five sentences, with its evidence; none before the league was run.

    Parameters
    ----------
    evidence: the league's own by default. outside: measured on federations that are no part of it; the league's own by default where
    ``evidence`` is, too.
    """
    if evidence is None:
        evidence, outside = league_evidence(), outside or league_evidence(OUTSIDE)
    if evidence is None or not evidence.entrants:
        return []
    shown = proof(evidence)
    found = advise(profile, evidence, shown.holds)
    lines = [_differs(profile), *_first(found, evidence), _one_model(profile, found, evidence, shown.holds)]
    return [line for line in (*lines, _proved(shown, proof(evidence, outside) if outside else None)) if line]


def _differs(profile: Profile) -> str:
    """What stands out in a profile: its three largest numbers; of availability, which is a share online, what is missing."""
    large = {name: 1.0 - value if name == "availability" else value for name, value in profile.items()}
    known = sorted(((value, name) for name, value in large.items() if value >= 0.1), reverse=True)[:3]
    said = ", ".join(f"{_WORDS.get(name, name)} ({name} {profile[name]:.2f})" for _, name in known)
    return f"What differs most between these clients: {said}." if said else "These clients hardly differ."


def _first(found: Advice, evidence: Evidence) -> list[str]:
    where = (
        f"the {len(found.environments)} environments of the league that are most like this one ({'; '.join(found.environments)})"
        if found.by_likeness
        else f"the {len(found.environments)} environments of the league"
    )
    if found.entrant == evidence.control:
        return [f"Nothing here beats {evidence.control}: no entrant's gain over {where} is surely above zero."]
    said = f"Try {found.entrant} first ({evidence.kinds.get(found.entrant, 'entrant')}): {_points(found.difference)} against"
    cost = _cost(evidence, found)
    return [f"{said} {evidence.control} over {where}.", *([cost] if cost else [])]


def _one_model(profile: Profile, found: Advice, evidence: Evidence, by_likeness: bool) -> str:
    """The best of those that leave one model for all, where the first choice gives each client its own."""
    if evidence.kinds.get(found.entrant) != PERSONAL:
        return ""
    shared = [one for one in evidence.entrants if evidence.kinds.get(one) != PERSONAL]
    best = advise(profile, evidence, by_likeness, shared)
    if best.entrant == evidence.control:
        return f"With one model for all, nothing beats {evidence.control}."
    return f"With one model for all: {best.entrant}, {_points(best.difference)}."


def _cost(evidence: Evidence, found: Advice) -> str:
    effects = [evidence.effects[name][found.entrant] for name in found.environments]
    shares = {}
    for what, values in (("time", [one.time for one in effects]), ("traffic", [one.traffic for one in effects])):
        known = [log(value) for value in values if isfinite(value) and value > 0]
        if known:
            shares[what] = f"{exp(sum(known) / len(known)):.2g} times the {what}"
    return f"To the same accuracy it takes {' and '.join(shares.values())}, where both reach it." if shares else ""


def _points(one: Interval) -> str:
    text = f"{one.mean:+.1f} points" + (f" [{one.low:+.1f}, {one.high:+.1f}]" if isfinite(one.low) else "")
    return text.replace("-", "−")


def _proved(shown: Proof, outside: Proof | None) -> str:
    """How far advice stayed behind the best choice, in the league and on the federations outside it."""
    if isnan(shown.advice):
        return ""
    said = (
        f"Left out one by one, {len(shown.by_environment)} environments stayed {shown.advice:.1f} points behind their best method by "
        f"likeness, {shown.winner:.1f} by the overall winner and {shown.control:.1f} by uniform FedAvg"
    )
    if outside is not None:
        said += f"; on federations outside the league ({len(outside.by_environment)}) {outside.advice:.1f}, {outside.winner:.1f} and "
        said += f"{outside.control:.1f}"
    return f"{said}." if shown.holds else f"{said}. Likeness does not surely pay, so this is the overall winner."


def _finite(difference: float) -> float:
    """A run that diverged counts as far behind as accuracy can be."""
    return difference if isfinite(difference) else -100.0


@cache
def league_evidence(prefix: str = "") -> Evidence | None:
    """Return the evidence that comes with the package; None before the league was run.

    Parameters
    ----------
    prefix: of the files' names; :data:`OUTSIDE` for the federations that are no part of the league.

    Raises
    ------
    DataError: a file is damaged.
    """
    from motley.recipes.recipe import read

    folder = resources.files("motley.recipes") / "league"
    files = [folder / f"{prefix}{name}" for name in (EVIDENCE, PROFILES)]
    if not all(file.is_file() for file in files):
        return None
    plan = read("league").named("league").ranks
    if plan is None:
        return None
    kinds = {entrant: title for title, names in plan.groups.items() for entrant in names}
    effects, profiles = (file.read_text(encoding="utf-8") for file in files)
    return read_evidence(effects, profiles, plan.against, kinds)


def read_evidence(effects: str, profiles: str, control: str, kinds: Mapping[str, str]) -> Evidence:
    """Return evidence from the texts of :data:`EVIDENCE` and :data:`PROFILES`.

    Raises
    ------
    DataError: a text has other columns or words for numbers.
    """
    by_environment: dict[str, dict[str, Effect]] = {}
    named: dict[str, dict[str, float]] = {}
    try:
        for row in csv_rows(effects):
            effect = Effect(float(row["difference"]), float(row["time"] or "nan"), float(row["traffic"] or "nan"))
            by_environment.setdefault(row["environment"], {})[row["entrant"]] = effect
        for row in csv_rows(profiles):
            named.setdefault(row["environment"], {})[row["finding"]] = float(row["value"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the league's {EVIDENCE} or {PROFILES} is damaged ({error}); restore it from the repository") from None
    return Evidence(by_environment, named, control, kinds)


def evidence_csv(effects: Mapping[str, Mapping[str, Effect]]) -> str:
    """Return :data:`EVIDENCE` as text."""
    rows = [
        (
            environment,
            entrant,
            *("" if isnan(value) and i else f"{value:.4g}" for i, value in enumerate((one.difference, one.time, one.traffic))),
        )
        for environment, entrants in effects.items()
        for entrant, one in entrants.items()
    ]
    return csv_text([("environment", "entrant", "difference", "time", "traffic"), *rows])


def profiles_csv(profiles: Mapping[str, Profile]) -> str:
    """Return :data:`PROFILES` as text; what was not measured has no row."""
    rows = [
        (environment, name, f"{value:.4g}")
        for environment, one in profiles.items()
        for name, value in one.items()
        if not isnan(value)
    ]
    return csv_text([("environment", "finding", "value"), *rows])
