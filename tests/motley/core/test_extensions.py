"""What other distributions add: found by entry points, and named where it is missing."""

import sys
from importlib import metadata

import pytest

import motley
from motley.core import extensions
from motley.core.errors import ConfigError
from motley.core.extensions import extension, required_extension


@pytest.fixture
def points(monkeypatch):
    """Put entry points in the place of those that are installed."""

    def put(*found):
        named = metadata.EntryPoints(metadata.EntryPoint(*one) for one in found)
        monkeypatch.setattr(extensions, "_entry_points", lambda: named)

    return put


def test_an_extension_is_what_its_entry_point_names(points):
    points(
        ("double", "operator:mul", "motley.command"), ("double", "operator:add", "motley.advice")
    )
    assert extension("command", "double")(3, 4) == 12
    assert list(extensions.extensions("advice")) == ["double"]
    assert extension("command", "triple") is None


def test_a_missing_distribution_is_named_with_the_command_that_installs_it(points):
    points()
    said = r"'reproduce' comes with motley-papers, .*: pip install ./packages/motley-papers$"
    with pytest.raises(ConfigError, match=said):
        required_extension("command", "reproduce")


@pytest.mark.parametrize("name", ["inspect", "tune"])
def test_a_function_of_a_missing_distribution_names_it_when_it_is_called(points, name):
    points()
    function = getattr(motley, name)
    said = rf"'{name}' comes with motley-advice, .*: pip install ./packages/motley-advice$"
    with pytest.raises(ConfigError, match=said):
        function("first.toml", rounds=1)
    # as ``from motley import *`` does
    assert all(callable(getattr(motley, public)) for public in motley.__all__)
    points((name, "operator:mul", "motley.function"))
    assert getattr(motley, name)(3, 4) == 12


def test_a_function_that_lacks_a_distribution_names_it_when_it_is_called(
    points, tmp_path, monkeypatch
):
    """As advice without ``motley-report``, whose figures it draws with."""
    (tmp_path / "half_installed.py").write_text("import motley_ray.no_such_folder\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "motley_ray", None)
    points(("inspect", "half_installed:run", "motley.function"))
    function = motley.inspect
    said = r"^this needs motley-ray, which is not .*: pip install ./packages/motley-ray$"
    with pytest.raises(ConfigError, match=said):
        function("first.toml")
    assert all(callable(getattr(motley, public)) for public in motley.__all__)


def test_an_installation_whose_folder_is_gone_is_missing_and_a_broken_one_is_not(
    points, tmp_path, monkeypatch
):
    (tmp_path / "broken_one.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    points(
        ("reproduce", "gone_package.command:run", "motley.command"),
        ("other", "broken_one:run", "motley.command"),
    )
    assert extension("command", "reproduce") is None
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        extension("command", "other")
