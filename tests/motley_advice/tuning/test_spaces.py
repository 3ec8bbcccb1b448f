"""Spaces: what their texts mean, what is refused, and how numbers of the search become values."""

from __future__ import annotations

import pytest

from motley.core.errors import ConfigError
from motley_advice.tuning.spaces import ChoiceSpace, NumberSpace, parse_space, parse_spaces


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("log:0.001..1", NumberSpace(0.001, 1.0, log=True)),
        ("0.1..0.9", NumberSpace(0.1, 0.9)),
        ("-1..1e2", NumberSpace(-1.0, 100.0)),
        ("int:1..10", NumberSpace(1.0, 10.0, integer=True)),
        ("8,16,32", ChoiceSpace((8, 16, 32))),
        ('"a","b"', ChoiceSpace(("a", "b"))),
        ('{ name = "sgd", lr = 0.1 },adam', ChoiceSpace(({"name": "sgd", "lr": 0.1}, "adam"))),
        ("true,false", ChoiceSpace((True, False))),
    ],
)
def test_the_text_of_a_space(text: str, space: object) -> None:
    assert parse_space(text, "some.key") == space


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1..1", r"some\.key: got 1\.\.1; expected a smaller number"),
        ("2..1", "expected a smaller number, two points, a larger one"),
        ("log:0..1", "a logarithm needs numbers above 0"),
        ("int:0.5..2", "expected whole numbers, e.g. int:1..10"),
        ("lag:0.1..1", "got 'lag:0.1..1'; expected a..b, log:a..b, int:a..b, or x,y,z"),
        ("0.1..", "expected a..b"),
        ("0.1", "expected at least two different values"),
        ("1,1", "expected at least two different values"),
        (3, "expected a..b, log:a..b, int:a..b, or x,y,z, or a list of values"),
    ],
)
def test_what_is_no_space(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_space(given, "some.key")  # type: ignore[arg-type]


def test_options_are_taken_apart_at_the_first_equals_sign() -> None:
    found = parse_spaces(
        ["local.optimizer.lr=log:0.001..1", "fedprox:algorithm.mu = 0.1,1.0", "a={ b = 1 },2"]
    )
    assert found == {
        "local.optimizer.lr": "log:0.001..1",
        "fedprox:algorithm.mu": "0.1,1.0",
        "a": "{ b = 1 },2",
    }
    with pytest.raises(ConfigError, match=r"got 'lr'; expected KEY=SPACE"):
        parse_spaces(["lr"])
    with pytest.raises(ConfigError, match="got 'a' twice"):
        parse_spaces(["a=1,2", "a=3,4"])


def test_values_are_rounded_and_stay_within_the_ends() -> None:
    log = NumberSpace(0.001234, 1.0, log=True)
    plain = NumberSpace(0.0, 1.0)
    assert [log.value(number) for number in (0.0316227766, 0.5, 0.001234)] == [
        0.0316,
        0.5,
        0.001234,
    ]
    assert plain.value(1 / 3) == 0.333
    whole = NumberSpace(1, 3, integer=True)
    assert [whole.value(whole.at(share)) for share in (0.01, 0.34, 0.99)] == [1, 2, 3]
    assert isinstance(whole.value(2.0), int)


def test_shares_of_a_logarithm_are_even() -> None:
    space = NumberSpace(0.001, 1.0, log=True)
    assert [space.value(space.at(share)) for share in (1 / 3, 2 / 3)] == [0.01, 0.1]


def test_what_a_file_has_is_found_in_a_space() -> None:
    assert NumberSpace(0.1, 1.0).number(0.5) == 0.5
    assert NumberSpace(0.1, 1.0).number(2.0) is None
    assert NumberSpace(1, 5, integer=True).number(2.5) is None
    assert ChoiceSpace(("a", "b")).number("b") == 1
    assert ChoiceSpace(("a", "b")).number("c") is None
