"""Rounds by a server that asks and clients whose process ends after every message; key files;
cohorts that disclose a client."""

from __future__ import annotations

import errno
import json
import multiprocessing
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError, RoundAbandonedError, SecureAggregationError, StoreError
from motley_flower.secure.endpoint import SecureEndpoint
from motley_flower.secure.keyfiles import as_register, new_identity, read_identity
from motley_flower.secure.secure_round import CohortHistory, SecureRound
from motley_flower.secure.terms import SecureOptions, Step, sealed
from motley_flower.secure.verifiable_draws import DrawServer
from tests.motley_flower.secure.rounds import people, terms_of

OPTIONS = SecureOptions(1.0, bits=20, max_weight=10)


def sites(n, folder, options=OPTIONS, **more):
    """What makes the endpoint of each client, which remembers only what lies on the disk; and the
    register."""
    clients, register = people(n, options)
    made = partial(SecureEndpoint, register=register, options=options, **more)
    return {
        k: partial(made, folder / str(k), "run", k, c.identity) for k, c in clients.items()
    }, register


def test_a_mean_by_clients_that_end_after_every_message(tmp_path):
    there, register = sites(5, tmp_path)
    numbers = np.random.default_rng(0)
    updates = {k: numbers.uniform(-1, 1, 8) for k in there}
    it = SecureRound(
        terms_of(OPTIONS, there, 8),
        register,
        lambda asked: {k: there[k]().answer(m) for k, m in asked.items()},
    )
    masked = {k: there[k]().masked(m, updates[k], k + 1) for k, m in it.open().items() if k != 3}
    mean, weight = it.close(masked)
    assert weight == 1 + 2 + 3 + 5
    expected = sum((k + 1) * updates[k] for k in (0, 1, 2, 4)) / weight
    np.testing.assert_allclose(mean, expected, atol=2 / (2**20 - 1))
    assert it.server.survivors == (0, 1, 2, 4)


def test_a_round_that_is_abandoned_opens_nothing(tmp_path):
    there, register = sites(4, tmp_path)
    it = SecureRound(
        terms_of(OPTIONS, there, 3),
        register,
        lambda asked: {k: there[k]().answer(m) for k, m in asked.items() if k < 2},
    )
    with pytest.raises(RoundAbandonedError, match="2 of 4 clients are left, and 3 are needed"):
        it.open()


def test_what_an_endpoint_refuses(tmp_path):
    there, _ = sites(3, tmp_path)
    with pytest.raises(SecureAggregationError, match="got a message of step 3"):
        there[0]().answer(b"\x03" + bytes(20))
    with pytest.raises(SecureAggregationError, match="has not begun, or whose state it lost"):
        there[0]().masked(b"", np.zeros(3), 1)


# -------------------------------------------------------------------------------- the client's disk


def at_survivors(folder):
    """Endpoints of five clients that have sent their masked vectors, and two lists of survivors
    that the server might tell."""
    there, register = sites(5, folder)
    terms = terms_of(OPTIONS, there, 8)
    it = SecureRound(
        terms, register, lambda asked: {k: there[k]().answer(m) for k, m in asked.items()}
    )
    for k, message in it.open().items():
        there[k]().masked(message, np.zeros(8), 1)
    return there, [sealed(Step.CONSISTENCY, terms, terms.bits(who)) for who in (range(5), range(4))]


def told(endpoint, message, go, answers):
    """Wait for the other process, answer, and say whether it was answered."""
    go.wait()
    try:
        answers.put(endpoint().answer(message) and "")
    except SecureAggregationError as refused:
        answers.put(str(refused))


def test_two_processes_of_one_client_never_sign_two_lists(tmp_path):
    """40 trials, as an attacker makes them; before there was a lock, both answered in some 5 of
    them."""
    fork = multiprocessing.get_context("fork")
    there, lists = at_survivors(tmp_path)
    path = tmp_path / "0" / "run" / "secure-0.bin"
    before = []
    before.append(path.read_bytes())
    for _ in range(40):
        path.write_bytes(before[0])
        go = fork.Barrier(2)
        answers = fork.Queue()
        both = [
            fork.Process(target=told, args=(there[0], message, go, answers)) for message in lists
        ]
        for process in both:
            process.start()
        found = sorted(answers.get(timeout=30) for _ in both)
        for process in both:
            process.join()
        assert found[0] == ""  # one signs
        assert (
            "another process answers for client 0" in found[1]
            or "expected unmask: each step once" in found[1]
        )


def test_a_second_answer_at_the_same_time_is_refused(tmp_path):
    there, lists = at_survivors(tmp_path)
    with (
        there[0]()._state(),
        pytest.raises(
            SecureAggregationError,
            match=r"another process answers for client 0 in .*run; start one",
        ),
    ):
        there[0]().answer(lists[0])
    there[0]().answer(lists[0])


def test_the_state_is_on_the_disk_before_an_answer_leaves(tmp_path, monkeypatch):
    there, lists = at_survivors(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("motley.core.files.os.fsync", full)
    with pytest.raises(StoreError, match="cannot write"):
        there[0]().answer(lists[0])


def test_what_a_client_keeps_is_its_owners_alone(tmp_path):
    options = SecureOptions(1.0, draws=3, cohort=3)
    there, register = sites(3, tmp_path / "new", options)
    DrawServer(register, 3, 3).agree(
        lambda asked: {k: there[k]().answer(m) for k, m in asked.items()}
    )
    kept = list((tmp_path / "new").rglob("*"))
    assert {path.name for path in kept if "0" in path.name} >= {
        "0",
        "secure-0.bin",
        "secure-0.lock",
        "agreements-0.txt",
    }
    assert all(
        path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
        for path in (tmp_path / "new", *kept)
    )


def test_a_client_reveals_its_nonce_so_often_and_not_more(tmp_path):
    """A server that breaks off and begins anew chooses among draws."""
    options = SecureOptions(1.0, draws=3, cohort=3)
    clients, register = people(3, options)

    def agree(run, client=0):
        at = {
            k: SecureEndpoint(
                tmp_path / str(k), run, k, c.identity, register, options, agreements=2
            )
            for k, c in clients.items()
        }
        server = DrawServer(register, 3, 3)
        ask = lambda asked: {k: at[k].answer(m) for k, m in asked.items()}  # noqa: E731
        # the nonces, and there it breaks off
        return ask(server.signed(ask(server.committed(ask(server.freeze())))))

    agree("a")
    agree("b")
    with pytest.raises(
        SecureAggregationError,
        match=r"client 0 has agreed on the draws of 2 runs .* its limit: .* write agreements=4",
    ):
        agree("c")


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
def test_a_cap_counts_in_all_runs_of_a_client_whatever_the_server_calls_them(tmp_path, drawn):
    """Ten runs, each of another name: a client with a cap of 1 was in eight sums."""
    options = SecureOptions(1.0, bits=20, draws=3 * drawn, cohort=3 * drawn)
    clients, register = people(3, options)
    said = []

    def summed(run, register, cap=2):
        at = {
            k: SecureEndpoint(tmp_path / str(k), run, k, c.identity, register, options, cap=cap)
            for k, c in clients.items()
        }

        def ask(asked):
            answers = {}
            for k, message in asked.items():
                try:
                    answers[k] = at[k].answer(message)
                except SecureAggregationError as refused:
                    said.append(str(refused))
            return answers

        draws = DrawServer(register, 3, 3)
        if drawn:
            draws.agree(ask)
        link = draws.draw(1)[1] if drawn else b""
        it = SecureRound(terms_of(options, at, 2, run=run.encode() * 16), register, ask, link)
        it.close({k: at[k].masked(m, np.zeros(2), 1) for k, m in it.open().items()})

    summed("a", register)
    summed("b", register)
    with pytest.raises(RoundAbandonedError):
        summed("c", register)
    assert "client 0 has taken part in 2 rounds with this register, and its cap is 2" in said
    assert (tmp_path / "0" / "rounds-0.txt").stat().st_mode & 0o777 == 0o600
    summed("d", register, cap=3)
    # with other clients a sum is another
    other = {**register, 9: people(1, options, seed=9)[1][0]}
    if not drawn:
        summed("e", other)


def test_a_round_that_is_abandoned_counts_for_no_cap(tmp_path):
    there, register = sites(3, tmp_path, cap=1)
    for attempt, lost in ((0, {1, 2}), (1, set())):
        it = SecureRound(
            terms_of(OPTIONS, there, 2, attempt=attempt),
            register,
            lambda asked, lost=lost: {
                k: there[k]().answer(m) for k, m in asked.items() if k not in lost
            },
        )
        if lost:
            with pytest.raises(RoundAbandonedError):
                it.open()
    it.close({k: there[k]().masked(m, np.zeros(2), 1) for k, m in it.open().items()})


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
    (tmp_path / "other").chmod(0o600)
    with pytest.raises(ConfigError, match="holds no register; expected"):
        as_register(tmp_path / "other")
    with pytest.raises(ConfigError, match="is not one; expected 64 hex digits"):
        read_identity(tmp_path / "other")


@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604, 0o601])
def test_a_private_key_that_others_may_read_is_refused(tmp_path, mode):
    new_identity(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(
        ConfigError,
        match=rf"key with permissions {mode:04o}; expected one that .*: chmod 600 .*key",
    ):
        read_identity(tmp_path / "key")


A = "a" * 64
B = "b" * 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{{"1": "{A}", "1": "{B}"}}',
            "holds no register: '1' occurs twice; write each name once",
        ),
        (f'{{"1": "{A}", "01": "{B}"}}', "holds no register; expected .* ids from 0 to"),
        (
            f'{{"1": "{A}", "2": "{A}"}}',
            "clients 1 and 2 have one key in .*; make one for each with new_identity",
        ),
        (f'{{"-1": "{A}"}}', "ids from 0 to 2"),
        (f'{{"{2**32}": "{A}"}}', "got client 4294967296 in .*; expected an id from 0 to 2"),
        ('{"1": ' + "[" * 10**5, "holds no register: it is nested too deeply"),
        ('{"1": {"2": "3"}}', "the key of client 1 is not one"),
        ("", "holds no register: "),
        ("\xff", "holds no register: "),
    ],
)
def test_registers_that_are_none(tmp_path, text, message):
    (tmp_path / "register.json").write_text(text, encoding="latin-1" if text == "\xff" else "utf-8")
    with pytest.raises(
        ConfigError,
        match="register: .*" + message if text != "\xff" else "register: .* cannot be read",
    ):
        as_register(tmp_path / "register.json")


@pytest.mark.parametrize(
    ("register", "message"),
    [
        ({-1: bytes(32)}, "got client -1 in the register; expected an id from 0"),
        ({2**32: bytes(32)}, "got client 4294967296"),
        ({True: bytes(32)}, "got client True"),
        ({0: bytes(31)}, "the key of client 0 in the register is not one; expected 32 bytes"),
        ({0: bytes(32), 5: bytes(32)}, "clients 0 and 5 have one key"),
    ],
)
def test_registers_of_python_that_are_none(register, message):
    with pytest.raises(ConfigError, match=message):
        as_register(register)


@pytest.mark.parametrize(
    ("cohorts", "disclosed"),
    [
        ([(0, 1, 2), (0, 1)], [[], [2]]),  # the difference of two sums
        ([(0, 1), (1, 2), (0, 2)], [[], [], [0, 1, 2]]),  # (a + b) + (a + c) - (b + c) = 2a
        ([(0, 1), (2, 3), (0, 1), (2, 3)], [[], [], [], []]),  # fixed batches
        # an even circle: the alternating sum is zero
        ([(0, 1), (1, 2), (2, 3), (3, 0)], [[], [], [], []]),
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
    assert history.disclosed == {
        k for k in range(8) if np.linalg.matrix_rank(np.vstack([matrix, unit[k]])) == rank
    }


def test_a_history_that_goes_on():
    history = CohortHistory([(0, 1, 2)])
    assert history.add([1, 2]) == [0]
