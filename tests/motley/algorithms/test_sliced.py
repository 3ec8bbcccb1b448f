"""Clients that train slices of the model: how slices are averaged, masked classes, and the cases
that must coincide."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms import AGGREGATORS, LOSSES, SERVERS
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average, FedAvg
from motley.algorithms.fedrolex import FedRolex, Rolling
from motley.algorithms.fjord import Taught
from motley.algorithms.flash_robust import FlashRobust
from motley.algorithms.heterofl import HeteroFL
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy, HalfSquaredError
from motley.algorithms.parts import (
    Algorithm,
    JobContext,
    LocalRule,
    Part,
    Upload,
    aggregate,
    step_model,
)
from motley.algorithms.sliced import MaskedClasses, SlicedTraining
from motley.core.errors import ConfigError
from motley.engines.batches import BatchPlan
from motley.engines.engine import Job
from motley.engines.local import Sequential
from motley.tasks import narrow_models
from motley.tasks.flat import layout_of
from motley.tasks.narrow_models import cuttable, narrowed
from motley.tasks.task import ModelState
from motley.testing.algorithms import Play

WEIGHTS = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
"""Between two hidden layers of two units each."""
NARROW = torch.tensor([True, False, False, False])
"""What a client of half the width holds of it."""


def after(*uploads):
    """Return W after a server step on (value, held, weight) of several clients."""
    parts = [
        Upload({"delta": Part(value.reshape(-1), "covered", held)}, weight)
        for value, held, weight in uploads
    ]
    total = aggregate(Mean(), parts, "weight")
    empty = torch.zeros(0)
    server = Average().init(ModelState(WEIGHTS.reshape(-1), empty, empty), 2)
    return step_model(server, total["delta"], total).x.reshape(2, 2).tolist()


def test_a_coordinate_moves_by_the_mean_over_those_who_hold_it():
    one = torch.ones(2, 2)
    three = torch.full((2, 2), 3.0)
    # counts [[2, 1], [1, 1]]: W00 = 1 + (1 + 3) / 2, the others move by client A's 1
    assert after((one, None, 1.0), (three, NARROW, 1.0)) == [[3.0, 3.0], [4.0, 5.0]]
    # weights by examples, n = 3 and 1: W00 = 1 + (3 * 1 + 1 * 3) / 4
    assert after((one, None, 3.0), (three, NARROW, 1.0)) == [[2.5, 3.0], [4.0, 5.0]]
    # B alone: what nobody holds stays
    assert after((three, NARROW, 1.0)) == [[4.0, 2.0], [3.0, 4.0]]


def test_what_nobody_holds_stays_bit_for_bit_also_a_negative_zero():
    total = aggregate(
        Mean(), [Upload({"delta": Part(torch.ones(4), "covered", NARROW)}, 1.0)], "weight"
    )
    x = torch.tensor([5.0, -0.0, 0.0, -3.0])
    moved = (x.double() + 1.0 * total["delta"]).float()
    assert moved[1:].view(torch.int32).tolist() == x[1:].view(torch.int32).tolist()


def test_averages_of_slices_agree_with_a_plain_reference():
    layout = cuttable(
        *reversed(
            (
                module := nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)),
                layout_of(module),
            )
        )
    )
    generator = torch.Generator().manual_seed(0)
    uploads = []
    total = np.zeros(layout.size)
    weights = np.zeros(layout.size)
    for width, offset, weight in ((1.0, 0, 2.0), (0.5, 3, 1.0), (0.5, 4, 5.0), (0.2, 6, 0.5)):
        positions = layout.kept_positions(width, offset)
        value = torch.zeros(layout.size, dtype=torch.float64)
        value[positions] = torch.randn(len(positions), generator=generator, dtype=torch.float64)
        held = torch.zeros(layout.size, dtype=torch.bool)
        held[positions] = True
        uploads.append(Upload({"delta": Part(value, "covered", held)}, weight))
        for c in positions:
            total[c] += weight * float(value[c])
            weights[c] += weight
    found = aggregate(Mean(), uploads, "weight")["delta"].numpy()
    np.testing.assert_allclose(
        found, np.divide(total, weights, out=np.zeros_like(total), where=weights > 0), rtol=1e-12
    )


def test_classes_that_a_client_lacks_are_masked():
    loss = MaskedClasses(CrossEntropy())
    context = JobContext(torch.zeros(0), {}, None, 1, 0.1, 2, 1.0, None)
    extra = loss.prepare(
        context,
        lambda inputs: torch.zeros(len(inputs), 2),
        torch.zeros(3, 1),
        torch.tensor([0, 0, 0]),
    )
    assert extra["present"].tolist() == [[True, False]] * 3
    outputs = torch.tensor([[2.0, 5.0]], requires_grad=True)
    value = loss.loss(outputs, torch.tensor([0]), {"present": extra["present"][:1]})
    assert value.item() == pytest.approx(np.log1p(np.exp(-2.0)), abs=1e-6)  # 0.126928
    value.sum().backward()
    assert outputs.grad[0, 1] == 0.0
    assert loss.loss(outputs.detach(), torch.tensor([0]), {}).item() == pytest.approx(
        np.log1p(np.exp(3.0)), rel=1e-6
    )


@pytest.mark.parametrize("wrapped", [MaskedClasses, Taught])
def test_a_loss_around_another_prepares_what_that_needs(wrapped: type) -> None:
    """FLASH's pseudo labels are of the received model: softmax (1, 3), with the second class masked
    softmax (1, 0)."""
    outputs = torch.tensor([[1.0, 3.0]])
    loss = wrapped(FlashRobust())
    assert loss.prepares
    extra = loss.prepare(None, lambda x: x, outputs, torch.tensor([0]))
    seen = torch.tensor([[1.0, 0.0]]) if wrapped is MaskedClasses else outputs
    torch.testing.assert_close(extra["pseudo"], seen.softmax(-1))
    own = FlashRobust().loss(seen * 2, torch.tensor([0]), {"pseudo": seen.softmax(-1)})
    torch.testing.assert_close(loss.loss(outputs * 2, torch.tensor([0]), extra), own)


def test_rows_of_absent_classes_do_not_count():
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    layout = layout_of(module)
    x = torch.zeros(layout.size)
    context = JobContext(
        x, {}, None, 1, 0.1, 2, 1.0, layout, classes=torch.tensor([True, False, True])
    )
    held = SlicedTraining(mask=True).finish(ModelState(x, x[:0], x[:0]), context)[0]["delta"].held
    assert held[:6].all()
    # a row of two weights for each class
    assert held[6:12].tolist() == [True, True, False, False, True, True]
    assert held[12:].tolist() == [True, False, True]
    assert SlicedTraining().finish(ModelState(x, x[:0], x[:0]), context)[0]["delta"].held is None


@pytest.mark.parametrize("method", [HeteroFL, FedRolex])
@pytest.mark.parametrize(
    ("mask", "absent_rows", "masks", "leaves_out"),
    [
        (True, "as_mask", True, True),
        (False, "as_mask", False, False),
        (False, "left_out", False, True),
    ],
)
def test_rows_of_absent_classes_are_left_out_as_the_mask_or_always(
    method, mask, absent_rows, masks, leaves_out
):
    plain = Algorithm(CrossEntropy(), LocalRule(), Mean(), Average())
    made = method(mask, absent_rows).change(plain)
    assert made.loss == (MaskedClasses(CrossEntropy()) if masks else CrossEntropy())
    assert made.local.mask == leaves_out


@pytest.mark.parametrize("method", [HeteroFL, FedRolex])
def test_rows_that_the_mask_leaves_out_have_no_second_name(method):
    with pytest.raises(
        ConfigError, match=r'absent_rows = "left_out" with mask = true.*mask = false'
    ):
        method(absent_rows="left_out")


@pytest.mark.parametrize("method", [HeteroFL(mask=False), FedRolex(mask=False)])
@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_with_all_of_the_width_and_no_mask_it_is_fedavg_bit_for_bit(method, weights):
    class Whole(Play):
        def jobs(self, number, cohort):
            return [dataclasses.replace(job, width=1.0) for job in super().jobs(number, cohort)]

    solver = SGD(lr=0.1, momentum=0.9)
    found = Whole(method, weights, solver).run().server.model
    plain = Play(FedAvg(), weights, solver).run().server.model
    assert torch.equal(found.x, plain.x)


def test_fedrolex_holds_the_next_units_in_the_next_round():
    play = Play(FedRolex(mask=False), "uniform", SGD(lr=0.1))
    layout = play.setting.task.layout
    engine = Sequential(play.setting)
    download = play.algorithm.local.download(play.server)
    for version in (0, 1):
        job = Job(2, 0, 3, 0.1, width=0.25, offset=Rolling().slicing.offset(version))
        (done,) = engine.train([job], download, {})
        delta = done.parts["delta"]
        # 2 of 5 hidden units
        assert delta.held.nonzero()[:, 0].tolist() == layout.kept_positions(0.25, version).tolist()
        assert not delta.value[~delta.held].any()
        assert delta.held[layout["0.bias"].slice].tolist() == [
            version <= unit < version + 2 for unit in range(5)
        ]


def test_the_structure_is_read_before_clients_train(monkeypatch):
    # torch.fx exchanges what every module does when it is called, also in other threads, which
    # would then fail
    play = Play(HeteroFL(), "uniform", SGD(lr=0.1))
    download = play.algorithm.local.download(play.server)
    engine = Sequential(play.setting)
    monkeypatch.setattr(
        narrow_models, "_traced", lambda module: pytest.fail("a graph is read while clients train")
    )
    assert all(
        done.finite
        for done in engine.train(
            [Job(2, 0, 3, 0.1, width=width) for width in (0.25, 0.5)], download, {}
        )
    )


@pytest.mark.parametrize(("width", "version"), [(1.0, 0), (0.5, 0), (0.5, 3)])
def test_static_batch_norm_agrees_with_a_plain_reference(width, version):
    """In training the batch's own statistics alone, after a division by the width; nothing of
    statistics is kept or sent."""
    play = Play(FedRolex(mask=False), "uniform", SGD(lr=0.1), "an MLP with BatchNorm")
    setting = play.setting
    layout = play.setting.task.layout
    x = play.server.model.x
    job = Job(2, 0, 3, 0.1, width=width, offset=version)
    (done,) = Sequential(setting).train([job], play.algorithm.local.download(play.server), {})
    assert done.parts.keys() == {"delta"}
    positions = layout.kept_positions(width, version)
    data = setting.task.federation
    module = narrowed(setting.task.model, layout, width, False).double().train()
    module[1].track_running_stats, module[1].running_mean, module[1].running_var = False, None, None
    torch.nn.utils.vector_to_parameters(x[positions].clone(), module.parameters())
    mine = data.train[2]
    plan = BatchPlan.draw(setting.key("batches", job), len(mine), setting.work, 3)
    for step in range(3):
        rows = torch.from_numpy(mine[plan[step]])
        hidden = module[0](data.x[rows].double()) / width
        outputs = module[3](module[2](module[1](hidden)))
        gradients = torch.autograd.grad(
            torch.nn.functional.cross_entropy(outputs, data.y[rows]), list(module.parameters())
        )
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    after = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(
        done.parts["delta"].value[positions], after - x[positions], rtol=1e-10, atol=1e-13
    )


def test_engines_that_batch_clients_refuse_slices_by_name():
    for engine in ("batched", "vmap", "processes"):
        said = Play(HeteroFL(), "uniform", SGD(lr=0.1), engine=engine).refuses()
        assert (
            said == "clients under SlicedTraining train slices of the model, which sequential and "
            "threads compute"
        )


def test_the_mask_is_for_classes_alone():
    plain = Algorithm(HalfSquaredError(), LocalRule(), Mean(), Average())
    for method in (HeteroFL(), HeteroFL(False, "left_out")):
        made = method.change(plain)
        assert (made.loss, made.local.mask, made.weights) == (plain.loss, False, "uniform")
    assert "write mask = false" in MaskedClasses(CrossEntropy()).refuses_targets("positions", 3)


@pytest.mark.parametrize(
    ("parts", "weights", "message"),
    [
        (
            {"aggregator": AGGREGATORS.build({"name": "krum"})},
            "uniform",
            "Krum works on whole updates, and these clients update",
        ),
        (
            {"server": SERVERS.build({"name": "adam"})},
            "uniform",
            "would move coordinates that nobody trained",
        ),
        ({}, "horvitz_thompson", "divides by the weights of the clients that hold a coordinate"),
    ],
)
def test_parts_that_need_whole_updates_are_refused(parts, weights, message):
    made = (
        HeteroFL()
        .change(Algorithm(LOSSES.build("cross_entropy"), LocalRule(), Mean(), Average()))
        .replace(**parts)
    )
    assert message in made.local.refuses(made, SGD(lr=0.1), weights)
    assert (
        made.replace(aggregator=Mean(), server=Average()).local.refuses(
            made.replace(aggregator=Mean(), server=Average()), SGD(lr=0.1), "examples"
        )
        is None
    )
