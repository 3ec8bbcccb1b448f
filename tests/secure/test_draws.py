"""Draws by commitments and a hash chain: everybody recomputes them, and whatever was changed is refused."""

from __future__ import annotations

import json

import pytest

from motley.core.errors import ConfigError, RoundAbandonedError, SecureAggregationError
from motley.secure.draws import DRAWS, DrawClient, DrawServer, draw, verify_draws
from motley.secure.terms import SecureOptions
from tests.secure.rounds import entropy_of, people

N, M = 9, 4


def agreed(withhold=(), silent=(), rounds=20, cap=None, n=N, seed=0):
    """A server and its clients after the four steps; ``withhold``: clients that reveal no nonce, ``silent``: that never answer."""
    made, register = people(n, SecureOptions(1.0))
    clients = {k: DrawClient(k, c.identity, register, cap, entropy_of(100 + seed + k)) for k, c in made.items()}
    server = DrawServer(register, M, rounds, entropy_of(seed))

    def told(messages, without=()):
        return {k: clients[k].answer(m) for k, m in messages.items() if k not in silent and k not in without}

    messages = server.opened(told(server.committed(told(server.freeze())), withhold))
    ready = told(server.signed(told(messages)))
    assert set(ready.values()) == {b"ready"}
    return server, clients, register


def test_everybody_recomputes_every_draw():
    server, clients, register = agreed()
    for t in range(1, 21):
        cohort, link = server.draw(t)
        assert len(set(cohort)) == M
        for k in cohort:
            clients[k].check(t, cohort, link)
    assert verify_draws(server.transcript(), register) == 20


def test_draws_are_uniform():
    # 20 chains of 20 rounds: each of 9 clients in 4/9 of 400 cohorts, standard error sqrt(400 * 4/9 * 5/9) = 9.9
    counts = dict.fromkeys(range(N), 0)
    for seed in range(20):
        server, _, _ = agreed(seed=1000 * seed)
        for t in range(1, 21):
            for k in server.draw(t)[0]:
                counts[k] += 1
    assert all(abs(count - 400 * M / N) < 4.5 * 9.9 for count in counts.values())


def test_a_client_that_withholds_its_nonce_is_struck_off():
    server, clients, register = agreed(withhold=[2], silent=[5])
    assert sorted(server.nonces) == [0, 1, 3, 4, 6, 7, 8]
    for t in range(1, 10):
        cohort, link = server.draw(t)
        assert not {2, 5} & set(cohort)
        clients[cohort[0]].check(t, cohort, link)
    assert verify_draws(server.transcript(), register) == 9


def test_too_few_clients_for_a_draw():
    with pytest.raises(RoundAbandonedError, match="6 of 9 clients are left for the draws"):
        agreed(silent=[0, 1, 2])


def test_another_cohort_link_or_round_is_refused():
    server, clients, _ = agreed()
    cohort, link = server.draw(3)
    me = clients[cohort[0]]
    other = tuple(sorted({*cohort[:-1], next(k for k in range(N) if k not in cohort)}))
    with pytest.raises(SecureAggregationError, match="the cohort of round 3 is not the one that was drawn"):
        me.check(3, other, link)
    with pytest.raises(SecureAggregationError, match="the link of round 3 is not of the chain"):
        me.check(3, cohort, bytes(32))
    with pytest.raises(SecureAggregationError, match="the link of round 4 is not of the chain"):
        me.check(4, cohort, link)
    with pytest.raises(SecureAggregationError, match="the link of round 0"):
        me.check(0, cohort, link)
    me.check(3, cohort, link)


def test_a_cap_is_the_clients_own():
    server, clients, _ = agreed(cap=2)
    joined = 0
    for t in range(1, 21):
        cohort, link = server.draw(t)
        if 0 not in cohort:
            continue
        if joined == 2:
            with pytest.raises(SecureAggregationError, match="client 0 has taken part in 2 rounds, its cap"):
                clients[0].check(t, cohort, link)
            return
        clients[0].check(t, cohort, link)
        clients[0].check(t, cohort, link)  # the same round again, after a retry
        joined += 1
    raise AssertionError("client 0 was never drawn three times")


def half_way(step):
    """Clients and the messages that a server sends in a step."""
    made, register = people(N, SecureOptions(1.0))
    clients = {k: DrawClient(k, c.identity, register, None, entropy_of(k)) for k, c in made.items()}
    server = DrawServer(register, M, 5, entropy_of(77))
    messages = server.freeze()
    for then in (server.committed, server.opened, server.signed):
        if messages[0][0] == DRAWS[step]:
            break
        messages = then({k: clients[k].answer(m) for k, m in messages.items()})
    return clients, messages, server


def flipped(message, at):
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


@pytest.mark.parametrize(
    ("step", "at", "message"),
    [
        ("freeze", -1, "not this client's register, rule and version"),
        ("freeze", 1, "not this client's register, rule and version"),
        ("committed", 3 + 96 * 4, "the commitment of client 4 is not signed by it"),
        ("opened", 3 + 32 * 4, "the nonce of client 4 is not the one that it committed to"),
        ("signed", 3 + 64 * 4, "client 4 has not signed the nonces that this client signed"),
    ],
)
def test_a_changed_message_is_refused(step, at, message):
    clients, messages, _ = half_way(step)
    with pytest.raises(SecureAggregationError, match=message):
        clients[0].answer(flipped(messages[0], at % len(messages[0])))
    clients[0].answer(messages[0])
    with pytest.raises(SecureAggregationError, match="out of turn"):
        clients[0].answer(messages[0])


def test_nonces_cannot_be_chosen_by_who_knows_the_others():
    # the server keeps client 8's commitment back, and shows it with another nonce once it knows all others
    clients, messages, _ = half_way("opened")
    with pytest.raises(SecureAggregationError, match="got a cohort before its draws were agreed on"):
        clients[0].check(1, (0, 1, 2, 3), bytes(32))
    forged = messages[0][:-32] + bytes(32)
    with pytest.raises(SecureAggregationError, match="the nonce of client 8"):
        clients[0].answer(forged)


def test_a_state_that_goes_on_in_another_process():
    server, clients, register = agreed()
    new = DrawClient(0, clients[0].identity, register)
    new.restore(clients[0].save())
    t, cohort, link = next((t, *server.draw(t)) for t in range(1, 21) if 0 in server.draw(t)[0])
    new.check(t, cohort, link)
    with pytest.raises(SecureAggregationError, match="cannot be read"):
        new.restore(b"")


def test_a_transcript_that_was_changed():
    server, _, register = agreed()
    for t in (1, 2):
        server.draw(t)
    whole = json.loads(server.transcript())
    changed = json.loads(server.transcript())
    changed["rounds"][1]["cohort"] = sorted({*range(N)} - {*whole["rounds"][1]["cohort"]})[:M]
    with pytest.raises(SecureAggregationError, match="the cohort of round 2 is not the one that was drawn"):
        verify_draws(json.dumps(changed), register)
    changed = json.loads(server.transcript())
    changed["nonces"]["3"] = "00" * 32
    with pytest.raises(SecureAggregationError, match="the nonce of client 3"):
        verify_draws(json.dumps(changed), register)
    changed = json.loads(server.transcript())
    changed["signatures"] = dict(list(changed["signatures"].items())[:6])
    with pytest.raises(SecureAggregationError, match="6 of 9 clients signed these nonces; expected 7"):
        verify_draws(json.dumps(changed), register)
    with pytest.raises(SecureAggregationError, match="cannot be read"):
        verify_draws("{}", register)


def test_rounds_beyond_the_chain():
    server, _, _ = agreed(rounds=2)
    with pytest.raises(ConfigError, match="round 3 has no draw; the chain was made for 2 rounds"):
        server.draw(3)
    with pytest.raises(ConfigError, match="got draws for 0 rounds"):
        DrawServer({0: b"x" * 32}, 1, 0)


def test_a_draw_depends_on_every_part():
    nonces = {k: bytes([k]) * 32 for k in range(40)}
    one = draw(b"l" * 32, nonces, 10, 1)
    assert one == draw(b"l" * 32, nonces, 10, 1)
    assert one != draw(b"m" * 32, nonces, 10, 1)
    assert one != draw(b"l" * 32, nonces, 10, 2)
    assert one != draw(b"l" * 32, {**nonces, 7: bytes(32)}, 10, 1)
