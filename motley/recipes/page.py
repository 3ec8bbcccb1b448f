"""The report of a recipe: published beside measured, a verdict for each claim, pictures, costs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from math import exp, isfinite, isinf, isnan
from typing import Literal

from motley.recipes.measuring import Measure, measure_of
from motley.recipes.pictures import BY_MEASURE, ExhibitData, draw
from motley.recipes.ranks import Ranking
from motley.recipes.recipe import Exhibit, RankPlan
from motley.recipes.reproduce import Reproduction
from motley.recipes.standings import rankings, standings, standings_table
from motley.recipes.tables import measured_rows, verdicts_csv
from motley.recipes.telling import ScaleNumbers, fill, kept_numbers, rows_of_text
from motley.recipes.verdict_picture import verdict_picture
from motley.recipes.verdicts import Contrast, Judged, Verdict
from motley.results import measures, sections
from motley.results.blocks import (
    DASH,
    Block,
    BulletList,
    Page,
    Section,
    SideBySide,
    Table,
    TableCell,
    TableRow,
    Tally,
    Text,
    non_empty,
)
from motley.results.measures import Censored, Spread, spread
from motley.results.power import MOST_PAIRS
from motley.results.summary import MB, plus_minus, short_number

__all__ = ["exhibit_section", "exhibit_tables", "page", "verdict_table"]

TONES: dict[Verdict, Literal["", "good", "bad"]] = {"confirmed": "good", "contradicted": "bad"}
NamedCell = tuple[str, ...]


def page(found: Reproduction) -> Page:
    """Return the report of the runs that are finished, as a page."""
    runs, before = found.all_runs(), found.all_earlier()
    warnings = [f"{f.point.label}, seed {f.point.experiment.seed}, failed: {f.error}" for f in found.failures]
    if (there := len(runs) + len(before)) < found.planned:
        warnings.append(f"{there} of {found.planned} runs are finished; the same command goes on.")
    if found.earlier.dropped:
        warnings.append(dropped(found))
    recipe, scale = found.recipe, found.recipe.scale[found.scale]
    ranked = any(exhibit.ranks is not None for exhibit in recipe.exhibit)
    wall = sum(measures.costs(run).wall_s for run in runs)
    facts = [
        ("recipe", recipe.name),
        ("scale", found.scale),
        ("runs", f"{len(runs)}, and {len(before)} measured earlier" if before else str(len(runs))),
        ("seeds", ", ".join(map(str, sorted({*(run.seed for run in runs), *(seed for _, seed in before)})))),
        ("wall time", f"{short_number(wall / 60)} min"),
        ("virtual time", f"{short_number(sum(measures.costs(run).time_s for run in runs) / 3600)} h"),
    ]
    groups = {f"{name}: {' / '.join(cell)}": list(seeds.values()) for (name, cell), seeds in found.runs.items()}
    blocks = non_empty(
        Section("Result", non_empty(*_result(found), Text(_plain(scale.note)) if scale.note else None)),
        BulletList(warnings, "Before you read on") if warnings else None,
        *(exhibit_section(found, exhibit) for exhibit in found.exhibits if found.cells(exhibit)),
        Section("Claims", _verdicts(found.judged)),
        _not_run(found),
        Section("What it cost, and how evenly", non_empty(_costs(found))),
        Section("How it was made" if ranked else "What the paper leaves open", _prose(recipe.notes)),
        sections.provenance(groups, experiments=False) if groups else None,
    )
    return Page(f"{recipe.title}: published and measured" if not ranked else recipe.title, facts, blocks)


def _result(found: Reproduction) -> list[Block]:
    """What was found: the recipe's own words with their numbers, the verdicts counted, and a picture of where all comparisons lie."""
    words = [_counted(found.judged, lambda one: one.verdict), _counted(found.judged, lambda one: one.after_holm)]
    many = f"Of {len(found.judged)} claims {words[0]}; after Holm's correction for {many_of(found.judged)}, {words[1]}."
    told = fill(found.recipe, lambda scale: numbers_at(found, scale))
    verdicts = [one.verdict for one in found.judged]
    order: tuple[Verdict, ...] = ("confirmed", "not confirmed", "contradicted", "not tested")
    counts = Tally([(verdicts.count(word), word, TONES.get(word, "")) for word in order if word in verdicts])
    said = Section("", non_empty(*_prose(told), counts if found.judged else None, Text(many) if found.judged else None))
    picture = verdict_picture(found.judged)
    return [SideBySide([said, picture])] if picture is not None else list(said.blocks)


def numbers_at(found: Reproduction, scale: str) -> ScaleNumbers | None:
    """Return the numbers of a scale: those that were found, or those kept in the recipe's folder; None where there are none."""
    if scale == found.scale:
        return ScaleNumbers(measured_rows(found), rows_of_text(verdicts_csv(found)))
    return kept_numbers(found.recipe, scale)


def _counted(judged: Sequence[Judged], verdict: Callable[[Judged], Verdict]) -> str:
    words = [verdict(one) for one in judged]
    return ", ".join(f"{words.count(word)} {'is' if words.count(word) == 1 else 'are'} {word}" for word in dict.fromkeys(words))


def _not_run(found: Reproduction) -> Section | None:
    """The exhibits that have no numbers, and why."""
    left = [exhibit for exhibit in found.exhibits if not found.cells(exhibit)]
    at = [exhibit.scale.get(found.scale) for exhibit in left]
    items = [
        f"{exhibit.name[:1].upper()}{exhibit.name[1:]}. {exhibit.title}"
        + (f": {one.skip}." if one is not None and one.skip else ".")
        for exhibit, one in zip(left, at, strict=True)
    ]
    return Section(f"Not run at this scale: {len(left)}", [BulletList(items)], folded=True) if left else None


def dropped(found: Reproduction) -> str:
    """Return a sentence about rows that were measured earlier and no longer belong to the recipe."""
    many, rows = found.earlier.dropped, "row" if found.earlier.dropped == 1 else "rows"
    return f"{many} {rows} measured earlier left out: the recipe plans other runs in their cells now."


def verdict_table(judged: Sequence[Judged]) -> Table:
    """Return the table of verdicts, one row per claim, claims without runs last."""
    rows = []
    for one in sorted(judged, key=lambda one: one.verdict == "not tested"):
        held = sum(contrast.verdict == "confirmed" for contrast in one.contrasts)
        many = f"{held} of {len(one.contrasts)} comparisons hold" if one.verdict != "not tested" else DASH
        said = many if len(one.contrasts) != 1 else _difference(one, one.contrasts[0])
        said = f"{measure_of(one.measure).title}: {said}" if said not in (DASH, many) and one.measure else said
        said += " (sequential)" if any(contrast.most for contrast in one.contrasts) else ""
        cells = [
            *_verdict_cells(one),
            TableCell(one.claim.published),
            TableCell(said),
            TableCell(_range([contrast.resolves for contrast in one.contrasts])),
            TableCell(_range([contrast.needs for contrast in one.contrasts], whole=True)),
        ]
        rows.append(TableRow(one.claim.text, cells))
    note = (
        "95% t intervals of mean differences, paired by seed unless the claim is on average over cells. Confirmed: every interval "
        "lies on the claimed side; contradicted: one lies wholly on the other; not confirmed: neither; not tested: fewer than two "
        f"pairs. After Holm: what is left when {many_of(judged)} are tested together. Resolves: the smallest true difference that "
        "so many pairs find in 80 % of cases at the level of 5 %. Needs: the pairs that would find the difference that the paper "
        "prints, as often. A > before a number: a target was missed, and this is a lower bound."
    )
    most = max((contrast.most or 0 for one in judged for contrast in one.contrasts), default=0)
    if most:
        note += (
            f" Sequential, at most {most} pairs: seeds are added while the claim is open, and its intervals, p values and what it "
            "resolves have the level of a look among many, so that looking after every seed leaves 5 % for all looks together."
        )
    return Table(("claim", "verdict", "after Holm", "published", "measured", "resolves", "needs"), rows, note)


def _verdict_cells(one: Judged | Contrast) -> list[TableCell]:
    return [TableCell(verdict, tone=TONES.get(verdict, "")) for verdict in (one.verdict, one.after_holm)]


def many_of(judged: Sequence[Judged]) -> str:
    """Return how many comparisons are corrected for together, ``56 comparisons``."""
    many = sum(isfinite(contrast.p) for one in judged for contrast in one.contrasts)
    return "1 comparison" if many == 1 else f"{many} comparisons"


def _range(numbers: Sequence[float], whole: bool = False) -> str:
    """Return the least and the most of some numbers, or of numbers of pairs (``whole``)."""
    known = sorted(number for number in numbers if not isnan(number))
    ends = [f"> {MOST_PAIRS}" if isinf(end) else f"{end:.0f}" if whole else short_number(end) for end in known[:1] + known[-1:]]
    return " to ".join(dict.fromkeys(ends)) or DASH


def _verdicts(judged: Sequence[Judged]) -> list[Block]:
    if not judged:
        return []
    rows = []
    for one in judged:
        for contrast in (contrast for contrast in one.contrasts if contrast.interval.n):
            other = contrast.other
            cells = [
                TableCell(measure_of(one.measure).title if one.measure else DASH),
                TableCell(contrast.label),
                TableCell(_mean(contrast.ours, contrast.ours_exact), contrast.ours.mean),
                TableCell(_mean(other, contrast.other_exact), other.mean) if other else TableCell(DASH),
                TableCell(_difference(one, contrast), contrast.interval.mean),
                TableCell(str(contrast.interval.n), contrast.interval.n),
                *_verdict_cells(contrast),
                *(TableCell(_range([number]), number) for number in (contrast.p, contrast.holm, contrast.resolves)),
                TableCell(_range([contrast.printed]), contrast.printed),
                TableCell(_range([contrast.needs], whole=True), contrast.needs),
            ]
            rows.append(TableRow(one.claim.text, cells))
    heads = ["claim", "measure", "comparison", "ours", "other", "difference, 95% interval", "pairs", "verdict", "after Holm"]
    heads += ["p", "p after Holm", "resolves", "printed", "needs"]
    tested = [one for one in judged if one.verdict != "not tested"]
    left = [TableRow(one.claim.text, [TableCell(one.claim.published or DASH)]) for one in judged if one.verdict == "not tested"]
    return list(
        non_empty(
            verdict_table(tested) if tested else None,
            Section(
                f"Not tested: {len(left)} claim{'s' if len(left) > 1 else ''}",
                [Table(("claim", "published"), left)] if left else [],
                folded=True,
            ),
            Section("Every comparison", [Table(heads, rows)] if rows else [], folded=True),
        )
    )


def _mean(one: Spread, exact: bool) -> str:
    return short_number(one.mean) if exact else f"> {short_number(one.mean)}"


def _difference(judged: Judged, contrast: Contrast) -> str:
    """Mean difference, interval, and how many times the other side ours is; or how far from the number of the claim."""
    got, claim = contrast.interval, judged.claim
    if not isfinite(got.mean) or not (contrast.ours_exact or contrast.other_exact):
        return DASH
    low, high = (short_number(bound, got.mean) for bound in (got.low, got.high))
    text = f"{'+' if got.mean > 0 else ''}{short_number(got.mean)}" + (f" [{low}, {high}]" if isfinite(got.low) else "")
    if contrast.other is None:
        text = (
            f"{short_number(contrast.ours.mean)}, that is {text} from {claim.above if claim.below is None else claim.below:g}"
        )
    elif judged.measure and measure_of(judged.measure).log:
        text += f", x {exp(got.mean):.3g}"
    elif contrast.other.mean > 0 and isfinite(contrast.ours.mean):
        text += f", x {contrast.ours.mean / contrast.other.mean:.3g}"
    bound = "" if contrast.ours_exact and contrast.other_exact else "at most " if contrast.ours_exact else "at least "
    return (bound + text).replace("-", "−")


def exhibit_section(found: Reproduction, exhibit: Exhibit) -> Section:
    """Return an exhibit's tables and pictures as a section."""
    at = exhibit.scale.get(found.scale)
    words = [exhibit.note, at.note if at else "", f"Not run at this scale: {at.skip}." if at and at.skip else ""]
    texts = [Text(_plain(text)) for text in words if text]
    title = f"{exhibit.name[:1].upper()}{exhibit.name[1:]}. {exhibit.title}"
    if exhibit.ranks is not None:
        cells = Section("Every cell", _cell_tables(found, exhibit, ()), folded=True)
        return Section(
            title, non_empty(*texts, *standings(exhibit, exhibit.ranks, _rankings(found, exhibit, exhibit.ranks)), cells)
        )
    methods, pictures = _pictures(found, exhibit)
    return Section(title, non_empty(*texts, *exhibit_tables(found, exhibit, methods), *pictures), methods)


def _rankings(found: Reproduction, exhibit: Exhibit, plan: RankPlan) -> dict[str, Ranking]:
    return rankings(exhibit, plan, {name: found.values(exhibit, name) for name in exhibit.measures})


def exhibit_tables(found: Reproduction, exhibit: Exhibit, methods: Sequence[str] = ()) -> list[Table]:
    """Return an exhibit's tables: the standings of an exhibit with ranks, else the cells, measured and published."""
    if exhibit.ranks is not None:
        ranked = _rankings(found, exhibit, exhibit.ranks)
        return [standings_table(exhibit.ranks, ranked)] if ranked else []
    return _cell_tables(found, exhibit, methods)


def _cell_tables(found: Reproduction, exhibit: Exhibit, methods: Sequence[str]) -> list[Table]:
    """Measured, and published where the paper printed a number: a row a cell, or (one measure, several axes) the last axis across.
    Rows have the colours of ``methods``, values of the last axis."""
    shown = [measure_of(name) for name in exhibit.measures]
    values = {measure.name: found.values(exhibit, measure.name) for measure in shown}
    published = {measure.name: found.recipe.printed(exhibit, measure.name) for measure in shown}
    there = {cell for by in values.values() for cell in by} | {cell for by in published.values() for cell in by}
    if exhibit.like is not None:  # its printed numbers are in its own table; here only those of cells that this scale runs
        own = {cell for name, cell, _ in found.recipe.expected if name == exhibit.name}
        planned = {cell.values for cell in exhibit.cells(found.scale)}
        there = {cell for cell in there if cell in planned or " / ".join(cell) in own}
    cells = [cell for cell in itertools.product(*(list(axis) for axis in exhibit.axes.values())) if cell in there]
    if not cells:
        return []
    note = f"{_seeds([sorted(one) for by in values.values() for one in by.values()])}{_earlier_words(found, exhibit)}"
    if any(published.values()):
        note += f" In brackets: published (spread: {found.recipe.spread})."
    if len(shown) == 1 and len(exhibit.axes) > 1:
        return [_across(exhibit, shown[0], cells, values[shown[0].name], published[shown[0].name], note)]
    heads = [" / ".join(exhibit.axes), *(measure.title for measure in shown)]
    rows = [
        TableRow(
            " / ".join(cell),
            [_cell(m, values[m.name].get(cell, {}), published[m.name].get(cell)) for m in shown],
            methods.index(cell[-1]) if cell and cell[-1] in methods else None,
        )
        for cell in cells
    ]
    return [Table(heads, rows, note.strip())]


def _seeds(cells: Sequence[Sequence[int]]) -> str:
    """Of how many seeds the cells of a table are, and which."""
    seeds, counts = sorted({seed for cell in cells for seed in cell}), sorted({len(cell) for cell in cells if cell})
    if len(seeds) < 2:
        return f"One seed ({seeds[0]})." if seeds else ""
    number = f"{counts[0]} to {counts[-1]}" if counts[1:] else f"{counts[0]}"
    return f"Mean ± standard deviation over {number} seeds ({', '.join(map(str, seeds))})."


def _earlier_words(found: Reproduction, exhibit: Exhibit) -> str:
    """How many of an exhibit's runs were measured earlier, and in which cells some were."""
    before = {cell.name: found.earlier_at(exhibit, cell) for cell in found.cells(exhibit)}
    here = sum(len(found.runs_at(exhibit, cell)) for cell in found.cells(exhibit))
    many = sum(map(len, before.values()))
    if not many:
        return ""
    some = [name for name, seeds in before.items() if seeds]
    where = "" if len(some) in (1, len(before)) or len(some) > 6 else f" ({'; '.join(some)})"
    return f" Measured earlier: {f'{many} of {here + many}' if here else 'all'} runs{where}."


def _across(
    exhibit: Exhibit,
    measure: Measure,
    cells: Sequence[NamedCell],
    values: Mapping[NamedCell, Mapping[int, Censored]],
    published: Mapping[NamedCell, tuple[float, float]],
    note: str,
) -> Table:
    last = [value for value in list(exhibit.axes.values())[-1] if any(cell[-1] == value for cell in cells)]
    heads = [" / ".join(list(exhibit.axes)[:-1]), *last]
    rows = [
        TableRow(" / ".join(head), [_cell(measure, values.get((*head, v), {}), published.get((*head, v))) for v in last])
        for head in dict.fromkeys(cell[:-1] for cell in cells)
    ]
    return Table(heads, rows, f"{measure.title}. {note}".strip())


def _cell(measure: Measure, seeds: Mapping[int, Censored], printed: tuple[float, float] | None) -> TableCell:
    got = spread([one.value for one in seeds.values()])
    text = plus_minus(got, measure.decimals)
    text = text if all(one.reached for one in seeds.values()) else f"> {text}"
    published = "" if printed is None else plus_minus(Spread(*printed, 1), measure.decimals)
    return TableCell(text, got.mean, published=published)


def _pictures(found: Reproduction, exhibit: Exhibit) -> tuple[Sequence[str], list[Block]]:
    """The methods of the exhibit as a whole, values of its last axis, and what is drawn. A picture of others has its own switches."""
    cells = found.cells(exhibit)
    if not cells:
        return (), []
    axes = {
        axis: [value for value in values if any(cell.values[i] == value for cell in cells)]
        for i, (axis, values) in enumerate(exhibit.axes.items())
    }
    runs = {cell.values: list(found.runs_at(exhibit, cell).values()) for cell in cells}
    kept = {cell.values: [found.earlier.curves(name) for name in found.earlier_at(exhibit, cell).values()] for cell in cells}
    curves = {cell: [*here, *(run for run in kept[cell] if run is not None)] for cell, here in runs.items()}
    wanted = {kind.partition(":")[2] for kind in exhibit.pictures if kind.partition(":")[0] in BY_MEASURE}
    values = {m: found.values(exhibit, m) for m in wanted}
    measured = {m: {cell: spread([v.value for v in by.values()]) for cell, by in of.items()} for m, of in values.items()}
    bounds = {m: {cell for cell, by in of.items() if not all(v.reached for v in by.values())} for m, of in values.items()}
    printed = {m: {cell: value for cell, (value, _) in found.recipe.printed(exhibit, m).items()} for m in wanted}
    titles = {m: measure_of(m).title for m in wanted}
    shown = ExhibitData(axes, runs, measured, bounds, printed, titles, curves)
    drawn = [one for kind in exhibit.pictures for one in draw(kind, shown)]
    methods = list(axes.values())[-1] if axes else []
    if methods not in [list(one.methods) for one in drawn]:
        methods = []
    blocks: list[Block] = []
    narrow: list[Block] = []
    for one in drawn:
        own = () if list(one.methods) == methods else one.methods
        block: Block = Section(one.title, [one.picture], own) if one.title or own else one.picture
        (blocks if one.picture.wide else narrow).append(block)
    return methods, list(non_empty(SideBySide(narrow), *blocks))


def _costs(found: Reproduction) -> Table | None:
    """A row for each set of runs, under the first exhibit that has it."""
    rows: list[TableRow] = []
    seen: set[tuple[str, ...]] = set()
    for (name, cell), seeds in found.runs.items():
        key = tuple(sorted(str(run.directory) for run in seeds.values()))
        if key in seen:
            continue
        seen.add(key)
        spent = [measures.costs(run) for run in seeds.values()]
        took = [measures.participation(run) for run in seeds.values()]
        served = [measures.fairness(measures.client_metric(run), measures.metric_of(run)[1]) for run in seeds.values()]
        numbers = [
            spread([c.rounds for c in spent]).mean,
            spread([c.time_s / 3600 for c in spent]).mean,
            spread([c.paper_bits / MB for c in spent]).mean,
            spread([c.total_bits / MB for c in spent]).mean,
            spread([c.wall_s for c in spent]).mean,
            spread([p.std for p in took]).mean,
            spread([p.gini for p in took]).mean,
            spread([f.worst_decile for f in served]).mean,
            spread([f.variance for f in served]).mean,
        ]
        rows.append(TableRow(f"{name}: {' / '.join(cell)}", [TableCell(short_number(n), n) for n in numbers]))
    heads = ("runs", "rounds", "virtual h", "uplink, papers (MB)", "traffic, all (MB)", "wall s", "participation std", "Gini")
    note = "Means over seeds. The worst tenth and the variance are of the clients' own metric at the end, where clients are examined."
    return Table((*heads, "worst tenth of clients", "variance over clients"), rows, note) if rows else None


def _plain(text: str) -> str:
    """Without the marks of Markdown inside a line: code, bold, emphasis, the address of a link."""
    without_links = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")
    return re.sub(r"(?<!\w)(\*{1,2})(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", without_links)  # mu* and w* stay


def _prose(text: str) -> list[Block]:
    """Plain Markdown as blocks: headings, lists, paragraphs."""
    blocks: list[Block] = []
    for piece in _plain(text).split("\n\n"):
        lines = piece.strip().splitlines()
        if lines and lines[0].startswith("- "):
            items = "\n".join(lines).removeprefix("- ").split("\n- ")
            blocks.append(BulletList([" ".join(item.split()) for item in items]))
        elif lines and lines[0].startswith("#"):
            blocks.append(Section(lines[0].lstrip("# "), _prose("\n".join(lines[1:]))))
        elif lines:
            blocks.append(Text(" ".join(" ".join(lines).split())))
    return blocks
