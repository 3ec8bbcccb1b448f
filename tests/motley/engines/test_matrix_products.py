"""Products of many clients' matrices by either library; which library a processor takes."""

from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError, NumericsError
from motley.engines import matrix_products, processor
from motley.engines.matrix_products import (
    MatrixProducts,
    OpenBlasProducts,
    TorchProducts,
    faster_library,
)
from motley.experiments.build import build

SHAPES = [(1, 1, 1, 1), (2, 3, 5, 1), (3, 10, 7, 16), (2, 200, 64, 16), (1, 1, 9, 4), (4, 6, 1, 3)]
"""Clients, outputs, inputs and places."""


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng([seed, *shape]).normal(size=shape)).float()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turned", [False, True])
def test_both_libraries_give_the_same_products(shape: Any, turned: bool) -> None:
    p, outs, ins, b = shape
    weight, bias = drawn(p, outs, ins), drawn(p, 1, outs)
    inputs = drawn(p, ins, b).mT if turned else drawn(p, b, ins)
    slope = drawn(p, outs, b).mT if turned else drawn(p, b, outs)
    exact = inputs.double() @ weight.double().mT
    for products in (TorchProducts(), OpenBlasProducts()):
        given = products.places(torch.empty(p * b * outs + 3), p, b, outs)
        below = products.places(torch.empty(p * b * ins), p, b, ins)
        moved, gradient = weight.clone(), torch.full_like(weight, torch.nan)
        plain = products.forward(inputs, weight.mT, None, None)
        written = products.forward(inputs, weight.mT, bias, given)
        assert written is given
        products.multiply(slope, weight, below)
        products.add(moved, slope.mT, inputs, 0.5, -0.25)
        products.add(gradient, slope.mT, inputs, 0.0, 0.25)
        step = 0.25 * slope.double().mT @ inputs.double()
        for result, wanted in (
            (plain, exact),
            (written, exact + bias),
            (products.forward(inputs, weight.mT, bias, None), exact + bias),
            (below, slope.double() @ weight.double()),
            (moved, 0.5 * weight.double() - step),
            (gradient, step),
        ):
            torch.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("products", [TorchProducts(), OpenBlasProducts()])
def test_products_worked_by_hand(products: MatrixProducts) -> None:
    """[[1, 2], [3, 4]] of one client, samples (1, 1) and (2, 0), slopes likewise."""
    weight = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    inputs = torch.tensor([[[1.0, 1.0], [2.0, 0.0]]])  # [1, B, in]
    out = products.forward(inputs, weight.mT, torch.tensor([[[10.0, 20.0]]]), None)
    assert out.tolist() == [[[13.0, 27.0], [12.0, 26.0]]]
    products.multiply(inputs, weight, out)
    assert out.tolist() == [[[4.0, 6.0], [2.0, 4.0]]]
    # slopes (1, 1) and (2, 0): [[1 + 4, 1], [1, 1]] with the inputs
    products.add(weight, inputs.mT, inputs, 1.0, 2.0)
    assert weight.tolist() == [[[1.0 + 2 * 5, 2.0 + 2 * 1], [3.0 + 2 * 1, 4.0 + 2 * 1]]]


def test_a_client_has_the_same_products_beside_others() -> None:
    products = OpenBlasProducts()
    weight, inputs = drawn(5, 40, 30), drawn(5, 16, 30)
    together = products.forward(inputs, weight.mT, None, None)
    for k in range(5):
        alone = products.forward(inputs[k : k + 1], weight[k : k + 1].mT, None, None)
        assert torch.equal(together[k : k + 1], alone)
    moved = weight.clone()
    products.add(moved, together.mT, inputs, 1.0, 0.1)
    single = weight[2:3].clone()
    products.add(single, together[2:3].mT, inputs[2:3], 1.0, 0.1)
    assert torch.equal(moved[2:3], single)


@pytest.mark.parametrize(
    ("cpu", "blas", "library"),
    [
        ("AuthenticAMD 26 2 1", "openblas 0.3.31 SkylakeX", "openblas"),
        ("AuthenticAMD 26 68 0", "openblas 0.3.31 Cooperlake", "openblas"),
        ("AuthenticAMD 26 2 1", "openblas 0.3.31 Haswell", "torch"),  # narrow kernels were chosen
        ("AuthenticAMD 25 17 1", "openblas 0.3.31 SkylakeX", "torch"),  # not measured
        ("GenuineIntel 6 143 8", "openblas 0.3.31 SkylakeX", "torch"),
        ("AuthenticAMD 26 2 1", "", "torch"),
        ("arm64", "openblas 0.3.31 neoversen1", "torch"),
    ],
)
def test_the_library_follows_from_the_processor(
    monkeypatch: pytest.MonkeyPatch, cpu: str, blas: str, library: str
) -> None:
    machine = {**processor.arithmetic(), "processor": cpu, "blas": blas}
    monkeypatch.setattr(matrix_products, "arithmetic", lambda: machine)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    faster_library.cache_clear()
    try:
        assert faster_library() == library
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
        faster_library.cache_clear()
        assert faster_library() == "torch"
    finally:
        faster_library.cache_clear()


KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [20]}},
    "population": 8,
    "cohort": 3,
    "partition": "iid",
    "stop": {"rounds": 3},
    "evaluate": {"every": 1},
}


@pytest.mark.parametrize("local", [{}, {"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}])
def test_a_run_by_either_library(tmp_path: Any, local: dict[str, Any]) -> None:
    keys = {**KEYS, "local": {"epochs": 2, "batch_size": 16, **local}}
    runs = {}
    for library in ("torch", "openblas"):
        runs[library] = motley.run(
            {**keys, "engine": {"products": library}}, out=tmp_path / library
        )
        assert runs[library].meta["numerics"]["library"] == library
    weights = [torch.cat([p.flatten() for p in run.module().parameters()]) for run in runs.values()]
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)
    assert runs["torch"].meta["run_id"] == runs["openblas"].meta["run_id"]


def test_a_run_goes_on_with_the_library_with_which_it_began(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {**KEYS, "checkpoint": {"every_rounds": 1}}
    whole = motley.run({**keys, "engine": {"products": "openblas"}}, out=tmp_path / "whole")
    part = {**keys, "stop": {"rounds": 2}, "engine": {"products": "openblas"}}
    motley.run(part, out=tmp_path / "part")
    monkeypatch.setattr("motley.engines.batched.faster_library", lambda: "torch")
    longer = motley.run(keys, out=tmp_path / "part", resume=True)
    assert longer.meta["numerics"]["library"] == "openblas"
    for by_parts, at_once in zip(
        longer.module().parameters(), whole.module().parameters(), strict=True
    ):
        assert torch.equal(by_parts, at_once)
    torch_keys = {**keys, "stop": {"rounds": 4}, "engine": {"products": "torch"}}
    with pytest.raises(NumericsError, match="began with library = 'openblas' and would go on with"):
        motley.run(torch_keys, out=tmp_path / "part", resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine": {"name": "threads"}}, "'threads' has no products; name one of: batched"),
        ({"engine": {"name": "batched"}, "dtype": "float64"}, "float32 on a CPU; leave it out"),
        ({"engine": {"name": "batched"}, "precision": "bfloat16"}, "float32 on a CPU"),
    ],
)
def test_where_openblas_cannot_multiply(change: dict[str, Any], message: str) -> None:
    keys = {**KEYS, **change, "engine": {**change["engine"], "products": "openblas"}}
    with pytest.raises(ConfigError, match=message):
        motley.run(keys)


def test_a_setting_takes_torch_where_products_are_no_float32() -> None:
    assert build({**KEYS, "dtype": "float64"}).engine.library == "torch"
