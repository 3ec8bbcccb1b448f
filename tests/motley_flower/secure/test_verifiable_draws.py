"""Draws by commitments and a hash chain: everybody recomputes them, and whatever was changed is
refused."""

from __future__ import annotations

import json

import pytest

from motley.core.errors import ConfigError, RoundAbandonedError, SecureAggregationError
from motley.core.records import Outcome, Reports
from motley.selectors import CATALOGUE, build
from motley_flower.secure import verifiable_draws
from motley_flower.secure.drawable import DrawTable, check_drawable
from motley_flower.secure.primitives import sign
from motley_flower.secure.terms import SecureOptions, bitmap
from motley_flower.secure.verifiable_draws import DRAWS, DrawClient, DrawServer, draw, verify_draws
from tests.motley_flower.secure.rounds import entropy_of, people

N = 9
M = 4
UNIFORM = DrawTable()
SAMPLES = DrawTable("weighted", {k: 10.0 * (k + 1) for k in range(N)})
TIERS = DrawTable("tiers", {k: float(k // 3) for k in range(N)}, 3)


def agreed(withhold=(), silent=(), rounds=20, n=N, seed=0, table=UNIFORM, m=M):
    """A server and its clients after the four steps; ``withhold``: clients that reveal no nonce,
    ``silent``: that never answer."""
    made, register = people(n, SecureOptions(1.0))
    clients = {
        k: DrawClient(k, c.identity, register, entropy_of(100 + seed + k), table.rule)
        for k, c in made.items()
    }
    server = DrawServer(register, m, rounds, table, entropy_of(seed))

    def told(messages, without=()):
        return {
            k: clients[k].answer(m)
            for k, m in messages.items()
            if k not in silent and k not in without
        }

    signed = server.signed(told(server.committed(told(server.freeze()))))
    ready = told(server.opened(told(signed, withhold)))
    assert set(ready.values()) == {b"ready"}
    return server, clients, register


@pytest.mark.parametrize("table", [UNIFORM, SAMPLES, TIERS], ids=lambda table: table.rule)
def test_everybody_recomputes_every_draw(table):
    server, clients, register = agreed(table=table)
    for t in range(1, 21):
        cohort, link = server.draw(t)
        assert len(set(cohort)) == M
        for k in cohort:
            clients[k].check(t, cohort, link)
    assert verify_draws(server.transcript(), register) == 20


def test_draws_are_uniform():
    # 20 chains of 20 rounds: each of 9 clients in 4/9 of 400 cohorts, standard error sqrt(400 * 4/9
    # * 5/9) = 9.9
    counts = dict.fromkeys(range(N), 0)
    for seed in range(20):
        server, _, _ = agreed(seed=1000 * seed)
        for t in range(1, 21):
            for k in server.draw(t)[0]:
                counts[k] += 1
    assert all(abs(count - 400 * M / N) < 4.5 * 9.9 for count in counts.values())


def test_a_client_that_never_commits_is_struck_off():
    server, clients, register = agreed(silent=[2, 5])
    assert sorted(server.nonces) == [0, 1, 3, 4, 6, 7, 8]
    for t in range(1, 10):
        cohort, link = server.draw(t)
        assert not {2, 5} & set(cohort)
        clients[cohort[0]].check(t, cohort, link)
    assert verify_draws(server.transcript(), register) == 9


def test_a_client_that_withholds_its_nonce_ends_the_agreement_and_is_named():
    with pytest.raises(
        RoundAbandonedError,
        match="clients 2 committed to a nonce and did not reveal it, and none may be",
    ):
        agreed(withhold=[2])


def test_no_nonce_is_left_out_once_the_list_is_signed():
    """A server that knows all nonces, and so all draws, cannot choose among them by leaving out
    some."""
    clients, messages, server = half_way("opened")
    seen = server.nonces
    without = {k: nonce for k, nonce in seen.items() if k != 3}
    with pytest.raises(
        SecureAggregationError, match="the nonce of client 3, which committed to one, is left out"
    ):
        clients[0].answer(message_of("opened", without))
    assert clients[0].answer(messages[0]) == b"ready"


def test_two_lists_cannot_both_be_signed():
    """Of n = 9 clients q = 7 must sign a list: two lists with a quorum each share 2 * 7 - 9 = 5
    signers. Four liars, who sign both, are too few: of the five honest clients, who sign one each,
    three and two are told each list, which 7 and 6 sign. Five are enough."""
    for liars, both in ((4, False), (5, True)):
        assert quorums(liars) == [True, both]


def quorums(liars):
    """Whether each of two lists, which differ in the commitment of liar 8, gathers the signatures
    that an honest client wants."""
    clients, _, server = half_way("committed")
    nonce = verifiable_draws._hash(bytes(32))
    forged = nonce + sign(
        clients[8].identity, verifiable_draws._said_commitment(server.frozen, 8, nonce)
    )
    lists = server.commitments, {**server.commitments, 8: forged}
    honest = range(N - liars)
    told = [k for k in honest if k < 7 - liars], [k for k in honest if k >= 7 - liars]
    found = []
    for group, listed in zip(told, lists, strict=True):
        said = verifiable_draws._said_list(server.frozen, listed)
        signatures = {
            k: clients[k].answer(message_of("committed", listed))
            if k in group
            else sign(clients[k].identity, said)
            for k in (*group, *range(N - liars, N))
        }
        try:
            found.append(len(clients[group[0]].answer(message_of("signed", signatures))) == 32)
        except SecureAggregationError as refused:
            assert "signatures of the list of commitments of 9 clients; expected 7" in str(refused)  # noqa: PT017
            found.append(False)
    return found


def message_of(step, told):
    return bytes([DRAWS[step]]) + bitmap(range(N), told) + b"".join(told.values())


def test_a_longer_chain_than_the_options_say_is_refused():
    made, register = people(N, SecureOptions(1.0))
    client = DrawClient(0, made[0].identity, register, rounds=5)
    with pytest.raises(
        SecureAggregationError, match=r"more rounds than SecureOptions\(draws=...\)"
    ):
        client.answer(DrawServer(register, M, 6).freeze()[0])
    client.answer(DrawServer(register, M, 5).freeze()[0])


def test_cohorts_of_another_size_are_refused():
    """In cohorts of all clients, every two draws share them all, and drop-outs that the server
    makes up disclose any client."""
    made, register = people(N, SecureOptions(1.0))
    client = DrawClient(0, made[0].identity, register, cohort=M)
    with pytest.raises(
        SecureAggregationError,
        match="the server draws cohorts of 9 clients, and this client expects 4",
    ):
        client.answer(DrawServer(register, N, 5).freeze()[0])
    client.answer(DrawServer(register, M, 5).freeze()[0])


@pytest.mark.parametrize(
    "options",
    [{"draws": 5}, {"cohort": 5}, {"draws": 5, "cohort": -1}, {"draws": 5, "cohort": 4.0}],
)
def test_draws_and_their_cohort_go_together(options):
    with pytest.raises(
        ConfigError,
        match=r"cohort: got cohort = .* expected the clients of a drawn round where draws are",
    ):
        SecureOptions(1.0, **options)


def test_terms_of_another_cohort_than_the_options_draw():
    options = SecureOptions(1.0, draws=5, cohort=4)
    options.check_cohort(4)
    with pytest.raises(
        ConfigError,
        match=r"got a cohort of 5, and the options draw cohorts of 4; write .*cohort=5\) at both "
        r"ends",
    ):
        options.check_cohort(5)


def test_too_few_clients_for_a_draw():
    with pytest.raises(RoundAbandonedError, match="6 of 9 clients are left for the draws"):
        agreed(silent=[0, 1, 2])


def test_another_cohort_link_or_round_is_refused():
    server, clients, _ = agreed()
    cohort, link = server.draw(3)
    me = clients[cohort[0]]
    other = tuple(sorted({*cohort[:-1], next(k for k in range(N) if k not in cohort)}))
    with pytest.raises(
        SecureAggregationError, match="the cohort of round 3 is not the one that was drawn"
    ):
        me.check(3, other, link)
    with pytest.raises(SecureAggregationError, match="the link of round 3 is not of the chain"):
        me.check(3, cohort, bytes(32))
    with pytest.raises(SecureAggregationError, match="the link of round 4 is not of the chain"):
        me.check(4, cohort, link)
    with pytest.raises(SecureAggregationError, match="the link of round 0"):
        me.check(0, cohort, link)
    me.check(3, cohort, link)


def test_a_drawn_round_is_asked_once_and_never_after_a_later_one():
    server, clients, _ = agreed()
    rounds = [(t, *server.draw(t)) for t in range(1, 21)]
    (early, *first), (late, *second) = [row for row in rounds if 0 in row[1]][:2]
    clients[0].check(late, *second)
    with pytest.raises(
        SecureAggregationError,
        match=f"got round {late} after round {late}; a drawn round is asked once",
    ):
        clients[0].check(late, *second)
    with pytest.raises(SecureAggregationError, match=f"got round {early} after round {late}"):
        clients[0].check(early, *first)


def half_way(step, table=UNIFORM, rule="uniform"):
    """Clients and the messages that a server sends in a step."""
    made, register = people(N, SecureOptions(1.0))
    clients = {k: DrawClient(k, c.identity, register, entropy_of(k), rule) for k, c in made.items()}
    server = DrawServer(register, M, 5, table, entropy_of(77))
    messages = server.freeze()
    for then in (server.committed, server.signed, server.opened):
        if messages[0][0] == DRAWS[step]:
            break
        messages = then({k: clients[k].answer(m) for k, m in messages.items()})
    return clients, messages, server


def flipped(message, at):
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


@pytest.mark.parametrize(
    ("step", "at", "message"),
    [
        ("freeze", 60, "not this client's register and version"),
        ("freeze", 1, "not this client's register and version"),
        ("freeze", -1, "got no table of a rule and its numbers"),
        ("committed", 3 + 96 * 4, "the commitment of client 4 is not signed by it"),
        ("signed", 3 + 64 * 4, "client 4 has not signed this list of commitments"),
        ("opened", 3 + 32 * 4, "the nonce of client 4 is not the one that it committed to"),
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
    # the server keeps client 8's commitment back, and shows it with another nonce once it knows all
    # others
    clients, messages, _ = half_way("opened")
    with pytest.raises(
        SecureAggregationError, match="got a cohort before its draws were agreed on"
    ):
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
    with pytest.raises(
        SecureAggregationError, match="the cohort of round 2 is not the one that was drawn"
    ):
        verify_draws(json.dumps(changed), register)
    changed = json.loads(server.transcript())
    changed["nonces"]["3"] = "00" * 32
    with pytest.raises(SecureAggregationError, match="the nonce of client 3"):
        verify_draws(json.dumps(changed), register)
    del changed["nonces"]["3"]
    with pytest.raises(
        SecureAggregationError, match="the nonce of client 3, which committed to one, is left out"
    ):
        verify_draws(json.dumps(changed), register)
    del changed["commitments"]["3"]
    with pytest.raises(
        SecureAggregationError, match="client 0 has not signed this list of commitments"
    ):
        verify_draws(json.dumps(changed), register)
    changed = json.loads(server.transcript())
    changed["signatures"] = dict(list(changed["signatures"].items())[:6])
    with pytest.raises(
        SecureAggregationError,
        match="got 6 signatures of the list of commitments of 9 clients; expected 7",
    ):
        verify_draws(json.dumps(changed), register)
    changed = json.loads(server.transcript())
    changed["rounds"].append(changed["rounds"][-1])
    with pytest.raises(
        SecureAggregationError, match="round 2 comes after round 2; a drawn round is asked once"
    ):
        verify_draws(json.dumps(changed), register)
    for text in ("[" * 10**5, server.transcript().replace('"cohort"', '"length": 1, "cohort"', 1)):
        with pytest.raises(SecureAggregationError, match="cannot be read"):
            verify_draws(text, register)
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
    one = draw(b"l" * 32, nonces, 10, 1, UNIFORM)
    assert one == draw(b"l" * 32, nonces, 10, 1, UNIFORM)
    assert one != draw(b"m" * 32, nonces, 10, 1, UNIFORM)
    assert one != draw(b"l" * 32, nonces, 10, 2, UNIFORM)
    assert one != draw(b"l" * 32, {**nonces, 7: bytes(32)}, 10, 1, UNIFORM)
    assert one != draw(
        b"l" * 32,
        nonces,
        10,
        1,
        DrawTable("weighted", {k: 100.0 if k < 10 else 1.0 for k in range(40)}),
    )


# ------------------------------------------------------------------------- by samples, and by tiers


def cohorts(table, m, rounds, n=N):
    nonces = {k: bytes([k]) * 32 for k in range(n)}
    return [draw(b"l" * 32, nonces, m, t, table) for t in range(1, rounds + 1)]


def test_a_draw_by_samples_follows_their_shares():
    """m = 1 of sizes 1, 3 and 0: client 1 in three quarters of 400 draws, standard error sqrt(400 *
    3/16) = 8.7; client 2 never. m = 2 takes both that have samples."""
    table = DrawTable("weighted", {0: 1.0, 1: 3.0, 2: 0.0})
    drawn = [cohort for (cohort,) in cohorts(table, 1, 400, 3)]
    assert abs(drawn.count(1) - 300) < 4.5 * 8.7
    assert drawn.count(2) == 0
    assert set(cohorts(table, 2, 20, 3)) == {(0, 1)}


def test_a_draw_by_tiers_is_one_tier():
    """Tiers {0, 1, 2}, {3, 4, 5}, {6, 7, 8}: cohorts of three are tiers, each in a third of 300,
    standard error 8.2; cohorts of four are a tier and one of the next slower, or of the next faster
    after the slowest."""
    drawn = cohorts(TIERS, 3, 300)
    assert {tier: abs(drawn.count(tier) - 100) < 4.5 * 8.2 for tier in set(drawn)} == {
        (0, 1, 2): True,
        (3, 4, 5): True,
        (6, 7, 8): True,
    }
    beside = {
        (tuple(k for k in cohort if k // 3 == tier), tier)
        for cohort in cohorts(TIERS, 4, 100)
        for tier in range(3)
        if sum(k // 3 == tier for k in cohort) == 3
    }
    assert beside == {((0, 1, 2), 0), ((3, 4, 5), 1), ((6, 7, 8), 2)}


@pytest.mark.parametrize("table", [SAMPLES, TIERS], ids=lambda table: table.rule)
def test_another_cohort_or_a_replayed_round_is_refused_there_too(table):
    server, clients, register = agreed(table=table)
    (first, link), (second, later) = server.draw(1), server.draw(2)
    me = clients[first[0]]
    other = tuple(sorted({*first[1:], next(k for k in range(N) if k not in first)}))
    with pytest.raises(
        SecureAggregationError, match="the cohort of round 1 is not the one that was drawn"
    ):
        me.check(1, other, link)
    with pytest.raises(SecureAggregationError, match="the link of round 2 is not of the chain"):
        clients[second[0]].check(2, first, link)  # round 1 once more, as round 2
    me.check(1, first, link)
    clients[second[0]].check(2, second, later)
    changed = json.loads(server.transcript())
    numbers = {**table.numbers, first[0]: 2.0}  # a client with fewer samples, or in a slower tier
    changed["table"] = DrawTable(table.rule, numbers, table.tiers).body(range(N)).hex()
    assert verify_draws(server.transcript(), register) == 2
    with pytest.raises(
        SecureAggregationError, match="the commitment of client 0 is not signed by it"
    ):
        verify_draws(json.dumps(changed), register)


def test_a_client_that_is_told_other_numbers_than_the_rest_notices():
    clients, messages, server = half_way("freeze", SAMPLES, "weighted")
    body = DrawTable("weighted", {**SAMPLES.numbers, 8: 1e6}).body(range(N))
    answers = {k: clients[k].answer(messages[k]) for k in range(1, N)}
    answers[0] = clients[0].answer(messages[0][: -len(body)] + body)
    told = server.committed(answers)
    assert sorted(told) == list(range(1, N))
    with pytest.raises(
        SecureAggregationError, match="the commitment of client 1 is not signed by it"
    ):
        clients[0].answer(told[1])


def test_a_client_knows_its_own_number_of_samples():
    _, clients, _ = agreed(table=SAMPLES)
    clients[3].check_samples(40)
    with pytest.raises(
        SecureAggregationError,
        match="client 3 has other samples than the 40 by which the cohorts are drawn",
    ):
        clients[3].check_samples(39)
    _, clients, _ = agreed()
    clients[3].check_samples(39)


def test_a_client_that_expects_another_rule():
    clients, messages, _ = half_way("freeze", SAMPLES, "uniform")
    with pytest.raises(
        SecureAggregationError,
        match='draws by "weighted", and this client expects draw_rule="uniform"',
    ):
        clients[0].answer(messages[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "got no table"),
        (b"\x03" + bytes(4), "got no table"),
        (SAMPLES.body(range(N))[:-1], "got no table"),
        (
            DrawTable("weighted", dict.fromkeys(range(N), 0.5)).body(range(N)),
            "not whole or below 0",
        ),
        (
            DrawTable("weighted", dict.fromkeys(range(N), -1.0)).body(range(N)),
            "not whole or below 0",
        ),
        (
            DrawTable("weighted", dict.fromkeys(range(N), float("nan"))).body(range(N)),
            "not whole or below 0",
        ),
        (
            DrawTable("tiers", dict.fromkeys(range(N), 3.0), 3).body(range(N)),
            "got a client in tier 3 of 3",
        ),
    ],
)
def test_tables_that_are_none(body, said):
    with pytest.raises(SecureAggregationError, match=said):
        DrawTable.read(body, range(N))


def test_a_selector_that_gives_the_table():
    selector = build({"name": "uniform", "variant": "weighted_wor"})
    selector.observe(0, Reports([0, 2], Outcome.ENROLLED, num_examples=[7, 5]))
    assert DrawTable.of("weighted", selector, [0, 1, 2]).numbers == {0: 7.0, 1: 0.0, 2: 5.0}
    tifl = build({"name": "tifl", "tiers": 2, "credits": 9})
    with pytest.raises(ConfigError, match="tifl knows no client's duration"):
        DrawTable.of("tiers", tifl, [0, 1, 2])
    tifl.observe(
        0, Reports(range(4), Outcome.ENROLLED, signals={"compute_estimate_s": [9, 1, 8, 2]})
    )
    assert DrawTable.of("tiers", tifl, range(4)) == DrawTable(
        "tiers", {0: 1.0, 1: 0.0, 2: 1.0, 3: 0.0}, 2
    )


SIGHTLESS = {"name": "tifl", "credits": 20, "interval": 20, "retier": 20}


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("uniform", "uniform"),
        ({"name": "uniform", "variant": "weighted_wor"}, "weighted"),
        (SIGHTLESS, "tiers"),
    ],
)
def test_rules_that_can_be_recomputed(rule, wanted):
    check_drawable(CATALOGUE.build(rule), wanted, 20)


@pytest.mark.parametrize(
    ("rule", "wanted", "said"),
    [
        ("oort", "uniform", "Oort draws from what clients report"),
        (
            {"name": "uniform", "variant": "weighted_wr"},
            "weighted",
            "Uniform draws from .* or with coefficients",
        ),
        (
            {"name": "uniform", "unbiased": True},
            "uniform",
            "Uniform draws from .* or with coefficients",
        ),
        (
            {"name": "uniform", "variant": "weighted_wor"},
            "uniform",
            r'write SecureOptions\(\.\.\., draw_rule="weighted"\)',
        ),
        (
            {**SIGHTLESS, "interval": 19},
            "tiers",
            r'write build\(\{"name": "tifl", "credits": 20, "interval": 20, "retier": 20\}\)',
        ),
        ({**SIGHTLESS, "retier": 19}, "tiers", "groups anew"),
        ({**SIGHTLESS, "credits": None}, "tiers", "runs out of credits within 20 rounds"),
    ],
)
def test_rules_that_cannot(rule, wanted, said):
    with pytest.raises(ConfigError, match=said):
        check_drawable(CATALOGUE.build(rule), wanted, 20)


@pytest.mark.parametrize("table", [UNIFORM, SAMPLES, TIERS], ids=lambda table: table.rule)
def test_a_server_that_is_restored_goes_on_with_its_chain(table):
    server, clients, register = agreed(table=table)
    server.draw(1)
    again = DrawServer.restored(server.save(), register)
    with pytest.raises(
        RoundAbandonedError,
        match="clients may have begun round 2, of which there is one attempt; it is left",
    ):
        again.check(2)
    for t in range(2, 21):
        cohort, link = again.draw(t)
        assert (cohort, link) == server.draw(t)
        if t > 2:
            again.check(t)
        clients[cohort[0]].check(t, cohort, link)
    assert verify_draws(again.transcript(), register) == 20


@pytest.mark.parametrize("table", [UNIFORM, SAMPLES], ids=lambda table: table.rule)
def test_a_server_with_another_register_is_not_restored(table):
    server, _, register = agreed(table=table)
    for other in ({**register, 2: register[3]}, {k: register[k] for k in range(8)}):
        with pytest.raises(
            ConfigError,
            match=f"register: got a register of {len(other)} clients.*of 9: start the server again",
        ):
            DrawServer.restored(server.save(), other)


def test_a_client_agrees_once():
    """Whatever a server has seen since: it cannot draw anew."""
    server, clients, register = agreed()
    other = DrawServer(register, M, 20, UNIFORM, entropy_of(7))
    for messages in (other.freeze(), server.freeze()):
        with pytest.raises(SecureAggregationError, match="got a message of the draws out of turn"):
            clients[0].answer(messages[0])
