"""The folder of a strategy with a selector: what is in it, and how the strategy goes on there after
its server was killed."""

from __future__ import annotations

import itertools
import logging
import math
import os

import numpy as np
import pytest

import motley
from motley.core.errors import ConfigError, StoreError
from motley.results.model_health import model_health
from motley.selectors import build
from motley_flower.messages import flower
from motley_flower.recorded.plain_values import UnwritableError, pack, unpack
from motley_flower.strategy.participation import participation
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import fedavg, grid, loss_at, model, nodes, sgd, weights
from tests.motley_flower.conftest import HERE
from tests.motley_flower.fake_grid import FakeGrid

ROUNDS = 4


@pytest.fixture(autouse=True)
def _no_report(request, monkeypatch):
    if "with_a_report" not in request.node.name:
        monkeypatch.setattr("motley_flower.recorded.run_files.RunFiles.report", lambda self: None)


class KilledError(BaseException):
    """As if the process were gone."""


def measured(step, arrays):
    return flower().MetricRecord({"loss": loss_at(arrays, 1), "accuracy": 0.1 * step})


def deploy(
    out, on=None, selector="oort", rounds=ROUNDS, strategy=None, evaluate=measured, m=2, **options
):
    """Run FedAvg, or another strategy, into a folder; return the wrapped strategy and Flower's
    result."""
    on = on or grid(4)
    wrapped = with_selector(
        strategy or fedavg(fraction_evaluate=1.0),
        build(selector, seed=0, horizon=50),
        m,
        clock=on.clock,
        out=out,
        **options,
    )
    return wrapped, wrapped.start(on, model(), num_rounds=rounds, timeout=200, evaluate_fn=evaluate)


def killed(step):
    """An evaluation of the server's that is killed after so many rounds."""

    def evaluate(at, arrays):
        if at == step:
            raise KilledError
        return measured(at, arrays)

    return evaluate


def rows(run, table, *columns):
    """The columns of a table, row by row."""
    return [tuple(row[name] for name in columns) for row in run.tables[table].to_pylist()]


TIMELESS = {
    "rounds": (
        "round",
        "selections",
        "dispatch",
        "available",
        "selected",
        "accepted",
        "train_loss",
        "up_bits",
        "total_bits",
    ),
    "clients": (
        "round",
        "dispatch",
        "client",
        "outcome",
        "version",
        "num_examples",
        "loss",
        "bits_up",
        "compute_s",
    ),
    "evaluations": (
        "round",
        "selections",
        "scope",
        "client",
        "examples",
        "loss",
        "accuracy",
        "total_bits",
    ),
    "metrics": ("round", "scope", "client", "metric", "value"),
    "federation": ("client", "num_train", "labels"),
}


def timeless(run):
    return {table: rows(run, table, *columns) for table, columns in TIMELESS.items()}


def test_it_is_a_run_s_folder_with_a_report(tmp_path, capsys):
    wrapped, result = deploy(tmp_path / "ward-7")
    done = motley.load(tmp_path / "ward-7")
    assert done.finished
    assert done.deployed
    assert done.column("rounds", "round").tolist() == [1, 2, 3, 4]
    assert done.column("rounds", "accepted").tolist() == [2] * 4
    assert len(done.tables["federation"]) == 4
    assert rows(done, "evaluations", "round", "scope")[0] == (0, "global")
    scopes = done.column("evaluations", "scope").tolist()
    assert [scopes.count(scope) for scope in ("global", "client", "mean")] == [
        ROUNDS + 1,
        4 * ROUNDS,
        ROUNDS,
    ]
    assert done.column("rounds", "total_bits")[-1] == sum(wrapped.motley.traffic.values())
    asked = [row.client for row in wrapped.motley.rows if row.round == 1]
    lines = capsys.readouterr().err.splitlines()
    bits = done.column("rounds", "total_bits")[0]
    assert lines[0] == f"ward-7, begun, tables in {tmp_path / 'ward-7'}"
    head = (
        f"ward-7, round 1 of 4, asked {asked[0]} and {asked[1]}, 2 accepted, accuracy 0.100, "
        f"{bits / 8e6:.3g} MB, "
    )
    assert lines[1].startswith(head)
    assert (
        lines[-1]
        == f"ward-7, finished after round 4, report in {tmp_path / 'ward-7' / 'report.html'}"
    )
    assert len(lines) == 6
    page = (tmp_path / "ward-7" / "report.html").read_text()
    assert "How the clients did" in page
    assert "irtual" not in page.split("What was run")[0]
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(
        load_file(tmp_path / "ward-7" / "model.safetensors")["w"], weights(result)
    )
    assert (
        motley.Selector.from_bytes((tmp_path / "ward-7" / "selector.bin").read_bytes()).rule
        == wrapped.motley.selector.rule
    )
    assert len(motley.frame(tmp_path, "rounds")) == ROUNDS


@pytest.mark.parametrize("selector", ["oort", "uniform", "power_of_choice", "hetero_select_v1"])
def test_a_killed_server_goes_on_at_the_next_round_bit_for_bit(selector, tmp_path, capsys):
    whole, result = deploy(tmp_path / "whole", selector=selector)
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", selector=selector, evaluate=killed(2))
    cut = motley.load(tmp_path / "cut")
    assert not cut.finished
    assert cut.column("rounds", "round").tolist() == [1]  # round 2 was trained, and not evaluated
    assert "submitted again" in (tmp_path / "cut" / "stopped.txt").read_text()
    capsys.readouterr()
    wrapped, again = deploy(tmp_path / "cut", selector=selector)
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0]
        == "cut, resumed at round 2 of 4, which is trained and not evaluated yet, tables in "
        f"{tmp_path / 'cut'}"
    )
    assert [line.split(",")[1] for line in lines[1:4]] == [
        " round 2 of 4",
        " round 3 of 4",
        " round 4 of 4",
    ]
    assert not (tmp_path / "cut" / "stopped.txt").exists()
    np.testing.assert_array_equal(weights(again), weights(result))
    for kind in (
        "train_metrics_clientapp",
        "evaluate_metrics_clientapp",
        "evaluate_metrics_serverapp",
    ):
        assert {t: dict(one) for t, one in getattr(again, kind).items()} == {
            t: dict(one) for t, one in getattr(result, kind).items()
        }
    assert wrapped.motley.selector.to_bytes() == whole.motley.selector.to_bytes()
    mine, theirs = (timeless(motley.load(tmp_path / name)) for name in ("cut", "whole"))
    for table in ("clients", "federation"):
        assert mine[table] == theirs[table]
    # both asked who is there: one enrolment more
    for table, i in (("rounds", -1), ("evaluations", -1), ("metrics", None)):
        assert [row[:i] for row in mine[table]] == [row[:i] for row in theirs[table]]
    assert participation(wrapped.motley.rows) == participation(whole.motley.rows)
    evaluated = [
        [row for row in one.motley.exchanges if row.purpose == "evaluate"]
        for one in (wrapped, whole)
    ]
    assert evaluated[0] == evaluated[1]


def test_a_dropped_client_has_no_seconds_before_and_after_a_resume(tmp_path):
    """Client 1's app raises after 3 s: that is no time of its work, and the record of the killed
    server says the same as the table of one that was not."""

    def raises(message, context):
        if message.metadata.message_type == "train":
            raise ValueError("out of memory")
        return sgd(message, context)

    def three():
        return FakeGrid({**nodes(0, 2), **nodes(1, app=raises, delay_s=3.0)})

    whole, _ = deploy(tmp_path / "whole", three(), "uniform", m=3)
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", three(), "uniform", evaluate=killed(3), m=3)
    wrapped, _ = deploy(tmp_path / "cut", three(), "uniform", m=3)
    assert [row.client for row in whole.motley.rows if math.isnan(row.seconds)] == [1] * ROUNDS
    assert participation(wrapped.motley.rows) == participation(whole.motley.rows)


def test_a_client_s_row_begins_when_it_is_sent_out_after_the_probe(tmp_path):
    """Enrolment takes 1 s, and so does each probe: rows begin 2 s after round 1, then 1 s after
    their round."""
    deploy(tmp_path / "run", selector={"name": "power_of_choice", "d": 3})
    done = motley.load(tmp_path / "run")
    begun = dict(rows(done, "rounds", "round", "start_s"))
    for step, start_s in rows(done, "clients", "round", "start_s"):
        assert start_s - begun[step] == pytest.approx(2.0 if step == 1 else 1.0, abs=0.1)


def test_what_the_rule_noted_of_the_chosen_is_a_table(tmp_path):
    """Six components of each of two clients a round, under the numbers of their dispatches."""
    deploy(tmp_path / "run", selector="hetero_select_v1", rounds=2)
    tables = motley.load(tmp_path / "run").tables
    noted = tables["choices"]
    sent = dict(
        zip(*(tables["clients"][name].to_pylist() for name in ("dispatch", "client")), strict=True)
    )
    assert noted.num_rows == 2 * 2 * 6
    assert noted["round"].to_pylist() == [1] * 12 + [2] * 12
    pairs = zip(*(noted[name].to_pylist() for name in ("dispatch", "client")), strict=True)
    assert all(sent[dispatch] == client for dispatch, client in pairs)


@pytest.mark.skipif(not HERE, reason="what Flower's own loop logs")
def test_replayed_rounds_are_not_logged_again(tmp_path, caplog):
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", evaluate=killed(3))
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr"):
        deploy(tmp_path / "cut")
    assert [line for line in caplog.messages if "[ROUND" in line] == ["[ROUND 4/4]"]


def test_a_server_killed_in_training_asks_that_round_again(tmp_path):
    _, result = deploy(tmp_path / "whole")
    on = grid(4)
    trained = []

    def dies(message, context):
        if message.metadata.message_type == "train":
            trained.append(message)
            if len(trained) == 6:
                raise KilledError
        return sgd(message, context)

    on.nodes |= nodes(*range(4), app=dies)
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", on)
    assert motley.load(tmp_path / "cut").column("rounds", "round").tolist() == [1, 2]
    _, again = deploy(tmp_path / "cut")
    np.testing.assert_array_equal(weights(again), weights(result))


def test_a_finished_run_is_not_run_again_and_may_be_extended(tmp_path, capsys):
    _, result = deploy(tmp_path / "whole", rounds=6)
    deploy(tmp_path / "out")
    capsys.readouterr()
    on = grid(4)
    deploy(tmp_path / "out", on)
    assert not on.sent
    assert capsys.readouterr().err.startswith("out, finished before, after round 4, tables in")
    _, more = deploy(tmp_path / "out", rounds=6)
    np.testing.assert_array_equal(weights(more), weights(result))
    assert motley.load(tmp_path / "out").column("rounds", "round").tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(StoreError, match="holds 6 rounds already, and num_rounds is 4"):
        deploy(tmp_path / "out")


def test_a_killed_run_goes_on_wherever_it_was_killed(tmp_path):
    _, result = deploy(tmp_path / "whole")
    for step in range(ROUNDS + 1):
        out = tmp_path / f"cut-{step}"
        with pytest.raises(KilledError):
            deploy(out, evaluate=killed(step))
        _, again = deploy(out)
        np.testing.assert_array_equal(weights(again), weights(result))
        assert motley.load(out).column("rounds", "round").tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("n", [3, 15, 40, 70])
def test_a_run_killed_at_its_nth_write_goes_on(n, tmp_path, monkeypatch):
    """Whatever is on the disk by then: the n-th time that something is to be made durable, the
    process is gone."""
    _, result = deploy(tmp_path / "whole", rounds=3)
    syncs = itertools.count(1)
    real = os.fsync

    def dies(handle):
        if next(syncs) == n:
            raise KilledError
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dies)
        with pytest.raises(KilledError):
            deploy(tmp_path / "cut", rounds=3)
    _, again = deploy(tmp_path / "cut", rounds=3)
    np.testing.assert_array_equal(weights(again), weights(result))
    whole, cut = (timeless(motley.load(tmp_path / name)) for name in ("whole", "cut"))
    assert [row[:-1] for row in cut["rounds"]] == [row[:-1] for row in whole["rounds"]]
    for table in ("clients", "federation", "metrics"):
        assert cut[table] == whole[table], table


def test_a_round_writes_as_much_however_many_were_before_it(tmp_path):
    """Metrics and evaluations of 24 rounds took 160 bytes each, in every checkpoint; numbers have a
    few digits more."""
    sizes = {}
    for rounds in (6, 30):
        deploy(tmp_path / str(rounds), rounds=rounds)
        (checkpoint,) = (tmp_path / str(rounds) / "checkpoints").iterdir()
        history = (tmp_path / str(rounds) / "history.arrows").stat().st_size
        sizes[rounds] = checkpoint.stat().st_size, history / rounds
    assert sizes[30][0] < sizes[6][0] + 500
    assert sizes[30][1] < sizes[6][1]


def test_a_checkpoint_that_is_damaged_leaves_the_history_of_the_one_before(tmp_path):
    _, result = deploy(tmp_path / "whole")
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", evaluate=killed(3))
    newest = max((tmp_path / "cut" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=f"{newest.name} is damaged .* going back to"):
        _, again = deploy(tmp_path / "cut")
    for kind in ("train_metrics_clientapp", "evaluate_metrics_serverapp"):
        assert {t: dict(one) for t, one in getattr(again, kind).items()} == {
            t: dict(one) for t, one in getattr(result, kind).items()
        }
    np.testing.assert_array_equal(weights(again), weights(result))


def test_a_run_whose_history_is_gone_does_not_go_on(tmp_path):
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", evaluate=killed(3))
    (tmp_path / "cut" / "history.arrows").unlink()
    with (
        pytest.warns(UserWarning, match="history.arrows cannot be read"),
        pytest.raises(StoreError, match=r"history\.arrows cannot be read .* cannot be continued"),
    ):
        deploy(tmp_path / "cut")


def test_without_evaluations_every_round_is_still_written(tmp_path):
    strategy = fedavg()
    deploy(tmp_path / "out", strategy=strategy, evaluate=None, progress=False)
    done = motley.load(tmp_path / "out")
    assert len(done.tables["evaluations"]) == 0
    assert done.column("rounds", "round").tolist() == [1, 2, 3, 4]


def momentum(**options):
    """FedAvg that keeps half of its last step, and how often it stepped."""

    class Momentum(flower("serverapp.strategy").FedAvg):
        step = None
        rounds = 0

        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            new = next(iter(arrays.values())).numpy()
            self.step = {"w": new if self.step is None else new + np.float32(0.5) * self.step["w"]}
            self.rounds += 1
            return model(w=self.step["w"]), metrics

    return Momentum(fraction_evaluate=0.0, **options)


def test_the_numbers_that_a_strategy_keeps_are_kept(tmp_path):
    _, result = deploy(tmp_path / "whole", strategy=momentum())
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", strategy=momentum(), evaluate=killed(2))
    wrapped, again = deploy(tmp_path / "cut", strategy=momentum())
    np.testing.assert_array_equal(weights(again), weights(result))
    assert wrapped.rounds == ROUNDS


def test_a_strategy_that_keeps_what_no_file_holds_is_named(tmp_path, caplog):
    class Keeps(flower("serverapp.strategy").FedAvg):
        seen = None

        def aggregate_train(self, server_round, replies):
            self.seen = {*(self.seen or ()), server_round}
            return super().aggregate_train(server_round, replies)

    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", strategy=Keeps(fraction_evaluate=0.0), evaluate=killed(2))
    assert "Keeps keeps 'seen' (a set) from round to round, which no file can hold" in caplog.text
    with pytest.raises(
        ConfigError,
        match=r"'seen' \(a set\).*lost with the server; begin another run in a new folder from",
    ):
        deploy(tmp_path / "cut", strategy=Keeps(fraction_evaluate=0.0))


def test_a_folder_with_something_else_is_refused(tmp_path):
    deploy(tmp_path / "out", rounds=1)
    with pytest.raises(
        StoreError, match=r'selector\.name = "oort", and this one has selector.name = "uniform"'
    ):
        deploy(tmp_path / "out", selector="uniform")
    with pytest.raises(StoreError, match="cohort = 2, and this one has cohort = 3"):
        deploy(tmp_path / "out", m=3)
    with pytest.raises(
        StoreError, match=r'algorithm.name = "FedAvg", and this one has algorithm.name = "Momentum"'
    ):
        deploy(tmp_path / "out", strategy=momentum())
    assert not (tmp_path / "out" / "stopped.txt").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(StoreError, match="holds files that are no run"):
        deploy(tmp_path / "other")


def test_who_was_lost_or_rejected_is_in_a_table(tmp_path):
    def bad(message, context):
        if message.metadata.message_type == "train":
            raise RuntimeError("no samples")
        return sgd(message, context)

    deploy(tmp_path / "out", FakeGrid(nodes(0, 1) | nodes(2, app=bad)), selector="uniform", m=3)
    done = motley.load(tmp_path / "out")
    assert rows(done, "incidents", "client", "event")[0] == (2, "lost")
    assert "raised RuntimeError; the node's own log" in rows(done, "incidents", "reason")[0][0]
    assert {
        math.isnan(x)
        for x in done.column("clients", "bits_up")[done.column("clients", "outcome") == "dropped"]
    } == {True}


def test_lines_are_printed_without_a_folder_too(capsys):
    on = grid(3)
    wrapped = with_selector(fedavg(), build("uniform", seed=0), 2, clock=on.clock)
    wrapped.start(on, model(), num_rounds=2, timeout=50)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[1] for line in lines] == [" round 1 of 2", " round 2 of 2"]
    with_selector(fedavg(), build("uniform", seed=0), 2, clock=on.clock, progress=False).start(
        on, model(), num_rounds=2, timeout=50
    )
    assert not capsys.readouterr().err


def test_clients_without_ids_keep_their_numbers_when_the_server_starts_again(tmp_path):
    """Node ids are those of before; a node of a lower id that came meanwhile is a new client, and
    node 1007's number stays free."""

    def deaf(message, context):
        if message.metadata.message_type == "query.motley_enrol":
            raise ValueError("No query function registered with name 'motley_enrol'")
        return sgd(message, context)

    on = FakeGrid(nodes(0, 1, 2, app=deaf))
    with pytest.raises(KilledError):
        deploy(tmp_path / "cut", on, "fedcs", evaluate=killed(2), max_examples=100)
    on.kill(1007)
    on.sleep(50)
    on.nodes[7] = on.nodes[1000]
    wrapped, _ = deploy(tmp_path / "cut", on, "fedcs", max_examples=100)
    assert wrapped.motley.registry.numbers == {1000: 0, 1007: 1, 1014: 2, 7: 3}
    assert {row.client for row in wrapped.motley.rows if row.round > 2} <= {0, 2, 3}


def test_plain_values_come_back_as_they_were():
    kept = unpack(pack({"moments": [np.float32(0.5), np.arange(2.0)], "names": ("a", None)}))
    assert repr(kept) == repr(
        {"moments": [np.float32(0.5), np.array([0.0, 1.0])], "names": ("a", None)}
    )
    with pytest.raises(UnwritableError, match="object"):
        pack([object()])


def test_an_app_that_measures_no_loss_has_no_ruined_model(tmp_path):
    deploy(
        tmp_path / "run", evaluate=lambda step, _: flower().MetricRecord({"accuracy": 0.1 * step})
    )
    run = motley.load(tmp_path / "run")
    assert run.tables["evaluations"]["loss"].null_count == ROUNDS + 1
    assert model_health(run) == []
