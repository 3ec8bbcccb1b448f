"""ONNX files compute what the trained module does, in batches of any size."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import motley
from motley.core.errors import ConfigError, ModelError
from motley.experiments.onnx_export import export

CONV = nn.Sequential(
    nn.Conv2d(1, 3, 3, padding=1),
    nn.BatchNorm2d(3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(12, 4),
).eval()


def test_without_the_extra_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"needs onnxruntime .*; pip install .*motley\[onnx\]"):
        export(nn.Linear(3, 2), torch.zeros(2, 3), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [1, 5])
def test_a_file_computes_what_torch_does(rows: int, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    inputs = torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    path = tmp_path / "new" / "conv.onnx"
    assert 0 <= export(CONV, inputs, path) < 1e-5
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    more = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = CONV(more).numpy()
    got = session.run(None, {"inputs": more.numpy()})[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_run_writes_its_model(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    keys = {"task": {"name": "tabular", "data": "iris"}, "population": 4, "cohort": 2}
    run = motley.run({**keys, "stop": {"rounds": 2}}, out=tmp_path / "run")
    x = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3], [5.9, 3.0, 4.2, 1.5]]
    run.to_onnx(tmp_path / "iris.onnx", x)
    session = runtime.InferenceSession(tmp_path / "iris.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"inputs": run._inputs(x, None).numpy()})[0]
    with torch.no_grad():
        expected = run.module()(run._inputs(x, None)).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


class Wayward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if float(x.sum()) > 0 else x


def test_what_torch_cannot_export_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    with pytest.raises(ModelError, match="torch cannot write this Wayward as ONNX"):
        export(Wayward().eval(), torch.ones(2, 3), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())
