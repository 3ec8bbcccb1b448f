"""The versions that pyproject.toml declares are those that make test-lowest and make test-pythons can try."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES = [Requirement(one) for one in PROJECT["dependencies"]]


def pinned(name="constraints.txt"):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {line.split("==")[0].lower(): Version(line.split("==")[1]) for line in lines if "==" in line}


def bounds():
    return {one.name.lower(): str(one.specifier) for one in DEPENDENCIES}


def test_every_dependency_has_one_lower_bound_and_no_other():
    """scripts/test-lowest makes an exact version of a bound by writing == for >=."""
    assert {name for name, bound in bounds().items() if not re.fullmatch(r">=[0-9.]+", bound)} == set()


def test_the_pinned_versions_lie_within_the_bounds():
    for name in ("constraints.txt", "constraints-flower.txt"):
        versions = pinned(name)
        outside = {one.name for one in DEPENDENCIES if not one.specifier.contains(versions[one.name.lower()])}
        assert outside == set(), name


def test_the_lower_bound_of_torch_is_the_version_that_is_tested():
    """Every test runs with the pinned torch and none with another, so nothing is promised of older ones."""
    assert Version(bounds()["torch"].removeprefix(">=")).release[:2] == pinned()["torch"].release[:2]
    assert pinned()["torch"] == pinned("constraints-flower.txt")["torch"]


def test_the_lowest_python_is_the_first_of_the_classifiers():
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert versions == sorted(versions, key=Version)
