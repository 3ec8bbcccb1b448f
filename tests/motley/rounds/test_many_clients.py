"""What a round costs in calls and bytes where the clients are many and the cohort is small."""

import cProfile
import pstats
from typing import Any

import numpy as np
import pytest
from torch import nn

from motley.core import codec
from motley.core.work import LocalWork
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.rounds.rows import federation_rows
from motley.tasks import from_arrays, own_task

# and the bytes of state a client that a checkpoint may hold
SELECTORS: list[tuple[dict[str, Any], int]] = [
    ({"name": "uniform"}, 1),
    ({"name": "power_of_choice"}, 40),
    ({"name": "oort"}, 64),
    ({"name": "hetero_select_v1", "probe": "last_report"}, 96),
    ({"name": "hetero_select"}, 72),
]
WORLD = {
    "device": {"name": "log_normal"},
    "network": {"name": "uniform"},
    "availability": {"name": "day_night", "share": 0.5},
}


def many(clients: int, selector: dict[str, Any], **keys: Any) -> RoundLoop:
    """Return a simulation of so many clients of four samples, and a cohort of ten."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4 * clients, 3)).astype(np.float32)
    y = rng.integers(0, 2, 4 * clients)
    federation = from_arrays(x, y, offsets=4 * np.arange(clients + 1), test_fraction=0.25)
    given = {
        "cohort": 10,
        "stop": {"rounds": 9},
        "evaluate": {"every": 9, "per_client": False},
        **WORLD,
        **keys,
    }
    return build(
        Experiment(
            task=own_task(federation, lambda: nn.Linear(3, 2)),
            selector=selector,
            local={"epochs": 1},
            **given,
        )
    )


@pytest.mark.parametrize(("selector", "_"), SELECTORS)
def test_no_round_goes_through_all_clients_one_by_one(selector: dict[str, Any], _: int) -> None:
    """20,000 clients more cost fewer than 10,000 calls more in two rounds, before the first of them
    too."""
    calls = []
    for clients in (2_000, 22_000):
        loop = many(clients, selector)
        profile = cProfile.Profile()
        profile.enable()
        loop.step(), loop.step()
        profile.disable()
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    assert calls[1] - calls[0] < 10_000


@pytest.mark.parametrize(("selector", "most"), SELECTORS)
def test_bytes_of_state_a_client(selector: dict[str, Any], most: int) -> None:
    loop = many(20_000, selector)
    for _ in range(3):
        loop.step()
    saved = len(codec.encode(loop.save()))
    base = many(20, selector)
    base.step()
    # who was probed, and what that took, of one round
    probed = 20_000 * 4 * 8 if selector["name"] == "hetero_select" else 0
    assert saved - len(codec.encode(base.save())) < 20_000 * most + probed + 40_000


def test_bytes_of_a_federation_a_client() -> None:
    """Beside the samples: 8 bytes of row number and 8 of label a training sample, and some numbers
    of 8 bytes a client."""
    federation = many(5_000, {"name": "uniform"}).federation
    ragged = [getattr(federation, part) for part in ("train", "validation", "test")]
    numbers = [
        federation.noise,
        federation.domain,
        federation.cluster,
        *(a for r in ragged for a in (r.offsets, r.values)),
    ]
    held = sum(array.nbytes for array in numbers) + federation.labels.numpy().nbytes
    assert held <= 5_000 * (3 * 16 + 8 + 6 * 8) + 100


def test_the_table_of_the_federation_in_blocks_is_that_of_one_block() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(2, 7, 50)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    federation = from_arrays(
        rng.normal(size=(ends[-1], 2)), rng.integers(0, 3, ends[-1]), offsets=ends
    )
    steps, links = rng.random(50), rng.random(50)
    speeds = steps.__getitem__, links.__getitem__, LocalWork(8, 1)
    (whole,) = federation_rows(federation, *speeds)
    assert whole["labels"].tolist() == federation.histogram().tolist()
    blocks = list(federation_rows(federation, *speeds, block=16))
    assert [len(block["client"]) for block in blocks] == [16, 16, 16, 2]
    for name in (
        "client",
        "num_train",
        "num_test",
        "step_s",
        "up_mbps",
        "batch_size",
        "labels",
        "noise",
        "domain",
        "held_out",
    ):
        assert np.array_equal(np.concatenate([block[name] for block in blocks]), whole[name])


def test_only_what_is_wanted_is_counted_at_enrolment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform wants nothing of clients before round 1, so no histogram of all labels is made for
    it."""
    loop = many(100, {"name": "uniform"})
    monkeypatch.setattr(
        type(loop.federation), "histogram", lambda *_, **__: pytest.fail("a histogram was made")
    )
    loop.step()
