"""How an upload that was trained from an older model is mixed into the newest one."""

from __future__ import annotations

import torch

from motley.algorithms.upload import Part, Upload
from motley.rounds.staleness import mixed
from motley.tasks.flat import ModelState


def test_a_client_s_model_is_mixed_into_the_newest() -> None:
    """Received 1, moved by 0.5 to 1.5; the newest is 2: a tenth of the way is -0.05."""
    upload = Upload(
        client=3,
        weight=1.0,
        parts={
            "delta": Part(torch.tensor([0.5]), "mean"),
            "buffers": Part(torch.tensor([4.0]), "convex"),
        },
    )
    newest = ModelState(torch.tensor([2.0]), torch.tensor([8.0]), torch.zeros(0, dtype=torch.int64))
    found = mixed(upload, 0.1, newest, {"x": torch.tensor([1.0])}).parts
    torch.testing.assert_close(found["delta"].value, torch.tensor([-0.05]))
    torch.testing.assert_close(found["buffers"].value, torch.tensor([7.6]))
