"""On an accelerator: the same federation, learned alike to a stated tolerance; what comes back lies on the CPU."""

from __future__ import annotations

import pytest
import torch

from motley.experiments.build import build
from motley.experiments.config import Experiment

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize(("engine", "model"), [("batched", "digits_mlp"), ("sequential", "digits_mlp"), ("vmap", "digits_mlp")])
def test_a_gpu_learns_what_the_cpu_learns(engine: str, model: str) -> None:
    """Float64, three rounds with a probe: 1e-8 relative, for sums are taken in another order there."""
    found = []
    for device in ("cpu", "cuda"):
        simulation = build(
            Experiment(
                task={"name": "image", "data": "digits", "model": model},
                population=8,
                cohort=3,
                stop={"rounds": 3},
                selector="power_of_choice",
                algorithm="fedprox",
                local={"epochs": 2},
                dtype="float64",
                engine={"name": engine, "device": device},
            )
        )
        while not simulation.done:
            simulation.step()
        found.append(simulation.state.server.model.x)
    assert found[1].device.type == "cpu"
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)
