"""A Flower strategy with a selector and a folder on a real deployment over loopback: its server is
killed, the app submitted again.

``make test-flower``. FedAdam keeps moments of its own: the model must be, bit for bit, that of a
run in one process which nobody killed. About three minutes, nearly all of it Flower's own starting
of processes and waiting. Everything that is started is stopped.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

import motley
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.loopback import Loopback, until, write_app
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.flower

SERVER = """
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from loopback.rounds import deploy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    deploy(grid, str(context.run_config["out"]))
    print("the end", flush=True)
"""

ROUNDS = """
import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAdam

import motley
from motley_flower import with_selector


def distance(step, arrays):
    return MetricRecord({"loss": float(np.square(arrays["w"].numpy() - 2.0).sum())})


def deploy(grid, out, **options):
    uniform = motley.selectors.build("uniform", seed=0)
    strategy = with_selector(
        FedAdam(fraction_evaluate=0.0, eta=0.5), uniform, m=2, out=out, wait_s=200, **options
    )
    first = ArrayRecord({"w": Array(np.zeros(3))})
    return strategy.start(grid, first, num_rounds=3, timeout=300, evaluate_fn=distance)
"""

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from motley_flower import enrolled

app = ClientApp()


@app.query("motley_enrol")
def enrol(message, context):
    return enrolled(message, context, num_examples=10)


@app.train()
def train(message, context):
    w = message.content["arrays"]["w"].numpy()
    new = w + 0.5 * (context.node_config["partition-id"] + 1.0 - w)
    metrics = MetricRecord({"num-examples": 10, "loss": float(np.square(new - w).sum())})
    content = RecordDict({"arrays": ArrayRecord({"w": Array(new)}), "metrics": metrics})
    return Message(content, reply_to=message)
"""


def in_two_runs(there, app, out):
    """The first one's server is killed after a round."""
    there.up()
    first = there.run("first", app, out)
    until(lambda: "round 1 of 3" in first.read_text(), 600, there.logs)
    assert there.kill_server(), there.logs()
    until(lambda: there.running["first"].poll() is not None, 120, there.logs)
    left = motley.load(out)
    assert (left.finished, left.column("rounds", "round")[0]) == (False, 1)
    second = there.run("second", app, out)
    until(
        lambda: "the end" in second.read_text() or there.running["second"].poll() is not None,
        600,
        there.logs,
    )
    assert "the end" in second.read_text(), there.logs()
    assert re.search(
        r"^out, round 1 of 3, asked \d and \d, 2 accepted, loss [\d.]+, [\d.]+ MB, \d+ s$",
        first.read_text(),
        re.M,
    )
    assert re.search(
        r"^out, resumed at round [23] of 3(, which is trained and not evaluated yet)?, tables in ",
        second.read_text(),
        re.M,
    )
    assert "out, round 1 of 3" not in second.read_text()


def in_one_process(folder, app):
    """The same app, never killed, on a grid in this process."""
    sys.path.insert(0, str(app))
    try:
        from loopback import client, rounds

        grid = FakeGrid({70 - k: FakeNode(client.app, {"partition-id": k}) for k in range(3)})
        rounds.deploy(grid, folder, clock=grid.clock)
    finally:
        sys.path.remove(str(app))
        for name in [name for name in sys.modules if name.partition(".")[0] == "loopback"]:
            del sys.modules[name]


def test_killed_and_begun_again_it_is_the_run_of_one_process_bit_for_bit(tmp_path):
    pytest.importorskip("flwr")
    app = write_app(tmp_path / "app", __init__="", server=SERVER, client=CLIENT, rounds=ROUNDS)
    out = tmp_path / "out"
    there = Loopback(tmp_path / "there", 3)
    try:
        with ended_like_interrupted():
            in_two_runs(there, app, out)
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    in_one_process(tmp_path / "whole", app)
    done = motley.load(out)
    whole = motley.load(tmp_path / "whole")
    assert done.finished
    assert done.column("rounds", "round").tolist() == [1, 2, 3]
    for table, columns in {
        "clients": ("round", "dispatch", "client", "outcome", "loss"),
        "evaluations": ("round", "loss"),
    }.items():
        for column in columns:
            assert done.tables[table][column].equals(whole.tables[table][column]), column
    real, made = (load_file(run.directory / "model.safetensors") for run in (done, whole))
    assert (real["w"] == made["w"]).all()
    page = (out / "report.html").read_text()
    assert all(
        words in page for words in ("How the clients did", "wall hours", "How long a round took")
    )
    shown = subprocess.run(
        [sys.executable, "-m", "motley", "report", str(out), "--out", str(tmp_path / "report.md")],
        check=False,
    )
    assert shown.returncode == 0
