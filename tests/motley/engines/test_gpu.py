"""On an accelerator: the same federation, learned alike to a stated tolerance; what comes back lies
on the CPU; steps never wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from motley.engines.chunk import Chunk
from motley.engines.client import Client
from motley.experiments.build import build
from motley.experiments.config import Experiment

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ENGINES = ("batched", "sequential", "vmap")


def experiment(engine: str, device: str, **more: Any) -> Experiment:
    keys = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 8,
        "cohort": 3,
        "stop": {"rounds": 3},
        "selector": "power_of_choice",
        "algorithm": "fedprox",
        "local": {"epochs": 2},
        "dtype": "float64",
    }
    return Experiment(**{**keys, **more, "engine": {"name": engine, "device": device}})


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("engine", ENGINES)
def test_a_gpu_learns_what_the_cpu_learns(engine: str) -> None:
    """Float64, three rounds with a probe: 1e-8 relative, for sums are taken in another order
    there."""
    found = []
    for device in ("cpu", "cuda"):
        simulation = build(experiment(engine, device))
        while not simulation.done:
            simulation.step()
        found.append(simulation.state.server.model.x)
    assert found[1].device.type == "cpu"
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)


def unwaiting(steps: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a generator of local steps under CUDA's check, from the first step to the last, that
    nothing waits for the device."""

    def checked(*args: Any) -> Iterator[Any]:
        try:
            for step in steps(*args):
                torch.cuda.set_sync_debug_mode("error")
                yield step
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return checked


PICTURES = {
    "task": {"name": "image", "data": "digits", "model": "simple_cnn", "augment": "crop_flip"},
    "dtype": "float32",
}


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("more", [{}, PICTURES], ids=["mlp", "pictures"])
@pytest.mark.parametrize("engine", ENGINES)
def test_local_steps_never_wait_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, engine: str, more: dict[str, Any]
) -> None:
    if engine == "batched" and more:
        return
    monkeypatch.setattr(Client, "_batches", unwaiting(Client._batches))
    monkeypatch.setattr(Chunk, "steps", unwaiting(Chunk.steps))
    build(experiment(engine, "cuda", **more)).step()
