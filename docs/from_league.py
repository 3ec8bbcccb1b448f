"""Make the parts of the page about the league, from its recipe and what was measured with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cells import ROOT, code, prose, table

from motley.results.blocks import Picture
from motley.results.measures import Censored
from motley_papers.advice import KINDS, OUTSIDE, Proof, league_evidence, proof
from motley_papers.difference_map import difference_map
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.measuring import measure_of
from motley_papers.ranks import Ranking
from motley_papers.recipe import Exhibit, RankPlan, Recipe, read
from motley_papers.standings import rankings, standings_table, summary

__all__ = [
    "league_advice",
    "league_entrants",
    "league_environments",
    "league_standings",
    "league_tuned",
    "pictures",
]

NOT_RUN = "Not run yet."
_PICTURE = ROOT / "docs" / "assets" / "league.svg"


@cache
def _league() -> tuple[Recipe, Exhibit, RankPlan]:
    recipe = read("league")
    exhibit = recipe.named("league")
    assert exhibit.ranks is not None
    return recipe, exhibit, exhibit.ranks


def league_environments() -> str:
    """List the environments with what makes each of them."""
    _, exhibit, plan = _league()
    rows = [(name, _settings(settings)) for name, settings in exhibit.axes[plan.over].items()]
    return table(("environment", "settings beside the common ones"), rows)


def _settings(settings: dict[str, Any]) -> str:
    known = {
        key: value
        for key, value in settings.items()
        if key not in ("target", "stop", "population", "cohort", "split.server")
    }
    return ", ".join(f"`{key} = {code(value)}`" for key, value in known.items()) or "-"


def league_entrants() -> str:
    """List the entrants by group, and who is excused, with the reason."""
    _, _, plan = _league()
    groups = [
        (title, ", ".join(f"`{name}`" for name in names)) for title, names in plan.groups.items()
    ]
    excused = [
        f"- `{name.partition('.')[2]}` ({name.partition('.')[0]}): {prose(why)}."
        for name, why in plan.excused.items()
    ]
    return "\n\n".join([table(("group", "entrants"), groups), "Not entrants:", "\n".join(excused)])


def league_tuned() -> str:
    """List what tuning chose."""
    recipe, _, plan = _league()
    path = recipe.folder / "tuned.toml" if recipe.folder is not None else None
    if path is None or not path.is_file():
        return NOT_RUN
    from motley.experiments import document

    chosen = document.parse(path.read_text(encoding="utf-8"), "tuned.toml").get(plan.of, {})
    rows = [
        (f"`{name}`", ", ".join(f"`{key} = {code(value)}`" for key, value in one.items()))
        for name, one in chosen.items()
    ]
    return table(("entrant", "chosen"), rows)


def league_advice() -> str:
    """Tell what advice has gained where it was not learned from."""
    evidence = league_evidence()
    outside = league_evidence(OUTSIDE)
    if evidence is None:
        return NOT_RUN
    return "\n\n".join(
        _proved(proof(evidence, outside, personal), words) for personal, words in KINDS.items()
    )


def _proved(shown: Proof, words: str) -> str:
    """Tell a proof in words and as a table."""
    helped, hurt, abstained = shown.counts
    gain, winner = (
        f"{one.mean:+.2f} points [{one.low:+.2f}, {one.high:+.2f}]"
        for one in (shown.gain, shown.winner)
    )
    verdict = "so it is given" if shown.holds else "so it is not given"
    said = (
        f"With {words}, advice helped {helped} times, hurt {hurt} and abstained {abstained}: "
        f"{gain} over uniform FedAvg in the mean, {verdict}. Always taking the winner of the "
        f"evidence gains {winner}, and is worse than uniform FedAvg in "
        f"{sum(row[2] < 0 for row in shown.by_environment.values())} of "
        f"{len(shown.by_environment)}."
    )
    rows = [
        (name, f"`{one}`" if one else "-", f"{gain:+.1f}", f"{best:+.1f}")
        for name, (one, gain, best) in shown.by_environment.items()
    ]
    heads = (
        "environment",
        "advised",
        "gain over uniform FedAvg, points",
        "gain of always the winner",
    )
    return (said + "\n\n" + table(heads, rows)).replace("-0.0 ", "+0.0 ")


def league_standings() -> str:
    """Tell the standings with their picture, or that nothing was measured yet."""
    _, _, plan = _league()
    ranked = _ranked()
    first = next(iter(ranked), None)
    if first is None:
        return NOT_RUN
    shown = standings_table(plan, ranked)
    rows = [(f"`{row.label}`", *(cell.whole for cell in row.cells)) for row in shown.rows]
    words = summary(plan, ranked[first], first)
    about = (
        f"![{measure_of(first).title}: difference of every entrant to {plan.against} in every "
        f"environment](assets/{_PICTURE.name})"
    )
    return "\n\n".join([*_how_many(), *words, about, table(shown.heads, rows), shown.note])


def _how_many() -> list[str]:
    """Say how many of the planned runs there are, unless it is all of them."""
    recipe, exhibit, _ = _league()
    planned = len(exhibit.cells("small")) * len(recipe.seeds(exhibit, "small"))
    seeds = Counter(row.seed for row in _rows() if row.measure == exhibit.measures[0])
    if seeds.total() >= planned:
        return []
    by_seed = ", ".join(f"{count:,} with seed {seed}" for seed, count in sorted(seeds.items()))
    return [f"**Not whole yet:** {seeds.total():,} of {planned:,} runs, {by_seed}."]


@cache
def _rows() -> list[MeasuredRow]:
    """Return the league's numbers at ``small``."""
    recipe, exhibit, _ = _league()
    rows = read_rows((recipe.folder or Path()) / "measured" / "small" / MEASURED)
    return [row for row in rows if row.exhibit == exhibit.name and row.measure in exhibit.measures]


@cache
def _ranked() -> dict[str, Ranking]:
    """Return the rankings of what was measured at ``small``, by measure."""
    _, exhibit, plan = _league()
    values: dict[str, dict[tuple[str, ...], dict[int, Censored]]] = {
        name: {} for name in exhibit.measures
    }
    for row in _rows():
        cell = values[row.measure].setdefault(tuple(row.cell.split(" / ")), {})
        cell[row.seed] = Censored(float(row.value), row.exact == "true")
    return rankings(exhibit, plan, values)


def pictures() -> dict[Path, Callable[[], str]]:
    """Return the file of the map of differences and what draws it; nothing before something was
    measured."""
    return {_PICTURE: _drawn} if _ranked() else {}


def _drawn() -> str:
    _, _, plan = _league()
    first, found = next(iter(_ranked().items()))
    picture: Picture | None = difference_map(found, plan.groups, measure_of(first).title)
    return "" if picture is None else re.sub(r"\s+$", "", picture.svg) + "\n"
