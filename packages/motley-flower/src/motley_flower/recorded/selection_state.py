"""Save and restore the selector's part of a run: the selector, the clients that it knows, and what
the coordinator counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from motley.selectors.base import Selector
from motley_flower.node_registry import Enrolment
from motley_flower.strategy.coordinator import SelectionCoordinator
from motley_flower.strategy.participation import ExchangeRow, ParticipationRow
from motley_flower.strategy.reply_forms import ReplyForm

__all__ = ["AS_THEY_ARE", "CONVERTED", "participation_rows", "restore_selection", "save_selection"]

AS_THEY_ARE = (
    "round",
    "dispatched",
    "found",
    "initial_layer",
    "consensus",
    "round_trips",
    "pauses",
    "probed",
    "refusals",
)
"""Fields of the selection's state that are plain values and arrays."""
CONVERTED = ("reply_forms", "rows", "exchanges", "traffic", "last_updates", "app_errors", "sized")
"""The other fields; ``rows`` come from the tables."""


def save_selection(coordinator: SelectionCoordinator) -> dict[str, Any]:
    """Return everything that the selection of later rounds depends on, as plain values and
    arrays."""
    state = coordinator.state
    registry = coordinator.registry
    return {
        "selector": coordinator.selector.to_bytes(),
        "state": {name: getattr(state, name) for name in AS_THEY_ARE},
        "exchanges": [dataclasses.astuple(one) for one in state.exchanges],
        "traffic": dict(state.traffic),
        "last_updates": state.last_updates.save(),
        "app_errors": {reason: sorted(clients) for reason, clients in state.app_errors.items()},
        "sized": sorted(state.sized),
        "forms": [
            [k, one.model, sorted(one.items), one.model_key, one.metric_key]
            for k, one in state.reply_forms.items()
        ],
        "told": [[client, number] for client, number in coordinator.counts.told.items()],
        "classes": registry.classes,
        # ids of nodes have 64 bits without a sign
        "numbers": {str(node): client for node, client in registry.numbers.items()},
        "enrolled": [
            [one.client, one.num_examples, dict(one.signals)] for one in registry.enrolled.values()
        ],
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
    rows: the participation table up to then, whose rounds are those of the run. rounds: of the run
    so far; the selector may have had others before it.

    Raises
    ------
    CodecError: a selector of another version of Motley. ConfigError: another register than that of
    the draws.
    """
    state = coordinator.state
    registry = coordinator.registry
    learned = Selector.from_bytes(bytes(saved["selector"]), type(coordinator.selector.rule))
    coordinator.selector.state = learned.state
    coordinator.selector.memory = learned.memory
    for name in set(AS_THEY_ARE) & saved["state"].keys():  # an earlier version saved fewer
        setattr(state, name, saved["state"][name])
    state.reply_forms = {
        k: ReplyForm(model, frozenset(items), *keys)
        for k, model, items, *keys in saved.get("forms", ())
    }
    coordinator.counts.told = dict(saved.get("told", ()))
    state.rows[:] = [
        dataclasses.replace(row, round=row.round + state.round - rounds) for row in rows
    ]
    state.exchanges[:] = [ExchangeRow(*one) for one in saved["exchanges"]]
    state.traffic |= saved["traffic"]
    state.last_updates.restore(saved["last_updates"])
    state.app_errors = {reason: set(clients) for reason, clients in saved["app_errors"].items()}
    state.sized = set(saved["sized"])
    numbers = {int(node): client for node, client in saved["numbers"].items()}
    registry.restore(numbers, [Enrolment(*one) for one in saved["enrolled"]], saved.get("classes"))
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
            row["round"],
            row["client"],
            "accepted" if row["outcome"] == "rehearsed" else row["outcome"],
            _number(row["compute_s"]),
            _number(row["bits_down"]),
            _number(row["bits_up"], 0.0),
            {} if row["loss"] is None else {"loss": row["loss"]},
            why.get((row["round"], row["client"]), ""),
        )
        for row in clients
    ]


def _number(value: float | None, absent: float = float("nan")) -> float:
    return absent if value is None else value
