"""Clients that send nonsense: each costs its own round, and nobody else anything; nothing is
unpickled, no traceback."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import motley
from motley.core import codec
from motley.core.checksum import checksum
from motley.core.errors import CodecError
from motley.transport import wire
from motley.transport.packet import Packet
from motley_flower.deployed.protocol import (
    PROTOCOL,
    SPARE,
    Answer,
    Order,
    open_answer,
    open_order,
    pack,
    unpack,
)
from motley_flower.deployed.request_codec import _sound
from tests.motley_flower.client_runtimes import (
    SOON,
    columns,
    deploy,
    experiment,
    federation,
    same_model,
)


class Bomb:
    """What runs when it is unpickled."""

    ran = False

    def __reduce__(self):
        return setattr, (Bomb, "ran", True)


def opened(letter):
    return open_answer(letter, 10**9)


def numbered(record):
    """A letter around a record."""
    return b"MTLD" + struct.pack("<H", PROTOCOL) + record


def changed(letter, **fields):
    """A sound letter with other contents."""
    return dataclasses.replace(opened(letter), **fields).seal()


def parts_of(letter):
    return wire.decode(opened(letter).upload)


def with_part(letter, name, packet):
    return changed(letter, upload=wire.encode({**parts_of(letter), name: packet}))


def with_nan(letter):
    """What :func:`wire.encode` refuses to write: NaN as the last number of the update, and a sum
    that is right."""
    parts = parts_of(letter)
    last = {name: parts[name] for name in ("buffers", "counters", "delta")}
    data = bytearray(wire.encode(last))
    data[-16:-8] = np.array([np.nan]).tobytes()
    sound = bytes(data[:-8]) + hashlib.blake2b(bytes(data[:-8]), digest_size=8).digest()
    with pytest.raises(CodecError, match="not finite"):
        wire.decode(sound)
    return changed(letter, upload=sound)


def numbers(n, dtype=torch.float64):
    return Packet(n, torch.ones(n, dtype=dtype))


SPOILED = {
    "nothing": lambda letter: b"",
    "no letter": lambda letter: b"\x80\x04 garbage" * 50,
    "cut off": lambda letter: letter[:-20],
    "one bit": lambda letter: letter[:200] + bytes([letter[200] ^ 1]) + letter[201:],
    "pickled": lambda letter: pickle.dumps(Bomb()),
    "text": lambda letter: "hello",
    "far too long": lambda letter: letter + bytes(10**6),
    "an order": lambda letter: Order("train", "x", "y", 1).seal(),
    "another client": lambda letter: changed(letter, client=0),
    "another round": lambda letter: changed(letter, round=77),
    "another dispatch": lambda letter: changed(letter, dispatch=opened(letter).dispatch + 1),
    "another run": lambda letter: changed(letter, run="another"),
    "too many steps": lambda letter: changed(letter, steps=10**6),
    "no signals": lambda letter: changed(letter, signals={}),
    "a signal more": lambda letter: changed(
        letter, signals={**opened(letter).signals, "x": np.zeros(3)}
    ),
    "signals too wide": lambda letter: changed(
        letter, signals=dict.fromkeys(opened(letter).signals, np.zeros(3))
    ),
    "a loss that is none": lambda letter: changed(
        letter, signals=dict.fromkeys(opened(letter).signals, np.array(np.nan))
    ),
    "no upload": lambda letter: changed(letter, upload=b""),
    "not finite, it says": lambda letter: changed(letter, finite=False, upload=b""),
    "another size": lambda letter: with_part(letter, "delta", numbers(7)),
    "another dtype": lambda letter: with_part(
        letter, "delta", numbers(parts_of(letter)["delta"].size, torch.float32)
    ),
    "a part more": lambda letter: with_part(letter, "more", numbers(3)),
    "fewer values": lambda letter: with_part(
        letter,
        "delta",
        Packet(
            parts_of(letter)["delta"].size, torch.ones(2, dtype=torch.float64), torch.tensor([0, 5])
        ),
    ),
    "NaN in the update": with_nan,
    "numbers beyond all measure": lambda letter: with_part(
        letter,
        "delta",
        Packet(n := parts_of(letter)["delta"].size, torch.full((n,), -1e300, dtype=torch.float64)),
    ),
}


def meddled(grid, node, spoil, which=None):
    """Let a node's replies to training orders (the ``which``-th only, from 1) be changed before
    they leave."""
    good = grid.nodes[node].app
    trained = []

    def app(message, context):
        reply = good(message, context)
        if message.metadata.message_type == "train.motley":
            trained.append(message)
            if which in (None, len(trained)):
                spoil(message, reply)
        return reply

    grid.nodes[node].app = app
    return trained


def test_garbage_costs_its_sender_this_round(tmp_path):
    """Client 1 spoils every second answer, each in another way: rejected then, accepted otherwise.
    Nobody waits longer for it."""
    n = 2 * len(SPOILED) + 1
    setup = experiment(
        population=3,
        cohort=3,
        stop={"rounds": n},
        local={"steps": 1, "batch_size": 8},
        evaluate={"every": 100},
    )
    grid = federation(setup, tmp_path)
    kinds = iter(SPOILED.values())

    def spoil(message, reply):
        if open_order(message.content["motley"]["message"]).round % 2 == 0:
            reply.content["motley"]["message"] = next(kinds)(reply.content["motley"]["message"])

    meddled(grid, 101, spoil)
    Bomb.ran = False
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    outcomes = clients["outcome"][clients["client"] == 1]
    assert dict(zip(SPOILED, outcomes[1::2].tolist(), strict=True)) == dict.fromkeys(
        SPOILED, "rejected"
    )
    assert (outcomes[::2] == "accepted").all()
    assert (clients["outcome"][clients["client"] != 1] == "accepted").all()
    assert not Bomb.ran
    assert np.ptp(clients["start_s"]) < 1.3 * n


def test_replies_without_letters_are_rejected(tmp_path):
    setup = experiment(population=3, cohort=3, stop={"rounds": 2})
    grid = federation(setup, tmp_path)
    meddled(grid, 101, lambda message, reply: reply.content.pop("motley"))
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    assert set(clients["outcome"][clients["client"] == 1]) == {"rejected"}


def test_unreadable_replies_are_rejected(tmp_path):
    setup = experiment(population=3, cohort=3, stop={"rounds": 2})
    grid = federation(setup, tmp_path)

    def spoil(message, reply):
        grid.nodes[101].unreadable = True

    meddled(grid, 101, spoil, which=2)
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    assert clients["outcome"][clients["client"] == 1].tolist() == ["accepted", "rejected"]


def test_a_client_whose_work_fails_is_dropped(tmp_path):
    setup = experiment(population=3, cohort=3, stop={"rounds": 2})
    grid = federation(setup, tmp_path)

    def spoil(message, reply):
        raise RuntimeError("out of memory")

    meddled(grid, 101, spoil)
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    assert set(clients["outcome"][clients["client"] == 1]) == {"dropped"}


def test_a_site_with_another_experiment_says_so_and_does_nothing(tmp_path, caplog):
    setup = experiment(population=2, cohort=2, stop={"rounds": 1})
    other = experiment(population=2, cohort=2, seed=9)
    grid = federation(setup, tmp_path)
    grid.nodes[101].app = federation(other, tmp_path).nodes[101].app
    limits = dataclasses.replace(SOON, start_s=5.0)
    clients = columns(deploy(grid, setup, tmp_path / "real", limits=limits), "clients")
    assert set(clients["client"]) == {0}
    assert "another experiment" in caplog.text


def test_what_the_server_alone_decides_may_differ_at_a_site(tmp_path):
    setup = experiment(population=2, cohort=2, stop={"rounds": 1})
    other = experiment(
        population=2,
        cohort=1,
        stop={"rounds": 9},
        selector="power_of_choice",
        synchrony="deadline",
        name="x",
    )
    clients = columns(deploy(federation(other, tmp_path), setup, tmp_path / "real"), "clients")
    assert (clients["outcome"] == "accepted").all()


@given(st.binary(max_size=400))
def test_no_bytes_are_more_than_an_error(data):
    for reader in (open_order, opened):
        with pytest.raises(CodecError):
            reader(data)


EVIL = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abcduvtsfkl"), inner, max_size=3)
    ),
    max_leaves=6,
)


def with_header(body):
    """Bytes that begin as ours do, with a sound sum."""
    raw = struct.pack("<4sHI", b"MTLY", codec.FORMAT, len(body)) + body
    return numbered(raw + checksum(raw).digest())


@given(st.sampled_from([f.name for f in dataclasses.fields(Answer)]), EVIL)
def test_fields_of_other_types_are_refused(name, value):
    fields = {f.name: getattr(Answer("r", 0, 1, 2), f.name) for f in dataclasses.fields(Answer)}
    kind = dataclasses.make_dataclass("Answer", list(fields), frozen=True)
    try:
        answer = opened(numbered(codec.encode(kind(**{**fields, name: value}))))
    except CodecError:
        return
    assert type(getattr(answer, name)) is type(fields[name])


@given(EVIL)
def test_headers_that_no_program_of_ours_writes_are_refused(value):
    with pytest.raises(CodecError):
        opened(with_header(json.dumps(value).encode()))


def test_a_header_nested_without_end_is_refused():
    with pytest.raises(CodecError):
        opened(with_header(b'{"l":[' * 100_000 + b"]}" * 100_000))


def test_a_long_header_is_refused_before_it_is_read():
    with pytest.raises(CodecError, match="header of 80000 bytes"):
        opened(with_header(b"[" + b" " * 79_998 + b"]"))


def test_runs_have_names_that_are_no_paths():
    for run in ("../../etc", "a/b", "", ".", "x" * 65, "a\x00b"):
        with pytest.raises(CodecError, match="got an order"):
            open_order(Order("train", run, "c", 0).seal())


def test_tensors_travel_as_they_are():
    like = {
        "x": torch.randn(3, 4, dtype=torch.float64),
        "n": torch.arange(5),
        "none": torch.zeros(0),
    }
    there = unpack(pack(like), like)
    assert all(
        torch.equal(there[name], like[name]) and there[name].dtype == like[name].dtype
        for name in like
    )
    for other in (
        {"x": like["x"]},
        {**like, "x": torch.zeros(12)},
        {**like, "x": torch.zeros(5, dtype=torch.float64)},
    ):
        with pytest.raises(CodecError):
            unpack(pack(like), other)


def test_buffers_alone_may_hold_what_is_not_finite_and_uploads_only_what_the_server_has():
    mask = torch.tensor([0.0, -torch.inf, torch.nan])
    there = unpack(pack({"buffers": mask}), {"buffers": mask})["buffers"]
    torch.testing.assert_close(there, mask, equal_nan=True)
    with pytest.raises(CodecError, match="part 'x' holds a number that is not finite"):
        pack({"x": mask})
    assert _sound("buffers", mask, mask) is mask
    for before in (None, torch.zeros(3), mask.roll(1)):
        with pytest.raises(CodecError, match="part 'buffers' holds a number that is not finite"):
            _sound("buffers", mask, before)


# ------------------------------------------------------------------------------------- compression


TOPK = {"compressor": {"name": "topk"}, "feedback": {"name": "fixed"}}


def test_all_of_an_update_is_the_dense_update(tmp_path):
    dense = experiment()
    whole = experiment(**TOPK, budget={"name": "constant", "average": 1.0})
    first = deploy(federation(dense, tmp_path / "a"), dense, tmp_path / "dense")
    second = deploy(federation(whole, tmp_path / "b"), whole, tmp_path / "whole")
    assert same_model(first, second)


@pytest.mark.parametrize(
    "keys",
    [
        {**TOPK, "budget": {"name": "constant", "average": 0.05}},
        {"compressor": "topk", "feedback": "adaptive", "budget": {"name": "cosine", "warm_up": 0}},
        {"compressor": "qsgd"},
        {
            "compressor": {"name": "topk", "criterion": "curvature"},
            "budget": {"name": "constant", "average": 0.1},
        },
        {
            "compressor": "topk",
            "feedback": "ef21",
            "budget": {"name": "constant", "average": 0.1},
            "weights": "uniform",
        },
    ],
    ids=["topk", "cosine", "qsgd", "curvature", "ef21"],
)
def test_what_is_billed_is_what_travels_and_the_numbers_are_the_simulators(keys, tmp_path):
    setup = experiment(**keys)
    grid = federation(setup, tmp_path)
    letters = []

    def seen(message, reply):
        letters.append((message.content["motley"]["message"], reply.content["motley"]["message"]))

    for node in grid.nodes:
        meddled(grid, node, seen)
    done = deploy(grid, setup, tmp_path / "real")
    clients = columns(done, "clients")
    rounds = columns(done, "rounds")
    down, up = zip(*letters, strict=True)
    assert sorted(clients["bits_up"]) == sorted(8 * len(letter) for letter in up)
    assert sorted(clients["bits_down"]) == sorted(8 * len(letter) for letter in down)
    assert rounds["up_bits"].sum() == 8 * sum(map(len, up))
    assert rounds["down_bits"].sum() == 8 * sum(map(len, down))
    size = max(len(opened(letter).upload) for letter in up)
    assert max(map(len, up)) < size + 1000 < size + SPARE
    assert max(map(len, up)) < 0.7 * min(map(len, down))  # which hold the whole model
    assert same_model(done, motley.run(setup, out=tmp_path / "simulated"))


def test_what_was_not_sent_lies_at_the_site_and_nowhere_else(tmp_path):
    setup = experiment(population=2, cohort=2, **TOPK, budget={"name": "constant", "average": 0.05})
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    kept = sorted((tmp_path / "sites").rglob("*.safetensors"))
    assert [path.name for path in kept] == ["client-0.safetensors", "client-1.safetensors"]
    assert all(path.stat().st_size > 8 * 1000 for path in kept)
    assert [path.name for path in done.directory.rglob("*.safetensors")] == ["model.safetensors"]


# ------------------------------------------------------------------------- other versions of Motley


def of_protocol(letter, number):
    """The letter as a Motley of another protocol writes it; None: of one from before there were
    numbers."""
    return letter[6:] if number is None else b"MTLD" + struct.pack("<H", number) + letter[6:]


ORDER = Order("enrol", "run", "c0ffee", 1)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (PROTOCOL + 1, f"speaks protocol {PROTOCOL + 1}, and"),
        (None, "protocol without a number, of an older"),
    ],
)
def test_messages_of_another_protocol_are_refused_in_a_sentence(number, said):
    for letter, read, sender in (
        (ORDER.seal(), open_order, "server"),
        (Answer("run", 1, 0, -1).seal(), opened, "client"),
    ):
        with pytest.raises(
            CodecError, match=f"^the {sender} speaks a? ?.*install the same version of Motley"
        ) as refused:
            read(of_protocol(letter, number))
        assert said in str(refused.value)
        assert f"this Motley {motley.__version__} speaks protocol {PROTOCOL};" in str(refused.value)


def test_what_a_newer_motley_writes_inside_does_not_matter():
    with pytest.raises(CodecError, match="speaks protocol 9"):
        open_order(
            of_protocol(b"MTLD\x01\x00 fields, a checksum and a codec that nobody knows yet", 9)
        )
    for data in (b"", b"MTLD", b"MTLD\x01", b"another program's"):
        with pytest.raises(CodecError, match="no message of a Motley server"):
            open_order(data)


@pytest.mark.parametrize("direction", ["orders", "answers"])
def test_a_server_says_that_its_clients_have_another_version(tmp_path, direction):
    setup = experiment(population=2, cohort=2)
    grid = federation(setup, tmp_path)
    for node in grid.nodes.values():

        def app(message, context, good=node.app):
            record = message.content["motley"]
            if direction == "orders" and "message" in record:
                record["message"] = of_protocol(record["message"], PROTOCOL + 1)
            reply = good(message, context)
            if direction == "answers" and "message" in record:
                reply.content["motley"]["message"] = of_protocol(
                    reply.content["motley"]["message"], PROTOCOL + 1
                )
            return reply

        node.app = app
    sender = "server" if direction == "orders" else "client"
    with pytest.raises(
        motley.ConfigError,
        match=rf"all \d clients refuse \(client \d answered: .*the {sender} speaks protocol "
        rf"{PROTOCOL + 1}",
    ):
        deploy(grid, setup, tmp_path / "real")


def test_a_client_of_another_version_in_mid_run_costs_its_own_part_until_it_is_back(tmp_path):
    """Client 1 is updated after round 1 and set back after round 3; nobody else notices."""
    setup = experiment(population=3, cohort=3)
    grid = federation(setup, tmp_path)
    good = grid.nodes[101].app

    def updated(message, context):
        sent = message.content["motley"].get("message", b"")
        other = message.metadata.message_type == "train.motley" and open_order(sent).round in (2, 3)
        if other:  # it does not read the order, and says so in its own way
            message.content["motley"]["message"] = of_protocol(sent, PROTOCOL + 1)
        return good(message, context)

    grid.nodes[101].app = updated
    done = deploy(grid, setup, tmp_path / "real")
    rows = done.tables["clients"].to_pylist()
    outcomes = {client: [] for client in range(3)}
    for row in sorted(rows, key=lambda row: row["round"]):
        outcomes[row["client"]].append(row["outcome"])
    assert outcomes[0] == outcomes[2] == ["accepted"] * 4
    assert outcomes[1] == ["accepted", "dropped", "dropped", "accepted"]
    said = [one["reason"] for one in done.tables["incidents"].to_pylist() if one["client"] == 1]
    assert all(f"the server speaks protocol {PROTOCOL + 1}" in one for one in said), said
