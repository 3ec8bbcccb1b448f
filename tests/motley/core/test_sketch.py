"""Sketches: linear, fixed by their key, and right on average about inner products."""

import numpy as np
import pytest

from motley.core import sketch as module
from motley.core.keys import Key, Streams
from motley.core.sketch import SKETCHES, Sketch


def test_a_sketch_is_linear_and_a_function_of_its_key():
    x, y = np.random.default_rng(0).normal(size=(2, 500))
    sketch = Sketch(Key(3), 500, 64)
    assert sketch.of(2 * x - y) == pytest.approx(
        2 * sketch.of(x) - sketch.of(y), rel=1e-12, abs=1e-12
    )
    assert (Sketch(Key(3), 500, 64).of(x) == sketch.of(x)).all()
    assert not np.allclose(Sketch(Key(4), 500, 64).of(x), sketch.of(x))
    assert not np.allclose(Sketch(Key(3), 500, 256).of(x)[:64], sketch.of(x))


def test_one_coordinate_falls_into_one_bucket_of_each_row():
    """Four rows of 16 buckets; the vector e_i has one number of size 1/sqrt(4) in each: its length
    stays 1 exactly."""
    sketch = Sketch(Key(0), 40, 64)
    for i in range(40):
        found = sketch.of(np.eye(40)[i]).reshape(4, 16)
        assert (np.abs(found).sum(1) == 0.5).all()
        assert (np.count_nonzero(found, axis=1) == 1).all()


def test_inner_products_are_right_on_average():
    """Over 2000 keys the mean is within four standard errors, and the variance below the bound of
    the docstring."""
    x, y = np.random.default_rng(1).normal(size=(2, 300))
    y = y + x
    found = np.array(
        [
            Sketch(Key(seed), 300, 64).of(x) @ Sketch(Key(seed), 300, 64).of(y)
            for seed in range(2000)
        ]
    )
    bound = ((x @ x) * (y @ y) + (x @ y) ** 2) / 64
    assert abs(found.mean() - x @ y) < 4 * np.sqrt(bound / 2000)
    assert found.var() < 1.15 * bound


def test_long_vectors_are_added_up_in_chunks(monkeypatch):
    x = np.random.default_rng(2).normal(size=1001)
    whole = Sketch(Key(0), 1001, 256).of(x)
    monkeypatch.setattr(module, "_CHUNK", 100)
    assert Sketch(Key(0), 1001, 256).of(x) == pytest.approx(whole, rel=1e-12, abs=1e-12)
    assert Sketch(Key(0), 1001, 256).of(x.astype(np.float32)) == pytest.approx(
        whole, rel=1e-5, abs=1e-5
    )


def test_each_signal_has_one_projection_per_run():
    x = np.ones(100)
    for name, width in SKETCHES.items():
        sketch = Sketch.signal(name, Streams(5), 100)
        assert sketch.of(x).shape == (width,)
        assert sketch == Sketch.signal(name, Streams(5), 100)
        assert sketch != Sketch.signal(name, Streams(6), 100)
