"""Secure aggregation on real processes: SuperLink and ten SuperNodes, a round at 0, 10 and 30 %
dropout, and one below the threshold.

``make test-flower``; needs the extras ``flower`` and ``privacy``. Every client writes down what it
encoded, and the server what it opened: the secure sum must be the plain sum of the survivors' whole
numbers, bit for bit. It takes some minutes, nearly all of it Flower's own starting of processes and
waiting.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from motley_flower.secure.keyfiles import new_identity
from tests.motley_flower.loopback import Loopback, until, write_app
from tests.motley_flower.started import ended_like_interrupted, nothing_left

pytestmark = pytest.mark.flower

CLIENTS = 10
LOST = {1: [], 2: [4], 3: [0, 5, 7], 4: [1, 2, 3, 9]}
"""Round -> clients that raise instead of training; 7 of 10 are needed."""

SETTINGS = """
from motley_flower.secure.terms import SecureOptions

FOLDER = {folder!r}
LOST = {lost!r}
CLIENTS = {clients}
OPTIONS = SecureOptions(clip=1.0, bits=20, max_weight=100)
"""

SERVER = """
import logging
import sys

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import motley
from loopback import CLIENTS, FOLDER, LOST, OPTIONS
from motley_flower import with_selector
from motley_flower.secure.server import SecureServer

app = ServerApp()
opened = SecureServer.unmask


def unmask(self, answers):
    total = opened(self, answers)
    np.save(f"{FOLDER}/sum-{self.terms.round}.npy", total)
    return total


SecureServer.unmask = unmask


@app.main()
def main(grid: Grid, context: Context) -> None:
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    uniform = motley.selectors.build("uniform", seed=0)
    strategy = with_selector(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS), uniform, m=CLIENTS,
        wait_s=300, query_limit_s=240, secure_aggregation=OPTIONS,
        register=f"{FOLDER}/register.json",
    )

    def told(server_round, arrays):
        if server_round:
            rows = [row for row in strategy.motley.rows if row.round == server_round]
            np.save(f"{FOLDER}/model-{server_round}.npy", arrays["w"].numpy())
            with open(f"{FOLDER}/rows", "a") as file:
                for row in rows:
                    print(row.round, row.client, row.outcome, file=file)
            print("step", server_round, flush=True)

    first = ArrayRecord({"w": Array(np.zeros(1000))})
    strategy.start(grid, first, num_rounds=len(LOST), timeout=300, evaluate_fn=told)
    print("the end", flush=True)
"""

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict, Message
from flwr.clientapp import ClientApp

from loopback import FOLDER, LOST, OPTIONS
from motley_flower import MaskedUpdates, enrolled
from motley_flower.secure.encoding import FixedPoint

encode = FixedPoint.encode
where = {}


def noted(self, values, weight, entropy):
    words = encode(self, values, weight, entropy)
    np.save(f"{FOLDER}/vector-{where['round']}-{where['client']}.npy", words)
    return words


FixedPoint.encode = noted
masked = MaskedUpdates(
    OPTIONS, FOLDER + "/key-{client}", FOLDER + "/register.json", FOLDER + "/kept"
)
app = ClientApp(mods=[masked.mod])
app.query("motley_secure")(masked.answer)


@app.query("motley_enrol")
def enrol(message, context):
    return enrolled(message, context, num_examples=10 + context.node_config["partition-id"])


@app.train()
def train(message, context):
    client, t = context.node_config["partition-id"], message.content["config"]["server-round"]
    where.update(round=t, client=client)
    if client in LOST[t]:
        raise RuntimeError("lost in this round")
    noise = np.random.default_rng([t, client]).normal(size=1000) / 5
    new = message.content["arrays"]["w"].numpy() + noise
    content = {"arrays": ArrayRecord({"w": Array(new)}),
               "metrics": MetricRecord({"num-examples": 10 + client})}
    return Message(RecordDict(content), reply_to=message)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a whole deployment left."""
    pytest.importorskip("flwr")
    base = tmp_path_factory.mktemp("secure")
    left = base / "left"
    left.mkdir()
    register = {k: new_identity(left / f"key-{k}") for k in range(CLIENTS)}
    (left / "register.json").write_text(json.dumps(register))
    settings = SETTINGS.format(folder=str(left), lost=LOST, clients=CLIENTS)
    app = write_app(base / "app", __init__=settings, server=SERVER, client=CLIENT)
    there = Loopback(base / "there", CLIENTS)
    try:
        with ended_like_interrupted():
            there.up()
            log = there.run("run", app, left)
            until(
                lambda: "the end" in log.read_text() or there.running["run"].poll() is not None,
                2400,
                there.logs,
            )
            assert "the end" in log.read_text(), there.logs()
    finally:
        there.stop()
    assert not nothing_left(there.folder)
    return left


@pytest.mark.parametrize("t", [1, 2, 3])
def test_the_secure_sum_is_the_plain_sum_bit_for_bit(folder, t):
    alive = [k for k in range(CLIENTS) if k not in LOST[t]]
    vectors = [np.load(folder / f"vector-{t}-{k}.npy") for k in alive]
    np.testing.assert_array_equal(
        np.load(folder / f"sum-{t}.npy"), np.sum(vectors, axis=0, dtype=np.uint32)
    )
    assert int(vectors[0][-1]) == 10 + alive[0]


def test_below_the_threshold_nothing_is_opened_and_the_model_stays(folder):
    assert not (folder / "sum-4.npy").exists()
    np.testing.assert_array_equal(np.load(folder / "model-4.npy"), np.load(folder / "model-3.npy"))


def test_what_became_of_every_client(folder):
    rows = [line.split() for line in (folder / "rows").read_text().splitlines()]
    told = {(int(t), int(client)): outcome for t, client, outcome in rows}
    for t, lost in LOST.items():
        for k in range(CLIENTS):
            assert told[t, k] == ("dropped" if k in lost else "rejected" if t == 4 else "accepted")
