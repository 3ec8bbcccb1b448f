"""A client that would stop all learning, own the model by its word, or write into the log: each
harms itself alone, by name."""

from __future__ import annotations

import logging
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from motley.core.errors import CodecError, ConfigError
from motley.selectors.selector import Selector
from motley.transport import wire
from motley.transport.packet import Packet
from motley_flower.client_list import ClientList
from motley_flower.deployed.client_registry import Limits
from motley_flower.deployed.grid_transport import GridTransport
from motley_flower.deployed.server_app import run
from motley_flower.messages import _in_words
from tests.motley_flower.client_runtimes import (
    SOON,
    columns,
    deploy,
    experiment,
    federation,
    same_model,
)
from tests.motley_flower.fake_grid import FakeNode
from tests.motley_flower.keys import client_file, public_key
from tests.motley_flower.test_loop_resume import KilledError, killed_after
from tests.motley_flower.test_protocol import changed, meddled, opened, parts_of, with_part

K = 4
SETUP = {
    "population": K,
    "cohort": K,
    "stop": {"rounds": 5},
    "local": {"steps": 2, "batch_size": 8, "optimizer": {"lr": 0.1}},
}
EVIL = "loss\n2026-11-25 ERROR motley.flower: all is lost\x1b[2J\u202e"


def everywhere(value):
    """Spoils an upload: each number of the update is this one."""

    def spoil(message, reply):
        letter = reply.content["motley"]["message"]
        size = parts_of(letter)["delta"].size
        reply.content["motley"]["message"] = with_part(
            letter, "delta", Packet(size, torch.full((size,), value).double())
        )

    return spoil


def says(grid, node, **signals):
    """Let a node say other things of itself when it is enrolled."""
    good = grid.nodes[node].app

    def app(message, context):
        reply = good(message, context)
        if message.metadata.message_type == "query.motley":
            letter = reply.content["motley"]["message"]
            told = {
                **opened(letter).signals,
                **{name: np.array(float(value)) for name, value in signals.items()},
            }
            reply.content["motley"]["message"] = changed(letter, signals=told)
        return reply

    grid.nodes[node].app = app


def events(done):
    return [(row["client"], row["event"]) for row in done.tables["incidents"].to_pylist()]


# ---------------------------------------------------------------------- one that stops all learning


def test_one_client_with_1000_everywhere_is_dropped_by_name_and_set_aside(tmp_path, caplog):
    setup = experiment(**SETUP)
    grid = federation(setup, tmp_path)
    for k, node in enumerate(grid.nodes.values()):
        node.public_key = public_key(k)
    meddled(grid, 102, everywhere(1000.0))
    path = client_file(tmp_path / "clients.toml", ("alder", "birch", "cedar", "dogwood"))
    done = run(
        GridTransport(grid, clock=grid.clock, clients=ClientList(path)),
        setup,
        out=tmp_path / "run",
        limits=SOON,
        report=False,
    )
    clients = columns(done, "clients")
    assert clients["outcome"][clients["client"] == 2].tolist() == ["rejected"] * 3
    assert set(clients["outcome"][clients["client"] != 2]) == {"accepted"}
    assert events(done) == [(2, "rejected")] * 3 + [(2, "set aside")]
    assert "client 2 (cedar): its uploads were dropped 3 times in a row" in caplog.text
    for told in (killed_after(3), None):
        grid = federation(setup, tmp_path / "cut")
        meddled(grid, 102, everywhere(1000.0))
        with pytest.raises(KilledError) if told else nullcontext():
            again = deploy(grid, setup, tmp_path / "killed", told=told)
    # it was set aside before the kill, and stays so
    assert same_model(done, again)
    assert done.tables["clients"]["outcome"].equals(again.tables["clients"]["outcome"])
    assert events(again).count((2, "set aside")) == 1


def test_the_rest_of_a_refused_step_is_the_step_without_it(tmp_path):
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}})
    hurt = federation(setup, tmp_path / "a")
    refused = federation(setup, tmp_path / "b")
    meddled(hurt, 102, everywhere(1000.0))
    meddled(refused, 102, lambda message, reply: reply.content.pop("motley"))
    assert same_model(
        deploy(hurt, setup, tmp_path / "hurt"), deploy(refused, setup, tmp_path / "refused")
    )


def test_a_step_in_which_nobody_stands_out_blames_nobody(tmp_path):
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}})
    grid = federation(setup, tmp_path)
    for node in grid.nodes:
        meddled(grid, node, everywhere(1e6))
    done = deploy(grid, setup, tmp_path / "run")
    assert set(columns(done, "clients")["outcome"]) == {"rejected"}
    assert sorted(set(events(done))) == [(k, "rejected") for k in range(K)]
    assert "no upload could be told apart" in done.tables["incidents"]["reason"][0].as_py()


# ------------------------------------------------------------------------------- numbers of samples


def test_a_number_of_samples_counts_ten_times_the_median_at_most(tmp_path):
    """Of 1, 2 and 3 clients' numbers and 2^40 the lower median is the second: ten times it is what
    client 2 weighs."""
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}})
    honest = columns(
        deploy(federation(setup, tmp_path / "a"), setup, tmp_path / "honest"), "clients"
    )
    true = {k: int(honest["num_examples"][honest["client"] == k][0]) for k in range(K)}
    cap = 10 * sorted(n for k, n in true.items() if k != 2)[1]
    grid = federation(setup, tmp_path / "b")
    says(grid, 102, num_examples=2**40)
    done = deploy(grid, setup, tmp_path / "run")
    clients = columns(done, "clients")
    assert {int(w) for w in clients["weight"][clients["client"] == 2]} == {cap}
    assert all(set(clients["weight"][clients["client"] == k]) == {true[k]} for k in (0, 1, 3))
    row = next(row for row in done.tables["incidents"].to_pylist() if row["event"] == "capped")
    assert (row["client"], row["reason"]) == (
        2,
        f"its {2**40} samples count as {cap}, 10 times the median",
    )


def test_the_number_in_the_file_of_clients_goes_before_the_median(tmp_path):
    """The file says 50 of client 2, and 10^6 of client 3, which says 5,000: more than ten times the
    median."""
    setup = experiment(**{**SETUP, "stop": {"rounds": 1}})
    grid = federation(setup, tmp_path)
    for k, node in enumerate(grid.nodes):
        grid.nodes[node].public_key = public_key(k)
        says(grid, node, num_examples=(30, 30, 2**40, 5_000)[k])
    path = client_file(tmp_path / "clients.toml", ("alder", "birch", "cedar", "dogwood"))
    for name, most in (("cedar", 50), ("dogwood", 10**6)):
        path.write_text(
            path.read_text().replace(f'name = "{name}"', f'name = "{name}"\nexamples = {most}')
        )
    transport = GridTransport(grid, clock=grid.clock, clients=ClientList(path))
    done = run(transport, setup, out=tmp_path / "run", limits=SOON, report=False)
    assert columns(done, "clients")["weight"].tolist() == [30, 30, 50, 5_000]
    (row,) = (row for row in done.tables["incidents"].to_pylist() if row["event"] == "capped")
    assert (row["client"], row["reason"]) == (
        2,
        f"its {2**40} samples count as 50, as the file of clients has it",
    )


def test_the_selector_hears_the_number_that_counts(tmp_path, monkeypatch):
    """At enrolment and with each upload: of 10, 20, 2^40 and 30 samples the last but one counts as
    200."""
    heard = []
    observe = Selector.observe

    def observes(self, round_index, reports):
        heard.extend(zip(reports.ids.tolist(), reports.num_examples.tolist(), strict=True))
        observe(self, round_index, reports)

    monkeypatch.setattr(Selector, "observe", observes)
    setup = experiment(**{**SETUP, "stop": {"rounds": 1}})
    grid = federation(setup, tmp_path)
    for node, said in zip(grid.nodes, (10, 20, 2**40, 30), strict=True):
        says(grid, node, num_examples=said)
    deploy(grid, setup, tmp_path / "run")
    assert heard == [(0, 10.0), (1, 20.0), (2, 200.0), (3, 30.0)] * 2


def test_another_cap_is_a_limit_of_the_deployment():
    with pytest.raises(
        ConfigError,
        match=r"got sample_cap = 0; expected a positive number of times the median number of "
        r"samples",
    ):
        Limits(sample_cap=0)


# --------------------------------------------------------------------- at the start, and by silence


def arrive(grid, nodes, second):
    """Let nodes of a grid come at a second."""
    late = {node: grid.nodes.pop(node) for node in nodes}
    grid.events.append((second, lambda: grid.nodes.update(late)))


def test_a_client_that_comes_first_and_alone_and_raises_ends_no_run(tmp_path):
    """Of four clients one is there when the wait of 30 s is over; the others come 2 s later."""
    setup = experiment(**{**SETUP, "stop": {"rounds": 14}, "evaluate": {"every": 1000}})
    grid = federation(setup, tmp_path)
    meddled(grid, 103, lambda message, reply: 1 / 0)
    arrive(grid, (100, 101, 102), 32.0)
    clients = columns(deploy(grid, setup, tmp_path / "run"), "clients")
    assert set(clients["outcome"][clients["client"] == 3]) == {"dropped"}
    assert set(clients["client"][clients["outcome"] == "accepted"]) == {0, 1, 2}


def test_a_node_that_claims_all_clients_in_turn_before_they_come_ends_no_run(tmp_path):
    """Without a file of clients: it answers nonsense as client 0, starts again as client 1, and so
    on, in the first 24 s of 30."""
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}})
    grid = federation(setup, tmp_path)
    good = grid.nodes[100].app

    def nonsense(message, context):
        reply = good(message, context)
        if message.metadata.message_type == "query.motley":
            reply.content["motley"]["message"] = b"nonsense"
        return reply

    grid.nodes[7] = FakeNode(nonsense, {"partition-id": 0})
    for k in range(1, K):
        grid.events.append((6.0 * k, lambda k=k: grid.restart(7, {"partition-id": k})))
    grid.events.append((25.0, lambda: grid.nodes.pop(7)))
    arrive(grid, range(100, 100 + K), 26.0)
    clients = columns(
        deploy(grid, setup, tmp_path / "run", limits=Limits(**{**vars(SOON), "pause_s": 2.0})),
        "clients",
    )
    assert set(clients["outcome"]) == {"accepted"}
    assert set(clients["client"]) == set(range(K))


def test_new_nodes_that_say_nothing_hold_no_round_up(tmp_path):
    """One a second, each another client of 40; the first four are honest."""
    setup = experiment(
        **{**SETUP, "population": 40, "stop": {"rounds": 12}, "evaluate": {"every": 1000}}
    )
    grid = federation(setup, tmp_path)
    for node in range(100 + K, 140):
        del grid.nodes[node]
        mute = FakeNode(lambda message, context: None, {"partition-id": node - 100})
        grid.events.append(
            (float(node - 100), lambda node=node, mute=mute: grid.nodes.__setitem__(node, mute))
        )
    done = deploy(grid, setup, tmp_path / "run", limits=Limits(**{**vars(SOON), "start_s": 3.0}))
    rounds = columns(done, "rounds")
    assert (rounds["accepted"] == K).all()
    assert np.diff(rounds["time_s"]).max() < 2.0


# ----------------------------------------------------------------------------- what reaches the log


def test_names_of_signals_and_parts_reach_logs_and_tables_as_one_line(tmp_path, caplog):
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}})
    grid = federation(setup, tmp_path)
    spoilt = iter(
        [
            lambda letter: changed(letter, signals={**opened(letter).signals, EVIL: np.zeros(())}),
            lambda letter: with_part(letter, EVIL, Packet(1, torch.ones(1))),
        ]
    )

    def spoil(message, reply):
        reply.content["motley"]["message"] = next(spoilt)(reply.content["motley"]["message"])

    meddled(grid, 101, spoil)

    good = grid.nodes[103].app

    def raises(message, context):
        if message.metadata.message_type == "query.motley_enrol":
            return good(message, context)
        raise RuntimeError(EVIL * 10_000)

    grid.nodes[103].app = raises
    with caplog.at_level(logging.INFO):
        done = deploy(
            grid, setup, tmp_path / "run", limits=Limits(**{**vars(SOON), "start_s": 3.0})
        )
    reasons = [row["reason"] for row in done.tables["incidents"].to_pylist()]
    assert (
        "got other signals than were asked for: 'loss\\n2026-11-25 ERROR mo ... 2J\\u202e'"
        in reasons
    )
    assert {(1, "rejected"), (3, "unanswered")} <= set(events(done))
    lines = [record.getMessage() for record in caplog.records] + reasons
    assert all(line.isprintable() and len(line) < 500 for line in lines)


def test_an_upload_of_2000_parts_costs_a_sentence_and_no_memory():
    """Each part has a name of 200 bytes: the list of 65,535 was 13 MB of log in each round."""
    many = {f"{i:05d}" + "\x1b" * 195: Packet(1, torch.ones(1)) for i in range(2_000)}
    data = wire.encode(many)
    forms = {"delta": Packet(9, torch.ones(9)).spec}
    tracemalloc.start()
    with pytest.raises(CodecError, match=r"^got 2000 parts; expected at most 1, as was agreed on$"):
        wire.decode(data, forms)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    with pytest.raises(CodecError, match=r"^parts \['.*'\] are not of the spec") as raised:
        wire.decode(wire.encode(dict(list(many.items())[:1])), forms)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 700


def test_a_failing_apps_kind_and_message_are_cut():
    said = _in_words(SimpleNamespace(code=2, reason=f"<class '{'K' * 5_000_000}'>:<'{EVIL}'>"))
    assert len(said) < 500
    assert said.isprintable()


# ------------------------------------------------------------- numbers beside the update


def reporting(**changes):
    """Spoils the report beside an upload: other signals."""

    def spoil(message, reply):
        letter = reply.content["motley"]["message"]
        told = {name: np.array(value) for name, value in changes.items()}
        signals = {**opened(letter).signals, **told}
        reply.content["motley"]["message"] = changed(letter, signals=signals)

    return spoil


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1e308, "the signal 'loss' with a number above 1.8e+19"),
        (1e18, "its 'loss' of 1e+18 is more than 1000 times what the other clients report"),
    ],
)
def test_a_loss_far_beyond_the_others_enters_no_mean(tmp_path, value, why):
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}})
    hurt = federation(setup, tmp_path / "a")
    lost = federation(setup, tmp_path / "b")
    meddled(hurt, 102, reporting(loss=value))
    meddled(lost, 102, lambda message, reply: reply.content.pop("motley"))
    done = deploy(hurt, setup, tmp_path / "hurt")
    assert same_model(done, deploy(lost, setup, tmp_path / "lost"))
    assert columns(done, "rounds")["train_loss"].max() < 10
    assert events(done) == [(2, "rejected")] * 2
    assert why in done.tables["incidents"].to_pylist()[0]["reason"]


def test_a_weight_far_beyond_the_others_freezes_no_model(tmp_path):
    """q-FedAvg divides by the sum of what clients send as h; the guard of steps knows no usual
    length in round 1."""
    setup = experiment(**{**SETUP, "stop": {"rounds": 2}}, algorithm="qfedavg")

    def heavy(message, reply):
        letter = reply.content["motley"]["message"]
        reply.content["motley"]["message"] = with_part(
            letter, "h", Packet(1, torch.tensor([1e150], dtype=torch.float64))
        )

    hurt = federation(setup, tmp_path / "a")
    lost = federation(setup, tmp_path / "b")
    meddled(hurt, 102, heavy)
    meddled(lost, 102, lambda message, reply: reply.content.pop("motley"))
    done = deploy(hurt, setup, tmp_path / "hurt")
    assert same_model(done, deploy(lost, setup, tmp_path / "lost"))
    assert events(done) == [(2, "rejected")] * 2
    assert "its 'h' of 1e+150" in done.tables["incidents"].to_pylist()[0]["reason"]


def test_more_samples_of_a_label_than_samples_are_no_enrolment(tmp_path):
    setup = experiment(**{**SETUP, "cohort": 2, "stop": {"rounds": 1}}, selector="fedcbs")
    grid = federation(setup, tmp_path)
    good = grid.nodes[102].app

    def app(message, context):
        reply = good(message, context)
        if message.metadata.message_type == "query.motley":
            letter = reply.content["motley"]["message"]
            told = opened(letter).signals
            counts = np.full_like(told["label_histogram"], 1e6)
            reply.content["motley"]["message"] = changed(
                letter, signals={**told, "label_histogram": counts}
            )
        return reply

    grid.nodes[102].app = app
    done = deploy(grid, setup, tmp_path / "run")
    assert 2 not in columns(done, "clients")["client"]
    assert "samples of one label from a client" in str(done.tables["incidents"].to_pylist())
