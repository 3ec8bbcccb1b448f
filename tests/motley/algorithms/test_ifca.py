"""IFCA: the worked numbers of docs/methods/algorithms.md#ifca, and what must coincide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average, FedAvg
from motley.algorithms.ifca import EMPTY_ROUNDS, IFCA
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import Choice, ServerState, Upload
from motley.core.errors import ConfigError
from motley.testing.algorithms import MODELS, Play
from tests.motley.algorithms.toys import A, B, Toy

SOLVERS = {"plain": SGD(lr=0.1), "momentum": SGD(lr=0.1, momentum=0.9, weight_decay=0.01)}


def toy(method: IFCA, others: Sequence[Sequence[float]], **keys) -> Toy:
    """A toy whose models after the first are ``others``."""
    made = Toy(method, **keys)
    made.server = ServerState(
        made.server.model, {**made.server.extra, "others.x": torch.tensor(others).double()}
    )
    return made


def choices(made: Toy) -> list[int]:
    """The model that each client would take now."""
    clients = np.arange(len(made.setting.task.federation))
    states = made.engine.choose(clients, made.download, {})
    return [int(state["choice"]) for state in states.values()]


def models(made: Toy) -> list[float]:
    return [*made.x, *made.server.extra["others.x"].flatten().tolist()]


@pytest.mark.parametrize(
    ("average", "after"), [("models", (0.15, 9.9)), ("gradients", (0.1, 10 - 0.1 / 3))]
)
def test_by_hand(average, after) -> None:
    """Minima 1, 2, 9, models 0 and 10: losses .5, 2, 40.5 at 0 and 40.5, 32, .5 at 10, so the
    choices are 0, 0, 1. A step leads to .1, .2 and 9.9: their means are .15 and 9.9; a third of the
    sums of the updates is .3 / 3 = .1 and -.1 / 3."""
    made = toy(IFCA(average=average), [[10.0]], targets=(1.0, 2.0, 9.0))
    assert choices(made) == [0, 0, 1]
    done = made.round()
    assert [one.parts["cluster"].value.tolist() for one in done] == [[0], [0], [1]]
    assert models(made) == pytest.approx(after, rel=1e-12)
    assert made.server.extra["sizes"].tolist() == [2, 1]


def test_heads_of_clusters_over_a_shared_base_by_hand() -> None:
    """Base 1, heads 2 and 1. y = 4: losses 2 and 4.5, so head 2, and h = 2.2, b = 1.4; y = 1: .5
    and 0, so head 1, which stays with b. The base is the mean of 1.4 and 1."""
    made = toy(IFCA(shared_base=True), [[1.0]], model=B, start=(1.0, 2.0), targets=(4.0, 1.0))
    made.round()
    assert made.x == pytest.approx([1.2, 2.2], rel=1e-12)
    assert made.server.extra["others.x"].tolist() == [[1.0]]
    assert made.download["others.x"].shape == (1, 1)
    assert made.algorithm.local.start(
        made.download, {"choice": torch.tensor([1])}
    ).x.tolist() == pytest.approx([1.2, 1.0])


def test_the_first_of_equally_good_models_is_taken() -> None:
    """Minimum 1, models 0, 2 and 2: all have the loss .5."""
    assert choices(toy(IFCA(k=3), [[2.0], [2.0]], targets=(1.0,))) == [0]


def test_a_model_that_is_not_finite_is_never_taken() -> None:
    made = toy(IFCA(k=3), [[float("nan")], [1.0]], targets=(1.0,), start=(float("nan"),))
    assert choices(made) == [2]


def test_a_model_that_nobody_takes_stays_bit_for_bit() -> None:
    made = toy(IFCA(k=3), [[-0.0], [50.0]], targets=(1.0,), start=(2.0,))
    before = made.server.extra["others.x"].clone()
    assert choices(made) == [0]
    made.round()
    after = made.server.extra["others.x"]
    assert torch.equal(after.view(torch.int64), before.view(torch.int64))
    assert made.server.extra["sizes"].tolist() == [1, 0, 0]


def test_an_empty_first_cluster_stays_too() -> None:
    made = toy(IFCA(), [[2.0]], targets=(3.0,), start=(-0.0,))
    made.round()
    assert models(made) == pytest.approx([0.0, 2.1])
    assert str(made.x[0]) == "-0.0"


def test_a_cluster_that_stays_empty_is_warned_of() -> None:
    made = toy(IFCA(k=3), [[50.0], [60.0]], targets=(1.0,))
    for _ in range(EMPTY_ROUNDS - 1):
        made.round()
    with pytest.warns(
        UserWarning,
        match="no client took model [12] of IFCA in 10 rounds; after an unlucky draw all go to one",
    ) as said:
        made.round()
    assert len(said) == 2
    made.round()  # said once
    assert made.server.extra["empty"].tolist() == [0, 11, 11]
    assert made.algorithm.server.notes(made.server) == {
        "cluster.0": 1.0,
        "cluster.1": 0.0,
        "cluster.2": 0.0,
    }


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "method", [IFCA(k=1), IFCA(k=1, average="gradients"), IFCA(k=1, shared_base=True)], ids=str
)
def test_one_cluster_is_fedavg_bit_for_bit(method, model: str, solver: str) -> None:
    one, two = (Play(each, "examples", SOLVERS[solver], model).run() for each in (method, FedAvg()))
    for name, value in vars(two.server.model).items():
        assert torch.equal(getattr(one.server.model, name), value), name


def test_models_are_drawn_apart_and_again_alike() -> None:
    servers = [Play(IFCA(k=3), "examples", SGD(lr=0.1)).server for _ in range(2)]
    drawn = [[server.model.x, *server.extra["others.x"]] for server in servers]
    assert all(torch.equal(one, two) for one, two in zip(*drawn, strict=True))
    assert len({tuple(x.tolist()) for x in drawn[0]}) == 3


def test_models_that_begin_alike_are_refused() -> None:
    def fixed() -> torch.nn.Module:
        module = A()
        torch.nn.init.constant_(module.weight, 1.0)
        return module

    with pytest.raises(
        ConfigError,
        match="the 2 models of IFCA would begin alike, and equal models never separate; leave init "
        "out",
    ):
        Toy(IFCA(), model=fixed, start=(1.0,))


def test_a_forged_cluster_is_one_of_the_clusters() -> None:
    """A number beyond the last counts as the last, and the round goes on."""
    made = toy(IFCA(), [[10.0]], targets=(1.0, 9.0))
    done = made.round()
    forged = {
        **done[0].parts,
        "cluster": done[0].parts["cluster"]._replace(value=torch.tensor([99])),
    }
    rule = made.algorithm.local
    aggregator = made.algorithm.aggregator
    assert torch.equal(
        rule.start(made.download, Choice(2).of(forged)).x, made.server.extra["others.x"][0]
    )
    total = aggregator.finish(aggregator.add(aggregator.init(), Upload(forged, 1.0)), "weight")
    assert total["sizes"].tolist() == [0, 1]


def test_a_round_without_uploads_has_no_total() -> None:
    aggregator = Toy(IFCA()).algorithm.aggregator
    assert aggregator.finish(aggregator.init(), "weight") == {}


def test_what_the_server_reads_from_an_upload() -> None:
    made = toy(IFCA(), [[10.0]], targets=(9.0,))
    (done,) = made.round()
    sent = {**made.download, "others.x": torch.tensor([[10.0]]).double()}
    model = made.algorithm.local.start(sent, made.algorithm.local.choice.of(done.parts))
    assert (model.x + made.algorithm.local.update(done.parts)).tolist() == pytest.approx([9.9])


def test_other_servers_aggregators_and_weights_are_refused() -> None:
    algorithm = Toy(IFCA(k=3)).algorithm
    refuses = algorithm.local.refuses
    assert refuses(algorithm, SGD(lr=0.1), "examples") is None
    for other in (algorithm.replace(server=Average()), algorithm.replace(aggregator=Mean())):
        said = refuses(other, SGD(lr=0.1), "examples")
        assert (
            said == "IFCA's server keeps 3 models and averages each over its own clients; leave "
            "aggregator and server out"
        )
    said = refuses(algorithm, SGD(lr=0.1), "horvitz_thompson")
    assert said is not None
    assert said.endswith(
        '\'horvitz_thompson\' by something else; use "examples" or "uniform", or average = '
        '"gradients"'
    )
    gradients = Toy(IFCA(average="gradients")).algorithm
    assert gradients.local.refuses(gradients, SGD(lr=0.1), "horvitz_thompson") is None


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="got k = 0; expected a whole number of at least 1"):
        IFCA(k=0)
    with pytest.raises(
        ConfigError,
        match="the model has no linear layer, so there is no head for each cluster; leave it out",
    ):
        Toy(
            IFCA(shared_base=True),
            model=lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(1)),
            start=(1.0, 0.0),
        )
