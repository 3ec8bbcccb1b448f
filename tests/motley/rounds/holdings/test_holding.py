"""What clients hold of the model: one object in a run, which all that plan messages ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.holdings.heads import HeldHeads
from motley.rounds.holdings.holding import ChosenModel, Holding
from motley.rounds.holdings.prototypes import HeldPrototypes
from motley.rounds.holdings.slices import HeldSlices
from motley.rounds.loop import RoundLoop

IDS = np.arange(4)
KEYS: dict[str, Any] = {
    "name": "holding",
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [10]}},
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 1},
    "partition": {"name": "label_count", "labels": 2},
}
LEVELS = {"name": "levels", "levels": [1.0, 0.5], "weights": [0.5, 0.5]}
HEADS = {**KEYS["task"], "heads": [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]}


def built(**keys: Any) -> RoundLoop:
    return build(Experiment(**{**KEYS, **keys}))


def test_a_paper_bills_a_prototype_and_a_count_for_each_class_of_a_client() -> None:
    """Two labels a client, prototypes of 10 values: 2 * 32 * (10 + 1) bits."""
    loop = built(algorithm="fedproto")
    holding = loop.backend.holding  # type: ignore[attr-defined]
    none = np.zeros(4, np.int64)
    _, paper = holding.bits_up(loop.channel, IDS, 1, None, (none, none))
    assert paper.tolist() == [704] * 4


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"algorithm": "ifca"}, ChosenModel),
        ({"algorithm": "fedproto"}, HeldPrototypes),
        ({"task": HEADS}, HeldHeads),
        ({"algorithm": "heterofl", "capacity": LEVELS}, HeldSlices),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_run_has_one_holding_and_no_message_is_longer_than_the_whole_model(
    keys: Any, kind: type[Holding]
) -> None:
    loop = built(**keys)
    holding = loop.backend.holding  # type: ignore[attr-defined]
    assert type(holding) is kind
    download = loop.algorithm.local.download(loop.state.server)
    sizes = loop.channel.whole_download(download), loop.channel.upload_bits
    whole = [np.full(4, bits) for bits in sizes]
    assert (holding.bits_down(IDS, 1, whole[0]) <= whole[0]).all()
    assert holding.bits_down(IDS, 1, 0 * IDS).tolist() == [0, 0, 0, 0]
    up, paper = holding.bits_up(loop.channel, IDS, 1, None, (whole[1], whole[1]))
    assert (up <= whole[1]).all()
    assert (paper < up).all() or kind is ChosenModel


def test_who_chooses_among_models_passes_its_samples_through_each() -> None:
    loop = built(algorithm={"name": "ifca", "k": 3}, local={"batch_size": 100})
    seen = loop.federation.seen
    holding = loop.backend.holding  # type: ignore[attr-defined]
    assert holding.probe_batches(IDS).tolist() == [3 * -(-int(n) // 100) for n in seen[IDS]]
    assert built().backend.holding is None  # all clients hold the whole model


def test_half_of_the_hidden_units_is_what_a_client_of_half_the_width_receives() -> None:
    """A half of the hidden units: 64 x 5 + 5 + 5 x 10 + 10 = 385 of 760 parameters."""
    loop = built(algorithm="heterofl", capacity=LEVELS)
    holding = loop.backend.holding  # type: ignore[attr-defined]
    widths = holding.widths(IDS, 1)
    assert sorted(set(widths.tolist())) == [0.5, 1.0]
    whole = np.full(4, 32 * 760)
    numbers = np.where(widths < 1, 385, 760)
    assert holding.bits_down(IDS, 1, whole).tolist() == (32 * numbers).tolist()
    spared, fewer = holding.spared(IDS, 1, gradient=True)
    assert spared.tolist() == (32 * (760 - numbers)).tolist()
    assert fewer.tolist() == (760 - numbers).tolist()
    assert holding.spared(IDS, 1, gradient=False)[1].tolist() == [0, 0, 0, 0]
