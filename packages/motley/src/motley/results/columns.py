"""Every column of the tables that compare methods, defined once: its titles, its unit, its form,
how it is made of a method's runs, and when it is shown.

:mod:`motley.results.tables` lays columns out as tables; the page (HTML, Markdown, notebooks), the
terminal (:mod:`motley.results.terminal`) and print (LaTeX and CSV,
:mod:`motley_report.print_tables`) take titles and numbers from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isfinite, nan
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from motley.results import measures
from motley.results.blocks import DASH, TableCell
from motley.results.labels import clock
from motley.results.load import Run
from motley.results.measures import Censored, Interval, Spread
from motley.results.method_rows import Difference, MethodRow, MetricRow, Until, method_rows
from motley.results.number_text import MB, plus_minus, short_number, whole
from motley.results.recorded_metrics import metric_in_text

Groups = Mapping[str, Sequence[Run]]


class SortedText(NamedTuple):
    """Words, and the number by which they are sorted."""

    text: str
    number: float


class Link(NamedTuple):
    """Words, and the relative address of what they name."""

    text: str
    address: str


Value = Spread | Until | Interval | SortedText | Link | float | str
"""What a column holds: a number over seeds, a cost to a target, a paired difference, words with a
number, a mean or count alone, words."""
Form = Literal["spread", "mean", "count", "fixed", "signed", "bounds"]


class Compared:
    """What all columns of a table have in common: the methods, their metric, and the words that
    titles are made of.

    Parameters
    ----------
    groups: label -> runs of a method, one method at least.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.first = next(iter(groups.values()))[0]
        self.metric, self.better = measures.metric_of(self.first)
        self.percent = measures.percent_of(self.first) > 1
        self.called = metric_in_text(self.metric)
        self.named = f"{self.called} (%)" if self.percent else self.called
        self.time = clock(groups)

    @cached_property
    def methods(self) -> list[MethodRow]:
        """A row per method."""
        return method_rows(self.groups)

    @cached_property
    def words(self) -> dict[str, str]:
        """What stands for the names in braces in titles and units."""
        points = "points" if self.percent else ""
        return {
            "metric": self.called,
            "named": self.named,
            "time": self.time,
            "Time": self.time.capitalize(),
            "percent": "%" if self.percent else "",
            "square": "%^2" if self.percent else "",
            "points": points,
            "gain": points or self.called,
        }

    @cached_property
    def selects(self) -> bool:
        """Whether a run selected more or less often than once a round, so that tables count
        both."""
        spent = [costs for method in self.methods for costs in method.spent]
        return any(
            isfinite(costs.selections) and costs.selections != costs.rounds for costs in spent
        )


def always(compared: Compared) -> bool:
    """Return True: the column is shown whatever is compared."""
    return True


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table of methods.

    Parameters
    ----------
    title: on a page, with :attr:`Compared.words` in braces.
    of: the value of a row.
    form: ``spread``: mean ± deviation over seeds; ``mean``: the mean alone; ``count``: without idle
        decimals; ``fixed``: with ``decimals``; ``signed`` and ``bounds``: of a paired difference.
    unit: in print.
    terminal, printed: titles there, where they are others.
    share: of all clients or dispatches, in percent whatever the metric is.
    best: which number is the best of a column: more or less as the metric says, or always ``less``;
        "" sets none in bold.
    tone: the tone of a page's cell by its text.
    shown: whether the column is there.
    """

    title: str
    of: Callable[[Any], Value]
    form: Form = "spread"
    unit: str = ""
    terminal: str = ""
    printed: str = ""
    decimals: int = 2
    share: bool = False
    best: Literal["", "metric", "less"] = ""
    tone: Mapping[str, Literal["good", "bad"]] | None = None
    shown: Callable[[Compared], bool] = always

    def called(self, title: str) -> Column:
        """Return the column under another title, in a table where its own would be too long or say
        too little."""
        return replace(self, title=title, terminal=title, printed=title)

    def fixed(self, title: str, decimals: int = 2) -> Column:
        """Return the mean of the column alone, under a title of a page, with so many decimals."""
        return replace(self, title=title, form="fixed", decimals=decimals)

    def higher(self, compared: Compared) -> bool:
        """Return whether more of the column is better."""
        return compared.better and self.best != "less"

    def page_head(self, compared: Compared) -> str:
        """Return the title on a page."""
        return self.title.format_map(compared.words)

    def terminal_head(self, compared: Compared) -> str:
        """Return the title on the terminal."""
        return (self.terminal or self.title).format_map(compared.words)

    def print_head(self, compared: Compared) -> tuple[str, str]:
        """Return the title and the unit in print."""
        title = self.printed or self.title[:1].upper() + self.title[1:]
        return title.format_map(compared.words), self.unit.format_map(compared.words)

    def page_cell(self, row: Any, best: bool = False) -> TableCell:
        """Return the cell of a row on a page; ``best``: whether it is bold."""
        value = self.of(row)
        text = self._text(value, row)
        if isinstance(value, Link):
            return TableCell(text, link=value.address)
        if isinstance(value, str):
            return TableCell(text, tone=(self.tone or {}).get(text, ""))
        return TableCell(text, _number(value, self.form), best)

    def terminal_cell(self, row: Any) -> str:
        """Return the text of a row's cell on the terminal, with one decimal where the number is in
        percent."""
        return self._text(self.of(row), row, 1 if self.share or row.percent > 1 else None)

    def print_cell(self, row: Any) -> Interval | Censored | str:
        """Return the cell of a row in print, with its interval over seeds."""
        value = self.of(row)
        if isinstance(value, Spread):
            return measures.interval(value)
        if isinstance(value, Until):
            return measures.interval(value.spread) if value.mean.reached else value.mean
        if isinstance(value, SortedText | Link):
            return value.text
        return f"{value:g}" if isinstance(value, int | float) else value

    def _text(self, value: Value, row: Any, digits: int | None = None) -> str:
        if isinstance(value, str | SortedText | Link):
            return value if isinstance(value, str) else value.text
        if isinstance(value, Until):
            return ("" if value.mean.reached else "> ") + self._plain(value.mean.value)
        if isinstance(value, Interval):
            if self.form == "signed":
                return _signed(value.mean, row.percent)
            if not isfinite(value.low):
                return DASH
            return " to ".join(_signed(bound, row.percent) for bound in (value.low, value.high))
        if isinstance(value, Spread) and self.form == "spread":
            return plus_minus(value, digits)
        return self._plain(_number(value, self.form))

    def _plain(self, number: float) -> str:
        if self.form == "count":
            return whole(number)
        if self.form == "fixed":
            return f"{number:.{self.decimals}f}" if isfinite(number) else DASH
        return short_number(number)


def _signed(value: float, percent: float) -> str:
    """Return a number with its sign; one that is not 0 never as 0.00, which would hide on which
    side of zero it lies."""
    text = f"{value:{'+.2f' if percent > 1 else '+.3g'}}"
    text = f"{value:+.1g}" if value and float(text) == 0 else text
    return text.replace("-", "\u2212")


def _number(value: Spread | Until | Interval | SortedText | float, form: Form) -> float:
    """Return the number that a cell is sorted by."""
    if isinstance(value, SortedText):
        return value.number
    if isinstance(value, Until):
        return value.mean.value
    if isinstance(value, Interval):
        return value.low if form == "bounds" else value.mean
    return value.mean if isinstance(value, Spread) else value


# ------------------------------------------------------------------------- the ends of a method


def _end(kind: str) -> Callable[[MethodRow], Spread]:
    return lambda row: row.end(kind)


def _validated(compared: Compared) -> bool:
    return any(method.end("by_validation").n for method in compared.methods)


FINAL = Column("final", _end("final"), unit="{percent}", best="metric")
BY_VALIDATION = Column(
    "by validation", _end("by_validation"), unit="{percent}", best="metric", shown=_validated
)
PEAK = Column("peak", _end("peak"), unit="{percent}", best="metric")
STABLE = Column("stable", _end("stable"), unit="{percent}", best="metric")
DROP = Column("drop", _end("drop"), unit="{points}", best="less")
ENDS = (FINAL, BY_VALIDATION, PEAK, STABLE, DROP)

# ------------------------------------------------------------------------------- what it cost


def _cost(kind: str, size: float = 1.0) -> Callable[[MethodRow], Spread | Until]:
    return lambda row: row.cost(kind, size)


def _count(title: str, kind: str) -> Column:
    return Column(title, _cost(kind), "count", "count")


ROUNDS = _count("rounds", "rounds")
SELECTIONS = replace(_count("selections", "selections"), shown=lambda compared: compared.selects)
SENT_OUT = _count("sent out", "dispatched")
ACCEPTED, LATE, DROPPED, REJECTED = (
    _count(kind, kind) for kind in ("accepted", "late", "dropped", "rejected")
)
LOCAL_STEPS = _count("local steps", "local_steps")
DOWN, UP, PROBES = (
    Column(f"{title} (MB)", _cost(kind, MB), "mean", "MB", printed=title.capitalize())
    for title, kind in (("down", "down_bits"), ("up", "up_bits"), ("probes", "probe_bits"))
)
TIME = Column(
    "{time} hours",
    _cost("time_s", 3600.0),
    "mean",
    "h",
    terminal="{time} h",
    printed="{Time} time",
)
UPLINK = Column(
    "uplink, papers (MB)",
    _cost("paper_bits", MB),
    "mean",
    "MB",
    terminal="uplink, papers MB",
    printed="Uplink",
)
TRAFFIC = Column(
    "traffic, all (MB)",
    _cost("total_bits", MB),
    "mean",
    "MB",
    terminal="all traffic MB",
    printed="Traffic",
)
# a deployment's hours are that already
WALL_TIME = Column(
    "wall time (s)",
    _cost("wall_s"),
    "mean",
    "s",
    terminal="wall s",
    printed="Wall time",
    shown=lambda compared: compared.time != "wall",
)
GOT_THERE = Column(
    "seeds that got there",
    lambda row: SortedText(f"{row.there} of {len(row.runs)}", row.there),
    unit="seeds",
    terminal="got there",
    printed="Reached",
)

SEED = Column("seed", lambda row: SortedText(str(row.runs[0].seed), row.runs[0].seed))
NAMED_FINAL, NAMED_PEAK = (
    replace(column, title=f"{column.title} {{named}}") for column in (FINAL, PEAK)
)
DONE = Column("rounds", lambda row: SortedText(_progress(row.runs[0]), row.spent[0].rounds))


def _progress(run: Run) -> str:
    """Return how many rounds a run has, and of how many where it goes on."""
    done = run.tables["rounds"].num_rows
    planned = (run.config.get("stop") or {}).get("rounds")
    if run.finished:
        return str(done)
    return f"{f'{done} of {planned}' if planned else done}, not finished"


# ------------------------------------------------------------------------------ who took part


def _took_part(kind: str) -> Callable[[MethodRow], Spread]:
    return lambda row: row.took_part(kind)


PARTICIPATION = Column(
    "participation std",
    _took_part("std"),
    unit="rounds",
    terminal="std of rounds",
    printed="Participation",
)
GINI = Column("Gini", _took_part("gini"), "fixed")
SEEN = Column("clients seen", _took_part("seen"), "fixed", decimals=0)
ALL_SEEN = Column("all seen after round", _took_part("all_seen"), "fixed", decimals=0)
EVENNESS = Column("cv of probabilities", lambda row: row.concentration, "fixed")
CHOOSING = Column("choosing (ms a round)", lambda row: row.milliseconds("select_s"), "fixed")
LIARS = Column(
    "sent out to liars (%)",
    lambda row: row.liars,
    unit="%",
    terminal="liars %",
    printed="Sent out to liars",
    share=True,
    shown=lambda compared: any(method.liars.n for method in compared.methods),
)
PHASES = tuple(
    Column(title, partial(MethodRow.milliseconds, kind=kind), "mean")
    for title, kind in (
        *((kind, f"{kind}_s") for kind in ("select", "measure", "plan", "train", "aggregate")),
        *((kind, f"{kind}_s") for kind in ("evaluate", "write")),
        ("whole round", "wall_s"),
    )
)

# ------------------------------------------------------------------------------ who was served


def _served(kind: str) -> Callable[[MethodRow], Spread]:
    return lambda row: row.served(kind)


CLIENT_MEAN = Column("mean", _served("mean"), unit="{percent}", best="metric")
WORST_TENTH = Column("worst tenth", _served("worst_decile"), unit="{percent}", best="metric")
VARIANCE = Column("variance", _served("variance"), unit="{square}", best="less")
DEVIATION = Column("deviation", _served("deviation"), unit="{points}", best="less")
SERVED = (CLIENT_MEAN, WORST_TENTH, VARIANCE, DEVIATION)

OVER = Column("over", lambda row: row.over)
BETTER_OFF = Column(
    "clients better off (%)",
    lambda row: row.share,
    unit="%",
    terminal="better off %",
    printed="Better off",
    share=True,
)
MEDIAN_GAIN, WORST_GAIN = (
    Column(
        f"{kind} gain ({{gain}})",
        attrgetter(kind),
        unit="{points}",
        terminal=f"{kind} gain",
        printed=f"{kind.capitalize()} gain",
    )
    for kind in ("median", "worst")
)
CLIENTS = Column("clients", lambda row: row.clients, "count")
LEFT_OUT = Column("left out", lambda row: row.left_out, "count")

# ------------------------------------------------------------------- every metric, every width


def _metric(place: int) -> Callable[[MetricRow], Spread]:
    return lambda row: row.numbers[place]


METRIC = Column("metric", lambda row: row.named)
METRIC_ENDS = (
    Column("end", _metric(0), printed="Final"),
    *(
        Column(title, _metric(place))
        for place, title in enumerate(("peak", "pooled", "worst tenth"), 1)
    ),
)
UNDEFINED = Column("undefined", lambda row: row.undefined, "count")
WIDTH = Column("width", lambda row: row.width)
AT_WIDTH = Column("{named}", lambda row: row.value, unit="{percent}", terminal="end")

# ------------------------------------------------------------------------------- differences


def _difference(row: Difference) -> Interval:
    return row.interval


AGAINST = Column("against", lambda row: row.base)
DIFFERENCE = Column("difference", _difference, "signed", "{points}")
DIFFERENCE_BOUNDS = Column("95% interval", _difference, "bounds")
PAIRS = Column("seeds", lambda row: row.interval.n, "count", "seeds", printed="Pairs")
VERDICT = Column("verdict", lambda row: row.verdict, tone={"better": "good", "worse": "bad"})


def after_epochs(number: int, worst: bool) -> Column:
    """Return the column of new clients after epochs of adaptation: their mean, or that of their
    worst tenth."""
    epochs = f"{number} epoch{'' if number == 1 else 's'}"
    return Column(
        f"worst tenth, {epochs}" if worst else f"after {epochs}",
        lambda row: row.new_clients(number)[worst],
        unit="{percent}",
        printed=epochs,
    )


def of_group(column: Literal["domain", "cluster"], kind: int) -> Column:
    """Return the column of the clients of one domain of features or cluster of concepts."""

    def mean(row: MethodRow) -> Spread:
        each = [measures.by_group(run, column) for run in row.runs]
        values = [row.percent * means.get(kind, nan) for means in each]
        return measures.spread_at_end(values, row.runs)

    return Column(f"{column} {kind}", mean, unit="{percent}")


def run_id(address: Callable[[Run], str]) -> Column:
    """Return the column of a run's id; ``address``: of the run, "" where it has none."""

    def found(row: MethodRow) -> Link:
        run = row.runs[0]
        return Link(str(run.meta.get("run_id") or run.directory.name), address(run))

    return Column("run", found)


def groups_of(compared: Compared, column: Literal["domain", "cluster"]) -> list[int]:
    """Return the domains or clusters of the clients that were evaluated, in order."""
    every = (run for runs in compared.groups.values() for run in runs)
    return sorted({kind for run in every for kind in measures.by_group(run, column)})
