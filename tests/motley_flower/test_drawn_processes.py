"""Verified draws in Motley's own loop on real processes: a SuperLink, four SuperNodes, and a
ServerApp that is killed in mid-round.

``make test-flower``; needs the extras ``flower`` and ``privacy``. The clients must accept the
rounds of the server that was submitted again, which leaves out the round that was under way and
goes on with the chain that they agreed on. It takes some minutes, nearly all of it Flower's own
starting of processes.
"""

from __future__ import annotations

import json

import pytest

import motley
from motley.core import codec
from motley_flower.secure.keyfiles import as_register, new_identity
from motley_flower.secure.verifiable_draws import verify_draws
from tests.motley_flower.loopback import Loopback, write_app
from tests.motley_flower.started import ended_like_interrupted, nothing_left
from tests.motley_flower.test_private_processes import CLIENTS, MASKED, OWN_CLIENT, OWN_SERVER

pytestmark = pytest.mark.flower

SETTINGS = """
from motley_flower.secure.terms import SecureOptions

FOLDER, KEYS, SECURE = {folder!r}, {keys!r}, True
OPTIONS = SecureOptions(clip=1.0, bits=24, draws=3, cohort=3)
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What a deployment left whose ServerApp was killed after round 1, and the bytes that the
    clients had agreed on by then."""
    pytest.importorskip("flwr")
    base = tmp_path_factory.mktemp("drawn")
    left = base / "left"
    left.mkdir()
    register = {k: new_identity(left / f"key-{k}") for k in range(CLIENTS)}
    (left / "register.json").write_text(json.dumps(register))
    shared = SETTINGS.format(
        folder=str(left), keys={**MASKED, "name": "drawn", "stop": {"rounds": 3}}
    )
    app = write_app(base / "app", __init__=shared, server=OWN_SERVER, client=OWN_CLIENT)
    there = Loopback(base / "there", CLIENTS)
    try:
        with ended_like_interrupted():
            there.up()
            there.wait_for(there.run("first", app, left / "run"), "round 1 of 3", 1800)
            assert there.kill_server()
            there.wait_for_end("first", 600)
            newest = max((left / "run" / "checkpoints").glob("checkpoint-*.mtly"))
            (left / "frozen").write_bytes(
                codec.decode(codec.decode(newest.read_bytes())["clients"]["draws"])["frozen"]
            )
            there.wait_for(there.run("second", app, left / "run"), "the end", 1800)
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    return left


def test_clients_accept_the_rounds_of_a_server_that_was_killed(left):
    done = motley.load(left / "run")
    told = (left / "run" / "draws.json").read_text()
    assert verify_draws(told, as_register(left / "register.json")) == 3
    assert bytes.fromhex(json.loads(told)["end"]) in (left / "frozen").read_bytes()
    cohorts = {t: set() for t in range(1, 4)}
    outcomes = {t: set() for t in range(1, 4)}
    columns = (done.column("clients", name) for name in ("round", "client", "outcome"))
    for t, client, outcome in zip(*columns, strict=True):
        cohorts[t].add(client)
        outcomes[t].add(str(outcome))
    # the server was killed in round 2, which is left out
    assert outcomes == {1: {"accepted"}, 2: {"dropped"}, 3: {"accepted"}}
    assert cohorts == {row["round"]: set(row["cohort"]) for row in json.loads(told)["rounds"]}


def test_every_client_agreed_once(left):
    for k in range(CLIENTS):
        assert len(list((left.parent / "there" / f"site-{k}").glob(f"*/secure-{k}.bin"))) == 1
