"""Catalogues: records become objects, mistakes become one sentence."""

import pickle
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.components import (
    Catalogue,
    UnknownOptionError,
    check_option,
    declares,
    own_components,
)
from motley.core.errors import ConfigError


@dataclass(frozen=True)
class Ball:
    size: float
    colour: Literal["red", "blue"] = "red"
    holes: int | None = None
    range: tuple[float, float] = (0.0, 1.0)
    tags: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    soft: bool = False
    throw: str = "far"
    volume: float = field(init=False, default=0.0)

    def __post_init__(self):
        if self.size <= 0:
            raise ConfigError(f"got size = {self.size}; expected a positive number")
        if self.throw == "back":
            raise ConfigError("got 'back'; expected far", "toy.throw")


@pytest.fixture(scope="module")
def toys():
    module = types.ModuleType("toys_for_tests")
    module.Ball = Ball
    sys.modules["toys_for_tests"] = module
    yield Catalogue("toy", {"ball": "toys_for_tests:Ball", "bat": "nowhere_at_all:Bat"})
    del sys.modules["toys_for_tests"]


def test_building(toys):
    ball = toys.build(
        {
            "name": "ball",
            "size": 3,
            "range": [1, 2.5],
            "tags": ["a"],
            "holes": None,
            "throw": "near",
        }
    )
    assert ball == Ball(3.0, range=(1.0, 2.5), tags=("a",), throw="near")
    assert isinstance(ball.size, float)
    assert isinstance(ball.range[0], float)
    assert toys.names() == ["ball", "bat"]


def test_components_of_ones_own_are_listed_also_inside_others(toys):
    @dataclass(frozen=True)
    class Bag:
        holds: str

        def __post_init__(self):
            toys.build(self.holds, "toy.holds")

    @dataclass(frozen=True)
    class Ring:
        pass

    toys.register("bag", Bag)
    toys.register("ring", Ring)
    try:
        with own_components() as built:
            bag = toys.build({"name": "bag", "holds": "ring"})
        toys.build("ring")
    finally:
        for name in ("bag", "ring"):
            del toys.targets[name], toys._classes[name]
    assert built == [("toy", "ring", "toy.holds", Ring()), ("toy", "bag", "toy", bag)]


def test_a_record_is_left_as_it_was(toys):
    record = {"name": "ball", "size": 1.0}
    toys.build(record)
    assert record == {"name": "ball", "size": 1.0}


def test_options_in_words(toys):
    words = {option.name: (option.accepts, option.default) for option in toys.options("ball")}
    assert words["size"] == ("a number", ...)
    assert words["colour"] == ("one of 'red', 'blue'", "red")
    assert words["holes"] == ("a whole number or none", None)
    assert words["range"] == ("a list of 2: a number, a number", (0.0, 1.0))
    assert words["tags"] == ("a list of strings", ())
    assert words["extra"] == ("a table", {})
    assert words["soft"] == ("true or false", False)
    assert "throw" in words
    assert "volume" not in words


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("bal", r"toy.name: got 'bal' \(did you mean 'ball'\?\); expected one of: ball, bat"),
        ({"size": 1}, r"toy: got no name; expected \{ name = "),
        ({"name": 5}, "toy.name: got 5; expected one of: ball, bat"),
        (["ball"], r"toy: got \['ball'\]; expected a name or"),
        (None, "toy: got None; expected a name or"),
        ({"name": "ball"}, r"toy.size: 'ball' needs this option \(a number\)"),
        (
            {"name": "ball", "size": 1, "color": "red"},
            r"toy.color: 'ball' has no such option \(did you mean 'colour'\?\); its options",
        ),
        ({"name": "ball", "size": 1, "volume": 1}, "toy.volume: 'ball' has no such option"),
        ({"name": "ball", "size": 1, "thro": "near"}, r"no such option \(did you mean 'throw'\?\)"),
        ({"name": "ball", "size": "big"}, "toy.size: got 'big'; expected a number"),
        ({"name": "ball", "size": True}, "toy.size: got True; expected a number"),
        ({"name": "ball", "size": float("nan")}, "toy.size: got nan; expected a number"),
        ({"name": "ball", "size": 10**400}, "toy.size: got 1000* ... 0*; expected a number"),
        ({"name": "ball", "size": -1}, "toy: got size = -1.0; expected a positive number"),
        (
            {"name": "ball", "size": 1, "colour": "bleu"},
            r"got 'bleu' \(did you mean 'blue'\?\); expected one of 'red', 'blue'",
        ),
        (
            {"name": "ball", "size": 1, "holes": 2.0},
            "toy.holes: got 2.0; expected a whole number or none",
        ),
        ({"name": "ball", "size": 1, "holes": True}, "toy.holes: got True"),
        ({"name": "ball", "size": 1, "range": [1]}, r"toy.range: got \[1\]; expected a list of 2"),
        ({"name": "ball", "size": 1, "range": 1}, "toy.range: got 1; expected a list of 2"),
        ({"name": "ball", "size": 1, "tags": "a"}, "toy.tags: got 'a'; expected a list of strings"),
        ({"name": "ball", "size": 1, "extra": 3}, "toy.extra: got 3; expected a table"),
        ({"name": "ball", "size": 1, "soft": 1}, "toy.soft: got 1; expected true or false"),
    ],
)
def test_mistakes(toys, record, message):
    with pytest.raises(ConfigError, match=message):
        toys.build(record)


def test_the_key_is_the_callers(toys):
    with pytest.raises(ConfigError, match=r"^grid\.2\.size: got 'x'") as caught:
        toys.build({"name": "ball", "size": "x"}, key="grid.2")
    assert caught.value.key == "grid.2.size"


@given(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.lists(st.integers()),
        st.dictionaries(st.text(), st.integers()),
    )
)
def test_checking_never_ends_in_another_error(value):
    told = []
    for hint in (
        int,
        float,
        bool,
        str,
        int | None,
        Literal["a", 1],
        tuple[int, ...],
        tuple[float, float],
        dict,
        Mapping[str, int],
        list[int],
    ):
        try:
            check_option(value, hint, "k")
        except ConfigError as error:
            told.append(str(error))
    assert all(text.startswith("k: got ") for text in told)


def test_a_key_is_said_once(toys):
    with pytest.raises(ConfigError, match=r"^toy: got size = 0.0; expected"):
        toys.build({"name": "ball", "size": 0.0})
    with pytest.raises(ConfigError, match=r"^toy.throw: got 'back'; expected far$"):
        toys.build({"name": "ball", "size": 1.0, "throw": "back"})


def test_entry_points_add_names_and_ours_win(monkeypatch):
    from motley.core import extensions

    group = "motley.toy"
    other = "motley.another"
    named = [
        ("mine", "toys:Mine", group),
        ("ball", "toys:Other", group),
        ("not_ours", "toys:Mine", other),
    ]
    points = [metadata.EntryPoint(*one) for one in named]
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(points))
    catalogue = Catalogue("toy", {"ball": "ours:Ball"})
    assert catalogue.targets == {"mine": "toys:Mine", "ball": "ours:Ball"}


def test_a_name_of_a_distribution_that_is_missing_says_which(monkeypatch):
    """A name that no distribution has is unknown as ever."""
    from motley.core import extensions

    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(()))
    catalogue = Catalogue("toy", {"ball": "ours:Ball"}, beside=("ray",))
    said = "toy.name: 'ray' comes with motley-ray, which is not installed; in a checkout of Motley:"
    with pytest.raises(ConfigError, match=f"^{said} pip install ./packages/motley-ray$"):
        catalogue.build({"name": "ray"})
    with pytest.raises(ConfigError, match="got 'rays'; expected one of: ball"):
        catalogue.build("rays")


def test_an_unknown_option_reaches_another_process(toys):
    with pytest.raises(UnknownOptionError) as raised:
        toys.build({"name": "ball", "size": 1, "bounce": 2})
    raised.value.place = "mine.py, line 3"  # as own_code notes it
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301  # written just above
    assert str(again) == str(raised.value)
    assert vars(again) == vars(raised.value)
    assert again.key == "toy.bounce"


def test_a_plugin_that_cannot_be_imported_hides_no_mistake(tmp_path, monkeypatch):
    """The nearest components are sought in all, and a plugin may raise anything."""
    (tmp_path / "broken_toys.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = types.ModuleType("whole_toys")
    module.Ball = Ball
    monkeypatch.setitem(sys.modules, "whole_toys", module)
    catalogue = Catalogue("toy", {"ball": "whole_toys:Ball", "bat": "broken_toys:Bat"})
    with pytest.raises(ConfigError, match=r"^toy\.bounce: 'ball' has no such option; its options"):
        catalogue.build({"name": "ball", "size": 1, "bounce": 2})
    with pytest.raises(ConfigError, match=r"^toy: got no name; .*, one of: ball$"):
        catalogue.build({"size": 1})
    with pytest.raises(ZeroDivisionError):
        catalogue.build("bat")


def test_a_subclass_that_does_something_else_inherits_no_declaration():
    class Base:
        says = True

        def do(self):
            return 1

        def more(self):
            return 1

    class Same(Base):
        other = 3

    class Else(Base):
        def do(self):
            return 2

    class Anew(Else):
        says = False

    class Further(Anew):
        def more(self):
            return 2

    assert [declares(one(), "says", "do") for one in (Base, Same, Else, Anew, Further)] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert not declares(Further(), "says", "do", "more")
