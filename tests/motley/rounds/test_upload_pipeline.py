"""Compressed uploads through whole rounds, by hand: what arrives, what waits, what is billed, and
when nothing may move."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from motley.core.arrays import Floats
from motley.core.records import Cohort, Reports, SelectionContext, SignalRequirements
from motley.engines.engine import TrainResult
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds import upload_pipeline
from motley.rounds.backend import Uploads
from motley.rounds.loop import RoundLoop
from motley.rounds.round import Round
from motley.rounds.simulated import simulation as simulation_of
from motley.rounds.stage import Stage, StageOptions
from motley.rounds.upload_pipeline import ReceivedUpload
from motley.selectors.selector import SelectionRule, Selector
from motley.tasks.task import ModelState
from motley.timing.deadline import Deadline
from motley.timing.overlapping import discount
from motley.transport.allocators.allocator import AllocationContext, Allocator, State
from motley.transport.packet import Packet
from motley.transport.wire import decode, encode
from motley.world.interfaces import Failures
from tests.motley.rounds.going_on import going_on
from tests.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:.*without a budget sends everything")

MINIMA = (8.0, 3.0, 2.0, 1.0, 0.0, 2.0, 6.0, -3.0)
"""Of clients 0 and 1."""
QUARTER = {"name": "constant", "average": 0.25}


def _parabolas(**keys: Any) -> Experiment:
    """Two clients in four dimensions, one step of rate 1: a client lands on its minimum, so its
    update is m_k - x exactly."""
    base = {
        "task": {"name": "quadratic", "dim": 4, "minima": list(MINIMA), "examples": [1, 1]},
        "partition": "by_writer",
        "population": 2,
        "cohort": 2,
        "stop": {"rounds": 9},
        "local": {"batch_size": 1, "optimizer": {"lr": 1.0}},
        "dtype": "float64",
        "weights": "uniform",
        "compressor": "topk",
        "budget": QUARTER,
        "engine": "sequential",
        "device": {"name": "constant", "seconds": 1.0},
        "evaluate": {"every": 100},
    }
    return Experiment(**{**base, **keys})


def _from_zero(
    experiment: Experiment,
    rule: SelectionRule[Any] | None = None,
    rows: Rows | None = None,
    **changes: Any,
) -> RoundLoop:
    """The simulation with the model 0 at first, and some of its plan exchanged."""
    made = build(experiment)
    model = made.state.server.model
    zero = ModelState(torch.zeros_like(model.x), model.buffers, model.counters)
    selector = made.state.selector if rule is None else Selector(rule)
    return simulation_of(
        dataclasses.replace(made.config, **changes), made.engine, selector, zero, rows
    )


def _kept(simulation: RoundLoop, name: str = "e") -> dict[int, list[float]]:
    return {
        client: memory[f"sent.{name}"].tolist()
        for client, memory in sorted(simulation.state.clients.client_states.items())
    }


@dataclasses.dataclass(frozen=True)
class InTurn(SelectionRule[int]):
    """A toy that asks named clients, round by round; a first round may be a rehearsal."""

    turns: tuple[tuple[int, ...], ...]
    rehearsals: int = 0

    def needs(self) -> SignalRequirements:
        return SignalRequirements()

    def init(self) -> int:
        return 0

    def select(self, state: int, ask: SelectionContext) -> Cohort:
        wanted = np.array(self.turns[(ask.draw - 1) % len(self.turns)], np.int64)
        return Cohort(np.intersect1d(wanted, ask.available), rehearsal=ask.draw <= self.rehearsals)

    def observe(self, state: int, draw: int, reports: Reports) -> int:
        return state


@dataclasses.dataclass(frozen=True)
class Uneven(Allocator):
    """A toy: client k's share is so many quarters."""

    quarters: tuple[int, ...] = (1, 3)

    def ratios(self, state: State, load: AllocationContext) -> Floats:
        return np.array([self.quarters[k] / 4 for k in load.ids])


@dataclasses.dataclass(frozen=True)
class Times(Failures):
    """The updates of some clients are multiplied in round 2."""

    factor: tuple[float, ...]

    def upload_factor(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.where(round_index == 2, np.array(self.factor)[ids], 1.0)


@dataclasses.dataclass(frozen=True)
class Leaves(Failures):
    """Client 1 breaks off in round 2."""

    def drop_at(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.where((ids == 1) & (round_index == 2), 0.5, np.nan)


# ---------------------------------------------------------------------------- nothing is compressed


@pytest.mark.parametrize("feedback", ["none", {"name": "fixed"}, {"name": "adaptive"}])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova"])
def test_a_share_of_one_is_the_dense_run_bit_for_bit(algorithm: str, feedback: Any) -> None:
    """Model, traffic, time and every column but theta's; nothing waits."""
    keys: dict[str, Any] = {
        "task": {
            "name": "image",
            "data": "digits",
            "model": {"name": "digits_mlp", "norm": "batch"},
        },
        "population": 5,
        "cohort": 3,
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "local": {"steps": 3, "batch_size": 16, "optimizer": {"lr": 0.1}},
        "dtype": "float32",
        "algorithm": algorithm,
        "network": {"name": "uniform"},
        "weights": "uniform",
        "stop": {"rounds": 3},
    }
    one = Rows()
    two = Rows()
    dense = build(_parabolas(**keys, compressor="identity", budget="constant"), writer=one)  # type: ignore[arg-type]
    whole = build(_parabolas(**keys, feedback=feedback, budget="constant"), writer=two)  # type: ignore[arg-type]
    assert dense.config.upload_config.plain
    assert not whole.config.upload_config.plain
    while not dense.done:
        assert dense.step().time_s == whole.step().time_s
    for name in ("x", "buffers", "counters"):
        assert torch.equal(
            getattr(dense.state.server.model, name), getattr(whole.state.server.model, name)
        )
    assert one.tables.keys() == two.tables.keys()
    for table in one.tables:
        for a, b in zip(one.tables[table], two.tables[table], strict=True):
            for column in a.keys() - {"budget"}:
                np.testing.assert_array_equal(a[column], b[column], err_msg=f"{table}.{column}")
    assert all(not any(e) for e in (_kept(whole).values() if feedback != "none" else ()))


# ------------------------------------------------------------------------------------- what waits


def test_three_rounds_of_a_quarter_with_memory_by_hand() -> None:
    """m_0 = (8, 3, 2, 1), m_1 = (0, 2, 6, -3), one of four coordinates travels, b = 1, x = 0.

    1: v_0 = (8,3,2,1) sends 8 first, e_0 = (0,3,2,1);  v_1 = (0,2,6,-3) sends 6 third,
       e_1 = (0,2,0,-3).   x = (4,0,3,0)
    2: v_0 = (4,3,-1,1) + e_0 = (4,6,1,2) sends 6 second;
       v_1 = (-4,2,3,-3) + e_1 = (-4,4,3,-6) sends -6 last.  x = (4,3,3,-3)
    3: v_0 = (4,0,-1,4) + (4,0,1,2) = (8,0,0,6) sends 8;
       v_1 = (-4,-1,3,0) + (-4,4,3,0) = (-8,3,6,0) sends -8.  x stays."""
    simulation = _from_zero(_parabolas(feedback={"name": "fixed", "decay": 1.0}))
    expected = [
        ([4.0, 0, 3, 0], [0.0, 3, 2, 1], [0.0, 2, 0, -3]),
        ([4.0, 3, 3, -3], [4.0, 0, 1, 2], [-4.0, 4, 3, 0]),
        ([4.0, 3, 3, -3], [0.0, 0, 0, 6], [0.0, 3, 6, 0]),
    ]
    for x, first, second in expected:
        simulation.step()
        assert simulation.state.server.model.x.tolist() == x
        assert _kept(simulation) == {0: first, 1: second}


@pytest.mark.parametrize(
    "compressor", ["topk", {"name": "randomk", "unbiased": False}, {"name": "tensor_drop"}]
)
def test_all_that_arrived_and_what_waits_is_all_that_was_computed(
    compressor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decay 1: for each client, at any time, sum of decoded uploads + e = sum of raw updates,
    whoever takes part when."""
    sums: dict[int, list[Tensor]] = {}
    keys: dict[str, Any] = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 4,
        "partition": "iid",
        "local": {"steps": 2, "batch_size": 16, "optimizer": {"lr": 0.2}},
        "compressor": compressor,
    }
    simulation = build(_parabolas(**keys, feedback={"name": "fixed"}))
    raw, sent = _spied(simulation, monkeypatch)
    for _ in range(6):
        simulation.step()
    for client, memory in simulation.state.clients.client_states.items():
        sums[client] = [sum(some[client]) for some in (raw, sent)]  # type: ignore[arg-type]
        torch.testing.assert_close(
            sums[client][1] + memory["sent.e"], sums[client][0], rtol=1e-12, atol=1e-13
        )
    assert len(sums) == 4


def _spied(
    simulation: RoundLoop, patch: pytest.MonkeyPatch
) -> tuple[dict[int, list[Tensor]], dict[int, list[Tensor]]]:
    """Raw updates and decoded uploads of each client, as they come."""
    raw: dict[int, list[Tensor]] = {}
    sent: dict[int, list[Tensor]] = {}
    train = simulation.engine.train
    uploads = simulation.backend.uploads

    def trained(*args: Any) -> Iterator[TrainResult]:
        for done in train(*args):
            raw.setdefault(done.client, []).append(done.parts["delta"].value.clone())
            yield done

    def arrived(
        single: Iterable[tuple[int, ReceivedUpload]],
    ) -> Iterator[tuple[int, ReceivedUpload]]:
        for row, upload in single:
            sent.setdefault(upload.result.client, []).append(
                upload.result.parts["delta"].value.clone()
            )
            yield row, upload

    patch.setattr(simulation.engine, "train", trained)
    patch.setattr(
        simulation.backend, "uploads", lambda *args: Uploads(arrived(uploads(*args).single))
    )
    return raw, sent


def test_the_decay_follows_the_budget_of_the_round_not_the_share_of_the_client() -> None:
    """theta_t = 1/2, theta_k = 1/4 and 3/4: b = .85 + .12 (1 - .5) = .91 for both (.94 and .88 by
    their own shares).

    Client 0 sends 8 and keeps .91 (0, 3, 2, 1); client 1 sends three values and keeps .91 of the
    fourth, which is 0 in round 1. x = (4, 1, 3, -1.5). Round 2: v_1 = (-4, 1, 3, -1.5) sends all
    but 1, keeps .91 of it."""
    experiment = _parabolas(
        feedback={"name": "adaptive"}, budget={"name": "constant", "average": 0.5}
    )
    simulation = _from_zero(experiment)
    upload_config = dataclasses.replace(simulation.config.upload_config, allocator=Uneven())
    simulation = _from_zero(experiment, upload_config=upload_config)
    simulation.step()
    assert _kept(simulation)[0] == pytest.approx([0.0, 2.73, 1.82, 0.91], rel=1e-15)
    assert _kept(simulation)[1] == [0.0] * 4
    assert simulation.state.server.model.x.tolist() == [4.0, 1.0, 3.0, -1.5]
    simulation.step()
    assert _kept(simulation)[1] == pytest.approx([0.0, 0.91, 0.0, 0.0], rel=1e-15)


def test_budgets_follow_server_steps_where_rounds_run_ahead_of_them() -> None:
    """A buffer of 2 of 3 under way: the select calls outnumber the server steps, and who started
    from version v has the budget of step v + 1: 1 in the warm-up of 3 steps, a quarter after it."""
    keys: dict[str, Any] = {
        "task": {"name": "quadratic", "dim": 8, "examples": [1, 2, 3, 4, 5]},
        "population": 5,
        "cohort": 3,
        "synchrony": {"name": "buffered", "buffer": 2},
        "budget": QUARTER | {"warm_up": 3},
    }
    rows = Rows()
    simulation = build(_parabolas(**keys), writer=rows)  # type: ignore[arg-type]
    seen = []
    while not simulation.done:
        simulation.step()
        flights = simulation.state.clients.in_flight
        assert flights.columns["budget"].tolist() == [
            1.0 if v < 3 else 0.25 for v in flights.timelines.version
        ]
        seen += flights.columns["budget"].tolist()
    assert simulation.state.draw_index > simulation.state.version == 9
    assert {1.0, 0.25} == set(seen)
    for row in rows.tables["clients"]:
        assert row["theta"].tolist() == [1.0 if v < 3 else 0.25 for v in row["version"]]


# ------------------------------------------------------------------------ memory that must not move


def _late(simulation: RoundLoop) -> RoundLoop:
    device = simulation.config.world.device

    class Slower(type(device)):  # type: ignore[misc]
        def step_s(self, key: Any, ids: Any, round: int, *rest: Any) -> Any:
            return np.where((ids == 1) & (round == 2), 100.0, 1.0)

    return going_on(
        simulation,
        device=Slower(**{f.name: getattr(device, f.name) for f in dataclasses.fields(device)}),
    )


HOW: Mapping[str, Callable[[RoundLoop], RoundLoop]] = {
    "late": _late,
    "dropped": lambda simulation: going_on(simulation, failures=Leaves()),
    "rejected": lambda simulation: going_on(simulation, failures=Times((1.0, np.nan))),
}


@pytest.mark.parametrize(
    "feedback", [{"name": "fixed"}, {"name": "adaptive"}, {"name": "ef21"}], ids=lambda f: f["name"]
)
@pytest.mark.parametrize("how", HOW)
def test_what_was_not_stepped_on_leaves_the_memory(how: str, feedback: Any) -> None:
    """Both take part in rounds 1 and 2; in round 2 the upload of client 1 is lost in one way or
    another. Only client 0's moves, and the model by client 0's value alone: .5 of it under EF21,
    which counts client 1's old vector."""
    experiment = _parabolas(feedback=feedback, synchrony={"name": "deadline", "seconds": 50.0})
    simulation = _from_zero(experiment)
    simulation = HOW[how](simulation)
    name = "g" if feedback["name"] == "ef21" else "e"
    simulation.step()
    x = simulation.state.server.model.x.clone()
    before = _kept(simulation, name)
    done = simulation.step()
    after = _kept(simulation, name)
    assert done.accepted == 1
    assert after[1] == before[1]
    assert after[0] != before[0]
    moved = (simulation.state.server.model.x - x).tolist()
    if name == "g":
        assert moved == [sum(both) / 2 for both in zip(*after.values(), strict=True)]
    else:
        assert moved == [0.0, 3.0 + before[0][1], 0.0, 0.0]


def test_a_rehearsal_moves_no_memory() -> None:
    """Round 1 is trained, compressed and billed, and forgotten; round 2 is what a first round is
    (EF21's mean included)."""
    for feedback in ({"name": "fixed"}, {"name": "ef21"}):
        rows = Rows()
        simulation = _from_zero(
            _parabolas(feedback=feedback), InTurn(((0, 1),), rehearsals=1), rows
        )
        simulation.step()
        assert not simulation.state.clients.client_states
        assert simulation.pipeline.mean_vector is None
        assert rows.tables["clients"][0]["outcome"] == ["rehearsed"] * 2
        assert rows.tables["rounds"][0]["up_bits"] > 0
        simulation.step()
        assert simulation.state.server.model.x.tolist() == [4.0, 0.0, 3.0, 0.0]


def test_what_a_rehearsal_would_have_kept_is_not_kept_later() -> None:
    """Both rehearse in round 1; round 2 asks client 0 alone. Client 1 was never stepped on: it
    keeps nothing, and under EF21 only half of client 0's vector is the step."""
    for feedback, first in (({"name": "fixed"}, 8.0), ({"name": "ef21"}, 4.0)):
        simulation = _from_zero(_parabolas(feedback=feedback), InTurn(((0, 1), (0,)), rehearsals=1))
        simulation.step()
        simulation.step()
        assert simulation.state.clients.client_states.keys() == {0}
        assert simulation.state.server.model.x.tolist() == [first, 0.0, 0.0, 0.0]


STALE = {
    "task": {
        "name": "quadratic",
        "dim": 4,
        "minima": [*MINIMA, *MINIMA[:4]],
        "examples": [1, 5, 1],
    },
    "population": 3,
}


def test_an_upload_that_is_too_old_moves_no_memory() -> None:
    """Client 1 takes 5 s, the others one: it lands three server steps late and is discarded. It is
    paid for, and keeps nothing."""
    rows = Rows()
    synchrony = {"name": "buffered", "buffer": 1, "max_staleness": 1}
    simulation = _from_zero(
        _parabolas(**STALE, feedback={"name": "fixed"}, synchrony=synchrony), rows=rows
    )
    late = 0
    while not late:
        simulation.step()
        row = rows.tables["clients"][-1]
        late = sum(
            o == "late" and c == 1 for o, c in zip(row["outcome"], row["client"], strict=True)
        )
    assert simulation.state.clients.client_states.keys() == {0, 2}


def test_staleness_scales_what_arrived_and_not_what_waits() -> None:
    """FedBuff, one at a time: x moves by s(tau) C(v), e is v - C(v) with v = m_k - (the model it
    received) + e."""
    rows = Rows()
    synchrony = {"name": "buffered", "buffer": 1}
    simulation = _from_zero(
        _parabolas(**STALE, feedback={"name": "fixed"}, synchrony=synchrony, stop={"rounds": 12}),
        rows=rows,
    )
    minima = np.reshape([*MINIMA, *MINIMA[:4]], (3, 4))
    memory = np.zeros((3, 4))
    models = [np.zeros(4)]
    stale = 0
    while not simulation.done:
        simulation.step()
        row = rows.tables["clients"][-1]
        (k,), (version,), (tau,) = row["client"], row["version"], row["staleness"]
        v = minima[k] - models[version] + memory[k]
        sent = np.where(np.arange(4) == np.abs(v).argmax(), v, 0.0)
        memory[k] = v - sent
        models.append(
            models[-1] + float(discount("polynomial", np.array([tau]), 0.5, 4.0)[0]) * sent
        )
        np.testing.assert_allclose(
            simulation.state.server.model.x.numpy(), models[-1], rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(_kept(simulation)[k], memory[k], rtol=1e-12, atol=1e-12)
        stale += tau >= 2
    assert stale


def test_corrupted_updates_are_corrupted_before_they_are_compressed() -> None:
    """Round 2, client 1's update times -10: v_1 = -10 (-4, 2, 3, -3) + (0, 2, 0, -3) = (40, -18,
    -30, 27) sends 40; client 0 sends 6 second (see above). x = (4, 0, 3, 0) + (20, 3, 0, 0), and
    e_1 = (0, -18, -30, 27)."""
    simulation = _from_zero(_parabolas(feedback={"name": "fixed"}))
    simulation = going_on(simulation, failures=Times((1.0, -10.0)))
    simulation.step()
    simulation.step()
    assert simulation.state.server.model.x.tolist() == [24.0, 3.0, 3.0, 0.0]
    assert _kept(simulation)[1] == [0.0, -18.0, -30.0, 27.0]


@pytest.mark.parametrize(
    "compressor",
    [{"name": "randomk"}, {"name": "tensor_drop", "rescale": True}],
    ids=lambda c: c["name"],
)
def test_values_that_are_scaled_until_they_overflow_are_rejected(compressor: Any) -> None:
    """8 times 4e37 is a number in float32, and 4/3 of it is none. The first round asks nobody; in
    the second both uploads are rejected though the updates are finite, the model stays, and the
    third round learns."""
    rows = Rows()
    task = {"name": "quadratic", "dim": 4, "minima": [8.0] * 8, "examples": [1, 1]}
    keys: dict[str, Any] = {
        "task": task,
        "dtype": "float32",
        "compressor": compressor,
        "budget": QUARTER | {"average": 0.75},
        "seed": 6,
    }
    simulation = _from_zero(_parabolas(**keys), InTurn(((), (0, 1), (0, 1))), rows)
    simulation = going_on(simulation, failures=Times((4e37, 4e37)))
    simulation.step()
    assert simulation.step().accepted == 0
    assert rows.tables["clients"][0]["outcome"] == ["rejected"] * 2
    assert simulation.state.server.model.x.tolist() == [0.0] * 4
    assert simulation.step().accepted == 2
    assert torch.isfinite(simulation.state.server.model.x).all()
    assert simulation.state.server.model.x.any()


def test_who_has_no_time_for_a_step_sends_nothing_of_what_waits() -> None:
    """A deadline that leaves nobody a step in round 2: nobody takes part, and what waited waits."""
    simulation = _from_zero(_parabolas(feedback={"name": "fixed"}))
    simulation.step()
    simulation = going_on(simulation, config={"synchrony": Deadline(seconds=0.5, late="partial")})
    before = _kept(simulation)
    x = simulation.state.server.model.x.clone()
    assert simulation.step().accepted == 0
    assert _kept(simulation) == before
    assert torch.equal(simulation.state.server.model.x, x)


def test_a_round_of_nobody_is_no_round_of_anybody() -> None:
    """Rounds 2 and 3 ask nobody: budgets, memories and EF21's mean stay; round 4 goes on from round
    1."""
    for feedback, name in (({"name": "fixed"}, "e"), ({"name": "ef21"}, "g")):
        simulation = _from_zero(_parabolas(feedback=feedback), InTurn(((0, 1), (), (), (0, 1))))
        simulation.step()
        x = simulation.state.server.model.x.clone()
        before = _kept(simulation, name)
        simulation.step()
        simulation.step()
        assert torch.equal(simulation.state.server.model.x, x)
        assert _kept(simulation, name) == before
        simulation.step()
        assert simulation.state.model_updates == 2
        assert _kept(simulation, name) != before


# ------------------------------------------------------------------------------------- EF21


def test_ef21_by_hand() -> None:
    """1: g_0 = (8,0,0,0), g_1 = (0,0,6,0), mean (4,0,3,0) = x.
    2: m_0 - x - g_0 = (-4,3,-1,1) sends -4: g_0 = (4,0,0,0).
       m_1 - x - g_1 = (-4,2,-3,-3) sends -4: g_1 = (-4,0,6,0).
       The mean (0,0,3,0) is the step: x = (4,0,6,0)."""
    simulation = _from_zero(_parabolas(feedback="ef21"))
    simulation.step()
    assert simulation.state.server.model.x.tolist() == [4.0, 0.0, 3.0, 0.0]
    simulation.step()
    assert _kept(simulation, "g") == {0: [4.0, 0.0, 0.0, 0.0], 1: [-4.0, 0.0, 6.0, 0.0]}
    assert simulation.state.server.model.x.tolist() == [4.0, 0.0, 6.0, 0.0]


def test_under_ef21_the_absent_count_with_their_old_vectors() -> None:
    """1: client 0 alone, g_0 = (8,0,0,0), half of it is the step: x = (4,0,0,0).
    2: client 1 alone, m_1 - x = (-4,2,6,-3) sends 6: g_1 = (0,0,6,0). The step is (4,0,3,0), client
    0's old half in it: x = (8,0,3,0)."""
    simulation = _from_zero(_parabolas(feedback="ef21", cohort=1), InTurn(((0,), (1,))))
    simulation.step()
    assert simulation.state.server.model.x.tolist() == [4.0, 0.0, 0.0, 0.0]
    simulation.step()
    assert simulation.state.server.model.x.tolist() == [8.0, 0.0, 3.0, 0.0]


class Halved(StageOptions, Stage):
    """A toy: the server steps on half of the total."""

    def make(self) -> Stage:
        return self

    def total(self, state: Any, step: Round) -> Round:
        half = {name: value / 2 for name, value in step.total.items()}
        return dataclasses.replace(step, total=half)


def test_a_stage_that_changes_the_step_leaves_ef21_s_mean() -> None:
    """1: the mean is (4,0,3,0), half of it the step: x = (2,0,1.5,0).
    2: m_0 - x - g_0 = (-2,3,.5,1) sends 3: g_0 = (8,3,0,0).
       m_1 - x - g_1 = (-2,2,-1.5,-3) sends -3: g_1 = (0,0,6,-3).
       The mean is (4,1.5,3,-1.5): x = (4,.75,3,-.75)."""
    simulation = _from_zero(_parabolas(feedback="ef21"), stage=Halved())
    assert simulation.pipeline is not None
    simulation.step()
    assert simulation.pipeline.mean_vector.tolist() == [4.0, 0.0, 3.0, 0.0]
    simulation.step()
    assert _kept(simulation, "g") == {0: [8.0, 3.0, 0.0, 0.0], 1: [0.0, 0.0, 6.0, -3.0]}
    assert simulation.pipeline.mean_vector.tolist() == [4.0, 1.5, 3.0, -1.5]
    assert simulation.state.server.model.x.tolist() == [4.0, 0.75, 3.0, -0.75]


@pytest.mark.parametrize("compressor", ["identity", "topk"])
def test_ef21_that_sends_everything_with_everybody_is_fedavg(compressor: str) -> None:
    keys: dict[str, Any] = {
        "task": {"name": "synthetic", "dim": 5, "classes": 3},
        "population": 4,
        "cohort": 4,
        "stop": {"rounds": 4},
        "local": {"steps": 3, "batch_size": 8, "optimizer": {"lr": 0.05}},
        "budget": "constant",
    }
    plain = build(_parabolas(**keys | {"compressor": "identity"}))
    tracked = build(_parabolas(**keys | {"compressor": compressor}, feedback="ef21"))
    while not plain.done:
        plain.step()
        tracked.step()
    torch.testing.assert_close(
        tracked.state.server.model.x, plain.state.server.model.x, rtol=1e-12, atol=1e-13
    )


def test_ef21_s_mean_is_that_of_the_vectors_that_the_clients_keep() -> None:
    """Eight clients, three at a time: after every step x moved by the mean of all g, those of
    strangers 0."""
    keys: dict[str, Any] = {
        "task": {"name": "synthetic", "dim": 5, "classes": 3},
        "population": 8,
        "cohort": 3,
        "stop": {"rounds": 8},
        "local": {"steps": 3, "batch_size": 8, "optimizer": {"lr": 0.05}},
    }
    simulation = build(_parabolas(**keys, feedback="ef21"))
    for _ in range(8):
        x = simulation.state.server.model.x.clone()
        simulation.step()
        mean = (
            sum(memory["sent.g"] for memory in simulation.state.clients.client_states.values()) / 8
        )  # type: ignore[var-annotated]
        torch.testing.assert_close(
            simulation.state.server.model.x - x, mean, rtol=1e-11, atol=1e-14
        )
    assert 3 < len(simulation.state.clients.client_states) <= 8


# ----------------------------------------------------------------------------------- what is billed

SENT: dict[str, tuple[Any, Any]] = {
    "identity": ("identity", None),
    "topk": ("topk", None),
    "per tensor": ({"name": "topk", "per_tensor": True}, None),
    "curvature": ({"name": "topk", "criterion": "curvature"}, None),
    "randomk": ("randomk", None),
    "qsgd": ("qsgd", None),
    "fedpaq": ("fedpaq", None),
    "signs": ("signs", None),
    "terngrad": ("terngrad", None),
    "tensor_drop": ("tensor_drop", None),
    "topk, qsgd": ("topk", {"name": "qsgd", "levels": 4}),
    "randomk, terngrad": ("randomk", "terngrad"),
    "tensor_drop, signs": ("tensor_drop", "signs"),
    "topk, fedpaq": ("topk", "fedpaq"),
}
BUDGETED = ("topk", "per tensor", "curvature", "randomk", "tensor_drop")


def _digits(which: str, **keys: Any) -> Experiment:
    compressor, quantise = SENT[which]
    budget = (
        {"budget": {"name": "constant", "average": 0.1}}
        if which in BUDGETED or quantise
        else {"budget": "constant"}
    )
    return _parabolas(
        **{
            "task": {
                "name": "image",
                "data": "digits",
                "model": {"name": "digits_mlp", "norm": "batch"},
            },
            "population": 6,
            "cohort": 3,
            "partition": {"name": "dirichlet", "alpha": 0.5},
            "local": {"steps": 2, "batch_size": 16, "optimizer": {"lr": 0.1}},
            "dtype": "float32",
            "compressor": compressor,
            "quantizer": quantise,
            "stop": {"rounds": 2},
            **budget,
            **keys,
        }
    )


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova", "fedavg, recalibrated"])
@pytest.mark.parametrize("which", SENT)
def test_what_is_billed_is_as_long_as_what_is_sent(
    which: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every accepted upload written down with buffers, counters and what its method sends beside
    the update, in float32; and what the server folds is what is read from those bytes. Without
    buffers and counters where statistics are made anew."""
    algorithm, _, recalibrated = algorithm.partition(", ")
    keys: dict[str, Any] = {"recalibrate": {"batches": 2, "clients": 1}} if recalibrated else {}
    rows = Rows()
    packets = {}
    messages = {}
    folded = {}
    simulation = build(_digits(which, algorithm=algorithm, **keys), writer=rows)  # type: ignore[arg-type]
    compress_update = upload_pipeline.compress_update
    uploads = simulation.backend.uploads

    def spied(*args: Any, **named: Any) -> Any:
        sent = compress_update(*args, **named)
        packets[id(sent.update)] = sent.packet
        return sent

    def arrived(
        single: Iterable[tuple[int, ReceivedUpload]],
    ) -> Iterator[tuple[int, ReceivedUpload]]:
        for row, upload in single:
            done = upload.result
            update = done.parts["delta"].value
            packet = packets.get(id(update), Packet(len(update), update))
            parts = {
                name: Packet(part.value.numel(), part.value.flatten())
                for name, part in done.parts.items()
            }
            messages[done.client] = encode(
                {name: p for name, p in {**parts, "delta": packet}.items() if p.size}
            )
            folded[done.client] = update
            yield row, upload

    monkeypatch.setattr(upload_pipeline, "compress_update", spied)
    monkeypatch.setattr(
        simulation.backend, "uploads", lambda *args: Uploads(arrived(uploads(*args).single))
    )
    while not simulation.done:
        messages.clear()
        simulation.step()
        row = rows.tables["clients"][-1]
        assert row["client"].tolist() == sorted(messages)
        assert row["bits_up"].tolist() == [8 * len(messages[k]) for k in sorted(messages)]
        assert rows.tables["rounds"][-1]["up_bits"] == sum(
            8 * len(data) for data in messages.values()
        )
        for client, data in messages.items():
            assert ({"buffers", "counters"} <= decode(data).keys()) != bool(recalibrated)
            torch.testing.assert_close(
                decode(data)["delta"].dense(), folded[client], rtol=1e-6, atol=0.0
            )
    assert simulation.state.ledger.total("upload", "up") == sum(
        row["up_bits"] for row in rows.tables["rounds"]
    )


PAPER: dict[str, Callable[[int], int]] = {
    "identity": lambda d: 32 * d,
    "topk": lambda d: round(3.2 * d),
    "curvature": lambda d: round(3.2 * d),
    "randomk": lambda d: round(3.2 * d),
    "qsgd": lambda d: 8 * d + 32 * math.ceil(d / 512),
    "topk, qsgd": lambda d: round(0.4 * d) + 32 * math.ceil(math.ceil(d / 10) / 512),
}


@pytest.mark.parametrize("which", PAPER)
def test_the_papers_bits_by_hand(which: str) -> None:
    """32 theta D for a sparse update, indices free; QSGD of 127 levels: a sign and 7 bits a value,
    32 for each 512; of 4 levels (0 to 4 in 3 bits) after top-k: 4 bits a value. SCAFFOLD's variate
    is 32 D more, FedNova's scalar 32. Buffers are free."""
    for algorithm, more in (
        ("fedavg", lambda d: 0),
        ("scaffold", lambda d: 32 * d),
        ("fednova", lambda d: 32),
    ):
        rows = Rows()
        simulation = build(_digits(which, algorithm=algorithm), writer=rows)  # type: ignore[arg-type]
        simulation.step()
        d = len(simulation.state.server.model.x)
        assert rows.tables["rounds"][0]["up_paper_bits"] == 3 * (PAPER[which](d) + more(d))


def test_who_is_late_is_billed_for_the_message_it_sent() -> None:
    """Two uploads that came and one that was discarded as too old: each as long as its own share
    made it."""
    rows = Rows()
    synchrony = {"name": "buffered", "buffer": 1, "max_staleness": 1}
    simulation = _from_zero(_parabolas(**STALE, synchrony=synchrony), rows=rows)
    while not simulation.done:
        simulation.step()
    row = {
        name: np.concatenate([r[name] for r in rows.tables["clients"]])
        for name in ("outcome", "bits_up")
    }
    head = 15 + 8 + 1 + 5 + 38
    assert "late" in row["outcome"]
    assert set(row["bits_up"]) == {8.0 * (head + 4 + 1)}  # one value, and two bits of place


def test_a_curvature_probe_takes_two_steps_of_time() -> None:
    """Two passes of a local step each for who has curvature measured, none in a warm-up round,
    where everything is sent anyway."""
    compressor = {"name": "topk", "criterion": "curvature"}
    simulation = _from_zero(_parabolas(compressor=compressor, budget=QUARTER | {"warm_up": 1}))
    assert simulation.step().time_s == 1.0
    assert simulation.step().time_s == 1.0 + 3.0


def test_layers_are_drawn_by_what_each_client_sent_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value travels and lambda = 0: from its second upload on, a client's one layer is the one
    that its last value was from."""
    compressor = {"name": "topk", "criterion": "curvature", "layers": 1, "uniform": 0.0}
    simulation = build(
        _digits(
            "topk", compressor=compressor, budget=QUARTER | {"average": 1e-6}, stop={"rounds": 12}
        )
    )
    names = list(simulation.pipeline.layout.layers)
    train = simulation.engine.train
    drawn = set()

    def spied(jobs: Any, *rest: Any) -> Iterator[TrainResult]:
        for job in jobs:
            (layer,) = job.layers
            if job.client in simulation.state.clients.client_states:
                picked = simulation.state.clients.client_states[job.client]["sent.picked"]
                assert picked.sum() == 1
                assert picked[names.index(layer)] == 1
                drawn.add(layer)
        yield from train(jobs, *rest)

    monkeypatch.setattr(simulation.engine, "train", spied)
    while not simulation.done:
        simulation.step()
    assert len(drawn) > 1


def test_work_that_is_cut_to_a_deadline_leaves_time_for_the_curvature() -> None:
    """Eight steps of a second and a deadline of five: three steps, and the two that choosing
    takes."""
    task = {"name": "quadratic", "dim": 4, "minima": list(MINIMA), "examples": [8, 8]}
    rows = Rows()
    synchrony = {"name": "deadline", "seconds": 5.0, "late": "partial"}
    compressor = {"name": "topk", "criterion": "curvature"}
    simulation = _from_zero(
        _parabolas(task=task, compressor=compressor, synchrony=synchrony), rows=rows
    )
    assert simulation.step().accepted == 2
    assert rows.tables["clients"][0]["local_steps"].tolist() == [3, 3]


# ---------------------------------------------------------------------------- who may send how much


@pytest.mark.parametrize("selector", ["fedcg", "pyramidfl"])
def test_the_selector_s_ratios_are_honoured(selector: str) -> None:
    """Shares differ between clients, follow the selector, and set what is billed."""
    rows = Rows()
    keys: dict[str, Any] = {
        "selector": selector,
        "network": {"name": "uniform", "up_mbps": [1, 5]},
        "allocator": {"name": "from_selector"},
        "device": {"name": "uniform", "low": 0.1, "high": 0.5},
        "budget": "constant",
        "stop": {"rounds": 8},
    }
    compressor = "tensor_drop" if selector == "pyramidfl" else "topk"
    simulation = build(_digits(compressor, **keys), writer=rows)  # type: ignore[arg-type]
    asked: list[Floats] = []
    select = simulation.state.selector.select

    def spied(*args: Any, **named: Any) -> Cohort:
        cohort = select(*args, **named)
        asked.append(np.clip(cohort.upload_ratio, 0.005, 1.0))
        return cohort

    simulation.state.selector.select = spied  # type: ignore[method-assign]
    while not simulation.done:
        simulation.step()
    for theta, row in zip(asked, rows.tables["clients"], strict=True):
        assert sorted(row["theta"]) == pytest.approx(sorted(theta), rel=1e-12)
    assert len({float(t) for theta in asked for t in theta}) > 2
    if selector == "fedcg":
        together = [
            (b, t)
            for row in rows.tables["clients"]
            for b, t in zip(row["bits_up"], row["theta"], strict=True)
        ]
        assert sorted(together) == sorted(together, key=lambda both: (both[1], both[0]))


def test_hetero_select_from_end_to_end() -> None:
    """Everything in round 1; then theta_k = S_k / mean S times theta_t, which adds up to m theta_t
    where nothing clips, with theta_t the cosine's .2 (1 + .4 cos(pi (t - 1) / 9)) of ten rounds,
    and bits that follow."""
    rows = Rows()
    experiment = Experiment(
        method="hetero_select",
        task={"name": "image", "data": "digits", "model": "digits_mlp"},
        population=8,
        cohort=4,
        partition={"name": "dirichlet", "alpha": 0.5},
        local={"steps": 3, "batch_size": 16},
        stop={"rounds": 10},
        network={"name": "uniform", "up_mbps": [1, 5]},
        device={"name": "uniform", "low": 0.1, "high": 0.5},
        evaluate={"every": 100},
        engine={"name": "sequential", "threads": 1},
    )
    simulation = build(experiment, writer=rows)  # type: ignore[arg-type]
    checked = 0
    while not simulation.done:
        simulation.step()
        row = rows.tables["clients"][-1]
        t = simulation.state.version
        budget = rows.tables["rounds"][-1]["budget"]
        if t == 1:
            assert budget == 1.0
            assert row["theta"].tolist() == [1.0] * 4
            continue
        assert budget == pytest.approx(0.2 * (1 + 0.4 * np.cos(np.pi * (t - 1) / 9)), rel=1e-12)
        scores = row["score"]
        relative = budget * scores / scores.mean()
        if (relative < 1).all() and (relative > 0.005).all():
            checked += 1
            assert row["theta"] == pytest.approx(relative, rel=1e-12)
            assert row["theta"].sum() == pytest.approx(4 * budget, rel=1e-12)
        assert (
            np.argsort(row["theta"], kind="stable") == np.argsort(row["bits_up"], kind="stable")
        ).all()
    assert checked >= 5
    assert all(
        f"sent.{name}" in memory
        for memory in simulation.state.clients.client_states.values()
        for name in ("e", "picked")
    )


def test_optrate_hears_of_every_step() -> None:
    """Its price is set by the first step, and moves from the second on: another state after each
    round."""
    simulation = _from_zero(
        _parabolas(allocator="optrate", budget={"name": "constant", "average": 0.5})
    )
    for rounds in (1, 2, 3):
        simulation.step()
        assert float(simulation.pipeline.allocator["rounds"][0]) == rounds
    norm = float(simulation.pipeline.allocator["error"][0])
    assert np.isfinite(norm)
