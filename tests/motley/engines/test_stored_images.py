"""Images travel to workers as bytes, and are trained on with the bits of the scaled images."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from motley.engines.batched import Batched
from motley.engines.distributed import _for_workers
from motley.engines.local import Sequential
from motley.engines.stored_images import stored_images
from motley.tasks.base import ModelState
from motley.tasks.pixels import Scaling, crop_flip
from motley.tasks.preparation import ArrayPreparation

from .test_engines_agree import conv


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.ReLU(), nn.Linear(9, 4))


@pytest.fixture
def images(setting):
    """A setting with 77 images of 6 x 6 pixels, scaled by mean and deviation, and the bytes that
    they were."""

    def make(model=conv, **keys):
        plain = setting(model, (1, 6, 6), dtype=torch.float32, threads=1, **keys)
        raw = torch.from_numpy(
            np.random.default_rng(2).integers(0, 256, (77, 1, 6, 6), dtype=np.uint8)
        )
        scaling = Scaling.standard(raw, np.arange(50))
        shift, scale = (v.double().view(-1, 1, 1).numpy() for v in (scaling.shift, scaling.scale))
        prepared = ArrayPreparation((1, 6, 6), shift, scale)
        federation = dataclasses.replace(
            plain.task.federation, x=scaling(raw), preparation=prepared
        )
        task = dataclasses.replace(plain.task, federation=federation)
        return dataclasses.replace(plain, task=task), raw

    return make


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("model", "engine"), [(conv, Sequential), (linear, Sequential), (linear, Batched)]
)
def test_workers_are_given_bytes_and_train_with_the_same_bits(
    images, jobs, download, model, dtype, engine
):
    given, raw = images(model)
    given = dataclasses.replace(given, dtype=dtype)
    sent = _for_workers(given)
    assert torch.equal(sent.task.federation.x, raw)
    start = download(given)
    results = [list(engine(one).train(jobs(given), start, {})) for one in (given, sent)]
    for one, other in zip(*results, strict=True):
        assert torch.equal(one.parts["delta"].value, other.parts["delta"].value)
    model_state = ModelState(start["x"], start["buffers"], start["counters"])
    one, other = (engine(s).evaluate(model_state, np.arange(77)) for s in (given, sent))
    assert np.array_equal(one["loss"], other["loss"])


def test_a_number_that_no_byte_gives_keeps_the_images_as_they_are(images):
    given, _ = images()
    given.task.federation.x[40, 0, 3, 3] += 1e-3
    assert stored_images(given) is None
    sent = _for_workers(given)
    assert sent.task.transform is None
    assert sent.task.federation.x is given.task.federation.x


def test_what_is_no_image_of_bytes_is_left_alone(images, setting):
    given, _ = images()
    assert stored_images(setting(conv, (1, 6, 6))) is None  # no preparation is known
    assert stored_images(dataclasses.replace(given, device="cuda")) is None
    transformed = dataclasses.replace(given.task, transform=lambda x, key: crop_flip(x, key))
    assert stored_images(dataclasses.replace(given, task=transformed)) is None
