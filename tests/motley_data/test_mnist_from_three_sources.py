"""MNIST got from a server, in a torchvision folder and as the pack: the same run, bit for bit.
Skipped where the pack is not.

The pack names each image's place in the original files. The IDX files written from it have the md5
sums that are published for the originals, so order and bytes are those that everybody has.
"""

import gzip
import hashlib
import time
from pathlib import Path

import numpy as np
import pytest

import motley
from motley.cli import call
from motley_data.public_data.search import search
from tests.motley_data import layouts
from tests.motley_data.layouts import Halves
from tests.motley_data.serving import serving

ORIGINAL = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""The md5 sums of the original files, unpacked."""
KEYS = {
    "population": 50,
    "cohort": 3,
    "stop": {"rounds": 2},
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "task": {"name": "image", "data": "mnist", "model": "logistic_regression"},
    "split": {"test": "global"},
    "label_noise": {"name": "symmetric", "rate": 0.2},
    "local": {"epochs": 1, "batch_size": 64},
}


def test_three_sources_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = next((one.path for one in search("mnist") if one.layout.kind == "pack"), None)
    if pack is None:
        pytest.skip("the pack mnist is not on this machine")
    with np.load(pack / "mnist.npz") as data:
        orders = [np.argsort(data[f"index_{half}"]) for half in ("train", "test")]
        x, y = (
            [data[f"{name}_{half}"][o] for half, o in zip(("train", "test"), orders, strict=True)]
            for name in "xy"
        )
    layouts.bare_machine(tmp_path, monkeypatch)
    layouts.idx(tmp_path / "torchvision/MNIST/raw", Halves(tuple(x), tuple(y)))
    originals = {
        path.name: path.read_bytes() for path in (tmp_path / "torchvision/MNIST/raw").iterdir()
    }
    assert {
        name: hashlib.md5(content).hexdigest() for name, content in originals.items()
    } == ORIGINAL
    # not as the originals are
    packed = {f"{name}.gz": gzip.compress(content, 1) for name, content in originals.items()}
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    begin = time.perf_counter()
    with serving() as server:
        server.files = {f"/{name}": content for name, content in packed.items()}
        assert call(["data", "get", "mnist", "--to", "got", "--mirror", server.base]) == 0
    took = {"get": time.perf_counter() - begin}
    assert "70,000 images; as expected" in capsys.readouterr().out
    ids = set()
    models = set()
    evaluations = set()
    for name, folder in (
        ("got", tmp_path / "got"),
        ("torchvision", tmp_path / "torchvision"),
        ("pack", pack),
    ):
        begin = time.perf_counter()
        run = motley.run(KEYS, out=tmp_path / "runs" / name, data=folder)
        took[name] = time.perf_counter() - begin
        ids.add(run.meta["run_id"])
        models.add(hashlib.sha256((run.directory / "model.safetensors").read_bytes()).hexdigest())
        evaluations.add(str(run.tables["evaluations"].to_pydict()))
    print(ids, models, {name: f"{wall_s:.1f} s" for name, wall_s in took.items()})
    assert len(ids) == len(models) == len(evaluations) == 1
