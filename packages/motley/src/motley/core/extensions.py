"""What other distributions add to Motley, found by their entry points.

Motley imports none of them: the command asks here what is installed beside it. A distribution adds
a command to the group ``motley.command``, a public function of ``motley`` to ``motley.function``, a
kind of ``motley list`` to ``motley.listing``, what reads a table of the experiment file and does
what it asks for to ``motley.table``, a section of the report to ``motley.report``, advice
for ``motley inspect`` to ``motley.advice``, what makes a side of ``motley explain`` to
``motley.explained``, a module that runs experiments elsewhere to ``motley.runner``, and components
to the group of their kind.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

from motley.core.errors import ConfigError

COMES_WITH = {
    "audit-privacy": "motley-privacy",
    "deployment": "motley-flower",
    "explain": "motley-advice",
    "forget-noise": "motley-privacy",
    "inspect": "motley-advice",
    "plot": "motley-report",
    "predicted": "motley-advice",
    "privacy": "motley-privacy",
    "privacy-ledger": "motley-privacy",
    "ray": "motley-ray",
    "recipe": "motley-papers",
    "report": "motley-report",
    "reproduce": "motley-papers",
    "tune": "motley-advice",
    "twin": "motley-advice",
    "what-if": "motley-advice",
}
"""Commands, functions, tables, sections, kinds, engines and runners that a distribution of Motley's
repository adds, and its folder there."""


def extensions(group: str) -> dict[str, metadata.EntryPoint]:
    """Return what installed packages add to a group, by name; nothing of it is imported."""
    return {point.name: point for point in _entry_points().select(group=f"motley.{group}")}


def extension(group: str, name: str) -> Any:
    """Import and return what a package adds to a group under a name; None where none does."""
    point = extensions(group).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except ModuleNotFoundError as error:
        # an editable installation whose folder is gone still has its entry points
        if error.name != point.module.partition(".")[0]:
            raise
        return None


def required_extension(group: str, name: str, key: str | None = None) -> Any:
    """Import and return what a package adds to a group under a name; ``key`` is that of an error.

    Raises
    ------
    ConfigError: it is not installed.
    """
    component = extension(group, name)
    if component is None:
        raise ConfigError(not_installed(name), key)
    return component


def not_installed(name: str) -> str:
    """Return the sentence that says which distribution has what is missing, and how to install
    it."""
    return f"{name!r} comes with {_to_install(COMES_WITH[name])}"


def distribution_missing(error: BaseException) -> str | None:
    """Return the sentence about an error of importing a distribution of Motley's repository that
    another one needs; None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    folder = (error.name or "").partition(".")[0].replace("_", "-")
    return f"this needs {_to_install(folder)}" if folder in COMES_WITH.values() else None


def _to_install(folder: str) -> str:
    return (
        f"{folder}, which is not installed; in a checkout of Motley: pip install "
        f"./packages/{folder}"
    )


@cache
def added_modules() -> frozenset[str]:
    """Return the packages and modules of other distributions that add anything to Motley."""
    points = _entry_points()
    return frozenset(
        point.module.partition(".")[0]
        for group in points.groups
        if group.startswith("motley.")
        for point in points.select(group=group)
    )


@cache
def _entry_points() -> metadata.EntryPoints:
    """Return the entry points of all installed packages, which are looked for once."""
    untyped: Any = metadata.entry_points()
    points: metadata.EntryPoints = untyped
    return points
