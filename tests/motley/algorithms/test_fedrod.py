"""FedRoD: the two heads' gradients by hand, and against a loop of torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from motley.algorithms.fedrod import BalancedLoss, FedRoD, HeadBeside
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import JobContext
from motley.core.errors import ConfigError
from motley.core.layout import Entry, Layout
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.testing.algorithms import Play

HEAD = ("2.weight", "2.bias")


def test_the_balanced_loss_by_hand() -> None:
    """Counts (3, 1): probabilities (.75, .25) at equal outputs; half as balanced, sqrt(3) to 1."""
    targets = torch.tensor([0, 0, 0, 1])
    for gamma, p in ((1.0, 0.75), (0.5, 3**0.5 / (1 + 3**0.5)), (0.0, 0.5)):
        loss = BalancedLoss(CrossEntropy(), gamma)
        extra = loss.prepare(None, lambda x: x.new_zeros(len(x), 2), torch.zeros(4, 1), targets)
        found = loss.gradient(torch.zeros(4, 2), targets, extra)
        assert found[0].tolist() == pytest.approx([p - 1, 1 - p], abs=1e-6)


def test_a_class_that_the_client_does_not_have_gets_nothing_at_any_gamma() -> None:
    """The count to the power of gamma is 0 for every gamma above 0, and 1 at 0."""
    counts = torch.tensor([3.0, 1.0, 0.0])
    for gamma, p in ((1.0, 0.0), (0.25, 0.0), (0.0, 1 / 3)):
        shift = BalancedLoss(CrossEntropy(), gamma).shift(counts)
        assert shift.softmax(-1)[2].item() == pytest.approx(p, rel=1e-6, abs=1e-30)


def by_torch(play: Play, client: int, steps: int, own: dict[str, torch.Tensor]):
    """Return the parameters and the own head after full-batch steps, written without Motley."""
    task = play.setting.task
    federation = task.federation
    at = federation.train[client]
    x, y = federation.x[at], federation.y[at]
    log = torch.bincount(y, minlength=4).double().log()
    w = {e.name: play.server.model.x[e.slice].view(e.shape).clone() for e in task.layout}
    module = task.model()
    assert isinstance(module, nn.Module)
    module = module.double()
    for _ in range(steps):
        w = {name: value.detach().requires_grad_() for name, value in w.items()}
        own = {name: value.detach().requires_grad_() for name, value in own.items()}
        generic = cross_entropy(functional_call(module, w, (x,)) + log, y)
        still = {name: value.detach() for name, value in w.items()}
        personal = {**still, **{name: still[name] + own[name] for name in HEAD}}
        plain = cross_entropy(functional_call(module, personal, (x,)), y)
        of_w = dict(zip(w, torch.autograd.grad(generic, list(w.values())), strict=True))
        of_own = dict(zip(own, torch.autograd.grad(plain, list(own.values())), strict=True))
        w = {name: value - 0.1 * of_w[name] for name, value in w.items()}
        own = {name: value - 0.1 * of_own[name] for name, value in own.items()}
    return w, own


def test_two_rounds_of_a_client_are_those_of_a_loop_of_torch() -> None:
    """Client 4 has 4 samples, fewer than a batch: two steps a round. P goes on from round to
    round."""
    play = Play(FedRoD(), "examples", SGD(lr=0.1))
    layout = play.setting.task.layout
    own = {name: torch.zeros(layout[name].shape, dtype=torch.float64) for name in HEAD}
    for number in (0, 1):
        wanted, own = by_torch(play, 4, 2, own)
        before = play.server.model.x
        (trained, _) = play.round(number, (4, 7))
        after = before + trained.parts["delta"].value
        assert after.tolist() == pytest.approx(
            torch.cat([wanted[e.name].detach().reshape(-1) for e in layout]).tolist(), abs=1e-12
        )
        kept = torch.cat([own[name].detach().reshape(-1) for name in HEAD])
        assert play.client_states[4]["head"].tolist() == pytest.approx(kept.tolist(), abs=1e-12)


def test_a_client_uses_the_shared_model_with_both_heads() -> None:
    play = Play(FedRoD(), "examples", SGD(lr=0.1)).run()
    rule = play.algorithm.local
    download = rule.download(play.server)
    state = play.client_states[2]
    moved = rule.examined(download, state).x - download["x"]
    head = torch.cat([moved[play.setting.task.layout[name].slice] for name in HEAD])
    assert torch.allclose(head, state["head"])
    assert int((moved != 0).sum()) == int((head != 0).sum()) > 0
    assert torch.equal(
        rule.examined(download, rule.initial_state(play.server.model)).x, download["x"]
    )


def test_a_new_client_adapts_its_head_alone() -> None:
    play = Play(FedRoD(), "examples", SGD(lr=0.1))
    rule = play.algorithm.local
    context = JobContext(
        play.server.model.x, rule.download(play.server), None, 1, 0.1, 4, 1.0, Layout(())
    )
    (phase,) = rule.adaptation(context)
    assert phase.where == set(HEAD)
    assert phase.model != ""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algorithm": {"name": "fedrod", "gamma": -1}}, "got gamma = -1.0; expected a finite"),
        ({"task": "quadratic", "partition": "by_writer"}, "the targets of this task are numbers"),
    ],
)
def test_what_it_cannot_do_is_refused(keys, message) -> None:
    given = {
        "task": {"name": "image", "data": "digits"},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "algorithm": "fedrod",
    }
    with pytest.raises(ConfigError, match=message):
        build(Experiment(**{**given, **keys}))


def test_a_model_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="FedRoD reads the last linear layer, and this model"):
        HeadBeside().bound(Layout((Entry("w", "", (3,), 0),)))
