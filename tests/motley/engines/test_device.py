"""Local work, probes, evaluation and aggregation for a GPU, on a device that is pretended on the
CPU (:mod:`.pretend_device`).

Whole experiments are run: no operation may meet tensors of the device and of the host, and nothing
may wait for the device between two local steps. At the end, known faults are put back, one after
the other, and each must be found.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.experiments import ALGORITHMS, BASE, HELD, ON_DEVICE, OTHERS, Keys, experiments
from motley.algorithms import CATALOGUE, LOSSES, OPTIMIZERS
from motley.algorithms.fedprox import Proximal
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.core.errors import ConfigError
from motley.engines.samples import Samples
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.tasks import from_clients, own_task, pixels

from .pretend_device import DEVICE, MixedDevices, PretendDevice, on_device

DECOMPOSITION = "_linalg_svd"
"""FedMuon's exact form needs one in each step, and torch's waits for the GPU by itself."""


def run(keys: Keys, engine: str, device: str = DEVICE, **parts: Any) -> Any:
    """Run an experiment to its end; return the round loop, or None where the engine does not take
    it."""
    more = {"name": engine, "device": device}
    try:
        loop = build(Experiment(**{**BASE, **keys, "engine": more}), **parts)
    except ConfigError as error:
        if f"{engine!r} cannot run this experiment" not in str(error):
            raise
        return None
    while not loop.done:
        loop.step()
    return loop


def clean(keys: Keys, engine: str, **parts: Any) -> Any:
    """Run an experiment on the device; no operation may mix devices, nothing wait between steps,
    and the result lies on the host."""
    with PretendDevice() as device:
        loop = run(keys, engine, **parts)
    if loop is not None:
        assert device.moved > 0
        waits = DECOMPOSITION if "fedmuon" in str(keys.get("algorithm")) else ()
        steps = [step for step in device.steps if not step.startswith(waits)]
        assert not steps, steps
        assert not any(on_device(vector) for vector in vars(loop.state.server.model).values())
    return loop


def test_every_algorithm_loss_and_optimizer_is_run() -> None:
    """Cross-entropy is the default of most; binary cross-entropy is run below; the robust loss
    belongs to its algorithm."""
    named = {name for name in CATALOGUE.names() if ":" not in name}  # others are of other tests
    assert set(ALGORITHMS) == named
    assert set(OPTIMIZERS.names()) == {"sgd", "adam", "adamw"}
    assert set(LOSSES.names()) == {
        "huber",
        "half_squared_error",
        "symmetric",
        "cross_entropy",
        "flash_robust",
        "bce",
    }


@pytest.mark.parametrize("keys", [pytest.param(keys, id=name) for name, keys in experiments()])
def test_devices_are_never_mixed_and_steps_never_wait(keys: Keys) -> None:
    assert clean(keys, "sequential") is not None
    for engine in ON_DEVICE[1:]:
        clean(keys, engine)


@pytest.mark.parametrize("engine", ["sequential", "vmap"])
@pytest.mark.parametrize(
    "model",
    [
        {"name": "leaf_lstm", "hidden": 4},
        {"name": "transformer", "width": 8, "layers": 1, "heads": 2},
    ],
)
def test_sequences(tmp_path: Path, model: Keys, engine: str) -> None:
    for name, text in {"ann": "abcabcabca", "bob": "aabbaabbaabbaab"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    task = {"name": "text", "data": str(tmp_path), "window": 3, "model": {**model, "dropout": 0.2}}
    found = clean({"task": task, "population": None, "cohort": 2}, engine)
    assert (found is None) == (engine == "vmap")  # dropout


@pytest.mark.parametrize("engine", ON_DEVICE)
def test_tasks_of_a_users_own(engine: str) -> None:
    """Binary cross-entropy with one output, several labels a sample, and metrics of their own."""
    key = torch.Generator().manual_seed(3)
    clients = [
        (
            torch.randn(12, 5, generator=key).numpy(),
            (torch.rand(12, generator=key) < 0.5).long().numpy(),
        )
        for _ in range(5)
    ]
    task = own_task(
        from_clients(clients, test_fraction=0.25),
        lambda: torch.nn.Sequential(torch.nn.Linear(5, 1)),
        loss="bce",
        metric=["accuracy", "macro_f1", "auroc"],
    )
    assert clean({"task": {"name": "own"}, "population": None}, engine, task=task) is not None


@pytest.mark.parametrize("engine", ON_DEVICE)
def test_a_pretended_device_computes_what_the_cpu_computes(engine: str) -> None:
    """To rounding, since clients are computed together in other groups; with a probe, momentum and
    corrections that clients keep."""
    keys = {
        **OTHERS["adam"],
        "algorithm": {"name": "scaffold", "option": "I"},
        "selector": "power_of_choice",
    }
    expected = run(keys, engine, "cpu").state.server.model.x
    torch.testing.assert_close(
        clean(keys, engine).state.server.model.x, expected, rtol=1e-12, atol=1e-14
    )


def test_the_debug_engine_mixes_no_devices_and_waits_in_every_step() -> None:
    """3 clients with 3 batches of training samples each, 2 rounds: 18 steps, in each of which
    inputs, loss and gradient are read."""
    with PretendDevice() as device:
        assert run(BASE, "debug") is not None
    assert len(device.steps) == 18 * 3


# ------------------------------------------------------------------------ faults that must be found


def test_an_index_of_the_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs(self: Samples, rows: Tensor, key: Any = None) -> Tensor:
        return self.x[rows.cpu()]

    monkeypatch.setattr(Samples, "inputs", inputs)
    with pytest.raises(Exception, match=r"aten.index.Tensor of device \[\d+, 5\], host \[\d+\]"):
        clean({}, "sequential")


def test_a_number_read_in_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SGD.step

    def step(self: SGD, blocks: Any, lr: Any, proximal: Any, number: int = 0) -> None:
        if blocks[0].g.abs().max().item() >= 0.0:
            plain(self, blocks, lr, proximal, number)

    monkeypatch.setattr(SGD, "step", step)
    for engine in ("sequential", "vmap"):
        with pytest.raises(AssertionError, match="_local_scalar_dense"):
            clean({}, engine)


def test_a_mask_made_on_the_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = CrossEntropy.loss

    def loss(self: CrossEntropy, outputs: Tensor, targets: Tensor, extra: Any) -> Tensor:
        return plain(self, outputs, targets, extra) * torch.ones(targets.shape)

    monkeypatch.setattr(CrossEntropy, "loss", loss)
    with pytest.raises(Exception, match=r"aten.mul.Tensor of device \[\d+\], host \[\d+\]"):
        clean({}, "sequential")


def test_a_mask_as_an_index_in_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = CrossEntropy.loss

    def loss(self: CrossEntropy, outputs: Tensor, targets: Tensor, extra: Any) -> Tensor:
        return plain(self, outputs[targets >= 0], targets[targets >= 0], extra)

    monkeypatch.setattr(CrossEntropy, "loss", loss)
    with pytest.raises(AssertionError, match="index at"):
        clean({}, "sequential")


def test_a_model_of_the_server_that_stays_on_the_device_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("motley.tasks.flat.ModelState.to", lambda self, device: self)
    with pytest.raises(MixedDevices, match=r"aten.add.Tensor of device .* host"):
        clean(OTHERS["recalibrated"], "sequential")


def test_constants_that_are_copied_in_every_step_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels.ImageTransform, "to", lambda self, device: self)
    with pytest.raises(AssertionError, match=r"copy to the device at .*tasks/pixels\.py"):
        clean(OTHERS["pictures"], "sequential")


def test_public_samples_chosen_on_the_host_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "motley.algorithms.feddf.to_device", lambda values, device: torch.from_numpy(values)
    )
    keys = {"algorithm": {"name": "feddf", "steps": 4, "every": 2, "batch_size": 16}, **HELD}
    with pytest.raises(MixedDevices, match=r"algorithms/feddf\.py"):
        clean(keys, "sequential")


def test_an_anchor_on_the_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Proximal.correction

    def correction(self: Proximal, context: Any) -> Any:
        return dataclasses.replace(
            plain(self, context), offset=torch.zeros(context.x.shape, dtype=context.x.dtype)
        )

    monkeypatch.setattr(Proximal, "correction", correction)
    for engine in ON_DEVICE:
        with pytest.raises(Exception, match=r"of device \[.*host \["):
            clean({"algorithm": "fedprox"}, engine)


# ------------------------------------------------------------------------------------- memory


def test_samples_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 clients of 20 samples with 5 features: 500 numbers of 8 bytes, and targets twice and row
    numbers, 8 bytes each."""
    monkeypatch.setattr("motley.tasks.transfer.free_bytes", lambda device: 2**20)
    assert run({"stop": {"rounds": 1}}, "sequential", "cpu") is not None
    monkeypatch.setattr("motley.tasks.transfer.free_bytes", lambda device: 4000)
    with pytest.raises(
        ConfigError,
        match=r"engine.device: the samples of the federation take 0.0 GiB on the device",
    ):
        run({}, "sequential", "cpu")
