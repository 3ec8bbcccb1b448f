"""Shifts reach a client's train and test samples, and nothing of the common test set; clients that
share samples have copies."""

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.world.shift.feature_shift import Domains


def experiment(**keys):
    base = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 8,
        "cohort": 4,
        "stop": {"rounds": 1},
        "split": {"test": "global"},
        "engine": "sequential",
    }
    return Experiment(**{**base, **keys})


def federation(**keys):
    return task_of(experiment(**keys)).federation


@pytest.mark.parametrize("scale", ["standard", "unit"])
@pytest.mark.parametrize("test", ["global", "client"])
def test_features_are_shifted_as_pixels_for_training_and_own_test(test, scale):
    """An inverted client's pixels are 1 - x before standardizing; the common test set is
    untouched."""
    task = {"name": "image", "data": "digits", "model": "digits_mlp", "scale": scale}
    keys = {"task": task, "split": {"test": test}}
    plain = federation(**keys)
    shifted = federation(**keys, feature_shift={"name": "domains", "names": ["plain", "inverted"]})
    group = Domains(("plain", "inverted")).group(
        Streams(0).key("shift").fold("feature"), np.arange(8), 8
    )
    assert (shifted.domain == group).all()
    for part in ("train", "test"):
        for client, rows in enumerate(getattr(plain, part)):
            assert (getattr(shifted, part)[client] == rows).all()
            before, after = (f.x[torch.from_numpy(rows)] for f in (plain, shifted))
            if group[client] == 0:
                assert torch.allclose(before, after, atol=1e-5)
            elif len(rows):
                total = before + after  # x + (1 - x) in standardized units is one number everywhere
                assert torch.allclose(total, total.flatten()[0].expand_as(total), atol=1e-4)
                assert not torch.allclose(before, after, atol=0.1)
    if test == "global":
        assert torch.equal(
            plain.x[torch.from_numpy(plain.global_test)],
            shifted.x[torch.from_numpy(shifted.global_test)],
        )


def test_augmented_pictures_stay_in_stored_units():
    task = {"name": "image", "data": "digits", "model": "digits_mlp", "augment": "crop_flip"}
    x = federation(task=task, feature_shift={"name": "transform", "brightness": [2, 2]}).x
    assert 0 <= x.min() <= x.max() <= 1


def test_concepts_hold_for_train_and_own_test_and_noise_comes_on_top():
    plain = federation(split={"test": "client"})
    meant = federation(split={"test": "client"}, concept_shift={"name": "swap", "share": 1.0})
    noisy = federation(
        split={"test": "client"},
        concept_shift={"name": "swap", "share": 1.0},
        label_noise={"name": "symmetric", "rate": 0.2},
    )
    assert set(meant.cluster) == {0, 1}
    for part in ("train", "test"):
        for client, rows in enumerate(getattr(plain, part)):
            moved = (
                meant.y[torch.from_numpy(getattr(meant, part)[client])]
                != plain.y[torch.from_numpy(getattr(meant, part)[client])]
            )
            assert bool(moved.all()) if meant.cluster[client] else not bool(moved.any())
            assert len(rows)
    assert torch.equal(meant.labels, meant.y[torch.from_numpy(meant.train.values)])
    clean = noisy.y[torch.from_numpy(noisy.train.values)]
    assert float((noisy.labels != clean).double().mean()) == pytest.approx(0.2, abs=0.01)
    assert torch.equal(noisy.y, meant.y)


def test_clients_that_share_samples_have_copies_of_their_own():
    overlapping = {"name": "missing_classes", "missing": 4, "variant": "code"}
    shared = federation(partition=overlapping)
    assert len(np.unique(shared.train.values)) == len(shared.train.values)
    flat = shared.x[torch.from_numpy(shared.train.values)].flatten(1)
    assert len(torch.unique(flat, dim=0)) < len(flat)
    assert len(shared.global_test) == len(federation().global_test)
    with pytest.raises(
        ConfigError, match=r"split\.test: with this partition clients share samples"
    ):
        federation(partition=overlapping, split={"test": "client"})


def test_the_overlap_may_not_carry_a_shift_from_client_to_client():
    shared = federation(
        partition={"name": "missing_classes", "missing": 4, "variant": "code"},
        concept_shift={"name": "swap", "share": 1.0},
    )
    plain = federation(partition={"name": "missing_classes", "missing": 4, "variant": "code"})
    for client, rows in enumerate(shared.train):
        moved = shared.y[torch.from_numpy(rows)] != plain.y[torch.from_numpy(rows)]
        assert bool(moved.all()) if shared.cluster[client] else not bool(moved.any())


def test_a_run_under_all_shifts():
    simulation = build(
        experiment(
            feature_shift="domains",
            concept_shift="swap",
            label_noise={"name": "label_flip", "share": 0.25},
            dtype="float64",
        )
    )
    assert np.isfinite(simulation.step().train_loss)


def test_a_table_of_numbers_takes_noise_alone():
    tabular = {
        "task": {"name": "tabular", "data": "wine", "model": "logistic_regression"},
        "population": 5,
    }
    assert federation(**tabular, feature_shift="noise").x.shape[1] == 13
    with pytest.raises(ConfigError, match="feature_shift: this shift transforms images"):
        federation(**tabular, feature_shift="domains")
    with pytest.raises(
        ConfigError, match="concept_shift: a concept shift needs one class per sample"
    ):
        federation(
            task="quadratic", partition="by_writer", split={"test": "client"}, concept_shift="swap"
        )
