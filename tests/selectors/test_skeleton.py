"""What ``motley new selector`` writes works as it is."""

import importlib
import subprocess
import sys

import pytest

from motley.core.errors import ConfigError
from motley.selectors.skeleton import skeleton
from motley.testing.selectors import check_selector


@pytest.fixture
def written(tmp_path, monkeypatch):
    for path, text in skeleton("loudest_first").items():
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("loudest_first", None)


def test_generated_rule_keeps_the_contract(written):
    module = importlib.import_module("loudest_first")
    check_selector(module.LoudestFirst())


def test_generated_test_passes_and_both_files_are_clean(written):
    """In another process, as a user would; doctest of the rule included, warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--doctest-modules", "-p", "no:cacheprovider", str(written)],
        capture_output=True, text=True, cwd=written, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    for tool in (
        ["check", "--isolated", "--line-length=128", "--ignore=I001"],
        ["format", "--check", "--isolated", "--line-length=128"],
    ):
        ruff = subprocess.run([sys.executable, "-m", "ruff", *tool, str(written)], capture_output=True, text=True, check=False)
        assert ruff.returncode == 0, ruff.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Loudest", "name: got 'Loudest'; expected a name in snake_case"),
        ("loud-est", "expected a name in snake_case"),
        ("_x", "expected a name in snake_case"),
        ("", "expected a name in snake_case"),
        ("lambda", "expected a name in snake_case"),
        ("größe", "expected a name in snake_case"),
        ("uniform", "the name of a rule of Motley"),
        ("oort", "the name of a rule of Motley"),
        ("random", "the name of a Python module"),
    ],
)
def test_bad_names(name, message):
    with pytest.raises(ConfigError, match=message):
        skeleton(name)
