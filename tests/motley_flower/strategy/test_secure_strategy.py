"""A strategy that averages, under secure aggregation: the plain mean up to rounding, whoever drops
out; what is refused."""

from __future__ import annotations

import dataclasses
import json
import logging

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import CATALOGUE, Selector, build
from motley_flower.messages import flower
from motley_flower.secure.keyfiles import as_register, new_identity
from motley_flower.secure.terms import SecureOptions
from motley_flower.secure.verifiable_draws import verify_draws
from motley_flower.secure_messages import RECORD, SECURE, secure_record
from motley_flower.strategy.secure_client import MaskedUpdates
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import fedavg, model, outcomes, sgd, target, weights
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

OPTIONS = SecureOptions(clip=10.0, bits=20)
LEVEL = 20.0 / (2**20 - 1)


@pytest.fixture
def keys(tmp_path):
    register = {k: new_identity(tmp_path / f"key-{k}") for k in range(10)}
    (tmp_path / "register.json").write_text(json.dumps(register))
    return tmp_path


def secured(keys, app=sgd, options=OPTIONS, folder=None):
    """The app behind the mod, as a ClientApp calls it."""
    masked = MaskedUpdates(
        options, keys / "key-{client}", keys / "register.json", folder or keys / "kept"
    )

    def answer(message, context):
        return (
            masked.answer(message, context)
            if message.metadata.message_type == SECURE
            else masked.mod(message, context, app)
        )

    return answer


def federation(keys, n=6, apps=None, options=OPTIONS, folder=None):
    apps = apps or {}
    made = {
        k: FakeNode(secured(keys, apps.get(k, sgd), options, folder), {"partition-id": k})
        for k in range(n)
    }
    return FakeGrid({1000 + 7 * k: node for k, node in made.items()})


def run(on, keys, m=6, rounds=1, strategy=None, options=OPTIONS, selector="uniform", **more):
    wrapped = with_selector(
        strategy or fedavg(),
        build(selector, seed=0),
        m,
        clock=on.clock,
        wait_s=10,
        query_limit_s=30.0,
        secure_aggregation=options,
        register=keys / "register.json",
        **more,
    )
    result = wrapped.start(on, model(), num_rounds=rounds, timeout=60)
    return wrapped.motley, result


def mean(who, weigh=lambda k: 1):
    """The model after one round from 0: half way to each target."""
    return sum(weigh(k) * target(k) for k in who) / sum(map(weigh, who)) / 2


def test_the_mean_of_all(keys):
    coordinator, result = run(federation(keys), keys)
    np.testing.assert_allclose(weights(result), mean(range(6)), atol=LEVEL)
    assert set(outcomes(coordinator, 1).values()) == {"accepted"}
    assert coordinator.traffic["secure_bits_up"] > 0


def test_weights_by_samples(keys):
    options = SecureOptions(clip=10.0, bits=20, max_weight=50)
    _, result = run(federation(keys, options=options), keys, options=options)
    np.testing.assert_allclose(weights(result), mean(range(6), lambda k: 10 + k), atol=LEVEL)


def test_several_rounds_are_the_plain_rounds_but_for_rounding(keys):
    _, result = run(federation(keys), keys, rounds=4, m=4)
    plain = FakeGrid({1000 + 7 * k: FakeNode(one_sample, {"partition-id": k}) for k in range(6)})
    wrapped = with_selector(fedavg(), build("uniform", seed=0), 4, clock=plain.clock)
    np.testing.assert_allclose(
        weights(result),
        weights(wrapped.start(plain, model(), num_rounds=4, timeout=60)),
        atol=4 * LEVEL,
    )


def one_sample(message, context):
    """The app, with one sample each: all clients weigh the same."""
    reply = sgd(message, context)
    for record in reply.content.metric_records.values():
        if "num-examples" in record:
            record["num-examples"] = 1
    return reply


def failing_at(kind, step=None):
    """A node that fails at one kind of message, or at one step of secure aggregation."""

    def node(keys):
        inner = secured(keys)

        def answer(message, context):
            held = message.content.get(RECORD)
            if message.metadata.message_type == kind and step in (
                None,
                held and held["message"][0],
            ):
                raise RuntimeError("lost")
            return inner(message, context)

        return answer

    return node


@pytest.mark.parametrize(
    ("kind", "step"), [(SECURE, 1), (SECURE, 2), ("train", None), (SECURE, 4), (SECURE, 5)]
)
def test_a_client_that_is_lost_at_any_message(keys, kind, step):
    on = federation(keys)
    on.nodes[1000 + 7 * 2].app = failing_at(kind, step)(keys)
    coordinator, result = run(on, keys)
    before = step in (1, 2) or kind == "train"
    np.testing.assert_allclose(
        weights(result), mean([k for k in range(6) if k != 2 or not before]), atol=LEVEL
    )
    told = outcomes(coordinator, 1)
    assert told.pop(2) == ("dropped" if before else "accepted")
    assert set(told.values()) == {"accepted"}


def test_below_the_threshold_the_model_stays_and_the_next_round_goes_on(keys):
    on = federation(keys)
    for k in (1, 3):  # 4 of 6 are left, 5 are needed
        on.nodes[1000 + 7 * k].app = failing_at("train")(keys)
    back = secured(keys)
    on.events.append((5.5, lambda: [setattr(on.nodes[1000 + 7 * k], "app", back) for k in (1, 3)]))
    coordinator, result = run(on, keys, rounds=2)
    assert outcomes(coordinator, 1) == {
        0: "rejected",
        1: "dropped",
        2: "rejected",
        3: "dropped",
        4: "rejected",
        5: "rejected",
    }
    assert "nothing is unmasked" in next(row.reason for row in coordinator.rows if row.client == 0)
    steps = [m.content[RECORD]["message"][0] for m in on.sent if m.metadata.message_type == SECURE]
    # the last two steps in round 2 alone
    assert (steps.count(1), steps.count(4), steps.count(5)) == (12, 6, 6)
    assert set(outcomes(coordinator, 2).values()) == {"accepted"}
    np.testing.assert_allclose(weights(result), mean(range(6)), atol=LEVEL)


def test_no_reply_holds_a_model_or_a_number_of_samples(keys):
    on = federation(keys)
    replies = []

    def listening(node):
        inner = node.app

        def app(message, context):
            reply = inner(message, context)
            if message.metadata.message_type == "train":
                replies.append(
                    (
                        list(reply.content.array_records),
                        [set(r) for r in reply.content.metric_records.values()],
                    )
                )
            return reply

        node.app = app

    for node in on.nodes.values():
        listening(node)
    run(on, keys)
    assert len(replies) == 6
    assert all(not arrays and metrics <= [{"loss"}] for arrays, metrics in replies)


def test_a_client_does_not_train_in_the_clear(keys):
    app = flower()
    inner = secured(keys)
    message = app.Message(app.RecordDict({"arrays": model()}), 1000, "train")
    context = app.Context(
        run_id=1,
        node_id=1,
        node_config={"partition-id": 0},
        state=app.RecordDict(),
        run_config={},
        series_id=1,
    )
    with pytest.raises(Exception, match=r"Motley: .* this client sends masked ones only"):
        inner(message, context)
    bad = app.Message(
        app.RecordDict({RECORD: secure_record(b"nothing", run="0" * 32)}), 1000, SECURE
    )
    with pytest.raises(Exception, match=r"Motley: got a message of step 110"):
        inner(bad, context)
    for record, kind in (("motley", "query.motley_probe"), (RECORD, "train")):
        for key, names in (("signals", ["loss", "grad_norm"]), ("wanted", "loss,update_norm")):
            asks = app.RecordDict({record: app.ConfigRecord({key: names})})
            with pytest.raises(Exception, match=r"Motley: .*tells of this client's own update"):
                inner(app.Message(asks, 1000, kind), context)


@pytest.mark.parametrize(
    ("strategy", "selector", "more", "message"),
    [
        (
            "FedMedian",
            "uniform",
            {},
            "FedMedian needs single updates, .* expected one of FedAvg, FedAvgM",
        ),
        ("Krum", "uniform", {}, "Krum needs single updates"),
        ("QFedAvg", "uniform", {}, "QFedAvg needs single updates"),
        ("FedAvg", "divfl", {}, r"DivFL needs numbers of every single update \(gradient_sketch\)"),
        ("FedAvg", "uniform", {"m": 2}, "got a cohort of 2; expected 3 to 200"),
        ("FedAvg", "uniform", {"uploads": "any"}, "leave weights"),
        ("FedAvg", "uniform", {"register": None}, 'expected register="register.json"'),
    ],
)
def test_what_is_refused(keys, strategy, selector, more, message):
    module = flower("serverapp.strategy")
    if strategy == "FedAvg":
        made = fedavg()
    else:
        made = type(strategy, (module.FedAvg,), {})()
    options = {"m": 4, "register": keys / "register.json", **more}
    with pytest.raises(ConfigError, match=message):
        with_selector(made, build(selector, seed=0), secure_aggregation=OPTIONS, **options)


def test_cohorts_that_disclose_a_client_are_warned_of(keys, caplog):
    on = federation(keys, n=4)
    caplog.set_level(logging.WARNING, "motley.flower")
    on.events.append((5.5, lambda: setattr(on.nodes[1007], "app", failing_at("train")(keys))))
    run(on, keys, m=4, rounds=2)
    assert "the cohorts so far disclose the update of client 1" in caplog.text


def test_a_client_with_other_options_takes_no_part(keys):
    on = federation(keys)
    on.nodes[1000].app = secured(keys, options=SecureOptions(clip=1.0, bits=20))
    coordinator, result = run(on, keys)
    assert outcomes(coordinator, 1)[0] == "dropped"
    assert "proposes other options" in next(
        row.reason for row in coordinator.rows if row.client == 0
    )
    np.testing.assert_allclose(weights(result), mean(range(1, 6)), atol=LEVEL)


# --------------------------------------------------------------------- draws that clients recompute

DRAWN = SecureOptions(clip=10.0, bits=20, draws=12, cohort=5)


def drawn(keys, n=10, apps=None, options=DRAWN):
    """All clients of the register, which is the roster."""
    return federation(keys, n, apps, options)


def test_every_cohort_is_recomputed_by_its_clients_and_afterwards(keys):
    on = drawn(keys)
    coordinator, _ = run(on, keys, m=5, rounds=8, options=DRAWN)
    told = coordinator.secure.draws.transcript()
    assert verify_draws(told, as_register(keys / "register.json")) == 8
    for t, row in enumerate(json.loads(told)["rounds"], 1):
        assert outcomes(coordinator, t) == dict.fromkeys(row["cohort"], "accepted")


def test_a_server_that_chooses_its_cohort_gets_no_answer(keys):
    on = drawn(keys)
    wrapped = with_selector(
        fedavg(),
        build("uniform", seed=0),
        5,
        clock=on.clock,
        wait_s=10,
        query_limit_s=30.0,
        secure_aggregation=DRAWN,
        register=keys / "register.json",
    )
    honest = wrapped.motley.secure.draw

    def chosen(current):
        cohort = honest(current)
        if wrapped.motley.state.round < 2:
            return cohort
        drawn = set(cohort.ids.tolist())
        absent = min(set(range(len(on.nodes))) - drawn)
        return type(cohort)(np.array(sorted({absent, *sorted(drawn)[1:]})))

    wrapped.motley.secure.draw = chosen
    wrapped.start(on, model(), num_rounds=2, timeout=60)
    assert set(outcomes(wrapped.motley, 1).values()) == {"accepted"}
    assert set(outcomes(wrapped.motley, 2).values()) == {"dropped"}
    reasons = [row.reason for row in wrapped.motley.rows if row.round == 2]
    assert all(
        "the cohort of round 2 is not the one that was drawn" in reason for reason in reasons
    )


def test_a_drawn_client_that_is_not_connected_has_dropped_out(keys):
    options = dataclasses.replace(DRAWN, cohort=9)
    on = drawn(keys, options=options)
    on.events.append((30.0, lambda: on.kill(1000 + 7 * 3)))
    coordinator, _ = run(on, keys, m=9, rounds=12, options=options)
    accepted = {t: set(outcomes(coordinator, t)) for t in range(1, 13)}
    rows = json.loads(coordinator.secure.draws.transcript())["rounds"]
    missing = [
        row["round"] for row in rows if 3 in row["cohort"] and 3 not in accepted[row["round"]]
    ]
    assert missing
    assert all("accepted" in outcomes(coordinator, t).values() for t in missing)


BY_SAMPLES = {"name": "uniform", "variant": "weighted_wor"}
BY_TIERS = {"name": "tifl", "tiers": 2, "credits": 12, "interval": 12, "retier": 12}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("oort", "draws: Oort draws from what clients report.* take the selector uniform"),
        (BY_SAMPLES, "draw_rule: the selector"),
    ],
    ids=["oort", "weighted"],
)
def test_other_rules_cannot_be_recomputed(keys, rule, said):
    selector = Selector(CATALOGUE.build(rule), seed=0)
    with pytest.raises(ConfigError, match=said):
        with_selector(
            fedavg(), selector, 5, secure_aggregation=DRAWN, register=keys / "register.json"
        )


def test_draws_by_samples(keys):
    options = SecureOptions(clip=10.0, bits=20, draws=12, cohort=5, draw_rule="weighted")
    coordinator, _ = run(
        federation(keys, 10, None, options),
        keys,
        m=5,
        rounds=3,
        options=options,
        selector=BY_SAMPLES,
    )
    told = coordinator.secure.draws.transcript()
    assert verify_draws(told, as_register(keys / "register.json")) == 3
    assert coordinator.secure.draws.table.numbers == {k: 10.0 + k for k in range(10)}
    for t, row in enumerate(json.loads(told)["rounds"], 1):
        assert outcomes(coordinator, t) == dict.fromkeys(row["cohort"], "accepted")


def test_a_client_drawn_by_another_number_of_samples_sends_nothing(keys):
    options = SecureOptions(clip=10.0, bits=20, draws=12, cohort=9, draw_rule="weighted")

    def more(message, context):
        reply = sgd(message, context)
        for record in reply.content.metric_records.values():
            record["num-examples"] = 9 if message.metadata.message_type == "train" else 13
        return reply

    on = federation(keys, 10, {3: more}, options)
    coordinator, _ = run(on, keys, m=9, rounds=4, options=options, selector=BY_SAMPLES)
    reasons = [row.reason for row in coordinator.rows if row.client == 3]
    assert reasons
    assert all(
        "client 3 has other samples than the 13 by which the cohorts are drawn" in reason
        for reason in reasons
    )


def test_draws_by_tiers(keys):
    """Clients 0 to 4 are fast, 5 to 9 slow: a cohort of five is a tier; nobody is probed."""
    options = SecureOptions(clip=10.0, bits=20, draws=12, cohort=5, draw_rule="tiers")
    selector = build(BY_TIERS, seed=0)
    seconds = [1, 1, 1, 1, 1, 9, 9, 9, 9, 9]
    selector.observe(
        0, Reports(range(10), Outcome.ENROLLED, signals={"compute_estimate_s": seconds})
    )
    on = federation(keys, 10, None, options)
    wrapped = with_selector(
        fedavg(),
        selector,
        5,
        clock=on.clock,
        wait_s=10,
        query_limit_s=30.0,
        secure_aggregation=options,
        register=keys / "register.json",
    )
    wrapped.start(on, model(), num_rounds=6, timeout=60)
    cohorts = {tuple(sorted(outcomes(wrapped.motley, t))) for t in range(1, 7)}
    assert cohorts <= {(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)}
    assert (
        verify_draws(wrapped.motley.secure.draws.transcript(), as_register(keys / "register.json"))
        == 6
    )


def test_draws_need_the_roster(keys):
    with pytest.raises(
        ConfigError, match="the draws cannot be agreed on: 6 of 10 clients are left for the draws"
    ):
        run(drawn(keys, n=6), keys, m=5, options=DRAWN)


def test_a_client_keeps_nothing_under_a_name_that_is_none(keys):
    masked = MaskedUpdates(DRAWN, keys / "key-{client}", keys / "register.json", keys / "kept")
    for run in ("", "../elsewhere", "0" * 31):
        message = FakeGrid(
            {
                1: FakeNode(
                    lambda message, context: masked.answer(message, context), {"partition-id": 0}
                )
            }
        )
        sent = flower().Message(
            flower().RecordDict({RECORD: secure_record(b"x", run=run)}), 1, SECURE, ttl=60
        )
        (reply,) = message.send_and_receive([sent])
        assert "the server names no run" in reply.error.reason
    assert not (keys / "kept").exists()
