"""One row per method: what a report and the terminal both show first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

from motley.results import measures
from motley.results.labels import group_runs
from motley.results.load import Run
from motley.results.measures import Spread

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["MethodRow", "method_rows", "plus_minus", "short_number", "summary_table"]

MB = 8e6
"""Bits in a megabyte (decimal, as the papers count)."""


@dataclass(frozen=True)
class MethodRow:
    """A method over its seeds. Ends are in percent where the metric is an accuracy; traffic is in MB."""

    label: str
    seeds: tuple[int, ...]
    final: Spread
    peak: Spread
    stable: Spread
    drop: Spread
    participation_std: Spread
    hours: Spread
    traffic_mb: Spread
    paper_mb: Spread
    wall_s: Spread
    costs: tuple[measures.Costs, ...]


def method_rows(groups: Mapping[str, Sequence[Run]]) -> list[MethodRow]:
    """One row per method of ``groups`` (label to runs), in its order."""
    return [_row(label, runs) for label, runs in groups.items()]


def _row(label: str, runs: Sequence[Run]) -> MethodRow:
    name, better = measures.metric_of(runs[0])
    percent = 100.0 if name == "accuracy" else 1.0
    ends = [measures.ends(measures.curve(run).y, better) for run in runs]
    spent = tuple(measures.costs(run) for run in runs)

    def end(kind: str) -> Spread:
        return measures.spread([percent * getattr(e, kind) for e in ends])

    def cost(kind: str, unit: float) -> Spread:
        return measures.spread([getattr(c, kind) / unit for c in spent])

    return MethodRow(
        label=label,
        seeds=tuple(run.seed for run in runs),
        final=end("final"),
        peak=end("peak"),
        stable=end("stable"),
        drop=end("drop"),
        participation_std=measures.spread([measures.participation(run).std for run in runs]),
        hours=cost("time_s", 3600),
        traffic_mb=cost("total_bits", MB),
        paper_mb=cost("paper_bits", MB),
        wall_s=cost("wall_s", 1),
        costs=spent,
    )


def short_number(value: float, like: float | None = None) -> str:
    """About four significant digits, thousands apart: ``86.93``, ``1 204``, ``0.012``; small numbers keep two; a dash when there
    is none.

    ``like``: another number whose count of decimals is taken, so that a mean and its spread line up.
    """
    if not isfinite(value):
        return "–"
    size = abs(value if like is None else like)
    if 0 < size < 1e-4:
        return f"{value:.1e}"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 or size == 0 else max(3, 1 - floor(log10(size)))
    return f"{value:,.{digits}f}".replace(",", "\u202f")


def plus_minus(spread: Spread, digits: int | None = None) -> str:
    """``mean ± standard deviation over seeds``; the mean alone for one seed. ``digits``: decimals, by default as many as tell."""
    if digits is not None and isfinite(spread.mean):
        return f"{spread.mean:.{digits}f}" + (f" ± {spread.std:.{digits}f}" if isfinite(spread.std) else "")
    return short_number(spread.mean) + (f" ± {short_number(spread.std, spread.mean)}" if isfinite(spread.std) else "")


def summary_table(runs: Sequence[Run]) -> Table:
    """The methods of ``runs`` as a table for the terminal (needs rich, imported here): one decimal, so that it fits 100 columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    groups = group_runs(runs)
    metric = measures.metric_of(runs[0])[0] if runs else "accuracy"
    unit = " in %" if metric == "accuracy" else ""
    seeds = len({run.seed for run in runs})
    spread = f", mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    title = f"{runs[0].name if runs else 'no runs'}: {metric}{unit}{spread}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", overflow="fold", min_width=12)
    for name in ("final", "peak", "stable", "drop", "took part std", "virtual h", "MB", "wall s"):
        table.add_column(name, justify="right", no_wrap=True)
    digits = 1 if metric == "accuracy" else None
    for row in method_rows(groups):
        numbers = (row.final, row.peak, row.stable, row.drop, row.participation_std)
        cells = [plus_minus(number, digits) for number in numbers]
        spent = [short_number(number.mean) for number in (row.hours, row.traffic_mb, row.wall_s)]
        table.add_row(Text(row.label), *cells, *spent)
    return table
