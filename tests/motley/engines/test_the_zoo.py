"""Every model of the zoo on every engine that accepts it: the reference's numbers in float64,
BatchNorm's buffers among them."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.fedprox import Proximal
from motley.algorithms.local_optimisers import SGD
from motley.core.work import LocalWork
from motley.engines import ENGINES
from motley.engines.local import Sequential
from motley.tasks.models import MODELS

GREY = (1, 28, 28)
COLOUR = (3, 32, 32)
SHAPES = {
    "alexnet": COLOUR,
    "cnn": COLOUR,
    "digits_mlp": (1, 8, 8),
    "lenet": GREY,
    "leaf_cnn": GREY,
    "simple_cnn": COLOUR,
    "linear": (6,),
    "logistic_regression": GREY,
    "mlp": GREY,
    "resnet9": COLOUR,
    "resnet18": COLOUR,
}
BATCHED = {
    "batched": {"digits_mlp", "linear", "logistic_regression", "mlp"},
    "vmap": set(SHAPES) - {"resnet9", "resnet18"},
}


SEQUENCES = {"leaf_lstm", "transformer"}  # tests/motley_data/test_text_task.py


def test_the_zoo_is_whole() -> None:
    named = {name for name in MODELS.names() if ":" not in name}  # others are of other tests
    assert set(SHAPES) | SEQUENCES == named


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["batched", "vmap", "threads", "debug"])
@pytest.mark.parametrize("model", SHAPES)
def test_the_zoo_agrees(setting, jobs, download, model: str, engine: str) -> None:
    """Three clients of 5, 2 and 3 samples, batches of 2: short last batches, unequal steps; one
    step dropped under BatchNorm."""
    options = MODELS.build(model)
    work = LocalWork(batch_size=2, epochs=1, drop_single=model.startswith("resnet"))
    s = setting(
        lambda: options.build(SHAPES[model], 4),
        SHAPES[model],
        solver=SGD(lr=0.01),
        local=Proximal(0.5),
        work=work,
        sizes=(5, 2, 3),
        threads=2,
    )
    kind = ENGINES.get(engine)
    accepted = kind.refuses(s) is None
    assert accepted == (model in BATCHED.get(engine, SHAPES))
    if not accepted:
        return
    sent = download(s)
    todo = jobs(s, (2, 0, 1))
    other = kind(s)
    for a, b in zip(Sequential(s).train(todo, sent, {}), other.train(todo, sent, {}), strict=True):
        assert a.steps == b.steps > 0
        for name in a.parts:
            torch.testing.assert_close(
                b.parts[name].value, a.parts[name].value, rtol=1e-10, atol=1e-12
            )
    other.close()
