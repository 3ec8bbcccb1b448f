"""Saved state: dataclasses come back by their type hints, in place where others hold them, and what
another version saved is refused with a sentence."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from motley.core import codec
from motley.core.arrays import Ids
from motley.core.errors import StoreError
from motley.core.ragged import Ragged
from motley.core.saved_state import FIXED, restore, save
from motley.core.table import ClientTable


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    name: str
    values: Ids


@dataclass(frozen=True)
class Model:
    x: torch.Tensor
    more: Mapping[str, torch.Tensor]


@dataclass
class Counter:
    count: int = 0


@dataclass
class Everything:
    model: Model | None = None
    counter: Counter = field(default_factory=Counter)
    table: ClientTable = field(default_factory=lambda: ClientTable({"a": 0.0}))
    ragged: Ragged = field(default_factory=lambda: Ragged.of([]))
    by_client: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    cohorts: list[tuple[int, ...]] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    colour: Colour | None = None
    item: tuple[Any, ...] = ()
    ratio: float = 0.0
    either: float | np.ndarray = 0.0
    folder: str = field(default="", metadata=FIXED)


def full() -> Everything:
    return Everything(
        Model(torch.tensor([1.0, -0.0]), {"m": torch.zeros(0, 2, dtype=torch.float16)}),
        Counter(7),
        ClientTable({"a": 0.0}).add("a", [7, 3]),
        Ragged.of([np.array([4, 5]), np.array([], np.int64)]),
        {3: {"c": torch.tensor(2, dtype=torch.int64)}},
        [(1, 2), ()],
        [Pair("x", np.array([9]))],
        {5, 2},
        Colour.RED,
        ("model", (1, "f4")),
        float("nan"),
        np.array([0.5]),
        "here",
    )


def test_every_kind_of_field_comes_back_with_its_type_and_bits() -> None:
    saved = codec.decode(codec.encode(save(full())))
    again = Everything(folder="there")
    held = again.counter
    restore(again, saved)
    assert codec.encode(save(again)) == codec.encode(save(full()))
    assert again.folder == "there"
    assert again.counter is held
    assert held.count == 7
    assert again.model is not None
    assert (again.model.x.dtype, again.model.more["m"].shape) == (torch.float32, (0, 2))
    assert again.by_client[3]["c"].item() == 2
    assert (again.cohorts, again.seen, again.colour) == ([(1, 2), ()], {2, 5}, Colour.RED)
    assert again.table.get("a", [3, 4]).tolist() == [1.0, 0.0]
    assert again.ragged[0].tolist() == [4, 5]
    assert isinstance(again.pairs[0], Pair)
    assert again.item == ("model", (1, "f4"))
    assert np.isnan(again.ratio)


def test_what_is_none_stays_none() -> None:
    again = full()
    restore(again, save(Everything()))
    assert (again.model, again.colour, again.by_client) == (None, None, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ratio": "much"}, "its ratio is a str"),
        ({"model": [1.0]}, "it has no more, x"),
        ({"model": {"x": 1.0, "more": {}}}, "its x is a float"),
        ({"by_client": {3: {"c": "no"}}}, "its by_client is a str"),
        ({"pairs": [("x",)]}, "its pairs has 1 parts"),
        ({"counter": None}, "it has no count"),
        ({"seen": 5}, "its seen is a int"),
    ],
)
def test_another_form_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(
        StoreError, match=rf"another version of Motley \({said}\); remove the run's folder"
    ):
        restore(Everything(), {**save(full()), **change})
