"""Rounds of secure aggregation: the sum is exact whoever drops out where, and nothing is opened below the threshold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import ConfigError, RoundAbandonedError
from motley.secure.client import SecureClient
from motley.secure.terms import HEADER, SecureOptions
from tests.secure.rounds import RUN, Round, a_round, entropy_of, people, plain_sum, terms_of

STEPS = ["keys", "shares", "masked", "consistency", "unmask"]


def survivors(lost, n=10):
    """Whose vectors are in the sum: those that have not dropped out up to the masked vector."""
    return [k for k in range(n) if not any(k in lost.get(step, ()) for step in STEPS[:3])]


@pytest.mark.parametrize("dropouts", [0, 1, 3])
@pytest.mark.parametrize(
    ("step", "security"), [*((s, "active") for s in STEPS), *((s, "honest_but_curious") for s in STEPS if s != "consistency")]
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
        RoundAbandonedError, match=r"round 1: 6 of 10 clients are left, and 7 are needed; .* nothing is unmasked"
    ):
        it.run()
    assert ("unmask" in it.sent) == (step == "unmask")  # before the last step, no client was asked for a share
    assert not len(it.server._total)


def test_what_the_server_sees_is_masked_twice():
    # neither equal vectors nor a vector of zeros are seen in what is sent
    it = a_round(5, size=1000)
    it.vectors = {k: np.zeros(1001, np.uint32) for k in it.vectors}
    answers = {}
    it.vectors[0][-1] = 1  # a sum of weights
    it.lost = {}
    original = it.step

    def listening(name, messages, answer):
        answers[name] = original(name, messages, answer)
        return answers[name]

    it.step = listening
    it.run()
    sent = {k: np.frombuffer(m[HEADER:], np.uint32) for k, m in answers["masked"].items()}
    for words in sent.values():
        # 1,001 uniform words: the share of set bits has a standard error of 0.5 / sqrt(32032) = 0.0028
        assert abs(np.unpackbits(words.view(np.uint8)).mean() - 0.5) < 5 * 0.0028
    assert not any((sent[a] == sent[b]).any() and (sent[a] == sent[b]).all() for a, b in itertools.combinations(sent, 2))


def test_a_retry_has_fresh_keys():
    it = a_round(4)
    first = it.step("keys", it.server.open(), lambda c, m: c.begin(m))
    again = Round(it.clients, it.clients[0].register, terms_of(it.terms.options, range(4), 7, attempt=1), it.vectors)
    second = again.step("keys", again.server.open(), lambda c, m: c.begin(m))
    for k in range(4):
        assert first[k][HEADER : HEADER + 32] != second[k][HEADER : HEADER + 32]
        assert first[k][HEADER + 32 : HEADER + 64] != second[k][HEADER + 32 : HEADER + 64]
    third = Round(it.clients, it.clients[0].register, terms_of(it.terms.options, range(4), 7, attempt=2), it.vectors)
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
    """Bytes of the longest message of each step by hand: 17 before each, and a bitmap of m bits where clients are listed."""
    head, listed = 17, 17 + -(-m // 8)
    up = {"keys": 128, "shares": 60 * (m - 1), "masked": 4 * (size + 1), "consistency": 64, "unmask": 16 * m}
    down = {"shares": 128 * m, "masked": 60 * (m - 1), "consistency": 0, "unmask": 64 * m}
    return {k: head + v for k, v in up.items()}, {k: listed + v for k, v in down.items()}


def test_bytes_of_every_step():
    it = a_round(12, size=1000)
    it.run()
    up, down = table(12, 1000)
    assert it.up == up
    assert {k: v for k, v in it.down.items() if k != "keys"} == down
    # m = 100 and D = 10^6: 128 B and 12.8 kB, about 8 kB each way, 4.0 MB, 64 B and 6.4 kB, about 2 kB
    up, down = table(100, 10**6)
    assert up == {"keys": 145, "shares": 5_957, "masked": 4_000_021, "consistency": 81, "unmask": 1_617}
    assert down == {"shares": 12_830, "masked": 5_970, "consistency": 30, "unmask": 6_430}


def test_thresholds():
    active, curious = SecureOptions(1.0), SecureOptions(1.0, security="honest_but_curious")
    for m in range(3, 201):
        assert active.needed(m) == 2 * m // 3 + 1
        assert m / 2 < curious.needed(m) <= m / 2 + 1
    assert SecureOptions(1.0, threshold=0.9).needed(10) == 10
    assert SecureOptions(1.0, threshold=0.99).needed(3) == 3
    with pytest.raises(ConfigError, match=r"threshold: got 0.6; expected a share of at least 0.6667"):
        SecureOptions(1.0, threshold=0.6)
    with pytest.raises(ConfigError, match=r"threshold: got 0.4; expected a share of at least 0.5"):
        SecureOptions(1.0, security="honest_but_curious", threshold=0.4)
    with pytest.raises(ConfigError, match="expected 'active' or"):
        SecureOptions(1.0, security="none")


@pytest.mark.parametrize("n", [2, 201])
def test_cohorts_that_are_too_small_or_too_large(n):
    with pytest.raises(
        ConfigError, match=rf"got a cohort of {n}; expected 3 to 200 clients: .* a sparse graph .* is not built"
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
    assert it.server.problems == {3: "its keys are not signed by it", 5: "got no message of secure aggregation"}


def test_another_run_gives_other_masks():
    options = SecureOptions(1.0)
    clients, register = people(3, options)
    one = Round(clients, register, terms_of(options, range(3), 5, run=RUN), {})
    assert one.terms.digest != terms_of(options, range(3), 5, run=RUN[::-1]).digest
