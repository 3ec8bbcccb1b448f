"""The operations that the bound of a local step counts."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def floor(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import floor

    yield floor
    for name in ("floor", "engines"):
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore:TF32")  # said by the switch for oneDNN
@pytest.mark.parametrize(
    ("workload", "flops"),
    [
        # forward, and the gradient by the weights; none by the samples
        (0, 2 * 2 * 100 * 784 * 10),
        # the upper layers also have one by their inputs
        (2, 2 * 100 * (2 * 784 * 200 + 3 * 200 * 200 + 3 * 200 * 10)),
    ],
)
def test_operations_of_a_step(floor, workload, flops):
    assert floor.flops(floor.setting(floor.WORKLOADS[workload])) == flops
