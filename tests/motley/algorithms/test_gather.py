"""The aggregator that keeps every upload beside the mean."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.aggregators.gather import Gather, client_models
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Part, ServerState, Upload, aggregate
from motley.tasks.task import ModelState


def uploads():
    return [
        Upload(
            {
                "delta": Part(torch.tensor([float(k), -1.0]), "mean"),
                "buffers": Part(torch.tensor([k + 1.0]), "convex"),
                "counters": Part(torch.tensor([k]), "max"),
            },
            weight,
            client=10 * k,
        )
        for k, weight in ((1, 3.0), (2, 1.0))
    ]


@pytest.mark.parametrize("divide", ["weight", "count", "none"])
def test_its_mean_is_the_mean_bit_for_bit(divide):
    total = aggregate(Gather(), iter(uploads()), divide)
    mean = aggregate(Mean(), iter(uploads()), divide)
    assert all(torch.equal(total[name], value) for name, value in mean.items())


def test_every_upload_is_there_in_order():
    total = aggregate(Gather(), iter(uploads()), "weight")
    assert total["each.client"].tolist() == [10, 20]
    assert total["each.weight"].tolist() == [3.0, 1.0]
    assert total["each.delta"].tolist() == [[1.0, -1.0], [2.0, -1.0]]
    assert total["each.counters"].tolist() == [[1], [2]]


def test_nothing_is_an_empty_total_and_uploads_without_parts_are_not():
    """Clients that keep their models send nothing; who took part is known all the same."""
    assert aggregate(Gather(), [], "weight") == {}
    total = aggregate(Gather(), [Upload({}, 1.0, client=3)], "weight")
    assert total["each.client"].tolist() == [3]


def test_client_models_have_their_own_buffers_and_the_server_s_dtype():
    state = ServerState(
        ModelState(torch.tensor([0.5, 0.5]), torch.tensor([9.0]), torch.tensor([0]))
    )
    first, second = client_models(state, aggregate(Gather(), iter(uploads()), "weight"))
    assert (first.x.tolist(), second.x.tolist()) == ([1.5, -0.5], [2.5, -0.5])
    assert (first.buffers.tolist(), second.counters.tolist()) == ([2.0], [2])
    assert first.x.dtype == torch.float32
