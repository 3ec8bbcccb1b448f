"""Deployed clients that hold fewer ranks of low-rank adapters: what travels, and that the run is
the simulation's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import CodecError, ConfigError
from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley.tasks import from_clients, own_task
from motley.testing.algorithms import adapted, mlp
from motley.transport.packet import Packet
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.grid_transport import bytes_in
from motley_flower.deployed.protocol import Answer, Order, open_answer, open_order
from motley_flower.deployed.ranks import narrowed, widened
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.deployed.secure_rounds import secure_refusal
from motley_flower.deployed.server_app import refuses
from motley_flower.secure.terms import SecureOptions
from tests.motley_flower.client_runtimes import answers, columns, deploy, same_model
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.test_loop_resume import KilledError, killed_after
from tests.motley_flower.test_protocol import meddled, with_part

K = 6
KEYS = {
    "name": "ranks",
    "cohort": 3,
    "stop": {"rounds": 3},
    "local": {"steps": 2, "batch_size": 4, "optimizer": {"lr": 0.3}},
    "algorithm": "lora_fedavg",
    "engine": "sequential",
    "dtype": "float64",
}
LEVELS = {"name": "levels", "levels": [1.0, 0.5, 0.25]}
BY_SCORE = {"name": "by_score", "levels": [1.0, 0.5, 0.25]}


def task():
    """Rank 4 on a network of 80 numbers, 4 (6 + 5) + 4 (5 + 4)."""
    rng = np.random.default_rng(0)
    parts = [
        (rng.normal(size=(12 + k, 6)).astype(np.float32), np.arange(12 + k) % 4) for k in range(K)
    ]
    return own_task(from_clients(parts, test_fraction=0.25), partial(adapted, mlp))


def setup(**keys):
    return Experiment(**{"task": "own", "population": K, **KEYS, **keys})


def logged(node, log):
    """A ClientApp that appends the bytes of every request and answer to ``log``."""

    def app(message, context):
        reply = answers(node, message, context)
        if message.metadata.message_type != "query.motley_enrol":
            log.append((bytes_in(message), bytes_in(reply)))
        return reply

    return app


def grid_of(experiment, folder, shares=None, log=None):
    """A grid of clients 0, 1, ..., of which some can hold a share of the ranks; see
    :func:`logged`."""
    nodes = {}
    for client in range(K):
        node = Node(experiment, folder / "sites", lambda client, config: task())
        config = {"partition-id": client}
        if client in (shares or {}):
            config["share"] = shares[client]
        nodes[100 + client] = FakeNode(logged(node, [] if log is None else log), config)
    return FakeGrid(nodes)


def trained(log):
    """Return (order, answer, bytes of both) of all that trained."""
    found = []
    for sent, received in log:
        order = open_order(sent)
        if order.kind == "train":
            found.append((order, open_answer(received, 10**6), len(sent), len(received)))
    return found


@pytest.mark.parametrize(
    ("keys", "shares", "same"),
    [
        ({"capacity": LEVELS}, {}, {}),
        ({"capacity": LEVELS, "algorithm": "flexlora"}, {}, {}),
        (
            {"capacity": BY_SCORE, "algorithm": "flexlora", "selector": "hetero_select"},
            {},
            {},
        ),
        ({}, dict.fromkeys(range(K), 0.5), {"capacity": {"name": "constant", "width": 0.5}}),
        (
            {"capacity": LEVELS, "algorithm": "flexlora"},
            dict.fromkeys(range(K), 0.25),
            {"capacity": {"name": "constant", "width": 0.25}},
        ),
    ],
)
def test_the_run_is_the_simulation_s_and_only_held_ranks_travel(keys, shares, same, tmp_path):
    """Of 80 numbers a client of half and of a quarter of the ranks is sent and sends 40 and 20: of
    8 bytes each, 320 and 480 fewer both ways."""
    log = []
    experiment = setup(**keys)
    done = deploy(
        grid_of(experiment, tmp_path, shares, log), experiment, tmp_path / "real", task=task()
    )
    simulated = motley.run({**KEYS, **keys, **same}, task=task(), out=tmp_path / "simulated")
    assert same_model(done, simulated)
    for column in ("client", "loss"):
        np.testing.assert_array_equal(
            done.column("clients", column), simulated.column("clients", column)
        )
    jobs = trained(log)
    assert len(jobs) == 9
    widths = [order.width for order, *_ in jobs]
    assert set(widths) == set(shares.values()) or set(widths) == {1.0, 0.5, 0.25}
    fewer = [8 * (80 - round(80 * width)) for width in widths]
    for sizes in ([len(one.model) for one, *_ in jobs], [len(one.upload) for _, one, *_ in jobs]):
        assert len({size + less for size, less in zip(sizes, fewer, strict=True)}) == 1
    rows = columns(done, "clients")
    assert sorted(rows["bits_down"]) == sorted(8 * down for _, _, down, _ in jobs)
    assert sorted(rows["bits_up"]) == sorted(8 * up for *_, up in jobs)
    paper = sum(round(32 * 80 * width) for width in widths)
    assert done.column("rounds", "total_up_paper_bits")[-1] == paper
    assert simulated.column("rounds", "total_up_paper_bits")[-1] == paper


def test_a_client_is_asked_for_no_more_than_it_said(tmp_path):
    """The file gives all ranks to everybody; clients 1 and 4 can hold fewer."""
    log = []
    experiment = setup(cohort=K)
    shares = {1: 0.5, 4: 0.25}
    deploy(grid_of(experiment, tmp_path, shares, log), experiment, tmp_path / "real", task=task())
    assert {(order.client, order.width) for order, *_ in trained(log)} == {
        (k, shares.get(k, 1.0)) for k in range(K)
    }


def test_a_killed_server_goes_on_with_what_clients_said(tmp_path):
    experiment = setup(capacity=BY_SCORE, selector="hetero_select")
    shares = {1: 0.5, 4: 0.25}
    whole = deploy(
        grid_of(experiment, tmp_path / "a", shares), experiment, tmp_path / "whole", task=task()
    )
    with pytest.raises(KilledError):
        deploy(
            grid_of(experiment, tmp_path / "b", shares),
            experiment,
            tmp_path / "cut",
            task=task(),
            told=killed_after(2),
        )
    done = deploy(
        grid_of(experiment, tmp_path / "b", shares), experiment, tmp_path / "cut", task=task()
    )
    assert same_model(whole, done)
    for column in ("client", "loss", "bits_down", "bits_up"):
        np.testing.assert_array_equal(
            whole.column("clients", column), done.column("clients", column)
        )


def test_an_upload_of_other_ranks_is_rejected(tmp_path):
    """Client 1 holds a half, and sends the whole."""
    experiment = setup(cohort=K)
    grid = grid_of(experiment, tmp_path, {1: 0.5})

    def spoil(message, reply):
        record = reply.content["motley"]
        record["message"] = with_part(
            record["message"], "delta", Packet(80, torch.zeros(80).double())
        )

    meddled(grid, 101, spoil)
    done = deploy(grid, experiment, tmp_path / "real", task=task())
    found = done.tables["incidents"].to_pydict()
    assert set(found["client"]) == {1}
    assert set(found["event"]) == {"rejected"}


def test_what_a_client_says_it_can_hold_is_checked():
    experiment = setup()
    ready = prepare(experiment, None, task())
    parts = motley.experiments.build.build({**KEYS, "task": task()}).channel.parts
    codec = RequestCodec(experiment, ready.config, ready.selector.rule.needs(), parts)
    order = codec.enrol("run", 1)
    assert order.want == ("num_examples", "share")
    for share in (0.0, -1.0, 1.5, np.nan, np.inf):
        signals = {"num_examples": np.array(9.0), "share": np.array(share)}
        answer = Answer("run", 1, 0, -1, signals=signals).seal()
        with pytest.raises(CodecError, match=r"expected one in \(0, 1\]|above 1.8e\+19"):
            codec.read_enrolment(order, answer)
    signals["share"] = np.array(0.5)
    examples, found = codec.read_enrolment(order, Answer("run", 1, 0, -1, signals=signals).seal())
    assert (examples, found["share"].tolist()) == (9, [0.5])


def test_a_node_checks_its_own_share(tmp_path):
    def runtime(share, **keys):
        node = Node(setup(**keys), tmp_path, lambda client, config: task())
        return node.runtime(0, {"share": share})

    for share in (0, 1.5, True, "half", float("nan")):
        with pytest.raises(ConfigError, match=r"share: got .*; expected a share in \(0, 1\]"):
            runtime(share)
    with pytest.raises(ConfigError, match="under this algorithm all train the whole model"):
        runtime(0.5, algorithm="fedavg")
    half = runtime(0.5)
    order = Order("train", "run", half.agreed, 0, steps=1, lr=0.1, width=0.75)
    with pytest.raises(CodecError, match=r"the share 0.75 of the ranks; .* at most 0.5"):
        half.answer(0, order.seal())
    for width in (0.0, 1.5, float("nan")):
        with pytest.raises(CodecError, match="got an order"):
            open_order(Order("train", "run", half.agreed, 0, width=width).seal())


def test_a_part_of_the_ranks_is_put_back_where_it_was():
    layout = prepare(setup(), None, task()).config.setting.task.layout
    x = torch.arange(80.0) + 1
    for width, size in ((1.0, 80), (0.5, 40), (0.25, 20)):
        part = narrowed(x, layout, width)
        back, held = widened(part, layout, width)
        assert len(part) == size
        assert held is None or int(held.sum()) == size
        assert torch.equal(back, x if held is None else x * held)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"algorithm": "flora"}, "fewer ranks, under lora_fedavg and flexlora"),
        ({"algorithm": "hetlora"}, "fewer ranks, under lora_fedavg and flexlora"),
        (
            {"capacity": {"name": "by_memory", "batch_sizes": [4, 2]}},
            "which batches a client can hold is known only in a simulation",
        ),
        ({"capacity": "by_speed"}, 'write capacity = "by_deadline", whose seconds are measured'),
        (
            {
                "capacity": {"name": "by_score", "within": {"name": "by_speed"}},
                "selector": "hetero_select",
            },
            "steps of real clients do not take what the file says",
        ),
    ],
)
def test_what_only_a_simulation_can_is_refused(keys, said):
    experiment = setup(**keys)
    assert said in refuses(experiment, prepare(experiment, None, task()))


def test_masks_hide_who_holds_which_ranks():
    ready = prepare(setup(weights="uniform"), None, task())
    options = SecureOptions(clip=1.0)
    assert "masks hide who holds which" in secure_refusal(ready, options)


def memory_of(level, **keys):
    """Megabytes that training takes with this share of the ranks."""
    return prepare(setup(**keys), None, task()).config.setting.memory(level).total / 1e6


BY_MEMORY = {"name": "by_memory", "levels": [1.0, 0.5, 0.25], "too_little": "least"}


@pytest.mark.parametrize(
    "capacity",
    [
        BY_MEMORY,
        {"name": "by_deadline", "levels": [1.0], "seconds": 1e6, "within": BY_MEMORY},
    ],
)
def test_by_memory_a_node_holds_what_fits_into_the_memory_that_it_says(capacity, tmp_path):
    """Client 5 has memory for half of the ranks and says a quarter; memory in the file is of
    simulated clients."""
    whole, half, quarter = map(memory_of, (1.0, 0.5, 0.25))
    log = []
    experiment = setup(cohort=K, capacity=capacity)
    grid = grid_of(experiment, tmp_path, {5: 0.25}, log)
    memory = whole, whole - 1e-6, half, half - 1e-6, quarter - 1e-6, half
    for client, mb in enumerate(memory):
        grid.nodes[100 + client].config["memory_mb"] = mb
    deploy(grid, experiment, tmp_path / "real", task=task())
    assert {(order.client, order.width) for order, *_ in trained(log)} == set(
        enumerate((1.0, 0.5, 0.5, 0.25, 0.25, 0.25))
    )


def test_a_node_without_enough_memory_says_so(tmp_path):
    refusing = {**BY_MEMORY, "too_little": "refuse"}

    def share(memory, **keys):
        node = Node(setup(**keys), tmp_path, lambda client, config: task())
        config = {} if memory is None else {"memory_mb": memory}
        return node.runtime(0, config).share

    for memory in (None, 0, -1.0, True, "much", float("inf"), float("nan")):
        with pytest.raises(ConfigError, match=r'memory_mb: got .*; start the node .*"memory_mb=51'):
            share(memory, capacity=BY_MEMORY)
    with pytest.raises(
        ConfigError, match=r"has 1e-06 MB, and training takes 0\.00\d+ MB even with the share 0.25"
    ):
        share(1e-6, capacity=refusing)
    assert share(1e-6, capacity=BY_MEMORY) == 0.25
    assert share(512, capacity=refusing) == 1.0
    assert share(1e-6, capacity=LEVELS) == 1.0


def test_a_client_that_comes_back_with_a_smaller_share_is_asked_for_that(tmp_path):
    """Client 1 is started again after round 1; what it was asked before it had said so is lost."""
    log = []
    experiment = setup(cohort=K, stop={"rounds": 6})
    grid = grid_of(experiment, tmp_path, {4: 0.5}, log)

    def told(done):
        if done.round == 1:
            grid.restart(101, {"partition-id": 1, "share": 0.25})

    done = deploy(grid, experiment, tmp_path / "real", task=task(), told=told)
    rows = columns(done, "clients")
    own = rows["client"] == 1
    seen = list(zip(rows["width"][own].tolist(), rows["outcome"][own].tolist(), strict=True))
    assert seen[0] == (1.0, "accepted")
    assert seen[-1] == (0.25, "accepted")
    assert [one for one in seen if one[1] != "accepted"] == [(1.0, "dropped")]
    others = rows["outcome"][~own]
    assert set(others) == {"accepted"}
    assert [open_order(sent).kind for sent, _ in log].count("enrol") == K + 1
