"""Make the parts of the README: what there is and the numbers behind the trust; and the table
beside other frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cells import table
from from_measurements import csv_table, measured
from from_peers import TITLES
from from_recipes import Tested, headline, never_decidable

from motley.experiments import registry
from motley_papers.recipe_claim import KINDS, Kind, Protocol
from motley_papers.verdict_tables import words_of

__all__ = ["beside_frameworks", "contents", "trust_in_short"]

WORLD = (
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "device",
    "network",
    "availability",
    "capacity",
    "failures",
    "dishonest",
)
"""Kinds of component that make clients differ."""
COUNTED = {
    "selection rules": ("selector",),
    "methods of learning": ("algorithm",),
    "losses": ("loss",),
    "aggregators": ("aggregator",),
    "compressors": ("compressor",),
    "models of data, labels, speed, links, absence and lies": WORLD,
    "rules when the server steps": ("synchrony",),
    "tasks": ("task",),
    "models": ("model",),
    "engines": ("engine",),
}
"""Words for components -> their kinds."""


def _built(kinds: Iterable[str]) -> list[str]:
    """Return the names of the components of some kinds; ``none`` is no component."""
    return [
        row["name"] for kind in kinds for row in registry.listing(kind) if row["name"] != "none"
    ]


def contents() -> str:
    """Count what there is, in a sentence."""
    counts = [f"{len(_built(kinds))} {words}" for words, kinds in COUNTED.items()]
    return f"Motley has {', '.join(counts[:-1])} and {counts[-1]}."


def trust_in_short() -> str:
    """Put the numbers behind the trust beside the commands that repeat them."""
    chaos = measured("chaos")
    hostile = measured("hostile")
    fuzzed = measured("fuzz_models")
    changes = [count for kind in hostile["changes"].values() for count in kind.items()]
    believed = sum(count for verdict, count in changes if verdict == "believed")
    found = headline()
    theirs, ours = (
        [one for (own, _), claims in found.items() if own == whose for one in claims]
        for whose in (True, False)
    )
    said = _verdicts_in_short(found)
    papers = {one.found.name for one in theirs} - {"chapter"}
    rows = [
        (
            f"{chaos['kills']:,} kills of {chaos['combinations']} random experiments, resumed",
            f"{chaos['mismatches']} bits differ, {chaos['leftovers']} files or processes left "
            "behind",
            "`make test-chaos`",
        ),
        (
            f"{fuzzed['cases']:,} random PyTorch models and losses beside plain PyTorch",
            f"{fuzzed['faults']} differed without a sentence"
            + ("; mended since" if fuzzed["mended"] == fuzzed["faults"] > 0 else ""),
            "`scripts/fuzz-models`",
        ),
        (
            f"{sum(count for _, count in changes):,} damaged files, links and foreign files in "
            "runs' folders",
            f"{believed} believed",
            "`make test-hostile`",
        ),
        (
            f"{len(theirs)} claims of {len(papers)} papers and a chapter, tested here; "
            f"{len(ours)} of our own apart",
            f"after correction for their number: {said} ([all of them](docs/verdicts.md))",
            "`motley reproduce`",
        ),
    ]
    return table(("what was tried", "what came of it", "again"), rows)


def _verdicts_in_short(found: Mapping[tuple[bool, Kind], Sequence[Tested]]) -> str:
    """Count the verdicts on the papers' own claims by how much of the protocol tested them, and say
    of the whole protocol which of them so many seeds could not have decided."""
    parts = []
    for kind in KINDS:
        claims = found.get((True, kind), [])
        if claims:
            words = words_of(one.verdict for one in claims)
            more = _undecided(claims) if kind == "whole" else ""
            parts.append(f"{Protocol.read(kind).words}: {words}{more}")
    against = [
        one
        for kind in KINDS
        for one in found.get((True, kind), [])
        if kind != "theory" and one.verdict == "contradicted"
    ]
    none = "no experiment of a paper is contradicted"
    return "; ".join([*parts, f"{len(against)} of them contradicted" if against else none])


def _undecided(claims: Sequence[Tested]) -> str:
    """Say with how many seeds claims are undecided, and how many of them that could not decide."""
    pairs = {row["pairs"] for one in claims if one.verdict == "undecided" for row in one.rows}
    pairs -= {"0"}  # a target that no pair of runs reached
    if not pairs:
        return ""
    never = len(never_decidable(claims))
    seeds = " or ".join(sorted(pairs, key=int))
    return f" with {seeds} seeds ({never} could not be decided)"


def beside_frameworks() -> str:
    """Say what Motley and four other frameworks are made for, and where each is ahead, from
    ``docs/beside-frameworks.csv``."""
    versions = measured("peers")["versions"]
    return csv_table("beside-frameworks").format(
        **{peer: f"{TITLES[peer]} {versions[peer]}" for peer in ("flower", "pfl", "flgo")},
        **{kind: len(registry.listing(kind)) for kind in ("selector", "algorithm")},
    )
