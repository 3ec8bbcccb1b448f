"""Fingerprints: the same for the same program in any process, another one for other code,
constants, data or weights."""

from __future__ import annotations

import copy
import functools
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.fingerprint import UNKNOWN, FingerprintError, fingerprint, fingerprint_or_reason
from tests.places import PYTHONPATH

FACTOR = 2.0


def uses_global(x: float) -> float:
    return FACTOR * x


def calls(x: float) -> float:
    return uses_global(x) + 1


@dataclass
class Scale:
    """A callable with state."""

    by: float
    table: dict[str, Any] = field(default_factory=dict)

    def __call__(self, x: float) -> float:
        return self.by * x

    def other(self, x: float) -> float:
        return self.by + x


def _net(p: float = 0.5, bias: bool = True, frozen: bool = False) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(3, 4, bias=bias), nn.BatchNorm1d(4), nn.Dropout(p), nn.Linear(4, 2)
    )
    net[0].requires_grad_(not frozen)
    return net


def _changed(net: nn.Module, change: Callable[[Any], object]) -> nn.Module:
    change(net)
    return net


def _nudge(net: Any) -> None:
    with torch.no_grad():
        net[0].weight[0, 0] += 1e-7


def _with(value: float) -> Callable[[float], float]:
    return lambda x: value * x


LSTM_STATE: dict[str, Any] = nn.LSTM(2, 3).state_dict()
CIRCLE: list[Any] = [1, 2]
CIRCLE.append(CIRCLE)

SAME: dict[str, Callable[[], object]] = {
    "a function": lambda: calls,
    "a lambda with a closure": lambda: _with(2.0),
    "a partial": lambda: functools.partial(uses_global, x=1.0),
    "a bound method": lambda: Scale(2.0).other,
    "a callable object": lambda: Scale(2.0, {"a": np.arange(3), "b": {3, 1, 2}}),
    "a class": lambda: Scale,
    "a circle": lambda: CIRCLE,
    "a module": _net,
    "a module with weight norm, whose hooks are numbered": lambda: (
        nn.utils.parametrizations.weight_norm(_net()[0])
    ),  # type: ignore[index]
    "an LSTM, which holds weak references": lambda: _changed(
        nn.LSTM(2, 3), lambda net: net.load_state_dict(LSTM_STATE)
    ),
    "a function of torch": lambda: torch.relu,
    "a function of a library with a closure": lambda: torch.nn.functional.max_pool2d,
    "a function under a decorator of torch": lambda: torch.no_grad()(_with(1.0)),
    "a cached function": lambda: functools.cache(uses_global),
    "a pattern": lambda: re.compile("a+"),
    "text, numbers, none": lambda: ["a", 1, 10**5000, 2.5, None, b"x", 3 + 1j, ..., float("nan")],
    "arrays of objects and text": lambda: (
        np.array(["a", None], object),
        np.array(["ab", "c"]),
        np.float32(3),
    ),
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_the_same_twice(make: Callable[[], object]) -> None:
    assert fingerprint(make()) == fingerprint(make())


DIFFERENT: dict[str, tuple[object, object]] = {
    "a constant": (lambda x: x + 1, lambda x: x + 2),
    "the kind of a number": (lambda x: x + 1, lambda x: x + 1.0),
    "an operation": (lambda x: x + 1, lambda x: x - 1),
    "an attribute": (lambda x: x.sum(), lambda x: x.mean()),
    "a value closed over": (_with(2.0), _with(3.0)),
    "a default": (lambda x, k=1: x, lambda x, k=2: x),
    "a keyword default": (lambda x, *, k=1: x, lambda x, *, k=2: x),
    "an argument of a partial": (
        functools.partial(uses_global, 1.0),
        functools.partial(uses_global, 2.0),
    ),
    "the object of a method": (Scale(1.0).other, Scale(2.0).other),
    "the method": (Scale(1.0).other, Scale(1.0).__call__),
    "state": (Scale(1.0, {"a": 1}), Scale(1.0, {"a": 2})),
    "a nested function": (lambda x: (lambda y: y + 1)(x), lambda x: (lambda y: y + 2)(x)),
    "a function of torch": (torch.relu, torch.tanh),
    "a library's function around a user's": (
        torch.no_grad()(_with(1.0)),
        torch.no_grad()(_with(2.0)),
    ),
    "an element": (np.arange(3), np.array([0, 1, 3])),
    "a type of numbers": (np.arange(3), np.arange(3.0)),
    "a shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "a pattern": (re.compile("a"), re.compile("a", re.IGNORECASE)),
    "a set": ({"a", "b"}, {"a", "c"}),
    "an order": ([1, 2], [2, 1]),
    "borders between texts": (["ab", "c"], ["a", "bc"]),
    "a weight": (_net(), _changed(_net(), _nudge)),
    "what is frozen": (_net(), _net(frozen=True)),
    "a dropout rate": (_net(0.5), _net(0.4)),
    "a layer's option": (_net(), _net(bias=False)),
    "a buffer": (_net(), _changed(_net(), lambda net: net[1].running_mean.add_(1))),
    "an attribute that is no parameter": (
        _net(),
        _changed(_net(), lambda net: setattr(net[0], "scale", 3)),
    ),
    "an activation": (nn.Sequential(nn.ReLU()), nn.Sequential(nn.GELU())),
    "tied weights": (
        nn.ModuleList([nn.Linear(1, 1, bias=False)] * 2),
        nn.ModuleList([copy.deepcopy(m) for m in [_net()] * 2]),
    ),
    "bfloat16 values": (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
}


@pytest.mark.parametrize(("one", "two"), DIFFERENT.values(), ids=DIFFERENT)
def test_another_value_has_another_fingerprint(one: object, two: object) -> None:
    assert fingerprint(one) != fingerprint(two)


def test_a_global_counts_through_the_functions_that_lead_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = fingerprint(calls)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert fingerprint(calls) != before


@dataclass
class Sizes:
    """An object with a cached property."""

    values: tuple[int, ...]

    @functools.cached_property
    def total(self) -> int:
        return sum(self.values)


@pytest.mark.parametrize("made", [np.asarray, torch.from_numpy])
def test_every_block_of_a_long_array_counts_and_so_does_their_order(
    made: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen bytes a block: 40 numbers of a byte are two blocks and a half."""
    monkeypatch.setattr("motley.core.fingerprint._BLOCK", 16)
    numbers = np.arange(40, dtype=np.uint8)
    first, last, swapped = numbers.copy(), numbers.copy(), np.roll(numbers[:32], 16)
    first[0], last[-1] = 99, 99
    others = [numbers, first, last, numbers[:32], swapped, numbers[:39]]
    found = [fingerprint(made(other)) for other in others]
    assert len(set(found)) == len(others)
    assert found[0] == fingerprint(made(numbers.copy()))


def test_what_a_cached_property_keeps_does_not_count() -> None:
    fresh = Sizes((1, 2))
    asked = Sizes((1, 2))
    assert asked.total == 3
    assert fingerprint(fresh) == fingerprint(asked)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (threading.Lock(), "this value is a lock, which cannot be fingerprinted"),
        ({"a": [threading.Lock()]}, "'a', an item is a lock"),
        (
            functools.partial(Sizes, values=threading.Lock()),
            "an argument of a partial, 'values' is a lock",
        ),
        ((n for n in range(3)), "this value is a generator"),
        (torch.zeros(2).to_sparse(), "this value is a tensor of torch.sparse_coo"),
    ],
)
def test_what_cannot_be_fingerprinted_is_named(value: object, message: str) -> None:
    with pytest.raises(FingerprintError, match=message):
        fingerprint(value)
    assert fingerprint_or_reason(value).startswith(UNKNOWN)


def test_a_tensor_kept_from_inside_vmap_is_named() -> None:
    kept: list[torch.Tensor] = []
    torch.func.vmap(lambda row: kept.append(row) or row)(torch.ones(2, 3))
    with pytest.raises(
        FingerprintError, match=r"an item is a tensor kept from inside .* detach\(\)"
    ):
        fingerprint(kept)


PROGRAM = """
    import functools, sys
    import numpy as np, torch
    from torch import nn
    import parts                                   # an own module beside the program
    from motley.core.fingerprint import fingerprint

    WORDS = {"red", "green", "blue", "yellow"}

    class Net(nn.Module):
        def __init__(self, words):
            super().__init__()
            self.words = set(words)
            self.inner = nn.Linear(2, 2)
        def forward(self, x):
            from parts import late
            return late(self.inner(x)) if "red" in {"red", "blue", "green"} else x

    def make():
        torch.manual_seed(0)
        return Net(WORDS)

    def loss(out, y):
        return parts.penalty(out) + nn.functional.cross_entropy(out, y)

    print(fingerprint((make, make(), loss, functools.partial(loss, y=1))))
"""
PARTS = (
    "def penalty(out):\n    return {} * out.sum()\n\ndef late(x):\n    return x + {}\n\ndef "
    "unused():\n    return {}\n"
)


EACH = """
import runpy, sys
for folder in sys.argv[1:]:
    sys.modules.pop("parts", None)
    sys.path[0] = folder
    runpy.run_path(folder + "/main.py", run_name="__main__")
"""


def _in_a_process(hash_seed: int, folders: list[Path]) -> list[str]:
    """The fingerprints of these folders' programs, all run by one new process, for to start one
    takes longer than all else."""
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        [sys.executable, "-c", EACH, *map(str, folders)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_same_program_has_the_same_fingerprint_in_every_process(tmp_path: Path) -> None:
    """Own modules count by what the program uses of them; whether they are read from source or from
    a .pyc does not."""
    folders = []
    for comments, numbers in enumerate([(1, 2, 3), (1, 2, 3), (1, 2, 33), (11, 2, 33), (1, 22, 3)]):
        folder = tmp_path / f"program{comments}"
        folder.mkdir()
        (folder / "main.py").write_text(textwrap.dedent(PROGRAM))
        (folder / "parts.py").write_text("# a comment\n" * comments + PARTS.format(*numbers))
        folders.append(folder)
    found = _in_a_process(1, folders)
    # a comment, a function that nobody uses
    assert found[0] == found[1] == found[2]
    assert len(set(found)) == 3
    assert _in_a_process(2, folders) == found
