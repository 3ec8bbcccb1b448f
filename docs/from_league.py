"""Make the parts of the pages about the league, from its recipe and what was measured with it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import isfinite, isnan
from pathlib import Path
from statistics import fmean, median
from typing import Any

from cells import ROOT, code, prose, signed, table

from motley.experiments import document
from motley.results.blocks import Picture
from motley.results.measures import Censored, Interval, interval, spread
from motley_papers.advice import (
    KINDS,
    LEFT_OUT,
    NAMED,
    PROFILES,
    Evidence,
    Gain,
    Proof,
    evidence_texts,
    league_evidence,
    read_evidence,
)
from motley_papers.crossing import CROSS, Crossing, crossings
from motley_papers.difference_map import difference_map
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.mean_ranks import Ranking
from motley_papers.measuring import measure_of
from motley_papers.naming import differences
from motley_papers.power import LEVEL, holm, resolvable
from motley_papers.recipe import Exhibit, RankPlan, Recipe, Scale, read
from motley_papers.standings import rankings

__all__ = [
    "league_advice",
    "league_after_fine_tuning",
    "league_cnn",
    "league_controls",
    "league_crossed",
    "league_entrants",
    "league_environments",
    "league_first",
    "league_named",
    "league_parts",
    "league_selectors",
    "league_standings",
    "league_tuned",
    "pictures",
    "start_here",
    "which_method",
    "which_method_data",
]

NOT_RUN = "Not run yet."
_PICTURE = ROOT / "docs" / "assets" / "league.svg"
_SCALE: Scale = "small"
_WORTH = 2.5
"""Points from which a gain is told on the first screen."""
_QUICK = 0.6
"""Share of uniform FedAvg's time to the target up to which a smaller gain is told, too."""
_PHRASES = {
    "labels": "labels",
    "sizes": "sizes",
    "noise": "wrong labels",
    "features": "features",
    "concepts": "what labels mean",
    "speeds": "speed of devices and links",
    "absences": "absences",
    "liars": "lies about themselves",
    "even": "nothing",
    "writers": "writers (FEMNIST)",
    "speakers": "speakers (Shakespeare)",
    "patients": "groups of patients",
}
"""First word of an environment's name -> in what its clients differ."""
_ELSEWHERE = ("on MNIST", "on a table")
"""The exhibits that have the rows of the first screen on other data."""
_ALONE = "fine-tuning alone"
_TUNED = "FedAvg, fine-tuned"
"""The exhibit of plain fine-tuning with the seeds that measure again, and its entrant."""
_KINDS = {False: "One model for all", True: "A model for each client"}


@cache
def _recipe() -> Recipe:
    return read("league")


def _plan(exhibit: str) -> tuple[Exhibit, RankPlan]:
    found = _recipe().named(exhibit)
    assert found.ranks is not None
    return found, found.ranks


def _seeds() -> list[int]:
    """Return the seeds that choose."""
    return _recipe().scale[_SCALE].seeds or []


@cache
def _all_rows() -> list[MeasuredRow]:
    """Return the league's numbers."""
    return read_rows((_recipe().measured or Path()) / _SCALE / MEASURED)


@cache
def _rows() -> list[MeasuredRow]:
    """Return the league's numbers, of the seeds that choose."""
    return [row for row in _all_rows() if row.seed in _seeds()]


@cache
def _gains(name: str) -> dict[str, dict[str, list[float]]]:
    """Return environment -> entrant -> difference to the control with each seed that the exhibit
    has, by the first of its measures."""
    exhibit, plan = _plan(name)
    return differences(_all_rows(), name, exhibit.measures[0], _whole(exhibit), plan.against)


def _whole(exhibit: Exhibit) -> list[int]:
    """Return the seeds of an exhibit of which every run is there."""
    cells = len(exhibit.cells(_SCALE))
    there = _counted_seeds(exhibit)
    return [seed for seed in _recipe().seeds(exhibit, _SCALE) if there[seed] == cells]


def _counted_seeds(exhibit: Exhibit) -> Counter[int]:
    """Return how many runs of an exhibit there are with each of its seeds."""
    asked = _recipe().seeds(exhibit, _SCALE)
    rows = _rows_by_measure()[exhibit.name, exhibit.measures[0]]
    return Counter(row.seed for row in rows if row.seed in asked)


@cache
def _rows_by_measure() -> Mapping[tuple[str, str], list[MeasuredRow]]:
    """Return (exhibit, measure) -> the league's numbers of it."""
    rows: dict[tuple[str, str], list[MeasuredRow]] = defaultdict(list)
    for row in _all_rows():
        rows[row.exhibit, row.measure].append(row)
    return rows


def _in_words(environment: str) -> str:
    """Return in what the clients of an environment differ.

    >>> _in_words("noise-weak, labels")
    'wrong labels (weak), with skewed labels'
    """
    first, _, beside = environment.partition(", ")
    factor, _, strength = first.partition("-")
    words = _PHRASES[factor] + (f" ({strength})" if strength else "")
    return words + (", with skewed labels" if beside else "")


def _points(one: Interval) -> str:
    return f"{one.mean:+.1f} [{one.low:+.1f}, {one.high:+.1f}]".replace("-", "−")


def _cost(gain: Gain) -> str:
    """Tell the costs that are told apart from uniform FedAvg's."""
    said = {"time": gain.seconds, "traffic": gain.traffic}
    return "".join(f", {value:.2g}× {what}" for what, value in said.items() if not isnan(value))


def league_first() -> str:
    """Tell by what clients differ in which method surely helped, after the correction."""
    evidence = league_evidence()
    if evidence is None:
        return NOT_RUN
    rows = [
        (_in_words(environment), *cells)
        for environment in evidence.gains[False]
        if any(cells := _first_cells(evidence, environment))
    ]
    counts = [
        f"{_KINDS[personal]}: surely above zero in {above} of {many} environments and below in "
        f"{below} (without the correction {alone[0]} and {alone[1]})."
        for personal in KINDS
        for above, below, many, *alone in [_counted(evidence, personal)]
    ]
    shown = table(("clients differ in", *_KINDS.values(), "Plain fine-tuning"), rows)
    said = [*counts, _other_data(), *_which_one(evidence)]
    said += [*_once_fine_tuned(), *_together(), *_with_a_cnn()]
    listed = "\n".join(f"- {one}" for one in said)
    return "\n\n".join([shown, *_otherwise(evidence), listed])


def _first_cells(evidence: Evidence, environment: str) -> list[str]:
    """Return what is told of an environment: with one model for all, with one for each client, and
    of plain fine-tuning; each empty where nothing is."""
    return [*(_told(evidence, environment, personal) for personal in KINDS), _fine(environment)]


def _fine(environment: str) -> str:
    """Tell the gain of plain fine-tuning, by the same rules as that of a method that was named;
    empty for others."""
    gains = {place: Gain(there[_TUNED]) for place, there in _gains(_ALONE).items()}
    if environment not in gains:
        return ""
    adjusted = dict(zip(gains, holm([gain.p for gain in gains.values()]), strict=True))
    here = gains[environment].interval
    there = _elsewhere(environment, _TUNED)
    sure = adjusted[environment] <= LEVEL and here.mean >= _WORTH
    if not sure or not there or not _travels(here, there):
        return ""
    return "; ".join([_points(here), *(f"{name}: {_points(gain)}" for name, gain in there.items())])


def _again(evidence: Evidence, personal: bool, environment: str) -> tuple[str, Gain] | None:
    """Return what was measured again in an environment."""
    found = evidence.gains[personal].get(environment, {})
    return next(((name, gain) for name, gain in found.items() if gain.again), None)


def _told(evidence: Evidence, environment: str, personal: bool) -> str:
    """Tell a gain that is sure after the correction and large, or saves time, and on other data not
    denied, with what it was there; empty for others."""
    found = _again(evidence, personal, environment)
    if found is None or evidence.sign(personal, environment, found[0]) <= 0:
        return ""
    entrant, gain = found
    if gain.interval.mean < _WORTH and not gain.seconds <= _QUICK:
        return ""
    there = _elsewhere(environment, entrant)
    if not _travels(gain.interval, there):
        return ""
    alone = {} if personal else _controls().get(environment, {})
    plain = max(alone, key=lambda one: fmean(alone[one]), default="")
    enough = plain and fmean(alone[plain]) >= gain.interval.mean / 2
    beside = {plain: Gain(alone[plain]).interval} if enough else {}
    beside |= _at_its_rate(environment, entrant) | there
    more = "".join(f"; {name}: {_points(one)}" for name, one in beside.items())
    return f"`{entrant}` {_points(gain.interval)}{_cost(gain)}{more}"


def _elsewhere(environment: str, entrant: str) -> dict[str, Interval]:
    """Return exhibit -> the gain of an entrant on its data, of those that have run whole."""
    out = {}
    for name in _ELSEWHERE:
        there = _gains(name).get(environment, {})
        if not _how_many(_plan(name)[0]) and entrant in there:
            out[name] = Gain(there[entrant]).interval
    return out


def _travels(here: Interval, there: Mapping[str, Interval]) -> bool:
    """Return whether a gain is seen on two sets of data and reversed on none; while nothing has run
    elsewhere, whether it is seen here."""
    every = [here, *there.values()]
    seen = sum(one.low > 0 for one in every)
    return seen >= min(2, len(every)) and not any(one.high < 0 for one in every)


def _at_its_rate(environment: str, entrant: str) -> dict[str, Interval]:
    """Return what uniform FedAvg gains at the rate that an entrant chose, where that is another;
    nothing before it has run."""
    rate = _chosen().get(entrant, {}).get("local.optimizer.lr")
    name = f"FedAvg, rate {rate:g}" if rate is not None else ""
    there = _gains("rates").get(environment, {})
    return {name: Gain(there[name]).interval} if name in there else {}


def _counted(evidence: Evidence, personal: bool) -> tuple[int, int, int, int, int]:
    """Return in how many environments the gain lies surely above zero and below, and of how many;
    then how often without the correction."""
    found = {name: _again(evidence, personal, name) for name in evidence.gains[personal]}
    named = {name: one for name, one in found.items() if one is not None}
    signs = [evidence.sign(personal, name, entrant) for name, (entrant, _) in named.items()]
    gains = [gain.interval for _, gain in named.values()]
    alone = sum(one.low > 0 for one in gains), sum(one.high < 0 for one in gains)
    return (signs.count(1), signs.count(-1), len(gains), *alone)


def _other_data() -> str:
    """Say on which other data the rows were measured."""
    run = [name for name in _ELSEWHERE if not _how_many(_plan(name)[0])]
    if len(run) == len(_ELSEWHERE):
        return (
            "Shown are gains seen on two of three sets of data at least, and reversed on none; "
            "writers and speakers are on their own data alone."
        )
    missing = [name for name in _ELSEWHERE if name not in run]
    return (
        f"**The rows are planned {' and '.join(missing)}, too, which has not run**: take from here "
        "which kind of method to try, and no points."
    )


def _otherwise(evidence: Evidence) -> list[str]:
    """Tell what to do where no row of the first screen stands."""
    rest = [
        _in_words(environment)
        for environment in evidence.gains[False]
        if environment != "even" and not any(_first_cells(evidence, environment))
    ]
    plain = list(
        dict.fromkeys(one.removesuffix(" (weak)").removesuffix(" (strong)") for one in rest)
    )
    both = [
        one
        if {f"{one} (weak)", f"{one} (strong)"} <= {*rest} or one in rest
        else next(said for said in rest if said.startswith(f"{one} ("))
        for one in plain
    ]
    return [
        f"**No row, so uniform FedAvg** (among liars with equal weights). No sure gain of "
        f"{_WORTH:g} points, seen on other data, too, was shown here: {'; '.join(both)}."
    ]


def _which_one(evidence: Evidence) -> list[str]:
    """Tell how often a method with a model for each client is surely better than plain
    fine-tuning; nothing while runs are missing."""
    exhibit, _ = _plan(_ALONE)
    if _how_many(exhibit):
        return []
    over = []
    for place, plain in _gains(_ALONE).items():
        named = _again(evidence, True, place)
        if named is not None and named[0] != _TUNED:
            pairs = zip(named[1].points, plain[_TUNED], strict=True)
            over.append(Gain([a - b for a, b in pairs]))
    sure = [
        one.interval.mean
        for one, p in zip(over, holm([one.p for one in over]), strict=True)
        if p <= LEVEL
    ]
    above, below = sum(mean > 0 for mean in sure), sum(mean < 0 for mean in sure)
    most, least = (pick(one.interval.mean for one in over) for pick in (max, min))
    return [
        f"Beside plain fine-tuning, with the same seeds, the named method with a model for each "
        f"client is surely better in {above} of {len(over)} environments and surely worse in "
        f"{below}; the means lie {-least:.1f} points below to {most:.1f} above."
    ]


def _once_fine_tuned() -> list[str]:
    """Tell how far methods with one model lie apart, before clients fine-tune it and after; nothing
    while runs are missing."""
    exhibit, _ = _plan("after fine-tuning")
    if _how_many(exhibit):
        return []
    before, after = _before_and_after()
    widths = [
        [high - low for low, high in (_nine_of_ten(one.values()) for one in found.values())]
        for found in (before, after)
    ]
    best = [
        [max(fmean(some) for some in one.values()) for one in found.values()]
        for found in (before, after)
    ]
    narrower = sum(b < a for a, b in zip(*widths, strict=True))
    more = sum(b > a for a, b in zip(*best, strict=True))
    return [
        f"[Once clients fine-tune](measured.md#league-after) ({len(after)} environments, two "
        f"seeds), methods with one model still differ: nine of ten span {median(widths[1]):.1f} "
        f"points in the median, {median(widths[0]):.1f} before; narrower in {narrower}, and the "
        f"best gains more in {more}."
    ]


def _together() -> list[str]:
    """Tell whether gains of selections and algorithms add up; nothing while runs are missing."""
    exhibit, plan = _plan("crossed")
    if _how_many(exhibit):
        return []
    found = crossings(_gains("crossed"), plan.against)
    every = [one for place in found.values() for one in place.interactions.values()]
    above, below = sum(one.low > 0 for one in every), sum(one.high < 0 for one in every)
    beside = [both for place in found.values() for both in place.beside.values()]
    better = sum(min(one.low for one in both) > 0 for both in beside)
    worse = sum(min(one.high for one in both) < 0 for both in beside)
    most = max(one.mean for one in every if one.low > 0)
    return [
        f"Of {len(every)} [pairs of a selection and an algorithm](measured.md#league-crossed), "
        f"{better} are surely better than both parts and {worse} worse than one (95 % together in "
        f"an environment); {above} gain more than the sum of both, by "
        f"{most:.1f} points at most, {below} less, {len(every) - above - below} cannot be told."
    ]


def _with_a_cnn() -> list[str]:
    """Tell how many gains a larger model on other data shows, and how many are those of the MLP;
    nothing with fewer than three seeds."""
    exhibit, _ = _plan("cnn")
    seeds = len(_whole(exhibit))
    if seeds < 3:
        return []
    agreed = [_agreed(*both) for both in _beside_the_mlp().values()]
    same, other, neither = (sum(one[i] for one in agreed) for i in range(3))
    return [
        f"[With a CNN on CIFAR-10](measured.md#league-cnn) ({seeds} seeds), of "
        f"{same + other + neither} plain intervals {same} have the MLP's sign, {other} the other, "
        f"{neither} neither."
    ]


def which_method() -> str:
    """Tell what to try for each kind of difference, as far as the league surely shows it: a row for
    each, and one for all others."""
    evidence = league_evidence()
    if evidence is None:
        return NOT_RUN
    kinds: dict[str, list[str]] = {}
    for place in evidence.gains[False]:
        kinds.setdefault(place.partition(", ")[0].partition("-")[0], []).append(place)
    rows, rest = [], []
    for kind, places in kinds.items():
        tried: dict[str, list[str]] = {}
        for place in places:
            if what := _to_try(evidence, place):
                tried.setdefault(what, []).append(place)
        own: dict[str, list[str]] = {}
        for place in places:
            if what := _own_to_try(evidence, place):
                own.setdefault(what, []).append(place)
        if tried or own:
            cells = (
                "; ".join(f"{what}{_where(there)}" for what, there in column.items())
                for column in (tried, own)
            )
            rows.append((_PHRASES[kind], *(cell or "`fedavg`" for cell in cells)))
        elif kind != "even":
            rest.append(_PHRASES[kind])
    rows.append((f"nothing, or {', '.join(rest)} alone", "`fedavg`", "`fedavg`"))
    return table(("clients differ in", *_KINDS.values()), rows)


def _to_try(evidence: Evidence, place: str) -> str:
    """Return what to try with one model for all in an environment: the settings that gain half as
    much without the method, or the method; empty where none is told."""
    if not _told(evidence, place, False):
        return ""
    again = _again(evidence, False, place)
    assert again is not None
    entrant, gain = again
    alone = _controls().get(place, {})
    enough = [
        words
        for control, words in _SETTINGS.items()
        if control in alone and fmean(alone[control]) >= gain.interval.mean / 2
    ]
    return enough[0] if enough else f"`{entrant}`"


def _own_to_try(evidence: Evidence, place: str) -> str:
    """Return what to try with a model for each client in an environment: plain fine-tuning, where
    it gains, or the method that was named; empty where neither is told."""
    if _fine(place):
        return "`fine_tuned`"
    if not _told(evidence, place, True):
        return ""
    again = _again(evidence, True, place)
    assert again is not None
    return f"`{again[0]}`"


def _where(places: Sequence[str]) -> str:
    """Return in brackets what environments have in common: their strength, and whether labels are
    skewed beside.

    >>> _where(["noise-weak, labels", "noise-strong, labels"])
    ' (with skewed labels)'
    """
    parts = [place.partition(", ") for place in places]
    strengths = {first.partition("-")[2] for first, _, _ in parts}
    strength = strengths.pop() if len(strengths) == 1 else ""
    beside = "with skewed labels" if parts and all(skewed for _, _, skewed in parts) else ""
    words = ", ".join(filter(None, (strength, beside)))
    return f" ({words})" if words else ""


def which_method_data() -> str:
    """Say on which data the rows of the page were measured."""
    run = [name.removeprefix("on ") for name in _ELSEWHERE if not _how_many(_plan(name)[0])]
    if len(run) == len(_ELSEWHERE):
        again = "gains are seen on two of three data sets at least, and reversed on none"
    else:
        again = "the rows have not been tried on all others yet"
    return (
        "The first table is made from [the league](league.md). Each row is of one data set, "
        f"Fashion-MNIST or the one in brackets; {again}. It says what to compare, not what you "
        "will gain."
    )


_SETTINGS = {
    "FedAvg, equal weights": '`weights = "uniform"`',
    "FedAvg, HeteRo-Select's settings": (
        '`server = "momentum"`, `local.clip`, `local.lr_schedule` '
        "([values](measured.md#league-controls))"
    ),
}
"""Control -> what to write in its place."""


def league_selectors() -> str:
    """Tell which selections to compare first, and what each that was far ahead anywhere gained and
    lost in all environments."""
    found = _selection_gains()
    evidence = league_evidence()
    if not found or evidence is None:
        return NOT_RUN
    steady, quick = start_here()
    slow = _where_speeds_differ(found)
    least, most = (pick(found[quick], key=found[quick].__getitem__) for pick in (min, max))
    bullets = [
        "- **`uniform`** asks nothing of the clients and is the reference.",
        f"- **`{steady}`** was never {_WORTH:g} points behind uniform ({_worst(found[steady])} at "
        f"worst), and that far ahead in {_ahead(found[steady])} of {len(found[steady])} "
        "environments; of such rules that choose and change nothing else, its median is highest.",
        f"- **`{quick}`** where speeds differ: with the same virtual time it gained "
        f"{slow[quick]:.1f} points in the mean of {_slow_environments(found)} environments, the "
        f"most of rules that only choose. Over all it ranges from {signed(found[quick][least])} "
        f"({_in_words(least)}) to {signed(found[quick][most])} ({_in_words(most)}).",
    ]
    surely = [
        (*again, place)
        for place in evidence.gains[False]
        if (again := _again(evidence, False, place)) is not None
        and again[0] in found
        and evidence.sign(False, place, again[0]) > 0
    ]
    sure = [
        f"`{name}` {_points(gain.interval)} ({_in_words(place)})" for name, gain, place in surely
    ]
    confirmed = {name for name, _, _ in surely}
    open_ones = " and ".join(f"`{name}`" for name in (steady, quick) if name not in confirmed)
    rows = [
        (
            f"`{name}`" + (f", {also} of its own" if (also := _changes().get(name)) else ""),
            str(_ahead(gains)),
            str(_behind(gains)),
            str(sum(gain < 0 for gain in gains.values())),
            signed(median(gains.values())),
            _worst(gains),
        )
        for name, gains in sorted(found.items(), key=lambda one: -median(one[1].values()))
        if _ahead(gains) > 1
    ]
    heads = (
        *("rule", f"{_WORTH:g} ahead in", f"{_WORTH:g} behind in", "behind at all in", "median"),
        "at worst",
    )
    many = len(next(iter(found.values())))
    said = (
        f"Means of two seeds in the {many} environments of [the league](league.md), in points over "
        f"uniform, under FedAvg; the {len(found) - len(rows)} rules that are not here were so far "
        "ahead in one environment at most. Measured again with five other seeds and corrected, a "
        f"selection alone surely gained in {len(sure)} of {many}: {'; '.join(sure) or 'none'}."
        + (f" No gain of {open_ones} is confirmed so." if open_ones else "")
    )
    return "\n\n".join(["\n".join(bullets), table(heads, rows), said])


def start_here() -> tuple[str, str]:
    """Return, of the selections that change nothing else, the one with the highest median of those
    that are never far behind uniform, and the one that gains most where speeds differ."""
    found = {name: one for name, one in _selection_gains().items() if name not in _changes()}
    steady = [name for name, gains in found.items() if min(gains.values()) > -_WORTH]
    slow = _where_speeds_differ(found)
    return (
        max(steady, key=lambda name: median(found[name].values())),
        max(slow, key=lambda name: slow[name]),
    )


def _selection_gains() -> dict[str, dict[str, float]]:
    """Return selection -> environment -> its mean gain over uniform FedAvg, with the seeds that
    choose."""
    _, plan = _plan("shared")
    found = differences(_rows(), "shared", "stable", _seeds())
    names = plan.groups["selection, under FedAvg"]
    every = {
        name: {place: fmean(some[name]) for place, some in found.items() if name in some}
        for name in names
    }
    return {name: gains for name, gains in every.items() if gains}


def _changes() -> dict[str, str]:
    """Return entrant -> what it changes beside the choice: how clients are weighed, or how many
    local steps they take."""
    exhibit, plan = _plan("shared")
    weighed = {name for name, keys in exhibit.axes[plan.of].items() if "weights" in keys}
    return dict.fromkeys(weighed, "weights") | {"pyramidfl": "local steps"}


def _slow_environments(found: Mapping[str, Mapping[str, float]]) -> int:
    return sum(place.startswith("speeds") for place in next(iter(found.values())))


def _where_speeds_differ(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return selection -> its mean gain over the environments where speeds differ."""
    return {
        name: fmean(gain for place, gain in gains.items() if place.startswith("speeds"))
        for name, gains in found.items()
    }


def _ahead(gains: Mapping[str, float]) -> int:
    return sum(gain >= _WORTH for gain in gains.values())


def _behind(gains: Mapping[str, float]) -> int:
    return sum(gain <= -_WORTH for gain in gains.values())


def _worst(gains: Mapping[str, float]) -> str:
    return signed(min(gains.values()))


@cache
def _controls() -> dict[str, dict[str, list[float]]]:
    """Return environment -> control -> its gain over uniform FedAvg with each seed."""
    return _gains("controls")


def league_controls() -> str:
    """Tell what the settings that come with a method gain without it."""
    exhibit, plan = _plan("controls")
    found = _controls()
    evidence = league_evidence()
    if not found or evidence is None:
        return NOT_RUN
    names = [name for name in exhibit.axes[plan.of] if name != plan.against]
    rows = []
    for environment, entrants in found.items():
        again = _again(evidence, False, environment)
        named = f"`{again[0]}` {_points(again[1].interval)}" if again is not None else "-"
        gains = [_points(Gain(entrants[one]).interval) if one in entrants else "-" for one in names]
        rows.append((environment, named, *gains))
    return table(("environment", "named", *names), rows)


def league_named() -> str:
    """List what was chosen in each environment, and what it gained when it was measured again."""
    evidence = league_evidence()
    if evidence is None:
        return NOT_RUN
    rows = []
    for environment in evidence.gains[False]:
        cells = []
        for personal in KINDS:
            found = _again(evidence, personal, environment)
            if found is None:
                cells += ["-"] * 5
                continue
            entrant, gain = found
            sure = "**" * bool(evidence.sign(personal, environment, entrant))
            cells += [
                f"`{entrant}`",
                f"{sure}{_points(gain.interval)}{sure}",
                f"{resolvable(spread(gain.points).std, len(gain.points)):.1f}",
                _ratio(gain.seconds),
                _ratio(gain.traffic),
            ]
        rows.append((environment, *cells))
    heads = (
        "environment",
        *("one model", "points", "resolves", "time", "traffic"),
        *("own models", "points", "resolves", "time", "traffic"),
    )
    return table(heads, rows)


def _ratio(value: float) -> str:
    return "-" if isnan(value) else f"{value:.2g}"


def league_environments() -> str:
    """List the environments with what makes each of them."""
    exhibit, plan = _plan("shared")
    outside, _ = _plan("outside")
    rows = [
        (name, _settings(settings))
        for one in (exhibit, outside)
        for name, settings in one.axes[plan.over].items()
    ]
    return table(("environment", "settings beside the common ones"), rows)


def _settings(settings: dict[str, Any]) -> str:
    known = {
        key: value
        for key, value in settings.items()
        if key not in ("target", "stop", "population", "cohort", "split.server")
    }
    return ", ".join(f"`{key} = {code(value)}`" for key, value in known.items()) or "-"


def league_entrants() -> str:
    """List the entrants of each ranking by group, and who is excused, with the reason."""
    groups = []
    for name in ("shared", "personal", "widths"):
        _, plan = _plan(name)
        groups += [
            (name, title, ", ".join(f"`{one}`" for one in names))
            for title, names in plan.groups.items()
        ]
    _, plan = _plan("shared")
    excused = [
        f"- `{name.partition('.')[2]}` ({name.partition('.')[0]}): {prose(why)}."
        for name, why in plan.excused.items()
    ]
    listed = table(("ranking", "group", "entrants"), groups)
    return "\n\n".join([listed, "Not entrants:", "\n".join(excused)])


@cache
def _chosen() -> Mapping[str, Mapping[str, Any]]:
    """Return entrant -> the values that tuning chose."""
    text = ((_recipe().folder or Path()) / "tuned.toml").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = document.parse(text, "tuned.toml").get("entrant", {})
    return found


def league_tuned() -> str:
    """List what tuning chose."""
    rows = [
        (f"`{name}`", ", ".join(f"`{key} = {code(value)}`" for key, value in one.items()))
        for name, one in _chosen().items()
        if not name.endswith(", fine-tuned") or name == "FedAvg, fine-tuned"
    ]
    return table(("entrant", "chosen"), rows)


def league_advice() -> str:
    """Tell what advice has gained where it was not learned from."""
    evidence = league_evidence()
    if evidence is None or not evidence.proofs:
        return NOT_RUN
    proved = [_proved(evidence.proofs[one], words) for one, words in KINDS.items()]
    return "\n\n".join([*proved, _left_out(evidence)])


def _left_out(evidence: Evidence) -> str:
    """Tell what advice has gained in each environment left out."""
    empty = evidence_texts(Evidence({}, {}))
    text = ((_recipe().folder or Path()) / LEFT_OUT).read_text(encoding="utf-8")
    proofs = read_evidence(empty[NAMED], empty[PROFILES], text).proofs
    rows = []
    for personal, words in KINDS.items():
        shown, there = proofs[personal], evidence.gains[personal]
        helped, hurt, abstained = shown.counts
        again = sum(
            there[one.federation][one.entrant].again for one in shown.advised if one.entrant
        )
        less = interval(spread([one.gain - one.winners_gain for one in shown.advised]))
        gains = (
            f"{one.mean:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"
            for one in (shown.gain, shown.winners_gain, less)
        )
        advised = f"{helped + hurt} ({again}, {helped + hurt - again})"
        rows.append((words, advised, f"{abstained}", f"{helped}", f"{hurt}", *gains))
    apart = [
        words for one, words in KINDS.items() if proofs[one].holds != evidence.proofs[one].holds
    ]
    said = (
        f"Each of the {len(proofs[False].advised)} environments of the league is left out and "
        "advised from the others (in brackets: how many names are scored by the seeds that "
        "measured again, and by those that chose); environments share data, so these intervals are "
        "too narrow, and the federations above decide"
    )
    if apart:
        said += f"; for {' and '.join(apart)} only one of the two proofs excludes zero"
    heads = (
        *("model", "advised", "abstained", "helped", "hurt", "points over uniform FedAvg"),
        *("of always the winner", "advice less the winner"),
    )
    return f"{said}.\n\n{table(heads, rows)}"


def _proved(shown: Proof, words: str) -> str:
    """Tell a proof in words and as a table."""
    helped, hurt, abstained = shown.counts
    gain, always = (
        f"{one.mean:+.2f} points [{one.low:+.2f}, {one.high:+.2f}]"
        for one in (shown.gain, shown.winners_gain)
    )
    winner = shown.advised[0].winner
    worse = sum(one.winners_gain < 0 for one in shown.advised)
    verdict = "so it is given" if shown.holds else "so it is not given"
    said = (
        f"With {words}, advice helped {helped} times, hurt {hurt} and abstained {abstained}: "
        f"{gain} over uniform FedAvg in the mean, {verdict}. Always taking `{winner}`, which gains "
        f"most over the league, gains {always}, and is worse than uniform FedAvg in {worse} of "
        f"{len(shown.advised)}."
    )
    rows = [
        (
            one.federation,
            f"`{one.entrant}`" if one.entrant else "-",
            f"{one.gain:+.1f}",
            f"{one.winners_gain:+.1f}",
        )
        for one in shown.advised
    ]
    heads = ("federation", "advised", "gain over uniform FedAvg, points", f"gain of `{winner}`")
    return (said + "\n\n" + table(heads, rows)).replace("-0.0 ", "+0.0 ")


def league_standings() -> str:
    """Tell the three rankings, or that nothing was measured yet."""
    parts = []
    for name in ("shared", "personal", "widths"):
        exhibit, plan = _plan(name)
        ranked = _ranked(name)
        first = next(iter(ranked), None)
        if first is None or not ranked[first].standings:
            parts.append(f"#### {exhibit.title}\n\n{NOT_RUN}")
            continue
        parts.append(
            "\n\n".join(
                [
                    f"#### {exhibit.title}",
                    *_how_many(exhibit),
                    _picture(plan, first) if name == "shared" else "",
                    _standings(plan, ranked),
                ]
            )
        )
    return "\n\n".join(re.sub(r"\n{3,}", "\n\n", part) for part in parts)


def _picture(plan: RankPlan, measure: str) -> str:
    return (
        f"![{measure_of(measure).title}: difference of every entrant to {plan.against} in every "
        f"environment](assets/{_PICTURE.name})"
    )


def _standings(plan: RankPlan, ranked: dict[str, Ranking]) -> str:
    """Return a row for each entrant that is in all environments, the best first."""
    first, *others = ranked
    found = ranked[first]
    group = {entrant: title for title, names in plan.groups.items() for entrant in names}
    places = {
        name: {one.entrant: one.mean_rank for one in ranked[name].standings} for name in others
    }
    rows = [
        (
            f"`{one.entrant}`",
            group[one.entrant],
            f"{one.mean_rank:.1f}",
            f"{one.median:+.2f}" if isfinite(one.median) else "-",
            *(_place(places[name].get(one.entrant)) for name in others),
        )
        for one in found.standings
    ]
    heads = (
        *("entrant", "kind", "mean rank", f"median difference to {plan.against}"),
        *(f"rank by {measure_of(name).title}" for name in others),
    )
    many = f"{len(found.environments)} environments, {len(found.standings)} entrants"
    left = [f"`{name}`" for name in found.unranked]
    beside = f" Not in every environment: {', '.join(left)}." if left else ""
    return f"{many}.{beside}\n\n" + table(heads, rows)


def _place(rank: float | None) -> str:
    return "-" if rank is None else f"{rank:.1f}"


def _how_many(exhibit: Exhibit) -> list[str]:
    """Say how many of the planned runs there are, unless it is all of them."""
    planned = len(exhibit.cells(_SCALE)) * len(_recipe().seeds(exhibit, _SCALE))
    seeds = _counted_seeds(exhibit)
    if seeds.total() >= planned:
        return []
    by_seed = ", ".join(f"{count:,} with seed {seed}" for seed, count in sorted(seeds.items()))
    return [f"**Not whole yet:** {seeds.total():,} of {planned:,} runs, {by_seed}."]


def league_after_fine_tuning() -> str:
    """Tell whether the method matters once the clients fine-tune."""
    exhibit, _ = _plan("after fine-tuning")
    before, after = _before_and_after()
    if not after:
        return NOT_RUN
    own = _best_of_their_own()
    rows = [
        (
            environment,
            *_spread(before[environment]),
            *_spread(entrants),
            own[environment],
            f"{_seconds('shared', environment)}, {_seconds(exhibit.name, environment)}",
        )
        for environment, entrants in after.items()
    ]
    heads = (
        "environment",
        "one model: nine of ten methods within",
        "best",
        "after fine-tuning: nine of ten within",
        "best",
        "best with a model for each client",
        "seconds to the target: FedAvg, then fine-tuned",
    )
    return "\n\n".join([*_how_many(exhibit), table(heads, rows)])


def _best_of_their_own() -> dict[str, str]:
    """Return environment -> the method with a model for each client that gains most over the
    fine-tuned FedAvg of this table."""
    after, personal = _plan("after fine-tuning"), _plan("personal")
    tuned = differences(_rows(), "personal", "stable", _seeds(), "uniform FedAvg")
    plain = _control_scores(after[0].name, after[0].measures[0], after[1].against, _seeds())
    uniform = _control_scores("personal", "stable", "uniform FedAvg", _seeds())
    said = {}
    for environment in plain:
        gains = {
            name: fmean(tuned[environment][name])
            for name in personal[1].groups["a model for each client"]
            if name in tuned[environment]
        }
        best = max(gains, key=lambda name: gains[name])
        over = gains[best] + uniform[environment] - plain[environment]
        said[environment] = f"`{best}` {over:+.1f}"
    return said


def _control_scores(
    exhibit: str, measure: str, control: str, seeds: Sequence[int]
) -> dict[str, float]:
    """Return environment -> the mean of a measure of one entrant with these seeds."""
    found: dict[str, list[float]] = {}
    for row in _all_rows():
        environment, _, name = row.cell.partition(" / ")
        if (row.exhibit, row.measure, name) == (exhibit, measure, control) and row.seed in seeds:
            found.setdefault(environment, []).append(float(row.value))
    return {environment: fmean(values) for environment, values in found.items()}


def _seconds(exhibit: str, environment: str) -> str:
    """Return the mean virtual time of FedAvg to the target of an environment."""
    measure, control = {
        "shared": ("seconds_to_target", "uniform FedAvg"),
        "after fine-tuning": ("use_seconds_to_target", "uniform FedAvg, fine-tuned"),
    }[exhibit]
    return f"{_control_scores(exhibit, measure, control, _seeds())[environment]:.0f}"


def _before_and_after() -> tuple[dict[str, dict[str, list[float]]], ...]:
    """Return environment -> method -> its gains over uniform FedAvg, and over fine-tuned FedAvg
    once all clients fine-tune; the same environments and methods, by the names of the first."""
    exhibit, plan = _plan("after fine-tuning")
    found = differences(_rows(), exhibit.name, exhibit.measures[0], _seeds(), plan.against)
    after = {
        environment: {name.removesuffix(", fine-tuned"): some for name, some in entrants.items()}
        for environment, entrants in found.items()
    }
    shared = differences(_rows(), "shared", "stable", _seeds())
    before = {
        environment: {name: shared[environment][name] for name in entrants}
        for environment, entrants in after.items()
    }
    return before, after


def _spread(gains: Mapping[str, Sequence[float]]) -> tuple[str, str]:
    """Return the range that holds nine of ten mean gains, and the largest with whose it is."""
    low, high = _nine_of_ten(gains.values())
    best = max(gains, key=lambda name: fmean(gains[name]))
    return f"{low:+.1f} to {high:+.1f}", f"`{best}` {fmean(gains[best]):+.1f}"


def _nine_of_ten(gains: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the ends of the range that holds nine of ten mean gains, as many left out below as
    above."""
    means = sorted(fmean(one) for one in gains)
    cut = round(0.05 * len(means))
    kept = means[cut : len(means) - cut]
    return kept[0], kept[-1]


def league_crossed() -> str:
    """Tell what the best selections and algorithms gain alone, and whether their gains add up."""
    exhibit, plan = _plan("crossed")
    found = crossings(_gains("crossed"), plan.against)
    if not found:
        return "\n\n".join([*_how_many(exhibit), NOT_RUN])
    first = next(iter(found.values()))
    alone = [
        (f"`{name}`", *(_points(part(one)[name]) for one in found.values()))
        for part, names in ((_selections, first.selections), (_algorithms, first.algorithms))
        for name in names
    ]
    beside = [(environment, *_beyond(one)) for environment, one in found.items()]
    heads = (
        "environment",
        "best pair",
        "its gain",
        "sum of its parts",
        "pairs that gain more than the sum, and less",
        "most beyond the sum",
        "least",
        "resolves",
    )
    return "\n\n".join(
        [
            *_how_many(exhibit),
            table(("alone", *found), alone),
            table(heads, beside),
        ]
    )


def _selections(one: Crossing) -> Mapping[str, Interval]:
    return one.selections


def _algorithms(one: Crossing) -> Mapping[str, Interval]:
    return one.algorithms


def _beyond(one: Crossing) -> list[str]:
    """Tell how far pairs gain more or less than the sum of their parts."""
    best = max(one.together, key=lambda pair: one.together[pair].mean)
    beyond = one.interactions
    most, least = (pick(beyond, key=lambda pair: beyond[pair].mean) for pick in (max, min))
    above = sum(each.low > 0 for each in beyond.values())
    below = sum(each.high < 0 for each in beyond.values())
    return [
        f"`{CROSS.join(best)}`",
        _points(one.together[best]),
        f"{one.selections[best[0]].mean + one.algorithms[best[1]].mean:+.1f}".replace("-", "−"),
        f"{above} and {below} of {len(beyond)}",
        *(f"`{CROSS.join(pair)}` {_points(beyond[pair])}" for pair in (most, least)),
        f"{median(each.high - each.mean for each in beyond.values()):.1f}",
    ]


def league_cnn() -> str:
    """Tell what methods gain with a larger model on other data, beside what they gain here."""
    exhibit, plan = _plan("cnn")
    gains = _gains("cnn")
    if not gains:
        return "\n\n".join([*_how_many(exhibit), NOT_RUN])
    beside = _beside_the_mlp()
    rates = {name: keys["local.optimizer.lr"] for name, keys in exhibit.axes[plan.of].items()}
    rows = [
        (
            f"`{_without_suffix(name)}`",
            f"{rates[name]:g}",
            *(_points(Gain(entrants[name]).interval) for entrants in gains.values()),
            _counts(*beside[name]) if name in beside else "-",
        )
        for name in exhibit.axes[plan.of]
        if name != plan.against
    ]
    heads = ("gain of", "rate", *gains, "the MLP's sign, the other, neither")
    scores = _control_scores(exhibit.name, exhibit.measures[0], plan.against, _whole(exhibit))
    plain = ", ".join(f"{score:.1f} in {environment}" for environment, score in scores.items())
    said = f"Uniform FedAvg, with the rate {rates[plan.against]:g}, reaches {plain}."
    return "\n\n".join([*_how_many(exhibit), table(heads, rows), said])


def _beside_the_mlp() -> dict[str, tuple[list[Interval], list[float]]]:
    """Return entrant -> its gains with the CNN, and the mean gain with the MLP in the same
    environments; those that have both."""
    found = _gains("cnn")
    shared = differences(_rows(), "shared", "stable", _seeds())
    return {
        name: (
            [Gain(entrants[name]).interval for entrants in found.values()],
            [fmean(shared[place][_without_suffix(name)]) for place in found],
        )
        for name in next(iter(found.values()), {})
        if all(_without_suffix(name) in shared[place] for place in found)
    }


def _without_suffix(name: str) -> str:
    """Return the entrant of the first ranking that an entrant with the CNN is."""
    return name.removesuffix(", CNN")


def _agreed(with_cnn: Sequence[Interval], with_mlp: Sequence[float]) -> tuple[int, int, int]:
    """Return how many gains with the CNN surely have the sign of those with the MLP, surely the
    other, and neither."""
    sure = [int(one.low > 0) - int(one.high < 0) for one in with_cnn]
    same = sum(sign * mean > 0 for sign, mean in zip(sure, with_mlp, strict=True))
    other = sum(sign * mean < 0 for sign, mean in zip(sure, with_mlp, strict=True))
    return same, other, len(sure) - same - other


def _counts(with_cnn: Sequence[Interval], with_mlp: Sequence[float]) -> str:
    return ", ".join(map(str, _agreed(with_cnn, with_mlp)))


def league_parts() -> str:
    """Tell what each part of a joint method gains: the whole less the method without it."""
    exhibit, plan = _plan("parts")
    seeds = _seeds()
    found = differences(_rows(), exhibit.name, exhibit.measures[0], seeds)
    if not found:
        return NOT_RUN
    rows = []
    for title, names in plan.groups.items():
        whole = next((name for name in names if name.endswith(", whole")), None)
        for name in names:
            if whole is None or name == whole:
                continue
            gained = {
                environment: fmean(entrants[whole]) - fmean(entrants[name])
                for environment, entrants in found.items()
                if whole in entrants and name in entrants
            }
            if gained:
                least, most = (
                    min(gained, key=gained.__getitem__),
                    max(gained, key=gained.__getitem__),
                )
                rows.append(
                    (
                        name.removeprefix(f"{title} without "),
                        title,
                        f"{median(gained.values()):+.1f}",
                        f"{gained[least]:+.1f} ({least})",
                        f"{gained[most]:+.1f} ({most})",
                    )
                )
    heads = ("part", "of", "gain of the part, median, points", "least", "most")
    return "\n\n".join([*_how_many(exhibit), table(heads, rows)])


def _environments(place: Mapping[str, str | list[str]]) -> list[str]:
    some = place.get("environment", [])
    return [some] if isinstance(some, str) else some


@cache
def _ranked(name: str) -> dict[str, Ranking]:
    """Return the rankings of an exhibit, by measure."""
    exhibit, plan = _plan(name)
    values: dict[str, dict[tuple[str, ...], dict[int, Censored]]] = {
        measure: {} for measure in exhibit.measures
    }
    # where some methods cannot run nobody is ranked, so that all others are
    left = {place for some in exhibit.without.values() for place in _environments(some)}
    for row in _rows():
        environment = row.cell.partition(" / ")[0]
        if row.exhibit == name and row.measure in values and environment not in left:
            cell = values[row.measure].setdefault(tuple(row.cell.split(" / ")), {})
            cell[row.seed] = Censored(float(row.value), row.exact == "true")
    return rankings(exhibit, plan, values)


def pictures() -> dict[Path, Callable[[], str]]:
    """Return the file of the map of differences and what draws it; nothing before something was
    measured."""
    return {_PICTURE: _drawn} if _ranked("shared") else {}


def _drawn() -> str:
    _, plan = _plan("shared")
    first, found = next(iter(_ranked("shared").items()))
    picture: Picture | None = difference_map(found, plan.groups, measure_of(first).title)
    return "" if picture is None else re.sub(r"\s+$", "", picture.svg) + "\n"
