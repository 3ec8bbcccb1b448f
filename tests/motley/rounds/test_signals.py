"""What a rule learns, and what it costs: worked by hand on parabolas, where client k's loss is
``a_k / 2 |w - m_k|^2``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from motley.core import codec
from motley.core.errors import ConfigError
from motley.core.records import (
    SIGNALS,
    Cohort,
    JointUploads,
    Outcome,
    Reports,
    SelectionContext,
    SignalRequirements,
)
from motley.core.sketch import Sketch
from motley.experiments.build import build
from motley.experiments.checks import check_selector
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.rounds.simulated import simulation as simulation_of
from motley.selectors.selector import SelectionRule, Selector
from motley.world.interfaces import Failures
from tests.motley.rounds.going_on import going_on

from .test_loop import Rows


@dataclasses.dataclass(frozen=True)
class Curious(SelectionRule[int]):
    """Asks everybody, wants to know what it is told to want, and rehearses in some rounds."""

    enrolled: tuple[str, ...] = ()
    probed: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    batches: int | None = None
    rehearses: tuple[int, ...] = ()

    def needs(self) -> SignalRequirements:
        return SignalRequirements(
            frozenset(self.enrolled),
            dict.fromkeys(self.probed, self.batches),
            frozenset(self.reported),
        )

    def init(self) -> int:
        return 0

    def candidates(self, state: int, ask: SelectionContext) -> Any:
        return ask.available if self.probed else ask.available[:0]

    def select(self, state: int, ask: SelectionContext) -> Cohort:
        return Cohort(ask.available, rehearsal=ask.draw in self.rehearses)

    def contributions(self, uploads: JointUploads) -> np.ndarray:
        return np.array([uploads.loss([]) - uploads.loss([i]) for i in range(len(uploads.clients))])

    def observe(self, state: int, draw: int, reports: Reports) -> int:
        return state + 1


A = np.array([1.0, 2.0, 0.5])
M = np.array([3.0, -1.0, 4.0])
N = np.array([2, 4, 8])
LR = 0.1
HEADS = 536
"""Bits of the heads of an upload of one part named delta: 15 + 8 bytes of the message, 1 + 5 + 38
of the part."""
UP_S = (32 + HEADS) / 16
"""Seconds of an upload at 16 bits a second."""


def _experiment(**keys: Any) -> Experiment:
    """Three parabolas on a line with 2, 4 and 8 equal samples, a step each; a number is 32 bits: 2
    s up, 1 s down; a step .25 s."""
    task = {
        "name": "quadratic",
        "curvatures": A.tolist(),
        "minima": M.tolist(),
        "examples": N.tolist(),
    }
    base = {
        "task": task,
        "partition": "by_writer",
        "population": 3,
        "cohort": 3,
        "stop": {"rounds": 4},
        "local": {"batch_size": 1, "optimizer": {"name": "sgd", "lr": LR}},
        "dtype": "float64",
        "device": {"name": "constant", "seconds": 0.25},
        "network": {"name": "constant", "up_mbps": 16e-6, "down_mbps": 32e-6},
        "evaluate": {"every": 1},
        "engine": "sequential",
        "weights": "uniform",
    }
    return Experiment(**{**base, **keys})


def _watched(rule: Curious, **keys: Any) -> tuple[RoundLoop, list[tuple[int, Reports]], Rows]:
    """A simulation under this rule, what its selector observes, and its rows."""
    plain = build(_experiment(**keys))
    rows = Rows()
    seen = []
    selector = Selector(rule)
    simulation = simulation_of(plain.config, plain.engine, selector, plain.state.server.model, rows)  # type: ignore[arg-type]
    take = selector.observe

    def observe(draw: int, reports: Reports) -> None:
        seen.append((draw, reports))
        take(draw, reports)

    selector.observe = observe  # type: ignore[method-assign, assignment]
    return simulation, seen, rows


def _w(simulation: RoundLoop) -> float:
    return float(simulation.state.server.model.x[0])


def test_everything_probed_on_parabolas() -> None:
    """At w client k's loss is a_k/2 (w - m_k)^2, its gradient a_k (w - m_k), the norm its size, the
    sketch a projection of it."""
    simulation, seen, rows = _watched(
        Curious(probed=("loss", "grad_norm", "gradient", "gradient_sketch"))
    )
    w = _w(simulation)
    simulation.step()
    ((_, enrolled), (number, probed), _) = seen
    assert not enrolled.signals
    assert (number, set(probed.outcome.tolist())) == (1, {Outcome.PROBED})
    slope = A * (w - M)
    assert probed.signal("loss") == pytest.approx(A / 2 * (w - M) ** 2, rel=1e-12)
    assert probed.signal("grad_norm") == pytest.approx(np.abs(slope), rel=1e-12)
    assert probed.signal("gradient") == pytest.approx(slope[:, None], rel=1e-12)
    sketch = Sketch.signal("gradient_sketch", simulation.setting.streams, 1)
    assert probed.signal("gradient_sketch") == pytest.approx(
        np.stack([sketch.of([g]) for g in slope]), rel=1e-12
    )
    # 1 + 1 + 1 + 256 numbers of 32 bits each from three clients, a model of one number down
    assert rows.tables["rounds"][0]["probe_up_bits"] == 3 * 32 * 259
    assert rows.tables["rounds"][0]["probe_down_bits"] == 3 * 32


@pytest.mark.parametrize(
    ("probed", "batches", "share"),
    [
        (("loss",), None, 1 / 3),
        (("grad_norm",), None, 1.0),
        (("loss", "grad_norm"), None, 1.0),
        (("grad_norm",), 2, 1.0),
    ],
)
def test_a_gradient_takes_as_long_as_a_step(
    probed: tuple[str, ...], batches: int | None, share: float
) -> None:
    """A batch put forward takes a third of a step, a gradient of it a whole one, which gives the
    loss besides. The slowest has 8 batches (or 2), .25 s a step; 1 s down, and 2 s up for each
    number. Then the cohort computes 8 steps and sends."""
    simulation, _, rows = _watched(Curious(probed=probed, batches=batches))
    simulation.step()
    bench = 1.0 + (batches or 8) * 0.25 * share + 2.0 * len(probed)
    assert rows.tables["clients"][0]["start_s"].tolist() == [pytest.approx(bench, rel=1e-12)] * 3
    assert rows.tables["rounds"][0]["time_s"] == pytest.approx(bench + 2.0 + UP_S, rel=1e-12)


def test_the_test_loss_takes_a_pass_of_its_own() -> None:
    """A parabola's one test sample is one of its samples: the loss is a_k/2 (w - m_k)^2 again. The
    slowest puts 8 batches and the test sample's forward, a third of .25 s each; 1 s down, 2 s up
    for each of two numbers."""
    simulation, seen, rows = _watched(Curious(probed=("loss", "test_loss")))
    w = _w(simulation)
    simulation.step()
    probed = seen[1][1]
    assert probed.signal("test_loss") == pytest.approx(A / 2 * (w - M) ** 2, rel=1e-12)
    bench = 1.0 + 9 * 0.25 / 3 + 4.0
    assert rows.tables["clients"][0]["start_s"].tolist() == [pytest.approx(bench, rel=1e-12)] * 3


@pytest.mark.parametrize(
    ("algorithm", "bits"), [("fedavg", 32 + HEADS), ("fednova", 64 + HEADS + 8 * (1 + 11 + 38))]
)
def test_everything_reported_on_parabolas(algorithm: str, bits: int) -> None:
    """After s steps w_k = m_k + (1 - lr a_k)^s (w - m_k). The first gradient is the largest; the
    pseudo-gradient is the mean of those met; the last layer of a model of one layer is all of
    it."""
    names = (
        "arrival_loss",
        "grad_norm",
        "max_grad_norm",
        "gradient",
        "gradient_sketch",
        "sketch",
        "last_layer",
        "update_norm",
    )
    simulation, seen, rows = _watched(Curious(reported=names), algorithm=algorithm)
    w = _w(simulation)
    simulation.step()
    reports = seen[-1][1]
    after = M + (1 - LR * A) ** N * (w - M)
    assert set(reports.signals) == {*names, "loss"}
    assert reports.signal("arrival_loss") == pytest.approx(A / 2 * (w - M) ** 2, rel=1e-12)
    assert reports.signal("grad_norm") == pytest.approx(A * np.abs(w - M), rel=1e-12)
    assert reports.signal("max_grad_norm") == pytest.approx(A * np.abs(w - M), rel=1e-12)
    assert reports.signal("update_norm") == pytest.approx(np.abs(after - w), rel=1e-12)
    assert reports.signal("last_layer") == pytest.approx(after[:, None], rel=1e-12)
    pseudo = (w - after) / (N * LR)
    assert reports.signal("gradient") == pytest.approx(pseudo[:, None], rel=1e-12)
    streams = simulation.setting.streams
    for name, values in {"gradient_sketch": pseudo, "sketch": after - w}.items():
        sketch = Sketch.signal(name, streams, 1)
        assert reports.signal(name) == pytest.approx(
            np.stack([sketch.of([v]) for v in values]), rel=1e-12
        )
    # the server makes them of the uploads (FedNova's are divided by ||a||, which is sent beside
    # them): no more bits went up
    assert rows.tables["rounds"][0]["up_bits"] == 3 * bits
    assert rows.tables["rounds"][0]["probe_up_bits"] == 0


def test_measuring_on_arrival_takes_its_time() -> None:
    """A forward pass of 8 batches is 8/3 steps; with the gradient it is 8 steps. 1 s down, 8 steps
    of .25 s, the upload."""
    for names, extra in (
        ((), 0.0),
        (("arrival_loss",), 8 / 3),
        (("arrival_loss", "grad_norm"), 8.0),
        (("max_grad_norm",), 0.0),
    ):
        simulation, _, _ = _watched(Curious(reported=names))
        assert simulation.step().time_s == pytest.approx(1.0 + (8 + extra) * 0.25 + UP_S, rel=1e-12)


def test_the_planners_figures_are_free() -> None:
    """1 s down, 2, 4, 8 steps of .25 s, the upload at 16e-6 Mb/s; at enrolment and before a choice,
    without a bit or a second."""
    names = ("uplink_mbps", "download_estimate_s", "compute_estimate_s", "upload_estimate_s")
    simulation, seen, rows = _watched(Curious(enrolled=names, probed=names))
    simulation.step()
    for _, reports in seen[:2]:
        assert reports.signal("uplink_mbps").tolist() == [16e-6] * 3
        assert reports.signal("download_estimate_s") == pytest.approx([1.0] * 3)
        assert reports.signal("compute_estimate_s") == pytest.approx([0.5, 1.0, 2.0])
        assert reports.signal("upload_estimate_s") == pytest.approx([UP_S] * 3)
    row = rows.tables["rounds"][0]
    assert (row["probed"], row["probe_down_bits"], row["probe_up_bits"]) == (3, 0, 0)
    assert row["time_s"] == pytest.approx(3.0 + UP_S, rel=1e-12)
    assert row["total_bits"] == 96 + 3 * (32 + HEADS)  # nothing at enrolment either


def test_at_enrolment_everybody_has_the_initial_last_layer_and_it_takes_no_room() -> None:
    simulation, seen, _ = _watched(Curious(enrolled=("last_layer", "num_examples")))
    w = _w(simulation)
    simulation.step()
    told = seen[0][1].signal("last_layer")
    assert told.tolist() == [[w]] * 3
    assert told.strides[0] == 0
    assert simulation.state.ledger.total("enrol") == 3 * 32  # the numbers of samples only


def test_the_cosine_is_to_the_consensus_of_the_rounds_before() -> None:
    """In two dimensions by hand: c starts as the first step's mean update, then c <- .9 c + .1
    mean."""
    task = {"name": "quadratic", "dim": 2, "minima": [3, 0, 0, 3, -2, 1]}
    simulation, seen, _ = _watched(Curious(reported=("cosine",)), task=task)
    minima = np.array([[3.0, 0.0], [0.0, 3.0], [-2.0, 1.0]])
    consensus = None
    for _ in range(3):
        w = simulation.state.server.model.x.numpy().copy()
        simulation.step()
        updates = LR * (minima - w)  # one sample, one step
        found = seen[-1][1].signal("cosine")
        if consensus is None:
            assert np.isnan(found).all()
            consensus = updates.mean(0)
        else:
            lengths = np.linalg.norm(updates, axis=1) * np.linalg.norm(consensus)
            assert found == pytest.approx(updates @ consensus / lengths, rel=1e-12)
            consensus = 0.9 * consensus + 0.1 * updates.mean(0)


def test_a_rehearsal_measures_twice_and_leaves_everything_as_it_was() -> None:
    """Round 2 rehearses: the model that would have been is w' = mean of m_k + (1 - lr a_k)^s_k (w -
    m_k); everybody's loss there comes as a second probe, after the first and before the reports."""
    simulation, seen, rows = _watched(
        Curious(probed=("loss",), reported=("cosine",), rehearses=(2,))
    )
    simulation.step()
    w = _w(simulation)
    before = len(seen)
    spent = simulation.state.clients.now_s
    consensus = simulation.choosing.signals.consensus.clone()  # type: ignore[union-attr]
    simulation.step()
    (first, second, last) = seen[before:]
    assert [entry[0] for entry in (first, second, last)] == [2, 2, 2]
    assert [set(entry[1].outcome.tolist()) for entry in (first, second, last)] == [
        {Outcome.PROBED},
        {Outcome.PROBED},
        {Outcome.REHEARSED},
    ]
    rehearsed = np.mean(M + (1 - LR * A) ** N * (w - M))
    assert first[1].signal("loss") == pytest.approx(A / 2 * (w - M) ** 2, rel=1e-12)
    assert second[1].signal("loss") == pytest.approx(A / 2 * (rehearsed - M) ** 2, rel=1e-12)
    assert np.isnan(second[1].version).all()
    assert first[1].version.tolist() == [1.0] * 3
    assert _w(simulation) == w
    assert torch.equal(simulation.choosing.signals.consensus, consensus)  # type: ignore[arg-type]
    # both probes: 3 models down, 3 numbers up, 1 + 8/3 * .25 + 2 s; the cohort holds the model of
    # the first: 2 s and the upload
    row = rows.tables["rounds"][1]
    assert (row["probed"], row["probe_down_bits"], row["probe_up_bits"]) == (6, 2 * 96, 2 * 96)
    assert (row["down_bits"], row["up_bits"]) == (0, 3 * (32 + HEADS))
    assert row["time_s"] - spent == pytest.approx(2 * (1 + 8 / 3 * 0.25 + 2) + 2 + UP_S, rel=1e-12)
    simulation.step()
    assert seen[-2][1].signal("loss") == pytest.approx(A / 2 * (w - M) ** 2, rel=1e-12)
    assert _w(simulation) == pytest.approx(rehearsed, rel=1e-12)  # the same cohort, now for good


def test_a_rehearsal_of_nobody_is_not_measured() -> None:
    simulation, seen, _ = _watched(
        Curious(probed=("loss",), rehearses=(1,)), failures={"name": "none"}
    )
    simulation = going_on(simulation, failures=_Gone())
    simulation.step()
    assert [set(reports.outcome.tolist()) for _, reports in seen[1:]] == [
        {Outcome.PROBED},
        {Outcome.DROPPED},
    ]


class _Gone(Failures):
    """Everybody breaks off at once."""

    def drop_at(self, key: Any, ids: Any, round: int) -> Any:
        return np.zeros(len(ids))


def test_going_on_from_a_checkpoint_is_the_same_to_the_last_bit() -> None:
    """Consensus and candidates are in it, and go through bytes."""
    rule = Curious(
        probed=("gradient_sketch", "loss"),
        reported=("cosine", "sketch", "last_layer", "max_grad_norm"),
        rehearses=(3,),
    )
    task = {"name": "quadratic", "dim": 5, "examples": N.tolist()}
    whole, seen, _ = _watched(rule, task=task)
    other, again, _ = _watched(rule, task=task)
    for _ in range(2):
        whole.step()
        other.step()
    saved = codec.decode(codec.encode(other.save()))
    cut = len(again)
    resumed, later, _ = _watched(rule, task=task)
    resumed.restore(saved)
    resumed.state.selector.observe = lambda *what: later.append(what)  # type: ignore[method-assign]
    for _ in range(2):
        whole.step()
        resumed.step()
    assert torch.equal(whole.state.server.model.x, resumed.state.server.model.x)
    assert len(seen[cut:]) == len(later)
    for (_, a), (_, b) in zip(seen[cut:], later, strict=True):
        assert a.signals.keys() == b.signals.keys()
        for name, value in a.signals.items():
            np.testing.assert_array_equal(value, b.signals[name])


@pytest.mark.parametrize("engine", ["sequential", "threads", "batched", "vmap", "debug"])
def test_every_signal_there_is_reaches_a_rule_on_every_engine(engine: str) -> None:
    """On classes, noisy labels, a validation part, samples of the server (which a run under
    ``greedyfed`` has at hand): nothing is refused, and all that clients who took part tell is
    finite."""
    told = {
        when: tuple(name for name, s in SIGNALS.items() if when in s.when)
        for when in ("enrolled", "probed", "reported")
    }
    keys = {
        "task": {"name": "synthetic", "dim": 5, "classes": 3},
        "partition": "by_writer",
        "population": 6,
        "cohort": 6,
        "split": {"validation": 0.2, "server": 0.1},
        "selector": "greedyfed",
        "label_noise": {"name": "beta", "mean": 0.3},
        "loss": "flash_robust",
        "engine": engine,
        "local": {"batch_size": 10, "optimizer": {"name": "sgd", "lr": 0.01}, "max_steps": 5},
    }
    simulation, seen, _ = _watched(Curious(**told, batches=2), **keys)
    check_selector(
        _experiment(**keys),
        simulation.state.selector,
        "uniform",
        simulation.setting.task,
        frozenset({"delta"}),
    )
    simulation.step()
    simulation.step()
    whole = {
        when: next(r for _, r in reversed(seen) if r.outcome[0] == kind)
        for when, kind in (
            ("enrolled", Outcome.ENROLLED),
            ("probed", Outcome.PROBED),
            ("reported", Outcome.ACCEPTED),
        )
    }
    for when, reports in whole.items():
        assert set(told[when]) <= set(reports.signals)
        for name in told[when]:
            assert np.isfinite(reports.signal(name)).all(), (when, name)


@pytest.mark.parametrize(
    ("rule", "keys", "message"),
    [
        (
            Curious(probed=("val_loss",)),
            {},
            r"split.validation: 'curious' needs the loss on each client's validation .*validation "
            r"= 0.2",
        ),
        (Curious(reported=("val_loss",)), {}, "split.validation"),
        (
            Curious(probed=("test_loss",)),
            {
                "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
                "partition": "iid",
                "split": {"test": "global"},
            },
            r"split.test: 'curious' needs the loss on each client's own test .*test = \"client\"",
        ),
        (
            Curious(probed=("robust_loss",)),
            {},
            "selector: 'curious' needs the noise-robust loss of classes; this task is a regression",
        ),
        (
            Curious(probed=("sketch",)),
            {},
            "needs the signal 'sketch' probed, which can only be had reported",
        ),
        (
            Curious(enrolled=("loss",)),
            {},
            "needs the signal 'loss' enrolled, which can only be had probed or reported",
        ),
        (
            Curious(reported=("uplink_mbps",)),
            {},
            "needs the signal 'uplink_mbps' reported, which can only be had enrolled or probed",
        ),
    ],
)
def test_what_nobody_can_tell_is_refused(rule: Curious, keys: dict[str, Any], message: str) -> None:
    experiment = _experiment(**keys)
    named = experiment.model_copy(update={"selector": {"name": "curious"}})
    with pytest.raises(ConfigError, match=message):
        check_selector(
            named, Selector(rule), "uniform", build(experiment).setting.task, frozenset({"delta"})
        )


def test_a_validation_part_is_not_in_the_id_of_those_that_have_none() -> None:
    assert _experiment(split={"validation": 0.0}).run_id() == _experiment().run_id()
    assert _experiment(split={"validation": 0.2}).run_id() != _experiment().run_id()


def test_a_million_enrolled_last_layers_cost_nothing() -> None:
    """They are one row, repeated; the shell that checks them does not unroll it."""
    rows = np.broadcast_to(np.ones(10_000), (1_000_000, 10_000))
    selector = Selector(Curious(enrolled=("last_layer",)))
    selector.observe(
        0, Reports(np.arange(1_000_000), Outcome.ENROLLED, signals={"last_layer": rows})
    )  # type: ignore[arg-type]


def test_a_client_whose_numbers_overflow_tells_nothing_and_hurts_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Client 0 comes first and is rejected: its signals are absent, the others' are there."""
    simulation, seen, _ = _watched(Curious(reported=("sketch", "cosine", "last_layer", "gradient")))
    train = simulation.engine.train

    def broken(*what: Any) -> Any:
        for trained in train(*what):
            yield dataclasses.replace(trained, finite=False) if trained.client == 0 else trained

    monkeypatch.setattr(simulation.engine, "train", broken)
    simulation.step()
    simulation.step()
    reports = seen[-1][1]
    assert reports.outcome.tolist() == [Outcome.REJECTED, Outcome.ACCEPTED, Outcome.ACCEPTED]
    for name in ("sketch", "cosine", "last_layer", "gradient"):
        assert np.isnan(reports.signal(name)[0]).all()
        assert np.isfinite(reports.signal(name)[1:]).all()


def test_every_client_of_two_samples_holds_one_out() -> None:
    """A share of 1 % is at least one sample, but never the only one; which one is a function of the
    seed."""
    task = {"name": "synthetic", "dim": 5, "classes": 3}
    keys = {
        "task": task,
        "partition": "by_writer",
        "population": 8,
        "cohort": 8,
        "split": {"validation": 0.01, "test": "global"},
    }
    data = build(_experiment(**keys)).federation
    assert (data.validation.sizes >= 1).all()
    assert (data.train.sizes >= 1).all()
    again = build(_experiment(**keys)).federation
    other = build(_experiment(**keys, pin={"split": 5})).federation
    assert (again.validation.values == data.validation.values).all()
    assert not np.array_equal(other.validation.values, data.validation.values)
