"""One model for each architecture: averaged within its clients, distilled from all, by hand."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.feddf import FedDF
from motley.algorithms.group_models import GroupTraining, group_of, joined
from motley.algorithms.job import JobContext
from motley.algorithms.parts import ServerState, Upload, aggregate
from motley.tasks.task import ModelState
from tests.motley.algorithms.server_contexts import model, ones
from tests.motley.algorithms.unlike import ARCHITECTURES, context

LAYOUTS = ARCHITECTURES.layouts
"""Of two and of four weights."""


def served(*x: float) -> ServerState:
    """The server's two models, of two and of four weights."""
    return ServerState(model(*x))


def upload(client, number, state, after, weight=1.0):
    """What a client of an architecture sends, whose weights became these."""
    rule = GroupTraining(LAYOUTS, number)
    download = rule.download(state)
    start = rule.start(download, None)
    given = JobContext(
        x=start.x,
        download=download,
        client_state=None,
        steps=1,
        lr=0.1,
        num_examples=1,
        solver_norm=1.0,
        layout=LAYOUTS[number],
    )
    trained = ModelState(torch.tensor(after).double(), start.buffers, start.counters)
    return Upload(rule.finish(trained, given)[0], weight, client=client)


def stepped(method, state, uploads, holders, **given):
    """The server's models after a step."""
    total = aggregate(Gather(), uploads, "weight")
    given = context(holders, groups=LAYOUTS, **given)
    return method.update(state, total, given).model


def test_a_client_starts_from_the_model_of_its_group():
    state = served(1, 2, 3, 4, 5, 6)
    starts = [GroupTraining(LAYOUTS, number).start(vars(state.model), None) for number in (0, 1)]
    assert [start.x.tolist() for start in starts] == [[1.0, 2.0], [3.0, 4.0, 5.0, 6.0]]


def test_models_are_averaged_within_their_group():
    """The first group's changes 1 and 3 with the weights 1 and 3: (1 + 9) / 4 = 2.5; the second's
    only client adds 2."""
    state = served(0, 0, 1, 1, 1, 1)
    uploads = [
        upload(0, 0, state, [1, 1]),
        upload(1, 1, state, [3, 3, 3, 3], weight=5.0),
        upload(2, 0, state, [3, 3], weight=3.0),
    ]
    after = stepped(FedDF(steps=0), state, uploads, [0, 1, 0])
    assert group_of(after, LAYOUTS, 0).x.tolist() == [2.5, 2.5]
    assert group_of(after, LAYOUTS, 1).x.tolist() == [3.0, 3.0, 3.0, 3.0]


def test_a_group_without_clients_stays_bit_for_bit():
    state = served(0, 0, 0.1, -0.0, 0.3, 1e-30)
    after = stepped(FedDF(steps=0), state, [upload(0, 0, state, [1, 1])], [0, 1])
    kept, now = (group_of(one, LAYOUTS, 1).x for one in (state.model, after))
    assert kept.view(torch.int64).tolist() == now.view(torch.int64).tolist()


def test_every_group_learns_from_the_ensemble_of_all():
    """Logits (2, 0) of the first group's client and (0, 0) of the second's: their mean (1, 0) has
    the softmax (.731, .269). The first student, .881, must give up: Adam's step of .1 makes (1.9,
    .1); the second, .5, must gain: slopes and biases (.1, -.1)."""
    state = served(0, 0, 0, 0, 0, 0)
    uploads = [upload(0, 0, state, [2, 0]), upload(1, 1, state, [0, 0, 0, 0])]
    validation = ones(1), torch.zeros(1, dtype=torch.int64)
    method = FedDF(steps=1, batch_size=1, lr=0.1)
    after = stepped(method, state, uploads, [0, 1], validation=validation)
    assert group_of(after, LAYOUTS, 0).x.tolist() == pytest.approx([1.9, 0.1], abs=1e-6)
    wanted = [0.1, -0.1, 0.1, -0.1]
    assert group_of(after, LAYOUTS, 1).x.tolist() == pytest.approx(wanted, abs=1e-6)


def test_a_group_without_clients_is_distilled_all_the_same():
    """Two clients of the first group, logits (2, 0) and (0, 0); the second group's model, logits
    (0, 0), learns from them."""
    state = served(0, 0, 0, 0, 0, 0)
    uploads = [upload(0, 0, state, [2, 0]), upload(2, 0, state, [0, 0])]
    validation = ones(1), torch.zeros(1, dtype=torch.int64)
    method = FedDF(steps=1, batch_size=1, lr=0.1)
    after = stepped(method, state, uploads, [0, 1, 0], validation=validation)
    wanted = [0.1, -0.1, 0.1, -0.1]
    assert group_of(after, LAYOUTS, 1).x.tolist() == pytest.approx(wanted, abs=1e-6)


def test_counters_of_other_groups_are_not_lost():
    """Counters (3, 7): a client of the second group counts to 9, and the first stays at 3."""
    from torch import nn

    from motley.tasks.flat import layout_of

    layouts = tuple(layout_of(nn.BatchNorm1d(n)) for n in (1, 2))
    counters = [torch.tensor([3]), torch.tensor([7])]
    models = [ModelState(torch.zeros(2 * n), torch.ones(2 * n), counters[n - 1]) for n in (1, 2)]
    rule = GroupTraining(layouts, 1)
    download = vars(joined(models))
    start = rule.start(download, None)
    given = JobContext(
        x=start.x,
        download=download,
        client_state=None,
        steps=1,
        lr=0.1,
        num_examples=1,
        solver_norm=1.0,
        layout=layouts[1],
    )
    after = ModelState(start.x, start.buffers + 1, torch.tensor([9]))
    parts, _ = rule.finish(after, given)
    assert parts["counters"].value.tolist() == [3, 9]
    total = aggregate(Gather(), [Upload(parts, 1.0, client=0)], "weight")
    assert torch.isnan(total["buffers"]).tolist() == [True, True, False, False, False, False]
    assert total["buffers"][2:].tolist() == [2.0] * 4
