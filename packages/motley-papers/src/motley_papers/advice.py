"""Advice from the league: which method has been shown to help where clients differ as these do, and
whether following it pays.

How clients differ is said in *factors*: what of a profile
(:meth:`motley.heterogeneity.record.Inspection.profile`) is large, each weak or strong. An
environment speaks for a federation if it has a factor and none that the federation lacks at this
strength. A method is named only if in *each* of these environments its gain over uniform FedAvg has
an interval over paired seeds that excludes zero, with the level divided by the methods of its kind
and the environments (Bonferroni). Methods that leave one model for all and methods that give each
client its own are never compared.

The proof: every environment, left out of the evidence, and every other federation is advised; what
is gained over uniform FedAvg there, with 0 where nothing is named, must have a mean whose 95 % t
interval excludes zero. Advice whose proof fails is not given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isfinite, isnan, nan

from motley.core.csv_text import csv_rows, csv_text
from motley.core.errors import DataError
from motley.results.measures import Interval, interval, spread

__all__ = [
    "ABSTAINED",
    "EVIDENCE",
    "KINDS",
    "OUTSIDE",
    "PERSONAL",
    "PROFILES",
    "UNSHOWN",
    "Evidence",
    "Proof",
    "advice_lines",
    "advise",
    "evidence_csv",
    "factors",
    "league_evidence",
    "profiles_csv",
    "proof",
    "read_evidence",
]

EVIDENCE = "evidence.csv"
PROFILES = "profiles.csv"
"""Files of the league's folder: differences by environment and entrant, and the environments'
profiles."""
PERSONAL = "a model for each client"
"""The group of entrants that leave no model for all."""
KINDS = {False: "one model for all", True: PERSONAL}
"""Whether each client gets its own model -> the kind of model in words."""
OUTSIDE = "outside-"
"""Before the names of the files of federations that are advised in the proof, and that advice does
not rest on."""
ABSTAINED = (
    "Clients hardly differ in anything that a method here has been shown to help: uniform FedAvg."
)
UNSHOWN = "No method here has been shown to help where clients differ so: uniform FedAvg."
Profile = Mapping[str, float]
"""Name of a finding -> its value, about 0 to 1; NaN where it was not measured."""
Factor = tuple[str, bool]
"""Name of a finding and whether it is strong."""
FACTORS = {
    "size_gini": ("unequal sizes", 0.3, 0.6),
    "label_divergence": ("skewed labels", 0.2, 0.55),
    "feature_shift": ("different features", 0.2, 0.5),
    "concept_shift": ("labels that mean different things", 0.1, 0.3),
    "label_noise": ("wrong labels", 0.1, 0.25),
    "speed_spread": ("unequal speeds", 0.25, 0.55),
    "link_spread": ("unequal links", 0.25, 0.55),
    "availability": ("absent clients", 0.2, 0.5),
}
"""Finding -> its words, and the values from which it is weak and strong; of availability, which is
a share online, what is missing."""


@dataclass(frozen=True)
class Evidence:
    """What was measured.

    Parameters
    ----------
    differences: environment -> entrant -> difference to uniform FedAvg of each paired seed, percent
    points; NaN for a run that diverged. profiles: environment -> profile. control: name of uniform
    FedAvg. kinds: entrant -> title of its group.
    """

    differences: Mapping[str, Mapping[str, Sequence[float]]]
    profiles: Mapping[str, Profile]
    control: str
    kinds: Mapping[str, str]

    def without(self, environment: str) -> Evidence:
        """Return the evidence of all other environments."""
        left = {name: one for name, one in self.differences.items() if name != environment}
        return Evidence(left, self.profiles, self.control, self.kinds)

    def entrants(self, personal: bool) -> list[str]:
        """Return the entrants of a kind that have a number in every environment."""
        every = list(self.differences.values())
        named = [one for one in every[0] if all(one in there for there in every)] if every else []
        return [
            one
            for one in named
            if one != self.control and (self.kinds.get(one) == PERSONAL) == personal
        ]

    def gain(self, environment: str, entrant: str, level: float = 0.95) -> Interval:
        """Return an entrant's mean difference in an environment with its t interval over seeds."""
        return interval(
            spread([_finite(one) for one in self.differences[environment][entrant]]), level
        )


@dataclass(frozen=True)
class Advice:
    """The entrant that has been shown to help, in which environments, and its gain in each, the
    least first."""

    entrant: str
    gains: Mapping[str, Interval]


@dataclass(frozen=True)
class Proof:
    """What following advice gained over uniform FedAvg, in percent points.

    Parameters
    ----------
    by_environment: environment -> entrant advised (empty: none), its gain, and that of the entrant
    with the highest mean gain in all evidence, "always the winner". gain, winner: their means with
    95 % t intervals over environments.
    """

    by_environment: Mapping[str, tuple[str, float, float]]
    gain: Interval
    winner: Interval

    @property
    def holds(self) -> bool:
        """Whether advice beats always taking uniform FedAvg."""
        return self.gain.low > 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """How often advice helped, hurt and abstained."""
        gains = [gain for entrant, gain, _ in self.by_environment.values() if entrant]
        return (
            sum(gain > 0 for gain in gains),
            sum(gain <= 0 for gain in gains),
            len(self.by_environment) - len(gains),
        )


def factors(profile: Profile) -> frozenset[Factor]:
    """Return in what clients differ.

    >>> sorted(factors({"size_gini": 0.35, "label_divergence": 0.1, "availability": 0.4}))
    [('availability', True), ('size_gini', False)]
    """
    found = set()
    for name, (_, weak, strong) in FACTORS.items():
        value = profile.get(name, nan)
        value = 1.0 - value if name == "availability" else value
        if value >= weak:
            found.add((name, value >= strong))
    return frozenset(found)


def advise(profile: Profile, evidence: Evidence, personal: bool) -> Advice | None:
    """Return what has been shown to help clients that differ as these do; None: nothing has.

    Parameters
    ----------
    personal: whether each client may have a model of its own; else one model for all is wanted.
    """
    differ = factors(profile)
    known = {
        name: factors(evidence.profiles[name])
        for name in evidence.differences
        if name in evidence.profiles
    }
    like = [name for name, there in known.items() if there and there <= differ]
    entrants = evidence.entrants(personal)
    level = 1 - 0.05 / max(1, len(like) * len(entrants))
    found = []
    for entrant in entrants:
        gains = {name: evidence.gain(name, entrant, level) for name in like}
        if gains and min(one.low for one in gains.values()) > 0:
            found.append(Advice(entrant, dict(sorted(gains.items(), key=lambda one: one[1].mean))))
    return max(found, key=lambda one: sum(gain.mean for gain in one.gains.values()), default=None)


def proof(evidence: Evidence, outside: Evidence | None, personal: bool) -> Proof:
    """Return what following advice gains in each environment, left out of the evidence, and in each
    federation outside."""
    asked = [(name, evidence.without(name), evidence) for name in evidence.differences]
    asked += (
        [(name, evidence, outside) for name in outside.differences] if outside is not None else []
    )
    out: dict[str, tuple[str, float, float]] = {}
    for name, known, there in asked:
        found = advise(there.profiles[name], known, personal) if name in there.profiles else None
        winner = _winner(known, personal, there.differences[name])
        named = (
            found.entrant if found is not None and found.entrant in there.differences[name] else ""
        )
        gains = [there.gain(name, one).mean if one else 0.0 for one in (named, winner)]
        out[name] = (named, gains[0], gains[1])
    columns = [[row[i] for row in out.values()] for i in (1, 2)]
    return Proof(out, *(interval(spread(column)) for column in columns))


def _winner(evidence: Evidence, personal: bool, there: Mapping[str, Sequence[float]]) -> str:
    """Return the entrant of a kind with the highest mean gain over all environments; empty without
    any."""
    entrants = [one for one in evidence.entrants(personal) if one in there]
    mean = {
        one: sum(evidence.gain(name, one).mean for name in evidence.differences) for one in entrants
    }
    return max(mean, key=mean.__getitem__, default="")


def advice_lines(
    profile: Profile, evidence: Evidence | None = None, outside: Evidence | None = None
) -> list[str]:
    """Return in what clients differ and what has been shown to help; none before the league was
    run.

    Parameters
    ----------
    evidence, outside: the league's own by default.
    """
    if evidence is None:
        evidence = league_evidence()
        outside = outside or league_evidence(OUTSIDE)
    if evidence is None:
        return []
    words = [
        f"{FACTORS[name][0]} ({'strong' if large else 'weak'})"
        for name, large in sorted(factors(profile))
    ]
    lines = [f"These clients differ in: {', '.join(words)}."] if words else []
    said = [line for personal in KINDS for line in _of_kind(profile, evidence, outside, personal)]
    return [*lines, *(said or [UNSHOWN if words else ABSTAINED])]


def _of_kind(
    profile: Profile, evidence: Evidence, outside: Evidence | None, personal: bool
) -> list[str]:
    """Return the advice for a kind of model, with its proof; none where nothing was shown, or where
    following it does not pay."""
    found = advise(profile, evidence, personal)
    if found is None:
        return []
    shown = proof(evidence, outside, personal)
    if not shown.holds:
        return []
    where = "; ".join(f"{_points(gain)} in {name}" for name, gain in found.gains.items())
    helped, hurt, abstained = shown.counts
    return [
        f"With {KINDS[personal]}, {found.entrant} has gained over {evidence.control}: {where}.",
        f"Such advice, where it was not learned from: {_points(shown.gain)} in the mean; it helped "
        f"{helped} times, hurt {hurt} and abstained {abstained}.",
    ]


def _points(one: Interval) -> str:
    text = f"{one.mean:+.1f} points" + (
        f" [{one.low:+.1f}, {one.high:+.1f}]" if isfinite(one.low) else ""
    )
    return text.replace("-", "−")


def _finite(difference: float) -> float:
    """A run that diverged counts as far behind as accuracy can be."""
    return difference if isfinite(difference) else -100.0


@cache
def league_evidence(prefix: str = "") -> Evidence | None:
    """Return the evidence that comes with the package; None before the league was run.

    Parameters
    ----------
    prefix: of the files' names; :data:`OUTSIDE` for the federations that advice does not rest on.

    Raises
    ------
    DataError: a file is damaged.
    """
    from motley_papers.recipe import read

    folder = resources.files("motley_papers") / "league"
    files = [folder / f"{prefix}{name}" for name in (EVIDENCE, PROFILES)]
    if not all(file.is_file() for file in files):
        return None
    plan = read("league").named("league").ranks
    if plan is None:
        return None
    kinds = {entrant: title for title, names in plan.groups.items() for entrant in names}
    differences, profiles = (file.read_text(encoding="utf-8") for file in files)
    return read_evidence(differences, profiles, plan.against, kinds)


def read_evidence(
    differences: str, profiles: str, control: str, kinds: Mapping[str, str]
) -> Evidence:
    """Return evidence from the texts of :data:`EVIDENCE` and :data:`PROFILES`.

    Raises
    ------
    DataError: a text has other columns or words for numbers.
    """
    by_environment: dict[str, dict[str, list[float]]] = {}
    named: dict[str, dict[str, float]] = {}
    try:
        for row in csv_rows(differences):
            seeds = [float(one) for one in row["differences"].split()]
            by_environment.setdefault(row["environment"], {})[row["entrant"]] = seeds
        for row in csv_rows(profiles):
            named.setdefault(row["environment"], {})[row["finding"]] = float(row["value"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the league's {EVIDENCE} or {PROFILES} is damaged ({error}); restore it from the "
            "repository"
        ) from None
    return Evidence(by_environment, named, control, kinds)


def evidence_csv(differences: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return :data:`EVIDENCE` as text."""
    rows = [
        (environment, entrant, " ".join(f"{one:.4g}" for one in seeds))
        for environment, entrants in differences.items()
        for entrant, seeds in entrants.items()
    ]
    return csv_text([("environment", "entrant", "differences"), *rows])


def profiles_csv(profiles: Mapping[str, Profile]) -> str:
    """Return :data:`PROFILES` as text; what was not measured is left out."""
    rows = [
        (environment, finding, f"{value:.4g}")
        for environment, profile in profiles.items()
        for finding, value in profile.items()
        if not isnan(value)
    ]
    return csv_text([("environment", "finding", "value"), *rows])
