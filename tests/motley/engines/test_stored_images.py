"""Images travel to workers as bytes, and are trained on with the bits of the scaled images."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import motley
from motley.engines.batched import Batched
from motley.engines.distributed import _for_workers
from motley.engines.local import Sequential
from motley.engines.stored_images import with_stored_images
from motley.results.load import load
from motley.tasks.pixels import Scaling, crop_flip
from motley.tasks.preparation import ArrayPreparation
from motley.tasks.task import ModelState
from tests.motley.resume.conftest import assert_same

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
    sent = _for_workers(with_stored_images(given))
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
    assert with_stored_images(given) is given
    sent = _for_workers(with_stored_images(given))
    assert sent.task.transform is None
    assert sent.task.federation.x is given.task.federation.x


def test_what_is_no_image_of_bytes_is_left_alone(images, setting):
    given, _ = images()
    transformed = dataclasses.replace(given.task, transform=lambda x, key: crop_flip(x, key))
    for left in (
        setting(conv, (1, 6, 6)),  # no preparation is known
        dataclasses.replace(given, device="cuda"),
        dataclasses.replace(given, task=transformed),
    ):
        assert with_stored_images(left) is left


@pytest.fixture
def pixels(tmp_path):
    """The keys of an experiment with 90 images of 6 x 6 bytes."""
    rng = np.random.default_rng(3)
    path = tmp_path / "pixels.npz"
    np.savez(path, x=rng.integers(0, 256, (90, 6, 6), dtype=np.uint8), y=np.arange(90) % 3)
    return {
        "task": {"name": "image", "data": str(path), "model": "mlp"},
        "population": 6,
        "cohort": 3,
        "stop": {"rounds": 2},
        "split": {"holdout_clients": 0.34, "server": 0.1},
        "algorithm": {"name": "feddf", "steps": 3},
    }


def test_a_run_with_workers_keeps_no_scaled_images(pixels):
    """Nothing in the process holds them, new clients' part of the run included."""
    loop = motley.build({**pixels, "engine": {"name": "processes", "workers": 1}})
    try:
        data = loop.setting.task.federation
        assert data.x.dtype == data.held_out.x.dtype == torch.uint8
        gc.collect()
        scaled = [
            one
            for one in gc.get_objects()
            if isinstance(one, torch.Tensor)
            and one.dtype == torch.float32
            and one.shape == data.x.shape
        ]
        assert not scaled
    finally:
        loop.engine.close()


RUN_BOTH = """
import json, sys
import motley

keys, out = json.loads(sys.argv[1]), sys.argv[2]
for name in ("batched", "processes"):
    settings = [f"engine.name={name}", "engine.threads=1", "evaluate.adapt_epochs=[0, 1]"]
    motley.run(keys, overrides=settings, out=f"{out}/{name}")
"""


def test_a_run_with_workers_is_the_run_without(pixels, tmp_path):
    """Server's samples, new clients' models and the record of the samples are the same. By default
    MKL's products depend on where arrays lie in memory, so that two engines may differ by the last
    bit; in a process of its own it can be told not to."""
    widest = "AVX512" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "AVX2"
    subprocess.run(
        [sys.executable, "-c", RUN_BOTH, json.dumps(pixels), str(tmp_path)],
        env={**os.environ, "MKL_CBWR": f"{widest},STRICT"},
        check=True,
    )
    runs = [load(tmp_path / name) for name in ("batched", "processes")]
    assert_same(*runs)
    one, other = (run.meta["task"]["samples"] for run in runs)
    assert one == other
    assert one["dtype"] == "float32"
