"""A client refuses whatever a server must not send, in a sentence, and reveals nothing."""

from __future__ import annotations

import dataclasses

import pytest

from motley.core.errors import RoundAbandonedError, SecureAggregationError
from motley_flower.secure.primitives import sign
from motley_flower.secure.terms import HEADER, SecureOptions, Step, sealed
from tests.motley_flower.secure.rounds import Round, a_round, people, terms_of


def flipped(message, at):
    """The message with one bit changed."""
    at %= len(message)
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


def at_shares(**options):
    """A round whose clients have sent their keys, and the list of them."""
    it = a_round(6, **options)
    return it, it.server.keys(it.step("keys", it.server.open(), lambda c, m: c.begin(m)))


def at_mask(**options):
    it, messages = at_shares(**options)
    return it, it.server.shares(it.step("shares", messages, lambda c, m: c.share(m)))


def test_a_key_that_its_client_did_not_sign():
    it, messages = at_shares()
    at = HEADER + 1 + 2 * 128 + 5  # of client 2's first key
    with pytest.raises(SecureAggregationError, match="the keys of client 2 are not signed by it"):
        it.clients[0].share(flipped(messages[0], at))


def test_keys_of_a_stranger_that_the_server_signs_itself():
    it, messages = at_shares()
    terms = it.terms
    message = messages[0]
    own = b"k" * 64
    forged = own + sign(b"x" * 32, terms.signed_keys(2, own))
    at = HEADER + 1 + 2 * 128
    with pytest.raises(SecureAggregationError, match="client 2"):
        it.clients[0].share(message[:at] + forged + message[at + 128 :])


def test_its_own_keys_left_out():
    it, messages = at_shares()
    body = it.terms.bits([1, 2, 3, 4, 5]) + messages[0][HEADER + 1 + 128 :]
    with pytest.raises(SecureAggregationError, match="own keys are missing"):
        it.clients[0].share(sealed(Step.SHARES, it.terms, body))


@pytest.mark.parametrize("at", [0, 5, 30, 59])
def test_a_changed_envelope_is_said_and_its_sender_never_a_survivor(at):
    it, messages = at_mask()  # 5 of 6 are needed
    changed = flipped(messages[0], HEADER + 1 + 60 * 2 + at)  # nonce, content or tag of client 3's
    answer = it.clients[0].mask(changed, it.vectors[0])
    assert answer[HEADER : HEADER + 1] == it.terms.bits([3])
    with pytest.raises(SecureAggregationError, match="one that sent no shares that it could open"):
        it.clients[0].confirm(sealed(Step.CONSISTENCY, it.terms, it.terms.bits(range(6))))
    it.clients[0].confirm(sealed(Step.CONSISTENCY, it.terms, it.terms.bits([0, 1, 2, 4, 5])))


def test_envelopes_for_somebody_else():
    it, messages = at_mask()
    with pytest.raises(
        SecureAggregationError,
        match=r"client 0 cannot open the envelopes of clients 1, 2, 3, 4, 5, and without them 1 "
        r"are left, fewer than 5; nothing",
    ):
        it.clients[0].mask(messages[1], it.vectors[0])
    it.clients[0].mask(messages[0], it.vectors[0])  # the sound message is still taken


def test_too_few_clients_at_any_step():
    it, messages = at_shares()
    few = [0, 1, 2, 3]  # 5 of 6 are needed
    body = it.terms.bits(few) + messages[0][HEADER + 1 : HEADER + 1 + 4 * 128]
    with pytest.raises(
        SecureAggregationError,
        match=r"got 4 of 6 clients; expected at least 5: nothing is revealed",
    ):
        it.clients[0].share(sealed(Step.SHARES, it.terms, body))
    it, _ = at_mask()
    with pytest.raises(SecureAggregationError, match="got 4 of 6 clients"):
        it.clients[0].mask(
            sealed(Step.MASKED, it.terms, it.terms.bits(few), bytes(3 * 60)), it.vectors[0]
        )
    it = a_round(6)
    it.to_masked()
    with pytest.raises(SecureAggregationError, match="got 4 of 6 clients"):
        it.clients[0].confirm(sealed(Step.CONSISTENCY, it.terms, it.terms.bits(few)))


def test_a_message_of_another_round_attempt_or_run():
    it, messages = at_shares()
    clients = it.clients
    register = it.clients[0].register
    for change in (
        {"round": 2},
        {"round": 2, "attempt": 3},
        {"round": 3, "run": b"another run, 16."},
    ):
        terms = dataclasses.replace(it.terms, **change)
        later = Round(clients, register, terms, it.vectors)
        fresh = later.server.keys(later.step("keys", later.server.open(), lambda c, m: c.begin(m)))
        with pytest.raises(SecureAggregationError, match="another run, round, attempt or cohort"):
            clients[0].share(messages[0])
        clients[0].share(fresh[0])


def test_a_round_is_begun_once():
    it, _ = at_shares()
    with pytest.raises(
        SecureAggregationError,
        match="round 1, attempt 0, is not later than the last; it is a replay",
    ):
        it.clients[0].begin(it.server.open()[0])
    it.clients[0].begin(
        Round(
            it.clients,
            it.clients[0].register,
            terms_of(it.terms.options, range(6), 7, attempt=1),
            {},
        ).server.open()[0]
    )
    with pytest.raises(SecureAggregationError, match="a replay"):
        it.clients[0].begin(it.server.open()[0])


def test_a_cohort_without_the_client_or_with_a_stranger():
    options = SecureOptions(1.0)
    clients, register = people(6, options)
    without = Round(clients, register, terms_of(options, range(1, 6), 7), {}).server.open()[1]
    with pytest.raises(SecureAggregationError, match="client 0 is not in the cohort of round 1"):
        clients[0].begin(without)
    strange = Round(clients, register, terms_of(options, [0, 1, 9], 7), {}).server.open()[0]
    with pytest.raises(
        SecureAggregationError, match="client 9 of the cohort is not in this client's register"
    ):
        clients[0].begin(strange)


@pytest.mark.parametrize(
    "other",
    [
        {"clip": 2.0},
        {"bits": 8},
        {"threshold": 0.9},
        {"security": "honest_but_curious"},
        {"max_weight": 2},
    ],
)
def test_a_server_with_other_options(other):
    # a lower threshold, above all, is not the server's to choose
    options = SecureOptions(1.0)
    clients, register = people(6, options)
    terms = terms_of(dataclasses.replace(options, **other), range(6), 7)
    with pytest.raises(
        SecureAggregationError, match="the server proposes other options than this client's"
    ):
        clients[0].begin(Round(clients, register, terms, {}).server.open()[0])


def test_a_second_unmasking_is_refused():
    it = a_round(6)
    messages = it.to_unmask()
    it.clients[0].unmask(messages[0])
    with pytest.raises(SecureAggregationError, match=r"in no round: .* its secrets forgotten"):
        it.clients[0].unmask(messages[0])
    assert it.clients[0]._shares == {}


@pytest.mark.parametrize("security", ["active", "honest_but_curious"])
def test_both_shares_of_one_client_are_never_had(security):
    # the server first says that client 5 survived, then that it was lost, to have both of its
    # secrets
    it = a_round(6, security=security)
    messages = it.to_masked()
    other = it.terms.bits([0, 1, 2, 3, 4])
    client = it.clients[0]
    if security == "active":
        client.confirm(messages[0])
        with pytest.raises(SecureAggregationError, match="expected unmask: each step once"):
            client.confirm(sealed(Step.CONSISTENCY, it.terms, other))
        signed = [it.clients[k] for k in range(6)]
        # of clients that were told otherwise
        signatures = [sign(c.identity, it.terms.signed_survivors(other)) for c in signed]
        with pytest.raises(
            SecureAggregationError,
            match="has not signed the list of survivors that this client signed",
        ):
            client.unmask(sealed(Step.UNMASK, it.terms, it.terms.bits(range(6)), *signatures))
    else:
        client.unmask(messages[0])
        with pytest.raises(SecureAggregationError, match=r"in no round"):
            client.unmask(sealed(Step.UNMASK, it.terms, other))


def test_too_few_signatures_of_the_survivors():
    it = a_round(6)
    messages = it.to_masked()
    answers = {k: it.clients[k].confirm(messages[k]) for k in range(6)}
    body = it.terms.bits([0, 1, 2, 3]) + b"".join(answers[k][HEADER:] for k in range(4))
    with pytest.raises(SecureAggregationError, match="got 4 of 6 clients; expected at least 5"):
        it.clients[0].unmask(sealed(Step.UNMASK, it.terms, body))


def test_survivors_without_the_client_or_with_one_that_sent_nothing():
    it = a_round(7, lost={"shares": [6]})
    it.to_masked()
    with pytest.raises(SecureAggregationError, match="lacks this client"):
        it.clients[0].confirm(sealed(Step.CONSISTENCY, it.terms, it.terms.bits([1, 2, 3, 4, 5])))
    with pytest.raises(SecureAggregationError, match="one that sent no shares"):
        it.clients[0].confirm(sealed(Step.CONSISTENCY, it.terms, it.terms.bits(range(7))))


def test_steps_out_of_order():
    it, messages = at_shares()
    with pytest.raises(
        SecureAggregationError, match="got a message of step 2; expected step 3, masked"
    ):
        it.clients[0].mask(messages[0], it.vectors[0])
    with pytest.raises(
        SecureAggregationError,
        match="got a message of step consistency; expected shares: each step once",
    ):
        it.clients[0].confirm(sealed(Step.CONSISTENCY, it.terms, it.terms.bits(range(6))))


@pytest.mark.parametrize(
    "message", [None, b"", b"\x01", b"\x01" + bytes(40), b"\x07" * 100, "text"]
)
def test_bytes_that_are_no_message(message):
    it = a_round(3)
    with pytest.raises(SecureAggregationError, match="got"):
        it.clients[0].begin(message)
    with pytest.raises(SecureAggregationError, match=r"in no round"):
        it.clients[0].share(message)


def test_shares_that_do_not_fit_together_are_noticed_by_the_server():
    it = a_round(6, lost={"masked": [5]})
    messages = it.to_unmask()
    answers = {k: it.clients[k].unmask(m) for k, m in messages.items()}
    answers[0] = flipped(answers[0], -1)  # of the lost client's mask key
    with pytest.raises(
        RoundAbandonedError, match="the shares of client 5's mask key do not fit together"
    ):
        it.server.unmask(answers)


def test_a_state_that_is_none():
    it = a_round(3)
    with pytest.raises(SecureAggregationError, match="the state of client 0 cannot be read"):
        it.clients[0].restore(b"nothing")
