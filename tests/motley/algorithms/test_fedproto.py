"""FedProto: the worked number, the mean of prototypes, features after local work, and what it goes
with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavgm import FedAvgM
from motley.algorithms.fedproto import FedProto, PrototypeLoss, PrototypeMean
from motley.algorithms.local_only import LocalOnly
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import Loss, ServerContext, ServerState, Upload, aggregate
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.engines.engine import AdaptInputs, Job
from motley.tasks.flat import FlatModule
from motley.tasks.task import ModelState
from motley.testing.algorithms import COHORTS, MODELS, Play
from tests.motley.algorithms.test_personalised import SOLVERS, near, played
from tests.motley.algorithms.toys import B, Toy

PLAIN, NORMED = MODELS


@dataclass(frozen=True)
class TowardsFour(Loss):
    """Half the squared distance of the one output from 4, whatever the class."""

    kind: ClassVar = "classes"

    def loss(self, outputs, targets, extra):
        return (outputs[..., 0] - 4.0).square() / 2


def toy(**options) -> Toy:
    return Toy(FedProto(**options), model=B, start=(1.0, 2.0), targets=(0.0,), loss=TowardsFour())


def test_a_step_by_hand() -> None:
    """Base b = 1, head h = 2, feature b, target 4, prototype 3: the gradient of b is (2 - 4) 2 + 2
    (1 - 3) = -8, so b = 1.8; h = 2 - .1 (2 - 4) 1 = 2.2. The new feature 1.8 becomes the prototype;
    of the other class there is none still."""
    play = toy()
    play.server = ServerState(
        play.server.model, {"prototypes": torch.tensor([[3.0], [0.0]]).double()}
    )
    play.round()
    assert play.examined() == near(1.8, 2.2)
    assert play.server.extra["prototypes"].flatten().tolist() == near(1.8, 0.0)


def test_a_class_without_a_prototype_pulls_nothing() -> None:
    """In the first round there is none: b = 1 + .1 x 4 = 1.4, as in local training."""
    play = toy(lam=7.0)
    play.round()
    assert play.examined() == near(1.4, 2.2)


def test_the_pull_is_a_mean_over_features() -> None:
    """lam = 2, feature (1, 5), prototype (3, 1): 2 (4 + 16) / 2 = 20 beside the cross-entropy log
    2."""
    loss = PrototypeLoss(CrossEntropy(), 2.0)
    features = torch.tensor([[1.0, 5.0], [1.0, 5.0]]).double()
    outputs = torch.zeros(2, 2).double()
    targets = torch.tensor([0, 1])
    extra = {"prototype": torch.tensor([[3.0, 1.0], [0.0, 0.0]]).double()}
    found = loss.compare(outputs, targets, extra, features, ())
    assert found.tolist() == near(
        20 + torch.tensor(2.0).double().log().item(), torch.tensor(2.0).double().log().item()
    )


@pytest.mark.parametrize(
    ("prototype_weights", "mean"), [("counts", [2.0, 3.0]), ("uniform", [3.0, 4.0])]
)
def test_the_server_weighs_by_class_counts_or_alike(
    prototype_weights: str, mean: list[float]
) -> None:
    """Class 0 with mean (1, 2) of three samples at one client and (5, 6) of one at another:
    ((3 + 5) / 4, (6 + 6) / 4) or ((1 + 5) / 2, (2 + 6) / 2). Class 1 stays: nobody has it. The
    round's own weights do not matter."""
    exchange = toy(prototype_weights=prototype_weights).algorithm.local
    model = ModelState(
        torch.zeros(0).double(), torch.zeros(0).double(), torch.zeros(0, dtype=torch.int64)
    )
    before = torch.tensor([[9.0, 9.0], [7.0, 8.0]]).double()
    uploads = []
    for count, feature, weight in ((3, (1.0, 2.0), 100.0), (1, (5.0, 6.0), 1.0)):
        values = {
            "features": torch.tensor([feature] * count).double(),
            "targets": torch.zeros(count, dtype=torch.int64),
        }
        context = _Context({"prototypes": before}, values)
        after = ModelState(torch.zeros(2).double(), model.buffers, model.counters)
        parts, _ = exchange.finish(after, context)
        uploads.append(Upload(parts, weight))
    total = aggregate(Mean(), uploads, "weight")
    new = PrototypeMean().update(
        ServerState(model, {"prototypes": before}), total, ServerContext(Layout(()), 2, 2)
    )
    assert new.extra["prototypes"].tolist() == [near(*mean), near(7.0, 8.0)]


@dataclass(frozen=True)
class _Context:
    download: dict
    values: dict


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prototype_weights", ["counts", "uniform"])
def test_without_a_pull_it_is_local_training(
    model: str, solver: str, prototype_weights: str
) -> None:
    one = played(FedProto(lam=0.0, prototype_weights=prototype_weights), model, solver)
    two = played(LocalOnly(), model, solver)
    assert one.client_states.keys() == two.client_states.keys()
    for client, kept in two.client_states.items():
        assert all(
            torch.equal(one.client_states[client][name], value) for name, value in kept.items()
        )


def test_features_are_those_of_the_final_model_in_eval_mode() -> None:
    """Against the module of the client's new model: sums and counts of its ReLU outputs by
    class."""
    play = Play(FedProto(), "examples", SGD(lr=0.1), NORMED)
    done = play.round(0, COHORTS[0])
    data = play.setting.task.federation
    for trained in done:
        flat = FlatModule.of(play.setting.task.model, torch.float64)
        flat.load(ModelState(**trained.client_state))
        net = flat.module.eval()
        rows = torch.from_numpy(data.train[trained.client])
        features = net[:3](data.x[rows]).detach()
        classes = data.y[rows]
        for c in range(4):
            torch.testing.assert_close(
                trained.parts["sums"].value[c],
                features[classes == c].sum(0),
                rtol=1e-12,
                atol=1e-14,
            )
            assert trained.parts["counts"].value[c] == (classes == c).sum()


def test_fine_tuning_has_no_prototypes() -> None:
    """A model that is fine-tuned takes plain steps: b = 1 + .1 x 4, h = 2.2, though a prototype
    lies at 3."""
    play = toy()
    play.server = ServerState(
        play.server.model, {"prototypes": torch.tensor([[3.0], [0.0]]).double()}
    )
    model = play.algorithm.local.examined(play.download, play.first)
    (after,) = play.engine.adapt([Job(0, 0, 1, 0.1)], [AdaptInputs(model)])
    assert after.x.tolist() == near(1.4, 2.2)


def test_what_it_does_not_go_with() -> None:
    with pytest.raises(ConfigError, match="got lam = -1"):
        FedProto(lam=-1.0)
    play = toy()
    exchange = play.algorithm.local
    other = play.algorithm.replace(server=FedAvgM().change(play.algorithm).server)
    said = "clients upload prototypes, and Momentum steps a model; leave server out"
    assert exchange.refuses(other, SGD(), "examples") == said
    with pytest.raises(
        ConfigError, match="prototypes are inputs of the last linear layer, and this model has none"
    ):
        exchange.bound(Layout(()))
    assert PrototypeLoss(CrossEntropy()).refuses_targets("numbers", None) is not None
