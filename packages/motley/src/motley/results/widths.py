"""How good a model is at each width: the whole one, every listed width, and each client at its
own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from motley.results.load import Run
from motley.results.measures import Spread, spread_at_end
from motley.results.recorded_metrics import metric_of, percent_of, rows_of

_PREFIX = "width_"
_SUFFIX = "_mean"


class WidthRow(NamedTuple):
    """The headline metric of models of one width at the last evaluation, over seeds, shares in
    percent.

    Parameters
    ----------
    width: ``1`` (the whole model), another listed one, or ``each client's own``.
    """

    width: str
    value: Spread
    percent: float


def width_rows(runs: Sequence[Run]) -> list[WidthRow]:
    """Return a row for each width of a method's runs; none where clients train whole models.

    Where there is a common test set, the figures of listed widths are those on it, else means over
    the clients' own test sets."""
    names = {
        name
        for name in map(str, runs[0].column("evaluations", "scope"))
        if name.startswith(_PREFIX)
    }
    if not names:
        return []
    common = any(not name.endswith(_SUFFIX) for name in names)
    cut = _narrow(runs[0])
    widths = sorted(
        {float(name.removeprefix(_PREFIX).removesuffix(_SUFFIX)) for name in names}, reverse=True
    )
    full_scope = "shared_mean" if cut else "mean"
    scopes = {"1": "global" if common else full_scope}
    scopes |= {f"{width:g}": f"{_PREFIX}{width:g}{'' if common else _SUFFIX}" for width in widths}
    if cut:
        scopes["each client's own"] = "mean"
    return [
        WidthRow(
            width,
            spread_at_end([_last(run, scope) for run in runs], runs, scope=scope),
            percent_of(runs[0]),
        )
        for width, scope in scopes.items()
    ]


def _narrow(run: Run) -> bool:
    """Return whether clients may hold less than the model's width."""
    capacity = run.config.get("capacity") or {}
    return bool(capacity) and not (capacity.get("batch_sizes") or capacity.get("batch_size"))


def _last(run: Run, scope: str) -> float:
    rows, column = rows_of(run, metric_of(run)[0], scope)
    values = np.asarray(rows.filter(pc.greater(rows["round"], 0))[column].to_numpy(), float)
    return percent_of(run) * float(values[-1]) if len(values) else float("nan")
