"""The versions that pyproject.toml declares are those that make test-lowest and make test-pythons
can try."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import motley

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FILES = {
    path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in ROOT.glob("packages/*/pyproject.toml")
}
PROJECT = FILES["motley"]["project"]
DEPENDENCIES = [Requirement(one) for one in PROJECT["dependencies"]]
BESIDE = [
    Requirement(one)
    for name in sorted(FILES.keys() - {"motley"})
    for one in FILES[name]["project"]["dependencies"]
]
ELSEWHERE = {"flwr", "ray"}
"""What the default environment does without: Flower is in constraints-flower.txt alone, Ray in
constraints-ray.txt."""


def named(package):
    """Return a package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def pinned(name="constraints.txt"):
    found = re.findall(r"^([\w.-]+)==([^ ;\n]+)", (ROOT / name).read_text(encoding="utf-8"), re.M)
    return {named(package): Version(version) for package, version in found}


def bounds():
    return {named(one.name): str(one.specifier) for one in DEPENDENCIES}


def test_every_dependency_has_one_lower_bound_and_no_other():
    """scripts/test-lowest makes an exact version of a bound by writing == for >=."""
    assert {
        name for name, bound in bounds().items() if not re.fullmatch(r">=[0-9.]+", bound)
    } == set()


def test_the_pinned_versions_lie_within_the_bounds():
    for name in ("constraints.txt", "constraints-flower.txt"):
        versions = pinned(name)
        outside = {
            one.name
            for one in DEPENDENCIES
            if not one.specifier.contains(versions[named(one.name)])
        }
        assert outside == set(), name


def test_the_lower_bound_of_torch_is_the_version_that_is_tested():
    """Every test runs with the pinned torch and none with another, so nothing is promised of older
    ones."""
    assert (
        Version(bounds()["torch"].removeprefix(">=")).release[:2] == pinned()["torch"].release[:2]
    )
    assert pinned()["torch"] == pinned("constraints-flower.txt")["torch"]


def test_the_lowest_python_is_the_first_of_the_classifiers():
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert versions == sorted(versions, key=Version)


@pytest.mark.parametrize(
    "name",
    [
        "constraints.txt",
        "constraints-docs.txt",
        "constraints-hf.txt",
        "constraints-loaders.txt",
        "constraints-notebook.txt",
        "constraints-ray.txt",
        "constraints-trackers.txt",
    ],
)
def test_every_pin_has_hashes(name):
    """Without one, pip install --require-hashes refuses; with an index's address, a checkout would
    ask somebody's index."""
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z])", text)[1:]
    assert len(entries) == len(pinned(name)) > 10
    for entry in entries:
        head, *hashes = entry.strip().split(" \\\n")
        assert re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .+)?", head)
        assert hashes, head
        assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", one) for one in hashes), head
    assert "://" not in text


def test_whatever_the_default_environment_needs_is_pinned():
    """All that pyproject.toml asks for, by any way; pip resolves nothing there."""
    versions = pinned()
    needed = [*DEPENDENCIES, *BESIDE, *map(Requirement, CHECKOUT["dependency-groups"]["dev"])]
    for one in needed:
        assert one.name in ELSEWHERE or versions[named(one.name)] in one.specifier, one
    for file in FILES.values():
        (build,) = map(Requirement, file["build-system"]["requires"])
        assert str(build.specifier) == f"=={versions['hatchling']}"


@pytest.mark.parametrize(
    ("name", "shown", "left_out"),
    [
        ("README.md", "`{}`", set()),
        ("CONTRIBUTING.md", "`{}`", set()),
        ("CHANGELOG.md", "- `{}`: ", set()),
        ("docs/quick-start.md", "| `packages/{}` |", set()),
        ("pyproject.toml", '"packages/{}/src"', set()),
        ("mkdocs.yml", " packages/{}/src", {"motley-ray"}),
        ("scripts/install-flower", "--editable packages/{} ", {"motley-ray"}),
        ("scripts/release-check", "/dist/{}-*$ending", set()),
    ],
)
def test_each_list_of_the_distributions_has_all_of_them(name, shown, left_out):
    text = (ROOT / name).read_text(encoding="utf-8")
    names = {folder for folder in FILES if folder != "motley"}
    wheels = {folder: folder.replace("-", "_") if "dist/" in shown else folder for folder in names}
    lacking = {folder for folder, wheel in wheels.items() if shown.format(wheel) not in text}
    assert lacking == left_out


def test_the_distributions_have_one_version_and_one_lowest_python():
    assert {file["project"].get("version", motley.__version__) for file in FILES.values()} == {
        motley.__version__
    }
    assert "version" in PROJECT["dynamic"]
    assert {file["project"]["requires-python"] for file in FILES.values()} == {
        PROJECT["requires-python"]
    }


def test_nothing_asks_an_index_for_motley_itself():
    """None of them is in an index: whoever registered the name would run code here."""
    extras = [
        one
        for file in FILES.values()
        for asked in file["project"].get("optional-dependencies", {}).values()
        for one in asked
    ]
    assert not [
        one
        for one in [*map(Requirement, extras), *DEPENDENCIES, *BESIDE]
        if named(one.name).startswith("motley")
    ]


def test_the_tests_need_what_extras_bring():
    extras = {
        name: needed
        for file in FILES.values()
        for name, needed in file["project"].get("optional-dependencies", {}).items()
    }
    dev = set(CHECKOUT["dependency-groups"]["dev"])
    flower = set(FILES["motley-flower"]["project"]["dependencies"]) - {
        "flwr>=1.41,<2",
        *PROJECT["dependencies"],
    }
    beside = [
        needed
        for name in ("motley-privacy", "motley-report")
        for needed in FILES[name]["project"]["dependencies"]
    ]
    assert dev >= {*beside, *extras["tune"], *extras["tensorboard"], *flower}
