"""A comparison spread over a cluster is the comparison: the same runs in the same folders, each once, failures told apart."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from motley.core.errors import ConfigError
from motley.experiments.sweep import compare
from tests.resume.conftest import assert_same

HERE = importlib.util.find_spec("ray") is not None
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"}, "population": 6, "cohort": 3, "stop": {"rounds": 2},
    "engine": {"name": "auto", "threads": 1},
}  # fmt: skip


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs")
def test_spread_is_the_same_and_done_once(tmp_path: Path) -> None:
    over = {"selector.name": ["uniform", "power_of_choice"], "population": [6, 8]}
    alone = compare(KEYS, over, [0, 1], out=tmp_path / "alone")
    spread = compare(KEYS, over, [0, 1], out=tmp_path / "spread", on_ray="local")
    assert len(alone.runs) == len(spread.runs) == 8
    for one, other in zip(alone.runs, spread.runs, strict=True):
        assert one.directory.relative_to(tmp_path / "alone") == other.directory.relative_to(tmp_path / "spread")
        assert_same(one, other)
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "spread").rglob("*.parquet")}
    assert len(times) >= 8
    again = compare(KEYS, over, [0, 1, 2], out=tmp_path / "spread", on_ray="local")
    assert len(again.runs) == 12
    assert all(file.stat().st_mtime_ns == time for file, time in times.items())
    refused = compare({**KEYS, "aggregator": "krum"}, out=tmp_path / "refused", on_ray="local")  # told where it is built
    assert not refused.runs
    assert "Krum weighs all clients alike" in str(refused.failures[0].error)


def test_each_run_has_one_node(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.name: each run of a spread comparison has one node"):
        compare({**KEYS, "engine": "ray"}, out=tmp_path, on_ray="auto")


@pytest.mark.skipif(HERE, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip install '.\[ray\]'"):
        compare(KEYS, out=tmp_path, on_ray="auto")
