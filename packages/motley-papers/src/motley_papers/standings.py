"""The standings of an exhibit with ranks: who leads, who beats the control, and what the ranks by
other measures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan

from motley.results.blocks import (
    DASH,
    Block,
    BulletList,
    Section,
    Table,
    TableCell,
    TableRow,
    Text,
    non_empty,
)
from motley.results.measures import Censored
from motley_papers.difference_map import difference_map, legend
from motley_papers.mean_ranks import Ranking, Scores, Standing, rank
from motley_papers.measuring import measure_of
from motley_papers.recipe import Exhibit, RankPlan

Values = Mapping[tuple[str, ...], Mapping[int, Censored]]
"""Cell -> seed -> value."""
_LOWER = (
    *("variance", "choosing_ms", "wall_s", "traffic_mb", "seconds", "loss", "drop"),
    *("mse", "mse_stable", "mse_log", "loss_rise", "diverged", "deviation", "optimum_distance"),
    *("paper_seconds", "paper_mb", "state_mb", "rounds_to_optimum", "wrong_labels", "noisy_picks"),
    *("slow_gap", "seldom_gap", "participation_std", "gini", "all_seen", "staleness", "idle"),
)


def lower_is_better(measure: str) -> bool:
    """Return whether less of a measure is better."""
    return measure in _LOWER or measure.endswith("_to_target")


def scores(exhibit: Exhibit, plan: RankPlan, values: Values) -> Scores:
    """Return a measure by (environment, entrant) and seed; a missed target is infinite."""
    axes = list(exhibit.axes)
    over = axes.index(plan.over)
    of = axes.index(plan.of)
    return {
        (cell[over], cell[of]): {
            seed: score.value if score.reached or isnan(score.value) else inf
            for seed, score in seeds.items()
        }
        for cell, seeds in values.items()
    }


def rankings(exhibit: Exhibit, plan: RankPlan, values: Mapping[str, Values]) -> dict[str, Ranking]:
    """Return the ranking by each measure that has numbers; the first is the headline.

    Parameters
    ----------
    values: measure -> its values.
    """
    return {
        name: rank(scores(exhibit, plan, of), plan.against, higher=not lower_is_better(name))
        for name, of in values.items()
        if of
    }


def standings(exhibit: Exhibit, plan: RankPlan, ranked: Mapping[str, Ranking]) -> list[Block]:
    """Return what a report shows of rankings: a summary, the map of differences, the table, and who
    is not in it."""
    first = next(iter(ranked), None)
    if first is None:
        return []
    ranking = ranked[first]
    excused = [f"{name}: {why}." for name, why in plan.excused.items()] + [
        f"{', '.join(place.get(plan.of, ['nobody']))} in "
        f"{', '.join(place.get(plan.over, ['any']))}: {why}."
        for why, place in exhibit.without.items()
    ]
    unranked = [
        f"{entrant}: no number in some of the environments." for entrant in ranking.unranked
    ]
    return list(
        non_empty(
            *(
                Text(sentence)
                for sentence in [
                    *summary(plan, ranking, first),
                    f"In the map, {legend(ranking)}",
                ]
            ),
            difference_map(ranking, plan.groups, measure_of(first).title),
            standings_table(plan, ranked) if ranking.standings else None,
            Section("Not ranked", [BulletList([*unranked, *excused])], folded=True)
            if unranked or excused
            else None,
        )
    )


def summary(plan: RankPlan, ranking: Ranking, measure: str) -> list[str]:
    """Return who leads, who is better and who is worse than the control, as sentences."""
    ranked = len(ranking.standings)
    if not ranked:
        return [
            f"No ranks yet: nothing beside {plan.against} has numbers in the same environments."
        ]
    lead = ranking.standings[0]
    best = (
        f"Ranked by {measure_of(measure).title} over {len(ranking.environments)} environments, "
        f"{lead.entrant} has the best mean rank, {lead.mean_rank:.1f} of {ranked}; its median "
        f"difference to {plan.against} is {_signed(lead.median)}."
    )
    surely = [
        standing.entrant
        for standing in ranking.standings
        if standing.sure_wins > standing.sure_losses
    ]
    corrected = (
        f"After Holm's correction for every cell, more environments are won than lost by: "
        f"{_some(surely)}."
    )
    return [best, corrected] if ranking.judged else [best]


def _some(names: Sequence[str], most: int = 12) -> str:
    if not names:
        return "none"
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if isfinite(value) else DASH


def standings_table(plan: RankPlan, ranked: Mapping[str, Ranking]) -> Table:
    """Return a row for each ranked entrant, the best first."""
    first, *further = ranked
    ranking = ranked[first]
    group = {entrant: title for title, names in plan.groups.items() for entrant in names}
    places = {
        name: {standing.entrant: standing.mean_rank for standing in ranked[name].standings}
        for name in further
    }
    heads = ["entrant", "kind", "mean rank", "median difference"]
    heads += ["wins, ties, losses", "after Holm"] if ranking.judged else []
    rows = [
        TableRow(
            standing.entrant,
            [
                TableCell(group[standing.entrant]),
                *_cells(standing, ranking.judged),
                *(_number(places[name].get(standing.entrant, float("nan"))) for name in further),
            ],
        )
        for standing in ranking.standings
    ]
    heads += [f"rank by {measure_of(name).title}" for name in further]
    return Table(heads, rows, _note(plan, ranking))


def _cells(standing: Standing, judged: bool) -> list[TableCell]:
    cells = [
        TableCell(f"{standing.mean_rank:.1f}", standing.mean_rank),
        TableCell(_signed(standing.median), standing.median),
    ]
    wins = [
        TableCell(
            f"{standing.wins}, {standing.ties}, {standing.losses}", standing.wins - standing.losses
        ),
        TableCell(
            f"{standing.sure_wins}, {standing.sure_losses}",
            standing.sure_wins - standing.sure_losses,
        ),
    ]
    return [*cells, *(wins if judged else [])]


def _number(value: float) -> TableCell:
    return TableCell(DASH if isnan(value) else f"{value:.1f}", value)


def _note(plan: RankPlan, ranking: Ranking) -> str:
    if ranking.judged:
        wins = (
            "Wins and losses: environments in which the paired 95 % t interval over seeds excludes "
            "zero, then those left after Holm's correction for every cell. "
        )
    else:
        wins = ""
    return (
        f"Ranks are of mean differences to {plan.against}, paired by seed; 1 is the best, and a "
        f"run that diverged is last. {wins}Environments that share data and factors are no sample "
        "of the world, so that no test is made over them."
    )
