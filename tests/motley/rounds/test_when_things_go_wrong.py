"""Updates that cannot be used, one or all of a round: rejected, counted, paid for; nothing moves
that should not, the run goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motley.engines.engine import TrainResult
from motley.experiments.build import build
from motley.rounds.loop import RoundLoop
from motley.world.interfaces import Failures
from tests.motley.rounds.going_on import going_on
from tests.rows import Rows

K = 6
HURT = 3
"""Clients, and the round in which something happens."""


@dataclasses.dataclass(frozen=True)
class Leave(Failures):
    """Everybody breaks off half-way in one round."""

    def drop_at(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.full(len(ids), 0.5 if round_index == HURT else np.nan)


@dataclasses.dataclass(frozen=True)
class Blown(Failures):
    """Everybody sends NaN in one round."""

    def upload_factor(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.full(len(ids), np.nan if round_index == HURT else 1.0)


def _simulation(folder: Path, rows: Rows | None = None, **keys: Any) -> RoundLoop:
    base: dict[str, Any] = {
        "task": {"name": "synthetic", "dim": 5, "classes": 3},
        "partition": "by_writer",
        "population": K,
        "cohort": 4,
        "stop": {"rounds": 6},
        "local": {"steps": 3, "batch_size": 8, "optimizer": {"lr": 0.05}},
        "evaluate": {"every": 1},
        "device": {"name": "constant", "seconds": 0.5},
        "dtype": "float64",
        "engine": {"name": "sequential", "threads": 1},
    }
    return build({**base, **keys}, writer=rows, folder=folder)  # type: ignore[arg-type]


def _bend(simulation: RoundLoop, hurt: Any, client: int | None = None) -> None:
    """From now on what clients (or one) send passes through ``hurt``."""
    train = simulation.engine.train

    def bent(*args: Any) -> Iterator[TrainResult]:
        for done in train(*args):
            yield (
                dataclasses.replace(done, parts=hurt(done.parts))
                if client in (None, done.client)
                else done
            )

    simulation.engine.train = bent  # type: ignore[method-assign]


def _state(simulation: RoundLoop) -> dict[str, torch.Tensor]:
    """Everything learned: model, server, memories."""
    server = simulation.state.server
    state = {"x": server.model.x, "buffers": server.model.buffers, **server.extra}
    for client, memory in sorted(simulation.state.clients.client_states.items()):
        state |= {f"{client} {name}": value for name, value in memory.items()}
    return {name: value.clone() for name, value in state.items()}


def _same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def _longer(parts: Any) -> Any:
    return {
        **parts,
        "delta": parts["delta"]._replace(
            value=torch.zeros(len(parts["delta"].value) + 1, dtype=torch.float64)
        ),
    }


WRONG = {
    "longer": _longer,
    "a column": lambda parts: {
        **parts,
        "delta": parts["delta"]._replace(value=parts["delta"].value[:, None]),
    },
    "one number": lambda parts: {
        **parts,
        "delta": parts["delta"]._replace(value=torch.tensor(1.0)),
    },
    "a part missing": lambda parts: {name: part for name, part in parts.items() if name != "delta"},
    "a part too many": lambda parts: {**parts, "more": parts["delta"]},
}


@pytest.mark.parametrize("client_state", ["ram", "disk"])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "feddyn", "fedadam", "fednova"])
@pytest.mark.parametrize("how", ["dropped", "not finite", "wrong shape", "late"])
def test_a_round_in_which_every_client_fails_moves_nothing_and_the_run_goes_on(
    how: str, algorithm: str, client_state: str, tmp_path: Path
) -> None:
    """Model, server state and memories are those of the round before, to the bit; the round counts,
    its clients are told apart, and the rounds after it learn."""
    keys: dict[str, Any] = {"algorithm": algorithm, "client_state": client_state}
    if how == "late":
        keys["synchrony"] = {"name": "deadline", "seconds": 5.0}
    rows = Rows()
    simulation = _simulation(tmp_path, rows, **keys)
    if how in ("dropped", "not finite"):
        simulation = going_on(simulation, failures=Leave() if how == "dropped" else Blown())
    for _ in range(HURT - 1):
        simulation.step()
    before = _state(simulation)
    whole = simulation.engine.train
    if how == "wrong shape":
        _bend(simulation, _longer)
    if how == "late":
        device = simulation.config.world.device
        simulation = going_on(simulation, device=dataclasses.replace(device, seconds=100.0))  # type: ignore[type-var]
    done = simulation.step()
    assert _same(_state(simulation), before)
    assert (done.round, done.accepted, simulation.state.version) == (HURT, 0, HURT)
    row = rows.tables["rounds"][-1]
    column = {"dropped": "dropped", "late": "late"}.get(how, "rejected")
    assert row[column] == 4
    assert sum(row[name] for name in ("accepted", "late", "dropped", "rejected")) == 4
    assert rows.tables["clients"][-1]["outcome"] == [column] * 4
    assert (row["up_bits"] > 0) == (column == "rejected")  # who was rejected has paid
    simulation.engine.train = whole  # type: ignore[method-assign]
    if how == "late":
        simulation = going_on(simulation, device=device)
    assert simulation.step().accepted == 4
    assert not torch.equal(simulation.state.server.model.x, before["x"])


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("engine", ["sequential", "threads", "batched"])
def test_an_update_of_another_shape_is_rejected_like_one_that_is_not_finite(
    wrong: str, engine: str, tmp_path: Path
) -> None:
    """The others are folded as if he had not been there, his memory stays, his traffic is
    billed."""
    keys: dict[str, Any] = {
        "algorithm": "scaffold",
        "cohort": K,
        "engine": {"name": engine, "threads": 1},
    }
    rows = Rows()
    told = Rows()
    bent = _simulation(tmp_path, rows, **keys)
    blown = _simulation(tmp_path, told, **keys)
    for simulation, hurt in ((bent, WRONG[wrong]), (blown, None)):
        simulation.step()
        before = simulation.state.clients.client_states[2]["c"].clone()
        if hurt is None:  # the same client, not finite
            factor = np.where(np.arange(K) == 2, np.nan, 1.0)
            simulation = going_on(simulation, failures=Chosen(tuple(factor)))
        else:
            _bend(simulation, hurt, client=2)
        assert simulation.step().accepted == K - 1
        assert torch.equal(simulation.state.clients.client_states[2]["c"], before)
    assert _same(_state(bent), _state(blown))
    for table in ("rounds", "clients"):
        one = rows.tables[table][-1]
        two = told.tables[table][-1]
        assert one.keys() == two.keys()
        for name in one.keys() - {"update_norm", "loss"}:
            np.testing.assert_array_equal(one[name], two[name], err_msg=f"{table}: {name}")
    assert rows.tables["rounds"][-1]["rejected"] == 1
    assert (
        rows.tables["clients"][-1]["outcome"] == ["accepted"] * 2 + ["rejected"] + ["accepted"] * 3
    )


@dataclasses.dataclass(frozen=True)
class Chosen(Failures):
    """Everybody's factor, given."""

    factors: tuple[float, ...] = ()

    def upload_factor(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.array(self.factors)[ids]
