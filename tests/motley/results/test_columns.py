"""The contract of columns: every renderer shows every column of every table with the same title,
unit and number.

The runs are made by hand so that all tables and columns are there: two methods of two seeds and
local training alone, with a common validation scope, clients one by one, own shared models, new
clients, two metrics, two widths, liars, and two selections a round.
"""

import csv
import html as entities
import re
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from motley.experiments.shown import run_rows
from motley.results import columns as col
from motley.results import tables
from motley.results.blocks import Page
from motley.results.columns import Compared, SortedText
from motley.results.labels import group_runs
from motley.results.measures import Interval, Spread
from motley.results.method_rows import Until
from motley.results.number_text import MB
from motley.results.terminal import terminal_table, terminal_tables
from motley_report import latex
from motley_report.markdown import markdown
from motley_report.page import html
from motley_report.print_tables import as_csv, print_table
from tests.motley.results import fake

SHARES = [{"name": name, "share": name == "f1", "higher_is_better": True} for name in ("f1", "r2")]
METHODS = ("ditto", "fedavg", "local_only")


def made(method, seed, metric="f1"):
    """A run of two rounds with four selections; every figure differs between methods and seeds.

    An upload in papers' count is 1 MB a round: as many MB as rounds."""
    level = 0.1 * METHODS.index(method) + 0.02 * seed
    ends = [0.3 + level, 0.62 - level / 2 if seed else 0.48 + level]
    each = [0.1 * k + level for k in range(6)]
    scopes = {
        "mean": [(-1, value) for value in ends],
        "client": [(k, value) for k, value in enumerate(each)],
        "shared_client": [(k, 0.3) for k in range(6)],
        "shared_mean": [(-1, 0.3)],
        "width_0.5_mean": [(-1, 0.2 + level)],
        "validation_mean": [(-1, 0.6), (-1, 0.4 + level)],
        "new_mean_0": [(-1, 0.2 + level)],
        "new_mean_3": [(-1, 0.4 + level)],
        "new_client_0": [(6, 0.1 + level), (7, 0.3 + level)],
        "new_client_3": [(6, 0.3 + level), (7, 0.5 + level)],
        "pooled": [(-1, 0.45 + level)],
    }
    rows = [
        (scope, client, value, 1 if len(some) == 2 and client < 0 and not i else 2)
        for scope, some in scopes.items()
        for i, (client, value) in enumerate(some)
    ]
    scope, client, value, at = zip(*rows, strict=True)
    spent = {
        "round": at,
        "selections": [2 * t for t in at],
        "time_s": [3600.0 * t for t in at],
        "total_bits": [3 * MB * t for t in at],
        "total_up_paper_bits": [MB * t for t in at],
        "scope": scope,
        "client": client,
    }
    several = {"undefined": [0.0 if s == "mean" else None for s in scope]}
    metrics = fake.table(
        "metrics",
        **{name: [*some, *some] for name, some in (spent | several).items()},
        metric=["f1"] * len(rows) + ["r2"] * len(rows),
        value=[*value, *(v / 2 for v in value)],
    )
    return fake.run(
        {
            "algorithm": {"name": method},
            "split": {"test": "client"},
            "capacity": {"name": "levels"},
        },
        {"metric": metric, "metrics": SHARES},
        seed,
        evaluations=fake.table("evaluations", **spent, loss=[1 - v for v in value]),
        metrics=metrics,
        federation=fake.table(
            "federation",
            client=range(6),
            num_test=[30] * 5 + [5],
            domain=[0, 0, 0, 1, 1, 1],
            cluster=[0, 1] * 3,
        ),
        rounds=fake.table(
            "rounds",
            round=[1, 2],
            selections=[2, 4],
            selected=[4, 4],
            notes=[f'{{"liars": {seed + 1}, "cv_probability": 0.{seed + 1}}}'] * 2,
            time_s=[3600.0, 7200.0 + 72 * seed],
            down_bits=[MB] * 2,
            up_bits=[MB * (1 + seed)] * 2,
            probe_down_bits=[MB / 2] * 2,
            total_bits=[3 * MB, 6 * MB],
            total_up_paper_bits=[MB, 2 * MB],
        ),
        clients=fake.table(
            "clients",
            round=[1, 1, 1, 2, 2],
            client=[0, 1, 2, seed, 4],
            outcome=["accepted", "late", "dropped", "accepted", "rejected"],
            local_steps=[3, 4, 0, 600, 7 + seed],
        ),
        timings=fake.table(
            "timings",
            round=[1, 2],
            **{f"{kind}_s": [0.1, 0.3 + 0.01 * seed] for kind in ("wall", "select", "train")},
        ),
    )


RUNS = [made(method, seed) for method in METHODS for seed in (0, 1)]
GROUPS = group_runs(RUNS)
ON_OTHER_DATA = [
    replace(run, meta={**run.meta, "config": {**run.config, "population": size}})
    for size in (7, 8)
    for run in RUNS
]
TABLES = {
    "summary": tables.summary(GROUPS),
    "metrics": tables.metrics(GROUPS),
    "widths": tables.widths(GROUPS),
    "costs": tables.costs(GROUPS),
    "each run": tables.each_run(GROUPS, lambda run: ""),
    "phases": tables.phases(GROUPS),
    "participation": tables.participation(GROUPS),
    "served": tables.fairness(GROUPS),
    "domains": tables.by_kind(GROUPS, "domain"),
    "clusters": tables.by_kind(GROUPS, "cluster"),
    "gains": tables.gains(GROUPS),
    "new clients": tables.new_clients(GROUPS),
    "target": tables.to_target(GROUPS, 0.57),
    "pairs": tables.pairs(GROUPS),
    "pairs on several data": tables.pairs(group_runs(ON_OTHER_DATA)),
}
LAID_OUT = {"html": "page", "markdown": "page", "terminal": "terminal"} | dict.fromkeys(
    ("latex", "csv"), "printed"
)
CASES = [
    (name, renderer, place)
    for name, table in TABLES.items()
    for renderer, layout in LAID_OUT.items()
    for place in range(len(getattr(table, layout)))
]


def cells_of_html(table):
    page = html(Page("", [], [table]))
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr.*?</tr>", page)]
    return [[entities.unescape(text) for text in row] for row in (heads[1:], *rows[1:])]


def cells_of_markdown(table):
    lines = [
        line for line in markdown(Page("", [], [table]), "")[0].splitlines() if line[:1] == "|"
    ]
    rows = [re.split(r"(?<!\\) \| ", line.strip("| "))[1:] for line in (lines[0], *lines[2:])]
    plain = [[re.sub(r"^\*\*(.*)\*\*$", r"\1", text) for text in row] for row in rows]
    return [
        [re.sub(r"\\(.)", r"\1", entities.unescape(text)).replace("\xa0", " ") for text in row]
        for row in plain
    ]


def cells_of_terminal(table):
    console = Console(width=400)
    with console.capture() as got:
        console.print(terminal_table(table))
    at = [re.split(r"\s{2,}", line.strip()) for line in got.get().splitlines()]
    first = next(i for i, row in enumerate(at) if row[0] == "method")
    return [row[1:] for row in (at[first], *at[first + 2 : first + 2 + len(table.shown)])]


def cells_of_latex(table):
    text = latex.table(print_table(table))
    rows = [line.strip(" \\").split(" & ") for line in text.splitlines() if " & " in line]
    plain = [[re.sub(r"[$]|\\mathbf", "", cell) for cell in row[1:]] for row in rows]
    for sign, shown in ((r"\pm", "±"), (r"\%", "%"), (r"\,", ""), ("{", ""), ("}", "")):
        plain = [[cell.replace(sign, shown) for cell in row] for row in plain]
    return [[re.sub(r"^--$", "–", cell).replace("\\_", "_") for cell in row] for row in plain]


def cells_of_csv(table):
    rows = list(csv.reader(as_csv(print_table(table)).splitlines()))
    heads = [column.print_head(table.compared) for column in table.printed]
    names = [f"{title} ({unit})" if unit else title for title, unit in heads]
    places = [rows[0].index(name) for name in names]
    bound = [rows[0].index(f"{n}, bound") if f"{n}, bound" in rows[0] else None for n in names]
    return [
        [
            (f"{row[b]} " if b and row[b] == ">" else "") + row[i]
            for i, b in zip(places, bound, strict=True)
        ]
        for row in rows
    ]


RENDERERS = {
    "html": cells_of_html,
    "markdown": cells_of_markdown,
    "terminal": cells_of_terminal,
    "latex": cells_of_latex,
    "csv": cells_of_csv,
}


@cache
def rendered(name, renderer):
    return RENDERERS[renderer](TABLES[name])


def number(text):
    """Return the first number of a cell, and half of its last decimal."""
    plain = text.removeprefix("> ").replace("\u202f", "").replace("−", "-").split(" ")[0]
    mantissa, _, power = plain.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(plain), 0.5 * 10.0 ** (int(power or 0) - decimals)


@pytest.mark.parametrize(
    ("name", "renderer", "place"), CASES, ids=lambda one: str(one).replace(" ", "-")
)
def test_every_renderer_shows_every_column(name, renderer, place):
    """A number differs from the column's by its last decimal at most, in CSV not at all; words are
    the same; what is a lower bound is told as one."""
    table = TABLES[name]
    column = getattr(table, LAID_OUT[renderer])[place]
    heads, *rows = rendered(name, renderer)
    title, unit = column.print_head(table.compared)
    assert (
        heads[place]
        == {
            "page": column.page_head(table.compared),
            "terminal": column.terminal_head(table.compared),
            "printed": f"{title} ({unit})" if unit else title,
        }[LAID_OUT[renderer]]
    )
    assert len(rows) == len(table.shown)
    for (_, row), cells in zip(table.shown, rows, strict=True):
        value = column.of(row)
        text = cells[place]
        if isinstance(value, str | SortedText | col.Link):
            assert text == (value if isinstance(value, str) else value.text)
            continue
        if isinstance(value, Until):
            assert text.startswith("> ") == (not value.mean.reached)
            value = value.mean.value
        elif isinstance(value, Interval):
            value = value.low if column.form == "bounds" else value.mean
        elif isinstance(value, Spread):
            value = value.mean
        if value != value:
            assert text in ("–", "")
            continue
        got, half = number(text)
        assert got == value if renderer == "csv" else abs(got - value) <= 1.0001 * half


def test_all_tables_and_all_columns_are_tried():
    """The contract covers whatever :mod:`motley.results.tables` offers and whatever
    :mod:`motley.results.columns` defines."""
    offered = set(tables.__all__) - {"MethodTable"}
    assert len(TABLES) == len(offered) + 2  # domains and clusters are of one function
    laid_out = {
        id(column.of) for table in TABLES.values() for column in (*table.page, *table.terminal)
    }
    defined = [one for one in vars(col).values() if isinstance(one, col.Column)]
    assert len(defined) > 40
    assert [one.title for one in defined if id(one.of) not in laid_out] == []


@pytest.mark.parametrize(
    ("column", "there", "missing"),
    [
        (col.SELECTIONS, RUNS, [fake.two_rounds()]),
        (col.BY_VALIDATION, RUNS, [fake.two_rounds()]),
        (col.LIARS, RUNS, [fake.two_rounds()]),
        (col.WALL_TIME, RUNS, [fake.two_rounds()]),
    ],
    ids=["selections", "by-validation", "liars", "wall-time"],
)
def test_a_column_is_shown_everywhere_or_nowhere(column, there, missing):
    """A deployment's hours are wall time already; its rounds have one selection each, it has no
    validation samples and no simulated liars."""
    for runs, shown in ((there, True), (missing, False)):
        groups = group_runs(runs)
        compared = Compared(groups)
        assert column.shown(compared) == shown
        heads = {
            head
            for table in (
                tables.summary(groups),
                tables.costs(groups),
                tables.participation(groups),
            )
            for head in (
                *table.heads,
                *(one.terminal_head(compared) for one in table.terminal),
                *(one.print_head(compared)[0] for one in table.printed),
            )
        }
        titles = {column.page_head(compared), column.terminal_head(compared)}
        assert (titles <= heads) == shown
        assert bool(titles & heads) == shown


def test_the_columns_by_hand():
    """fedavg ends at .48 + .1 and .62 - .06, 58 and 56 %: deviation sqrt(2). Rounds to 57 %: seed 0
    at round 2, seed 1 never. Traffic as papers count is 1 MB a round."""
    row = next(row for label, row in TABLES["summary"].shown if label == "fedavg")
    assert col.FINAL.of(row) == Spread(pytest.approx(57.0), pytest.approx(2**0.5), 2)
    assert col.FINAL.terminal_cell(row) == "57.0 ± 1.4"
    assert col.FINAL.page_cell(row).text == "57.00 ± 1.41"
    assert col.UPLINK.page_cell(row).text == "2.00"
    row = next(row for label, row in TABLES["target"].shown if label == "fedavg")
    assert [one.reached for one in col.ROUNDS.of(row).each] == [True, False]
    assert col.ROUNDS.page_cell(row).text == col.ROUNDS.terminal_cell(row) == "> 2"
    assert col.UPLINK.page_cell(row).text == "> 2.00"
    assert col.GOT_THERE.terminal_cell(row) == "1 of 2"


def test_the_titles_of_a_summary():
    ends = ["final", "by validation", "peak", "stable", "drop"]
    spent = ["uplink, papers (MB)", "traffic, all (MB)", "wall time (s)"]
    assert rendered("summary", "html")[0] == [*ends, "participation std", "virtual hours", *spent]
    shown = ["std of rounds", "liars %", "virtual h", "MB", "wall s"]
    assert rendered("summary", "terminal")[0] == [*ends, *shown]
    units = ["Final (%)", "By validation (%)", "Peak (%)", "Stable (%)", "Drop (points)"]
    assert rendered("summary", "latex")[0] == rendered("summary", "csv")[0] == units


def test_costs_by_hand():
    """Means of two seeds: 3 + 4 + 600 + 7 or 8 local steps; uploads of 2 and 4 MB; 7,200 and 7,272
    seconds; .1 + .3 and .1 + .31 seconds of the wall clock. Of 8 sent out 3 are in flight."""
    label, row = TABLES["costs"].shown[1]
    assert label == "fedavg"
    assert [column.page_cell(row).text for column in TABLES["costs"].page] == [
        *("2", "4", "8", "2", "1", "1", "1", "614.5"),
        *("2.00", "3.00", "1.00", "2.01", "0.405"),
    ]
    shown = dict(zip(TABLES["costs"].printed, rendered("costs", "latex")[2], strict=True))
    assert shown[col.TRAFFIC].startswith("6.00 ± ")
    assert shown[col.UPLINK].startswith("2.00 ± ")


def test_every_number_in_print_has_a_unit():
    """But a metric's, which has it beside its name."""
    for name, table in TABLES.items():
        values = {column: column.of(table.shown[0][1]) for column in table.printed}
        lacking = [
            column.title
            for column, value in values.items()
            if isinstance(value, Spread | Until | Interval)
            and not column.print_head(table.compared)[1]
        ]
        assert lacking == [] or name == "metrics"


def test_the_terminal_has_the_tables_that_there_is_something_for():
    titles = [str(table.title) for table in terminal_tables(RUNS, 0.57)]
    assert titles == [
        "by hand: f1 in %, mean ± deviation over 2 seeds",
        "final f1 against fedavg in points, paired by seed",
        "all metrics",
        "f1 in % at each width",
        "the clients' own f1 in %",
        "who gained: the clients' own f1 in points",
        "new clients' f1 in %",
        "until 57%",
    ]
    assert len(terminal_tables(RUNS)) == 7
    assert len(terminal_tables([fake.run()])) == 1
    assert terminal_tables([]) == []


def test_a_metric_without_percent_has_no_unit():
    runs = [made(method, seed, "r2") for method in METHODS[:2] for seed in (0, 1)]
    compared = Compared(group_runs(runs))
    assert [one.print_head(compared)[1] for one in (*col.ENDS, *col.SERVED)] == [""] * 9
    assert col.MEDIAN_GAIN.page_head(compared) == "median gain (R2)"
    assert "R2" in str(terminal_tables(runs)[0].title)


def test_a_data_frame_of_runs_has_the_figures_of_the_page():
    for told, (_, row) in zip(run_rows(RUNS), TABLES["each run"].shown, strict=True):
        values = [col.FINAL.of(row).mean / 100, col.PEAK.of(row).mean / 100]
        values += [col.ROUNDS.of(row).mean, 3600 * col.TIME.of(row).mean, col.TRAFFIC.of(row).mean]
        names = ("f1 final", "f1 peak", "rounds", "virtual_seconds", "megabytes")
        assert [told[name] for name in names] == pytest.approx(values)
