"""Variable local work: who straggles, how far it comes, how long it takes, and what becomes of
it."""

from __future__ import annotations

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.timing.stragglers import Stragglers
from tests.rows import Rows


def simulate(rows=None, **keys):
    """Four parabolas of four samples each, five epochs of four steps, a second a step."""
    base = {
        "task": {"name": "quadratic", "minima": [0.0, 10.0, 4.0, -3.0], "examples": [4, 4, 4, 4]},
        "population": 4,
        "cohort": 4,
        "partition": "by_writer",
        "stop": {"rounds": 3},
        "dtype": "float64",
        "engine": "sequential",
        "weights": "uniform",
        "local": {
            "batch_size": 1,
            "epochs": 5,
            "optimizer": {"lr": 0.05},
            "stragglers": {"share": 0.5},
        },
        "device": {"name": "constant", "seconds": 1.0},
        "evaluate": {"every": 1000, "per_client": False},
    }
    return build(Experiment(**{**base, **keys}), writer=rows)


def _steps(**keys):
    rows = Rows()
    simulation = simulate(rows, **keys)
    while not simulation.done:
        simulation.step()
    return rows.tables["clients"]


def test_half_of_a_cohort_ends_whole_epochs_short_of_all():
    ended = [Stragglers(0.5).epochs(Key(3), np.arange(10), t, 6) for t in range(1, 400)]
    assert {int((e < 6).sum()) for e in ended} == {5}
    late = np.concatenate([e[e < 6] for e in ended])
    share = np.bincount(late, minlength=6)[1:] / len(late)
    assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / len(late))
    who = np.mean([e < 6 for e in ended], axis=0)
    assert np.abs(who - 0.5).max() < 4 * np.sqrt(0.25 / len(ended))


@pytest.mark.parametrize(
    ("share", "count"), [(0.0, 0), (0.1, 0), (0.25, 1), (0.4, 1), (0.9, 3), (1.0, 3)]
)
def test_shares_are_rounded_to_clients(share, count):
    ids = np.array([5, 9, 11])
    assert (Stragglers(share).epochs(Key(0), ids, 1, 20) < 20).sum() == count
    assert Stragglers(share).epochs(Key(0), ids, 1, 1).tolist() == [1, 1, 1]
    assert Stragglers(share).epochs(Key(0), ids[:0], 1, 5).tolist() == []


def test_all_methods_see_the_same_stragglers():
    methods = ["fedavg", {"name": "fedprox", "mu": 1.0}, "scaffold", "fednova"]
    seen = [
        [columns["local_steps"].tolist() for columns in _steps(algorithm=method)]
        for method in methods
    ]
    assert all(steps == seen[0] for steps in seen)
    for steps in seen[0]:
        assert sorted(steps)[2:] == [20, 20]
        assert all(n in (4, 8, 12, 16) for n in sorted(steps)[:2])
    assert len({tuple(steps) for steps in seen[0]}) > 1  # others in other rounds


def test_a_straggler_is_slow_not_idle():
    """What it ends takes it 20 seconds, as long as everything takes the others."""
    for columns in _steps():
        assert columns["compute_s"].tolist() == pytest.approx([20.0] * 4)


def test_partial_results_are_kept_or_dropped():
    """Kept: all four count. Dropped: the mean of the others' models, w_k = m_k + .95^20 (x - m_k);
    no upload is billed for them."""
    rows = Rows()
    kept = simulate(rows)
    kept.step()
    assert rows.tables["rounds"][0]["accepted"] == 4
    late = np.array(rows.tables["clients"][0]["local_steps"]) < 20
    rows = Rows()
    local = {
        "batch_size": 1,
        "epochs": 5,
        "optimizer": {"lr": 0.05},
        "stragglers": {"share": 0.5, "partial": "drop"},
    }
    dropped = simulate(rows, local=local)
    x = dropped.state.server.model.x.item()
    m = np.array([0.0, 10.0, 4.0, -3.0])
    dropped.step()
    assert rows.tables["rounds"][0]["accepted"] == 2
    assert rows.tables["rounds"][0]["up_bits"] == 2 * (32 + 8 * 67)  # heads and checksum
    assert dropped.state.clients.now_s == pytest.approx(20.0)
    wanted = (m + 0.95**20 * (x - m))[~late].mean()
    assert dropped.state.server.model.x.item() == pytest.approx(wanted, rel=1e-12)


def test_a_deadline_sees_how_slow_they_are():
    """Ten seconds for everything: who ends 4 of 20 steps in 20 s ends 2 in 10, the others 10."""
    synchrony = {"name": "deadline", "seconds": 10.0, "late": "partial"}
    whole = _steps()[0]["local_steps"]
    cut = _steps(synchrony=synchrony)[0]["local_steps"]
    assert cut.tolist() == (np.array(whole) // 2).tolist()


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (
            {"steps": 3, "stragglers": {"share": 0.5}},
            r"local\.stragglers: stragglers end whole epochs.*give local.epochs",
        ),
        (
            {"epochs": 1, "stragglers": {"share": 0.5}},
            r"local\.stragglers: got share = 0.5 of work of one epoch.*leave local.stragglers out",
        ),
        ({"stragglers": {"share": 0.5}}, r"local\.stragglers: got share = 0.5 of work of one"),
        ({"epochs": 3, "stragglers": {"share": 1.5}}, r"local\.stragglers\.share: got 1.5"),
        (
            {"epochs": 3, "stragglers": {"partial": "maybe"}},
            r"local\.stragglers\.partial: got 'maybe'",
        ),
    ],
)
def test_refused(local, message):
    with pytest.raises(ConfigError, match=message):
        simulate(local=local)
    with pytest.raises(ConfigError, match="got share = 2"):
        Stragglers(2)
    with pytest.raises(ConfigError, match="got partial = 'x'"):
        Stragglers(partial="x")
