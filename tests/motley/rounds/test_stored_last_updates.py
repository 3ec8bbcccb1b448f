"""The last updates that the server keeps: cosines by hand, in RAM and on disk, and beside the
cosine of the upload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, StoreError
from motley.core.last_updates import LastUpdates
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds import upload_signals
from motley.rounds.stored_last_updates import DiskLastUpdates, open_last_updates
from motley.selectors.hetero_select import cosine_distance

from .test_loop import Rows

IDS = np.array([0, 1, 2, 5])
UPDATES = {0: [3.0, 0.0, 4.0, 0.0], 1: [0.0, -2.0, 0.0, 0.0], 2: [1.0, 1.0, 1.0, 1.0]}


def store_in(kind: str, folder: Path) -> LastUpdates:
    return open_last_updates(kind, folder)  # type: ignore[arg-type]


def vector(*values: float) -> Floats:
    return np.array(values)


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_directions_by_hand(kind: str, tmp_path: Path) -> None:
    """Three clients sent (3,0,4,0), (0,-2,0,0), (1,1,1,1); the mean is (1,0,0,0): cosines 3/5, 0,
    1/2, so D = (.4, 1, .5), and .5 for client 5, which sent nothing. A step (0,-10,0,0) moves the
    mean to .9 (1,0,0,0) + .1 (0,-10,0,0) = (.9,-1,0,0), of length sqrt 1.81: cosines 2.7 / (5 sqrt
    1.81) = .401379, 1 / sqrt 1.81 = .743294, -.1 / (2 sqrt 1.81) = -.037165, without a new
    upload."""
    store = store_in(kind, tmp_path)
    for client, update in UPDATES.items():
        store.stage(client, np.array(update, np.float32))
    assert np.isnan(store.cosines(IDS, vector(1, 0, 0, 0))).all()  # the step is not final yet
    store.commit()
    assert np.isnan(store.cosines(IDS, None)).all()
    np.testing.assert_allclose(
        cosine_distance(store.cosines(IDS, vector(1, 0, 0, 0))), (0.4, 1, 0.5, 0.5)
    )
    mean = upload_signals.next_consensus(vector(1, 0, 0, 0), vector(0, -10, 0, 0))
    store.commit()
    np.testing.assert_allclose(
        store.cosines(IDS[:3], mean), (0.401379, 0.743294, -0.037165), atol=5e-7
    )
    np.testing.assert_allclose(
        cosine_distance(store.cosines(IDS, mean)), (0.598621, 0.256706, 1, 0.5), atol=5e-7
    )


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_a_refused_step_and_an_update_without_a_direction_leave_the_last(
    kind: str, tmp_path: Path
) -> None:
    store = store_in(kind, tmp_path)
    mean = vector(1, 0)
    store.stage(7, np.array([1.0, 0.0]))
    store.commit()
    store.stage(7, np.array([0.0, 1.0]))
    store.discard()
    store.commit()
    for nothing in ([0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        store.stage(7, np.array(nothing))
        store.commit()
    assert store.cosines(np.array([7]), mean).tolist() == [1.0]


@pytest.mark.parametrize(("first", "second"), [("ram", "ram"), ("disk", "disk"), ("ram", "disk")])
def test_a_checkpoint_gives_the_same_bits(first: str, second: str, tmp_path: Path) -> None:
    store = store_in(first, tmp_path / "a")
    mean = np.random.default_rng(0).normal(size=40)
    for t in range(3):
        store.stage(
            t % 2,
            np.where(np.arange(40) % 9 < 9 * (t == 0) + 1, np.float32(t + 1), np.float32(0))
            + mean.astype(np.float32) * (np.arange(40) % 9 < 1),
        )
        store.commit()
    saved = store.save()
    again = store_in(second, tmp_path / "a")
    again.restore(saved)
    ids = np.array([0, 1])
    assert again.cosines(ids, mean).tobytes() == store.cosines(ids, mean).tobytes()
    assert len(again) == 2


def test_what_a_kept_checkpoint_names_stays_and_the_rest_goes(tmp_path: Path) -> None:
    store = DiskLastUpdates(tmp_path)

    def sends(client: int) -> None:
        store.stage(client, np.ones(3) * client)
        store.commit()

    sends(1)
    saved = store.save()
    sends(1)
    sends(1)  # the second of these was in no checkpoint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-0.update", "1-2.update"]
    store.save()
    sends(2)  # a checkpoint never came
    again = DiskLastUpdates(tmp_path)
    again.restore(saved)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-0.update"]
    assert len(again) == 1


def test_both_checkpoints_can_be_gone_on_from_until_the_next_is_written(tmp_path: Path) -> None:
    """A server is killed between :meth:`save` and the third checkpoint; the second is damaged."""
    store = DiskLastUpdates(tmp_path)
    saved = []
    for step in range(1, 6):
        store.stage(1, np.array([step, 1.0]))
        store.commit()
        saved.append(store.save())
        assert len(list(tmp_path.iterdir())) == min(step, 3)
    for earlier in (saved[3], saved[2]):  # round 5 is not written, then round 4 is damaged
        again = DiskLastUpdates(tmp_path)
        again.restore(earlier)
        step = 1 + saved.index(earlier)
        expected = 1 / np.hypot(step, 1)
        assert again.cosines(np.array([1]), np.array([0.0, 1.0])) == pytest.approx([expected])


def test_damage_and_wrong_places_are_told(tmp_path: Path) -> None:
    store = DiskLastUpdates(tmp_path)
    store.stage(4, np.ones(3))
    store.commit()
    saved = store.save()
    (tmp_path / "4-0.update").write_bytes(b"MTLY")
    with pytest.raises(
        StoreError,
        match=r"last update of client 4 in .*4-0.update is gone or damaged; remove the run's "
        r"folder",
    ):
        store.cosines(np.array([4]), vector(1, 0, 0))
    with pytest.raises(StoreError, match='go on with client_state = "disk"'):
        LastUpdates().restore(saved)
    with pytest.raises(ConfigError, match="updates on disk need the folder of a run"):
        open_last_updates("disk", None)


def _experiment(**keys: Any) -> Experiment:
    base: dict[str, Any] = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 12,
        "cohort": 4,
        "stop": {"rounds": 8},
        "local": {"steps": 2, "batch_size": 16},
        "compressor": "topk",
        "budget": {"name": "constant", "average": 0.2},
        "evaluate": {"every": 100},
        "weights": "score",
        "engine": {"name": "sequential", "threads": 1},
    }
    return Experiment(**{**base, **keys})


def test_under_a_frozen_mean_exact_is_the_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mean of the first step for good, a cosine taken at the upload is that of now; round
    1 sends before there is a mean."""
    monkeypatch.setattr(
        upload_signals, "next_consensus", lambda old, total: total if old is None else old
    )
    loop = build(_experiment(selector={"name": "hetero_select", "compare_directions": True}))
    while not loop.done:
        loop.step()
    ids = np.arange(12)
    frozen = loop.state.selector.state.clients.get("cosine", ids)
    assert loop.choosing.signals.consensus is not None
    now = loop.choosing.signals.last_updates.cosines(ids, loop.choosing.signals.consensus.numpy())
    known = ~np.isnan(frozen)
    assert known.sum() >= 8
    np.testing.assert_allclose(now[known], frozen[known], rtol=1e-12)


def test_with_the_mean_of_now_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recomputed from the whole uploads, kept beside the run: the store's sparse products are the
    same to rounding."""
    sent: dict[int, Any] = {}
    before = LastUpdates.stage
    monkeypatch.setattr(
        LastUpdates,
        "stage",
        lambda self, k, u: (sent.update({k: u.astype(np.float64)}), before(self, k, u))[1],
    )
    loop = build(_experiment(selector={"name": "hetero_select", "compare_directions": True}))
    while not loop.done:
        loop.step()
    assert loop.choosing.signals.consensus is not None
    mean = loop.choosing.signals.consensus.numpy()
    ids = np.array(sorted(sent))
    by_hand = [sent[k] @ mean / (np.linalg.norm(sent[k]) * np.linalg.norm(mean)) for k in ids]
    now = loop.choosing.signals.last_updates.cosines(ids, mean)
    np.testing.assert_allclose(now, by_hand, rtol=1e-10)
    frozen = loop.state.selector.state.clients.get("cosine", ids)
    assert np.nanmax(abs(frozen - now)) > 0.01


def test_nothing_is_charged_for_it() -> None:
    """Without the value nobody is probed: no bits, no seconds, and no client counts as probed."""
    rows = Rows()
    loop = build(
        _experiment(selector={"name": "hetero_select", "w_value": 0.0}, stop={"rounds": 2}),
        writer=rows,
    )  # type: ignore[arg-type]
    while not loop.done:
        loop.step()
    assert len(loop.choosing.signals.last_updates) >= 4
    assert loop.state.ledger.total("probe") == 0
    assert [row["probed"] for row in rows.tables["rounds"]] == [0, 0]


def test_the_cheap_form_keeps_no_update() -> None:
    loop = build(
        _experiment(selector={"name": "hetero_select", "direction": "cosine"}, stop={"rounds": 1})
    )
    loop.step()
    assert len(loop.choosing.signals.last_updates) == 0


@pytest.mark.parametrize("method", ["fedper", "fedrep", "fedbabu", "lg_fedavg"])
def test_clients_with_layers_of_their_own_are_compared_on_what_they_send(method: str) -> None:
    """Where one client takes part, the step is its update: both have the same direction."""
    loop = build(
        {
            "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
            "population": 4,
            "cohort": 1,
            "algorithm": method,
            "selector": "hetero_select",
            "stop": {"rounds": 2},
            "local": {"max_steps": 2},
        }
    )
    loop.step()
    signals = loop.choosing.signals
    assert signals.consensus is not None
    cosines = signals.last_updates.cosines(np.arange(4), signals.consensus.numpy())
    assert np.nanmax(cosines) == pytest.approx(1.0)
    assert np.isnan(cosines).sum() == 3
    loop.step()
