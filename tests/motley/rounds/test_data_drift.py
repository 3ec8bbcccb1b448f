"""A distribution that moves: what is seen in which round, exactly; the same on every engine;
planned, probed, examined, resumed."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.engines.engine import DataView, Job
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.rounds.data_drift import DriftView
from motley.rounds.evaluation import evaluate
from motley.rounds.loop import RoundLoop
from motley.tasks.flat import initial
from motley.tasks.task import Federation, Task
from motley.world.interfaces import Drift
from motley.world.shift.drift import SwapDrift, WindowDrift
from tests.motley.resume.conftest import assert_same, make

WINDOW = {"name": "window", "share": 0.5, "period": 8, "common": True}
SWAP = {"name": "swap", "start": 2, "width": 3, "share": 1.0}


def one_hot(population=1, each=8, test=0):
    """Clients with samples that touch one weight each per class; half of a client's samples are of
    class 0, in no order."""
    n = population * (each + test)
    rows = np.arange(n).reshape(population, each + test)
    train, held = (Ragged.of(list(part)) for part in (rows[:, :each], rows[:, each:]))
    y = torch.arange(n) % 2
    none = Ragged(np.zeros(population + 1, np.int64), np.zeros(0, np.int64))
    data = Federation(
        torch.eye(n),
        y,
        train,
        y[torch.from_numpy(train.values)],
        none,
        held if test else none,
        None,
        2,
    )
    return Task("own", data, lambda: nn.Linear(n, 2, bias=False))


def simulated(task, rounds=20, **keys):
    base = {
        "task": "own",
        "cohort": len(task.federation),
        "stop": {"rounds": rounds},
        "local": {"batch_size": 8},
        "engine": "sequential",
        "dtype": "float64",
    }
    return build(Experiment(**{**base, **keys}), task=task)


def touched(simulation):
    """Samples whose weights the next round changes."""
    before = simulation.state.server.model.x.clone()
    simulation.step()
    moved = (simulation.state.server.model.x - before).view(2, -1).abs().sum(0)
    return np.flatnonzero(moved.numpy())


# ---------------------------------------------------------------- what is seen


def test_what_is_seen_in_which_round():
    """Share 0.5 of 8 samples and a period of 8 rounds: round t sees the places t to t + 3 of the
    ring, modulo 8, and nothing else of the data moves the model. Without drift every round sees
    all."""
    moving = simulated(one_hot(), drift=WINDOW)
    still = simulated(one_hot())
    ring = moving.federation.train[0]
    classes = moving.federation.y[torch.from_numpy(ring)].tolist()
    assert classes in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
    for t in range(1, 18):
        assert sorted(ring[(t + np.arange(4)) % 8].tolist()) == touched(moving).tolist()
        assert touched(still).tolist() == list(range(8))


def test_a_window_of_one_class_makes_the_model_forget_the_other():
    """Rounds 0 and 4 modulo 8 see one class alone: there every step raises that class's bias-free
    score and never the other's."""
    simulation = simulated(one_hot(), drift=WINDOW)
    labels = simulation.federation.y
    seen = {t: sorted(labels[torch.from_numpy(touched(simulation))].tolist()) for t in range(1, 9)}
    assert {len(set(seen[t])) for t in (4, 8)} == {1}
    assert seen[4] != seen[8]
    assert [seen[t].count(seen[8][0]) for t in range(1, 9)] == [3, 2, 1, 0, 1, 2, 3, 4]


def test_labels_are_called_otherwise_from_the_start_on():
    """One step of rate 1 at the zero model moves the score of the label that was seen up by a half
    of its weight in the batch: from round 3 on it is the other one's."""
    simulation = simulated(
        one_hot(),
        drift={"name": "swap", "start": 3, "share": 1.0},
        local={"batch_size": 8, "steps": 1},
    )
    ups = []
    for _ in range(4):
        before = simulation.state.server.model.x.clone()
        simulation.step()
        ups.append((simulation.state.server.model.x - before).view(2, -1).argmax(0))
    labels = simulation.federation.y
    assert [torch.equal(up, labels) for up in ups] == [True, True, False, False]
    assert [torch.equal(up, 1 - labels) for up in ups] == [False, False, True, True]


def test_windows_by_the_clock_go_on_while_nobody_is_asked():
    """Rounds of 2 s (a step of 2 s) and a period of 8 s: round t starts at 2 (t - 1) s, and sees
    the places from 2 (t - 1) on."""
    keys = {"drift": {**WINDOW, "clock": "seconds"}, "device": {"name": "constant", "seconds": 2.0}}
    simulation = simulated(one_hot(), **keys)
    ring = simulation.federation.train[0]
    for t in range(1, 9):
        assert (
            sorted(ring[(2 * (t - 1) + np.arange(4)) % 8].tolist()) == touched(simulation).tolist()
        )


def test_a_late_update_was_trained_on_what_was_seen_when_it_was_sent_out():
    """A server that steps on every arrival, clients of unequal speeds: the round of the dispatch
    counts, not that of the landing."""
    keys = {
        "synchrony": {"name": "buffered", "buffer": 1},
        "device": {"name": "uniform", "low": 1.0, "high": 9.0},
    }
    simulation = simulated(one_hot(3), drift=WINDOW, **keys)
    rings = list(simulation.federation.train)
    ages = []
    for _ in range(20):
        flights = simulation.state.clients.in_flight
        sent = dict(
            zip(
                flights.timelines.client.tolist(),
                flights.columns["draw_index"].tolist(),
                strict=True,
            )
        )
        seen = touched(simulation)
        client = int(seen[0]) // 8
        if client in sent:
            assert (
                sorted(rings[client][(sent[client] + np.arange(4)) % 8].tolist()) == seen.tolist()
            )
            ages.append(simulation.state.draw_index - sent[client])
    assert len(ages) > 10
    assert max(ages) > 1


def test_nothing_drifts():
    task = one_hot()
    simulation = simulated(task)
    assert simulation.federation is task.federation
    assert simulation.backend.drift is None
    assert DriftView(Drift(), Key(0), task.federation).at(np.arange(1), 1, 0.0) is None


# ---------------------------------------------------------------- engines


def digits(rounds=4, **keys):
    base = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 10,
        "cohort": 6,
        "stop": {"rounds": rounds},
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "label_noise": {"name": "symmetric", "rate": 0.2},
        "split": {"validation": 0.1},
        "local": {"batch_size": 16, "epochs": 2},
        "dtype": "float64",
    }
    return Experiment(**{**base, **keys})


DRIFTS = {"none": "none", "window": {"name": "window", "share": 0.3, "period": 5}, "swap": SWAP}
ALGORITHMS = {
    "fedavg": "fedavg",
    "flash_robust": "flash_robust",
    "scaffold": {"name": "scaffold", "option": "I"},
    "fednova": "fednova",
}


@functools.cache
def trained(engine, drift, algorithm):
    local = {"batch_size": 32, "epochs": 2}  # two batches of a window, the second a smaller one
    keys = {"drift": DRIFTS[drift], "algorithm": ALGORITHMS[algorithm], "local": local}
    simulation = build(digits(engine=engine, cohort=4, **keys))
    while not simulation.done:
        simulation.step()
    simulation.engine.close()
    return simulation.state.server.model.x


@pytest.mark.parametrize("engine", ["batched", "vmap", "threads"])
@pytest.mark.parametrize("drift", ["window", "swap"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_batched_clients_see_the_same(engine, drift, algorithm):
    wanted = trained("sequential", drift, algorithm)
    torch.testing.assert_close(trained(engine, drift, algorithm), wanted, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(wanted, trained("sequential", "none", algorithm), rtol=1e-6)


@pytest.mark.parametrize("drift", ["window", "swap"])
def test_a_measure_is_of_what_is_seen(drift):
    """By hand: the mean loss over the window, labels (noisy ones, as the client has them) by the
    names of the round."""
    simulation = build(digits(drift=DRIFTS[drift]))
    data = simulation.federation
    ids = np.array([7, 2, 4])
    data_view = simulation.backend.drift.at(ids, 4, 0.0)
    state = initial(simulation.setting.task.model, Key(1), torch.float64)
    sent = {"x": state.x, "buffers": state.buffers, "counters": state.counters}
    found = simulation.engine.measure(
        ids, sent, {}, {"loss": None, "val_loss": None, "grad_norm": None}, Key(0), data_view
    )
    module = simulation.setting.task.model().double().eval()
    nn.utils.vector_to_parameters(state.x, module.parameters())
    for i, k in enumerate(ids.tolist()):
        places = (
            data.train.offsets[k]
            + (data_view.first[i] + np.arange(data.seen[k])) % data.train.sizes[k]
        )
        names = (
            torch.arange(10) if data_view.names is None else torch.from_numpy(data_view.names[i])
        )
        x = data.x[torch.from_numpy(data.train.values[places])].double()
        wanted = nn.functional.cross_entropy(
            module(x), names[data.labels[torch.from_numpy(places)]]
        )
        slope = torch.cat(
            [g.flatten() for g in torch.autograd.grad(wanted, list(module.parameters()))]
        )
        assert found["loss"][i] == pytest.approx(wanted.item(), rel=1e-9)
        assert found["grad_norm"][i] == pytest.approx(slope.norm().item(), rel=1e-9)
        held = slice(int(data.validation.offsets[k]), int(data.validation.offsets[k + 1]))
        x = data.x[torch.from_numpy(data.validation[k])].double()
        wanted = nn.functional.cross_entropy(module(x), names[data.validation_labels[held]])
        assert found["val_loss"][i] == pytest.approx(wanted.item(), rel=1e-9)


def test_sights_of_jobs():
    none = [Job(0, 0, 1, 0.1), Job(1, 1, 1, 0.1)]
    assert DataView.of(none) is None
    both = DataView(np.array([3, 5]), np.array([[1, 0], [0, 1]]))
    again = DataView.of([Job(i, i, 1, 0.1, both[i : i + 1]) for i in (1, 0)])
    assert again.first.tolist() == [5, 3]
    assert again.names.tolist() == [[0, 1], [1, 0]]


# ---------------------------------------------------------------- plans, examiner, resume


def test_the_window_is_what_is_planned_and_weighed(tmp_path):
    """A third of n_k, rounded up, in steps of 16 over two epochs; that many are told at enrolment
    and weigh an update."""
    experiment = digits(drift={"name": "window", "share": 1 / 3, "period": 5})
    result = run(experiment, out=tmp_path)
    sizes = np.array(result.tables["federation"]["num_train"].to_pylist())
    rows = result.tables["clients"].to_pylist()
    seen = -(-sizes // 3)
    assert all(row["num_examples"] == row["weight"] == seen[row["client"]] for row in rows)
    assert all(row["local_steps"] == 2 * -(-seen[row["client"]] // 16) for row in rows)


def test_the_examiner_calls_classes_as_clients_do():
    """One of four clients has changed its mind: its own test labels are the other ones, and a
    common set is the other one for it."""
    task = one_hot(4, 4, 4)
    simulation = simulated(task, drift={"name": "swap", "start": 5, "share": 1.0})
    names = np.array([[0, 1], [0, 1], [1, 0], [0, 1]])
    model = initial(task.model, Key(3), torch.float64)
    hits = model.x.view(2, -1).argmax(0) == task.federation.y
    each = np.array([hits[torch.from_numpy(rows)].double().mean() for rows in task.federation.test])
    found = evaluate(simulation.engine, model, task.federation, True, class_names=names).rows
    assert found["accuracy"][1:] == pytest.approx(
        np.where([False, False, True, False], 1 - each, each)
    )
    common = Federation(
        **{
            **{k: v for k, v in vars(task.federation).items() if k != "seen"},
            "global_test": np.arange(32),
        }
    )
    found = evaluate(simulation.engine, model, common, True, class_names=names).rows
    share = hits.double().mean().item()
    assert found["scope"][0] == "global"
    assert found["accuracy"][0] == pytest.approx(0.75 * share + 0.25 * (1 - share))
    plain = evaluate(simulation.engine, model, common, True).rows
    assert plain["accuracy"][0] == share


def test_a_common_test_set_is_weighed_by_class_for_each_client():
    """Client k's figure: its class shares times the accuracies by class under its own names."""
    simulation = build(digits(split={"test": "global"}, drift=SWAP))
    simulation.step()
    data = simulation.federation
    names = np.stack([np.arange(10), np.roll(np.arange(10), 1)])[np.arange(10) % 2]
    found = evaluate(
        simulation.engine, simulation.state.server.model, data, True, class_names=names
    ).rows
    plain = evaluate(simulation.engine, simulation.state.server.model, data, True).rows
    turned = evaluate(
        simulation.engine,
        simulation.state.server.model,
        data,
        True,
        class_names=names[np.ones(10, int)],
    ).rows
    wanted = np.where(np.arange(10) % 2, turned["accuracy"][2:], plain["accuracy"][2:])
    assert found["accuracy"][2:] == pytest.approx(wanted)
    assert found["accuracy"][0] == pytest.approx((plain["accuracy"][0] + turned["accuracy"][0]) / 2)


def test_accuracy_falls_when_the_meanings_change_and_comes_back():
    simulation = build(
        digits(
            30,
            drift={"name": "swap", "start": 15, "share": 1.0},
            label_noise="none",
            evaluate={"every": 1},
        )
    )
    scores = []
    while not simulation.done:
        simulation.step()
        scores.append(simulation.state.scores.headline)
    assert scores[13] > 0.7
    assert min(scores[14:17]) < 0.5
    assert scores[-1] > min(scores[14:17]) + 0.2


class Blow(BaseException):
    """From outside."""


@pytest.mark.parametrize("synchrony", ["synchronous", {"name": "buffered", "buffer": 3}], ids=str)
@pytest.mark.parametrize(
    "drift", [{"name": "window", "share": 0.3, "clock": "seconds", "period": 7.0}, SWAP], ids=str
)
def test_a_drift_goes_on_where_it_was(synchrony, drift, tmp_path, monkeypatch):
    experiment = make(rounds=12, drift=drift, synchrony=synchrony)
    whole = run(experiment, out=tmp_path / "whole")
    step = RoundLoop.step
    seen = [0]

    def broken(self):
        seen[0] += 1
        if seen[0] == 8:
            raise Blow
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(RoundLoop, "step", broken)
        with pytest.raises(Blow):
            run(experiment, out=tmp_path / "broken")
    assert_same(whole, run(experiment, out=tmp_path / "broken", resume=True))


# ---------------------------------------------------------------- what is refused


def test_numbers_have_no_classes_to_drift():
    with pytest.raises(
        ConfigError, match=r"drift: a drift needs one class per sample; this task is a regression"
    ):
        build(
            Experiment(
                task="quadratic",
                partition="by_writer",
                population=4,
                cohort=2,
                stop={"rounds": 1},
                drift="window",
            )
        )


def test_a_share_that_swaps_nothing_is_named():
    with pytest.raises(
        ConfigError,
        match=r"drift: got share = 0.5, which swaps no pair of 2 classes; expected at least 1",
    ):
        simulated(one_hot(), drift={"name": "swap", "start": 1})


def test_kinds():
    assert simulated(one_hot(), drift=WINDOW).backend.drift.drift == WindowDrift(
        0.5, 8, common=True
    )
    assert simulated(
        one_hot(), drift={"name": "swap", "start": 2, "share": 1}
    ).backend.drift.drift == SwapDrift(2.0, share=1.0)
