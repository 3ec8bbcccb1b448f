"""Motley's own loop on a real Flower deployment over loopback: SuperLink, three SuperNodes, every
message a process of its own.

``make test-flower``; needs the extra ``flower``. SCAFFOLD with top-k and error feedback, the server
killed in the middle and begun again: the numbers must be the simulator's, bit for bit, so every
site remembered what it had to. It takes two to four minutes, nearly all of it Flower's own starting
of processes and waiting. Everything that is started is stopped.
"""

from __future__ import annotations

import re

import pytest
from safetensors.torch import load_file

import motley
from tests.motley_flower.loopback import Loopback, until, write_app
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.flower

KEYS = {
    "name": "loopback",
    "population": 3,
    "cohort": 2,
    "stop": {"rounds": 3},
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "split": {"test": "global"},
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "local": {"steps": 5, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "algorithm": "scaffold",
    "compressor": "topk",
    "feedback": "fixed",
    "budget": {"name": "constant", "average": 0.1},
    "evaluate": {"every": 1},
    "engine": {"name": "sequential", "threads": 1},
    "dtype": "float64",
}

SERVER = """
import logging
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from loopback import KEYS
from motley_flower.deployed.server_app import Limits, run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    limits = Limits(start_s=180, work_s=240, query_s=120, poll_s=0.5)

    def told(done):
        print("step", done.round, flush=True)

    run(grid, KEYS, out=context.run_config["out"], limits=limits, told=told)
    print("the end", flush=True)
"""

CLIENT = """
from flwr.clientapp import ClientApp

from loopback import KEYS
from motley_flower.deployed.client_app import serve

app = ClientApp()
serve(app, KEYS)
"""


def in_two_runs(there, app, out):
    """The first one's server is killed after a step."""
    there.up()
    first = there.run("first", app, out)
    until(lambda: "step 1" in first.read_text(), 600, there.logs)
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
    assert "step 1\n" not in second.read_text()
    assert re.search(
        r"^loopback, round 1 of 3, asked \d and \d, 2 accepted, accuracy 0\.\d+, [\d.]+ MB, \d+ s$",
        first.read_text(),
        re.M,
    )
    assert re.search(r"^loopback, resumed at round [23] of 3, tables in ", second.read_text(), re.M)
    assert re.search(r"^loopback, round 3 of 3, asked ", second.read_text(), re.M)


def test_killed_and_begun_again_it_is_the_simulation_bit_for_bit(tmp_path):
    pytest.importorskip("flwr")
    app = write_app(tmp_path / "app", __init__=f"KEYS = {KEYS!r}\n", server=SERVER, client=CLIENT)
    out = tmp_path / "out"
    there = Loopback(tmp_path / "there", 3)

    try:
        with ended_like_interrupted():
            in_two_runs(there, app, out)
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    done = motley.load(out)
    assert done.finished
    page = (out / "report.html").read_text()
    assert all(
        words in page for words in ("How the clients did", "wall hours", "How long a round took")
    )
    assert "--token" not in (out / "run.json").read_text()
    assert done.column("rounds", "round").tolist() == [1, 2, 3]
    assert set(done.column("clients", "outcome")) == {"accepted"}
    simulated = motley.run(KEYS, out=tmp_path / "simulated")
    for column in ("client", "dispatch", "loss", "update_norm"):
        assert done.tables["clients"][column].equals(simulated.tables["clients"][column]), column
    real, made = (load_file(run.directory / "model.safetensors") for run in (done, simulated))
    assert all((real[name] == made[name]).all() for name in made)
    kept = sorted(path.name for path in there.folder.glob("site-*/*/*.safetensors"))
    assert kept == [
        f"client-{k}.safetensors" for k in sorted(set(done.column("clients", "client").tolist()))
    ]
