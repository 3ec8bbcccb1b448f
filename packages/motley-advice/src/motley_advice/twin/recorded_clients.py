"""What a run's folder says of its clients: one row per dispatch, checked and in one form for
simulations, deployments and Flower strategies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import DataError
from motley.results.load import Run, load

TIMES = ("download_s", "compute_s", "upload_s")


@dataclass(frozen=True)
class Records:
    """The recorded dispatches of a run, ``[n]``, and its clients, ``[K]``.

    Parameters
    ----------
    run: where they come from.
    sizes: training samples of each client.
    client, round, outcome: of each dispatch.
    steps: local steps, NaN where nothing says.
    download_s, compute_s, upload_s: seconds, NaN where nothing says.
    bits_down, bits_up: of its messages.
    undivided: the seconds of a dispatch are known as a whole, all under ``compute_s``.
    notes: sentences on what was left out and what these records cannot tell.
    """

    run: Run
    sizes: Ints
    client: Ids
    round: Ints
    outcome: NDArray[Any]
    steps: Floats
    download_s: Floats
    compute_s: Floats
    upload_s: Floats
    bits_down: Floats
    bits_up: Floats
    undivided: bool
    notes: tuple[str, ...]

    @property
    def population(self) -> int:
        """K, the number of clients."""
        return len(self.sizes)

    @property
    def seconds(self) -> Floats:
        """Seconds from sending a client out to its answer, ``[n]``; NaN where nothing says."""
        return np.nan_to_num(self.download_s) + self.compute_s + np.nan_to_num(self.upload_s)

    @property
    def answered(self) -> Bools:
        """Whether an answer came, ``[n]``."""
        return np.asarray(self.outcome != "dropped")

    def names(self, clients: Ids) -> str:
        """Return clients in words, the first ten of them."""
        names = [self.run.client_name(int(client)) for client in clients[:10]]
        more = len(clients) - len(names)
        return ", ".join(names) + (f" and {more} more" if more else "")


def read(directory: str | Path) -> Records:
    """Return what the run in a folder recorded.

    Raises
    ------
    StoreError: there is no run. DataError: its records are damaged, or say too little for a twin.
    """
    run = load(directory)
    rounds = np.asarray(run.column("rounds", "round"), np.int64)
    if not len(rounds) or not run.tables["clients"].num_rows:
        raise DataError(
            f"{directory} holds no recorded rounds; give the folder of a run whose tables rounds "
            "and clients have rows (a Flower strategy writes them with out=)"
        )
    if len(rounds) < 2:
        raise DataError(
            f"{directory} holds one round, which does not tell chance from client; record at "
            "least two, better ten"
        )
    columns = {
        name: np.asarray(run.column("clients", name), float)
        for name in (*TIMES, "start_s", "local_steps", "num_examples", "bits_down", "bits_up")
    }
    ids = np.asarray(run.column("clients", "client"), np.int64)
    at = np.asarray(run.column("clients", "round"), np.int64)
    outcome = np.asarray(run.column("clients", "outcome"))
    notes = _gaps(rounds)
    undivided = not np.isfinite(columns["upload_s"]).any()
    notes += _with_waits(run, columns, outcome, at)
    usable, jumped = _in_order(columns)
    notes += jumped
    if not (usable & np.isfinite(columns["compute_s"])).any():
        raise DataError(
            f"{directory} holds no answer with its seconds: nobody answered, its clock jumped at "
            "each, or an older version wrote it; record rounds in which clients answer"
        )
    sizes, unknown = _sizes(run, ids, columns["num_examples"])
    records = Records(
        run=run,
        sizes=sizes,
        client=ids[usable],
        round=at[usable],
        outcome=outcome[usable],
        steps=columns["local_steps"][usable],
        download_s=columns["download_s"][usable],
        compute_s=columns["compute_s"][usable],
        upload_s=columns["upload_s"][usable],
        bits_down=columns["bits_down"][usable],
        bits_up=columns["bits_up"][usable],
        undivided=undivided,
        notes=(),
    )
    notes += unknown + _silent(records)
    return replace(records, notes=tuple(notes))


def _gaps(rounds: Ints) -> list[str]:
    missing = np.setdiff1d(np.arange(1, rounds.max() + 1), rounds)
    if not len(missing):
        return []
    return [
        f"{len(missing)} of {rounds.max()} rounds are missing in the records, the first is round "
        f"{missing[0]}; the twin is fitted to the others."
    ]


def _with_waits(run: Run, columns: dict[str, Floats], outcome: NDArray[Any], at: Ints) -> list[str]:
    """Give late answers whose seconds nobody recorded the seconds that the server waited."""
    ends = dict(
        zip(run.column("rounds", "round").tolist(), run.column("rounds", "time_s"), strict=True)
    )
    late = np.flatnonzero((outcome == "late") & ~np.isfinite(columns["compute_s"]))
    for row in late.tolist():
        columns["compute_s"][row] = ends.get(int(at[row]), np.nan) - columns["start_s"][row]
    if not len(late):
        return []
    return [
        f"Of {len(late)} late answers the seconds are not known; they count as the time that the "
        "server waited, so slow clients are slower than their twins."
    ]


def _in_order(columns: dict[str, Floats]) -> tuple[Bools, list[str]]:
    """Return the rows without negative seconds, and a note on the others."""
    wrong = np.any([columns[name] < 0 for name in TIMES], axis=0)
    if not wrong.any():
        return ~wrong, []
    return ~wrong, [
        f"{int(wrong.sum())} of {len(wrong)} dispatches have negative seconds, because a clock "
        "jumped; they are left out."
    ]


def _sizes(run: Run, ids: Ids, examples: Floats) -> tuple[Ints, list[str]]:
    """Return the training samples of each client, and a note on those of which they are unknown."""
    enrolled_ids = np.asarray(run.column("federation", "client"), np.int64)
    count = max(
        int(run.config.get("population") or 0),
        int(ids.max()) + 1,
        int(enrolled_ids.max(initial=-1)) + 1,
    )
    sizes = np.full(count, np.nan)
    answered = np.isfinite(examples)
    sizes[ids[answered]] = examples[answered]
    enrolled = np.asarray(run.column("federation", "num_train"), float)
    sizes[enrolled_ids[np.isfinite(enrolled)]] = enrolled[np.isfinite(enrolled)]
    unknown = np.isnan(sizes)
    usual = np.nanmedian(sizes) if not unknown.all() else 1.0
    filled = np.where(unknown, usual, sizes).round().astype(np.int64)
    if not unknown.any():
        return filled, []
    return filled, [
        f"Of {int(unknown.sum())} of {count} clients the number of samples is not recorded; they "
        f"count with {usual:.0f}."
    ]


def _silent(records: Records) -> list[str]:
    """Return notes on clients that never answered, and on those that were never asked."""
    everybody = np.arange(records.population)
    dispatched = np.unique(records.client)
    heard = np.unique(records.client[records.answered])
    groups: list[tuple[Ids, str]] = [
        (np.setdiff1d(dispatched, heard), "asked and never answered"),
        (np.setdiff1d(everybody, dispatched), "never asked"),
    ]
    return [
        f"{len(who)} clients were {fate} ({records.names(who)}); their speed is drawn from what "
        "the others' speeds are like."
        for who, fate in groups
        if len(who)
    ]
