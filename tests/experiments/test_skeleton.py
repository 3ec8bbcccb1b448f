"""What ``motley new`` writes works as it is: its tests pass, and both files are clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from motley.core.errors import ConfigError
from motley.experiments.skeleton import SKELETONS, skeleton


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the skeletons of all kinds."""
    for kind in SKELETONS:
        for name, text in skeleton(kind, f"mine_{kind}").items():
            (tmp_path / name).write_text(text)
    return tmp_path


def test_generated_tests_pass_and_all_files_are_clean(written: Path) -> None:
    """In another process, as a user would; doctests included, warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--doctest-modules", "-p", "no:cacheprovider", str(written)],
        capture_output=True, text=True, cwd=written, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "35 passed" in done.stdout
    for tool in (
        ["check", "--isolated", "--line-length=128", "--ignore=I001"],
        ["format", "--check", "--isolated", "--line-length=128"],
    ):
        ruff = subprocess.run([sys.executable, "-m", "ruff", *tool, str(written)], capture_output=True, text=True, check=False)
        assert ruff.returncode == 0, ruff.stdout


@pytest.mark.slow
def test_types_of_generated_files_are_right(written: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "."], capture_output=True, text=True, check=False, cwd=written
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("selector", "Loudest", "name: got 'Loudest'; expected a name in snake_case"),
        ("selector", "loud-est", "expected a name in snake_case"),
        ("selectors", "_x", "expected a name in snake_case"),
        ("selector", "a" * 300, "name: got a name of 300 characters; expected at most 200"),
        ("selector", "", "expected a name in snake_case"),
        ("task", "lambda", "expected a name in snake_case"),
        ("selector", "größe", "expected a name in snake_case"),
        ("selector", "uniform", "the name of a component of this kind"),
        ("partition", "dirichlet", "the name of a component of this kind"),
        ("selector", "random", "the name of a Python module; choose another, such as random_selector"),
        ("selectr", "x", r"KIND: got 'selectr' \(did you mean 'selector'\?\); expected one of: algorithm, compressor"),
    ],
)
def test_bad_kinds_and_names(kind: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        skeleton(kind, name)
