"""The report of a recipe: published beside measured, a verdict for each claim, pictures, costs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan, nan

from motley.results import columns as col
from motley.results import measures
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
from motley.results.columns import Compared
from motley.results.disclosed import claims
from motley.results.load import Run
from motley.results.measures import Censored, Spread, spread
from motley.results.method_rows import MethodRow
from motley.results.model_health import learned_nothing, model_health
from motley.results.number_text import plus_minus, short_number
from motley_papers.cell_verdicts import MARKS, JudgedCell
from motley_papers.exhibit_pictures import BY_MEASURE, ExhibitData, draw
from motley_papers.mean_ranks import Ranking
from motley_papers.measuring import Measure, measure_of
from motley_papers.number_files import measured_rows, verdicts_csv
from motley_papers.own_runs import own_runs
from motley_papers.printed_cells import counted_cells, explanations, judged_cells
from motley_papers.recipe import Exhibit, RankPlan, Recipe
from motley_papers.reproduce import Reproduction
from motley_papers.standings import rankings, standings, standings_table
from motley_papers.telling import ScaleNumbers, fill, kept_numbers, rows_of_text
from motley_papers.verdict_picture import verdict_picture
from motley_papers.verdict_tables import TONES, claim_blocks, counted_words, headline
from motley_report import sections

NamedCell = tuple[str, ...]
SMOKE = "A smoke run shows that the code runs; its numbers mean nothing."
OF_KEPT = "Of the runs kept with the recipe"


def page(reproduction: Reproduction, folders: bool = True) -> Page:
    """Return the report of the runs that are finished, as a page. ``folders``: whether commands
    name folders of this machine."""
    runs = reproduction.all_runs()
    before = reproduction.all_earlier()
    warnings = [
        f"{f.point.label}, seed {f.point.experiment.seed}, failed: {f.error}"
        for f in reproduction.failures
    ]
    if (there := len(runs) + len(before)) < reproduction.planned:
        warnings.append(
            f"{there} of {reproduction.planned} runs are finished; the same command goes on."
        )
    warnings += troubles(reproduction)
    if reproduction.earlier.dropped:
        warnings.append(dropped(reproduction))
    if reproduction.scale == "smoke":
        warnings.insert(0, SMOKE)
    recipe = reproduction.recipe
    scale = reproduction.recipe.scale[reproduction.scale]
    notes, notes_of_kept = recipe.notes_apart()
    ranked = any(exhibit.ranks is not None for exhibit in recipe.exhibit)
    wall = sum(measures.costs(run).wall_s for run in runs)
    facts = [
        ("recipe", recipe.name),
        ("scale", reproduction.scale),
        ("runs", f"{len(runs)}, and {len(before)} measured earlier" if before else str(len(runs))),
        (
            "seeds",
            ", ".join(
                map(str, sorted({*(run.seed for run in runs), *(seed for _, seed in before)}))
            ),
        ),
        *([("printed cells", printed)] if (printed := counted_cells(reproduction)) else []),
        ("wall time", f"{short_number(wall / 60)} min"),
        (
            "virtual time",
            f"{short_number(sum(measures.costs(run).time_s for run in runs) / 3600)} h",
        ),
    ]
    groups = {
        f"{name}: {' / '.join(cell)}": list(seeds.values())
        for (name, cell), seeds in reproduction.runs.items()
    }
    blocks = non_empty(
        Section(
            "Result",
            non_empty(*_result(reproduction), Text(_plain(scale.note)) if scale.note else None),
        ),
        BulletList(warnings, "Before you read on") if warnings else None,
        *(
            exhibit_section(reproduction, exhibit)
            for exhibit in reproduction.exhibits
            if reproduction.cells(exhibit)
        ),
        Section("Claims", claim_blocks(reproduction.judged)),
        _not_run(reproduction),
        Section("What private runs claim", privacy_claims(reproduction)),
        Section("What it cost, and how evenly", non_empty(_costs(reproduction))),
        Section("How it was made" if ranked else "What the paper leaves open", _prose(notes)),
        Section(f"{OF_KEPT}, not of others", _prose(notes_of_kept), folded=True)
        if notes_of_kept
        else None,
        sections.provenance(groups, experiments=False, folders=folders) if groups else None,
    )
    return Page(
        f"{recipe.title}: published and measured" if not ranked else recipe.title, facts, blocks
    )


def _result(reproduction: Reproduction) -> list[Block]:
    """What was found: the recipe's own words with their numbers, the verdicts counted, and a
    picture of where all comparisons lie."""
    text = fill(
        reproduction.recipe,
        lambda scale: numbers_at(reproduction, scale),
        reproduction.scale,
        [exhibit.name for exhibit in reproduction.exhibits],
    )
    counts = Tally(
        [
            (count, word, TONES.get(word, ""))
            for word, count in headline(reproduction.judged).items()
        ]
    )
    result = Section(
        "",
        non_empty(
            own_runs(reproduction),
            *_prose(text),
            counts if counts.counts else None,
            *counted_words(reproduction.judged),
        ),
    )
    picture = verdict_picture(reproduction.judged)
    return [SideBySide([result, picture])] if picture is not None else list(result.blocks)


def numbers_at(reproduction: Reproduction, scale: str) -> ScaleNumbers | None:
    """Return the numbers of a scale: those that were found, or those kept in the recipe's folder;
    None where there are none."""
    if scale == reproduction.scale:
        return ScaleNumbers(measured_rows(reproduction), rows_of_text(verdicts_csv(reproduction)))
    return kept_numbers(reproduction.recipe, scale)


def _not_run(reproduction: Reproduction) -> Section | None:
    left = without_numbers(reproduction)
    if left:
        return Section(f"Not run at this scale: {len(left)}", [BulletList(left)], folded=True)
    return None


def without_numbers(reproduction: Reproduction) -> list[str]:
    """Return a sentence for each exhibit that has no numbers, with the reason."""
    left = [exhibit for exhibit in reproduction.exhibits if not reproduction.cells(exhibit)]
    at = [exhibit.scale.get(reproduction.scale) for exhibit in left]
    return [
        f"{exhibit.name[:1].upper()}{exhibit.name[1:]}. {exhibit.title}"
        + (f": {scaled.skip}." if scaled is not None and scaled.skip else ".")
        for exhibit, scaled in zip(left, at, strict=True)
    ]


def dropped(reproduction: Reproduction) -> str:
    """Return a sentence about rows that were measured earlier and no longer belong to the
    recipe."""
    count = reproduction.earlier.dropped
    rows = "row" if reproduction.earlier.dropped == 1 else "rows"
    return (
        f"{count} {rows} measured earlier left out: the recipe plans other runs in their cells now."
    )


def exhibit_section(reproduction: Reproduction, exhibit: Exhibit) -> Section:
    """Return an exhibit's tables and pictures as a section."""
    at = exhibit.scale.get(reproduction.scale)
    protocol = reproduction.recipe.protocol(exhibit, reproduction.scale)
    if protocol != reproduction.recipe.protocol(None, reproduction.scale):
        here = f"Here: {protocol.words}."
    else:
        here = ""
    smoke = reproduction.scale == "smoke"
    words = [
        here,
        "" if smoke else exhibit.note,
        at.note if at else "",
        f"Not run at this scale: {at.skip}." if at and at.skip else "",
    ]
    kept = at.kept if at and _earlier_words(reproduction, exhibit) else ""
    apart = {OF_KEPT: kept, "At the larger scales": exhibit.note if smoke else ""}
    texts: list[Block] = [
        *(Text(_plain(text)) for text in words if text),
        *(
            Section(title, [Text(_plain(text))], folded=True)
            for title, text in apart.items()
            if text
        ),
    ]
    title = f"{exhibit.name[:1].upper()}{exhibit.name[1:]}. {exhibit.title}"
    if exhibit.ranks is not None:
        cells = Section("Every cell", _cell_tables(reproduction, exhibit, ()), folded=True)
        return Section(
            title,
            non_empty(
                *texts,
                *standings(exhibit, exhibit.ranks, _rankings(reproduction, exhibit, exhibit.ranks)),
                cells,
            ),
        )
    methods, pictures = _pictures(reproduction, exhibit)
    return Section(
        title,
        non_empty(*texts, *exhibit_tables(reproduction, exhibit, methods), *pictures),
        methods,
    )


def _rankings(reproduction: Reproduction, exhibit: Exhibit, plan: RankPlan) -> dict[str, Ranking]:
    reproduction.check_more_is_better(exhibit, exhibit.measures)
    return rankings(
        exhibit, plan, {name: reproduction.values(exhibit, name) for name in exhibit.measures}
    )


def exhibit_tables(
    reproduction: Reproduction, exhibit: Exhibit, methods: Sequence[str] = ()
) -> list[Table]:
    """Return an exhibit's tables: the standings of an exhibit with ranks, else the cells, measured
    and published."""
    if exhibit.ranks is not None:
        ranked = _rankings(reproduction, exhibit, exhibit.ranks)
        return [standings_table(exhibit.ranks, ranked)] if ranked else []
    return _cell_tables(reproduction, exhibit, methods)


def _cell_tables(
    reproduction: Reproduction, exhibit: Exhibit, methods: Sequence[str]
) -> list[Table]:
    """Measured, and published where the paper printed a number: a row a cell, or (one measure,
    several axes) the last axis across. Rows have the colours of ``methods``, values of the last
    axis."""
    shown = [measure_of(name) for name in exhibit.measures]
    values = {measure.name: reproduction.values(exhibit, measure.name) for measure in shown}
    published = {measure.name: _published(reproduction, exhibit, measure.name) for measure in shown}
    there = {cell for by in values.values() for cell in by} | {
        cell for by in published.values() for cell in by
    }
    # its printed numbers are in its own table; here only those of cells that this scale runs
    if exhibit.like is not None:
        own = {cell for name, cell, _ in reproduction.recipe.expected if name == exhibit.name}
        planned = {cell.values for cell in exhibit.cells(reproduction.scale)}
        there = {cell for cell in there if cell in planned or " / ".join(cell) in own}
    cells = [
        cell
        for cell in itertools.product(*(list(axis) for axis in exhibit.axes.values()))
        if cell in there
    ]
    if not cells:
        return []
    seeds = _seeds([sorted(by_seed) for by in values.values() for by_seed in by.values()])
    note = f"{seeds}{_earlier_words(reproduction, exhibit)}"
    kind = reproduction.recipe.protocol(exhibit, reproduction.scale).kind
    apart = kind == "other data"
    beside = {} if apart else published
    if any(beside.values()):
        protocol = "" if kind == "whole" else ", of the whole protocol"
        note += f" In brackets: published{protocol} ({_spread_words(reproduction.recipe)})."
    judged = judged_cells(reproduction, exhibit)
    if judged:
        note += " ? undecided, ! outside the interval of printed and measured."
        note += _explained_words(explanations(reproduction, exhibit, judged))
    table_cells = {
        (m.name, cell): _cell(
            measure=m,
            seeds=values[m.name].get(cell, {}),
            printed=beside.get(m.name, {}).get(cell),
            verdict=judged.get((m.name, cell)),
        )
        for m in shown
        for cell in cells
    }
    tables = [_table(exhibit, shown, cells, table_cells, note=note, methods=methods)]
    if apart and any(published.values()):
        note = f"Published, of other data than here ({_spread_words(reproduction.recipe)})."
        theirs = [cell for cell in cells if any(cell in by for by in published.values())]
        printed_measures = [m for m in shown if published[m.name]]
        printed = {
            (m.name, cell): _printed_cell(m, published[m.name].get(cell))
            for m in printed_measures
            for cell in theirs
        }
        tables.append(
            _table(
                exhibit,
                shown=printed_measures,
                cells=theirs,
                table_cells=printed,
                note=note,
                methods=methods,
            )
        )
    return tables


def _explained_words(explained: Mapping[tuple[str, NamedCell], str]) -> str:
    return "".join(
        f" Explained: {' / '.join(cell)}, {measure}, by {repaired}, which is inside."
        for (measure, cell), repaired in explained.items()
    )


def _published(
    reproduction: Reproduction, exhibit: Exhibit, measure: str
) -> dict[NamedCell, Spread]:
    """What the paper printed, with one standard deviation; without, where it is not said what its
    spread is."""
    times = reproduction.recipe.spread_deviations
    return {
        cell: Spread(value, off / times, 1)
        for cell, (value, off) in reproduction.recipe.printed(exhibit, measure).items()
    }


def _spread_words(recipe: Recipe) -> str:
    times = recipe.spread_deviations
    if isnan(times):
        return f"spread: {recipe.spread}; not shown"
    shown = "" if times == 1 else "; shown as one standard deviation"
    return f"spread: {recipe.spread}{shown}"


def _table(
    exhibit: Exhibit,
    shown: Sequence[Measure],
    cells: Sequence[NamedCell],
    table_cells: Mapping[tuple[str, NamedCell], TableCell],
    note: str,
    methods: Sequence[str],
) -> Table:
    """Return cells as a table: the last axis across where there is one measure and several axes,
    else a row a cell."""
    if len(shown) == 1 and len(exhibit.axes) > 1:
        name = shown[0].name
        blank = TableCell("")
        last = [
            value
            for value in list(exhibit.axes.values())[-1]
            if any(cell[-1] == value for cell in cells)
        ]
        heads = [" / ".join(list(exhibit.axes)[:-1]), *last]
        rows = [
            TableRow(
                " / ".join(head), [table_cells.get((name, (*head, value)), blank) for value in last]
            )
            for head in dict.fromkeys(cell[:-1] for cell in cells)
        ]
        return Table(heads, rows, f"{shown[0].title}. {note}".strip())
    rows = [
        TableRow(
            " / ".join(cell),
            [table_cells[measure.name, cell] for measure in shown],
            methods.index(cell[-1]) if cell and cell[-1] in methods else None,
        )
        for cell in cells
    ]
    return Table(
        [" / ".join(exhibit.axes), *(measure.title for measure in shown)], rows, note.strip()
    )


def _seeds(cells: Sequence[Sequence[int]]) -> str:
    """Of how many seeds the cells of a table are, and which."""
    seeds = sorted({seed for cell in cells for seed in cell})
    counts = sorted({len(cell) for cell in cells if cell})
    if len(seeds) < 2:
        return f"One seed ({seeds[0]})." if seeds else ""
    number = f"{counts[0]} to {counts[-1]}" if counts[1:] else f"{counts[0]}"
    return f"Mean ± standard deviation over {number} seeds ({', '.join(map(str, seeds))})."


def _earlier_words(reproduction: Reproduction, exhibit: Exhibit) -> str:
    """How many of an exhibit's runs were measured earlier, and in which cells some were."""
    before = {
        cell.name: reproduction.earlier_at(exhibit, cell) for cell in reproduction.cells(exhibit)
    }
    here = sum(len(reproduction.runs_at(exhibit, cell)) for cell in reproduction.cells(exhibit))
    count = sum(map(len, before.values()))
    if not count:
        return ""
    names = [name for name, seeds in before.items() if seeds]
    where = "" if len(names) in (1, len(before)) or len(names) > 6 else f" ({'; '.join(names)})"
    return f" Measured earlier: {f'{count} of {here + count}' if here else 'all'} runs{where}."


def _cell(
    measure: Measure,
    seeds: Mapping[int, Censored],
    printed: Spread | None,
    verdict: JudgedCell | None,
) -> TableCell:
    values = [value.value for value in seeds.values()]
    # a seed without a number, as of a run that diverged, would flatter the mean of the others
    measured = spread(values if all(map(isfinite, values)) else [nan])
    text = plus_minus(measured, measure.decimals)
    text = text if all(value.reached for value in seeds.values()) else f"> {text}"
    mark = MARKS[verdict.verdict] if verdict is not None else ""
    return TableCell(
        f"{text} {mark}".rstrip(),
        measured.mean,
        tone="bad" if mark == MARKS["outside"] else "",
        published="" if printed is None else plus_minus(printed, measure.decimals),
    )


def _printed_cell(measure: Measure, printed: Spread | None) -> TableCell:
    if printed is None:
        return TableCell(DASH)
    return TableCell(plus_minus(printed, measure.decimals), printed.mean)


def _pictures(reproduction: Reproduction, exhibit: Exhibit) -> tuple[Sequence[str], list[Block]]:
    """The methods of the exhibit as a whole, values of its last axis, and what is drawn. A picture
    of others has its own switches."""
    cells = reproduction.cells(exhibit)
    if not cells:
        return (), []
    axes = {
        axis: [value for value in values if any(cell.values[i] == value for cell in cells)]
        for i, (axis, values) in enumerate(exhibit.axes.items())
    }
    runs = {cell.values: list(reproduction.runs_at(exhibit, cell).values()) for cell in cells}
    stored = {
        cell.values: [
            reproduction.earlier.curves(name)
            for name in reproduction.earlier_at(exhibit, cell).values()
        ]
        for cell in cells
    }
    curves = {
        cell: [*here, *(run for run in stored[cell] if run is not None)]
        for cell, here in runs.items()
    }
    wanted = {
        kind.partition(":")[2] for kind in exhibit.pictures if kind.partition(":")[0] in BY_MEASURE
    }
    values = {m: reproduction.values(exhibit, m) for m in wanted}
    measured = {
        m: {cell: spread([v.value for v in by.values()]) for cell, by in of.items()}
        for m, of in values.items()
    }
    bounds = {
        m: {cell for cell, by in of.items() if not all(v.reached for v in by.values())}
        for m, of in values.items()
    }
    # with less than the whole protocol, what is printed is not the same thing
    same = reproduction.recipe.protocol(exhibit, reproduction.scale).kind == "whole"
    printed = {
        m: {c: p for c, (p, _) in reproduction.recipe.printed(exhibit, m).items()} if same else {}
        for m in wanted
    }
    titles = {m: measure_of(m).title for m in wanted}
    shown = ExhibitData(
        axes=axes,
        runs=runs,
        measured=measured,
        bounds=bounds,
        published=printed,
        titles=titles,
        curves=curves,
    )
    drawn = [panel for kind in exhibit.pictures for panel in draw(kind, shown)]
    methods = list(axes.values())[-1] if axes else []
    if methods not in [list(panel.methods) for panel in drawn]:
        methods = []
    blocks: list[Block] = []
    narrow: list[Block] = []
    for panel in drawn:
        own = () if list(panel.methods) == methods else panel.methods
        block: Block = (
            Section(panel.title, [panel.picture], own) if panel.title or own else panel.picture
        )
        (blocks if panel.picture.wide else narrow).append(block)
    return methods, list(non_empty(SideBySide(narrow), *blocks))


def _costs(reproduction: Reproduction) -> Table | None:
    """A row for each set of runs, under the first exhibit that has it."""
    rows = [(label, MethodRow("", runs)) for label, runs in _sets_of_runs(reproduction).items()]
    if not rows:
        return None
    compared = Compared({label: row.runs for label, row in rows})
    columns = (
        *(col.ROUNDS, col.TIME, col.UPLINK, col.TRAFFIC, col.WALL_TIME, col.PARTICIPATION),
        col.GINI,
        col.WORST_TENTH.called("worst tenth of clients"),
        col.VARIANCE.called("variance over clients"),
    )
    shown = [
        replace(column, form="mean") if column.form == "spread" else column for column in columns
    ]
    note = (
        "Means over seeds. The worst tenth and the variance are of the clients' own metric at "
        "the end, where clients are examined."
    )
    return Table(
        ("runs", *(column.page_head(compared) for column in shown)),
        [TableRow(label, [column.page_cell(row) for column in shown]) for label, row in rows],
        note,
    )


def _sets_of_runs(reproduction: Reproduction) -> dict[str, list[Run]]:
    """Return each set of runs under the first exhibit and cell that have it."""
    sets: dict[tuple[str, ...], tuple[str, list[Run]]] = {}
    for (name, cell), seeds in reproduction.runs.items():
        runs = list(seeds.values())
        key = tuple(sorted(str(run.directory) for run in runs))
        sets.setdefault(key, (f"{name}: {' / '.join(cell)}", runs))
    return dict(sets.values())


def privacy_claims(reproduction: Reproduction) -> list[BulletList]:
    """Return what is claimed of the private runs in the folder."""
    return claims(_sets_of_runs(reproduction))


def troubles(reproduction: Reproduction) -> list[str]:
    """Return a sentence for each set of runs in the folder of which a model was refused, restored
    or ruined, or learned nothing, with the troubles of the first such seed."""
    sentences = []
    for label, runs in _sets_of_runs(reproduction).items():
        ill = {run.seed: learned_nothing(run) or "; ".join(model_health(run)) for run in runs}
        seeds = [seed for seed, trouble in ill.items() if trouble]
        if seeds:
            sentences.append(f"{label}, seed {', '.join(map(str, seeds))}: {ill[seeds[0]]}.")
    return sentences


def _plain(text: str) -> str:
    """Without the marks of Markdown inside a line: code, bold, emphasis, the address of a link."""
    without_links = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")
    # mu* and w* stay
    return re.sub(r"(?<!\w)(\*{1,2})(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", without_links)


def _prose(text: str) -> list[Block]:
    """Plain Markdown as blocks: headings, lists, paragraphs."""
    blocks: list[Block] = []
    for piece in _plain(text).split("\n\n"):
        lines = piece.strip().splitlines()
        if lines and lines[0].startswith("- "):
            entries = "\n".join(lines).removeprefix("- ").split("\n- ")
            blocks.append(BulletList([" ".join(entry.split()) for entry in entries]))
        elif lines and lines[0].startswith("#"):
            blocks.append(Section(lines[0].lstrip("# "), _prose("\n".join(lines[1:]))))
        elif lines:
            blocks.append(Text(" ".join(" ".join(lines).split())))
    return blocks
