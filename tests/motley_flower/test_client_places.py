"""Who is which client: by the file of clients and the key that the SuperLink tells, or by claims;
and what is noted of it."""

from __future__ import annotations

import json

import pytest

from motley.core.errors import ConfigError
from motley_flower.client_list import ClientList, fingerprint
from motley_flower.node_registry import NodeRegistry
from tests.motley_flower.fake_grid import FakeGrid, FakeNode, echo
from tests.motley_flower.keys import client_file, public_key

NAMES = ("alder", "birch", "cedar")


def node(key, claims=None, **options):
    """A node with a key that claims to be a client, that of its key unless given."""
    config = {"partition-id": key if claims is None else claims}
    return FakeNode(echo, config, public_key=public_key(key), **options)


@pytest.fixture
def listed(tmp_path):
    return ClientList(client_file(tmp_path / "clients.toml", NAMES))


def incidents(registry):
    return [(one.client, one.event) for one in registry.places.take()]


# ------------------------------------------------------------------------------------- with a file


def test_a_node_is_the_client_of_its_key_whatever_it_claims(listed):
    grid = FakeGrid({5: node(1, claims=0), 9: node(0)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    known.refresh(grid)
    assert known.node_of == {0: 9, 1: 5}
    (told,) = known.places.take()
    assert (told.client, told.event) == (1, "refused")
    assert "birch, node 5" in told.reason
    assert "(alder)" in told.reason
    assert "by its key it is birch" in told.reason


@pytest.mark.parametrize("order", [(5, 9), (9, 5)])
def test_two_claims_at_one_look_are_decided_by_the_file(listed, order):
    first, second = order
    grid = FakeGrid({first: node(7, claims=0), second: node(0)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    known.refresh(grid)
    assert known.node_of == {0: second}
    # a stranger is asked nothing
    assert [message.metadata.dst_node_id for message in grid.sent] == [second]
    (told,) = known.places.take()
    assert (told.client, told.event) == (-1, "refused")
    assert fingerprint(public_key(7)) in told.reason


def test_nobody_takes_the_place_of_a_client_that_is_dead_or_restarts(listed):
    """The outsider claims client 0 from the start, waits, and trained as it once the rightful node
    was gone or was started anew."""
    grid = FakeGrid({5: node(0), 7: node(8, claims=0)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    known.refresh(grid)
    grid.restart(5)
    known.refresh(grid)
    assert known.node_of == {0: 5}
    grid.kill(5)
    grid.sleep(60)
    known.refresh(grid)
    assert known.node_of == {}
    grid.revive(5)
    known.refresh(grid)
    assert known.node_of == {0: 5}
    # and so after a resume
    assert NodeRegistry(clock=grid.clock, clients=listed).refresh(grid)[0].id == 0


def test_a_revoked_client_is_refused_at_the_next_look_and_one_that_is_added_is_taken(
    listed, tmp_path
):
    grid = FakeGrid({5: node(0), 6: node(1), 7: node(3)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    known.refresh(grid)
    assert known.node_of == {0: 5, 1: 6}
    client_file(tmp_path / "clients.toml", (*NAMES, "dogwood"), birch="2026-11-24")
    known.places.take()
    known.refresh(grid)
    assert known.node_of == {0: 5, 3: 7}
    (told,) = known.places.take()
    assert (told.client, told.event) == (1, "refused")
    assert "birch, node 6" in told.reason
    assert "revoked since 2026-11-24" in told.reason


def test_a_file_that_breaks_leaves_what_it_said_before(listed, tmp_path, caplog):
    grid = FakeGrid({5: node(0)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    (tmp_path / "clients.toml").write_text("[[client")
    known.refresh(grid)
    assert known.node_of == {0: 5}
    assert "what it said before still counts" in caplog.text


def test_a_new_key_of_a_client_is_an_incident_that_names_both(listed, tmp_path):
    grid = FakeGrid({5: node(0), 7: node(4, claims=0)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    known.refresh(grid)
    known.places.take()
    client_file(tmp_path / "clients.toml", NAMES, keys={0: 4})
    known.refresh(grid)
    assert known.node_of == {0: 7}
    told = [one.reason for one in known.places.take() if one.event == "changed"]
    assert told == [
        f"client 0 is node 7 ({fingerprint(public_key(4))}) now, and was node 5 "
        f"({fingerprint(public_key(0))})"
    ]


def test_nodes_that_name_no_client_are_those_of_their_keys(listed):
    grid = FakeGrid(
        {
            5: FakeNode(raising, {}, public_key=public_key(2)),
            6: FakeNode(raising, {}, public_key=public_key(0)),
        }
    )
    known = NodeRegistry(clock=grid.clock, clients=listed, lacks=lambda told: "")
    known.refresh(grid)
    assert known.node_of == {0: 6, 2: 5}
    assert known.numbers == {}


def raising(message, context):
    raise ValueError("No query function registered with name 'motley_enrol'")


def test_what_happens_stands_in_the_dated_log(listed, tmp_path):
    grid = FakeGrid({5: node(1, claims=0), 7: node(9, claims=2)})
    listed.log_run(grid)
    NodeRegistry(clock=grid.clock, clients=listed).refresh(grid)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(one["event"], one.get("client"), one.get("name")) for one in lines] == [
        ("run", None, None),
        ("refused", -1, ""),
        ("refused", 1, "birch"),
    ]
    assert all(one["at"].endswith("Z") and "@" in one["by"] for one in lines)
    assert (tmp_path / "log.jsonl").stat().st_mode & 0o077 == 0


def test_strangers_without_number_do_not_fill_the_log(listed):
    grid = FakeGrid({k: node(50 + k % 3) for k in range(1, 400)})
    known = NodeRegistry(clock=grid.clock, clients=listed)
    known.refresh(grid)
    assert len(told := known.places.take()) == 101
    assert told[-1].reason.endswith("further ones are not noted")


def test_no_other_client_can_compute_the_id_of_a_message(listed):
    """A reply names its message by a hash of it, and the SuperLink does not compare the sender's
    key with the node that it names."""
    from motley_flower.deployed.grid_transport import GridTransport, bytes_in

    grid = FakeGrid({5: node(0)})
    transport = GridTransport(grid, clock=grid.clock, clients=listed)
    transport.clients()
    grid.sleep(2)
    transport.clients()
    for _ in range(2):
        transport.push({0: b"the same"}, "train", 10.0)
    first, second = grid.sent[-2:]
    assert bytes_in(first) == bytes_in(second) == b"the same"
    hidden = {one.content["motley"]["unique"] for one in (first, second)}
    assert len(hidden) == 2
    assert all(len(one) == 16 for one in hidden)


# ------------------------------------------------------------------------------------- without one


def test_without_a_file_a_node_that_starts_again_keeps_its_place_until_its_limit():
    """One restart of the rightful node under its old node id, and the one that waited was the
    client."""
    grid = FakeGrid({5: node(0)})
    known = NodeRegistry(clock=grid.clock, wait=False, limit_s=20.0)
    known.refresh(grid)
    grid.sleep(2)
    known.refresh(grid)
    assert known.node_of == {0: 5}
    grid.nodes[3] = node(8, claims=0)  # the lower id
    for _ in range(2):
        known.refresh(grid)
        grid.sleep(2)
    assert known.node_of == {0: 5}
    assert incidents(known) == [(0, "waits")]
    grid.restart(5)
    known.refresh(grid)
    assert known.node_of == {}  # it has not said yet which client it is
    grid.sleep(2)
    known.refresh(grid)
    assert known.node_of == {0: 5}
    grid.nodes[5].delay_s = 1e6
    grid.restart(5)
    for _ in range(12):
        known.refresh(grid)
        assert known.node_of == {}
        grid.sleep(1.6)
    grid.sleep(2)
    known.refresh(grid)
    assert known.node_of == {0: 3}
    silent, told = known.places.take()
    assert (silent.client, silent.event, told.client, told.event) == (
        -1,
        "unanswered",
        0,
        "changed",
    )
    assert fingerprint(public_key(8)) in told.reason
    assert fingerprint(public_key(0)) in told.reason


def test_without_a_file_the_late_return_of_a_holder_is_noted():
    grid = FakeGrid({5: node(0), 7: node(8, claims=0)})
    known = NodeRegistry(clock=grid.clock)
    known.refresh(grid)
    grid.kill(5)
    grid.sleep(60)
    known.refresh(grid)
    grid.revive(5)
    known.refresh(grid)
    told = known.places.take()
    assert [(one.client, one.event) for one in told] == [(0, "waits"), (0, "changed"), (0, "waits")]
    assert f"node 5 ({fingerprint(public_key(0))}) claims client 0" in told[2].reason
    assert f"node 7 ({fingerprint(public_key(8))})" in told[2].reason


# ------------------------------------------------------------------------ files that cannot be used


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[client", "is no TOML"),
        ("", r"holds no clients; expected \[\[client\]\] tables with name, id and key"),
        ('[[client]]\nname = "a b"\nid = 0\nkey = ""', "expected name \\(letters, digits"),
        ('[[client]]\nname = "a"\nid = 0\nkey = "x"\nnode = 3', "expected name"),
        (
            '[[client]]\nname = "a"\nid = -1\nkey = "x"',
            "a with id = -1; expected a whole number from 0",
        ),
        (
            '[[client]]\nname = "a"\nid = 0\nkey = "ssh-rsa x"',
            "a with key = 'ssh-rsa x'; expected the line of its node.pub",
        ),
    ],
)
def test_a_file_of_anything_else_is_a_sentence(tmp_path, text, said):
    path = tmp_path / "clients.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        ClientList(path)
    with pytest.raises(ConfigError, match="motley deployment init DIR writes one"):
        ClientList(tmp_path / "none.toml")


def test_a_key_or_a_name_twice_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has the key 'ecdsa-.* twice"):
        ClientList(client_file(tmp_path / "clients.toml", NAMES, keys={1: 0}))
    with pytest.raises(ConfigError, match="has the name 'alder' twice"):
        ClientList(client_file(tmp_path / "clients.toml", ("alder", "alder")))
