"""The table of what rules note of the clients that they choose."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from motley.core.errors import ContractError
from motley.core.records import Cohort, Reports, SelectionContext, SignalRequirements
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.simulated import simulation as simulation_of
from motley.selectors import HeteroSelect, HeteroSelectV1, Selector
from motley.selectors.selector import SelectionRule
from tests.rows import Rows

SMALL: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 5,
    "cohort": 2,
    "stop": {"rounds": 3},
    "evaluate": {"every": 3, "per_client": False},
}


@dataclasses.dataclass(frozen=True)
class Noting(SelectionRule[int]):
    """A toy that asks clients 4 and 1 and notes their ids in halves, and as many more numbers."""

    more: int = 0

    def needs(self) -> SignalRequirements:
        return SignalRequirements()

    def init(self) -> int:
        return 0

    def select(self, state: int, ask: SelectionContext) -> Cohort:
        ids = np.array([4, 1])
        return Cohort(ids, client_notes={"half": np.append(ids / 2, np.zeros(self.more))})

    def observe(self, state: int, draw: int, reports: Reports) -> int:
        return state


def _rows(keys: dict[str, Any], rule: SelectionRule[Any] | None = None) -> Rows:
    made = build(Experiment(**keys))
    rows = Rows()
    selector = made.state.selector if rule is None else Selector(rule)
    server = made.state.server.model
    simulation = simulation_of(made.config, made.engine, selector, server, rows)  # type: ignore[arg-type]
    while not simulation.done:
        simulation.step()
    simulation.engine.close()
    return rows


def _read(rows: Rows, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of all rows of a table."""
    lines = []
    for block in rows.tables[table]:
        size = len(block["client"])
        wanted = (np.broadcast_to(np.asarray(block[name]), size).tolist() for name in columns)
        lines += list(zip(*wanted, strict=True))
    return lines


def test_one_row_for_each_chosen_client_and_number() -> None:
    """Two clients a round, dispatches 0 and 1, then 2 and 3, in the order of the choice."""
    rows = _rows(SMALL, Noting())
    assert _read(rows, "choices", "round", "dispatch", "client", "name", "value") == [
        (1, 0, 4, "half", 2.0),
        (1, 1, 1, "half", 0.5),
        (2, 2, 4, "half", 2.0),
        (2, 3, 1, "half", 0.5),
        (3, 4, 4, "half", 2.0),
        (3, 5, 1, "half", 0.5),
    ]


def test_too_many_numbers_are_refused() -> None:
    with pytest.raises(ContractError, match="Noting: half has 3 entries for 2 ids"):
        Selector(Noting(more=1)).select(1, range(5), 2)


@pytest.mark.parametrize("rule", [HeteroSelect(), HeteroSelectV1()])
def test_components_of_the_chosen_are_theirs(rule: SelectionRule[Any]) -> None:
    """Where all are chosen, their mean is the mean over the available."""
    selector = Selector(rule, seed=0, horizon=9)
    cohort = selector.select(3, range(6), 6)
    assert cohort.client_notes
    for name, values in cohort.client_notes.items():
        assert values.mean() == pytest.approx(cohort.notes[name])


def test_dispatches_are_those_of_the_clients_where_several_are_chosen_a_step() -> None:
    keys = SMALL | {
        "selector": "hetero_select_v1",
        "synchrony": {"name": "buffered", "buffer": 1},
        "device": {"name": "uniform"},
    }
    rows = _rows(keys)
    sent = dict(_read(rows, "clients", "dispatch", "client"))
    noted = _read(rows, "choices", "dispatch", "client")
    assert len(set(noted)) > 2
    assert all(sent.get(dispatch, client) == client for dispatch, client in noted)
