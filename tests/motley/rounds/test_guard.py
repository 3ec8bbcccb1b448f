"""The guard: one step that would ruin the model is refused, and nothing of it remains; a ruined
model is replaced by the last good."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import motley
from motley.algorithms.parts import ServerState
from motley.core import codec
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.results.model_health import model_health, ruined_since
from motley.rounds.guard import Guard, total_norm
from motley.rounds.loop import RoundLoop
from motley.tasks.task import ModelState
from motley.world.interfaces import Failures
from tests.motley.resume.conftest import assert_same
from tests.motley.rounds.going_on import going_on
from tests.rows import Rows

K = 6
HURT = 3
"""Clients, and the round in which something happens."""


@dataclasses.dataclass(frozen=True)
class Exploded(Failures):
    """Client 0 sends its update times ``by`` in one round."""

    by: float = 1e30

    def upload_factor(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.where((np.asarray(ids) == 0) & (round_index == HURT), self.by, 1.0)


def _keys(**keys: Any) -> dict[str, Any]:
    return {
        "task": {"name": "synthetic", "dim": 5, "classes": 3},
        "partition": "by_writer",
        "population": K,
        "cohort": K,
        "stop": {"rounds": 6},
        "local": {"steps": 3, "batch_size": 8, "optimizer": {"lr": 0.05}},
        "evaluate": {"every": 1},
        "engine": {"name": "sequential", "threads": 1},
        **keys,
    }


def _loop(rows: Rows | None = None, **keys: Any) -> RoundLoop:
    return build(_keys(**keys), writer=rows)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ by hand


def _server(*x: float, buffers: tuple[float, ...] = (), **extra: float) -> ServerState:
    model = ModelState(torch.tensor(x), torch.tensor(buffers), torch.zeros(0, dtype=torch.int64))
    return ServerState(model, {name: torch.tensor([value]) for name, value in extra.items()})


def test_the_limit_is_a_multiple_of_the_median_but_at_least_the_models_own_norm() -> None:
    """The median of the last three of 9, 0.1, 0.3, 0.2 is 0.2; of the last three of 9, 4, 7, 2 it
    is 4."""
    guard = Guard(factor=10.0, window=3)
    assert guard.limit([9.0, 0.1, 0.3, 0.2], size=1.5) == 2.0
    assert guard.limit([9.0, 0.1, 0.3, 0.2], size=5.0) == 5.0
    assert guard.limit([9.0, 4.0, 7.0, 2.0], size=5.0) == 40.0
    assert guard.limit([], size=5.0) == math.inf


def test_the_norm_of_an_aggregate_is_over_all_its_numbers_and_does_not_overflow() -> None:
    parts = {
        "delta": torch.tensor([3.0, 0.0]),
        "c": torch.tensor([4.0]),
        "count": torch.tensor([7]),
    }
    assert total_norm(parts) == 5.0
    assert total_norm({"delta": torch.tensor([3e38, 3e38])}) == pytest.approx(3e38 * 2**0.5)


def test_what_is_refused() -> None:
    """|(3, 4)| = 5, so that with factor 10 the model may move by 50, and by 1.8e19 from 0."""
    guard = Guard(factor=10.0)
    at = _server(3.0, 4.0)
    assert not guard.refuses(1e9, [], at, _server(33.0, 44.0))
    assert guard.refuses(1.0, [], at, _server(33.1, 44.1))
    assert guard.refuses(11.0, [1.0], at, at)
    assert not guard.refuses(9.0, [1.0], at, at)
    assert not guard.refuses(1.0, [], _server(0.0), _server(1e19))
    assert guard.refuses(1.0, [], _server(0.0), _server(2e19))
    assert guard.refuses(1.0, [], at, _server(3.0, math.nan))
    assert guard.refuses(1.0, [], at, _server(3.0, 4.0, buffers=(math.inf,)))
    assert guard.refuses(1.0, [], at, _server(3.0, 4.0, square=math.inf))


# ----------------------------------------------------------------------------------------- in a run


@dataclasses.dataclass(frozen=True)
class Hostile(Failures):
    """These clients send their update times ``by`` in every round, all others theirs."""

    who: tuple[int, ...] = ()
    by: float = 1e15

    def upload_factor(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.where(np.isin(np.asarray(ids), self.who), self.by, 1.0)


@dataclasses.dataclass(frozen=True)
class Everybody(Exploded):
    """All clients send their update times ``by`` in one round, so that none stands out."""

    def upload_factor(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.full(len(ids), self.by if round_index == HURT else 1.0)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedadam", "fednova"])
@pytest.mark.parametrize("by", [1e30, -1e12])
def test_a_refused_step_leaves_nothing_behind_and_the_run_goes_on(
    algorithm: str, by: float, tmp_path: Path
) -> None:
    rows = Rows()
    loop = going_on(_loop(rows, algorithm=algorithm), failures=Everybody(by=by))
    for _ in range(HURT - 1):
        loop.step()
    server = loop.state.server
    norms = list(loop.refusals.step_norms)
    states = {client: dict(state) for client, state in loop.state.clients.client_states.items()}
    assert loop.step().accepted == 0
    assert loop.state.server is server
    assert loop.refusals.step_norms == norms
    assert loop.refusals.counts == {}
    for client, state in loop.state.clients.client_states.items():
        assert all(torch.equal(value, states[client][name]) for name, value in state.items())
    row = rows.tables["rounds"][-1]
    note = rows.notes[-1]
    assert (row["accepted"], row["rejected"]) == (0, K)
    assert note["step_refused"] == 1.0
    assert note["step_norm"] > 1e6
    assert "uploads_dropped" not in note
    assert loop.step().accepted == K
    assert "step_refused" not in rows.notes[-1]
    while not loop.done:
        loop.step()
    assert rows.tables["evaluations"][-1]["loss"][0] < rows.tables["evaluations"][0]["loss"][0]


@pytest.mark.parametrize(
    ("algorithm", "by"),
    [("fedavg", 1e30), ("scaffold", -1e12), ("fedadam", 1e12), ("fednova", 1e30)],
)
def test_one_upload_that_would_ruin_a_step_is_dropped_by_name_and_the_rest_are_used(
    algorithm: str, by: float
) -> None:
    """In the hurt round the others' step is the one that they would make if client 0 had sent
    nothing."""
    hurt = Rows()
    absent = Rows()
    first = going_on(_loop(hurt, algorithm=algorithm), failures=Exploded(by=by))
    # not finite: it is left out
    second = going_on(_loop(absent, algorithm=algorithm), failures=Exploded(by=math.inf))
    for _ in range(HURT):
        one = first.step()
        other = second.step()
    assert (one.accepted, other.accepted) == (K - 1, K - 1)
    assert torch.equal(first.state.server.model.x, second.state.server.model.x)
    outcomes = dict(
        zip(
            hurt.tables["clients"][-1]["client"].tolist(),
            hurt.tables["clients"][-1]["outcome"],
            strict=True,
        )
    )
    assert outcomes == {0: "rejected", **dict.fromkeys(range(1, K), "accepted")}
    assert (hurt.notes[-1]["uploads_dropped"], hurt.notes[-1]["step_refused"]) == (1.0, 1.0)
    assert first.refusals.counts == {0: 1}
    first.step()
    assert first.refusals.counts == {}  # its next upload was accepted
    assert hurt.tables["rounds"][-1]["accepted"] == K


def test_one_hostile_client_stops_nobody_and_is_set_aside_after_three_refusals() -> None:
    """Before, every step was refused: nobody learned anything."""
    rows = Rows()
    loop = going_on(_loop(rows), failures=Hostile(who=(2, 4)))
    while not loop.done:
        loop.step()
    assert [row["accepted"] for row in rows.tables["rounds"]] == [K - 2] * 6
    assert [row["selected"] for row in rows.tables["rounds"]] == [K] * 3 + [K - 2] * 3
    assert [note.get("set_aside") for note in rows.notes] == [None, None, 2.0, None, None, None]
    assert loop.refusals.counts == {2: 3, 4: 3}
    assert rows.tables["evaluations"][-1]["loss"][0] < rows.tables["evaluations"][0]["loss"][0]


def test_whom_nobody_can_be_told_apart_from_is_not_blamed() -> None:
    """One client alone, and a majority that does alike."""
    alone = going_on(_loop(cohort=1), failures=Hostile(who=tuple(range(K))))
    most = going_on(_loop(), failures=Hostile(who=tuple(range(1, K))))
    for loop in (alone, most):
        while not loop.done:
            assert loop.step().accepted == 0
        assert loop.refusals.counts == {}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"algorithm": "scaffold"},
        {
            "feedback": "ef21",
            "compressor": "topk",
            "weights": "uniform",
            "budget": {"name": "constant", "average": 0.5},
        },
    ],
)
def test_who_is_set_aside_survives_a_kill(keys: dict[str, Any]) -> None:
    """Saved after the second refusal, and restored in a loop of its own: the third sets the client
    aside there, too."""
    failures = Hostile(who=(2,))
    whole = going_on(_loop(**keys), failures=failures)
    for _ in range(2):
        whole.step()
    saved = codec.decode(codec.encode(whole.save()))
    parts = going_on(_loop(**keys), failures=failures)
    parts.restore(saved)
    while not whole.done:
        assert whole.step() == parts.step()
    assert whole.refusals.counts == parts.refusals.counts == {2: 3}
    assert torch.equal(whole.state.server.model.x, parts.state.server.model.x)


def test_without_the_guard_the_same_step_ruins_the_run() -> None:
    rows = Rows()
    loop = going_on(_loop(rows, guard="off"), failures=Exploded())
    while not loop.done:
        loop.step()
    assert float(loop.state.server.model.x.abs().max()) > 1e20
    assert not any("step_refused" in note for note in rows.notes)


def test_the_first_step_is_measured_by_the_initial_model() -> None:
    loop = going_on(_loop(), failures=Hostile(who=tuple(range(K)), by=1e30))
    first = loop.state.server.model.x.clone()
    assert loop.step().accepted == 0
    assert torch.equal(loop.state.server.model.x, first)


def _diverging(tmp_path: Path, rounds: int, **keys: Any) -> motley.Run:
    """Gradient descent with a rate far too large: every round multiplies the distance from the
    solution by about 10^6."""
    local = {"steps": 2, "batch_size": 8, "optimizer": {"lr": 20.0}}
    experiment = _keys(
        task="quadratic",
        local=local,
        stop={"rounds": rounds},
        **{"guard": {"factor": 1e12}, **keys},
    )
    return motley.run(experiment, out=tmp_path / "run")


def test_a_model_whose_loss_is_not_finite_is_replaced_by_the_last_good_one(tmp_path: Path) -> None:
    """The guard lets these steps through; the loss overflows on the way. Each time, the server
    starts again from the last finite one."""
    run = _diverging(tmp_path, 12)
    restored = [note for note in run.column("rounds", "notes") if "model_restored" in (note or "")]
    assert restored
    x = np.concatenate(
        [value.numpy().ravel() for value in load_file(run.directory / "model.safetensors").values()]
    )
    assert np.isfinite(x).all()
    assert [line for line in model_health(run) if "went back to its last good model" in line]


def test_a_ruined_model_is_called_so(tmp_path: Path) -> None:
    run = _diverging(tmp_path, 12, guard="off")
    (line,) = model_health(run)
    assert (
        line == f"the model is ruined: its loss is not finite from round {ruined_since(run)} on; a "
        "smaller learning rate may help"
    )
    loss = np.asarray(run.column("evaluations", "loss"), float)[
        run.column("evaluations", "scope") == "mean"
    ]
    assert np.isfinite(loss[: ruined_since(run)]).all()
    assert not np.isfinite(loss[ruined_since(run) :]).any()
    assert "the model is ruined" in motley.report(run.directory, tmp_path / "page.html").read_text()


@pytest.mark.parametrize("keys", [{}, {"algorithm": "scaffold", "client_state": "disk"}])
def test_what_the_guard_remembers_survives_a_kill(keys: dict[str, Any], tmp_path: Path) -> None:
    """Interrupted after the model of round 8 was evaluated as good and one step later: tables and
    model are the undisturbed ones."""
    failures = {"name": "corrupted", "share": 0.3, "kind": "scaling", "scale": 1e4}
    experiment = _keys(
        stop={"rounds": 12},
        evaluate={"every": 4},
        failures=failures,
        guard={"window": 3},
        cohort=2,
        **keys,
    )
    whole = motley.run({**experiment, "checkpoint": {"every_rounds": 1}}, out=tmp_path / "whole")
    notes = [note or "" for note in whole.column("rounds", "notes")]
    assert 0 < sum("step_refused" in note for note in notes) < 12
    assert [
        line for line in model_health(whole) if "were dropped, and the others used (round" in line
    ]

    class Killed(Exception):
        pass

    def stop(done: Any) -> None:
        if done.round == 9:
            raise Killed

    with pytest.raises(Killed):
        motley.run(
            {**experiment, "checkpoint": {"every_rounds": 1}}, out=tmp_path / "parts", on_round=stop
        )
    parts = motley.run(
        {**experiment, "checkpoint": {"every_rounds": 1}}, out=tmp_path / "parts", resume=True
    )
    assert_same(whole, parts)


def test_guard_in_the_experiment_file() -> None:
    base = _keys()
    assert Experiment(**base).guard == Experiment(**base, guard="on").guard == Guard()
    assert Experiment(**base, guard="off").resolved()["guard"] == "off"
    assert Experiment(**base, guard="off").run_id() != Experiment(**base).run_id()
    with pytest.raises(
        ConfigError,
        match=r'guard: got \'of\'; expected "on", "off" or \{ factor = 1000, window = 20 \}',
    ):
        Experiment(**base, guard="of")
    with pytest.raises(ConfigError, match=r"guard.factor: got 0.5; expected above 1"):
        Experiment(**base, guard={"factor": 0.5})


def test_a_run_that_ended_ruined_is_extended_as_if_it_had_not_ended(tmp_path: Path) -> None:
    """The loss overflows in the 8th round after a good model: in round 10 the server goes back to
    round 5, and the end in round 14, where no evaluation is due, finds another model without a
    finite loss. The saved model is the last good one, the state is not."""
    local = {"steps": 2, "batch_size": 8, "optimizer": {"lr": 20.0}}
    experiment = _keys(task="quadratic", local=local, guard={"factor": 1e12}, evaluate={"every": 5})
    short = motley.run({**experiment, "stop": {"rounds": 14}}, out=tmp_path / "run")
    assert all(
        np.isfinite(value.numpy()).all()
        for value in load_file(short.directory / "model.safetensors").values()
    )
    whole = motley.run({**experiment, "stop": {"rounds": 20}}, out=tmp_path / "whole")
    assert_same(
        motley.run({**experiment, "stop": {"rounds": 20}}, out=tmp_path / "run", resume=True), whole
    )


def test_a_run_that_ended_ruined_and_was_killed_saves_its_last_good_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, killed after the last checkpoint and before the model is saved: the run that goes
    on has nothing left to do but that, and has forgotten nothing."""
    local = {"steps": 2, "batch_size": 8, "optimizer": {"lr": 20.0}}
    experiment = _keys(task="quadratic", local=local, guard={"factor": 1e12}, evaluate={"every": 5})
    experiment["stop"] = {"rounds": 14}
    whole = motley.run(experiment, out=tmp_path / "whole")

    class Killed(Exception):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("motley.experiments.run.save_model", killed)
        with pytest.raises(Killed):
            motley.run(experiment, out=tmp_path / "parts")
    assert_same(whole, motley.run(experiment, out=tmp_path / "parts", resume=True))
