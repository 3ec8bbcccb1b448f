"""Make the parts of the pages that come from the recipes and their measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from statistics import median
from typing import NamedTuple

from cells import listed, prose, table

from motley.results.measures import interval, spread
from motley_papers import exhibit_pictures, measuring, recipe
from motley_papers.claim_sentences import what_came_of_it
from motley_papers.earlier import MeasuredRow
from motley_papers.recipe_claim import KINDS, Kind, Protocol
from motley_papers.telling import ScaleNumbers, fill, kept_numbers
from motley_papers.verdict_tables import ORDER, sizes_of, words_of

__all__ = [
    "counted",
    "headline",
    "never_decidable",
    "printed",
    "recipe_words",
    "recipes",
    "results",
    "verdicts",
]


_read = cache(recipe.read)


@cache
def _kept(name: str, scale: str) -> ScaleNumbers | None:
    """Return what is kept of a recipe's measurements; several parts of the pages tell of it, and
    reading takes longer than telling."""
    return kept_numbers(_read(name), scale)


def recipes() -> str:
    """List the recipes."""
    rows = []
    for name in recipe.names():
        found = _read(name)
        minutes = found.scale["small"].minutes
        small, paper = (
            ", ".join(f"`{source}` ({mb:.0f} MB)" for source, mb in found.data(scale).items())
            for scale in ("small", "paper")
        )
        row = {
            "name": name,
            "title": prose(found.title),
            "exhibits": "; ".join(exhibit.name for exhibit in found.exhibit),
            "minutes": f"{minutes:g}" if minutes else "",
            "data": (small or "none") + ("" if small == paper else f"; `paper`: {paper}"),
            "claims": found.claim,
        }
        rows.append(row)
    columns = {
        "recipe": "`{name}`",
        "paper": "{title}",
        "tables and figures": "{exhibits}",
        "minutes at `small`": "{minutes}",
        "data to [get](data.md)": "{data}",
        "claims": "{claims:count}",
    }
    return listed(rows, columns)


def results() -> str:
    """Tell the result of each recipe, with the numbers of its cells, and count its verdicts."""
    parts = []
    for name in recipe.names():
        found = _read(name)
        told = [
            fill(found, partial(_kept, found.name)).strip(),
            *(_counts(found, scale) for scale in ("small", "paper")),
        ]
        parts.append(
            "\n\n".join(
                [f"### {prose(found.title)}", *(list(filter(None, told)) or ["Not measured yet."])]
            )
        )
    return "\n\n".join(parts)


class Tested(NamedTuple):
    """A claim that was tested: its recipe, scale and numbers, whose it is, the kind of its
    protocol, its verdict after the correction, the size, whether so many pairs resolve what is
    printed (``yes``, ``no``, or empty); its rows."""

    found: recipe.Recipe
    scale: str
    at: ScaleNumbers
    theirs: bool
    kind: Kind
    verdict: str
    size: str
    decidable: str
    rows: list[Mapping[str, str]]


def tested_claims(found: recipe.Recipe, scale: str) -> list[Tested]:
    """Return the claims of a recipe that were tested at a scale."""
    at = _kept(found.name, scale)
    if at is None:
        return []
    out = dict[str, list[Mapping[str, str]]]()
    for row in at.verdicts:
        out.setdefault(row["claim"], []).append(row)
    made = [(rows[0], rows) for rows in out.values() if rows[0]["verdict"] != "not tested"]
    return [
        Tested(
            found,
            scale,
            at,
            bool(one["source"]),
            Protocol.kind_of(one["protocol"]),
            one["verdict"],
            one["size"],
            one["decidable"],
            rows,
        )
        for one, rows in made
    ]


def all_tested() -> list[Tested]:
    """Return the claims of all recipes that were tested. One that two scales test on the same kind
    of protocol is there once: at the scale that made more of its comparisons, else at ``paper``."""
    out = []
    for name in recipe.names():
        found = _read(name)
        kept: dict[tuple[str, str], Tested] = {}
        for one in (one for scale in ("paper", "small") for one in tested_claims(found, scale)):
            key = one.rows[0]["claim"], one.kind
            if key not in kept or _made(one) > _made(kept[key]):
                kept[key] = one
        out += kept.values()
    return out


def _made(one: Tested) -> int:
    return sum(row["sign"] != "not tested" for row in one.rows)


def headline() -> dict[tuple[bool, Kind], list[Tested]]:
    """Return the tested claims by whose they are and how much of the protocol tested them."""
    out: dict[tuple[bool, Kind], list[Tested]] = {}
    for one in all_tested():
        out.setdefault((one.theirs, one.kind), []).append(one)
    return out


def counted() -> str:
    """Count the verdicts of all recipes by whose the claims are and how much of the paper's
    protocol tested them."""
    found = headline()
    rows = []
    for theirs, kind in ((theirs, kind) for theirs in (True, False) for kind in KINDS):
        claims = found.get((theirs, kind), [])
        sizes = [one.size for one in claims if one.size]
        cells = (_count(claims, word) for word in ORDER[:-1])
        size = sizes_of(sizes) if sizes else "–"
        whose = "the papers' own" if theirs else "ours"
        rows += (
            [(whose, Protocol.read(kind).words, str(len(claims)), *cells, size)] if claims else []
        )
    return table(("claims", "tested on", "number", *ORDER[:-1], "printed size"), rows)


def _count(claims: Sequence[Tested], word: str) -> str:
    """Count a verdict; of the undecided in brackets those that so many pairs could not decide."""
    number = sum(one.verdict == word for one in claims)
    never = len(never_decidable(claims)) if word == "undecided" else 0
    return f"{number} ({never})" if never else str(number)


def never_decidable(claims: Sequence[Tested]) -> list[Tested]:
    """Return the undecided claims whose printed difference, or else the largest that there can be,
    is smaller than what so many pairs resolve."""
    return [one for one in claims if one.verdict == "undecided" and one.decidable == "no"]


def _counts(found: recipe.Recipe, scale: str) -> str:
    """Count the verdicts on a recipe's claims that were tested at a scale, the paper's own and ours
    apart."""
    tested = tested_claims(found, scale)
    said = []
    for theirs, whose in ((True, "the paper's own claims"), (False, "claims of ours")):
        for kind in KINDS:
            words = [one.verdict for one in tested if one.theirs == theirs and one.kind == kind]
            said += (
                [f"of {len(words)} {whose} ({Protocol.read(kind).words}) {words_of(words)}"]
                if words
                else []
            )
    where = "[verdicts](verdicts.md)"
    return (
        f"`{found.name}` at `{scale}`, after the correction: {'; '.join(said)}. All {where}."
        if tested
        else ""
    )


def verdicts() -> str:
    """List the claims that were tested, a row each, as :func:`counted` counts them, from
    ``benchmarks/measured/recipes/*/*/verdicts.csv``."""
    return table(_HEADS, [_claim_row(one) for one in all_tested()])


_HEADS = (
    *("recipe", "scale", "whose", "claim", "where", "tested on"),
    *("what came of it", "verdict", "alone"),
)


def _claim_row(one: Tested) -> tuple[str, ...]:
    found, first = one.found, one.rows[0]
    claim = next(claim for claim in found.claim if claim.text == first["claim"])
    return (
        f"`{found.name}`",
        one.scale,
        "the paper's own" if one.theirs else "ours",
        prose(first["claim"]),
        first["source"] or "–",
        first["protocol"],
        what_came_of_it(claim, one.rows, one.at.missed(claim, found.named(claim.exhibit))),
        first["verdict"],
        first["alone"],
    )


class PrintedFigure(NamedTuple):
    """A figure of a paper's table, and the values of those seeds that measured it nearest to the
    paper's protocol: which kind that is, None where nothing was measured, and what is smaller or
    other than in the paper; no values where one is only a bound, for a target was missed."""

    value: float
    kind: Kind | None
    what: str
    seeds: Sequence[float]

    @property
    def compared(self) -> bool:
        """Whether two seeds or more measured it by the whole protocol."""
        return self.kind == "whole" and len(self.seeds) > 1

    @property
    def inside(self) -> bool:
        """Whether the printed value lies inside the 95 % interval of the seeds' mean."""
        found = interval(spread(self.seeds))
        return found.low <= self.value <= found.high

    @property
    def half_width(self) -> float:
        """Half of that interval, as a share of the printed value."""
        found = interval(spread(self.seeds))
        return (found.high - found.mean) / abs(self.value)


def printed_figures(found: recipe.Recipe) -> dict[str, list[PrintedFigure]]:
    """Return the printed figures of a recipe by exhibit."""
    at = {scale: _kept(found.name, scale) for scale in ("paper", "small")}
    rows: dict[tuple[str, str, str, str], list[MeasuredRow]] = {}
    for scale, numbers in at.items():
        for row in numbers.measured if numbers is not None else ():
            rows.setdefault((scale, row.exhibit, row.cell, row.measure), []).append(row)
    out: dict[str, list[PrintedFigure]] = {}
    for (name, cell, measure), (value, _) in found.expected.items():
        exhibit = found.named(name)
        ways = [
            (found.protocol(exhibit, scale), kept)
            for scale in at
            if (kept := rows.get((scale, name, cell, measure)))
        ]
        nothing: tuple[Protocol | None, list[MeasuredRow]] = (None, [])
        way, best = min(ways, key=lambda way: KINDS.index(way[0].kind), default=nothing)
        exact = all(row.exact == "true" for row in best)
        seeds = [float(row.value) for row in best] if exact else []
        kind, what = (None, "") if way is None else way
        out.setdefault(name, []).append(PrintedFigure(value, kind, what, seeds))
    return out


def printed() -> str:
    """Count the printed figures of every table and figure of the papers: how many were measured,
    by how much of the protocol, and how many lie inside the interval of what was measured."""
    rows = []
    everything: list[PrintedFigure] = []
    for name in recipe.names():
        for exhibit, figures in printed_figures(recipe.read(name)).items():
            everything += figures
            rows.append((f"`{name}`", exhibit, *_counted_figures(figures)))
    return table(
        (
            *("recipe", "exhibit", "printed", "whole protocol", "reduced"),
            *("other data", "not measured", "inside the interval", "reduced or other"),
        ),
        [*rows, ("all", "", *_counted_figures(everything)[:-1], "")],
    )


def _counted_figures(figures: Sequence[PrintedFigure]) -> tuple[str, ...]:
    kinds = [one.kind for one in figures]
    compared = [one for one in figures if one.compared]
    inside = "–"
    if compared:
        half = median(one.half_width for one in compared)
        inside = f"{sum(one.inside for one in compared)} of {len(compared)} (± {half:.0%})"
    counts = [kinds.count(kind) for kind in ("whole", "reduced", "other data", None)]
    whats = dict.fromkeys(one.what for one in figures if one.what)
    return (str(len(figures)), *map(str, counts), inside, "; ".join(whats) or "–")


def recipe_words() -> str:
    """List the measures of recipes in a table, and the pictures below it."""
    rows = [(f"`{name}`", measure.title) for name, measure in measuring.MEASURES.items()]
    rows += [
        ("`note.NAME.early`, `.late`, `.mean`, `.least`", "what a rule noted under NAME"),
        ("`domain.NAME`", "clients of one appearance"),
    ]
    drawn = ", ".join(f"`{name}`" for name in exhibit_pictures.PICTURES)
    by_measure = ", ".join(f"`{name}:`" for name in exhibit_pictures.BY_MEASURE)
    return (
        f"{table(('measure', 'is'), rows)}\n\n"
        f"Pictures: {drawn}; an axis after `curves:`, a measure after {by_measure}."
    )
