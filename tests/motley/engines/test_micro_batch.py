"""Batches that pass through the model in parts: the same step, in every engine that takes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 2},
    "dtype": "float64",
    "engine": "sequential",
}
WORK: dict[str, Any] = {"epochs": 1, "batch_size": 8, "optimizer": {"lr": 0.01}}


def end(**more: Any) -> torch.Tensor:
    loop = build({**KEYS, "local": WORK, **more})
    while not loop.done:
        loop.step()
    x: torch.Tensor = loop.state.server.model.x
    return x


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"algorithm": {"name": "fedsam", "rho": 0.1}},
        {"algorithm": {"name": "moon", "mu": 1.0}},
        # a loss so steep that a rate of .01 would make a large difference of rounding
        {"algorithm": "flash_robust", "local": {**WORK, "optimizer": {"lr": 0.001}}},
        {"algorithm": {"name": "fedrep", "head_epochs": 1}},
    ],
)
def test_a_batch_in_parts_takes_the_same_step(more):
    """Of 8 samples in parts of 3, 3 and 2; the last batches of an epoch are shorter."""
    work = {**more.get("local", WORK), "micro_batch": 3}
    whole, parts = end(**more), end(**{**more, "local": work})
    assert not torch.equal(whole, parts)
    torch.testing.assert_close(whole, parts, rtol=1e-9, atol=1e-11)


def test_parts_as_large_as_the_batch_change_no_bit_and_leaving_them_out_no_run_id():
    assert torch.equal(end(), end(local={**WORK, "micro_batch": 8}))
    named = [
        Experiment(**{**KEYS, "local": {**WORK, "micro_batch": n}}).run_id() for n in (None, 3)
    ]
    assert named[0] == Experiment(**{**KEYS, "local": WORK}).run_id()
    assert named[0] != named[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"engine": "batched"}, r"batches pass in parts \(local.micro_batch\), which sequential"),
        (
            {"task": {**KEYS["task"], "model": {"name": "mlp", "norm": "batch"}}},
            "local.micro_batch: BatchNorm would normalize each part",
        ),
    ],
)
def test_what_does_not_go_with_parts_says_why(more, message):
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, "local": {**WORK, "micro_batch": 2}, **more})
