"""Diagnostics: figures worked by hand on parabolas, the same on every engine and after a resume,
and a run that does not notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, EngineError
from motley.core.records import Cohort, Reports, SelectionContext, SignalRequirements
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds import diagnostics
from motley.rounds.loop import RoundLoop
from motley.rounds.simulated import simulation as simulation_of
from motley.selectors.selector import SelectionRule, Selector
from motley.tasks import from_clients, own_task
from motley.tasks.task import ModelState
from motley.transport.allocators.allocator import AllocationContext, Allocator, State
from tests.rows import Rows

B2, SELECTED, EXPECTED, MEAN, G2 = (
    f"diversity.{name}" for name in ("B2", "B2_selected", "B2_expected", "mean_gradient", "G2")
)


@dataclasses.dataclass(frozen=True)
class Named(SelectionRule[int]):
    """A toy that asks these clients in every round, and says it drew by these probabilities."""

    ids: tuple[int, ...]
    p: tuple[float, ...] | None = None

    def needs(self) -> SignalRequirements:
        return SignalRequirements()

    def init(self) -> int:
        return 0

    def select(self, state: int, ask: SelectionContext) -> Cohort:
        p = None if self.p is None else np.array(self.p)
        return Cohort(np.array(self.ids), notes={"own": 1.0}, probabilities=p)

    def observe(self, state: int, draw: int, reports: Reports) -> int:
        return state


def _parabolas(**keys: Any) -> Experiment:
    """``f_k = a_k/2 (w - m_k)^2`` with a = (1, 2, 1) and m = (0, 1, 2); two full-batch steps of
    rate 1/2."""
    base = {
        "task": {"name": "quadratic", "dim": 1, "curvatures": [1, 2, 1], "minima": [0, 1, 2]},
        "partition": "by_writer",
        "population": 3,
        "cohort": 2,
        "stop": {"rounds": 3},
        "local": {"steps": 2, "batch_size": 1, "optimizer": {"lr": 0.5}},
        "dtype": "float64",
        "weights": "uniform",
        "engine": "sequential",
        "evaluate": {"every": 1, "diagnostics": True},
    }
    return Experiment(**{**base, **keys})


def _digits(**keys: Any) -> Experiment:
    base = {
        "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [8]}},
        "population": 6,
        "cohort": 3,
        "partition": {"name": "dirichlet", "alpha": 0.3},
        "stop": {"rounds": 5},
        "dtype": "float64",
        "local": {"steps": 2, "batch_size": 16, "optimizer": {"lr": 0.1}},
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "selector": {"name": "hetero_select_v1"},
        "network": {"name": "uniform"},
        "device": {"name": "uniform"},
        "engine": {"name": "sequential", "threads": 1},
        "evaluate": {"every": 2, "diagnostics": True},
    }
    return Experiment(**{**base, **keys})


def _from_zero(
    experiment: Experiment,
    rule: SelectionRule[Any] | None = None,
    first: float = 0.0,
    **changes: Any,
) -> tuple[RoundLoop, Rows]:
    """The simulation with the model 0, or ``first``, at first, and some of its plan exchanged."""
    made = build(experiment)
    rows = Rows()
    model = made.state.server.model
    zero = ModelState(torch.full_like(model.x, first), model.buffers, model.counters)
    plan = dataclasses.replace(made.config, **changes)
    return simulation_of(
        plan, made.engine, made.state.selector if rule is None else Selector(rule), zero, rows
    ), rows  # type: ignore[arg-type]


def _ended(experiment: Experiment) -> tuple[RoundLoop, Rows]:
    rows = Rows()
    simulation = build(experiment, writer=rows)  # type: ignore[arg-type]
    while not simulation.done:
        simulation.step()
    simulation.engine.close()
    return simulation, rows


# ------------------------------------------------------------------------------------- by hand


def test_how_far_the_model_moved_from_where_it_began() -> None:
    """From 4, two steps of 1/2 leave a quarter of the way where a = 1, none where a = 2: the
    clients end at 1, 1 and 2.5, their mean is 1.5, and 2.5^2 = 6.25."""
    simulation, rows = _from_zero(_parabolas(cohort=3), Named((0, 1, 2)), first=4.0)
    simulation.step()
    assert rows.notes[0]["moved_squared"] == pytest.approx(6.25, rel=1e-14)


def test_a_round_by_hand() -> None:
    """w = 0: g_k = a_k (w - m_k) = (0, -2, -2), g = -4/3, d = (16/9, 4/9, 4/9).

    B^2 = 24/27 = 8/9, over clients 0 and 1 20/18 = 10/9, by p = (1/4, 1/4, 1/2) 4/9 + 1/9 + 2/9 =
    7/9, g^2 = 16/9, and the largest g_k^2 is G^2 = 4. Two steps of 1/2 leave client 0 at 0 and
    bring client 1 to its minimum 1 (a step is w - (w - 1)): drift (0 + 1) / 2. E = 2, lr = 1/2,
    mu = 0: bounds 2 (4 + 8/9) = 88/9 and 2 (4 + 10/9) = 92/9. The model moves to their mean 1/2."""
    simulation, rows = _from_zero(_parabolas(), Named((0, 1), (0.25, 0.25, 0.5)))
    simulation.step()
    wanted = {
        "own": 1.0,
        B2: 8 / 9,
        SELECTED: 10 / 9,
        EXPECTED: 7 / 9,
        MEAN: 16 / 9,
        G2: 4.0,
        "drift.measured": 1 / 2,
        "drift.bound": 88 / 9,
        "drift.bound_selected": 92 / 9,
        "moved_squared": 1 / 4,
        "local_rate": 1.0,
    }
    assert rows.notes[0] == pytest.approx(wanted, rel=1e-14)
    # at w = 1/2: g_k = (1/2, -1, -3/2), g = -2/3, and the model moves on from 1/2
    simulation.step()
    assert rows.notes[1][MEAN] == pytest.approx(4 / 9, rel=1e-14)
    assert rows.notes[1][G2] == pytest.approx(9 / 4, rel=1e-14)
    assert rows.notes[1][B2] == pytest.approx(
        ((7 / 6) ** 2 + (1 / 3) ** 2 + (5 / 6) ** 2) / 3, rel=1e-14
    )


def test_the_pull_of_fedprox_is_in_the_bound() -> None:
    """mu = 1, two steps of 1/4, E lr = 1/2: client 1 goes to 1/2, then to 1/2 - (-1 + 1/2) / 4 =
    5/8: drift (0 + 25/64) / 2; bounds 2 / 4 / (1 + 1/2) = 1/3 times 4 + 8/9 and 4 + 10/9."""
    quarter = {"steps": 2, "batch_size": 1, "optimizer": {"lr": 0.25}}
    simulation, rows = _from_zero(
        _parabolas(algorithm={"name": "fedprox", "mu": 1.0}, local=quarter), Named((0, 1))
    )
    simulation.step()
    assert rows.notes[0]["drift.measured"] == pytest.approx(25 / 128, rel=1e-14)
    assert rows.notes[0]["drift.bound"] == pytest.approx(44 / 27, rel=1e-14)
    assert rows.notes[0]["drift.bound_selected"] == pytest.approx(46 / 27, rel=1e-14)
    assert EXPECTED not in rows.notes[0]


def test_gradients_of_mini_batches_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client has samples at .5 and 3.5, each a batch, the other two at 1.5: at w = 0 and by
    ``(w - m)^2 / 2`` the full gradients are -2 and -1.5, those of batches -.5 or -3.5, and -1.5. Of
    the eight batches of seed 0 some have the 3.5. The bound takes the largest: E = 1, lr = 1/2, B^2
    = 1/16: 2 / 4 (3.5^2 + 1/16)."""

    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.w * x

    clients = [
        (np.ones((2, 1)), np.array([[low], [high]])) for low, high in ((0.5, 3.5), (1.5, 1.5))
    ]
    data = from_clients(clients, test=clients, regression=True)
    task = own_task(data, Line, loss="half_squared_error")
    more = {"population": 2, "local": {"steps": 1, "batch_size": 1, "optimizer": {"lr": 0.5}}}
    noted = {}
    batches = dict.fromkeys((True, "batches"), 0)
    for diagnosed in batches:
        keys = {"evaluate": {"every": 1, "diagnostics": diagnosed}, "stop": {"rounds": 1}}
        simulation, rows = _from_zero(_parabolas(task=task, **more, **keys), Named((0, 1)))
        measure = simulation.engine.measure

        def counted(*args: Any, want: Any, measure: Any = measure, **kwargs: Any) -> Any:
            batches[diagnosed] += want.get("grad_norm", 0)  # noqa: B023
            return measure(*args, want=want, **kwargs)

        monkeypatch.setattr(simulation.engine, "measure", counted)
        simulation.step()
        noted[diagnosed] = rows.notes[0]
    assert batches == {True: 0, "batches": 8}
    assert noted[True][G2] == pytest.approx(4.0)
    assert noted[True]["drift.bound"] == pytest.approx((4 + 1 / 16) / 2)
    assert noted["batches"]["diversity.G2_batches"] == pytest.approx(49 / 4)
    assert noted["batches"]["drift.bound"] == pytest.approx((49 / 4 + 1 / 16) / 2)
    same = noted[True].keys() - {"drift.bound", "drift.bound_selected"}
    assert {name: noted["batches"][name] for name in same} == {
        name: noted[True][name] for name in same
    }


def test_probabilities_need_not_be_normalised() -> None:
    simulation, rows = _from_zero(_parabolas(), Named((0, 1), (1.0, 1.0, 2.0)))
    simulation.step()
    assert rows.notes[0][EXPECTED] == pytest.approx(7 / 9, rel=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_clients_do_not_differ_at_all(dtype: str) -> None:
    task = {"name": "quadratic", "dim": 2, "minima": [0.3, 1.7] * 3}
    simulation, rows = _from_zero(_parabolas(task=task, dtype=dtype))
    simulation.step()
    assert [rows.notes[0][name] for name in (B2, SELECTED, EXPECTED)] == [0.0] * 3
    assert rows.notes[0][G2] == pytest.approx(0.09 + 2.89, rel=1e-6)


def test_everybody_selected_and_equal_chances_are_the_mean_over_all() -> None:
    _, rows = _ended(_digits(cohort=6, selector="uniform", stop={"rounds": 2}))
    for notes in rows.notes:
        assert notes[SELECTED] == pytest.approx(notes[B2], rel=1e-12)
        assert notes[EXPECTED] == pytest.approx(notes[B2], rel=1e-12)
        assert 0 < notes["drift.measured"] < notes["drift.bound"]


def test_distances_are_those_of_the_definition_however_gradients_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random gradients far from 0, in pieces of 1, 3 and all; then through a whole run."""
    rng = np.random.Generator(np.random.Philox(0))
    g = 1e4 + rng.normal(size=(7, 5))
    weights = np.stack([np.full(7, 1 / 7), rng.dirichlet(np.ones(7))])
    square = ((g - g.mean(0)) ** 2).sum(1)
    for size in (1, 3, 7):
        spread, mean, largest = diagnostics.distances(
            iter([g[i : i + size] for i in range(0, 7, size)]), weights
        )
        assert spread == pytest.approx(weights @ square, rel=1e-9)
        assert mean == pytest.approx((g.mean(0) ** 2).sum(), rel=1e-12)
        assert largest == pytest.approx((g**2).sum(1).max(), rel=1e-12)
    whole = _ended(_digits(stop={"rounds": 1}))[1].notes[0]
    monkeypatch.setattr(diagnostics, "HELD", 1)
    assert _ended(_digits(stop={"rounds": 1}))[1].notes[0] == pytest.approx(whole, rel=1e-12)


# -------------------------------------------------------------------------------- when, and of what


def test_the_first_the_due_and_the_last_step_are_diagnosed() -> None:
    _, rows = _ended(_parabolas(stop={"rounds": 7}, evaluate={"every": 3, "diagnostics": True}))
    assert [step for step, notes in enumerate(rows.notes, 1) if B2 in notes] == [1, 3, 6, 7]
    assert [step for step, notes in enumerate(rows.notes, 1) if notes] == [1, 3, 6, 7]


NO_BOUND: dict[str, dict[str, Any]] = {
    "momentum": {"local": {"steps": 2, "batch_size": 1, "optimizer": {"lr": 0.1, "momentum": 0.5}}},
    "adam": {"local": {"steps": 2, "batch_size": 1, "optimizer": {"name": "adam", "lr": 0.1}}},
    "other numbers of steps": {"local": {"epochs": 1, "batch_size": 1, "optimizer": {"lr": 0.1}}},
    "shifted gradients": {"algorithm": "scaffold"},
}


@pytest.mark.parametrize("keys", NO_BOUND.values(), ids=NO_BOUND)
def test_the_bound_is_left_out_where_it_means_nothing(keys: dict[str, Any]) -> None:
    task = {"name": "quadratic", "dim": 1, "minima": [0, 1, 2], "examples": [1, 2, 3]}
    _, rows = _ended(_parabolas(task=task, **keys))
    for notes in rows.notes:
        assert "drift.measured" in notes
        assert "drift.bound" not in notes


def test_clipped_gradients_keep_the_bound() -> None:
    clipped = {"steps": 2, "batch_size": 1, "optimizer": {"lr": 0.5}, "clip": {"norm": 0.1}}
    assert "drift.bound" in _ended(_parabolas(local=clipped))[1].notes[0]


@pytest.mark.parametrize("synchrony", [{"name": "buffered", "buffer": 2}, "asynchronous"])
def test_servers_that_step_on_less_than_a_cohort(synchrony: Any) -> None:
    """A step's first choice is measured; the bound is there only where all that came had started
    from that model."""
    _, rows = _ended(_digits(cohort=4, synchrony=synchrony, stop={"rounds": 8}, selector="uniform"))
    diagnosed = [notes for notes in rows.notes if "moved_squared" in notes]
    assert len(diagnosed) == 5
    assert sum(B2 in notes for notes in diagnosed) >= 2
    assert all(("drift.measured" in notes) == (B2 in notes) for notes in diagnosed)
    assert sum("drift.bound" in notes for notes in diagnosed) < len(diagnosed)


def test_a_model_that_ran_away_notes_nothing_that_is_no_number() -> None:
    _, rows = _ended(
        _parabolas(local={"steps": 2, "batch_size": 1, "optimizer": {"lr": 1e51}}, guard="off")
    )
    for notes in rows.notes:
        assert all(np.isfinite(value) for value in notes.values())
    assert B2 not in rows.notes[-1]


# ----------------------------------------------------------------------------- engines, resume, off


@pytest.mark.parametrize("name", ["batched", "vmap", "threads", "processes"])
def test_engines_agree(name: str) -> None:
    keys = {"network": "none", "stop": {"rounds": 3}}
    _, one = _ended(_digits(**keys))
    _, other = _ended(_digits(**keys, engine={"name": name, "threads": 2}))
    for here, there in zip(one.notes, other.notes, strict=True):
        assert here == pytest.approx(there, rel=1e-9)


def test_a_resumed_run_notes_the_same() -> None:
    whole = _ended(_digits())[1].notes
    for stop in range(1, 5):
        rows = Rows()
        first, second = build(_digits(), writer=rows), build(_digits(), writer=rows)  # type: ignore[arg-type]
        for _ in range(stop):
            first.step()
        second.restore(first.save())
        while not second.done:
            second.step()
        assert rows.notes == whole


COMPRESSED: dict[str, Any] = {
    "selector": "hetero_select",
    "compressor": {"name": "topk"},
    "feedback": "adaptive",
    "allocator": "by_score",
    "weights": "score",
    "budget": {"name": "constant", "average": 0.3},
}


@pytest.mark.parametrize(
    "keys",
    [{}, COMPRESSED, {"synchrony": {"name": "buffered", "buffer": 2}}],
    ids=["plain", "sent", "buffered"],
)
def test_the_run_does_not_notice(keys: dict[str, Any]) -> None:
    """Model, memories, traffic, time, choices and every table are the same to the last bit, but for
    the column of notes."""
    with_it, one = _ended(_digits(**keys))
    without, other = _ended(_digits(**keys, evaluate={"every": 2}))
    saved = with_it.save()
    same = without.save()
    assert repr(saved) == repr(same)
    assert torch.equal(with_it.state.server.model.x, without.state.server.model.x)
    assert one.tables.keys() == other.tables.keys()
    for table in one.tables:
        for a, b in zip(one.tables[table], other.tables[table], strict=True):
            assert a.keys() == b.keys()
            for column in a.keys() - {"notes"}:
                np.testing.assert_array_equal(a[column], b[column], err_msg=f"{table}.{column}")
    assert not any(B2 in notes or "moved_squared" in notes for notes in other.notes)
    for here, there in zip(one.notes, other.notes, strict=True):
        assert there.items() <= here.items()


def test_diagnostics_change_the_run_id() -> None:
    """They fill a column of a table, so a run with them needs a folder of its own."""
    keys: dict[str, Any] = {
        "task": "quadratic",
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 2},
        "partition": "by_writer",
    }
    assert (
        Experiment(**keys).run_id() == Experiment(**keys, evaluate={"diagnostics": False}).run_id()
    )
    assert (
        Experiment(**keys).run_id() != Experiment(**keys, evaluate={"diagnostics": True}).run_id()
    )


# --------------------------------------------------------------------------- what compression loses


@dataclasses.dataclass(frozen=True)
class Uneven(Allocator):
    """A toy: client k's share is so many quarters."""

    quarters: tuple[int, ...]

    def ratios(self, state: State, load: AllocationContext) -> Floats:
        return np.array([self.quarters[k] / 4 for k in load.ids])


def _sent(quarters: tuple[int, ...], **keys: Any) -> dict[str, float]:
    """Notes of a round of two clients whose updates are (8, 3, 2, 1) and (0, 2, 6, -3)."""
    task = {"name": "quadratic", "dim": 4, "minima": [8, 3, 2, 1, 0, 2, 6, -3], "examples": [1, 1]}
    local = {"steps": 1, "batch_size": 1, "optimizer": {"lr": 1.0}}
    common = {
        "task": task,
        "population": 2,
        "local": local,
        "compressor": "topk",
        "budget": {"name": "constant", "average": 0.5},
    }
    experiment = _parabolas(**{**common, **keys})
    upload_config = dataclasses.replace(
        build(experiment).config.upload_config, allocator=Uneven(quarters)
    )
    simulation, rows = _from_zero(experiment, upload_config=upload_config)
    simulation.step()
    return rows.notes[0]


@pytest.mark.parametrize("feedback", ["none", "fixed"])
def test_errors_of_unequal_and_equal_shares_by_hand(feedback: str) -> None:
    """A quarter and three quarters: client 0 keeps back (0, 3, 2, 1), client 1 a zero; of the sum
    of halves (0, 1.5, 1, .5) the square is 3.5, the clients' squares are 14 and 0. Two values each:
    (0, 0, 2, 1) and (0, 2, 0, 0); half of them (0, 1, 1, .5): 2.25, and 5 and 4. Weighted by halves
    the clients' squares are their means. In proportion to the share they would lose 3/4 of 78 and
    1/4 of 49, and a half of both."""
    notes = _sent((1, 3), feedback=feedback)
    assert {name: value for name, value in notes.items() if "error" in name} == {
        "error.as_allocated": 3.5,
        "error.uniform": 2.25,
        "client_error.as_allocated": 7.0,
        "client_error.uniform": 4.5,
        "linear_error.as_allocated": (58.5 + 12.25) / 2,
        "linear_error.uniform": (78 + 49) / 4,
        "weighted_error.as_allocated": 7.0,
        "weighted_error.uniform": 4.5,
    }


def test_theorem_iv_2_is_false_where_errors_are_not_in_proportion_to_shares() -> None:
    """HeteRo-Select v2, Eq. 16: the clients' own errors are at most those of the uniform ratio.
    Shares of 3/4 and 1/4 go with updates (3, 2, 1, 0) and (2, 2, 1, 0), of squares 14 and 9, the
    larger to the larger, and in proportion to the share less would be lost: 3.5 + 6.75 against 7 +
    4.5. But the first loses nothing, and the second 4 + 1; with two values each they lose 1 and
    1. The first weighs three times as much in the aggregate, and counts once here."""
    task = {"name": "quadratic", "dim": 4, "minima": [3, 2, 1, 0, 2, 2, 1, 0], "examples": [3, 1]}
    notes = _sent((3, 1), task=task, weights="examples")
    assert (notes["client_error.as_allocated"], notes["client_error.uniform"]) == (2.5, 1.0)
    assert notes["linear_error.as_allocated"] == 10.25 / 2
    assert notes["linear_error.uniform"] == 11.5 / 2


def test_errors_are_weighed_as_updates_are() -> None:
    """Three samples against one: w = (3/4, 1/4): (0, 2.25, 1.5, .75) and (0, .5, 1.5, .75); the
    clients' squares 14 and 0, 5 and 4."""
    task = {"name": "quadratic", "dim": 4, "minima": [8, 3, 2, 1, 0, 2, 6, -3], "examples": [3, 1]}
    notes = _sent((1, 3), weights="examples", task=task)
    assert notes["error.as_allocated"] == pytest.approx(2.25**2 + 1.5**2 + 0.75**2, rel=1e-14)
    assert notes["error.uniform"] == pytest.approx(0.5**2 + 1.5**2 + 0.75**2, rel=1e-14)
    assert (notes["weighted_error.as_allocated"], notes["weighted_error.uniform"]) == (10.5, 4.75)


@pytest.mark.parametrize("keys", [{}, {"feedback": "ef21"}], ids=["equal shares", "changes"])
def test_no_errors_where_there_is_nothing_to_compare(keys: dict[str, Any]) -> None:
    notes = _sent((1, 3) if keys else (2, 2), **keys)
    assert B2 in notes
    assert not any("error" in name for name in notes)


def test_the_second_round_has_errors_of_update_and_memory() -> None:
    _, rows = _ended(_digits(**COMPRESSED))
    assert all(notes["error.as_allocated"] > 0 for notes in rows.notes[1:] if notes.get(B2))


# ------------------------------------------------------------------------------- who cannot have it


@pytest.mark.parametrize("name", ["fedbn", "rhfl"])
def test_clients_with_models_of_their_own_are_refused(name: str) -> None:
    keys: dict[str, Any] = {"algorithm": {"name": "rhfl", "mode": "kd"}, "public": 0.1}
    if name == "fedbn":
        model = {"name": "mlp", "norm": "batch"}
        keys = {"task": {"name": "image", "data": "digits", "model": model}, "algorithm": name}
    with pytest.raises(
        ConfigError,
        match=rf"evaluate\.diagnostics: .*at one model, and under '{name}' each has a model of its "
        rf"own",
    ):
        build(_digits(**keys, selector="uniform"))


class Silent(nn.Linear):
    """Trains like any layer; in eval mode its outputs have forgotten where they came from."""

    def forward(self, input: Tensor) -> Tensor:
        out = super().forward(input)
        return out if self.training else out.detach()


def test_a_model_without_gradients_in_eval_mode_is_told() -> None:
    rng = np.random.Generator(np.random.Philox(0))
    make: Callable[[], nn.Module] = lambda: Silent(3, 2)  # noqa: E731
    task = own_task(
        from_clients([(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(4)]), make
    )
    keys: dict[str, Any] = {
        "task": "own",
        "cohort": 2,
        "stop": {"rounds": 1},
        "engine": "sequential",
    }
    build(Experiment(**keys), task=task).step()
    with pytest.raises(
        EngineError,
        match=r"evaluate\.diagnostics needs a gradient of every client in eval mode.*leave it out",
    ):
        build(Experiment(**keys, evaluate={"diagnostics": True}), task=task).step()
