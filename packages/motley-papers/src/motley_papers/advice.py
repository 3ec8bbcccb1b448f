"""Advice from the league: which method has been shown to help where clients differ as these do, and
whether following it pays.

How clients differ is said in *factors*: what of a profile
(:meth:`motley_advice.heterogeneity.findings.Inspection.profile`) is large, each weak or strong. An
environment of the league speaks for a federation if it has the factor that it is named after, and
none that the federation lacks at this strength; where the factors of one include those of another,
the other is silent. In each environment one method of each kind of model was chosen with some seeds
and measured again with others. It is named to a federation if an environment that speaks for it
shows a sure gain over uniform FedAvg, and if it is not behind uniform FedAvg in another that
speaks. A gain is sure if the t test over the second seeds is left at 5 % after Holm's correction
over all environments of its kind of model. Methods that leave one model for all and methods that
give each client its own are never compared.

The proof: federations that no ranking holds are advised; what is gained over uniform FedAvg there,
with 0 where nothing is named, must have a mean whose 95 % t interval excludes zero. Advice whose
proof fails is not given. Each environment of the league is left out and advised from the others,
too (:func:`prove_left_out`); that is told, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from math import isfinite, isnan, nan
from statistics import fmean

from motley.core.csv_text import csv_rows, csv_text
from motley.core.errors import DataError
from motley.results.measures import Interval, interval, spread
from motley_papers.power import LEVEL, holm, p_value

CONTROL = "uniform FedAvg"
NAMED = "named.csv"
PROFILES = "profiles.csv"
PROOF = "proof.csv"
LEFT_OUT = "left_out.csv"
"""Files of the league's folder: what was named where and its gains, the profiles of its
environments, what following advice gained outside, and, in the same columns, in environments left
out."""
KINDS = {False: "one model for all", True: "a model for each client"}
"""Whether each client gets its own model -> the kind of model in words."""
ABSTAINED = "Clients hardly differ in what the league varies: start with uniform FedAvg."
UNSHOWN = (
    "Nothing was shown in the league for clients that differ so: start with uniform FedAvg, and "
    "compare."
)
UNPROVEN = (
    "What helped in the league where clients differ in some of this has not been shown to help in "
    "other federations: start with uniform FedAvg, and compare."
)
"""What is said where clients are alike, where nothing speaks for them, and where the proof of what
speaks does not hold."""
DIVERGED = -100.0
"""The gain, in points, of a run that diverged: as far behind as accuracy can be."""
Profile = Mapping[str, float]
"""Name of a finding -> its value, about 0 to 1; NaN where it was not measured."""
Factor = tuple[str, bool]
"""Name of a finding and whether it is strong."""
FACTORS = {
    "size_gini": ("unequal sizes", 0.3, 0.5),
    "label_divergence": ("skewed labels", 0.2, 0.55),
    "feature_shift": ("different features", 0.2, 0.5),
    "concept_shift": ("labels that mean different things", 0.1, 0.3),
    "label_noise": ("labels that are hard to predict or wrong", 0.1, 0.25),
    "speed_spread": ("unequal speeds", 0.25, 0.55),
    "link_spread": ("unequal links", 0.25, 0.55),
    "availability": ("absent clients", 0.2, 0.5),
}
"""Finding -> its words, and the values from which it is weak and strong; of availability, which is
a share online, what is missing."""
NAMED_AFTER = {
    "labels": "label_divergence",
    "sizes": "size_gini",
    "features": "feature_shift",
    "concepts": "concept_shift",
    "noise": "label_noise",
    "speeds": "speed_spread",
    "absences": "availability",
    "liars": "",
}
"""First word of an environment's name, or what follows its comma -> the finding that it must have
to speak; empty where no finding shows it, so that it never speaks."""


@dataclass(frozen=True)
class Gain:
    """What an entrant gained over uniform FedAvg in an environment.

    Parameters
    ----------
    points: difference in percent points of each paired seed.
    again: whether it was chosen there, and these are the seeds that measured it again; else they
    are those that chose.
    seconds, traffic: mean virtual time and traffic to the environment's target, divided by those of
    uniform FedAvg; NaN where a run of either missed it or the two are not told apart.
    """

    points: Sequence[float]
    again: bool = True
    seconds: float = nan
    traffic: float = nan

    @cached_property
    def interval(self) -> Interval:
        """Mean with its 95 % t interval over seeds."""
        return interval(spread([point if isfinite(point) else DIVERGED for point in self.points]))

    @cached_property
    def p(self) -> float:
        """The two-sided p value of the t test over seeds that nothing is gained; NaN for fewer than
        two."""
        return p_value(spread([point if isfinite(point) else DIVERGED for point in self.points]))


@dataclass(frozen=True)
class Advised:
    """A federation of the proof: the entrant that advice named (empty: none) and what it gained, in
    points, and that of always taking the entrant that gains most over the league."""

    federation: str
    entrant: str
    gain: float
    winner: str
    winners_gain: float


@dataclass(frozen=True)
class Proof:
    """What following advice gained over uniform FedAvg in federations that it does not know."""

    advised: Sequence[Advised] = ()

    @cached_property
    def gain(self) -> Interval:
        """Mean gain, in points, with its 95 % t interval over federations."""
        return interval(spread([advice.gain for advice in self.advised]))

    @cached_property
    def winners_gain(self) -> Interval:
        """The same of always taking the winner."""
        return interval(spread([advice.winners_gain for advice in self.advised]))

    @property
    def holds(self) -> bool:
        """Whether advice beats always taking uniform FedAvg."""
        return bool(self.advised) and self.gain.low > 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """How often advice helped, hurt and abstained."""
        gains = [advice.gain for advice in self.advised if advice.entrant]
        helped = sum(gain > 0 for gain in gains)
        return helped, len(gains) - helped, len(self.advised) - len(gains)


@dataclass(frozen=True)
class Evidence:
    """What was measured.

    Parameters
    ----------
    gains: whether personal -> environment -> entrant -> its gain.
    profiles: environment -> profile.
    proofs: whether personal -> its proof.
    """

    gains: Mapping[bool, Mapping[str, Mapping[str, Gain]]]
    profiles: Mapping[str, Profile]
    proofs: Mapping[bool, Proof] = field(default_factory=dict)

    @cached_property
    def _holm(self) -> Mapping[tuple[bool, str, str], float]:
        """(personal, environment, entrant) -> the p value of what was measured again, after Holm's
        correction over all environments of the kind of model."""
        out: dict[tuple[bool, str, str], float] = {}
        for personal, there in self.gains.items():
            again = [
                (environment, entrant)
                for environment, entrants in there.items()
                for entrant, gain in entrants.items()
                if gain.again
            ]
            after = holm([there[environment][entrant].p for environment, entrant in again])
            out |= {(personal, *cell): p for cell, p in zip(again, after, strict=True)}
        return out

    def sign(self, personal: bool, environment: str, entrant: str) -> int:
        """Return 1 where an entrant surely gains over uniform FedAvg, -1 where it surely loses,
        after the correction; else 0, and where it was not measured again."""
        if not self._holm.get((personal, environment, entrant), 1.0) <= LEVEL:
            return 0
        return 1 if self.gains[personal][environment][entrant].interval.mean > 0 else -1

    def speaking(self, differ: frozenset[Factor], personal: bool) -> list[str]:
        """Return the environments that speak for clients that differ so, for a kind of model."""
        differing = {
            name: factors(self.profiles[name])
            for name in self.gains.get(personal, {})
            if speaks(name, self.profiles[name]) and factors(self.profiles[name]) <= differ
        }
        return [
            name
            for name, there in differing.items()
            if not any(there < wider for wider in differing.values())
        ]


def factors(profile: Profile) -> frozenset[Factor]:
    """Return in what clients differ.

    >>> sorted(factors({"size_gini": 0.35, "label_divergence": 0.1, "availability": 0.4}))
    [('availability', True), ('size_gini', False)]
    """
    differing = set()
    for name, (_, weak, strong) in FACTORS.items():
        value = profile.get(name, nan)
        value = 1.0 - value if name == "availability" else value
        if value >= weak:
            differing.add((name, value >= strong))
    return frozenset(differing)


def speaks(environment: str, profile: Profile) -> bool:
    """Return whether clients of an environment differ, and in what it is named after.

    >>> speaks("noise-weak, labels", {"label_divergence": 0.6, "label_noise": 0.15})
    True
    >>> speaks("noise-weak, labels", {"label_divergence": 0.6, "label_noise": 0.05})
    False
    """
    there = {name for name, _ in factors(profile)}
    words = [word.strip().partition("-")[0] for word in environment.split(",")]
    wanted = {NAMED_AFTER[word] for word in words if word in NAMED_AFTER}
    return bool(there) and wanted <= there


def advise(
    profile: Profile, evidence: Evidence, personal: bool
) -> tuple[str, Mapping[str, Gain]] | None:
    """Return the entrant that has been shown to help clients that differ as these do, and its gains
    in the environments that speak for them, those that were measured again first; None: nothing
    has.

    Parameters
    ----------
    personal: whether each client may have a model of its own; else one model for all is wanted.
    """
    measured = evidence.gains.get(personal, {})
    speaking = evidence.speaking(factors(profile), personal)
    best: tuple[float, str] | None = None
    for name in speaking:
        for entrant, gain in measured[name].items():
            behind = any(
                measured[environment][entrant].interval.mean < 0
                for environment in speaking
                if entrant in measured[environment]
            )
            if evidence.sign(personal, name, entrant) > 0 and not behind:
                best = max(best or (0.0, ""), (gain.interval.low, entrant))
    if best is None:
        return None
    entrant = best[1]
    gains = {name: measured[name][entrant] for name in speaking if entrant in measured[name]}
    return entrant, dict(sorted(gains.items(), key=lambda entry: not entry[1].again))


def advice_lines(profile: Profile, evidence: Evidence | None = None) -> list[str]:
    """Return in what clients differ and what has been shown to help; none before the league was
    run.

    Parameters
    ----------
    evidence: the league's own by default.
    """
    evidence = league_evidence() if evidence is None else evidence
    if evidence is None:
        return []
    words = _words(factors(profile))
    lines = [f"These clients differ in: {words}."] if words else []
    sentences = [line for personal in KINDS for line in _of_kind(profile, evidence, personal)]
    if sentences:
        return [*lines, *sentences]
    if any(advise(profile, evidence, personal) for personal in KINDS):
        return [*lines, UNPROVEN]
    return [*lines, UNSHOWN if words else ABSTAINED]


def _words(differ: frozenset[Factor]) -> str:
    return ", ".join(
        f"{FACTORS[name][0]} ({'strong' if large else 'weak'})" for name, large in sorted(differ)
    )


def _of_kind(profile: Profile, evidence: Evidence, personal: bool) -> list[str]:
    """Return the advice for a kind of model, with its proof; none where nothing was shown, or where
    following it does not pay."""
    advice = advise(profile, evidence, personal)
    shown = evidence.proofs.get(personal, Proof())
    if advice is None or not shown.holds:
        return []
    entrant, gains = advice
    seen = "; ".join(
        f"{points(gain.interval)} in {name}{_cost(gain)}"
        for name, gain in gains.items()
        if gain.again
    )
    covered = frozenset().union(*(factors(evidence.profiles[name]) for name in gains))
    left = _words(factors(profile) - covered)
    more = f" Clients there did not differ in: {left}." if left else ""
    helped, hurt, abstained = shown.counts
    return [
        f"With {KINDS[personal]}, {entrant} has gained over {CONTROL}: {seen}.{more}",
        f"Such advice in federations that it was not learned from: {points(shown.gain)} in the "
        f"mean; it helped {helped} times, hurt {hurt} and abstained {abstained}.",
    ]


def _cost(gain: Gain) -> str:
    """Tell the time and traffic to the target beside uniform FedAvg's, where they are told
    apart."""
    costs = {"time": gain.seconds, "traffic": gain.traffic}
    shown = [
        f"{value:.2g} times its {quantity}" for quantity, value in costs.items() if not isnan(value)
    ]
    return f" ({', '.join(shown)} to one target)" if shown else ""


def points(gain: Interval) -> str:
    """Return a gain in points with its interval as text."""
    text = f"{gain.mean:+.1f} points" + (
        f" [{gain.low:+.1f}, {gain.high:+.1f}]" if isfinite(gain.low) else ""
    )
    return text.replace("-", "−")


def prove(
    evidence: Evidence,
    outside: Mapping[str, Mapping[str, Sequence[float]]],
    profiles: Mapping[str, Profile],
    winner: str,
    personal: bool,
) -> Proof:
    """Return what following advice gains in federations outside the league.

    Parameters
    ----------
    outside: federation -> entrant -> difference to uniform FedAvg of each seed, in points; those
    that advice names, and the winner.
    profiles: of these federations.
    winner: the entrant of this kind that gains most over the league.

    Raises
    ------
    KeyError: an entrant that advice names was not run in a federation.
    """
    out = []
    for name, there in outside.items():
        advice = advise(profiles[name], evidence, personal)
        entrant = "" if advice is None else advice[0]
        gain = fmean(there[entrant]) if entrant else 0.0
        out.append(
            Advised(
                federation=name,
                entrant=entrant,
                gain=gain,
                winner=winner,
                winners_gain=fmean(there[winner]),
            )
        )
    return Proof(out)


def prove_left_out(
    evidence: Evidence,
    measured: Mapping[str, Mapping[str, Sequence[float]]],
    winners: Mapping[str, str],
    personal: bool,
) -> Proof:
    """Return what following advice gains in each environment of the league, advised from the
    evidence of the others.

    What is named is scored by the seeds that measured it again where the environment left out chose
    it, too, and else by those that chose there. These had no say in what the others named. Yet they
    are not quite fresh: had they flattered it, it would sooner have been chosen, so such a score is
    low rather than high; and the same seed may draw the same splits and first weights where it was
    named, so luck may carry over. Neither are scores independent: their interval is too narrow.

    Parameters
    ----------
    measured: environment -> entrant -> difference to uniform FedAvg of each seed that scores it, in
    points.
    winners: environment -> the entrant of this kind that gains most over the others.

    Raises
    ------
    KeyError: an entrant that advice names was not run in the environment left out.
    """
    out: list[Advised] = []
    for left, there in measured.items():
        remaining = {
            name: entrants for name, entrants in evidence.gains[personal].items() if name != left
        }
        learned = Evidence({personal: remaining}, evidence.profiles)
        out += prove(
            evidence=learned,
            outside={left: there},
            profiles=evidence.profiles,
            winner=winners[left],
            personal=personal,
        ).advised
    return Proof(out)


@cache
def league_evidence() -> Evidence | None:
    """Return the evidence that comes with the package; None before the league was run.

    Raises
    ------
    DataError: a file is damaged.
    """
    folder = resources.files("motley_papers") / "league"
    files = [folder / name for name in (NAMED, PROFILES, PROOF)]
    if not all(file.is_file() for file in files):
        return None
    named, profiles, proof = (file.read_text(encoding="utf-8") for file in files)
    return read_evidence(named, profiles, proof)


def read_evidence(named: str, profiles: str, proof: str) -> Evidence:
    """Return evidence from the texts of :data:`NAMED`, :data:`PROFILES` and :data:`PROOF`.

    Raises
    ------
    DataError: a text has other columns or words for numbers.
    """
    gains: dict[bool, dict[str, dict[str, Gain]]] = {}
    findings: dict[str, dict[str, float]] = {}
    advised: dict[bool, list[Advised]] = {}
    kinds = {words: personal for personal, words in KINDS.items()}
    try:
        for row in csv_rows(named):
            there = gains.setdefault(kinds[row["model"]], {}).setdefault(row["environment"], {})
            there[row["entrant"]] = Gain(
                [float(point) for point in row["points"].split()],
                row["seeds"] == "again",
                float(row["seconds"]),
                float(row["traffic"]),
            )
        for row in csv_rows(profiles):
            findings.setdefault(row["environment"], {})[row["finding"]] = float(row["value"])
        for row in csv_rows(proof):
            advice = Advised(
                federation=row["federation"],
                entrant=row["entrant"],
                gain=float(row["gain"]),
                winner=row["winner"],
                winners_gain=float(row["winners_gain"]),
            )
            advised.setdefault(kinds[row["model"]], []).append(advice)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the league's {NAMED}, {PROFILES} or {PROOF} is damaged ({error}); restore it from "
            "the repository"
        ) from None
    return Evidence(gains, findings, {personal: Proof(rows) for personal, rows in advised.items()})


def evidence_texts(evidence: Evidence) -> dict[str, str]:
    """Return the files of evidence: name -> text. A finding that was not measured is left out."""
    named = [
        (
            environment,
            KINDS[personal],
            entrant,
            "again" if gain.again else "choice",
            " ".join(f"{point:.4g}" for point in gain.points),
            f"{gain.seconds:.4g}",
            f"{gain.traffic:.4g}",
        )
        for personal, there in evidence.gains.items()
        for environment, entrants in there.items()
        for entrant, gain in entrants.items()
    ]
    findings = [
        (environment, finding, f"{value:.4g}")
        for environment, profile in evidence.profiles.items()
        for finding, value in profile.items()
        if not isnan(value)
    ]
    advised = [
        (
            advice.federation,
            KINDS[personal],
            advice.entrant,
            f"{advice.gain:.4g}",
            advice.winner,
            f"{advice.winners_gain:.4g}",
        )
        for personal, proof in evidence.proofs.items()
        for advice in proof.advised
    ]
    heads = (
        ("environment", "model", "entrant", "seeds", "points", "seconds", "traffic"),
        ("environment", "finding", "value"),
        ("federation", "model", "entrant", "gain", "winner", "winners_gain"),
    )
    rows: tuple[Sequence[tuple[str, ...]], ...] = (named, findings, advised)
    names = (NAMED, PROFILES, PROOF)
    return {
        name: csv_text([head, *table]) for name, head, table in zip(names, heads, rows, strict=True)
    }
