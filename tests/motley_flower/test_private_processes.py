"""Masks, verified draws and noise of the server and of clients on real processes: one SuperLink
and four SuperNodes, four short runs.

``make test-flower``; needs the extras ``flower`` and ``privacy``. Motley's loop under secure
aggregation must be the simulation but for rounding; a strategy's cohorts, drawn by samples, must be
verified afterwards; a private run must count and claim what it does, its tables hold no clear
number, and its model has the noise that the account takes. It takes some minutes, nearly all of it
Flower's own starting of processes.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.torch import load_file

import motley
from motley_flower.secure.keyfiles import as_register, new_identity
from motley_flower.secure.verifiable_draws import verify_draws
from tests.motley_flower.loopback import Loopback, until, write_app
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.flower

CLIENTS = 4
MASKED = {
    "name": "masked",
    "population": CLIENTS,
    "cohort": 3,
    "stop": {"rounds": 2},
    "weights": "uniform",
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "split": {"test": "global"},
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "local": {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "evaluate": {"every": 1},
    "engine": {"name": "sequential", "threads": 1},
    "dtype": "float64",
}
NOISE = {
    "loss": {"low": 0.0, "high": 5.0, "multiplier": 20.0},
    "num_examples": {"low": 0.0, "high": 100.0, "multiplier": 20.0},
}
NOISY = {
    **MASKED,
    "name": "noisy",
    "task": {**MASKED["task"], "scale": "unit"},
    "selector": {"name": "power_of_choice", "d": 4},
    "stop": {"rounds": 1},
    "privacy": {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "signal_noise": NOISE},
}
SHARED = {
    **MASKED,
    "name": "shared",
    "task": {**MASKED["task"], "scale": "unit"},
    "cohort": CLIENTS,
    "stop": {"rounds": 1},
    "privacy": {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 3.0, "noise_by": "clients"},
}

SETTINGS = """
from motley_flower.secure.terms import SecureOptions

FOLDER = {folder!r}
MASKED = {masked!r}
NOISY = {noisy!r}
SHARED = {shared!r}
CLIENTS = {clients}
OPTIONS = SecureOptions(clip=1.0, bits=24)
DRAWN = SecureOptions(clip=1.0, bits=20, max_weight=100, draws=5, cohort=3, draw_rule="weighted")
"""

OWN_SERVER = """
import logging
import sys

from flwr.serverapp import ServerApp

from loopback import FOLDER, KEYS, OPTIONS, SECURE
from motley_flower.deployed.server_app import Limits, run

app = ServerApp()


@app.main()
def main(grid, context):
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    more = dict(secure_aggregation=OPTIONS, register=f"{FOLDER}/register.json") if SECURE else {}
    limits = Limits(start_s=240, work_s=240, query_s=240, poll_s=0.5)
    run(grid, KEYS, out=context.run_config["out"], limits=limits, **more)
    print("the end", flush=True)
"""

OWN_CLIENT = """
from flwr.clientapp import ClientApp

from loopback import FOLDER, KEYS, OPTIONS, SECURE
from motley_flower.deployed.client_app import serve

app = ClientApp()
more = {}
if SECURE:
    more = dict(secure_aggregation=OPTIONS, register=FOLDER + "/register.json")
    more["identity"] = FOLDER + "/key-{client}"
serve(app, KEYS, **more)
"""

DRAWN_SERVER = """
import logging
import sys
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import motley
from loopback import CLIENTS, DRAWN, FOLDER
from motley_flower import with_selector

app = ServerApp()


@app.main()
def main(grid, context):
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    selector = motley.selectors.build({"name": "uniform", "variant": "weighted_wor"}, seed=0)
    strategy = with_selector(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS), selector, m=3, wait_s=300,
        query_limit_s=240, secure_aggregation=DRAWN, register=f"{FOLDER}/register.json",
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(1000))}), num_rounds=2, timeout=300)
    Path(FOLDER, "draws.json").write_text(strategy.motley.secure.draws.transcript())
    rows = [f"{r.round} {r.client} {r.outcome}\\n" for r in strategy.motley.rows]
    Path(FOLDER, "rows.txt").write_text("".join(rows))
    print("the end", flush=True)
"""

DRAWN_CLIENT = """
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from loopback import DRAWN, FOLDER
from motley_flower import MaskedUpdates, enrolled

masked = MaskedUpdates(DRAWN, FOLDER + "/key-{client}", FOLDER + "/register.json", FOLDER + "/kept")
app = ClientApp(mods=[masked.mod])
app.query("motley_secure")(masked.answer)


@app.query("motley_enrol")
def enrol(message, context):
    return enrolled(message, context, num_examples=10 + context.node_config["partition-id"])


@app.train()
def train(message, context):
    k = context.node_config["partition-id"]
    new = message.content["arrays"]["w"].numpy() + 0.1 * k
    content = {"arrays": ArrayRecord({"w": Array(new)}),
               "metrics": MetricRecord({"num-examples": 10 + k})}
    return Message(RecordDict(content), reply_to=message)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the four runs left."""
    pytest.importorskip("flwr")
    base = tmp_path_factory.mktemp("private")
    left = base / "left"
    left.mkdir()
    register = {k: new_identity(left / f"key-{k}") for k in range(CLIENTS)}
    (left / "register.json").write_text(json.dumps(register))
    runs = {"masked": MASKED, "noisy": NOISY, "shared": SHARED}
    settings = SETTINGS.format(folder=str(left), **runs, clients=CLIENTS)
    shared = settings + "KEYS, SECURE = SHARED, True\nOPTIONS = SecureOptions(clip=0.5)\n"
    apps = {
        "masked": (settings + "KEYS, SECURE = MASKED, True\n", OWN_SERVER, OWN_CLIENT),
        "noisy": (settings + "KEYS, SECURE = NOISY, False\n", OWN_SERVER, OWN_CLIENT),
        "shared": (shared, OWN_SERVER, OWN_CLIENT),
        "drawn": (settings, DRAWN_SERVER, DRAWN_CLIENT),
    }
    there = Loopback(base / "there", CLIENTS)
    try:
        with ended_like_interrupted():
            there.up()
            for name, (settled, server, client) in apps.items():
                app = write_app(base / name, __init__=settled, server=server, client=client)
                log = there.run(name, app, left / name)
                until(
                    lambda log=log, name=name: (
                        "the end" in log.read_text() or there.running[name].poll() is not None
                    ),
                    1200,
                    there.logs,
                )
                assert "the end" in log.read_text(), there.logs()
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    return left


def test_motleys_loop_under_masks_is_the_simulation_but_for_rounding(folder, tmp_path):
    done = motley.load(folder / "masked")
    simulated = motley.run(MASKED, out=tmp_path / "simulated")
    assert set(done.column("clients", "outcome")) == {"accepted"}
    assert (
        done.column("clients", "client").tolist() == simulated.column("clients", "client").tolist()
    )
    one, two = (load_file(run.directory / "model.safetensors") for run in (done, simulated))
    apart = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert 0 < apart < 100 * 2 / (2**24 - 1)


def test_the_draws_of_a_strategy_are_verified_afterwards(folder):
    told = (folder / "draws.json").read_text()
    assert verify_draws(told, as_register(folder / "register.json")) == 2
    rows = [line.split() for line in (folder / "rows.txt").read_text().splitlines()]
    for row in json.loads(told)["rounds"]:
        assert {
            int(k): outcome for t, k, outcome in rows if int(t) == row["round"]
        } == dict.fromkeys(row["cohort"], "accepted")


def test_a_private_run_has_no_clear_number_and_counts(folder):
    done = motley.load(folder / "noisy")
    assert any(
        "Clients add the noise of their signals before they send them." in said
        for said in done.meta["privacy"]["claim"]
    )
    assert done.tables["privacy"].to_pydict()["signals"] == [2] * CLIENTS  # a size and a loss each
    clients = done.tables["clients"].to_pydict()
    assert clients["num_examples"] == clients["loss"] == clients["update_norm"] == [None] * 3
    assert set(done.column("clients", "outcome")) == {"accepted"}
    assert not np.isnan(done.column("evaluations", "loss")).any()


def noise_of(folder, keys, out):
    """Return the noise of the sum of a run of one round: the cohort times what its model has beside
    that of the simulation without privacy. The updates, of norm 0.5 at most, are nothing beside
    it."""
    simulated = motley.run({key: keys[key] for key in keys if key != "privacy"}, out=out)
    places = (folder / keys["name"], simulated.directory)
    one, two = (load_file(place / "model.safetensors") for place in places)
    return keys["cohort"] * np.concatenate([(one[k] - two[k]).flatten().numpy() for k in one])


def test_the_sums_have_the_noise_that_the_account_takes_and_share_none(folder, tmp_path):
    """The server's has deviation z C = 4 * 0.5. Each of four clients' has z C / sqrt(2), for two of
    three that remain may not collude, and all four remain: 3 * 0.5 * sqrt(4 / 2). Of 2,410 numbers
    the standard error is 1.4 %, and that of a correlation 2 %."""
    server = noise_of(folder, NOISY, tmp_path / "noisy")
    clients = noise_of(folder, SHARED, tmp_path / "shared")
    assert server.std() == pytest.approx(4.0 * 0.5, rel=0.06)
    assert clients.std() == pytest.approx(3.0 * 0.5 * np.sqrt(4 / 2), rel=0.06)
    assert abs(np.corrcoef(server, clients)[0, 1]) < 0.09
