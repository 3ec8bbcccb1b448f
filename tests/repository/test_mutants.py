"""Which small changes of the code the tests are asked to notice."""

import sys
from pathlib import Path

import pytest

SCRIPTS = str(Path(__file__).resolve().parents[2] / "scripts")
CODE = '''"""Text with 1 < 2."""
LIMIT = 3


def f(a, b):
    if not a and b <= 2:
        return a + b
    return "1 < 2"
'''


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import mutants

    yield mutants
    del sys.modules["mutants"]


def test_one_change_at_a_time_in_functions_alone(tmp_path, mutants):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    changed = [
        CODE[: one.start] + one.text + CODE[one.end :]
        for one in mutants.Source(path, tmp_path).mutants()
    ]
    assert sorted(changed) == sorted(
        [
            CODE.replace("not a and", "a and"),
            CODE.replace("a and b", "a or b"),
            CODE.replace("b <= 2", "b < 2"),
            CODE.replace("<= 2", "<= 3"),
            CODE.replace("a + b", "a - b"),
        ]
    )


def test_the_same_seed_draws_the_same_places(tmp_path, mutants):
    (tmp_path / "code.py").write_text(CODE)
    one, other = (mutants.drawn(tmp_path, ["."], 2, seed=5) for _ in range(2))
    assert one == other
    assert len(one) == 2


@pytest.mark.parametrize("passes", [True, False])
def test_nothing_is_judged_by_tests_that_fail_without_a_change(tmp_path, mutants, passes):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(f"def test_one():\n    assert {passes}\n")
    if passes:
        assert mutants.seconds_unchanged(tmp_path, ["tests"]) > 0
        return
    with pytest.raises(SystemExit, match="fails on the unchanged code"):
        mutants.seconds_unchanged(tmp_path, ["tests"])
