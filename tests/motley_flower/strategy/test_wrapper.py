"""Any strategy with any selector: which clients are asked, what the strategy gets, what the
selector observes."""

from __future__ import annotations

import errno
import random
import threading

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.selectors import CATALOGUE, Selector, build
from motley_flower.messages import LinkError, content_bits, flower
from motley_flower.strategy.participation import participation
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import (
    fedavg,
    grid,
    loss_at,
    model,
    nodes,
    observed_reports,
    outcomes,
    reply,
    run,
    sgd,
    target,
    weights,
)
from tests.motley_flower.fake_grid import FakeGrid, FakeNode


def test_the_selector_chooses_and_the_strategy_averages():
    on = grid(5)
    coordinator, result = run(on, m=2, rounds=1)
    first, second = sorted(build("uniform", seed=0).select(1, range(5), 2, 0).ids.tolist())
    assert outcomes(coordinator, 1) == {first: "accepted", second: "accepted"}
    asked = [m.metadata.dst_node_id for m in on.sent if m.metadata.message_type == "train"]
    assert asked == [1000 + 7 * first, 1000 + 7 * second]
    # from 0, half way to each target, weighed with 10 + k examples
    by_hand = (
        ((10 + first) * target(first) + (10 + second) * target(second)) / (20 + first + second) / 2
    )
    np.testing.assert_allclose(weights(result), by_hand, rtol=1e-6)


def test_fractions_and_minima_of_the_strategy_do_not_choose():
    coordinator, _ = run(
        grid(6), m=3, strategy=fedavg(fraction_train=0.2, min_train_nodes=6, min_available_nodes=6)
    )
    assert [len(outcomes(coordinator, t)) for t in (1, 2, 3)] == [3, 3, 3]
    coordinator, _ = run(grid(6), m=1, strategy=fedavg())
    assert [len(outcomes(coordinator, t)) for t in (1, 2, 3)] == [1, 1, 1]


def test_the_given_strategy_is_left_as_it_is():
    strategy = fedavg(fraction_train=0.5, min_train_nodes=3)
    run(grid(4), strategy=strategy)
    assert (strategy.fraction_train, strategy.min_train_nodes) == (0.5, 3)
    assert type(strategy) is flower("serverapp.strategy").FedAvg
    assert not hasattr(strategy, "motley")
    wrapped = with_selector(strategy, build("uniform"), 2)
    assert isinstance(wrapped, flower("serverapp.strategy").FedAvg)


def test_results_depend_neither_on_node_ids_nor_on_the_order_of_replies():
    def digest(offset, delays):
        nodes = {
            offset - 3 * k: FakeNode(sgd, {"partition-id": k}, delay_s=delays[k]) for k in range(5)
        }
        on = FakeGrid(nodes)
        random.seed(offset)
        return weights(run(on, m=3, rounds=5, selector="hetero_select_v1")[1]).tobytes()

    assert digest(1000, [1, 2, 3, 4, 5]) == digest(77, [5, 1, 4, 2, 3])


def test_a_lost_client_is_dropped_and_offered_again_when_it_returns():
    on = grid(3)
    selector = build("uniform", seed=0)
    observed = observed_reports(selector)
    on.events.append((2.6, lambda: on.kill(1007)))  # in round 2
    wrapped = with_selector(fedavg(), selector, 3, clock=on.clock, wait_s=10)
    rounds = {}

    def later(round, arrays):
        rounds[round] = on.now_s
        if round == 4:
            on.revive(1007, new_id=5)

    wrapped.start(on, model(), num_rounds=6, timeout=200, evaluate_fn=later)
    table = {t: outcomes(wrapped.motley, t) for t in range(1, 7)}
    lost = [t for t in table if table[t].get(1) == "dropped"]
    assert lost
    assert all(table[t][k] == "accepted" for t in table for k in (0, 2))
    away = [t for t in table if 1 not in table[t]]
    assert away
    assert table[6][1] == "accepted"
    dropped = [r for _, reports in observed for r in reports if r.outcome == Outcome.DROPPED]
    assert {r.id for r in dropped} == {1}
    assert all(np.isnan(r.compute_s) for r in dropped)
    assert on.now_s < 200
    assert [t for t, _ in observed if t] == [1, 2, 3, 4, 5, 6]
    assert "its node is gone" in next(
        row.reason for row in wrapped.motley.rows if row.outcome == "dropped"
    )


def test_a_round_without_connected_clients_passes():
    on = FakeGrid()
    on.events.append((25.0, lambda: on.nodes.update(nodes(0, 1))))
    coordinator, result = run(on, rounds=4, wait_s=10)
    assert [len(outcomes(coordinator, t)) for t in (1, 2, 3, 4)] == [0, 0, 2, 2]
    assert weights(result).any()


def test_a_silent_client_is_dropped_after_the_time_out():
    def silent(message, context):
        return sgd(message, context) if message.metadata.message_type != "train" else None

    on = FakeGrid(nodes(0, 1) | nodes(2, app=silent))
    coordinator, _ = run(on, m=3, rounds=2, timeout=30, longest_pause=0)
    assert outcomes(coordinator, 1) == {0: "accepted", 1: "accepted", 2: "dropped"}
    assert 60 < on.now_s < 75


@pytest.mark.parametrize(
    ("longest", "asked"),
    [(16, [1, 3, 6, 11, 20]), (2, [1, 3, 6, 9, 12, 15, 18, 21]), (0, list(range(1, 23)))],
)
def test_a_client_that_is_too_slow_is_left_out_of_more_and_more_rounds(longest, asked, caplog):
    """Pauses of 1, 2, 4, 8 rounds, at most ``longest``: asked again in rounds 3 = 1 + 1 + 1, 6 =
    3 + 2 + 1, 11, 20."""
    on = FakeGrid(nodes(0, 1) | nodes(2, delay_s=35.0))
    on.nodes[1014].delay_s = 1.0
    on.events.append((2.5, lambda: setattr(on.nodes[1014], "delay_s", 35.0)))  # enrolled by then
    coordinator, _ = run(on, m=3, rounds=22, timeout=30, longest_pause=longest, wait_s=5)
    slow = [t for t in range(1, 23) if 2 in outcomes(coordinator, t)]
    first = slow.index(next(t for t in slow if outcomes(coordinator, t)[2] == "dropped"))
    shift = slow[first] - 1
    assert [t - shift for t in slow[first:]] == [t for t in asked if t + shift < 23]
    assert all(outcomes(coordinator, t)[0] == "accepted" for t in range(1, 23))
    if longest:
        assert (
            f"round {slow[first]}: client 2 was too slow; rounds that it is left out of now: 1"
            in caplog.text
        )


def test_an_answer_in_time_ends_the_pauses_and_all_are_offered_where_none_would_be_left():
    on = FakeGrid(nodes(0))
    on.events.append((2.5, lambda: setattr(on.nodes[1000], "delay_s", 35.0)))
    on.events.append((100.0, lambda: setattr(on.nodes[1000], "delay_s", 1.0)))
    coordinator, _ = run(on, m=1, rounds=12, timeout=30, wait_s=5)
    told = [outcomes(coordinator, t) for t in range(1, 13)]
    assert all(told)  # the only client is asked in every round
    assert told[-1] == {0: "accepted"}
    assert coordinator.state.pauses == {}


def test_a_candidate_whose_probe_is_too_slow_is_left_out_too():
    def slow_to_measure(message, context):
        return (
            None if message.metadata.message_type == "query.motley_probe" else sgd(message, context)
        )

    on = FakeGrid(nodes(0, 1) | nodes(2, app=slow_to_measure))
    run(on, build({"name": "power_of_choice", "d": 3}), m=1, rounds=6, query_limit_s=20, wait_s=5)
    asked = [
        m.metadata.group_id
        for m in on.sent
        if m.metadata.dst_node_id == 1014 and "probe" in m.metadata.message_type
    ]
    assert asked == ["1", "3", "6"]


def test_a_node_is_not_left_with_orders_that_nobody_waits_for():
    """Messages live a little longer than their exchange, in place of Flower's twelve hours: a slow
    node does not fall behind."""
    on = grid(2)
    run(on, "power_of_choice", m=1, rounds=1, timeout=30, query_limit_s=20)
    lives = {message.metadata.message_type: message.metadata.ttl for message in on.sent}
    assert lives == {"query.motley_enrol": 20, "query.motley_probe": 20, "train": 60}


def test_a_selector_s_file_that_cannot_be_written_does_not_end_the_run(
    tmp_path, monkeypatch, caplog
):
    on = grid(3)
    path = tmp_path / "selector.bin"
    run(on, rounds=1, save=path)
    before = path.read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    coordinator, _ = run(grid(3), "oort", rounds=2, save=path)
    assert {row.outcome for row in coordinator.rows} == {"accepted"}
    assert f"round 1: cannot write {path}: No space left on device; make room" in caplog.text
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["selector.bin"]


def test_a_super_link_that_is_gone_ends_the_run():
    on = grid(2)
    returns = threading.Event()
    on.get_nodes = lambda: returns.wait(60) and []
    with pytest.raises(LinkError, match=r"the SuperLink did not answer within 0\.05 s"):
        run(on, link_s=0.05)
    returns.set()


def test_a_run_without_a_time_out_is_refused():
    with pytest.raises(ConfigError, match="timeout"):
        run(grid(2), timeout=None)


def test_durations_are_measured_and_bits_counted_by_the_server():
    on = grid(2)
    on.nodes[1000].delay_s = 7.0
    selector = build("hetero_select_v1", seed=0)
    observed = observed_reports(selector)
    coordinator, _ = run(on, selector, m=2, rounds=1)
    (reports,) = [
        reports for t, reports in observed if t == 1 and reports[0].outcome == Outcome.ACCEPTED
    ]
    assert [r.id for r in reports] == [0, 1]
    assert reports[0].compute_s == pytest.approx(7.0, abs=0.3)
    assert reports[1].compute_s == pytest.approx(1.0, abs=0.3)
    assert all(r.download_s == r.upload_s == 0 for r in reports)
    sent = len(model()["w"].data)
    traffic = coordinator.traffic
    assert traffic["probe_bits_down"] > 2 * 8 * sent
    assert traffic["train_bits_down"] > 2 * 8 * sent
    assert 0 < traffic["probe_bits_up"] < traffic["train_bits_up"]
    assert reports[0].bits_up == coordinator.rows[0].bits_up > 8 * sent


def test_the_selector_observes_signals_of_clients_and_of_the_server():
    on = grid(3)
    selector = build("hetero_select_v1", seed=0)
    observed = observed_reports(selector)
    run(on, selector, m=2, rounds=1)
    enrolled, probed, accepted = (reports for _, reports in observed)
    assert [(r.id, r.signals["label_histogram"].tolist()[:2]) for r in enrolled] == [
        (0, [1, 3]),
        (1, [2, 3]),
        (2, [3, 3]),
    ]
    assert {r.id: r.signals["loss"] for r in probed} == {k: loss_at(model(), k) for k in range(3)}
    for r in accepted:
        assert r.signals["update_norm"] == pytest.approx(np.linalg.norm(target(r.id)) / 2)
        assert (r.version, r.staleness) == (0.0, 0.0)


APPS = sorted(name for name in CATALOGUE.targets if not CATALOGUE.build(name).asks_contributions)
"""Rules that a strategy can follow: the server has no samples."""


def test_a_rule_that_needs_samples_at_the_server_is_refused_with_what_has_them():
    with pytest.raises(
        ConfigError, match=r"GreedyFed compares models.*deploy Motley's round loop.*server = 0.1"
    ):
        with_selector(fedavg(), build("greedyfed", seed=0), m=3)


@pytest.mark.parametrize("name", APPS)
def test_every_selector_works_with_clients_that_report_its_signals(name):
    on = grid(6)
    selector = build(name, seed=0, horizon=50)
    coordinator, result = run(on, selector, m=3, rounds=6)
    assert {row.outcome for row in coordinator.rows} == {"accepted"}
    assert weights(result).any()
    assert Selector.from_bytes(selector.to_bytes()).to_bytes() == selector.to_bytes()


def test_last_updates_are_compared_at_the_server_with_the_mean_of_now():
    """Losses are asked for, cosines are not: after six rounds every participant has one, of the
    last update it sent."""
    selector = build("hetero_select", seed=0, horizon=50)
    observed = observed_reports(selector)
    coordinator, _ = run(grid(6), selector, m=3, rounds=6)
    sent = {row.client for row in coordinator.rows}
    assert len(coordinator.state.last_updates) == len(sent)
    probed = next(reports for t, reports in observed if t == 6)
    known = {report.id for report in probed if np.isfinite(report.signals["last_update_cosine"])}
    assert known == {row.client for row in coordinator.rows if row.round < 6}
    with pytest.raises(
        ConfigError, match=r"uploads = 'any' hides it; write direction = \"cosine\""
    ):
        with_selector(fedavg(), build("hetero_select", seed=0, horizon=50), m=3, uploads="any")


@pytest.mark.parametrize("name", APPS)
def test_enrolling_again_changes_nothing(name):
    """A selector that was saved and loaded observes the enrolment of its clients a second time."""
    selector = build(name, seed=0, horizon=50)
    observed = observed_reports(selector)
    run(grid(6), selector, m=3, rounds=4)
    before = selector.to_bytes()
    selector.observe(*observed[0])
    assert observed[0][0] == 0
    after = Selector.from_bytes(selector.to_bytes())
    again = Selector.from_bytes(before)
    for t in (5, 6):
        assert (
            again.select(t, range(6), 3, 12).ids.tolist()
            == after.select(t, range(6), 3, 12).ids.tolist()
        )


def test_a_missing_signal_is_named_in_the_error():
    def mute(message, context):
        said = sgd(message, context)
        for record in said.content.metric_records.values():
            record.pop("loss_rms", None)
        return said

    on = FakeGrid(nodes(0, 1, 2, app=mute))
    with pytest.raises(ConfigError, match="loss_rms"):
        run(on, "oort")


def test_a_missing_answer_to_probes_is_named_in_the_error():
    def mute(message, context):
        if message.metadata.message_type == "query.motley_probe":
            raise ValueError("No query function registered with name 'motley_probe'")
        return sgd(message, context)

    on = FakeGrid(nodes(0, 1, 2, app=mute))
    with pytest.raises(ConfigError, match=r'loss.*@app.query\("motley_probe"\)'):
        run(on, "power_of_choice")


def test_a_missing_histogram_is_named_in_the_error():
    def mute(message, context):
        said = sgd(message, context)
        for record in said.content.metric_records.values():
            record.pop("label_histogram", None)
        return said

    with pytest.raises(ConfigError, match="label_histogram"):
        run(FakeGrid(nodes(0, 1, app=mute)), "fedcbs")


def test_a_selector_of_another_federation_is_refused():
    selector = build("hetero_select_v1", seed=0)
    run(grid(3), selector)

    def other(message, context):
        said = sgd(message, context)
        for record in said.content.metric_records.values():
            if "label_histogram" in record:
                record["label_histogram"] = [1, 2, 3]
        return said

    with pytest.raises(ConfigError, match="another federation"):
        run(FakeGrid(nodes(0, 1, 2, app=other)), selector)


def test_the_local_work_that_a_cohort_prescribes_reaches_the_client():
    seen = {}

    def app(message, context):
        if message.metadata.message_type == "train":
            seen[context.node_config["partition-id"]] = dict(message.content["config"])
        return sgd(message, context)

    on = FakeGrid(nodes(*range(4), app=app))
    run(on, "pyramidfl", m=3, rounds=4)
    assert any("local_steps" in config or "upload_ratio" in config for config in seen.values())
    assert all(config["server-round"] for config in seen.values())


def test_a_rehearsal_leaves_the_model_and_measures_the_rehearsed_one():
    on = grid(4)
    selector = build({"name": "fedcor", "warmup": 1, "interval": 1}, seed=0)
    observed = observed_reports(selector)
    asked = {}
    models = {}
    select = selector.select
    selector.select = lambda *args: asked.setdefault(args[0], select(*args))
    wrapped = with_selector(fedavg(), selector, 2, clock=on.clock)
    wrapped.start(
        on,
        model(),
        num_rounds=6,
        timeout=100,
        evaluate_fn=lambda t, arrays: models.update({t: arrays["w"].numpy().tolist()}),
    )
    t = next(t for t, cohort in asked.items() if cohort.rehearsal)
    assert models[t] == models[t - 1] != models[t + 1]
    said = [reports for at, reports in observed if at == t]
    assert [{r.outcome for r in reports} for reports in said] == [
        {Outcome.PROBED},
        {Outcome.PROBED},
        {Outcome.REHEARSED},
    ]
    first, second = ({r.id: r.signals["loss"] for r in reports} for reports in said[:2])
    assert first.keys() == second.keys()
    assert first != second


def test_the_cohorts_weights_replace_the_strategys():
    on = grid(4)
    selector = build("delta", seed=0)
    chosen = {}
    select = selector.select
    selector.select = lambda *args: chosen.setdefault(args[0], select(*args))
    _, result = run(on, selector, m=3, rounds=1, weights="selector")
    cohort = chosen[1]
    share = cohort.weights / cohort.weights.sum()
    by_hand = sum(s * target(k) / 2 for k, s in zip(cohort.ids, share, strict=True))
    np.testing.assert_allclose(weights(result), by_hand, rtol=1e-5)
    with pytest.raises(ConfigError, match="weights"):
        run(grid(2), "uniform", weights="selector")


# -------------------------------------------------------------------------- strategies of one's own


def strategies():
    base = flower("serverapp.strategy").FedAvg

    class Samples(base):
        """Writes to one node, whatever its attributes say."""

        def configure_train(self, server_round, arrays, config, grid):
            words = flower()
            record = words.RecordDict({"arrays": arrays, "config": config})
            return [words.Message(record, min(grid.get_node_ids()), "train")]

    class Addresses(base):
        """Writes a different message to each of two nodes."""

        def configure_train(self, server_round, arrays, config, grid):
            words = flower()
            nodes = sorted(grid.get_node_ids())[:2]
            return [
                words.Message(
                    words.RecordDict({"arrays": arrays, "config": words.ConfigRecord({"n": n})}),
                    n,
                    "train",
                )
                for n in nodes
            ]

    class Waits(base):
        """Waits for more nodes than it is given."""

        def configure_train(self, server_round, arrays, config, grid):
            while len(list(grid.get_node_ids())) < 5:
                self.sleep(1)
            return []

    class Own(base):
        """Has another loop with another argument."""

        def start(self, grid, initial_arrays, *, steps, patience):
            arrays = initial_arrays
            for t in range(1, steps + 1):
                asked = self.configure_train(t, arrays, flower().ConfigRecord(), grid)
                new, _ = self.aggregate_train(t, grid.send_and_receive(asked, timeout=patience))
                arrays = new or arrays
            return arrays

    return Samples, Addresses, Waits, Own


def test_all_chosen_clients_are_asked_by_a_strategy_that_samples():
    Samples, *_ = strategies()
    coordinator, _ = run(grid(5), m=3, strategy=Samples(fraction_evaluate=0.0))
    assert [len(outcomes(coordinator, t)) for t in (1, 2, 3)] == [3, 3, 3]
    assert {row.outcome for row in coordinator.rows} == {"accepted"}


def test_different_messages_are_not_sent_to_other_nodes():
    _, Addresses, *_ = strategies()
    run(grid(5), m=2, strategy=Addresses(fraction_evaluate=0.0))
    with pytest.raises(ConfigError, match="fraction_train"):
        run(grid(5), m=3, strategy=Addresses(fraction_evaluate=0.0))


def test_a_strategy_that_waits_for_more_nodes_is_refused():
    *_, Waits, _ = strategies()
    on = grid(5)
    strategy = Waits(fraction_evaluate=0.0)
    strategy.sleep = on.sleep
    with pytest.raises(ConfigError, match="waits for more nodes than the 3 chosen"):
        run(on, m=3, strategy=strategy)


def test_a_strategy_may_have_another_loop():
    *_, Own = strategies()
    on = grid(3)
    wrapped = with_selector(Own(), build("uniform"), 2, clock=on.clock)
    arrays = wrapped.start(on, model(), steps=3, patience=50)
    assert arrays["w"].numpy().any()
    assert {row.round for row in wrapped.motley.rows} == {1, 2, 3}


def test_evaluation_ignores_bad_replies():
    def nonsense(message, context):
        if message.metadata.message_type == "evaluate":
            return reply(message, metrics=flower().MetricRecord({"other": float("nan")}))
        return sgd(message, context)

    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=nonsense))
    _, result = run(on, strategy=fedavg(fraction_evaluate=1.0, min_evaluate_nodes=4))
    found = result.evaluate_metrics_clientapp
    assert sorted(found) == [1, 2, 3]
    assert all(np.isfinite(record["eval_loss"]) for record in found.values())


def test_a_client_that_connects_before_an_evaluation_is_enrolled():
    on = grid(2)

    def comes(message, context):
        if message.metadata.message_type == "train":
            on.nodes |= nodes(5)
        return sgd(message, context)

    on.nodes |= nodes(0, app=comes)
    selector = build("uniform", seed=0)
    observed = observed_reports(selector)
    run(on, selector, strategy=fedavg(fraction_evaluate=1.0))
    assert [(t, [r.id for r in reports]) for t, reports in observed if t == 0] == [
        (0, [0, 1]),
        (0, [5]),
    ]


def test_a_strategy_that_writes_no_message_asks_no_client():
    class Pauses(flower("serverapp.strategy").FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            return (
                []
                if server_round == 2
                else super().configure_train(server_round, arrays, config, grid)
            )

        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, [replies[0], *replies[1:]])

    coordinator, _ = run(grid(3), strategy=Pauses(fraction_evaluate=0.0))
    assert sorted({row.round for row in coordinator.rows}) == [1, 3]
    assert {row.outcome for row in coordinator.rows} == {"accepted"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"m": 0}, "at least 1"),
        ({"m": 2.5}, "m: got 2.5; expected a whole number of at least 1"),
        ({"m": "2"}, "m: got '2'; expected a whole number"),
        ({"m": True}, "m: got True; expected a whole number"),
        ({"wait_s": "60"}, "wait_s: got '60'; expected a finite number above 0"),
        ({"max_examples": True}, "max_examples: got True"),
        ({"classes": 10.0}, "classes: got 10.0; expected a whole number of at least 1"),
        ({"wait_s": 0}, "above 0"),
        ({"query_limit_s": float("inf")}, "finite"),
        ({"uploads": "whatever"}, "as_sent"),
        ({"rounds_done": -1}, "at least 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        with_selector(fedavg(), build("uniform"), **{"m": 2, **options})


@pytest.mark.parametrize("selector", [{"name": "oort"}, None, build("oort").rule])
def test_what_is_no_selector_is_refused_with_the_line_that_builds_one(selector):
    with pytest.raises(ConfigError, match=r'expected the name of a rule.*"alpha": 1.0}, seed=0\)'):
        with_selector(fedavg(), selector, 2)


def test_the_name_of_a_rule_that_must_know_the_last_round_is_refused():
    said = r'hetero_select anneals.*motley.selectors.build\("hetero_select", horizon=50\)'
    with pytest.raises(ConfigError, match=said):
        with_selector(fedavg(), "hetero_select", 2)
    with_selector(fedavg(), build("hetero_select", horizon=50), 2)


def test_a_strategy_that_trains_nobody_is_refused():
    """Before, it trained with m clients a round, after Flower had said that it skips training."""
    strategy = fedavg()
    strategy.fraction_train = 0.0
    with pytest.raises(ConfigError, match=r"fraction_train = 0.*leave fraction_train out"):
        with_selector(strategy, build("uniform"), 2)


def test_a_second_start_goes_on_where_the_first_ended():
    on = grid(3)
    wrapped = with_selector(fedavg(), build("oort"), 2, clock=on.clock)
    for _ in range(2):
        wrapped.start(on, model(), num_rounds=2, timeout=50)
    assert [row.round for row in wrapped.motley.rows] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_an_object_that_is_no_strategy_is_refused():
    for wrong in (
        3,
        flower("serverapp.strategy").FedAvg,
        with_selector(fedavg(), build("uniform"), 2),
    ):
        with pytest.raises(ConfigError):
            with_selector(wrong, build("uniform"), 2)


# ------------------------------------------------------------------------ the table and all traffic


def test_federated_evaluation_is_counted_and_the_table_shows_probes_and_totals():
    """Power-of-Choice asks 4 candidates before it takes 2; every evaluation goes to all five
    clients."""
    on = grid(5)
    coordinator, _ = run(
        on,
        build({"name": "power_of_choice", "d": 4}),
        m=2,
        rounds=2,
        strategy=fedavg(fraction_evaluate=1.0),
    )

    def size(kind):
        return sum(content_bits(m.content) for m in on.sent if m.metadata.message_type == kind)

    assert coordinator.traffic["evaluate_bits_down"] == size("evaluate") > 0
    assert coordinator.traffic["probe_bits_down"] == size("query.motley_probe")
    # two numbers under their names, from each of five clients, in two rounds
    assert coordinator.traffic["evaluate_bits_up"] == 2 * 5 * 8 * (
        len("num-examples") + len("eval_loss") + 16
    )
    assert [(row.purpose, row.round, row.asked, row.answered) for row in coordinator.exchanges] == [
        ("probe", 1, 4, 4),
        ("evaluate", 1, 5, 5),
        ("probe", 2, 4, 4),
        ("evaluate", 2, 5, 5),
    ]
    lines = participation(coordinator).splitlines()
    assert [line.split()[2] for line in lines[1:5]] == [
        "probed",
        "accepted",
        "accepted",
        "evaluated",
    ]
    totals = {line.split()[2]: line.split() for line in lines if line.startswith("total")}
    assert list(totals) == ["enrol", "probe", "train", "evaluate", "all"]
    everything = sum(coordinator.traffic.values())
    probes = coordinator.traffic["probe_bits_down"] + coordinator.traffic["probe_bits_up"]
    assert totals["probe"][3] == f"{probes / everything:.0%}"
    assert sum(int(totals[name][3].removesuffix("%")) for name in list(totals)[:4]) in (
        99,
        100,
        101,
    )
    assert float(totals["all"][-2]) == pytest.approx(
        sum(m for k, m in coordinator.traffic.items() if "down" in k) / 8000, abs=0.05
    )
