"""The doors of a deployment on real processes: SuperLink, nginx, SuperNodes by their kits, and an
outsider with nothing but ca.crt.

``make test-deployment``; some minutes, nearly all of it Flower's own starting of processes.
docs/deploy/parties.md says what each party can do, and which of these tests holds it.
"""

from __future__ import annotations

import json
import os

import pytest

import motley
from tests.motley_flower.conftest import HERE
from tests.motley_flower.loopback import until, write_app
from tests.motley_flower.proxied import NGINX, Proxied, new_key
from tests.motley_flower.started import ended_like_interrupted, listening, nothing_left

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(
        not HERE, reason="Flower is not installed; make test-deployment builds its environment"
    ),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed; apt-get install nginx-light"),
]

NAMES = ("site_alder", "site_birch", "site_cedar")
KEYS = {
    "name": "doors",
    "population": 3,
    "cohort": 3,
    "stop": {"rounds": 7},
    "synchrony": {"name": "synchronous", "idle_s": 15.0},
    "task": {"name": "synthetic", "sizes": "equal", "examples": 40, "dim": 8, "classes": 3},
    "local": {"steps": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
    "algorithm": "scaffold",
    "evaluate": {"every": 1},
    "engine": {"name": "sequential", "threads": 1},
    "dtype": "float64",
}

SERVER = """
import logging
import sys
import time
from pathlib import Path

from flwr.serverapp import ServerApp

from loopback import CLIENTS, KEYS
from motley_flower.deployed.server_app import Limits, run

app = ServerApp()


@app.main()
def main(grid, context):
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))

    def told(done):
        print(f"step {done.round}. accepted {done.accepted}", flush=True)
        end = time.monotonic() + 200  # the test does something between two rounds
        go_on = Path(CLIENTS).parents[1] / f"step-{done.round}"
        while not go_on.exists() and time.monotonic() < end:
            time.sleep(0.2)

    limits = Limits(start_s=70, work_s=150, query_s=60, poll_s=0.5, look_s=1, pause_s=10)
    out = context.run_config["out"]
    run(grid, KEYS, out=out, limits=limits, told=told, progress=False, clients=CLIENTS)
    print("the end", flush=True)
"""
CLIENT = """
from flwr.clientapp import ClientApp

from loopback import KEYS
from motley_flower.deployed.client_app import serve

app = ClientApp()
serve(app, KEYS)
"""
STRATEGY = """
import logging
import sys

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import motley
from loopback import CLIENTS
from motley_flower import participation, with_selector

app = ServerApp()


@app.main()
def main(grid, context):
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    uniform = motley.selectors.build("uniform", seed=0)
    strategy = with_selector(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=1), uniform, m=3, wait_s=5,
        query_limit_s=60, out=context.run_config["out"], clients=CLIENTS, max_examples=100,
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(300_000))}), num_rounds=1, timeout=100)
    print(participation(strategy.motley))
    print("the end", flush=True)
"""
STRATEGY_CLIENT = """
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from motley_flower import enrolled

app = ClientApp()


@app.query("motley_enrol")
def enrol(message, context):
    return enrolled(message, context, num_examples=10)


@app.train()
def train(message, context):
    content = {"arrays": ArrayRecord({"w": Array(message.content["arrays"]["w"].numpy() + 1.0)}),
               "metrics": MetricRecord({"num-examples": 10})}
    return Message(RecordDict(content), reply_to=message)
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    it = Proxied(tmp_path_factory.mktemp("doors"), NAMES)
    try:
        with ended_like_interrupted():
            it.up()
            yield it
    finally:
        it.stop()
    assert not nothing_left(it.there)


@pytest.fixture(scope="module")
def app(there):
    settings = f"CLIENTS = {str(there.there / 'clients.toml')!r}\nKEYS = {KEYS!r}\n"
    return write_app(there.folder / "app", __init__=settings, server=SERVER, client=CLIENT)


# ------------------------------------------------------------------------------------- the outsider


def test_an_outsider_can_neither_register_nor_list_nor_run_nor_stop(there, app):
    """With nothing but ca.crt; before there was a proxy, each of these did what it says (the next
    test)."""
    home = there.outsider("outside", there.port)
    key = new_key(home / "stranger")
    for words in (
        ("supernode", "register", f"{key}.pub", "there"),
        ("supernode", "list", "there"),
        ("list", "there"),
        ("run", app, "there"),
        ("stop", "1", "there"),
    ):
        done = there.flwr(home, *words)
        assert done.returncode, done.stdout
        assert "404" in done.stdout, done.stdout
    assert "SuperNode" not in there.flwr(there.operator, "list", "here").stdout
    there.start_node("stranger", key, 0, there.ports[-1])
    until(
        lambda: (
            "No SuperNode found with the given public key"
            in (there.folder / "server.log").read_text()
        ),
        60,
        there.logs,
    )
    there.kill("stranger")
    assert listening(there.there / "server") == {"127.0.0.1"}  # all of Flower's


def test_check_finds_all_doors_shut_and_the_one_that_was_open(there):
    done = there.motley("check", there.there)
    *lines, last = [line for line in done.stdout.splitlines() if not line.startswith("motley: ")]
    assert {line.split()[0] for line in lines} == {"shut"}, done.stdout
    # no firewall is loaded here; who is not root cannot try it, which is no pass, either
    sign = "OPEN " if os.geteuid() == 0 else "?    "
    assert last.startswith(f"{sign} another account of the server's machine: "), done.stdout
    assert done.returncode == 1
    other = there.folder / "other"
    assert there.motley("init", other, "--server", "127.0.0.1", "--clients", "a").returncode == 0
    # of another authority: it does not take this server for its own
    home = there.outsider("believer", there.port)
    (home / "ca.crt").write_bytes((other / "server" / "ca.crt").read_bytes())
    done = there.flwr(home, "list", "there")
    assert done.returncode
    assert "404" not in done.stdout, done.stdout
    # the same deployment as it was before: clients at the SuperLink's own port
    bare = there.folder / "bare"
    bare.mkdir()
    for name in ("authority", "server", "clients", "clients.toml"):
        (bare / name).symlink_to(there.there / name)
    (bare / "deployment.toml").write_text(
        f'server = "127.0.0.1"\nport = {there.link_port}\nlink_port = {there.link_port}\n'
    )
    done = there.motley("check", bare)
    assert done.returncode == 1
    opened = [line for line in done.stdout.splitlines() if line.startswith("OPEN")]
    assert any(
        "the control interface, from a client's address: HTTP 200" in line for line in opened
    ), done.stdout


# ------------------------------------------------------------------------------------- clients


@pytest.fixture(scope="module")
def nodes(there):
    """Alder and cedar by their kits; birch, and a key that only the SuperLink knows, claim to be
    alder."""
    intruder = new_key(there.folder / "intruder")
    assert (
        there.flwr(there.operator, "supernode", "register", f"{intruder}.pub", "here").returncode
        == 0
    )
    there.start_client("site_alder")
    there.start_client("site_cedar")
    there.start_node(
        "birch", there.there / "clients" / "site_birch" / "node.key", 0, there.ports[-2]
    )
    there.start_node("intruder", intruder, 0, there.ports[-3])
    return there


def go_on(there, step):
    (there.folder / f"step-{step}").touch()


def test_a_client_is_its_key_in_the_own_loop(nodes, app):
    """Alder goes away and comes back; nobody is client 0 meanwhile, and cedar, revoked, is none
    from the next round on."""
    there = nodes
    out = nodes.folder / "own"
    log = there.submit("own", app, out)
    there.wait_for(log, "step 1. accepted 2", 250)
    there.running["site_alder"].terminate()
    there.running["site_alder"].wait(30)
    go_on(there, 1)
    there.wait_for(log, "step 2. accepted 1", 150)
    done = there.motley("revoke", "site_cedar", "--dir", there.there)
    assert "the SuperLink knows" in done.stdout, done.stdout
    there.start_client("site_alder")
    until(
        lambda: (
            (there.folder / "server.log").read_text().count("[Fleet.ActivateNode] Activated") >= 5
        ),
        60,
        there.logs,
    )
    for step in range(2, 8):
        go_on(there, step)
    there.wait_for(log, "the end", 250)
    run = motley.load(out)
    rows = run.tables["clients"].to_pylist()
    took = {(row["round"], row["client"]) for row in rows if row["outcome"] == "accepted"}
    assert {one for one in took if one[0] < 3} == {(1, 0), (1, 2), (2, 2)}
    assert {client for step, client in took if step > 2} == {0}
    told = [
        (row["client"], row["event"], row["reason"]) for row in run.tables["incidents"].to_pylist()
    ]
    birch = next(why for client, event, why in told if (client, event) == (1, "refused"))
    assert birch.startswith("site_birch, node ")
    assert "says that it is client 0 (site_alder); by its key it is site_birch" in birch
    assert any(
        "is not in clients.toml" in why
        for client, event, why in told
        if (client, event) == (-1, "refused")
    )
    assert run.meta["clients"] == {"0": "site_alder", "1": "site_birch", "2": "site_cedar"}
    page = (out / "report.html").read_text()
    assert "site_alder" in page
    assert 'said">client 0<' not in page
    assert not [
        path
        for part in (out, there.there)
        for path in part.rglob("*")
        if path.stat().st_mode & 0o077
    ]
    path = there.there / "log.jsonl"
    until(lambda: '"event": "ended"' in path.read_text(), 60, there.logs)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert {
        "submitted",
        "ended",
        "begun",
        "added",
        "registered",
        "run",
        "refused",
        "revoked",
        "unregistered",
    } <= {one["event"] for one in events}
    assert "motley/loopback" in next(one["app"] for one in events if one["event"] == "run")


def test_a_client_is_its_key_in_a_strategy(nodes):
    """Dogwood, whose key was made by ssh-keygen, is added while the deployment runs; birch still
    claims to be alder."""
    there = nodes
    key = new_key(there.folder / "dogwood")
    done = there.motley("add", "site_dogwood", "--dir", there.there, "--key", f"{key}.pub")
    assert "site_dogwood is client 3" in done.stdout, done.stdout
    kit = there.there / "clients" / "site_dogwood"
    (kit / "node.key").write_bytes(key.read_bytes())
    there.names.append("site_dogwood")
    there.start_client("site_dogwood")
    settings = f"CLIENTS = {str(there.there / 'clients.toml')!r}\n"
    app = write_app(
        there.folder / "strategy", __init__=settings, server=STRATEGY, client=STRATEGY_CLIENT
    )
    log = there.submit("strategy-run", app, there.folder / "strategy-out")
    there.wait_for(log, "the end", 250)
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(line[1] for line in lines if line[2:3] == ["accepted"]) == [
        "site_alder",
        "site_birch",
        "site_dogwood",
    ]
    told = motley.load(there.folder / "strategy-out").tables["incidents"].to_pylist()
    assert any(
        row["client"] == 1 and "by its key it is site_birch" in row["reason"] for row in told
    )
