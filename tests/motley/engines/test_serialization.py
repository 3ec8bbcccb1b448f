"""What is wrapped is unwrapped: values, types, shapes, what is shared, what cannot be sent."""

import functools
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from motley.algorithms import CATALOGUE as ALGORITHMS
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import Algorithm, LocalRule
from motley.core.keys import Key
from motley.engines.serialization import from_memory, to_memory, unsendable, unwrap, wrap
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks.flat import construct, layout_of
from motley.tasks.own import own_task
from motley.testing.algorithms import Adapted

from .conftest import federation

TYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@given(
    st.lists(st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 4), max_size=3)), max_size=6)
)
def test_tensors_and_arrays_come_back(kinds):
    made = [
        (torch.arange(int(np.prod(shape))) % 3).to(dtype).reshape(shape) for dtype, shape in kinds
    ]
    arrays = [
        t.numpy().repeat(70, 0) if t.dtype != torch.bfloat16 and t.dim() else np.array(1.0)
        for t in made
    ]
    back, rows = unwrap(wrap((made, arrays), bytearray))
    for a, b in zip(made, back, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert torch.equal(a, b)
    for a, b in zip(arrays, rows, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


def test_one_tensor_is_sent_once_and_stays_one():
    x = torch.zeros(1000)
    block = wrap({1: x, 2: [x, x]}, bytearray)
    assert len(block) < 2 * x.nbytes
    back = unwrap(block)
    assert back[1] is back[2][0] is back[2][1]


def test_views_are_sent_without_what_they_look_into():
    x = torch.arange(1000.0).reshape(10, 100)
    block = wrap(x[:, 0], bytearray)
    assert len(block) < 1000
    assert torch.equal(unwrap(block), x[:, 0])


@pytest.mark.parametrize(
    "x", [torch.tensor(1.5).expand(1), torch.tensor(1.5).expand(300), torch.ones(0, 3).mT]
)
def test_expanded_and_empty_tensors_come_back(x):
    back = unwrap(wrap(x, bytearray))
    assert back.shape == x.shape
    assert torch.equal(back, x)


def test_a_module_keeps_its_parameters():
    module = nn.Linear(3, 2)
    back = unwrap(wrap(functools.partial(nn.Sequential, module), bytearray))()
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in back.parameters())
    assert torch.equal(back[0].weight, module.weight)


def test_what_is_read_is_nobody_elses():
    """A block is memory without a name; writing into what was received changes it for the receiver
    alone."""
    import os

    handle = to_memory({"x": torch.ones(5)})
    first, second = (unwrap(from_memory(os.dup(handle))) for _ in range(2))
    os.close(handle)
    first["x"] += 1
    assert second["x"].tolist() == [1.0] * 5


def linear():
    return nn.Linear(6, 4)


def test_what_cannot_be_sent_is_named_with_the_way_out():
    said = unsendable({"the loss": nn.functional.cross_entropy, "the transform": lambda x, key: x})
    assert said is not None
    assert said.startswith("the transform cannot be sent to other processes (")
    assert 'define it with "def" or "class" at the top of a module of its own' in said
    assert unsendable({"a model": own_task(federation((6,)), linear).model}) is None


def test_what_the_script_itself_defines_cannot_be_found_again(monkeypatch):
    monkeypatch.setattr(linear, "__module__", "__main__")
    assert "in the script that is being run" in str(unsendable({"the model": linear}))


def test_a_module_that_was_loaded_by_its_path_is_found_by_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere.py").write_text("def loss(outputs, targets):\n    return outputs\n")
    spec = spec_from_file_location("elsewhere", tmp_path / "elsewhere.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    spec.loader.exec_module(module)
    assert unsendable({"the loss": module.loss}) == (
        "the loss cannot be sent to other processes, which cannot import the module 'elsewhere' by "
        "its name; put its folder on sys.path and import it from there"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert unsendable({"the loss": module.loss}) is None


@pytest.mark.parametrize("bad", [b"", b"\xff" * 16])
def test_no_block_is_no_object(bad):
    with pytest.raises((EOFError, OverflowError, IndexError)):
        unwrap(bytearray(bad))


@pytest.mark.parametrize("algorithm", ALGORITHMS.names())
def test_every_algorithm_can_be_sent(algorithm):
    plain = Algorithm(CrossEntropy(), LocalRule(), Mean(), Average())
    method = ALGORITHMS.build(algorithm)
    made = method.change(plain)
    layer = Adapted(6, 4) if method.adapters else nn.Linear(6, 4)
    layout = layout_of(nn.Sequential(layer, nn.BatchNorm1d(4)))
    bound = made.local.bound(layout)
    assert unsendable({"the loss": made.loss, "the correction": bound}) is None
    back = unwrap(wrap((made.loss, bound), bytearray))
    assert [(type(part), vars(part)) for part in back] == [
        (type(part), vars(part)) for part in (made.loss, bound)
    ]


@pytest.mark.parametrize(
    "task",
    [
        {"name": "image", "data": "digits", "model": "digits_mlp"},
        {"name": "image", "data": "digits", "model": "mlp", "augment": "crop_flip"},
        {"name": "synthetic"},
        {"name": "quadratic"},
    ],
)
def test_every_task_can_be_sent(task):
    made = task_of(Experiment(task=task, population=3, cohort=1, stop={"rounds": 1}))
    back = unwrap(wrap(made, bytearray))
    assert torch.equal(back.federation.x, made.federation.x)
    assert layout_of(construct(back.model, 0)) == made.layout
    if made.transform is not None:
        some = made.federation.x[:2]
        assert torch.equal(back.transform(some, Key(1)), made.transform(some, Key(1)))
