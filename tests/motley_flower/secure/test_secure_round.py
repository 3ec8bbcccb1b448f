"""Rounds of secure aggregation: the sum is exact whoever drops out where, and nothing is opened
below the threshold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import ConfigError, RoundAbandonedError
from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.primitives import sign
from motley_flower.secure.terms import HEADER, SecureOptions
from tests.motley_flower.secure.rounds import (
    RUN,
    Round,
    a_round,
    entropy_of,
    people,
    plain_sum,
    terms_of,
)

STEPS = ["keys", "shares", "masked", "consistency", "unmask"]


def survivors(lost, n=10):
    """Whose vectors are in the sum: those that have not dropped out up to the masked vector."""
    return [k for k in range(n) if not any(k in lost.get(step, ()) for step in STEPS[:3])]


@pytest.mark.parametrize("dropouts", [0, 1, 3])
@pytest.mark.parametrize(
    ("step", "security"),
    [
        *((s, "active") for s in STEPS),
        *((s, "honest_but_curious") for s in STEPS if s != "consistency"),
    ],
)
def test_the_sum_is_the_plain_sum_bit_for_bit(step, dropouts, security):
    lost = {step: range(dropouts)}
    it = a_round(lost=lost, security=security, max_weight=50, seed=dropouts)
    total = it.run()
    np.testing.assert_array_equal(total, plain_sum(it.vectors, survivors(lost)))
    assert it.server.survivors == tuple(survivors(lost))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_dropout_at_any_step(data):
    n = data.draw(st.integers(3, 9))
    wide = data.draw(st.sampled_from([32, 64]))
    security = data.draw(st.sampled_from(["active", "honest_but_curious"]))
    steps = STEPS if security == "active" else [s for s in STEPS if s != "consistency"]
    when = data.draw(st.lists(st.sampled_from([*steps, *["never"] * 5]), min_size=n, max_size=n))
    lost = {step: [k for k in range(n) if when[k] == step] for step in steps}
    it = a_round(n, size=3, lost=lost, security=security, modulus_bits=wide, seed=n)
    if when.count("never") >= it.terms.threshold:
        np.testing.assert_array_equal(it.run(), plain_sum(it.vectors, survivors(lost, n)))
    else:
        with pytest.raises(RoundAbandonedError, match="the round is abandoned"):
            it.run()


@pytest.mark.parametrize("step", STEPS)
def test_below_the_threshold_nothing_is_opened(step):
    it = a_round(lost={step: range(4)})  # 6 of 10 are left, 7 are needed
    with pytest.raises(
        RoundAbandonedError,
        match=r"round 1: 6 of 10 clients are left, and 7 are needed; .* nothing is unmasked",
    ):
        it.run()
    # before the last step, no client was asked for a share
    assert ("unmask" in it.sent) == (step == "unmask")
    assert not len(it.server._total)


def test_what_the_server_sees_is_masked_twice():
    # neither equal vectors nor a vector of zeros are seen in what is sent
    it = a_round(5, size=1000)
    it.vectors = {k: np.append(np.zeros(1000, np.uint32), np.uint32(1)) for k in it.vectors}
    answers = {}
    it.lost = {}
    original = it.step

    def listening(name, messages, answer):
        answers[name] = original(name, messages, answer)
        return answers[name]

    it.step = listening
    it.run()
    sent = {k: np.frombuffer(m[HEADER + 1 :], np.uint32) for k, m in answers["masked"].items()}
    for words in sent.values():
        # 1,001 uniform words: the share of set bits has a standard error of 0.5 / sqrt(32032) =
        # 0.0028
        assert abs(np.unpackbits(words.view(np.uint8)).mean() - 0.5) < 5 * 0.0028
    assert not any(
        (sent[a] == sent[b]).any() and (sent[a] == sent[b]).all()
        for a, b in itertools.combinations(sent, 2)
    )


def test_a_retry_has_fresh_keys():
    it = a_round(4)
    first = it.step("keys", it.server.open(), lambda c, m: c.begin(m))
    again = Round(
        it.clients,
        it.clients[0].register,
        terms_of(it.terms.options, range(4), 7, attempt=1),
        it.vectors,
    )
    second = again.step("keys", again.server.open(), lambda c, m: c.begin(m))
    for k in range(4):
        assert first[k][HEADER : HEADER + 32] != second[k][HEADER : HEADER + 32]
        assert first[k][HEADER + 32 : HEADER + 64] != second[k][HEADER + 32 : HEADER + 64]
    third = Round(
        it.clients,
        it.clients[0].register,
        terms_of(it.terms.options, range(4), 7, attempt=2),
        it.vectors,
    )
    np.testing.assert_array_equal(third.run(), plain_sum(it.vectors, range(4)))


def test_clients_that_stop_between_any_two_messages():
    it = a_round(6, lost={"masked": [2]})
    original = it.step

    def restarted(name, messages, answer):
        answers = original(name, messages, answer)
        for k, old in list(it.clients.items()):
            new = SecureClient(k, old.identity, old.register, old.options, entropy_of(1000 + k))
            new.restore(old.save())
            it.clients[k] = new
        return answers

    it.step = restarted
    np.testing.assert_array_equal(it.run(), plain_sum(it.vectors, [0, 1, 3, 4, 5]))


def test_ids_with_gaps_and_unequal_weights():
    it = a_round(ids=[3, 8, 21, 400, 70_000], n=5, max_weight=9, lost={"masked": [400]})
    mean, weight = it.terms.encoding.decode(it.run())
    alive = [3, 8, 21, 70_000]
    assert weight == sum(int(it.vectors[k][-1]) for k in alive)
    each = [it.terms.encoding.decode(it.vectors[k]) for k in alive]
    np.testing.assert_allclose(mean, sum(x * w for x, w in each) / weight, atol=1e-12)


def table(m, size):
    """Bytes of the longest message of each step by hand: 17 before each, and a bitmap of m bits
    where clients are listed."""
    head = 17
    listed = 17 + -(-m // 8)
    up = {
        "keys": 128,
        "shares": 60 * (m - 1),
        "masked": -(-m // 8) + 4 * (size + 1),
        "consistency": 64,
        "unmask": 16 * m,
    }
    down = {"shares": 128 * m, "masked": 60 * (m - 1), "consistency": 0, "unmask": 64 * m}
    return {k: head + v for k, v in up.items()}, {k: listed + v for k, v in down.items()}


def test_bytes_of_every_step():
    it = a_round(12, size=1000)
    it.run()
    up, down = table(12, 1000)
    assert it.up == up
    assert {k: v for k, v in it.down.items() if k != "keys"} == down
    # m = 100 and D = 10^6: 128 B and 12.8 kB, about 8 kB each way, 4.0 MB, 64 B and 6.4 kB, about 2
    # kB
    up, down = table(100, 10**6)
    assert up == {
        "keys": 145,
        "shares": 5_957,
        "masked": 4_000_034,
        "consistency": 81,
        "unmask": 1_617,
    }
    assert down == {"shares": 12_830, "masked": 5_970, "consistency": 30, "unmask": 6_430}


def test_thresholds():
    active = SecureOptions(1.0)
    curious = SecureOptions(1.0, security="honest_but_curious")
    for m in range(3, 201):
        assert active.needed(m) == 2 * m // 3 + 1
        assert curious.needed(m) == max(m // 2 + 1, 3)
        for options in (active, curious):
            options.check_cohort(m)
            assert options.tolerated(m) >= max(m // 3, 1)
    assert SecureOptions(1.0, threshold=0.9).needed(10) == 10
    assert SecureOptions(1.0, threshold=0.99).needed(3) == 3
    for share in (0.0, 1.0):
        with pytest.raises(
            ConfigError, match=f"threshold: got {share}; expected a share above 0 and below 1"
        ):
            SecureOptions(1.0, threshold=share)
    with pytest.raises(ConfigError, match="expected 'active' or"):
        SecureOptions(1.0, security="none")


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        # t = 7 of 10: an active server that works with c < 2 * 7 - 10 = 4 clients opens one list of
        # survivors
        (
            10,
            {"threshold": 0.6, "colluders": 4},
            "7 of 10 clients must remain, and with them 3 colluding .* 4 asks for 4, and no",
        ),
        (
            10,
            {"threshold": 0.5},
            "threshold: 6 of 10 clients must remain, and with them 1 colluding clients are borne; "
            "colluders = 0.3333 asks for 3, .*: leave threshold out",
        ),
        (
            4,
            {"threshold": 0.5, "security": "honest_but_curious", "colluders": 2},
            "3 of 4 .* with them 1 colluding",
        ),
        (
            3,
            {"threshold": 0.5, "security": "honest_but_curious"},
            "2 of 3 clients must remain, and with them 0 colluding",
        ),
        (
            6,
            {"colluders": 5},
            "colluders: .* colluders = 5 asks for 5, and no cohort of 6 bears more than 4: lower "
            "colluders",
        ),
    ],
)
def test_a_threshold_whose_claim_is_empty_is_refused(n, options, message):
    with pytest.raises(ConfigError, match=message):
        SecureOptions(1.0, **options).check_cohort(n)


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), 200])
def test_a_number_of_colluders_that_is_none(share):
    with pytest.raises(
        ConfigError,
        match=r"colluders: got .*; expected a share above 0 and below 1, or a whole number",
    ):
        SecureOptions(1.0, colluders=share)


# n, t, active: colluders borne, by hand. t - c honest clients are in every sum, two at least for c
# <= t - 2; t signatures of two lists take 2 (t - c) of n - c honest clients, so that c <= 2t - n -
# 1 excludes a second list.
BY_HAND = [
    (3, 2, True, 0),
    (3, 3, True, 1),
    (4, 3, True, 1),
    (4, 4, True, 2),
    (5, 3, True, 0),
    (5, 4, True, 2),
    (5, 5, True, 3),
    (3, 2, False, 0),
    (3, 3, False, 1),
    (4, 3, False, 1),
    (5, 3, False, 1),
    (5, 4, False, 2),
]


@pytest.mark.parametrize(("n", "t", "active", "borne"), BY_HAND)
def test_colluders_by_hand_and_by_trying_all_lists(n, t, active, borne):
    options = SecureOptions(
        1.0, threshold=(t - 0.5) / n, security="active" if active else "honest_but_curious"
    )
    assert (options.needed(n), options.tolerated(n)) == (t, borne)
    for c in range(1, n):
        assert opened_alone(n, t, c, active) == (c > borne)


def opened_alone(n, t, c, active):
    """Whether a server that works together with the last c of n clients can learn the vector of one
    honest client alone.

    Every honest client answers for one list of survivors that holds it, if t clients sign it (an
    honest server tells all the same); colluders sign all. The server has, of every client k, the
    shares of its own mask from those whose list holds k, and of its mask key from the others, and
    both from colluders; t of either open it. It knows x_k if it knows k's own mask and every mask
    with another honest client; likewise the sum of some honest clients, in which their masks with
    each other cancel.
    """
    honest = range(n - c)
    lists = [set(u) for size in range(t, n + 1) for u in itertools.combinations(range(n), size)]
    if active:
        choices = itertools.product(*([u for u in lists if i in u] for i in honest))
    else:
        choices = ([u if i in u else None for i in honest] for u in lists)
    return any(_alone(n, t, c, list(told)) for told in choices)


def _alone(n, t, c, told):
    honest = range(n - c)
    signed = [u is not None and sum(v == u for v in told) + c >= min(t, len(u)) for u in told]
    answers = [u for u, enough in zip(told, signed, strict=True) if enough]
    masks = {k for k in range(n) if c + sum(k in u for u in answers) >= t}
    keys = {k for k in range(n) if c + sum(k not in u for u in answers) >= t}
    # the masked vector of a client that is in no list was never summed, but the server has it
    return any(
        k in masks and all(k in keys or other in keys for other in honest if other != k)
        for k in honest
    )


@pytest.mark.parametrize("n", [2, 201])
def test_cohorts_that_are_too_small_or_too_large(n):
    with pytest.raises(
        ConfigError,
        match=rf"got a cohort of {n}; expected 3 to 200 clients: .* a sparse graph .* is not built",
    ):
        terms_of(SecureOptions(1.0), range(n), 5)


def test_the_overflow_is_refused_with_the_terms():
    with pytest.raises(ConfigError, match="overflows 32"):
        terms_of(SecureOptions(1.0, bits=20, max_weight=2000), range(3), 5)


def test_one_wrong_answer_costs_its_sender_the_round_only():
    it = a_round()
    answers = it.step("keys", it.server.open(), lambda c, m: c.begin(m))
    answers[3] = answers[3][:-1] + bytes([answers[3][-1] ^ 1])
    answers[5] = b"nothing"
    messages = it.server.keys(answers)
    assert sorted(messages) == [0, 1, 2, 4, 6, 7, 8, 9]
    assert it.server.problems == {
        3: "its keys are not signed by it",
        5: "got no message of secure aggregation",
    }


def test_another_run_gives_other_masks():
    options = SecureOptions(1.0)
    clients, register = people(3, options)
    one = Round(clients, register, terms_of(options, range(3), 5, run=RUN), {})
    assert one.terms.digest != terms_of(options, range(3), 5, run=RUN[::-1]).digest


# ----------------------------------------------------------------------- clients that tell untruths


def spoiling(it, bad, victims):
    """Let client ``bad`` send garbage for the envelopes of these peers."""
    original = it.step

    def step(name, messages, answer):
        answers = original(name, messages, answer)
        if name == "shares":
            others = [k for k in it.terms.cohort if k != bad]
            body = answers[bad][HEADER:]
            parts = [
                bytes(60) if k in victims else body[60 * i : 60 * (i + 1)]
                for i, k in enumerate(others)
            ]
            answers[bad] = answers[bad][:HEADER] + b"".join(parts)
        return answers

    it.step = step
    return it


@pytest.mark.parametrize("security", ["active", "honest_but_curious"])
@pytest.mark.parametrize("lost", [{}, {"masked": [7]}])
def test_garbage_envelopes_cost_their_sender_its_part_alone_and_name_it(security, lost):
    it = spoiling(a_round(lost=lost, security=security), 3, range(10))
    kept = [k for k in survivors(lost) if k != 3]
    np.testing.assert_array_equal(it.run(), plain_sum(it.vectors, kept))
    assert it.server.survivors == tuple(kept)
    assert it.server.problems == {
        3: f"its envelopes could not be opened by clients {', '.join(map(str, kept))}"
    }


def test_of_one_accusation_nobody_knows_who_is_right():
    it = spoiling(a_round(), 3, [5])
    kept = [0, 1, 2, 4, 6, 7, 8, 9]
    np.testing.assert_array_equal(it.run(), plain_sum(it.vectors, kept))
    assert it.server.problems == {
        3: "its envelopes could not be opened by clients 5",
        5: "it could not open the envelopes of clients 3",
    }


def test_a_client_that_accuses_all_others_goes_alone():
    it = a_round()
    messages = it.server.shares(
        it.step(
            "shares",
            it.server.keys(it.step("keys", it.server.open(), lambda c, m: c.begin(m))),
            lambda c, m: c.share(m),
        )
    )
    answers = it.step("masked", messages, lambda c, m: c.mask(m, it.vectors[c.client]))
    answers[4] = answers[4][:HEADER] + it.terms.bits(range(10)) + answers[4][HEADER + 2 :]
    it.server.masked(answers)
    assert it.server.survivors == (0, 1, 2, 3, 5, 6, 7, 8, 9)


def test_garbage_for_so_many_that_a_key_is_lost_abandons_the_round_and_names_the_client():
    # six survivors have a share of client 3's mask key, seven are needed
    it = spoiling(a_round(), 3, [5, 6, 7])
    with pytest.raises(
        RoundAbandonedError,
        match=r"6 clients have shares of client 3, and 7 are needed: its envelopes could not .* "
        r"clients 5, 6, 7",
    ):
        it.run()


def test_keys_that_every_other_client_would_refuse_cost_their_sender_alone():
    it = a_round(lost={"masked": [0]})
    answers = it.step("keys", it.server.open(), lambda c, m: c.begin(m))
    # of low order; one key twice
    for k, halves in ((3, bytes(64)), (4, answers[4][HEADER : HEADER + 32] * 2)):
        signature = sign(it.clients[k].identity, it.terms.signed_keys(k, halves))
        answers[k] = answers[k][:HEADER] + halves + signature
    assert sorted(it.server.keys(answers)) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert it.server.problems == dict.fromkeys((3, 4), "its keys are another's, or none")


@pytest.mark.parametrize(
    ("at", "word", "said"),
    [(3, 65535 * 11, "within the clip"), (7, 2, "within max_weight"), (7, 0, "weight")],
)
def test_a_sum_outside_of_what_clients_can_send_is_thrown_away(at, word, said):
    """Ten clients of weight 1 add at most 10 * 65535 a coordinate, and exactly 10 weights."""
    it = a_round()
    it.vectors[2] = it.vectors[2].copy()
    it.vectors[2][at] = word
    with pytest.raises(RoundAbandonedError, match=f"{said}.* the sum is thrown away"):
        it.terms.encoding.decode(it.run())
