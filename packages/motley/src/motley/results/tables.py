"""The tables of a report: each function takes runs grouped by method and lays columns of
:mod:`motley.results.columns` out for pages, the terminal and print.

``groups`` maps a method's label to its runs (one per seed). A table of what the runs do not hold is
None. What is returned is a :class:`motley.results.blocks.Table` of a page; its columns on the
terminal and in print are beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

from motley.results import columns as col
from motley.results.best import BOLD, best_rows
from motley.results.blocks import Table, TableRow
from motley.results.columns import Column, Compared
from motley.results.fairness import has_clients
from motley.results.gains import LEAST, gain_rows
from motley.results.labels import clock_in_words
from motley.results.load import Run
from motley.results.method_groups import method_numbers, plain_intervals
from motley.results.method_rows import (
    JUDGED,
    NO_STABLE,
    MethodRow,
    TargetRow,
    all_alike,
    differences,
    intervals_in_words,
    metric_rows,
    not_compared,
    only_worlds_differ,
    references,
    ruined_seeds,
)
from motley.results.new_clients import adapted_epochs
from motley.results.number_text import number_range
from motley.results.recorded_metrics import metric_in_title, written_scope
from motley.results.widths import width_rows

__all__ = [
    "MethodTable",
    "by_kind",
    "costs",
    "each_run",
    "fairness",
    "gains",
    "metrics",
    "new_clients",
    "pairs",
    "participation",
    "phases",
    "summary",
    "to_target",
    "widths",
]

Groups = Mapping[str, Sequence[Run]]


@dataclass(frozen=True, kw_only=True)
class MethodTable(Table):
    """A table of methods: ``heads``, ``rows`` and ``note`` are those of a page.

    Parameters
    ----------
    compared: what is compared.
    shown: label and row of each line, from which columns take their values.
    page, terminal, printed: the columns there; none where the table is not shown there.
    name: of the files in print.
    title, remark: above and below it on the terminal.
    caption: in print.
    together: how many intervals of a column hold together.
    """

    compared: Compared
    shown: Sequence[tuple[str, Any]]
    page: Sequence[Column] = ()
    terminal: Sequence[Column] = ()
    printed: Sequence[Column] = ()
    name: str = ""
    title: str = ""
    remark: str = ""
    caption: str = ""
    together: int = 1

    @property
    def bold(self) -> dict[int, Set[int]]:
        """Column in print -> lines whose numbers are bold."""
        return _bold(self.compared, self.shown, self.printed)


def _bold(
    compared: Compared, shown: Sequence[tuple[str, Any]], columns: Sequence[Column]
) -> dict[int, Set[int]]:
    if not any(column.best for column in columns):
        return {}
    seeds = [row.seeds for _, row in shown]
    bold = {
        i: best_rows([column.of(row) for _, row in shown], seeds, column.higher(compared))  # type: ignore[misc]
        for i, column in enumerate(columns)
        if column.best
    }
    return {i: rows for i, rows in bold.items() if rows}


def _table(
    compared: Compared,
    shown: Iterable[tuple[str, Any]],
    page: Iterable[Column],
    note: str = "",
    *,
    head: str = "method",
    bold: bool = False,
    terminal: Iterable[Column] = (),
    printed: Iterable[Column] = (),
    **words: Any,
) -> MethodTable:
    """Return a table of the columns that are shown.

    Parameters
    ----------
    shown: label and row of each line.
    bold: whether a page sets the best numbers in bold.
    words: ``name``, ``title``, ``remark``, ``caption`` and ``together`` of the table.
    """
    lines = list(shown)
    page, terminal, printed = (
        [column for column in columns if column.shown(compared)]
        for columns in (page, terminal, printed)
    )
    best = _bold(compared, lines, page) if bold else {}
    numbers = dict(zip(compared.groups, method_numbers(compared.groups), strict=True))
    rows = [
        TableRow(
            label,
            [column.page_cell(row, i in best.get(k, ())) for k, column in enumerate(page)],
            numbers[label],
        )
        for i, (label, row) in enumerate(lines)
    ]
    heads = (head, *(column.page_head(compared) for column in page))
    return MethodTable(
        heads,
        rows,
        note,
        compared=compared,
        shown=lines,
        page=page,
        terminal=terminal,
        printed=printed,
        **words,
    )


def _some(*parts: Any, **words: Any) -> MethodTable | None:
    """Return a table as :func:`_table` does; None without a line."""
    table = _table(*parts, **words)
    return table if table.rows else None


def _methods(compared: Compared) -> list[tuple[str, MethodRow]]:
    return [(method.label, method) for method in compared.methods]


def _unit(compared: Compared) -> str:
    return " in %" if compared.percent else ""


def _how(lines: Iterable[tuple[str, Any]], compared: Compared) -> str:
    """Return the sentence about the intervals of lines in print."""
    counts = [len(compared.groups[label]) for label, _ in lines] or [0]
    if max(counts) < 2:
        return "One seed: there is no interval."
    single = " A method with one seed has no interval." if min(counts) < 2 else ""
    return (
        f"Means over {number_range(counts)} seeds; after the plus-minus sign, half of the 95 % t "
        f"interval of the mean (two-sided).{single}"
    )


def summary(groups: Groups) -> MethodTable:
    """Return the end and the costs of each method; ends are bold by
    :data:`~motley.results.best.BOLD`."""
    compared = Compared(groups)
    lines = _methods(compared)
    lacking = not all(row.end("stable").n for _, row in lines)
    bold = [BOLD] if len(lines) > 1 else []
    if written_scope(compared.first) == "mean":
        where = "averaged over the clients' own test sets"
    else:
        where = "on the global test set"
    if col.BY_VALIDATION.shown(compared):
        validated = " By validation: at the round that is best on the clients' validation samples."
    else:
        validated = ""
    seeds = [len(row.runs) for _, row in lines]
    spread = f", mean ± deviation over {number_range(seeds)} seeds" if max(seeds) > 1 else ""
    return _table(
        compared,
        lines,
        (*col.ENDS, col.PARTICIPATION, col.TIME, col.UPLINK, col.TRAFFIC, col.WALL_TIME),
        " ".join([*bold, *([f"There is {NO_STABLE}."] if lacking else [])]),
        bold=True,
        terminal=(
            *(*col.ENDS, col.PARTICIPATION, col.LIARS),
            *(col.TIME, col.TRAFFIC.called("MB"), col.WALL_TIME),
        ),
        printed=col.ENDS,
        name="summary",
        title=f"{compared.first.name}: {compared.called}{_unit(compared)}{spread}",
        remark=NO_STABLE if lacking else "",
        caption=f"{metric_in_title(compared.metric)} {where}. Final: last evaluation; peak: the "
        f"best; stable: mean of the last ten evaluations{f'; {NO_STABLE}' if lacking else ''}; "
        f"drop: how much worse the final is than the peak.{validated} The untrained model (round "
        f"0) never counts. {' '.join([_how(lines, compared), *bold])}",
    )


def metrics(groups: Groups) -> MethodTable | None:
    """Return the end of every metric of each method; None where the headline is the only one."""
    compared = Compared(groups)
    ends = (col.METRIC, *col.METRIC_ENDS)
    return _some(
        compared,
        [(label, row) for label, runs in groups.items() for row in metric_rows(runs)],
        (*ends, col.UNDEFINED),
        "After the last round, mean ± standard deviation over seeds. Pooled: over the test samples "
        "of all clients together. Undefined: for how many clients the metric is (the AUROC of one "
        "class); they are left out of means over clients.",
        terminal=(*ends, col.UNDEFINED),
        printed=ends,
        name="metrics",
        title="all metrics",
        caption="All metrics, in the unit beside the name, without one where there is none. Final: "
        "last evaluation; peak: the best; pooled: over the test samples of all clients together; "
        "worst tenth: mean over the worst-served tenth of the clients. "
        f"{_how(_methods(compared), compared)}",
    )


def widths(groups: Groups) -> MethodTable | None:
    """Return the end of each method at each width; None where clients train whole models."""
    compared = Compared(groups)
    return _some(
        compared,
        [(label, row) for label, runs in groups.items() for row in width_rows(runs)],
        (col.WIDTH, col.AT_WIDTH),
        "After the last round, mean ± standard deviation over seeds. A width is the share of every "
        "hidden layer's units, 1 the whole model, each examined for everybody; at the end every "
        "client at its own width, mean over clients.",
        terminal=(col.WIDTH, col.AT_WIDTH),
        title=f"{compared.called}{_unit(compared)} at each width",
    )


def costs(groups: Groups) -> MethodTable:
    """Return means over seeds: rounds, selections (where there was not one a round), clients
    dispatched and their outcomes, local steps, traffic by direction, time."""
    compared = Compared(groups)
    lines = _methods(compared)
    clocks = clock_in_words(groups)
    return _table(
        compared,
        lines,
        (
            *(col.ROUNDS, col.SELECTIONS, col.SENT_OUT),
            *(col.ACCEPTED, col.LATE, col.DROPPED, col.REJECTED, col.LOCAL_STEPS),
            *(col.DOWN, col.UP, col.PROBES, col.TIME, col.WALL_TIME),
        ),
        f"Means over seeds. {clocks} The papers' uplink counts 32 bits for each value sent up; all "
        "traffic also counts downloads and probes; a probed client that is then chosen holds the "
        "model already, so its download is among the probes. What clients tell at enrolment and "
        "statistics of BatchNorm that are estimated anew are in all traffic alone. 1 MB is 8 "
        "million bits. Local steps are those asked for, also of clients that came late or dropped "
        "out.",
        printed=(
            *(col.ROUNDS, col.SELECTIONS, col.TIME, col.UPLINK, col.TRAFFIC),
            *(col.WALL_TIME, col.PARTICIPATION),
        ),
        name="costs",
        caption=f"Costs of whole runs. {clocks} Uplink: 32 bits for each value sent up, as papers "
        "count; traffic: all that travels, downloads and probes included; 1 MB is 8 million bits. "
        "Participation: standard deviation of the clients' counts of rounds taken part in. "
        f"{_how(lines, compared)}",
    )


def each_run(groups: Groups, address: Callable[[Run], str]) -> MethodTable:
    """Return a line for each run; ``address``: where it is, "" where nowhere."""
    return _table(
        Compared(groups),
        [(label, MethodRow(label, [run])) for label, runs in groups.items() for run in runs],
        (
            *(col.SEED, col.run_id(address), col.DONE, col.NAMED_FINAL, col.NAMED_PEAK),
            *(col.TIME, col.TRAFFIC, replace(col.WALL_TIME, shown=col.always)),
        ),
    )


def phases(groups: Groups) -> MethodTable | None:
    """Return the measured milliseconds a round spends in each phase, mean over rounds and seeds;
    None where nothing was timed."""
    compared = Compared(groups)
    timed = [
        (label, row)
        for label, row in _methods(compared)
        if any(column.of(row) == column.of(row) for column in col.PHASES)
    ]
    return _some(compared, timed, col.PHASES)


def participation(groups: Groups) -> MethodTable:
    """Return measures of participation and the time of selection, means over seeds; of liars, where
    a run has them."""
    compared = Compared(groups)
    return _table(
        compared,
        _methods(compared),
        (
            col.PARTICIPATION.fixed("std of counts"),
            *(col.GINI, col.SEEN, col.ALL_SEEN, col.EVENNESS, col.CHOOSING),
            col.LIARS.fixed(col.LIARS.title, 1),
        ),
        "Means over seeds. cv of probabilities: standard deviation over mean of the probabilities "
        "the rule drew by, mean over rounds (– where it does not draw by probabilities). "
        "Choosing: wall time of the rule itself, without what its probes measured.",
    )


def fairness(groups: Groups) -> MethodTable | None:
    """Return the fairness between clients at the end; None where no client was evaluated."""
    compared = Compared(groups)
    served = [
        (label, row)
        for label, row in _methods(compared)
        if any(has_clients(run, "client") for run in row.runs)
    ]
    bold = f" {BOLD}" if len(served) > 1 else ""
    return _some(
        compared,
        served,
        col.SERVED,
        f"The clients' own {compared.named} at the last evaluation of every client. Worst tenth: "
        "the mean over the worst-served tenth of the clients.",
        terminal=col.SERVED,
        printed=col.SERVED,
        name="served",
        title=f"the clients' own {compared.called}{_unit(compared)}",
        caption=f"The clients' own {compared.called} at the last evaluation of every client: mean "
        "over clients, mean over the worst-served tenth of them, variance and standard deviation "
        f"over clients. {_how(served, compared)}{bold}",
    )


def by_kind(groups: Groups, column: Literal["domain", "cluster"]) -> MethodTable | None:
    """Return the clients' own metric per domain of features or cluster of concepts, means over
    seeds; None for one kind."""
    compared = Compared(groups)
    kinds = col.groups_of(compared, column)
    if len(kinds) < 2:
        return None
    return _table(
        compared,
        _methods(compared),
        [col.of_group(column, kind) for kind in kinds],
        f"The clients' own {compared.named} at the last evaluation, averaged over the clients of "
        f"each {column}.",
    )


def gains(groups: Groups) -> MethodTable | None:
    """Return what clients gain over local training alone and over the shared model; None where
    neither is known."""
    compared = Compared(groups)
    gained = (col.OVER, col.BETTER_OFF, col.MEDIAN_GAIN, col.WORST_GAIN, col.CLIENTS)
    title = f"the clients' own {compared.called}{' in points' if compared.percent else ''}"
    return _some(
        compared,
        [(row.label, row) for row in gain_rows(groups)],
        (*gained, col.LEFT_OUT),
        f"Each client's own {compared.named} at the last evaluation against its figure under local "
        "training alone (same data, model, seed and local work), and against its figure with the "
        "method's own shared model; equal ones count half. Left out: clients with fewer than "
        f"{LEAST} test samples.",
        terminal=(*gained, col.LEFT_OUT.called(f"< {LEAST} tests")),
        printed=(*gained, col.LEFT_OUT),
        name="gains",
        title=f"who gained: {title}",
        caption=f"What each client's own {compared.called} gains over local training alone (same "
        "data, model, seed and local work) or over the method's own shared model: share of clients "
        "that are better off, equal ones half, median and worst gain. Clients with fewer than "
        f"{LEAST} test samples are left out. {_how(_methods(compared), compared)}",
    )


def new_clients(groups: Groups) -> MethodTable | None:
    """Return the figures of new clients by epochs of adaptation; None where no clients were held
    out."""
    compared = Compared(groups)
    lines = _methods(compared)
    every = (run for _, row in lines for run in row.runs)
    epochs = sorted({number for run in every for number in adapted_epochs(run)})
    if not epochs:
        return None
    means = [col.after_epochs(number, worst=False) for number in epochs]
    metric = compared.metric
    return _table(
        compared,
        lines,
        [col.after_epochs(number, worst) for number in epochs for worst in (False, True)],
        f"{metric_in_title(compared.named)} of the clients that no round asked, on their own test "
        "samples at the end: with the model that they receive (0 epochs), and after adapting it to "
        "their own training samples. Worst tenth: of these clients.",
        terminal=means,
        printed=means,
        name="new_clients",
        title=f"new clients' {compared.called}{_unit(compared)}",
        caption=f"{metric_in_title(metric)} of clients that no round asked, on their own test "
        "samples, with the model that they receive (0 epochs) and after adapting it to their own "
        f"training samples. {_how(lines, compared)}",
    )


def to_target(groups: Groups, target: float) -> MethodTable:
    """Return rounds, selections (where there was not one a round), hours and traffic to the target,
    means over seeds; a lower bound where a seed never reached it."""
    compared = Compared(groups)
    lines = [(label, TargetRow(label, runs, target)) for label, runs in groups.items()]
    spent = (col.GOT_THERE, col.ROUNDS, col.SELECTIONS, col.TIME, col.UPLINK, col.TRAFFIC)
    never = (
        "A seed that never got there counts with all it spent, and the mean is then only a lower "
        "bound (>)"
    )
    value = f"{100 * target:g} %" if compared.percent else f"{target:g}"
    return _table(
        compared,
        lines,
        spent,
        f"Means over seeds, at the first evaluation on target. {never}.",
        terminal=spent,
        printed=spent,
        name="target",
        title=f"until {value.replace(' ', '')}",
        caption=f"Cost to the first evaluation with {compared.called} {value} or better. {never}, "
        f"without an interval. {_how(lines, compared)}",
    )


def pairs(groups: Groups) -> MethodTable | None:
    """Return every method against its reference, see
    :func:`motley.results.method_rows.differences`; None without two common seeds."""
    paired = differences(groups)
    if not paired:
        return None
    compared = Compared(groups)
    end = paired[0].end
    bases = list(dict.fromkeys(difference.base for difference in paired))
    base = bases[0] if len(bases) == 1 else "the reference of the same data, clients and devices"
    compared_labels = {difference.label for difference in paired}
    left_out = ", ".join(label for label in references(groups) if label not in compared_labels)
    lacking = f"Left out, without two finished seeds in common: {left_out}." if left_out else ""
    if only_worlds_differ(groups):
        worlds = (
            "It is one method on several data, clients or devices, and these are what is compared; "
            "the same seed may draw other clients on each."
        )
    else:
        worlds = not_compared(groups)
    plain = plain_intervals(groups)
    words = [
        intervals_in_words(len(paired), plain),
        all_alike(paired),
        lacking,
        ruined_seeds(groups),
        worlds,
    ]
    together = " ".join(filter(None, words))
    against = (col.AGAINST,) if len(bases) > 1 else ()
    columns = (*against, col.DIFFERENCE, col.DIFFERENCE_BOUNDS, col.PAIRS, col.VERDICT)
    title = f"{end} {compared.called} against {base}"
    note = (
        f"{title[:1].upper()}{title[1:]}, over finished runs paired by seed: whatever two methods "
        "have in common (partition, devices, first model) is drawn alike. Student's t interval of "
        "the mean difference.",
        together,
        f"{end.capitalize()}: {JUDGED[end]}.",
    )
    caption = (
        f"{end.capitalize()} {compared.called} ({JUDGED[end]}) against {base}: mean difference "
        "over finished runs paired by seed, with half of the two-sided 95 % interval of Student's "
        "t of that mean after the plus-minus sign.",
        together,
    )
    return _table(
        compared,
        [(difference.label, difference) for difference in paired],
        columns,
        " ".join(filter(None, note)),
        head=title,
        terminal=columns,
        printed=(*against, col.DIFFERENCE, col.PAIRS, col.VERDICT),
        name="differences",
        title=f"{title}{' in points' if compared.percent else ''}, paired by seed",
        remark=together,
        caption=" ".join(filter(None, caption)),
        together=1 if plain else len(paired),
    )
