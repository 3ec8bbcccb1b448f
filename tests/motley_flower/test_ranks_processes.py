"""Clients that hold fewer ranks of adapters, on real processes: a SuperLink and three SuperNodes.

``make test-flower``. It takes some minutes, nearly all of it Flower's own starting of processes.
"""

from __future__ import annotations

import pytest

import motley
from tests.motley_flower.loopback import Loopback, until, write_app
from tests.motley_flower.started import ended_like_interrupted, nothing_left
from tests.motley_flower.test_ranks import KEYS

pytestmark = pytest.mark.flower

SHARES = {1: 0.5, 2: 0.25}
SETTINGS = {**KEYS, "algorithm": "flexlora", "population": 6, "stop": {"rounds": 2}}
# no round takes a thousandth of a second: who was measured in the first holds the least afterwards
TOO_LATE = {"name": "by_deadline", "seconds": 0.001, "levels": [1.0, 0.5, 0.25]}
SHARED = """
from motley.experiments.config import Experiment

SETUP = Experiment(**{settings!r})
"""
SERVER = """
import logging
import sys

from flwr.serverapp import ServerApp

from loopback import SETUP
from motley_flower.deployed.server_app import Limits, run
from tests.motley_flower.test_ranks import task

app = ServerApp()


@app.main()
def main(grid, context):
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    limits = Limits(start_s=240, work_s=240, query_s=240, poll_s=0.5)
    run(grid, SETUP, out=context.run_config["out"], limits=limits, task=task())
    print("the end", flush=True)
"""
CLIENT = """
from flwr.clientapp import ClientApp

from loopback import SETUP
from motley_flower.deployed.client_app import serve
from tests.motley_flower.test_ranks import task

app = ClientApp()
serve(app, SETUP, task=lambda client, config: task())
"""


@pytest.mark.parametrize(
    ("capacity", "second"), [(None, [1.0, 0.5, 0.25]), (TOO_LATE, [0.25, 0.25, 0.25])]
)
def test_each_node_trains_the_ranks_that_it_can_hold(tmp_path, capacity, second):
    pytest.importorskip("flwr")
    shared = SHARED.format(settings={**SETTINGS, "task": "own", "capacity": capacity})
    app = write_app(tmp_path / "app", __init__=shared, server=SERVER, client=CLIENT)
    more = {k: f"share={share}" for k, share in SHARES.items()}
    there = Loopback(tmp_path / "there", 3, more=more)
    try:
        with ended_like_interrupted():
            there.up()
            log = there.run("ranks", app, tmp_path / "run")
            until(
                lambda: "the end" in log.read_text() or there.running["ranks"].poll() is not None,
                900,
                there.logs,
            )
            assert "the end" in log.read_text(), there.logs()
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    done = motley.load(tmp_path / "run")
    sent = zip(*(done.column("clients", k) for k in ("round", "client", "width")), strict=True)
    first = [(1, 0, 1.0), (1, 1, 0.5), (1, 2, 0.25)]
    assert sorted(sent) == [*first, *((2, k, width) for k, width in enumerate(second))]
    assert set(done.column("clients", "outcome")) == {"accepted"}
