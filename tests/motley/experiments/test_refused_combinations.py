"""Methods whose clients need different models, and what each cannot be combined with: one sentence,
when the experiment is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from motley.algorithms.fedbio import FedBiO
from motley.algorithms.fedbn import FedBN
from motley.algorithms.feddf import FedDF
from motley.algorithms.feddyn import FedDyn
from motley.algorithms.fednova import FedNova
from motley.algorithms.fedper import FedPer
from motley.algorithms.fedproto import FedProto
from motley.algorithms.fedrep import FedRep
from motley.algorithms.fedrolex import FedRolex
from motley.algorithms.heterofl import HeteroFL
from motley.algorithms.lg_fedavg import LGFedAvg
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import Algorithm, Method
from motley.algorithms.rhfl import RHFL
from motley.algorithms.scaffold import Scaffold
from motley.cli import _lines
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.registry import listing
from motley.testing.algorithms import MODELS, Play
from tests.motley.experiments.test_personalised_runs import KEYS

PLAIN, NORMED = MODELS
SLICED = {**KEYS, "capacity": {"name": "levels", "levels": [1.0, 0.5]}}
PERSONAL = [FedPer(), FedRep(), LGFedAvg(), FedBN(), FedProto()]
TOP = {"compressor": "topk", "budget": {"name": "constant", "average": 0.2}}


def refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(keys)


@pytest.mark.parametrize("name", ["fedper", "fedrep", "lg_fedavg", "fedproto", "local_only"])
@pytest.mark.parametrize("feedback", ["none", "fixed"])
def test_compressors_and_error_feedback_work_on_updates_of_the_whole_model(
    name: str, feedback: str
) -> None:
    refused(
        {**KEYS, **TOP, "feedback": feedback, "algorithm": name},
        "does not upload an update of the whole model",
    )


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fiarse"])
@pytest.mark.parametrize("feedback", ["none", "fixed"])
def test_they_do_not_work_on_slices_either(name: str, feedback: str) -> None:
    said = (
        "uploads cover part of the model, and a compressor works on updates of the whole "
        "model; leave the compressor out"
    )
    refused({**SLICED, **TOP, "feedback": feedback, "algorithm": name}, said)


@dataclass(frozen=True)
class Crossed(Method):
    """The client's part of one method with the server of another."""

    paper = FedPer.paper
    clients: Method = field(default_factory=FedPer)
    server: Method = field(default_factory=FedPer)

    def change(self, plain: Algorithm) -> Algorithm:
        other = self.server.change(plain)
        return self.clients.change(plain).replace(server=other.server, aggregator=other.aggregator)


def reasons(clients: Method, server: Method, model: str) -> list[str]:
    """Return why the parts of a crossed method refuse each other."""
    made = Play(Crossed(clients, server), "uniform", SGD(lr=0.1), model).algorithm
    found = [
        part.refuses(made, SGD(lr=0.1), "uniform")
        for part in (made.local, made.aggregator, made.server)
    ]
    return [reason for reason in found if reason is not None]


CONTROLLED = [
    (
        Scaffold(),
        "SCAFFOLD's control variates must cover the same parameters at server and clients, and "
        "under {} clients keep none",
    ),
    (
        FedDyn(),
        "FedDyn's h must be the mean of vectors that cover the same parameters at the clients, and "
        "under {} they keep none",
    ),
    (
        FedNova(),
        "FedNova's server scales normalized updates of the whole model, and under {} clients do "
        "not normalize theirs",
    ),
]


@pytest.mark.parametrize("clients", PERSONAL, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize(("server", "message"), CONTROLLED, ids=["SCAFFOLD", "FedDyn", "FedNova"])
def test_servers_whose_clients_keep_vectors_of_the_whole_model(
    clients: Method, server: Method, message: str
) -> None:
    name = type(Play(clients, "uniform", SGD(lr=0.1), NORMED).algorithm.local).__name__
    assert message.format(name) in reasons(clients, server, NORMED)


@pytest.mark.parametrize("clients", [HeteroFL(), FedRolex()], ids=["HeteroFL", "FedRolex"])
@pytest.mark.parametrize(
    "server", [Scaffold(), FedDyn(), FedNova()], ids=["SCAFFOLD", "FedDyn", "FedNova"]
)
def test_such_servers_with_slices(clients: Method, server: Method) -> None:
    assert any(
        "would move coordinates that nobody trained; use plain averaging" in said
        for said in reasons(clients, server, PLAIN)
    )


@pytest.mark.parametrize(
    "aggregator", ["krum", "multi_krum", "median", "trimmed_mean", {"name": "norm_bound", "c": 1.0}]
)
@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fiarse"])
def test_rules_that_compare_whole_updates_with_slices(name: str, aggregator: Any) -> None:
    said = r"\w+ works on whole updates, and these clients update different slices; leave it out"
    refused({**SLICED, "algorithm": name, "aggregator": aggregator}, said)


@pytest.mark.parametrize("server", ["adam", "adagrad", "yogi", "momentum"])
@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fiarse"])
def test_server_rules_with_momentum_with_slices(name: str, server: str) -> None:
    said = r"\w+ would move coordinates that nobody trained; use plain averaging with slices"
    refused({**SLICED, "algorithm": name, "server": server}, said)


@pytest.mark.parametrize("synchrony", [{"name": "buffered", "buffer": 2}, "asynchronous"])
def test_slices_that_roll_need_rounds(synchrony: Any) -> None:
    said = (
        "synchrony: the slices of Rolling belong to a round, and this server mixes rounds; use "
        "synchronous or deadline"
    )
    refused({**SLICED, "algorithm": "fedrolex", "synchrony": synchrony}, said)


@pytest.mark.parametrize("clients", PERSONAL, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("server", [FedDF(), FedBiO(), RHFL(), RHFL(mode="kd")], ids=str)
def test_server_rules_that_need_one_model_for_everybody(clients: Method, server: Method) -> None:
    wanted = (
        "leave server out"
        if isinstance(clients, FedProto)
        else "clients keep layers of their own, and the server rule"
    )
    assert wanted in reasons(clients, server, NORMED)[0]


@pytest.mark.parametrize("name", ["fedper", "fedrep", "fedbabu"])
def test_a_model_of_one_layer_is_all_head(name: str) -> None:
    said = (
        "the clients keep every parameter of this model, so nothing would be shared; use a "
        "model with more layers"
    )
    refused(
        {
            **KEYS,
            "task": {**KEYS["task"], "model": {"name": "mlp", "hidden": []}},
            "algorithm": name,
        },
        said,
    )


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            {"name": "ditto", "lam": 20.0},
            "lr = 0.1 times lam = 20 is above 1: the pull overshoots its anchor",
        ),
        (
            {"name": "pfedme"},
            "lr_p = 0.09 times lam = 15 is above 1: the pull overshoots its anchor",
        ),
    ],
)
def test_a_pull_that_overshoots_warns(algorithm: dict[str, Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        build({**KEYS, "algorithm": algorithm})


def test_what_a_method_reveals_is_listed() -> None:
    row = next(row for row in listing("algorithm") if row["name"] == "fedproto")
    assert _lines(row)[0].endswith("[reveals which classes a client has]")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("local_only", 'got "uniform", and every client keeps its whole model.*leave weights out'),
        ("fedproto", 'got "uniform", and prototypes are weighed by.*prototype_weights = "uniform"'),
    ],
)
def test_weights_that_decide_nothing_are_refused(name: str, message: str) -> None:
    refused({**KEYS, "algorithm": name, "weights": "uniform"}, message)
    build({**KEYS, "algorithm": name}).engine.close()
    # what stands in the record of a run that gave none
    build({**KEYS, "algorithm": name, "weights": "examples"}).engine.close()
