"""Nodes of a cluster with other code, without Motley, without the user's module or without a file are named and not used; tokens.

``make test-ray`` runs these in an environment of their own; elsewhere they are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .ray_nodes import RayNodes

HERE = importlib.util.find_spec("ray") is not None
pytestmark = [pytest.mark.ray, pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs")]
ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; from motley.cli import call; sys.exit(call(sys.argv[1:]))"
EXPERIMENT = """
population = 6
cohort = 4
stop = { rounds = 2 }
task = { name = "image", data = "digits", model = "digits_mlp" }
engine = { name = "ray", threads = 2, workers = 2 }
"""


def copied(folder: Path) -> Path:
    """A copy of Motley's package, to be changed; returns what a node's PYTHONPATH is then."""
    shutil.copytree(ROOT / "motley", folder / "motley", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) >= 1
    path.write_text(text.replace(before, after))


def adds_one(folder: Path) -> None:
    """Have a copy add 1.0 to each reported loss."""
    path = folder / "motley" / "engines" / "workers.py"
    changed(
        path,
        'return list(result) if call.method == "train" else result',
        'result = list(result) if call.method == "train" else result\n'
        '            for one in result if call.method == "train" else ():\n'
        '                one.signals["loss"] += 1.0\n'
        "            return result",
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """A head of one core, to which each test adds nodes."""
    with RayNodes(cores=1) as made:
        yield made


@pytest.fixture
def head(cluster: RayNodes) -> Iterator[RayNodes]:
    """The cluster, whose further nodes end with the test."""
    yield cluster
    while cluster.nodes:
        cluster.nodes.pop().kill()


def motley(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder where no copy of Motley lies, for Ray's workers look into the driver's folder first."""
    command = [sys.executable, "-c", PROGRAM, *words]
    home = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})}
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **home}, capture_output=True, text=True, timeout=240, check=False
    )


def run(folder: Path, address: str, *more: str, name: str = "run") -> subprocess.CompletedProcess[str]:
    file = folder / "exp.toml"
    if not file.exists():
        file.write_text(EXPERIMENT)
    words = ["run", "exp.toml", "--out", name, "--no-report", "--set", f"engine.address={address}", *more]
    return motley(folder, *words)


def losses(folder: Path, name: str = "run") -> list[float]:
    import motley as package

    return package.load(folder / name).column("rounds", "train_loss").tolist()


def test_a_node_with_other_code_is_named_and_not_used(head: RayNodes, tmp_path: Path) -> None:
    old = copied(tmp_path / "old")
    adds_one(old)
    changed(old / "motley" / "__init__.py", '__version__ = "0.1.0"', '__version__ = "0.0.9"')
    node = head.add_node(env={"PYTHONPATH": str(old)})
    (tmp_path / "exp.toml").write_text(EXPERIMENT.replace(", threads = 2, workers = 2", ""))
    done = run(tmp_path, head.address)
    assert done.returncode == 0, done.stderr
    where = node.ip if head.namespaces else f"{node.ip} ("
    assert f"the node {where}" in done.stderr
    assert "is not used: Motley 0.0.9 in place of 0.1.0" in done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(said.partition(":")[0] for said in record["nodes"].values()) == ["left out", "worked"]
    alone = motley(tmp_path, "run", "exp.toml", "--out", "alone", "--no-report", "--set", "engine.name=sequential")
    assert alone.returncode == 0, alone.stderr
    assert losses(tmp_path) == pytest.approx(losses(tmp_path, "alone"), rel=1e-5)
    refused = run(tmp_path, head.address, "--set", "engine.differing_nodes=refuse", name="refused")
    assert refused.returncode == 2
    assert "nodes of the cluster differ from this process" in refused.stderr
    assert 'engine.differing_nodes = "skip"' in refused.stderr
