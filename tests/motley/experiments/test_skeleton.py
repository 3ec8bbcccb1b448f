"""What ``motley new`` writes works as it is: its tests pass, and both files are clean."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motley.cli import app
from motley.core.errors import ConfigError
from motley.experiments.skeleton import SKELETONS, skeleton
from motley.selectors.selector import SelectionRule


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
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "--doctest-modules",
            "-p",
            "no:cacheprovider",
            str(written),
        ],
        capture_output=True,
        text=True,
        cwd=written,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "50 passed" in done.stdout
    for tool in (
        ["check", "--isolated", "--line-length=128", "--ignore=I001"],
        ["format", "--check", "--isolated", "--line-length=128"],
    ):
        ruff = subprocess.run(
            [sys.executable, "-m", "ruff", *tool, str(written)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ruff.returncode == 0, ruff.stdout


def test_a_package_passes_its_tests_and_is_found_by_its_entry_point_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installer writes entry_points.txt from pyproject.toml; here the test does, so that nothing
    is built."""
    files = skeleton("selectors", "loudest_first", package=True)
    assert sorted(files) == [
        f"loudest_first/{name}"
        for name in (
            "README.md",
            "loudest_first.py",
            "pyproject.toml",
            "tests/test_loudest_first.py",
        )
    ]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    package = tmp_path / "loudest_first"
    python = [sys.executable, "-W", "error", "-m"]
    done = subprocess.run(
        [*python, "pytest", "-q", "-p", "no:cacheprovider", "-k", "not contract"],
        capture_output=True,
        text=True,
        cwd=package,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # three tests and the example in the docstring; the contract is tested with the other skeletons
    assert "4 passed" in done.stdout
    project = tomllib.loads(files["loudest_first/pyproject.toml"])["project"]
    assert (project["name"], project["dependencies"]) == ("loudest-first", [])
    info = package / "loudest_first-0.1.0.dist-info"
    info.mkdir()
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("".join(groups))
    (point,) = next(iter(metadata.distributions(path=[str(package)]))).entry_points
    assert (point.group, point.name) == ("motley.selector", "loudest_first")
    monkeypatch.syspath_prepend(package)
    assert issubclass(point.load(), SelectionRule)


@pytest.mark.slow
def test_types_of_generated_files_are_right(written: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "."],
        capture_output=True,
        text=True,
        check=False,
        cwd=written,
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
        (
            "selector",
            "random",
            "the name of a Python module; choose another, such as random_selector",
        ),
        (
            "selectr",
            "x",
            r"KIND: got 'selectr' \(did you mean 'selector'\?\); expected one of: aggregator, "
            r"algorithm, compressor",
        ),
    ],
)
def test_bad_kinds_and_names(kind: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        skeleton(kind, name)


def test_the_help_names_every_kind() -> None:
    shown = CliRunner().invoke(app, ["new", "--help"]).output
    assert [kind for kind in SKELETONS if kind not in shown] == []
