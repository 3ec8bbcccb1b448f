"""Rows of the result tables, made of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Ids, Ints
from motley.core.records import Cohort, Outcome, Reports
from motley.core.strict_json import finite
from motley.core.work import LocalWork
from motley.results.writer import Writer
from motley.rounds.channel import traffic_row
from motley.rounds.in_flight import InFlight
from motley.rounds.round import Round
from motley.rounds.stage import Stage
from motley.rounds.state import RunState
from motley.tasks.task import Federation


def client_rows(landed: InFlight, reports: Reports) -> dict[str, Any]:
    """Return the rows of the table ``clients``, without the column ``round``: the round in which
    the dispatches ended."""
    lines = landed.timelines
    columns = landed.columns
    return {
        "dispatch": lines.dispatch,
        "client": reports.ids,
        "outcome": [Outcome(int(o)).name.lower() for o in reports.outcome],
        "version": lines.version,
        "staleness": reports.staleness.astype(np.int64),
        "num_examples": columns["examples"],
        "local_steps": lines.steps,
        "weight": columns["weight"],
        "score": columns["score"],
        "loss": reports.signal("loss"),
        "update_norm": reports.signal("update_norm"),
        "start_s": lines.start_s,
        "download_s": reports.download_s,
        "compute_s": reports.compute_s,
        "upload_s": reports.upload_s,
        "bits_down": reports.bits_down,
        "bits_up": reports.bits_up,
        "theta": columns["theta"],
        "up_mbps": columns["up_mbps"],
        "width": columns["width"],
    }


def choice_rows(cohort: Cohort, dispatch: Ints) -> dict[str, Any]:
    """Return the rows of the table ``choices``, without the column ``round``.

    Parameters
    ----------
    dispatch: of each of the cohort, ``[m]``.
    """
    notes = cohort.client_notes
    return {
        "dispatch": np.tile(dispatch, len(notes)).tolist(),
        "client": np.tile(cohort.ids, len(notes)).tolist(),
        "name": np.repeat(list(notes), len(cohort.ids)).tolist(),
        "value": np.concatenate(list(notes.values())) if notes else [],
    }


def stamp(state: RunState[Any]) -> dict[str, float]:
    """Return the columns that say when a row was written: rounds, selections, and both accounts of
    time."""
    clients = state.clients
    return {
        "round": state.version,
        "selections": state.selections,
        "time_s": clients.now_s,
        "paper_s": clients.paper_s,
    }


def round_row(reports: Reports, weights: NDArray[np.float64]) -> dict[str, Any]:
    """Return the part of a row of ``rounds`` that the reports tell: counts by outcome, mean loss
    and update norm of the accepted.

    ``weights``: ``[n]``, raw weights of the updates."""
    accepted = reports.outcome == Outcome.ACCEPTED
    counts = np.bincount(reports.outcome, minlength=len(Outcome))
    row: dict[str, Any] = {
        kind.name.lower(): int(counts[kind])
        for kind in (Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED)
    }
    for column, signal in (("train_loss", "loss"), ("update_norm", "update_norm")):
        values = reports.signal(signal)[accepted]
        # an upload that adds nothing to a private sum has no number
        values = values[~np.isnan(values)]
        row[column] = float(values.mean()) if len(values) else float("nan")
    aggregated = accepted | (reports.outcome == Outcome.REHEARSED)
    row["weight_sum"] = float(weights[aggregated].sum())
    return row


def federation_rows(
    data: Federation,
    step_s: Callable[[Ids], NDArray[np.float64]],
    up_mbps: Callable[[Ids], NDArray[np.float64]],
    work: LocalWork,
    block: int = 2**17,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table ``federation`` in blocks of clients: one row per client, as it is
    before round 1.

    Parameters
    ----------
    step_s, up_mbps: return the seconds of a local step and the uplinks of clients, ``[n]``."""
    federations = [data] if data.held_out is None else [data, data.held_out]
    held = {
        name: getattr(data, name)
        for name in ("noise", "domain", "cluster")
        if len(getattr(data, name))
    }
    held["batch_size"] = np.broadcast_to(
        work.batch_size if work.client_batch_sizes is None else work.client_batch_sizes, len(data)
    )
    for first in range(0, len(data), block):
        chunk = slice(first, min(first + block, len(data)))
        ids = np.arange(chunk.start, chunk.stop)
        yield {
            "noise": 0.0,
            "domain": 0,
            "cluster": 0,
            **{name: column[chunk] for name, column in held.items()},
            **{
                f"num_{part}": sum(
                    getattr(federation, part).sizes[chunk] for federation in federations
                )
                for part in ("train", "validation", "test")
            },
            "client": ids,
            "held_out": np.isin(ids, data.new_clients).astype(np.int64),
            "step_s": step_s(ids),
            "up_mbps": up_mbps(ids),
            "labels": np.sum(
                [federation.histogram(clients=chunk) for federation in federations], axis=0
            ).astype(np.int64),
        }


class Tables:
    """Where a run's rows go.

    Parameters
    ----------
    writer: writes them; None: they go nowhere.
    stages: those that leave columns out.
    """

    def __init__(self, writer: Writer | None, stages: Sequence[Stage] = ()) -> None:
        self.writer = writer
        self.stages = stages

    def write(self, table: str, columns: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Write the rows of a table.

        ``columns``: of the rows; or the columns of one block of rows after the other, of which no
        more than two are held."""
        if self.writer is None:
            return
        blocks = [columns] if isinstance(columns, Mapping) else columns
        for number, block in enumerate(blocks):
            if number:
                self.writer.flush()
            self.writer.add(table, self._written(table, block))

    def _written(self, table: str, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns of a table that the stages let be written."""
        for stage in self.stages:
            columns = stage.written(table, columns)
        return columns

    def write_round(self, state: RunState[Any], step: Round, reports: Reports) -> dict[str, Any]:
        """Write the rows of a server step, and return that of the table ``rounds``; a number that
        is not written is NaN.

        Parameters
        ----------
        reports: on all dispatches that ended with it.
        """
        dispatches = step.landed.dispatches
        row = {
            **stamp(state),
            **round_row(reports, dispatches.columns["weight"]),
            **step.row,
            **traffic_row(state.ledger),
            "dispatch": state.dispatch,
            "start_s": state.under_way.start_s,
            "notes": notes_text(step.notes),
        }
        self.write("rounds", row)
        if len(dispatches):
            self.write("clients", {"round": state.version, **client_rows(dispatches, reports)})
        for columns in step.choices:
            self.write("choices", {"round": state.version, **columns})
        return {**dict.fromkeys(row, float("nan")), **self._written("rounds", row)}


def notes_text(notes: Mapping[str, float]) -> str | None:
    """Return the column ``notes`` of a round as strict JSON; None where there are none."""
    if not notes:
        return None
    return json.dumps(
        finite({name: float(value) for name, value in notes.items()}), allow_nan=False
    )
