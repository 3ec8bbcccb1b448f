"""Save and restore the selector's part of a run: the selector, the clients that it knows, and what
the coordinator counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from motley.core.saved_state import built, restore, save
from motley_flower.node_registry import Enrolment
from motley_flower.strategy.coordinator import SelectionCoordinator
from motley_flower.strategy.participation import ParticipationRow


def save_selection(coordinator: SelectionCoordinator) -> dict[str, Any]:
    """Return everything that the selection of later rounds depends on, as plain values and
    arrays."""
    registry = coordinator.registry
    return {
        "selector": coordinator.selector.save(),
        "state": save(coordinator.state),
        "told": dict(coordinator.counts.observed),
        "classes": registry.classes,
        "numbers": dict(registry.numbers),
        "enrolled": save(registry.enrolled),
        "bits": [registry.bits_down, registry.bits_up],
        **({} if coordinator.secure is None else {"secure": coordinator.secure.save()}),
    }


def restore_selection(
    coordinator: SelectionCoordinator,
    saved: Mapping[str, Any],
    rows: Iterable[ParticipationRow],
    rounds: int,
) -> None:
    """Take over what :func:`save_selection` returned.

    Parameters
    ----------
    rows: the participation table up to then, whose rounds are those of the run.
    rounds: of the run so far; the selector may have had others before it.

    Raises
    ------
    CodecError: a selector of another version of Motley. ConfigError: another register than that of
    the draws.
    """
    state = coordinator.state
    registry = coordinator.registry
    coordinator.selector.restore(saved["selector"])
    restore(state, saved["state"])
    coordinator.counts.observed = dict(saved["told"])
    state.rows[:] = [
        dataclasses.replace(row, round=row.round + state.round - rounds) for row in rows
    ]
    enrolled: dict[int, Enrolment] = built(dict[int, Enrolment], saved["enrolled"], "enrolled")
    registry.restore(saved["numbers"], enrolled, saved["classes"])
    registry.bits_down, registry.bits_up = saved["bits"]
    if coordinator.secure is not None and "secure" in saved:
        coordinator.secure.restore(saved["secure"])


def participation_rows(
    clients: Iterable[Mapping[str, Any]], incidents: Iterable[Mapping[str, Any]]
) -> list[ParticipationRow]:
    """Return the participation table of rows of the tables ``clients`` and ``incidents``; of the
    signals they keep the loss."""
    why = {
        (row["round"], row["client"]): row["reason"]
        for row in incidents
        if row["event"] in ("lost", "rejected")
    }
    return [
        ParticipationRow(
            round=row["round"],
            client=row["client"],
            outcome="accepted" if row["outcome"] == "rehearsed" else row["outcome"],
            seconds=_number(row["compute_s"]),
            bits_down=_number(row["bits_down"]),
            bits_up=_number(row["bits_up"], 0.0),
            signals={} if row["loss"] is None else {"loss": row["loss"]},
            reason=why.get((row["round"], row["client"]), ""),
        )
        for row in clients
    ]


def _number(value: float | None, absent: float = float("nan")) -> float:
    return absent if value is None else value
