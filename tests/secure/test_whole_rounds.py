"""Rounds by a server that asks and clients whose process ends after every message; key files; cohorts that disclose a client."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError, RoundAbandonedError, SecureAggregationError
from motley.secure.endpoint import SecureEndpoint
from motley.secure.keyfiles import as_register, new_identity, read_identity
from motley.secure.round import CohortHistory, SecureRound
from motley.secure.terms import SecureOptions
from tests.secure.rounds import people, terms_of

OPTIONS = SecureOptions(1.0, bits=20, max_weight=10)


class Site:
    """A client that remembers only what it saved."""

    def __init__(self, client, identity, register):
        self.saved = None
        self.make = partial(SecureEndpoint, client, identity, register, OPTIONS, lambda: self.saved, self.save)

    def save(self, state):
        self.saved = state


def sites(n):
    clients, register = people(n, OPTIONS)
    return {k: Site(k, c.identity, register) for k, c in clients.items()}, register


def test_a_mean_by_clients_that_end_after_every_message():
    there, register = sites(5)
    numbers = np.random.default_rng(0)
    updates = {k: numbers.uniform(-1, 1, 8) for k in there}
    it = SecureRound(
        terms_of(OPTIONS, there, 8), register, lambda asked: {k: there[k].make().answer(m) for k, m in asked.items()}
    )
    masked = {k: there[k].make().masked(m, updates[k], k + 1) for k, m in it.open().items() if k != 3}
    mean, weight = it.close(masked)
    assert weight == 1 + 2 + 3 + 5
    expected = sum((k + 1) * updates[k] for k in (0, 1, 2, 4)) / weight
    np.testing.assert_allclose(mean, expected, atol=2 / (2**20 - 1))
    assert it.server.survivors == (0, 1, 2, 4)


def test_a_round_that_is_abandoned_opens_nothing():
    there, register = sites(4)
    it = SecureRound(
        terms_of(OPTIONS, there, 3), register, lambda asked: {k: there[k].make().answer(m) for k, m in asked.items() if k < 2}
    )
    with pytest.raises(RoundAbandonedError, match="2 of 4 clients are left, and 3 are needed"):
        it.open()


def test_what_an_endpoint_refuses():
    there, _ = sites(3)
    with pytest.raises(SecureAggregationError, match="got a message of step 3"):
        there[0].make().answer(b"\x03" + bytes(20))
    with pytest.raises(SecureAggregationError, match="has not begun, or whose state it lost"):
        there[0].make().masked(b"", np.zeros(3), 1)


def test_key_files(tmp_path):
    register = {k: new_identity(tmp_path / f"key-{k}") for k in range(3)}
    (tmp_path / "register.json").write_text(json.dumps(register))
    found = as_register(tmp_path / "register.json")
    assert found == {k: bytes.fromhex(key) for k, key in register.items()}
    assert len(read_identity(tmp_path / "key-0")) == 32
    assert (tmp_path / "key-0").stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="exists; expected a new file"):
        new_identity(tmp_path / "key-0")
    with pytest.raises(ConfigError, match=r"identity: .*none cannot be read .*new_identity"):
        read_identity(tmp_path / "none")
    (tmp_path / "other").write_text("[1]")
    with pytest.raises(ConfigError, match="holds no register; expected"):
        as_register(tmp_path / "other")
    with pytest.raises(ConfigError, match="is not one; expected 64 hex digits"):
        read_identity(tmp_path / "other")


@pytest.mark.parametrize(
    ("cohorts", "disclosed"),
    [
        ([(0, 1, 2), (0, 1)], [[], [2]]),  # the difference of two sums
        ([(0, 1), (1, 2), (0, 2)], [[], [], [0, 1, 2]]),  # (a + b) + (a + c) - (b + c) = 2a
        ([(0, 1), (2, 3), (0, 1), (2, 3)], [[], [], [], []]),  # fixed batches
        ([(0, 1), (1, 2), (2, 3), (3, 0)], [[], [], [], []]),  # an even circle: the alternating sum is zero
        ([(0, 1, 2), (3, 4), (0, 1, 2, 3, 4, 5)], [[], [], [5]]),
    ],
)
def test_cohorts_that_disclose_a_client(cohorts, disclosed):
    history = CohortHistory()
    assert [history.add(cohort) for cohort in cohorts] == disclosed


@given(st.lists(st.sets(st.integers(0, 7), min_size=2, max_size=6), min_size=1, max_size=9))
def test_whom_cohorts_disclose_by_exact_ranks(cohorts):
    history = CohortHistory()
    for cohort in cohorts:
        history.add(cohort)
    matrix = np.array([[k in c for k in range(8)] for c in cohorts], float)
    rank = np.linalg.matrix_rank(matrix)
    unit = np.eye(8)
    assert history.disclosed == {k for k in range(8) if np.linalg.matrix_rank(np.vstack([matrix, unit[k]])) == rank}


def test_a_history_that_goes_on():
    history = CohortHistory([(0, 1, 2)])
    assert history.add([1, 2]) == [0]
