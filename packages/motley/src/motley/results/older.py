"""Runs of earlier versions of Motley, in whose tables ``round`` counted selections, and ``version``
the server steps.

They are read in today's form: ``round`` is the number of server steps. How many calls of ``select``
there were is not known of them, for a server step without one was counted too: ``selections`` is
null.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

__all__ = ["in_server_steps", "of_earlier_form"]


def of_earlier_form(columns: list[str]) -> bool:
    """Return whether a run is an earlier version's, by the names of the columns of its table
    ``rounds``."""
    return "version" in columns and "selections" not in columns


def in_server_steps(rows: pa.Table, table: str, rounds: Callable[[], pa.Table | None]) -> pa.Table:
    """Return the rows of a table with server steps under ``round``.

    Parameters
    ----------
    rounds: returns the table ``rounds`` as it is stored; None for a run in today's form. Asked only
    where the rows do not tell.

    >>> rounds = pa.table({"round": [2, 5], "version": [1, 2]})
    >>> claims = pa.table({"round": [0, 1, 2, 4, 5, 6]})
    >>> in_server_steps(claims, "claims", lambda: rounds)["round"].to_pylist()
    [0, 1, 1, 2, 2, 3]
    """
    names = rows.column_names
    if "round" not in names:
        return rows
    at = names.index("round")
    if table in ("rounds", "evaluations", "metrics"):
        return rows.set_column(at, "round", rows["version"]) if of_earlier_form(names) else rows
    stored = rounds()
    if stored is None:
        return rows
    numbers, steps = (
        np.asarray(stored[name].cast(pa.int64()).to_numpy()) for name in ("round", "version")
    )
    after = steps[-1] + 1 if len(steps) else 1  # of the step under way when the run was killed
    told = np.asarray(rows["round"].cast(pa.int64()).to_numpy())
    found = np.where(told > 0, np.append(steps, after)[np.searchsorted(numbers, told)], 0)
    return rows.set_column(at, "round", pa.array(found))
