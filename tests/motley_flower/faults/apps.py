"""The Flower apps that the real processes of these tests run, with clients that follow a plan of
faults: Motley's round loop, and a strategy of Flower's with a selector."""

from __future__ import annotations

from tests.motley_flower.loopback import write_app

KEYS = {
    "name": "faults",
    "population": 3,
    "cohort": 3,
    "stop": {"rounds": 6},
    "task": {"name": "synthetic", "sizes": "equal", "examples": 40, "dim": 8, "classes": 3},
    "local": {"steps": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
    "algorithm": "scaffold",
    "evaluate": {"every": 1},
    "engine": {"name": "sequential", "threads": 1},
    "dtype": "float64",
}

LIMITS = {
    "start_s": 300,
    "work_s": 240,
    "query_s": 150,
    "poll_s": 0.5,
    "look_s": 2,
    "pause_s": 15,
    "link_s": 60,
}

SETTINGS = """
KEYS = {keys!r}
PLAN = {plan!r}
LIMITS = {limits!r}
"""

SERVER = """
import logging
import sys
import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import motley
from loopback import KEYS, LIMITS
from motley_flower.deployed.server_app import Limits, run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    print("server runs", motley.__file__, flush=True)
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))

    def told(done):
        print(f"step {done.round}. accepted {done.accepted} of {len(done.asked)}", flush=True)
        # On a fast machine all rounds would be over before a client is back.
        if len(done.asked) < KEYS["cohort"]:
            time.sleep(8)

    limits = Limits(**LIMITS)
    run(grid, KEYS, out=context.run_config["out"], limits=limits, told=told, progress=False)
    print("the end", flush=True)
"""

CLIENT = """
from flwr.clientapp import ClientApp

import motley
from loopback import KEYS, PLAN
from tests.motley_flower.faults.faulty import FaultyNode

print("client runs", motley.__file__, flush=True)
app = ClientApp()
node = FaultyNode(KEYS, PLAN)
app.query("motley_enrol")(node.enrol)
app.query("motley")(node.answer)
app.train("motley")(node.answer)
"""


def app(folder, plan=None, limits=None, **keys):
    """Write the app into a folder; ``plan``: client -> round -> fault."""
    settings = SETTINGS.format(
        keys={**KEYS, **keys}, plan=plan or {}, limits={**LIMITS, **(limits or {})}
    )
    return write_app(folder, __init__=settings, server=SERVER, client=CLIENT)


STRATEGY_SERVER = """
import logging
import sys
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import motley
from loopback import KEYS
from motley_flower import participation, with_selector

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    out = Path(str(context.run_config["out"]))
    model, saved = np.zeros(3), out / "selector.bin"
    selector, done = motley.selectors.build("uniform", seed=0), 0
    if saved.exists() and (out / "model.npy").exists():
        model, selector = np.load(out / "model.npy"), motley.Selector.from_bytes(saved.read_bytes())
        done = int((out / "round").read_text())
    strategy = with_selector(
        FedAvg(fraction_evaluate=0.0), selector, m=3, save=saved, rounds_done=done,
        clients_sent=3 * done, query_limit_s=120, wait_s=60, link_s=60,
    )

    def keep(server_round, arrays):
        if server_round:
            np.save(out / "model.npy", arrays["w"].numpy())
            (out / "round").write_text(str(done + server_round))
            rows = [row for row in strategy.motley.rows if row.round == done + server_round]
            for row in rows:
                with (out / "rows").open("a") as file:
                    print(row.round, row.client, row.outcome, row.reason, file=file)
            accepted = sum(row.outcome == "accepted" for row in rows)
            print(f"step {done + server_round}. accepted {accepted} of {len(rows)}", flush=True)
        return MetricRecord({"round": done + server_round})

    first = ArrayRecord({"w": Array(model)})
    rounds, timeout = KEYS["rounds"] - done, KEYS["timeout"]
    strategy.start(grid, first, num_rounds=rounds, timeout=timeout, evaluate_fn=keep)
    print("the end", flush=True)
"""

STRATEGY_CLIENT = """
from flwr.clientapp import ClientApp

from loopback import PLAN
from motley_flower import enrolled
from tests.motley_flower.faults.faulty import StrategyClient

app = ClientApp()
client = StrategyClient(PLAN)


@app.query("motley_enrol")
def enrol(message, context):
    return enrolled(message, context, num_examples=10)


app.train()(client.train)
"""


def strategy_app(folder, plan, rounds, timeout):
    """Write the app of a strategy into a folder; ``plan``: as above, by the client's own count of
    its orders."""
    settings = SETTINGS.format(keys={"rounds": rounds, "timeout": timeout}, plan=plan, limits={})
    return write_app(folder, __init__=settings, server=STRATEGY_SERVER, client=STRATEGY_CLIENT)
