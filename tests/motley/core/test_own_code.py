"""Errors in code of the user's own name its file and line."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import motley
from motley.algorithms.aggregators.mean import Mean
from motley.core.errors import ConfigError, EngineError, ModelError
from motley.core.own_code import (
    definition,
    in_one_line,
    keep_own_code,
    own_code_in,
    place_in_own_code,
)
from motley.rounds.run_config import RoundSummary
from motley.tasks import from_clients, own_task
from motley.tasks.flat import construct


def called_by_motley(function: Any) -> BaseException:
    """Return the error of a function that Motley's code calls."""
    with pytest.raises(Exception) as caught:
        construct(function, 0)
    return caught.value


def fails() -> nn.Module:
    raise KeyError("weights")  # the line that is named


LINE = fails.__code__.co_firstlineno + 1


def test_the_innermost_frame_of_the_user_is_named() -> None:
    error = called_by_motley(fails)
    place = f"{definition(fails)}".partition("(")[2].partition(",")[0]
    assert own_code_in(error) == (
        f'it was raised in {place}, line {LINE}, in fails: raise KeyError("weights")  # the line '
        "that is named"
    )
    assert place_in_own_code(error) == f", in {place}, line {LINE}, in fails"
    assert place_in_own_code(ConfigError("x")) == ""


def test_an_error_below_a_users_line_is_the_users_and_one_of_motley_is_not() -> None:
    below = called_by_motley(lambda: torch.zeros(2) + torch.zeros(3))
    assert "in <lambda>" in (own_code_in(below) or "")
    assert own_code_in(called_by_motley(None)) is None
    assert own_code_in(ValueError("raised nowhere")) is None


def test_the_sentence_outlives_a_pickled_error_and_goes_on_to_another() -> None:
    error = called_by_motley(fails)
    sentence = own_code_in(error)
    assert sentence is not None
    keep_own_code(error)
    keep_own_code(error)
    assert error.__notes__ == [sentence]
    sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - of this test
    assert sent.__traceback__ is None
    assert own_code_in(sent) == sentence
    other = EngineError("a worker failed")
    keep_own_code(other, like=sent)
    assert own_code_in(other) == sentence


def test_parts_are_named_where_none_of_them_raised() -> None:
    error = TypeError("no")
    keep_own_code(error, [partial(fails), 3, nn.Linear, None])
    place = f"{definition(fails)}"
    assert own_code_in(error) == f"it was raised where Motley works with parts of your own: {place}"
    sentence = ConfigError("a sentence of Motley's own")
    keep_own_code(sentence, [fails])
    assert own_code_in(sentence) is None


def test_only_what_is_the_users_has_a_definition() -> None:
    assert (definition(fails) or "").endswith(f"test_own_code.py, line {LINE - 1})")
    assert definition(nn.Linear(1, 1)) is None
    assert definition(definition) is None
    assert definition(len) is None
    assert definition("text") is None


def test_errors_are_one_line() -> None:
    assert in_one_line(KeyError("a")) == "KeyError: 'a'"
    assert in_one_line(EngineError("two\nlines")) == "two lines"


class Broken(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x.nothing()  # type: ignore[operator]


def test_refusals_of_a_model_a_loss_and_a_metric_name_the_line() -> None:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(3)]
    federation = from_clients(clients, test_fraction=0.25)
    line = Broken.forward.__code__.co_firstlineno + 1
    with pytest.raises(ModelError, match=f"cannot take .*_own_code.py, line {line}, in forward"):
        own_task(federation, lambda: Broken(3, 2))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.nothing(targets)  # type: ignore[operator]

    line = loss.__code__.co_firstlineno + 1
    with pytest.raises(ModelError, match=f"the loss cannot .*_own_code.py, line {line}, in loss"):
        own_task(federation, lambda: nn.Linear(3, 2), loss=loss)


def test_a_run_of_a_users_component_shows_the_line_with_the_traceback(
    tmp_path: Path,
) -> None:
    def stopped(done: RoundSummary) -> None:
        raise LookupError(f"round {done.round}")

    keys = {"task": "quadratic", "population": 4, "cohort": 2, "stop": {"rounds": 2}}
    with pytest.raises(LookupError, match="round 1") as caught:
        motley.run(keys, on_round=stopped, out=tmp_path / "run")
    assert "test_own_code.py" in caught.value.__notes__[0]


KEYS = {"cohort": 2, "stop": {"rounds": 1}}


def two_clients() -> Any:
    x = torch.arange(40.0).view(20, 2) / 40
    return from_clients([(x[k::2], torch.arange(10) % 2) for k in range(2)])


class CountedLoss:
    """Cross-entropy, and something else from a call on."""

    def __init__(self, good: int, then: Any) -> None:
        self.good = good
        self.then = then

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        self.good -= 1
        return self.then() if self.good < 0 else nn.functional.cross_entropy(outputs, targets)


def no_index() -> None:
    raise IndexError("mine")


def test_a_loss_that_fails_or_gives_nothing_later_is_named_with_its_file() -> None:
    for then, message in (
        (no_index, r"got CountedLoss \(.*test_own_code.py, line \d+\), .*\(mine, in .*_code.py, "),
        (lambda: None, r"the loss CountedLoss \(.*test_own_code.py, line \d+\) gives NoneType; "),
    ):
        seen = CountedLoss(10**6, then)
        task = own_task(two_clients(), lambda: nn.Linear(2, 2), loss=seen, over="batch")
        seen.good = 0
        with pytest.raises((ConfigError, ModelError), match=message):
            motley.run(dict(KEYS), task=task)


@dataclass(frozen=True)
class Nothing(Mean):
    """Forgets to return the totals."""

    def finish(self, total: Any, divide: Any) -> Any:
        super().finish(total, divide)


def test_an_aggregator_that_returns_nothing_is_named_and_no_round_without_change() -> None:
    task = own_task(two_clients(), lambda: nn.Linear(2, 2))
    message = r"finish of Nothing \(.*test_own_code.py, line \d+\) returned None; expected"
    with pytest.raises(ConfigError, match=message):
        motley.run({**KEYS, "aggregator": Nothing()}, task=task)
