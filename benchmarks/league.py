"""Write what ``motley inspect`` advises from: ``evidence.csv`` and ``profiles.csv`` of the recipe
``league``, with the proof.

::

    motley reproduce league --jobs 2 --keep  # the runs
    python benchmarks/league.py  # differences, profiles of the environments, and the proof
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from motley_papers.advice import (
    EVIDENCE,
    KINDS,
    OUTSIDE,
    PROFILES,
    Proof,
    evidence_csv,
    league_evidence,
    profiles_csv,
    proof,
)
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.recipe import Cell, Exhibit, RankPlan, read

STANDS = ("even", "labels-weak", "labels-strong", "sizes-weak", "sizes-strong", "writers")
"""Environments on which advice may rest: those that differ in what they are named after. All others
have labels of Dirichlet 0.5 beside it, so that what helps against skewed labels looks as if it
helped against noise or speed; the proof advises them."""
FOLDER = Path(__file__).resolve().parents[1] / "motley" / "recipes" / "league"


def main() -> None:
    """Write the evidence of one scale."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", default="small")
    write_evidence(parser.parse_args().scale)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_evidence(scale: str) -> None:
    """Write the differences and profiles that advice looks at, from the numbers in the recipe's
    folder; print the proofs."""
    rows = read_rows(FOLDER / "measured" / scale / MEASURED)
    stored = {
        name: differences_of(rows, read("league").named(name)) for name in ("league", "outside")
    }
    rests = {name: one for name, one in stored["league"].items() if name in STANDS}
    others = {name: one for name, one in stored["league"].items() if name not in STANDS} | stored[
        "outside"
    ]
    profiles = _profiles(scale)
    for prefix, differences in (("", rests), (OUTSIDE, others)):
        (FOLDER / f"{prefix}{EVIDENCE}").write_text(evidence_csv(differences), encoding="utf-8")
        known = {name: profiles[name] for name in differences}
        (FOLDER / f"{prefix}{PROFILES}").write_text(profiles_csv(known), encoding="utf-8")
    league_evidence.cache_clear()
    evidence = league_evidence()
    assert evidence is not None
    for personal, words in KINDS.items():
        say(f"{words}:")
        tell(proof(evidence, league_evidence(OUTSIDE), personal))


def tell(shown: Proof) -> None:
    """Print a proof."""
    for name, (entrant, gain, winner) in shown.by_environment.items():
        say(
            f"{name}: {entrant or 'nothing advised'}; gain {gain:+.2f}, of always the winner "
            f"{winner:+.2f}"
        )
    for words, one in (("advice", shown.gain), ("always the winner", shown.winner)):
        say(f"{words}: {one.mean:+.2f} [{one.low:+.2f}, {one.high:+.2f}] over uniform FedAvg")
    say(
        "helped {}, hurt {}, abstained {}: ".format(*shown.counts)
        + ("holds" if shown.holds else "does not hold")
    )


def differences_of(rows: list[MeasuredRow], exhibit: Exhibit) -> dict[str, dict[str, list[float]]]:
    """Return environment -> entrant -> difference to the control of each seed that both have."""
    assert exhibit.ranks is not None
    values: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        if row.exhibit == exhibit.name and row.measure == exhibit.measures[0]:
            values.setdefault(tuple(row.cell.split(" / ")), {})[row.seed] = float(row.value)
    out: dict[str, dict[str, list[float]]] = {}
    for (environment, entrant), ours in values.items():
        theirs = values[environment, exhibit.ranks.against]
        out.setdefault(environment, {})[entrant] = [
            ours[s] - theirs[s] for s in sorted(ours) if s in theirs
        ]
    return out


def _profiles(scale: str) -> dict[str, Mapping[str, float]]:
    """Return the profiles that are stored, and those of environments that have none yet."""
    stored = [league_evidence(prefix) for prefix in ("", OUTSIDE)]
    known = {
        name: one for each in stored if each is not None for name, one in each.profiles.items()
    }
    for title in ("league", "outside"):
        exhibit = read("league").named(title)
        assert exhibit.ranks is not None
        for environment in exhibit.axes[exhibit.ranks.over]:
            if environment not in known:
                known[environment] = profile_of(exhibit, exhibit.ranks, environment, scale)
    return known


def profile_of(
    exhibit: Exhibit, plan: RankPlan, environment: str, scale: str
) -> Mapping[str, float]:
    """Return how the clients of an environment differ, as ``motley inspect`` measures it."""
    import motley

    place = {plan.over: environment, plan.of: plan.against}
    cell = Cell(exhibit, tuple(place[axis] for axis in exhibit.axes))
    say(f"inspecting {environment}")
    inspected = motley.inspect(read("league").experiment(cell, scale, 0))  # type: ignore[arg-type]
    return inspected.federations[0].inspection.profile()


if __name__ == "__main__":
    main()
