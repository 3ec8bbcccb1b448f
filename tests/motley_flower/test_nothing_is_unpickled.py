"""Python tells of everything that is unpickled: in a deployment there is nothing to tell of,
neither on the server nor at sites."""

from __future__ import annotations

import pickle
import sys

import pytest

import motley
from motley.selectors import Selector, build
from tests.motley_flower.apps import grid, run
from tests.motley_flower.client_runtimes import deploy, experiment, federation
from tests.motley_flower.test_loop_resume import HARD, KilledError, killed_after

FOUND: list[object] = []
LOOKING: list[bool] = []


@pytest.fixture
def unpickled():
    """Classes and functions that a pickle has named while a test ran."""
    if not LOOKING:
        LOOKING.append(False)
        sys.addaudithook(
            lambda event, args: (
                FOUND.append(args) if LOOKING[0] and event == "pickle.find_class" else None
            )
        )
    FOUND.clear()
    LOOKING[0] = True
    yield FOUND
    LOOKING[0] = False


def test_who_unpickles_is_seen(unpickled):
    pickle.loads(pickle.dumps(motley.ConfigError))  # noqa: S301 - our own
    assert [args[-1] for args in unpickled] == ["ConfigError"]


def test_a_strategy_with_a_selector(unpickled, tmp_path):
    for _ in range(2):
        run(
            grid(4),
            build("hetero_select_v1", seed=0),
            m=3,
            rounds=3,
            save=tmp_path / "selector.bin",
        )
        Selector.from_bytes((tmp_path / "selector.bin").read_bytes())
    assert not unpickled


def test_the_loop_killed_and_begun_again(unpickled, tmp_path):
    setup = experiment(**HARD)
    there = federation(setup, tmp_path)
    with pytest.raises(KilledError):
        deploy(there, setup, tmp_path / "out", told=killed_after(2))
    assert deploy(there, setup, tmp_path / "out").finished
    assert list(tmp_path.glob("sites/*/client-*.safetensors"))
    assert not unpickled
