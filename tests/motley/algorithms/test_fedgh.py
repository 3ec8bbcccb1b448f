"""FedGH's server step, by hand."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.fedgh import FeatureExchange, FedGH
from motley.algorithms.parts import Part, Upload, aggregate
from motley.core.errors import ConfigError
from motley.core.layout import Entry, Layout
from tests.motley.algorithms.server_contexts import context, state


def upload(client, means, present):
    """Mean features of classes, and which a client has."""
    parts = {
        "sums": Part(torch.tensor(means).double(), "sum"),
        "counts": Part(torch.tensor(present), "sum"),
    }
    return Upload(parts, 1.0, client=client)


def stepped(method, head, uploads):
    """The head after a server step."""
    total = aggregate(Gather(), uploads, "weight")
    return method.update(state(*head), total, context()).model.x.tolist()


def test_a_step_on_one_feature():
    """Feature 2 of class 0, head (0, 0): softmax (1/2, 1/2), gradient (-1, 1)."""
    after = stepped(FedGH(lr=0.1), [0, 0], [upload(0, [[2.0], [0.0]], [1, 0])])
    assert after == pytest.approx([0.1, -0.1], abs=1e-12)


def test_a_bias_moves_with_the_mean_slope():
    """The same with a bias (0, 0), whose gradient is (-1/2, 1/2)."""
    after = stepped(FedGH(lr=0.1), [0, 0, 0, 0], [upload(0, [[2.0], [0.0]], [1, 0])])
    assert after == pytest.approx([0.1, -0.1, 0.05, -0.05], abs=1e-12)


def test_every_class_of_every_client_counts_alike():
    """Features 2 (class 0) and 4 (class 1) of one client, 6 (class 0) of another: the mean of
    (-1, 1), (2, -2) and (-3, 3) is (-2/3, 2/3)."""
    uploads = [upload(0, [[2.0], [4.0]], [1, 1]), upload(1, [[6.0], [9.0]], [1, 0])]
    after = stepped(FedGH(lr=0.3), [0, 0], uploads)
    assert after == pytest.approx([0.2, -0.2], abs=1e-12)


def test_batches_are_steps_of_their_own():
    """Twice the same feature in batches of one: the second step begins at (.1, -.1), logits (.2,
    -.2), of which the softmax of class 0 is .598688: 2 x .1 x .401312 more."""
    uploads = [upload(k, [[2.0], [0.0]], [1, 0]) for k in range(2)]
    after = stepped(FedGH(lr=0.1, batch_size=1), [0, 0], uploads)
    assert after == pytest.approx([0.1802624, -0.1802624], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"got epochs = 0; expected at least 1"),
        ({"batch_size": 0}, r"got batch_size = 0; expected at least 1"),
        ({"lr": 0.0}, r"got lr = 0.0; expected a positive number"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ConfigError, match=message):
        FedGH(**options)


def test_a_head_of_other_parameters_is_refused():
    """The older weight_norm of torch: a bias, lengths and directions."""
    base = Entry("0.weight", "0", (4, 2), 0, linear=True)
    shapes = {"bias": (3,), "weight_g": (3, 1), "weight_v": (3, 4)}
    head = [Entry(f"1.{name}", "1", shape, 8, linear=True) for name, shape in shapes.items()]
    message = r"parameters of shape \(3,\), \(3, 1\), \(3, 4\); let it be a plain nn.Linear"
    with pytest.raises(ConfigError, match=message):
        FeatureExchange().bound(Layout((base, *head)))
