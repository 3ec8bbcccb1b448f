"""What a site does with orders, and with its own disk and data."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import motley
from motley.algorithms.parts import GradientCorrection, LocalRule, Method
from motley.core.errors import CodecError, ConfigError, DataError, ModelError
from motley.core.paper import cite
from motley.experiments.build import prepare
from motley.selectors.uniform import Uniform
from motley_flower.deployed.client_app import Node, serve
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.kept_state import ClientStateFile
from motley_flower.deployed.own_data import client_task, server_task
from motley_flower.deployed.protocol import Order, agreement, open_answer, pack
from motley_flower.deployed.server_app import Limits, refuses
from tests.motley_flower.client_runtimes import (
    BASE,
    SOON,
    answers,
    columns,
    deploy,
    experiment,
    federation,
    same_model,
)
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

FIRST = {"c": torch.zeros(3)}


def filled(number):
    return {"c": torch.full((3,), float(number))}


# ------------------------------------------------------------------------------------- the shelf


def test_the_server_says_which_memory_counts(tmp_path):
    """Dispatches 0, 4 and 9; 4 is late, 9 accepted."""
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    assert shelf.take(-1) == (FIRST, False)
    shelf.put(0, filled(10))
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    assert torch.equal(shelf.take(0)[0]["c"], filled(10)["c"])
    shelf.put(4, filled(14))
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    assert torch.equal(shelf.take(0)[0]["c"], filled(10)["c"])  # not that of 4
    shelf.put(9, filled(19))
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    assert torch.equal(shelf.take(9)[0]["c"], filled(19)["c"])
    assert shelf.take(0)[1] is False  # it lies there still, for a server that goes on from before
    assert shelf.take(4) == (FIRST, True)


def test_what_a_client_keeps_is_its_owners_alone(tmp_path):
    store = ClientStateFile(tmp_path / "clients", "run", 7, FIRST)
    store.put(0, filled(10))
    kept = [store.path, store.path.parent, store.path.parent.parent]
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600, 0o700, 0o700]


def test_runs_and_clients_have_shelves_of_their_own_and_a_new_run_begins_anew(tmp_path):
    ClientStateFile(tmp_path, "one", 7, FIRST).put(0, filled(1))
    assert ClientStateFile(tmp_path, "two", 7, FIRST).take(0)[1]
    assert ClientStateFile(tmp_path, "one", 8, FIRST).take(0)[1]
    assert ClientStateFile(tmp_path, "one", 7, FIRST).take(-1) == (FIRST, False)


def test_a_damaged_or_foreign_file_counts_as_lost(tmp_path, caplog):
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    shelf.put(0, filled(1))
    whole = shelf.path.read_bytes()
    for data in (b"", b"nothing", whole[:-5], whole[:30]):
        shelf.path.write_bytes(data)
        assert shelf.take(0) == (FIRST, True)
    shelf.path.write_bytes(whole)
    assert ClientStateFile(tmp_path, "run", 7, {"c": torch.zeros(4)}).take(0)[1]
    assert ClientStateFile(tmp_path, "run", 7, {"d": torch.zeros(3)}).take(0)[1]
    assert "damaged" in caplog.text


def test_a_changed_bit_anywhere_counts_as_lost(tmp_path):
    """Of the header's text, of its numbers of dispatches, and of the states."""
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    shelf.put(0, filled(1))
    whole = shelf.path.read_bytes()
    for at in range(len(whole)):
        shelf.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        state, forgot = shelf.take(0)
        assert forgot or torch.equal(state["c"], filled(1)["c"]), at
    shelf.path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert shelf.take(0) == (FIRST, True)


def test_what_a_kill_in_the_middle_of_a_write_leaves_is_removed_by_the_next(tmp_path):
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    shelf.put(0, filled(1))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = shelf.path.with_suffix(f".{dead.pid}.new")
    others = [shelf.path.with_suffix(f".{os.getppid()}.new")]
    others.append(shelf.path.with_name(f"client-70.{dead.pid}.new"))  # of another client
    for path in (left, *others):
        path.write_bytes(b"half")
    shelf.put(4, filled(2))
    assert sorted(shelf.path.parent.iterdir()) == sorted([shelf.path, *others])
    assert torch.equal(shelf.take(4)[0]["c"], filled(2)["c"])


def test_a_link_in_place_of_what_is_written_is_not_followed(tmp_path):
    shelf = ClientStateFile(tmp_path, "run", 7, FIRST)
    other = tmp_path / "other"
    other.write_text("stays")
    shelf.path.parent.mkdir()
    shelf.path.with_suffix(f".{os.getpid()}.new").symlink_to(other)
    shelf.put(0, filled(1))
    assert other.read_text() == "stays"
    assert torch.equal(shelf.take(0)[0]["c"], filled(1)["c"])


def test_methods_that_keep_nothing_write_nothing(tmp_path):
    shelf = ClientStateFile(tmp_path, "run", 7, None)
    shelf.put(0, None)
    assert shelf.take(0) == (None, False)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------- orders


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return ClientRuntime(experiment(), tmp_path_factory.mktemp("site"))


def order(site, **fields):
    ready = prepare(experiment())
    model = ready.config.setting.algorithm.local.download(
        ready.config.setting.algorithm.server.init(ready.model, 6)
    )
    return Order("train", "run", site.agreed, 2, 1, 0, steps=2, lr=0.1, model=pack(model), **fields)


def test_the_same_order_has_the_same_answer(site):
    first, again = (open_answer(site.answer(2, order(site).seal()), 10**9) for _ in range(2))
    assert first.upload == again.upload


def test_orders_that_are_not_for_this_node_are_refused(site):
    good = order(site)
    with pytest.raises(CodecError, match="this node is client 3"):
        site.answer(3, good.seal())
    with pytest.raises(ConfigError, match="another experiment"):
        site.answer(2, dataclasses.replace(good, agreed="0" * 12).seal())
    with pytest.raises(ConfigError, match="clients 0 to 5"):
        site.answer(9, dataclasses.replace(good, client=9).seal())
    with pytest.raises(CodecError):
        site.answer(2, dataclasses.replace(good, model=good.model[:-1]).seal())
    with pytest.raises(CodecError, match="expected one of"):
        site.answer(2, dataclasses.replace(good, kind="shell").seal())
    with pytest.raises(CodecError, match="a probe measures"):
        site.answer(2, dataclasses.replace(good, kind="probe", probed={"secrets": None}).seal())
    for data in (b"", None, "text", good.seal()[:-1]):
        with pytest.raises(CodecError):
            site.answer(2, data)


def test_an_update_that_is_not_finite_is_not_sent(site):
    answer = open_answer(site.answer(2, dataclasses.replace(order(site), lr=1e200).seal()), 10**9)
    assert not answer.finite
    assert not answer.upload


def _towards(mu):
    """An algorithm of one's own whose pull is in its code, and no option."""

    @dataclasses.dataclass(frozen=True)
    class Pulled(LocalRule):
        def correction(self, context):
            return GradientCorrection(proximal=mu)

    @dataclasses.dataclass(frozen=True)
    class Towards(Method):
        paper = cite("mcmahan2017communication")

        def change(self, algorithm):
            return algorithm.replace(local=Pulled())

    return Towards()


def test_what_is_agreed_is_the_work_and_not_who_is_asked():
    same = experiment(
        selector="power_of_choice",
        stop={"rounds": 77},
        name="other",
        cohort=2,
        synchrony={"name": "buffered", "refill": "idle"},
        weights="uniform",
    )
    other = experiment(
        local={"steps": 4, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}}
    )
    assert agreement(same) == agreement(experiment()) != agreement(other)
    assert agreement(experiment(selector=Uniform())) == agreement(experiment())
    agreed = [agreement(experiment(algorithm=_towards(mu))) for mu in (1.0, 2.0, 1.0)]
    assert agreed[0] == agreed[2] != agreed[1]  # another code under the same name and options
    assert agreement(experiment(dtype="float32")) != agreement(
        experiment(dtype="float32", precision="bfloat16")
    )


def test_the_initial_weights_are_agreed_wherever_each_has_them(tmp_path):
    for name, value in (("server.pt", 1.0), ("client.pt", 1.0), ("other.pt", 2.0)):
        torch.save({"weight": torch.full((2,), value)}, tmp_path / name)
    agreed = {
        name: agreement(experiment(init=str(tmp_path / name)))
        for name in ("server.pt", "client.pt", "other.pt")
    }
    assert agreed["server.pt"] == agreed["client.pt"] != agreed["other.pt"]
    assert agreement(experiment()) not in agreed.values()


# ------------------------------------------------------------------------------------- nodes


class App:
    """What a ClientApp's decorators do."""

    def __init__(self):
        self.found = {}

    def train(self, action):
        return lambda function: self.found.setdefault(f"train.{action}", function)

    def query(self, action):
        return lambda function: self.found.setdefault(f"query.{action}", function)


def test_one_line_registers_everything():
    app = App()
    serve(app, "experiment.toml", "/srv/site")
    assert sorted(app.found) == ["query.motley", "query.motley_enrol", "train.motley"]


def test_a_node_that_says_nothing_of_itself_is_told_what_to_say(tmp_path):
    context = type("Context", (), {"node_config": {}})()
    with pytest.raises(ConfigError, match="partition-id = None; start the node with --node-config"):
        Node("experiment.toml", tmp_path).client(context)
    with pytest.raises(ConfigError, match="has no folder"):
        Node(experiment()).runtime(0, {"partition-id": 0})


# ------------------------------------------------------------------ data that nobody has as a whole


def mine(client):
    rng = np.random.default_rng(client)
    y = rng.integers(0, 3, 20 + client)
    return rng.normal(size=(len(y), 4)) + y[:, None], y


def model():
    return nn.Linear(4, 3)


OWN = {
    **{k: BASE[k] for k in ("local", "dtype", "engine", "evaluate")},
    "task": "own",
    "population": 4,
    "cohort": 2,
}


def own_grid(setup, folder):
    def task(client, config):
        return client_task(client, 4, *mine(client + int(config["offset"])), model, classes=3)

    nodes = {}
    for client in range(4):
        node = Node(setup, None, task)
        config = {"partition-id": client, "offset": 0, "folder": str(folder / f"site-{client}")}
        nodes[100 + client] = FakeNode(lambda m, c, node=node: answers(node, m, c), config)
    return FakeGrid(nodes)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_sites_with_their_own_data_train_as_a_simulation_of_all_of_it_would(algorithm, tmp_path):
    setup = motley.Experiment(**OWN, stop={"rounds": 5}, algorithm=algorithm)
    test = mine(99)
    server = server_task(4, *test, model, classes=3)
    done = deploy(own_grid(setup, tmp_path), setup, tmp_path / "real", task=server)
    parts = [client_task(k, 4, *mine(k), model, classes=3).federation for k in range(4)]
    whole = dataclasses.replace(
        server,
        federation=dataclasses.replace(
            server.federation,
            x=torch.cat([server.federation.x, *(part.x for part in parts)]),
            y=torch.cat([server.federation.y, *(part.y for part in parts)]),
            labels=torch.cat([part.y for part in parts]),
            train=type(server.federation.train).of(
                np.split(np.arange(86) + len(test[1]), np.cumsum([20, 21, 22]))
            ),
        ),
    )
    keys = {key: value for key, value in OWN.items() if key != "population"}
    simulated = motley.run(
        {**keys, "algorithm": algorithm, "stop": {"rounds": 5}},
        task=whole,
        out=tmp_path / "simulated",
    )
    np.testing.assert_array_equal(
        done.column("clients", "client"), simulated.column("clients", "client")
    )
    np.testing.assert_array_equal(
        done.column("clients", "loss"), simulated.column("clients", "loss")
    )
    assert same_model(done, simulated)
    accuracy = columns(done, "evaluations")
    assert set(accuracy["scope"]) == {"global"}
    assert columns(done, "federation")["num_train"].tolist() == [20, 21, 22, 23]


class BoundAnew(nn.Module):
    """Binds its weight anew in every pass."""

    def __init__(self):
        super().__init__()
        self.o = nn.Linear(4, 3)

    def forward(self, x):
        self.o.weight.data = 1.0 * self.o.weight.data
        return self.o(x)


def test_a_model_that_cannot_be_followed_is_refused_at_the_client_in_words_without_data(tmp_path):
    setup = motley.Experiment(**OWN, stop={"rounds": 1})
    sentences = set()
    for client in range(2):
        task = client_task(client, 4, *mine(client), BoundAnew, classes=3)
        with pytest.raises(ModelError, match=r"binds the weight 'o\.weight' anew") as refused:
            ClientRuntime(setup, tmp_path / str(client), task)
        sentences.add(str(refused.value))
    assert len(sentences) == 1  # whatever rows they have


def test_a_clients_own_model_is_compared_on_random_samples_in_a_private_run(tmp_path):
    private = {
        "weights": "uniform",
        "selector": "poisson",
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5},
    }
    task = client_task(1, 4, *mine(1), model, classes=3)
    for keys, hidden in (({}, False), (private, True)):
        setup = motley.Experiment(**OWN, **keys, stop={"rounds": 1})
        notes = ClientRuntime(setup, tmp_path, task).setting.task.federation.notes
        assert ("proof on" in notes) == hidden


def test_own_samples_are_checked():
    x, y = mine(0)
    with pytest.raises(ConfigError, match="from 0 to 3"):
        client_task(4, 4, x, y, model, classes=3)
    with pytest.raises(DataError, match="out of range"):
        client_task(0, 4, x, y + 1, model, classes=3)
    with pytest.raises(DataError, match="targets for"):
        client_task(0, 4, x, np.zeros(3), model, classes=None)
    assert client_task(0, 4, x, y * 1.0, lambda: nn.Linear(4, 1), classes=None).metric == "loss"
    assert server_task(4, x, y, model, classes=3, test=False).federation.global_test is None


def test_a_client_s_tokens_reach_a_model_that_looks_them_up():
    def language_model():
        return nn.Sequential(nn.Embedding(12, 5), nn.Linear(5, 3))

    tokens = np.arange(12).reshape(3, 4)
    for task in (
        client_task(1, 2, tokens, tokens % 3, language_model, classes=3),
        server_task(2, tokens, tokens % 3, language_model, classes=3),
    ):
        assert task.federation.x.tolist() == tokens.tolist()


# -------------------------------------------------------------------------- what cannot be deployed


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"algorithm": "rhfl", "public": 0.1}, "asks clients again in mid-round"),
        ({"algorithm": "fedpac"}, "asks clients again in mid-round"),
        (
            {
                "algorithm": "fedbn",
                "task": {**BASE["task"], "model": {"name": "digits_mlp", "norm": "batch"}},
                "stop": {"target": {"accuracy": 0.5}},
            },
            "nothing to evaluate",
        ),
        (
            {
                "compressor": "topk",
                "allocator": "flexcom",
                "budget": {"name": "constant", "average": 0.2},
                "network": {"name": "uniform", "up_mbps": [1, 5]},
            },
            "must know every uplink",
        ),
        ({"evaluate": {"diagnostics": True}}, "diagnostics need every client's gradient"),
        (
            {"capacity": {"name": "constant", "batch_size": 8}},
            "which batches a client can hold is known only in a simulation",
        ),
        (
            {"split": {"holdout_clients": 0.25}},
            "new clients adapt and are examined only in a simulation",
        ),
    ],
)
def test_what_only_a_simulation_can_is_refused(keys, said, tmp_path):
    setup = experiment(**keys)
    assert said in refuses(setup, prepare(setup))
    with pytest.raises(ConfigError, match=f"cannot be deployed: .*{said}"):
        deploy(federation(setup, tmp_path), setup, tmp_path / "real")


def test_limits_are_positive():
    with pytest.raises(ConfigError, match=r"limits\.work_s"):
        Limits(work_s=0)
    with pytest.raises(ConfigError, match=r"limits\.start_s"):
        Limits(start_s=float("inf"))
    assert SOON.work_s == 600


def test_normalisation_of_ones_own_stays_at_the_site(tmp_path):
    """FedBN: each client keeps its own BatchNorm, which no server examines."""
    setup = experiment(
        algorithm="fedbn",
        task={"name": "image", "data": "digits", "model": {"name": "digits_mlp", "norm": "batch"}},
        stop={"rounds": 3},
    )
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    simulated = motley.run(setup, out=tmp_path / "simulated")
    np.testing.assert_array_equal(
        done.column("clients", "loss"), simulated.column("clients", "loss")
    )
    assert not len(done.tables["evaluations"])


@pytest.mark.parametrize("weights", ["counts", "uniform"])
def test_models_of_ones_own_stay_at_the_site_and_prototypes_travel(weights, tmp_path):
    """FedProto: no model is sent; all prototypes travel both ways, zeros for the classes that a
    client lacks."""
    setup = experiment(
        algorithm={"name": "fedproto", "prototype_weights": weights}, stop={"rounds": 3}
    )
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    simulated = motley.run(setup, out=tmp_path / "simulated")
    np.testing.assert_array_equal(
        done.column("clients", "loss"), simulated.column("clients", "loss")
    )
    assert (done.column("rounds", "down_bits") < 3 * 32 * prepare(setup).model.x.numel()).all()
    assert not len(done.tables["evaluations"])


def test_each_site_takes_the_model_that_fits_its_samples(tmp_path):
    """IFCA: probed and trained is the one of the models sent that the site's own samples choose."""
    algorithm = {"name": "ifca", "k": 3, "shared_base": True}
    selector = {"name": "power_of_choice", "d": 5}
    setup = experiment(algorithm=algorithm, selector=selector, stop={"rounds": 3})
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    simulated = motley.run(setup, out=tmp_path / "simulated")
    for column in ("client", "loss"):
        np.testing.assert_array_equal(
            done.column("clients", column), simulated.column("clients", column)
        )
    assert done.tables["rounds"]["notes"].equals(simulated.tables["rounds"]["notes"])
    assert "cluster.2" in done.tables["rounds"]["notes"][0].as_py()
    assert same_model(done, simulated)
    assert not len(done.tables["evaluations"])


def test_a_rehearsal_moves_no_model_here_either(tmp_path):
    """FedCor: the first rounds are rehearsals, measured twice; the same choices as in the
    simulation."""
    setup = experiment(selector={"name": "fedcor"}, stop={"rounds": 4})
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    simulated = motley.run(setup, out=tmp_path / "simulated")
    for column in ("client", "outcome", "loss"):
        assert done.tables["clients"][column].equals(simulated.tables["clients"][column]), column
    assert same_model(done, simulated)
