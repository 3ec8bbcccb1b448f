"""Reports to the selector and rows of the result tables, made of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from motley.core.records import Outcome, Reports
from motley.core.work import LocalWork
from motley.engines.base import TrainResult
from motley.privacy.published import without_clear
from motley.results.writer import Writer
from motley.rounds.in_flight import InFlight
from motley.rounds.state import RunState
from motley.tasks.base import Federation

__all__ = [
    "LandedReports",
    "client_rows",
    "federation_rows",
    "landed_reports",
    "round_row",
    "stamp",
    "write_rows",
]


@dataclass(frozen=True)
class LandedReports(Reports):
    """Reports on dispatches that ended with a server step, by client; one that was sent out twice
    has two rows."""

    distinct: ClassVar[bool] = False

    def heard(self) -> Reports:
        """Return one report per client, which the selector hears: of its last accepted dispatch,
        else of its last."""
        # rows are in order of client id
        last = np.append(self.ids[1:] != self.ids[:-1], True)[: len(self)]
        if last.all():
            return self
        order = np.lexsort((np.arange(len(self)), self.outcome == Outcome.ACCEPTED, self.ids))
        return self[order[last]]


def landed_reports(
    landed: InFlight,
    outcome: NDArray[np.int8],
    staleness: NDArray[np.int64],
    results: Mapping[int, TrainResult],
) -> LandedReports:
    """Return the reports of the clients whose dispatch ended with a server step.

    Parameters
    ----------
    landed: ``[n]`` dispatches. outcome, staleness: ``[n]``. results: row of ``landed`` -> its
    training result.
    """
    lines = landed.timelines
    shapes = {
        name: np.shape(value)
        for trained in results.values()
        for name, value in trained.signals.items()
    }
    signals = {name: np.full((len(landed), *shape), np.nan) for name, shape in shapes.items()}
    for i, trained in results.items():
        for name, value in trained.signals.items():
            signals[name][i] = value
    there: NDArray[np.float64] = np.where(lines.dropped, np.nan, 1.0)
    return LandedReports(
        lines.client,
        outcome,
        version=lines.version.astype(np.float64),
        num_examples=landed.columns["examples"],
        local_steps=lines.steps.astype(np.float64) * there,
        staleness=staleness.astype(np.float64),
        download_s=lines.downloaded_s - lines.start_s,
        compute_s=(lines.computed_s - lines.downloaded_s) * there,
        upload_s=(lines.arrives_s - lines.computed_s) * there,
        bits_up=landed.columns["bits_up"] * there,
        bits_down=landed.columns["bits_down"],
        signals=signals,
    )


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
    }


def stamp(state: RunState) -> dict[str, float]:
    """Return the columns that say when a row was written: rounds, selections, and both accounts of
    time."""
    clients = state.clients
    return {
        "round": state.version,
        "selections": state.selections,
        "time_s": clients.now_s,
        "paper_s": clients.paper_s,
    }


def round_row(
    reports: Reports, weights: NDArray[np.float64], private: bool = False
) -> dict[str, Any]:
    """Return the part of a row of ``rounds`` that the reports tell: counts by outcome, mean loss
    and update norm of the accepted.

    Parameters
    ----------
    weights: ``[n]``, raw weights of the updates. private: whether clear numbers of clients' data
    are NaN.
    """
    accepted = reports.outcome == Outcome.ACCEPTED
    row: dict[str, Any] = {
        kind.name.lower(): int((reports.outcome == kind).sum())
        for kind in (Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED)
    }
    for column, signal in (("train_loss", "loss"), ("update_norm", "update_norm")):
        known = reports.signal(signal)[accepted]
        # an upload that adds nothing to a private sum has no number
        known = known[~np.isnan(known)]
        row[column] = float(known.mean()) if len(known) else float("nan")
    aggregated = np.isin(reports.outcome, (Outcome.ACCEPTED, Outcome.REHEARSED))
    row["weight_sum"] = float(weights[aggregated].sum())
    return {**dict.fromkeys(row, float("nan")), **without_clear("rounds", row)} if private else row


def federation_rows(
    data: Federation,
    step_s: NDArray[np.float64],
    up_mbps: NDArray[np.float64],
    work: LocalWork,
    block: int = 2**17,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table ``federation`` in blocks of clients: one row per client, as it is
    before round 1."""
    whole = [data] if data.held_out is None else [data, data.held_out]
    ids = np.arange(len(data))
    columns = {
        f"num_{part}": sum(getattr(one, part).sizes for one in whole)
        for part in ("train", "validation", "test")
    }
    columns |= {
        "client": ids,
        "held_out": np.isin(ids, data.new_clients).astype(np.int64),
        "step_s": step_s,
        "up_mbps": up_mbps,
    }
    sizes = work.batch_size if work.client_batch_sizes is None else work.client_batch_sizes
    columns |= {"batch_size": np.broadcast_to(sizes, len(data))}
    columns |= {
        name: getattr(data, name)
        for name in ("noise", "domain", "cluster")
        if len(getattr(data, name))
    }
    for first in range(0, len(data), block):
        some = slice(first, min(first + block, len(data)))
        labels = np.sum([one.histogram(clients=some) for one in whole], axis=0).astype(np.int64)
        given = {name: column[some] for name, column in columns.items()}
        yield {"noise": 0.0, "domain": 0, "cluster": 0, **given, "labels": labels}


def write_rows(
    writer: Writer,
    table: str,
    columns: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    private: bool = False,
) -> None:
    """Write the rows of a table.

    Parameters
    ----------
    columns: of the rows; or the columns of one block of rows after the other, of which no more than
    two are held. private: leave out the columns that hold clear numbers of clients' data.
    """
    blocks = [columns] if isinstance(columns, Mapping) else columns
    for number, block in enumerate(blocks):
        if number:
            writer.flush()
        writer.add(table, without_clear(table, block) if private else block)
