"""The Flower app that the real processes of these tests run: Motley's round loop, with clients that follow a plan of faults."""

from __future__ import annotations

from tests.adapters.flower.loopback import write_app

KEYS = {
    "name": "faults", "population": 3, "cohort": 3, "stop": {"rounds": 6},
    "task": {"name": "synthetic", "sizes": "equal", "examples": 40, "dim": 8, "classes": 3},
    "local": {"steps": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}}, "algorithm": "scaffold",
    "evaluate": {"every": 1}, "engine": {"name": "sequential", "threads": 1}, "dtype": "float64",
}  # fmt: skip

LIMITS = {"start_s": 120, "work_s": 100, "query_s": 60, "poll_s": 0.5, "look_s": 2, "pause_s": 15, "link_s": 60}

SETTINGS = """
KEYS = {keys!r}
PLAN = {plan!r}
LIMITS = {limits!r}
"""

SERVER = """
import logging
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import motley
from loopback import KEYS, LIMITS
from motley.adapters.flower.deployed.server_app import Limits, run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    print("server runs", motley.__file__, flush=True)
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    told = lambda done: print(f"step {done.step}. accepted {done.accepted} of {len(done.asked)}", flush=True)
    run(grid, KEYS, out=context.run_config["out"], limits=Limits(**LIMITS), told=told, progress=False)
    print("the end", flush=True)
"""

CLIENT = """
from flwr.clientapp import ClientApp

import motley
from loopback import KEYS, PLAN
from tests.adapters.flower.faults.faulty import FaultyNode

print("client runs", motley.__file__, flush=True)
app = ClientApp()
node = FaultyNode(KEYS, PLAN)
app.query("motley_enrol")(node.enrol)
app.query("motley")(node.answer)
app.train("motley")(node.answer)
"""


def app(folder, plan=None, limits=None, **keys):
    """Write the app into a folder; ``plan``: client -> round -> fault."""
    settings = SETTINGS.format(keys={**KEYS, **keys}, plan=plan or {}, limits={**LIMITS, **(limits or {})})
    return write_app(folder, __init__=settings, server=SERVER, client=CLIENT)
