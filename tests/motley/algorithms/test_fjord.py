"""FjORD: what is drawn, how the widest slice teaches the others, a plain reference of local work,
and statistics of each width."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from motley.algorithms.fedavg import FedAvg
from motley.algorithms.fjord import FjORD, Taught
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy, HalfSquaredError
from motley.core.errors import ConfigError, ContractError
from motley.engines.batches import BatchPlan
from motley.engines.engine import Job
from motley.engines.local import Sequential
from motley.engines.ordered_client import self_distillation
from motley.tasks.narrow_models import narrowed
from motley.testing.algorithms import Play

HALVES = (1.0, 0.5, 0.25)


def test_a_teacher_of_even_odds_pulls_by_a_quarter():
    """softmax(log 3, 0) = (3/4, 1/4) minus the teacher's (1/2, 1/2)."""
    own = torch.tensor([[3.0, 1.0]]).log().requires_grad_()
    teacher = torch.zeros(1, 2, requires_grad=True)
    self_distillation(own, teacher).sum().backward()
    assert own.grad.tolist() == [[pytest.approx(0.25, abs=1e-7), pytest.approx(-0.25, abs=1e-7)]]
    assert teacher.grad is None


def test_one_output_for_two_classes_is_taught_as_two_are():
    """The output log 3 stands for the logits (0, log 3): 3/4 minus the teacher's 1/2."""
    own = torch.tensor([[3.0]]).log().requires_grad_()
    self_distillation(own, torch.zeros(1, 1)).sum().backward()
    assert own.grad.tolist() == [[pytest.approx(0.25, abs=1e-7)]]


@pytest.mark.parametrize("model", ["an MLP", "an MLP with BatchNorm"])
@pytest.mark.parametrize("distil", [False, True])
def test_with_the_single_width_1_it_is_fedavg_bit_for_bit(distil, model):
    class Whole(Play):
        def jobs(self, number, cohort):
            return [dataclasses.replace(job, width=1.0) for job in super().jobs(number, cohort)]

    solver = SGD(lr=0.1, momentum=0.9)
    found = Whole(FjORD(widths=(1.0,), distil=distil), "examples", solver, model).run().server.model
    plain = Play(FedAvg(), "examples", solver, model).run().server.model
    assert all(
        torch.equal(getattr(found, name), getattr(plain, name))
        for name in ("x", "buffers", "counters")
    )


def drawn_widths(play, job, widths):
    """Return the width of every step, as the client draws it."""
    numbers = (
        play.setting.key("batches", job)
        .fold("widths")
        .numpy()
        .integers(len(widths), size=job.steps)
    )
    return [widths[i] for i in numbers]


def reference(play, job, widths, distil, momentum):
    """Return a client's weights after its steps, and the statistics of each width, by plain loops
    over fresh modules."""
    setting = play.setting
    layout = play.setting.task.layout
    model = play.server.model
    w = model.x.clone()
    v = torch.zeros_like(model.x)
    states = {}
    data = setting.task.federation
    mine = data.train[job.client]
    plan = BatchPlan.draw(setting.key("batches", job), len(mine), setting.work, job.steps)

    def at(width):
        """Return the slice of the current weights as a module in training, and the positions of its
        weights."""
        module = narrowed(setting.task.model, layout, width, False).double()
        positions = layout.kept_positions(width)
        torch.nn.utils.vector_to_parameters(w[positions], module.parameters())
        if width in states:
            module.load_state_dict({**module.state_dict(), **states[width]})
        module.train()
        return module, positions

    def keep(module, width):
        states[width] = {name: value.clone() for name, value in module.named_buffers()}

    for step, p in enumerate(drawn_widths(play, job, widths)):
        x = data.x[torch.from_numpy(mine[plan[step]])].double()
        y = data.y[torch.from_numpy(mine[plan[step]])]
        module, positions = at(p)
        outputs = module(x)
        gradient = torch.zeros_like(w)
        if distil and p < widths[0]:
            teacher, whole = at(widths[0])
            judged = teacher(x)
            (outputs.log_softmax(1) * judged.detach().softmax(1)).sum(1).neg().mean().backward()
            F.cross_entropy(judged, y).backward()
            gradient[whole] += torch.cat([q.grad.reshape(-1) for q in teacher.parameters()])
            keep(teacher, widths[0])
        else:
            F.cross_entropy(outputs, y).backward()
        gradient[positions] += torch.cat([q.grad.reshape(-1) for q in module.parameters()])
        keep(module, p)
        held = layout.kept_positions(widths[0])
        v[held] = momentum * v[held] + gradient[held]
        w[held] -= job.lr * v[held]
    return w, states


@pytest.mark.parametrize("distil", [False, True])
@pytest.mark.parametrize(("width", "momentum"), [(1.0, 0.9), (0.5, 0.0), (1.0, 0.0)])
def test_local_work_agrees_with_a_plain_reference(distil, width, momentum):
    play = Play(
        FjORD(widths=HALVES, distil=distil),
        "examples",
        SGD(lr=0.1, momentum=momentum),
        "an MLP with BatchNorm",
    )
    layout = play.setting.task.layout
    rule = play.algorithm.local
    job = Job(2, 7, 9, 0.1, width=width)
    (done,) = Sequential(play.setting).train([job], rule.download(play.server), {})
    widths = HALVES[HALVES.index(width) :]
    w, states = reference(play, job, widths, distil, momentum)
    assert len(states) == len(widths)  # the steps are enough to draw all of them
    delta = done.parts["delta"]
    kept = layout.kept_positions(width)
    assert delta.held.nonzero()[:, 0].tolist() == kept.tolist()
    assert not delta.value[~delta.held].any()
    torch.testing.assert_close(
        delta.value[kept], (w - play.server.model.x)[kept], rtol=1e-10, atol=1e-13
    )
    rows, held = (
        tensor.view(len(HALVES), -1)
        for tensor in (done.parts["buffers"].value, done.parts["buffers"].held)
    )
    for p, row, mine in zip(HALVES, rows, held, strict=True):
        positions = layout.kept_buffers(p)
        assert mine.nonzero()[:, 0].tolist() == (positions.tolist() if p in states else [])
        if p in states:
            wanted = torch.cat([states[p]["1.running_mean"], states[p]["1.running_var"]])
            torch.testing.assert_close(row[positions], wanted, rtol=1e-10, atol=1e-13)


def test_statistics_that_nobody_held_stay_and_the_others_are_averaged():
    play = Play(FjORD(widths=HALVES), "examples", SGD(lr=0.1), "an MLP with BatchNorm")
    layout = play.setting.task.layout
    before = play.server.model.buffers.view(3, -1)
    play.jobs = lambda number, cohort: [Job(c, i, 6, 0.1, width=0.5) for i, c in enumerate(cohort)]
    done = play.round(0, (2, 3))
    after = play.server.model.buffers.view(3, -1)
    positions = layout.kept_buffers(0.5)
    assert torch.equal(after[0], before[0])
    weights = {trained.client: n for trained, n in zip(done, (13.0, 12.0), strict=True)}
    rows = sum(weights[t.client] * t.parts["buffers"].value.view(3, -1)[1] for t in done) / 25.0
    torch.testing.assert_close(after[1][positions], rows[positions], rtol=1e-12, atol=0)
    assert torch.equal(after[1][before[1] == after[1]], before[1][before[1] == after[1]])
    start = play.algorithm.local.start(play.algorithm.local.download(play.server), None)
    # the whole model is examined with the statistics of the width 1
    assert torch.equal(start.buffers, after[0])


def test_widths_are_drawn_alike_and_by_round_and_client():
    play = Play(FjORD(widths=HALVES), "examples", SGD(lr=0.1))
    many = [w for k in range(300) for w in drawn_widths(play, Job(k, 0, 10, 0.1), HALVES)]
    shares = [np.mean(np.array(many) == width) for width in HALVES]
    assert np.abs(np.array(shares) - 1 / 3).max() < 4 * np.sqrt(2 / 9 / len(many))
    one = drawn_widths(play, Job(3, 5, 40, 0.1), HALVES)
    assert one == drawn_widths(play, Job(3, 5, 40, 0.1), HALVES)
    assert one != drawn_widths(play, Job(3, 6, 40, 0.1), HALVES)
    assert one != drawn_widths(play, Job(4, 5, 40, 0.1), HALVES)


def test_a_width_that_is_not_listed_is_refused():
    play = Play(FjORD(widths=(1.0, 0.5)), "examples", SGD(lr=0.1))
    with pytest.raises(
        ContractError, match=r"got a client of width 0.3; the listed widths are \[1.0, 0.5\]"
    ):
        list(
            Sequential(play.setting).train(
                [Job(2, 0, 1, 0.1, width=0.3)], play.algorithm.local.download(play.server), {}
            )
        )
    for widths in ((0.5, 1.0), (0.5, 0.25), (1.0, 0.0), ()):
        with pytest.raises(ConfigError, match=r"expected shares that fall from 1"):
            FjORD(widths=widths)


def test_slices_teach_each_other_classes_alone():
    assert "write distil = false" in Taught(CrossEntropy()).refuses_targets("positions", 3)
    assert "write distil = false" in Taught(HalfSquaredError()).refuses_targets("values", None)
    assert Taught(CrossEntropy()).refuses_targets("classes", 3) is None


def test_engines_that_batch_clients_refuse_it_by_name():
    said = Play(FjORD(), "examples", SGD(lr=0.1), engine="batched").refuses()
    assert (
        said
        == "clients under OrderedDropout train slices of the model, which sequential and threads "
        "compute"
    )
