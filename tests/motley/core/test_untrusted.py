"""What comes from files and users is printed as text alone, and never nested without an end."""

import pytest

from motley.core.untrusted import (
    MOST_DIGITS,
    MOST_LEVELS,
    check_limits,
    one_line,
    printable,
    printable_tree,
    shortened,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "plain, [/foo] and \U0001f468\u200d\U0001f469",
            "plain, [/foo] and \U0001f468\u200d\U0001f469",
        ),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J\r\x00", "\\x9b2J\\r\\x00"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable_tree({text: [text, 3, None]}) == {shown: [shown, 3, None]}


def test_a_long_text_loses_its_middle() -> None:
    text = "a" * 600 + "b" * 600
    cut = shortened(text, 100)
    assert (len(cut), cut[:2], cut[-2:], " ... " in cut) == (100, "aa", "bb", True)
    assert shortened("a" * 100, 100) == "a" * 100


def test_a_tree_is_neither_too_deep_nor_holds_endless_numbers() -> None:
    tree: object = 1
    for _ in range(MOST_LEVELS):
        tree = {"a": tree}
    check_limits(tree)
    with pytest.raises(
        ValueError, match="'a' holds tables or lists inside each other, more than 100 levels deep"
    ):
        check_limits({"a": tree})
    check_limits([10**MOST_DIGITS - 1, float("inf"), True])
    with pytest.raises(ValueError, match=r"'a\.1' is a whole number of more than 300 digits"):
        check_limits({"a": [0, -(10**MOST_DIGITS)]})


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("loss", "'loss'"),
        ("a\nERROR: x\x1b[2J\u202e", "'a\\nERROR: x\\x1b[2J\\u202e'"),
        (b"\x00ab", "b'\\x00ab'"),
        (3, "3"),
        (["a\n"], "['a\\n']"),
    ],
)
def test_what_a_stranger_says_is_one_line(said: object, shown: str) -> None:
    assert one_line(said) == shown


def test_a_long_word_of_a_stranger_is_cut() -> None:
    for said in ("x" * 5_000_000, b"\xff" * 5_000_000, ["\n" * 500] * 9, {"k" * 500: 1}, 10**4000):
        line = one_line(said)
        assert len(line) <= 120
        assert "\n" not in line
    assert one_line("ab" * 100, 20) == "'ababababab ... bab'"
    assert one_line(10**5000) == "<int too long to show>"
