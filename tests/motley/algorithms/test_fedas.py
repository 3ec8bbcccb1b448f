"""FedAS: the pull, a round and the weighted step by hand, and rounds against the method written
out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from motley.algorithms.fedas import ClassPull, FedAS, FisherMean
from motley.algorithms.fedavgm import FedAvgM
from motley.algorithms.fedper import FedPer
from motley.algorithms.local_optimisers import SGD
from motley.core.errors import MotleyError
from motley.engines.engine import AdaptInputs, Job
from motley.experiments.build import build
from motley.tasks.task import ModelState
from motley.testing.algorithms import COHORTS, MODELS, SIZES, Play
from tests.motley.algorithms.server_contexts import context, state
from tests.motley.algorithms.test_fedproto import TowardsFour
from tests.motley.algorithms.test_personalised import near
from tests.motley.algorithms.test_plain_reference import WORK, Plain, close
from tests.motley.algorithms.toys import B, Toy
from tests.rows import Rows

LR, ALIGN_LR, ALIGN_EPOCHS = 0.1, 0.05, 2


def test_a_class_counts_as_any_whatever_its_samples() -> None:
    """Features of one number: class 0 has 1 and 3 with the mean 2, of class 1 is 5 with the mean 2:
    (1 + 1) / 2 + 9 = 10, the mean of 3/2, 3/2 and 27."""
    pull = ClassPull(torch.tensor([[2.0], [2.0]]))
    losses = pull(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
    assert losses.tolist() == near(1.5, 1.5, 27.0)
    assert losses.mean().item() == pytest.approx(10.0)


def test_a_pull_is_a_mean_over_features() -> None:
    pull = ClassPull(torch.zeros(1, 2))
    assert pull(torch.tensor([[1.0, 3.0]]), torch.tensor([0])).tolist() == near(5.0)


def test_a_round_by_hand() -> None:
    """The base .5 is received, the own last model is (1, 2), and the sample has the feature b: m =
    1. Aligned, b = .5 - .1 x 2 (.5 - 1) = .6. Trained, h b - 4 = -2.8: b = .6 + .1 x 5.6 = 1.16, h
    = 2 + .1 x 1.68 = 2.168. There h b - 4 = -1.48512, F = 1.48512^2 (2.168^2 + 1.16^2)."""
    toy = Toy(FedAS(align_lr=0.1), model=B, start=(1.0, 2.0), targets=(0.0,), loss=TowardsFour())
    toy.server = state(0.5)
    (done,) = toy.round()
    fisher = 1.48512**2 * (2.168**2 + 1.16**2)
    assert fisher == pytest.approx(13.334557, abs=1e-6)
    assert done.parts["fisher"].value.tolist() == near(fisher)
    assert done.parts["delta"].value.tolist() == near(fisher * 0.66)
    assert toy.algorithm.local.update(done.parts).tolist() == near(0.66, 0.0)
    assert done.client_state["x"].tolist() == near(1.16, 2.168)
    assert toy.server.model.x.tolist() == near(1.16)
    assert done.steps == 1  # the pull and the measurement are none
    assert done.signals["loss"] == pytest.approx(2.8**2 / 2)


@pytest.mark.parametrize(("fisher", "step"), [((1.0, 3.0), 7.0), ((0.0, 0.0), 0.0)])
def test_updates_weigh_by_their_traces(fisher, step) -> None:
    """Updates 4 and 8 of traces 1 and 3: (4 + 24) / 4; where all are 0 nothing moves."""
    total = {
        "delta": torch.tensor([fisher[0] * 4 + fisher[1] * 8]).double(),
        "fisher": torch.tensor([sum(fisher)]).double(),
    }
    assert FisherMean().update(state(1.0), total, context()).model.x.tolist() == near(1.0 + step)


# ---- rounds, written out ----


def class_means(model: nn.Module, plain: Plain, client: int) -> torch.Tensor:
    rows = torch.from_numpy(plain.data.train[client])
    features, classes = model[:2](plain.data.x[rows]).detach(), plain.data.y[rows]
    return torch.stack([features[classes == c].mean(0) for c in range(4)])


def aligned(model: nn.Module, batches, means: torch.Tensor) -> None:
    optimiser = torch.optim.SGD(model[0].parameters(), lr=ALIGN_LR)
    for x, y in batches:
        features = model[:2](x)
        loss = sum(
            F.mse_loss(features[y == c], means[c].expand(int((y == c).sum()), -1))
            for c in y.unique().tolist()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def trace(model: nn.Module, batches) -> float:
    total = 0.0
    for x, y in batches:
        loss = F.nll_loss(F.log_softmax(model(x), 1), y)
        total += sum(
            float(g.square().sum()) for g in torch.autograd.grad(loss, list(model.parameters()))
        )
    return total


def written_out(plain: Plain, jobs: list[Job]) -> None:
    trained, traces = [], []
    for job in jobs:
        old = plain.own.get(job.client, plain.first)
        model = copy.deepcopy(plain.shared)
        model[2].load_state_dict(old[2].state_dict())
        whole = -(-SIZES[job.client] // WORK.batch_size)
        means = class_means(old, plain, job.client)
        aligned(model, plain.batches(job, ALIGN_EPOCHS * whole, "align"), means)
        plain.train(model, plain.batches(job, job.steps))
        trained.append(model)
        traces.append(trace(model, plain.batches(job, whole, "fisher")))
        plain.own[job.client] = model
    with torch.no_grad():
        for name, value in plain.shared[0].named_parameters():
            values = [dict(model[0].named_parameters())[name] for model in trained]
            value.copy_(sum(f * v for f, v in zip(traces, values, strict=True)) / sum(traces))


def test_rounds_are_those_of_the_method_written_out() -> None:
    """Whole modules, torch's optimizers and gradients: four rounds of other clients, after each of
    which the base and every client's model agree to 1e-9."""
    method = FedAS(align_epochs=ALIGN_EPOCHS, align_lr=ALIGN_LR)
    play = Play(method, "examples", SGD(lr=LR))
    plain = Plain(play)
    for number, cohort in enumerate(COHORTS):
        play.round(number, cohort)
        written_out(plain, play.jobs(number, tuple(sorted(cohort))))
        base = nn.utils.parameters_to_vector(plain.shared[0].parameters()).detach()
        torch.testing.assert_close(play.server.model.x, base, rtol=0.0, atol=1e-9)
        download = play.algorithm.local.download(play.server)
        for client in range(len(SIZES)):
            kept = play.client_states.get(client, play.first)
            close(play.algorithm.local.examined(download, kept), plain.own.get(client, plain.first))


def test_a_client_alone_that_aligns_nothing_is_fedper() -> None:
    """Its trace divides out: to rounding, as the update is multiplied and divided by it. The model
    of one that is examined is the own last one, not the new base under its head."""
    fedas, fedper = (
        Play(method, "examples", SGD(lr=LR)).run([(2,), (5,), (2,)])
        for method in (FedAS(align_epochs=0), FedPer())
    )
    torch.testing.assert_close(fedas.server.model.x, fedper.server.model.x, rtol=0.0, atol=1e-12)
    size = len(fedper.client_states[5]["x"])
    head = fedas.client_states[5]["x"][-size:]
    torch.testing.assert_close(head, fedper.client_states[5]["x"], rtol=0.0, atol=1e-12)
    rule = fedas.algorithm.local
    own = rule.examined(rule.download(fedas.server), fedas.client_states[5])
    assert torch.equal(own.x, fedas.client_states[5]["x"])


def test_the_trace_is_measured_in_eval_mode() -> None:
    """BatchNorm's statistics count the batches of alignment and training alone."""
    play = Play(FedAS(), "examples", SGD(lr=LR), list(MODELS)[1])
    (job,) = jobs = play.jobs(0, (2,))
    assert len(jobs) == 1
    (done,) = play.train(0, (2,))
    aligning = -(-SIZES[2] // WORK.batch_size)
    assert done.client_state["counters"].tolist() == [aligning + job.steps]


def test_new_clients_adapt_their_head() -> None:
    """Plain steps on the received base, without features: b stays, h = 2 + .1 x 2."""
    toy = Toy(FedAS(), model=B, start=(1.0, 2.0), targets=(0.0,), loss=TowardsFour())
    model = ModelState(
        torch.tensor([1.0, 2.0]).double(), *list(vars(toy.server.model).values())[1:]
    )
    (after,) = toy.engine.adapt([Job(0, 0, 1, 0.1)], [AdaptInputs(model)], "new")
    assert after.x.tolist() == near(1.0, 2.2)


# ---- what travels, and what it does not go with ----

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}},
    "population": 6,
    "cohort": 2,
    "partition": {"name": "label_count", "labels": 3},
    "stop": {"rounds": 2},
    "split": {"test": "client"},
    "local": {"batch_size": 32},
    "algorithm": "fedas",
}
BASE = 64 * 16 + 16


def test_the_base_and_a_number_travel() -> None:
    rows = Rows()
    build(KEYS, writer=rows).step()
    row = rows.tables["rounds"][0]
    assert row["down_bits"] == 2 * 32 * BASE
    assert row["up_paper_bits"] == 2 * 32 * (BASE + 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algorithm": {"name": "fedas", "align_epochs": -1}}, "got align_epochs = -1; expected"),
        (
            {"algorithm": {"name": "fedas", "align_lr": 0}},
            "got align_lr = 0.0; expected a positive",
        ),
        ({"server": "momentum"}, "which the server rule Momentum does not; leave server out"),
        ({"weights": "uniform"}, "updates are weighed by how steep the client's loss is"),
        ({"compressor": "topk", "budget": {"name": "constant", "average": 0.2}}, "does not upload"),
        ({"local": {"batch_size": 32, "micro_batch": 8}}, "under 'fedas' clients compute with"),
        ({"engine": "vmap"}, "AlignedBase takes steps in directions of its own"),
        (
            {"task": {**KEYS["task"], "model": {"name": "mlp", "hidden": []}}},
            "keep every parameter",
        ),
    ],
)
def test_what_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(MotleyError, match=message):
        build({**KEYS, **keys})


def test_it_needs_one_class_per_sample() -> None:
    assert FisherMean().needs == {"classes"}


def test_its_server_rule_goes_with_its_clients_alone() -> None:
    play = Play(FedAS(), "examples", SGD())
    other = FedAvgM().change(play.algorithm)
    assert other.local.refuses(other, SGD(), "examples").endswith(
        "Momentum does not; leave server out"
    )
    plain = FedPer().change(play.algorithm)
    message = "FedAS weighs updates by traces, of which PersonalHead has none"
    assert plain.server.refuses(plain, SGD(), "examples") == message
